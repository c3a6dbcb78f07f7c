"""What cancellation and deadlines do to a connection, before and after the first byte is sent."""

# pytest-trio takes its clock from a test's arguments

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.errors import ConnectionLostError, RequestTimeoutError
from kgroup.wire.codec import encode_response
from kgroup.wire.connection import Connection
from tests.wire.scripted import NO_TIME, Peer, ScriptedBroker

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


async def silent(peer: Peer) -> None:
    """Negotiate, then never answer."""
    await peer.negotiate()
    await peer.rest()


async def slow(peer: Peer) -> None:
    """Answer each request after 10 s."""
    await peer.negotiate()
    while True:
        request = await peer.request()
        await trio.sleep(10)
        await peer.answer(request, error_code=0, **NO_TIME)


async def opened(broker: ScriptedBroker) -> Connection:
    """A connection to it."""
    return await Connection.open(broker.open, "broker", 1, client_id=None, timeout=10)


async def send_heartbeat(connection: Connection, timeout: float = 60) -> None:  # noqa: ASYNC109 # passed on
    """A heartbeat."""
    await connection.request("heartbeat", HEARTBEAT, timeout=timeout)


async def test_cancelled_before_anything_was_sent_leaves_the_connection_usable(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A request in a scope that is already cancelled sends nothing and breaks nothing."""
    sent: list[float] = []
    connection = await opened(ScriptedBroker(nursery, Peer.heartbeats))
    with trio.CancelScope() as scope:
        scope.cancel()
        await connection.request(
            "heartbeat", HEARTBEAT, timeout=9, on_sent=lambda: sent.append(trio.current_time())
        )
    assert scope.cancelled_caught
    assert not sent
    assert not connection.broken
    await send_heartbeat(connection)


async def test_cancelled_while_waiting_for_its_turn_leaves_the_connection_usable(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A request that is cancelled behind another one affects neither it nor the connection."""
    connection = await opened(ScriptedBroker(nursery, slow))
    async with trio.open_nursery() as requests:
        requests.start_soon(send_heartbeat, connection)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as scope:
            await send_heartbeat(connection)
    assert scope.cancelled_caught
    assert not connection.broken
    await send_heartbeat(connection)


async def test_cancelled_after_it_was_sent_breaks_the_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A request that is cancelled while it waits for its response closes the connection at once."""
    broker = ScriptedBroker(nursery, silent)
    connection = await opened(broker)
    with trio.move_on_after(1) as scope:
        await send_heartbeat(connection)
    assert scope.cancelled_caught
    assert connection.broken
    assert "Heartbeat was cancelled or timed out before its response" in repr(connection)
    with pytest.raises(trio.ClosedResourceError):
        await broker.streams[0].receive_some()


async def test_a_time_out_after_it_was_sent_breaks_the_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """No response in time is a RequestTimeoutError that says that the request was sent."""
    connection = await opened(ScriptedBroker(nursery, silent))
    started = trio.current_time()
    with pytest.raises(
        RequestTimeoutError, match="no response from broker:1 to Heartbeat within 3 s; it was sent"
    ) as caught:
        await send_heartbeat(connection, 3)
    assert trio.current_time() - started == pytest.approx(3)
    assert caught.value.sent
    assert connection.broken


async def test_a_time_out_while_waiting_for_its_turn_breaks_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The wait behind another request counts, and its time-out says that nothing was sent."""
    connection = await opened(ScriptedBroker(nursery, slow))
    async with trio.open_nursery() as requests:
        requests.start_soon(send_heartbeat, connection)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RequestTimeoutError, match="nothing was sent") as caught:
            await send_heartbeat(connection, 3)
    assert not caught.value.sent
    assert not connection.broken


async def test_those_who_wait_behind_a_broken_request_were_not_sent(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """When a connection breaks, requests that wait for their turn fail as not sent."""
    connection = await opened(ScriptedBroker(nursery, silent))

    async def waits() -> None:
        with pytest.raises(ConnectionLostError, match="Heartbeat was not sent") as caught:
            await send_heartbeat(connection)
        assert not caught.value.sent

    async with trio.open_nursery() as requests:
        with trio.CancelScope() as first:
            requests.start_soon(waits)
            first.deadline = trio.current_time() + 2
            await send_heartbeat(connection)
    assert first.cancelled_caught


async def test_on_sent_is_called_once_just_before_the_first_byte(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """``on_sent`` is called when the request is sent, not when it begins to wait."""
    times: list[float] = []
    connection = await opened(ScriptedBroker(nursery, slow))
    started = trio.current_time()

    async def note() -> None:
        def on_sent() -> None:
            times.append(trio.current_time() - started)

        await connection.request("heartbeat", HEARTBEAT, timeout=60, on_sent=on_sent)

    async with trio.open_nursery() as requests:
        requests.start_soon(note)
        requests.start_soon(note)
    assert times == pytest.approx([0, 10])


async def test_on_sent_may_shield_the_request(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A scope that ``on_sent`` shields gets the response although it is cancelled meanwhile."""
    connection = await opened(ScriptedBroker(nursery, slow))
    with trio.move_on_after(5) as outer, trio.CancelScope() as inner:

        def on_sent() -> None:
            inner.shield = True

        answer = await connection.request("heartbeat", HEARTBEAT, timeout=60, on_sent=on_sent)
        assert answer.error_code == 0
    assert outer.cancel_called
    assert not connection.broken


async def test_on_sent_that_raises_sends_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An error of ``on_sent`` reaches the caller, and the connection is unchanged."""

    def on_sent() -> None:
        raise ZeroDivisionError

    connection = await opened(ScriptedBroker(nursery, Peer.heartbeats))
    with pytest.raises(ZeroDivisionError):
        await connection.request("heartbeat", HEARTBEAT, timeout=60, on_sent=on_sent)
    await send_heartbeat(connection)


async def test_cancellation_replaces_no_response(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A response that has arrived is returned although the close after it is cancelled."""

    async def talkative(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        scope.cancel()
        answer = encode_response(
            "heartbeat", 4, {"error_code": 27, **NO_TIME}, request.correlation_id
        )
        await peer.stream.send_all(len(answer).to_bytes(4, "big") + answer + b"more")

    connection = await opened(ScriptedBroker(nursery, talkative))
    with trio.CancelScope() as scope, trio.CancelScope() as inner:

        def on_sent() -> None:
            inner.shield = True

        answer = await connection.request("heartbeat", HEARTBEAT, timeout=60, on_sent=on_sent)
        inner.shield = False
        assert answer.error_code == 27
    assert connection.broken


async def test_a_shielded_request_works_while_all_else_is_cancelled(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The connection needs no task of its own: a shielded request in a cancelled scope works."""
    connection = await opened(ScriptedBroker(nursery, slow))
    with trio.CancelScope() as scope:
        scope.cancel()
        with trio.CancelScope(shield=True):
            await send_heartbeat(connection)
    assert not connection.broken


async def test_opening_that_is_cancelled_leaves_nothing_open(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Cancelled in the middle of ApiVersions, the stream is closed."""
    broker = ScriptedBroker(nursery, Peer.rest)
    with trio.move_on_after(1) as scope:
        await opened(broker)
    assert scope.cancelled_caught
    with pytest.raises(trio.ClosedResourceError):
        await broker.streams[0].receive_some()
