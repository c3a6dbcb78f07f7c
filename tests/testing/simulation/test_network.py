"""The simulated network: latency, order, holds, stalls, cuts and plugs."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from kgroup.testing.simulation.network import CallAt, Latency, Network, SimulatedStream

ROUTE = ("m1", "b1")


class _Wire:
    """A network with one broker that accepts every connection."""

    def __init__(self, latency: Latency, call_at: CallAt) -> None:
        self.network = Network(random.Random(1), latency, call_at)
        self.taken: list[tuple[SimulatedStream, str]] = []
        self.network.listen("b1", 9092, "b1", lambda end, who: self.taken.append((end, who)))
        self.plug = self.network.plug_in("m1")

    async def connect(self) -> tuple[trio.abc.Stream, SimulatedStream]:
        """A connection's two ends: the member's and the broker's."""
        ours = await self.plug.open_stream("b1", 9092)
        return ours, self.taken[-1][0]


@asynccontextmanager
async def wire(least: float = 0.1, most: float = 0.1) -> AsyncIterator[_Wire]:
    """A network that is running."""
    async with trio.open_nursery() as nursery:

        async def call(at: float, fn: Callable[[], None]) -> None:
            await trio.sleep_until(at)
            fn()

        yield _Wire(Latency(least, most), lambda at, fn: nursery.start_soon(call, at, fn))
        nursery.cancel_scope.cancel()


async def test_bytes_take_their_time(autojump_clock: MockClock) -> None:
    """Bytes arrive after the latency, unchanged."""
    async with wire() as made:
        ours, theirs = await made.connect()
        assert made.taken[0][1] == "m1"
        began = trio.current_time()
        await ours.send_all(b"hello")
        assert await theirs.receive_some(2) == b"he"
        assert trio.current_time() == pytest.approx(began + 0.1)
        assert await theirs.receive_some() == b"llo"


async def test_bytes_keep_their_order(autojump_clock: MockClock) -> None:
    """Messages of one connection arrive in order, whatever their latencies."""
    async with wire(0.0, 1.0) as made:
        ours, theirs = await made.connect()
        for number in range(50):
            await ours.send_all(bytes([number]))
        await ours.aclose()
        received = b""
        while piece := await theirs.receive_some():
            received += piece
        assert received == bytes(range(50))


async def test_a_closed_end_says_so(autojump_clock: MockClock) -> None:
    """After closing, the other side reads the end, and the closed side raises."""
    async with wire() as made:
        ours, theirs = await made.connect()
        await ours.aclose()
        assert await theirs.receive_some() == b""
        for refused in (ours.receive_some(), ours.send_all(b"x")):
            with pytest.raises(trio.ClosedResourceError):
                await refused
        with pytest.raises(trio.ClosedResourceError):
            await ours.wait_send_all_might_not_block()


async def test_two_readers_are_refused(autojump_clock: MockClock) -> None:
    """A connection has one reader at a time; a cancelled reader makes room for the next."""
    async with wire() as made, trio.open_nursery() as nursery:
        ours, theirs = await made.connect()
        with trio.move_on_after(1):
            await theirs.receive_some()
        nursery.start_soon(theirs.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await theirs.receive_some()
        await ours.send_all(b"x")


async def test_a_held_route_keeps_what_is_under_way(autojump_clock: MockClock) -> None:
    """Nothing passes a held route, not even a new connection, until its last release."""
    async with wire() as made:
        ours, theirs = await made.connect()
        await ours.send_all(b"held")
        made.network.hold(ROUTE)
        made.network.hold(ROUTE)
        with trio.move_on_after(60) as waiting:
            await theirs.receive_some()
        assert waiting.cancelled_caught
        with trio.move_on_after(60) as waiting:
            await made.plug.open_stream("b1", 9092)
        assert waiting.cancelled_caught
        made.network.release(ROUTE)
        with trio.move_on_after(60) as waiting:
            await theirs.receive_some()
        assert waiting.cancelled_caught
        made.network.release(ROUTE)
        assert await theirs.receive_some() == b"held"
        await made.connect()
        with pytest.raises(ValueError, match="not held"):
            made.network.release(ROUTE)


async def test_a_cut_loses_what_is_under_way(autojump_clock: MockClock) -> None:
    """A cut breaks both ends; a new connection can be opened."""
    async with wire() as made:
        ours, theirs = await made.connect()
        await ours.send_all(b"lost")
        assert made.network.cut(ROUTE) == 1
        assert made.network.cut(ROUTE) == 0
        for end in (ours, theirs):
            with pytest.raises(trio.BrokenResourceError):
                await end.receive_some()
        ours, theirs = await made.connect()
        await ours.send_all(b"new")
        assert await theirs.receive_some() == b"new"


async def test_what_is_under_way_arrives_after_its_sender_has_closed(
    autojump_clock: MockClock,
) -> None:
    """Bytes sent before a close on a held route are delivered."""
    async with wire() as made, trio.open_nursery() as nursery:
        ours, theirs = await made.connect()
        made.network.hold(ROUTE)
        await ours.send_all(b"late")
        await ours.aclose()
        nursery.start_soon(_release_after, made.network, 60)
        assert await theirs.receive_some() == b"late"
        assert await theirs.receive_some() == b""
        await theirs.aclose()
        assert made.network.cut(ROUTE) == 0


async def test_a_stalled_connection_stands_still_and_others_do_not(
    autojump_clock: MockClock,
) -> None:
    """About half of a route's connections stall, and deliver everything once they resume."""
    async with wire() as made:
        connections = [await made.connect() for _ in range(40)]
        stalled = made.network.stall(ROUTE)
        still = [theirs for _, theirs in connections if theirs in stalled]
        assert len(stalled) == 2 * len(still)
        assert 5 < len(still) < 35
        for ours, theirs in connections:
            await ours.send_all(b"x")
            with trio.move_on_after(60) as waiting:
                assert await theirs.receive_some() == b"x"
            assert waiting.cancelled_caught == (theirs in stalled)
        for end in stalled:
            end.resume()
        for end in still:
            assert await end.receive_some() == b"x"


async def _release_after(network: Network, seconds: float) -> None:
    await trio.sleep(seconds)
    network.release(ROUTE)


async def test_a_slow_route_takes_longer(autojump_clock: MockClock) -> None:
    """A slow route adds up to its delay to every latency, until it is reset."""
    async with wire() as made:
        ours, theirs = await made.connect()
        for slowness, least, most in ((2.0, 0.5, 2.1), (0.0, 0.1, 0.1)):
            made.network.slow_down(ROUTE, slowness)
            taken = []
            for _ in range(10):
                began = trio.current_time()
                await ours.send_all(b"x")
                await theirs.receive_some()
                taken.append(trio.current_time() - began)
            assert min(taken) >= 0.1 - 1e-9
            assert least - 1e-9 <= max(taken) <= most + 1e-9


async def test_a_plug_that_is_pulled_out_reaches_no_broker(autojump_clock: MockClock) -> None:
    """Its connections are reset and it opens no other; another plug of the member can."""
    async with wire() as made:
        ours, _ = await made.connect()
        made.plug.pull_out()
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"x")
        with pytest.raises(OSError, match="unreachable"):
            await made.plug.open_stream("b1", 9092)
        made.plug = made.network.plug_in("m1")
        await made.connect()


async def test_an_unknown_address_is_unreachable(autojump_clock: MockClock) -> None:
    """An address that no broker has cannot be reached."""
    async with wire() as made:
        with pytest.raises(OSError, match="b9:9092"):
            await made.plug.open_stream("b9", 9092)
