"""A connection to one broker: opened at first use, replaced if broken, no doubtful retries."""

# pytest-trio takes its clock from a test's arguments

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.errors import ConnectionLostError, ProtocolError, RequestTimeoutError
from kgroup.wire.broker_connection import BrokerConnection
from kgroup.wire.byte_streams import open_tcp
from tests.wire.scripted import NO_TIME, Peer, ScriptedBroker

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


def connection_to(broker: ScriptedBroker) -> BrokerConnection:
    """A `BrokerConnection` to a scripted broker."""
    return BrokerConnection(broker.open, "broker", 9092, client_id="test", broker="broker 1")


async def beat(connection: BrokerConnection, **options: Any) -> Any:
    """Send a heartbeat over it."""
    return await connection.request("heartbeat", HEARTBEAT, **{"timeout": 10, **options})


async def one_beat(peer: Peer) -> None:
    """Answer one heartbeat, and close the connection."""
    await peer.negotiate()
    await peer.answer(await peer.request(), error_code=0, **NO_TIME)


async def one_beat_and_a_half(peer: Peer) -> None:
    """Answer one heartbeat, take the next, and close the connection within its response."""
    await one_beat(peer)
    await peer.request()
    await peer.stream.send_all(b"\0\0")


async def hangs_up_on_the_first(peer: Peer) -> None:
    """Take one request, and close the connection."""
    await peer.negotiate()
    await peer.request()


async def silent(peer: Peer) -> None:
    """Never answer a request."""
    await peer.negotiate()
    await peer.rest()


async def garbled(peer: Peer) -> None:
    """Answer one request with the wrong correlation id."""
    await peer.negotiate()
    await peer.request()
    await peer.frames.send(bytes(20))
    await peer.rest()


