"""A simulated network of memory streams with latency, partitions, stalls and resets.

Members and brokers have names; a *route* is the pair (member, broker). Bytes take the route's
latency and arrive in order. While a route is *held* (the network is partitioned or the member
frozen), bytes in flight wait and arrive later, as TCP retransmits them; the same happens on a
single *stalled* connection. To *cut* a route resets its connections and loses the bytes in flight.

INVARIANT: what happens depends only on the generator given, the calls made, and trio's clock.
"""

from __future__ import annotations

import errno
import math
import os
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Final, final

import attrs
import trio

Accept = Callable[["SimulatedStream", str], None]
"""Takes the broker's end of a new connection and the name of the member that opened it."""
CallAt = Callable[[float, Callable[[], None]], None]
"""Calls a function at a virtual time; see ``virtual_time.call_at``."""
Route = tuple[str, str]
"""(member, broker)."""

_RESET: Final = "the connection was reset"
_STALLED: Final = 0.5
"""The part of a route's connections that a stall affects."""


@final
@attrs.frozen
class Latency:
    """How long bytes are in flight: a random time for each message.

    Attributes:
        least: the shortest time, in seconds.
        most: the longest time, in seconds.
    """

    least: float = 0.0005
    most: float = 0.005

    def sample(self, random: Random) -> float:
        """A random latency."""
        return random.uniform(self.least, self.most)


@final
class SimulatedStream(trio.abc.Stream):
    """One end of a connection.

    The clock itself wakes the reader when bytes arrive. A task that delivers them, or a cancel
    scope with a deadline, would double the cost of a message, and messages are most of the cost
    of a simulation.
    """

    def __init__(self, network: Network, route: Route) -> None:
        self._network = network
        self.route: Final = route
        self._inbox: deque[tuple[float, bytes | None]] = deque()
        self._peer: SimulatedStream = self
        self._closed = self._broken = False
        self._not_before = 0.0
        self._stalls = 0
        self._reader: trio.lowlevel.Task | None = None

    @classmethod
    def pair(cls, network: Network, route: Route) -> tuple[SimulatedStream, SimulatedStream]:
        """The two ends of a connection."""
        one, other = cls(network, route), cls(network, route)
        one._peer, other._peer = other, one
        return one, other

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See ``trio.abc.SendStream``; a peer that reads slowly never blocks it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.send_now(bytes(data))

    def send_now(self, data: bytes) -> None:
        """Send, as `send_all` does, from outside a task.

        Raises:
            ClosedResourceError: this end was closed.
            BrokenResourceError: the connection was reset.
        """
        self._check()
        if data:
            self._peer.post(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See ``trio.abc.SendStream``."""
        await trio.lowlevel.checkpoint()
        self._check()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ``trio.abc.ReceiveStream``."""
        if self._reader is not None:
            raise trio.BusyResourceError("another task reads from this connection")
        await trio.lowlevel.checkpoint_if_cancelled()
        while (at := self._readable_at()) > trio.current_time():
            await self._wait(at)
        self._check()
        return self._take(max_bytes)

    async def aclose(self) -> None:
        """See ``trio.abc.AsyncResource``."""
        self.close_now()
        await trio.lowlevel.checkpoint()

    def close_now(self) -> None:
        """Close this end, as `aclose` does, from outside a task."""
        if not self._closed:
            self._closed = True
            self.wake_reader()
            self._peer.post(None)
            if self._peer.closed:
                self._network.forget(self, self._peer)

    # For the network and the other end.

    def post(self, data: bytes | None) -> None:
        """Bytes, or the end of the stream (None), are sent to this end."""
        if self._closed or self._broken:
            return
        arrival = trio.current_time() + self._network.delay(self.route)
        if self._inbox:
            arrival = max(arrival, self._inbox[-1][0])
        self._inbox.append((arrival, data))
        self.wake_reader()

    @property
    def closed(self) -> bool:
        """Whether its owner has closed it."""
        return self._closed

    def stall(self) -> None:
        """Let nothing arrive until `resume` was called as often."""
        self._stalls += 1
        self.wake_reader()

    def resume(self) -> None:
        """Undo one `stall`."""
        self._stalls -= 1
        self.release()

    def release(self) -> None:
        """Let the bytes that were held continue from now."""
        self._not_before = trio.current_time() + self._network.delay(self.route)
        self.wake_reader()

    def reset(self) -> None:
        """Reset the connection; bytes in flight are lost."""
        self._broken = True
        self._inbox.clear()
        self.wake_reader()

    def wake_reader(self) -> None:
        """Wake the reader if it can read now; if it can later, have this called then."""
        if self._reader is None:
            return
        at = self._readable_at()
        if at <= trio.current_time():
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)
        elif at < math.inf:
            self._network.call_at(at, self.wake_reader)

    # Internal.

    async def _wait(self, at: float) -> None:
        """Wait until there may be something to read; ``at`` is when, as far as is known now."""
        self._reader = trio.lowlevel.current_task()
        if at < math.inf:
            self._network.call_at(at, self.wake_reader)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _readable_at(self) -> float:
        """The time from which a reader need not wait."""
        if self._closed or self._broken:
            return -math.inf
        if not self._inbox or self._stalls or self._network.holds(self.route):
            return math.inf
        return max(self._inbox[0][0], self._not_before)

    def _take(self, max_bytes: int | None) -> bytes:
        arrival, data = self._inbox[0]
        if data is None:
            return b""
        self._inbox.popleft()
        if max_bytes is not None and len(data) > max_bytes:
            self._inbox.appendleft((arrival, data[max_bytes:]))
            return data[:max_bytes]
        return data

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end was closed")
        if self._broken:
            raise trio.BrokenResourceError(_RESET)


