"""A network of memory streams: latency, cuts, partitions, and members that move no byte.

Everybody on it has a name; a *route* is the pair (member, broker). Bytes are under way for the
route's latency and arrive in order. While a route is *held* (the network is partitioned, the
member frozen) what is under way waits, as TCP's retransmissions do, and goes on later; a *cut*
ends the connections at once and loses what was under way.

INVARIANT: what happens depends on the injected choices, the calls made, and trio's clock alone.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import math
import os
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from kgroup.protocols import Random

Accept = Callable[["SimulatedStream", str], None]
"""Takes a broker's end of a new connection and the name of who opened it."""
Route = tuple[str, str]
"""(member, broker)."""

_RESET: Final = "the connection was reset"


@final
@attrs.frozen
class Latency:
    """How long bytes are under way: drawn anew for each piece, from ``least`` to ``most`` seconds.

    Attributes:
        least: seconds.
        most: seconds.
    """

    least: float = 0.0005
    most: float = 0.005

    def draw(self, random: Random) -> float:
        """One of them."""
        return random.uniform(self.least, self.most)


@final
class SimulatedStream(trio.abc.Stream):
    """One end of a connection."""

    def __init__(self, network: Network, route: Route) -> None:
        self._network = network
        self.route: Final = route
        self._arrived: deque[bytes] = deque()
        self._peer: SimulatedStream = self
        self._closed = self._broken = self._ended = False
        self._reader: trio.lowlevel.Task | None = None
        self.last_arrival = 0.0

    @classmethod
    def pair(cls, network: Network, route: Route) -> tuple[SimulatedStream, SimulatedStream]:
        """The two ends of a connection."""
        one, other = cls(network, route), cls(network, route)
        one._peer, other._peer = other, one
        return one, other

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See ``trio.abc.SendStream``; a peer that reads slowly never blocks it."""
        # Sending never waits; a turn of trio's loop for each message would be the larger half of
        # what a simulation costs.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        if data:
            self._network.send(self._peer, bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        """See ``trio.abc.SendStream``."""
        await trio.lowlevel.checkpoint()
        self._check()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ``trio.abc.ReceiveStream``."""
        if self._reader is not None:
            raise trio.BusyResourceError("another task reads from this connection")
        if self._may_read():
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._wait()
        if self._arrived:
            return self._take(max_bytes)
        self._check()
        return b""

    async def aclose(self) -> None:
        """See ``trio.abc.AsyncResource``."""
        if not self._closed:
            self._closed = True
            self._wake()
            self._network.send(self._peer, None)
            self._network.forget(self)
        await trio.lowlevel.checkpoint()

    # For the network.

    def arrive(self, data: bytes | None) -> None:
        """Bytes have arrived, or None: the peer has closed."""
        if self._closed or self._broken:
            return
        if data is None:
            self._ended = True
        else:
            self._arrived.append(data)
        self._wake()

    def reset(self) -> None:
        """The connection is gone, and with it what was under way."""
        self._broken = True
        self._arrived.clear()
        self._wake()

    # Within.

    def _may_read(self) -> bool:
        return bool(self._arrived) or self._closed or self._broken or self._ended

    async def _wait(self) -> None:
        self._reader = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            trio.lowlevel.reschedule(reader)

    def _take(self, max_bytes: int | None) -> bytes:
        data = self._arrived.popleft()
        if max_bytes is None or len(data) <= max_bytes:
            return data
        self._arrived.appendleft(data[max_bytes:])
        return data[:max_bytes]

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end was closed")
        if self._broken:
            raise trio.BrokenResourceError(_RESET)


_Parcel = tuple[float, int, SimulatedStream, bytes | None]