async def test_a_forked_process_sends_nothing(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gets no request on the connection of the parent, nor on a new one."""
    broker = ScriptedBroker(nursery, Peer.heartbeats)
    connection = connection_to(broker)
    for reused in (False, True):
        if reused:
            await beat(connection)
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(ConnectionLostError, match="was forked from process") as caught:
                await beat(connection)
        assert not caught.value.sent
        assert connection.idle == reused
    await beat(connection)
    await connection.aclose()


async def test_an_error_has_no_more_of_a_host_than_a_name_may_be_long() -> None:
    """A broker can send any text as another one's host; events keep errors."""
    connection = BrokerConnection(open_tcp, "x" * 32_000, 9092, client_id="test")
    with pytest.raises(ConnectionLostError) as caught:
        await beat(connection)
    assert "x:9092" in str(caught.value)
    assert len(str(caught.value)) < 500
    await connection.aclose()
    with pytest.raises(ConnectionLostError) as caught:
        await beat(connection)
    assert len(str(caught.value)) < 500


async def test_it_opens_one_connection_at_the_first_request(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Nothing is opened before the first request, and all requests use one connection."""
    broker = ScriptedBroker(nursery, Peer.heartbeats)
    connection = connection_to(broker)
    assert broker.opened == 0
    assert repr(connection) == "<BrokerConnection to broker 1, not connected>"
    async with trio.open_nursery() as requests:
        for _ in range(5):
            requests.start_soon(beat, connection)
    assert broker.opened == 1
    assert repr(connection) == "<BrokerConnection to broker 1, <Connection to broker 1, ready>>"


async def test_a_connection_closed_while_idle_is_replaced(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If a used connection ends before a byte of the response, the request is sent once more."""
    steps: list[tuple[str, int]] = []
    broker = ScriptedBroker(nursery, one_beat, Peer.heartbeats)
    connection = connection_to(broker)
    await beat(connection)
    await trio.testing.wait_all_tasks_blocked()
    await beat(
        connection,
        on_sent=lambda: steps.append(("sent", broker.opened)),
        on_lost=lambda: steps.append(("lost", broker.opened)),
    )
    # Into the closed connection; before another one is opened; for real.
    assert steps == [("sent", 1), ("lost", 1), ("sent", 2)]


async def test_it_is_replaced_only_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A second connection that ends in the same way is an error."""
    broker = ScriptedBroker(nursery, one_beat, hangs_up_on_the_first, Peer.heartbeats)
    connection = connection_to(broker)
    await beat(connection)
    with pytest.raises(ConnectionLostError) as caught:
        await beat(connection)
    assert caught.value.sent
    assert broker.opened == 2
    await beat(connection)
    assert broker.opened == 3


async def test_an_error_says_sent_if_only_the_first_attempt_was(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If the second connection does not open, the error is that of the attempt that was sent."""
    broker = ScriptedBroker(nursery, one_beat, Peer.rest)
    connection = connection_to(broker)
    await beat(connection)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(ConnectionLostError, match="may have acted on Heartbeat") as caught:
        await beat(connection)
    assert caught.value.sent
    assert "could not be sent again: no response to ApiVersions" in str(caught.value)
    assert broker.opened == 2


@pytest.mark.parametrize(
    ("script", "used", "error"),
    [
        (hangs_up_on_the_first, False, ConnectionLostError),
        (one_beat_and_a_half, True, ConnectionLostError),
        (garbled, False, ProtocolError),
        (silent, False, RequestTimeoutError),
    ],
)
async def test_a_request_in_doubt_is_not_sent_again(
    script: Callable[[Peer], Any],
    *,
    used: bool,
    error: type[Exception],
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    """A new connection that ends, half a response, a bad one or none is the caller's decision.

    The next request has a new connection.
    """
    broker = ScriptedBroker(nursery, script, Peer.heartbeats)
    connection = connection_to(broker)
    if used:
        await beat(connection)
    with pytest.raises(error):
        await beat(connection)
    assert broker.opened == 1
    await beat(connection)
    assert broker.opened == 2


async def test_waiting_requests_use_the_next_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """When a request is cancelled, those behind it share one new connection."""
    broker = ScriptedBroker(nursery, silent, Peer.heartbeats)
    connection = connection_to(broker)
    async with trio.open_nursery() as requests:
        with trio.CancelScope() as scope:
            for _ in range(3):
                requests.start_soon(_second, connection)
            scope.deadline = trio.current_time() + 1
            await beat(connection)
    assert scope.cancelled_caught
    assert broker.opened == 2


async def _second(connection: BrokerConnection) -> None:
    await trio.sleep(0.5)
    assert (await beat(connection)).error_code == 0


async def test_discard_makes_the_next_request_use_a_new_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """After ``discard`` a new connection is opened; without one it does nothing."""
    broker = ScriptedBroker(nursery, Peer.heartbeats, Peer.heartbeats)
    connection = connection_to(broker)
    await connection.discard()
    await beat(connection)
    await connection.discard()
    await beat(connection)
    assert broker.opened == 2


async def test_a_closed_connection_refuses(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """After ``aclose`` a request is refused, and nothing is opened for it."""
    broker = ScriptedBroker(nursery, Peer.heartbeats)
    connection = connection_to(broker)
    await connection.aclose()
    with pytest.raises(ConnectionLostError, match="closed>; Heartbeat was not sent"):
        await beat(connection)
    assert broker.opened == 0


async def test_closing_while_it_is_being_opened_leaves_nothing_open(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A connection that becomes ready after ``aclose`` is closed and not used."""

    async def slow(peer: Peer) -> None:
        await trio.sleep(1)
        await silent(peer)

    broker = ScriptedBroker(nursery, slow)
    connection = connection_to(broker)

    async def send_heartbeat() -> None:
        with pytest.raises(ConnectionLostError, match="was not sent"):
            await beat(connection)

    async with trio.open_nursery() as requests:
        requests.start_soon(send_heartbeat)
        await trio.sleep(0.5)
        await connection.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await broker.streams[0].receive_some()


async def test_the_wait_for_a_connection_has_the_deadline_too(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A request that waits while another opens the connection keeps its own deadline."""
    broker = ScriptedBroker(nursery, Peer.rest)
    connection = connection_to(broker)

    async def opener() -> None:
        with pytest.raises(RequestTimeoutError, match="no response to ApiVersions"):
            await beat(connection)

    async with trio.open_nursery() as requests:
        requests.start_soon(opener)
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        with pytest.raises(RequestTimeoutError, match="Heartbeat was not sent") as caught:
            await beat(connection, timeout=2)
        assert trio.current_time() - started == pytest.approx(2)
    assert not caught.value.sent


async def test_a_request_that_may_wait_for_long_does_not_wait_so_for_its_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """``open_timeout`` limits the opening, and what waits for another one's."""

    async def slow(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        await trio.sleep(50)
        await peer.answer(request, error_code=0, **NO_TIME)

    broker = ScriptedBroker(nursery, Peer.rest, slow)
    connection = BrokerConnection(broker.open, "broker", 9092, client_id=None, open_timeout=5)
    began = trio.current_time()

    async def fail() -> None:
        with pytest.raises(RequestTimeoutError) as caught:
            await beat(connection, timeout=60)
        assert not caught.value.sent
        assert trio.current_time() - began == pytest.approx(5)

    async with trio.open_nursery() as requests:
        requests.start_soon(fail)
        requests.start_soon(fail)
    await beat(connection, timeout=60)
    assert trio.current_time() - began == pytest.approx(55)