@final
class Network:
    """The routes between members and brokers, and the connections on them."""

    def __init__(self, random: Random, latency: Latency, call_at: CallAt) -> None:
        self.call_at: Final = call_at
        self._random = random
        self._latency = latency
        self._brokers: dict[tuple[str, int], tuple[str, Accept]] = {}
        self._ends: dict[Route, dict[SimulatedStream, SimulatedStream]] = {}
        self._holds: Counter[Route] = Counter()
        self._released: dict[Route, trio.Event] = {}
        self._slowness: dict[Route, float] = {}

    def listen(self, host: str, port: int, broker: str, accept: Accept) -> None:
        """Make a broker reachable at an address; ``accept`` raises OSError while it is down."""
        self._brokers[host, port] = (broker, accept)

    def plug_in(self, member: str) -> Plug:
        """Connect a member to the network."""
        return Plug(self, member)

    # Faults.

    def hold(self, route: Route) -> None:
        """Let nothing pass on a route, in either direction, until `release` was called as often."""
        self._holds[route] += 1
        self._released.setdefault(route, trio.Event())
        for end in self._both_ends(route):
            end.wake_reader()

    def release(self, route: Route) -> None:
        """Undo one `hold`; after the last one the held bytes continue.

        Raises:
            ValueError: the route is not held.
        """
        if not self._holds[route]:
            raise ValueError(f"the route {route} is not held")
        self._holds[route] -= 1
        if self._holds[route]:
            return
        del self._holds[route]
        self._released.pop(route).set()
        for end in self._both_ends(route):
            end.release()

    def stall(self, route: Route) -> list[SimulatedStream]:
        """Stall about half of a route's connections; returns their ends, to be resumed."""
        chosen = [
            end
            for both in self._ends.get(route, {}).items()
            if self._random.random() < _STALLED
            for end in both
        ]
        for end in chosen:
            end.stall()
        return chosen

    def slow_down(self, route: Route, seconds: float) -> None:
        """Let bytes take up to so many seconds longer from now on; 0 ends it.

        Each message takes a random time, so that one connection overtakes another.
        """
        if seconds:
            self._slowness[route] = seconds
        else:
            self._slowness.pop(route, None)

    def cut(self, route: Route) -> int:
        """Reset every connection of a route; returns how many there were."""
        ends = self._ends.pop(route, {})
        for ours, theirs in ends.items():
            ours.reset()
            theirs.reset()
        return len(ends)

    # For the ends.

    def delay(self, route: Route) -> float:
        """How long bytes that are sent now are in flight."""
        usual = self._latency.sample(self._random)
        if route not in self._slowness:
            return usual
        return usual + self._random.uniform(0.0, self._slowness[route])

    def holds(self, route: Route) -> bool:
        """Whether a route is held."""
        return route in self._holds

    def forget(self, end: SimulatedStream, other: SimulatedStream) -> None:
        """Remove a connection of which both ends are closed; before, bytes can still arrive."""
        ends = self._ends.get(end.route, {})
        ends.pop(end, None)
        ends.pop(other, None)

    def cut_all(self, member: str) -> None:
        """Reset every connection of a member."""
        for route in [one for one in self._ends if one[0] == member]:
            self.cut(route)

    async def open(self, plug: Plug, host: str, port: int) -> trio.abc.Stream:
        """Open a connection; see ``Plug.open_stream``."""
        await trio.lowlevel.checkpoint()
        if (host, port) not in self._brokers:
            raise _refused(errno.EHOSTUNREACH, host, port)
        broker, accept = self._brokers[host, port]
        route = (plug.member, broker)
        await trio.sleep(self.delay(route))
        while route in self._holds:
            await self._released[route].wait()
        if not plug.plugged_in:
            raise _refused(errno.ENETUNREACH, host, port)
        ours, theirs = SimulatedStream.pair(self, route)
        accept(theirs, plug.member)
        self._ends.setdefault(route, {})[ours] = theirs
        return ours

    # Internal.

    def _both_ends(self, route: Route) -> list[SimulatedStream]:
        return [end for both in self._ends.get(route, {}).items() for end in both]


@final
class Plug:
    """A member's network plug; once it is pulled out, the member stays disconnected."""

    def __init__(self, network: Network, member: str) -> None:
        self._network = network
        self.member: Final = member
        self.plugged_in = True

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection to a broker; a ``StreamOpener``.

        Raises:
            OSError: no broker has this address, the broker is down, or the plug was pulled out.

        Cancellation: no connection is left open.
        """
        return await self._network.open(self, host, port)

    def pull_out(self) -> None:
        """Disconnect the member until the end, as if its machine had failed."""
        self.plugged_in = False
        self._network.cut_all(self.member)


def _refused(code: int, host: str, port: int) -> OSError:
    return OSError(code, f"{os.strerror(code)}: {host}:{port}")