@final
class Network:
    """Who can talk to whom, and what is under way."""

    def __init__(self, random: Random, latency: Latency) -> None:
        self._random = random
        self._latency = latency
        self._brokers: dict[tuple[str, int], tuple[str, Accept]] = {}
        self._ends: dict[Route, dict[SimulatedStream, SimulatedStream]] = {}
        self._under_way: list[_Parcel] = []
        self._numbers = itertools.count()
        self._held: dict[Route, list[_Parcel]] = {}
        self._holds: Counter[Route] = Counter()
        self._released: dict[Route, trio.Event] = {}
        self._slowness: dict[Route, float] = {}
        self._sleeping = trio.CancelScope()

    def listen(self, host: str, port: int, broker: str, accept: Accept) -> None:
        """A broker is to be found at an address; ``accept`` raises OSError while it is down."""
        self._brokers[host, port] = (broker, accept)

    def plug_in(self, member: str) -> Plug:
        """A member's way to every broker."""
        return Plug(self, member)

    async def run(self) -> None:
        """Deliver for ever; only cancellation ends it."""
        while True:
            self._deliver()
            with trio.CancelScope(deadline=self._next_arrival()) as self._sleeping:
                await trio.sleep_forever()

    # Faults.

    def hold(self, route: Route) -> None:
        """Let nothing pass on a route, in either direction; holds are counted."""
        self._holds[route] += 1
        self._released.setdefault(route, trio.Event())

    def release(self, route: Route) -> None:
        """Take one hold back; after the last one what was held goes on.

        Raises:
            ValueError: it is not held.
        """
        if not self._holds[route]:
            raise ValueError(f"the route {route} is not held")
        self._holds[route] -= 1
        if self._holds[route]:
            return
        del self._holds[route]
        self._released.pop(route).set()
        for _, _, end, data in self._held.pop(route, []):
            self.send(end, data)

    def slow_down(self, route: Route, seconds: float) -> None:
        """Let bytes be under way for so much longer from now on; 0 for no longer than usual."""
        if seconds:
            self._slowness[route] = seconds
        else:
            self._slowness.pop(route, None)

    def cut(self, route: Route) -> int:
        """End every connection of a route; how many there were."""
        ends = self._ends.pop(route, {})
        for ours, theirs in ends.items():
            ours.reset()
            theirs.reset()
        self._held.pop(route, None)
        return len(ends)

    # For the ends.

    def send(self, to: SimulatedStream, data: bytes | None) -> None:
        """Put bytes, or the end of them, on their way."""
        route = to.route
        delay = self._latency.draw(self._random) + self._slowness.get(route, 0.0)
        arrival = max(trio.current_time() + delay, to.last_arrival)
        to.last_arrival = arrival
        heapq.heappush(self._under_way, (arrival, next(self._numbers), to, data))
        self._sleeping.deadline = min(self._sleeping.deadline, arrival)

    def forget(self, end: SimulatedStream) -> None:
        """An end was closed by its owner."""
        ends = self._ends.get(end.route, {})
        ends.pop(end, None)

    def cut_all(self, member: str) -> None:
        """End every connection of a member."""
        for route in [one for one in self._ends if one[0] == member]:
            self.cut(route)

    async def open(self, plug: Plug, host: str, port: int) -> trio.abc.Stream:
        """Open a connection; see ``Plug.open_stream``."""
        await trio.lowlevel.checkpoint()
        if (host, port) not in self._brokers:
            raise _refused(errno.EHOSTUNREACH, host, port)
        broker, accept = self._brokers[host, port]
        route = (plug.member, broker)
        await trio.sleep(self._latency.draw(self._random) + self._slowness.get(route, 0.0))
        while route in self._holds:
            await self._released[route].wait()
        if not plug.plugged_in:
            raise _refused(errno.ENETUNREACH, host, port)
        ours, theirs = SimulatedStream.pair(self, route)
        accept(theirs, plug.member)
        self._ends.setdefault(route, {})[ours] = theirs
        return ours

    # Within.

    def _next_arrival(self) -> float:
        return self._under_way[0][0] if self._under_way else math.inf

    def _deliver(self) -> None:
        now = trio.current_time()
        under_way = self._under_way
        while under_way and under_way[0][0] <= now:
            parcel = heapq.heappop(under_way)
            _, _, end, data = parcel
            if end.route in self._holds:
                self._held.setdefault(end.route, []).append(parcel)
            else:
                end.arrive(data)


@final
class Plug:
    """A member's way into the network, until it is pulled out for good."""

    def __init__(self, network: Network, member: str) -> None:
        self._network = network
        self.member: Final = member
        self.plugged_in = True

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection to a broker; a ``StreamOpener``.

        Raises:
            OSError: nobody is at the address, the broker is down, or the plug was pulled out.

        Cancellation: nothing is left open.
        """
        return await self._network.open(self, host, port)

    def pull_out(self) -> None:
        """Cut the member off for good, as if its machine were gone."""
        self.plugged_in = False
        self._network.cut_all(self.member)


def _refused(code: int, host: str, port: int) -> OSError:
    return OSError(code, f"{os.strerror(code)}: {host}:{port}")
