"""The heartbeat loop: keeps the membership, and is how a member learns that it is over.

Members of a classic group hear of a rebalance only in a heartbeat's answer. A few heartbeats come
quicker after the beginning, because rebalances come in bursts. A coordinator that is away ends
nothing until the lease is over.

Source: Kafka's ``AbstractCoordinator.HeartbeatThread``; KIP-62, KIP-124 (throttling).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.error_policy import Action, Reaction, Request, decide
from kgroup.client.lease import Lease
from kgroup.client.retry import Report, find_coordinator, must_wait
from kgroup.errors import BrokerError, TransportError
from kgroup.interfaces import Clock, Coordinator
from kgroup.types import Cause, End, Membership

QUICK: Final = 0.25
"""Seconds to the second heartbeat of a generation; the wait doubles from there."""
MOST_QUICK: Final = 5
"""How many heartbeats come quicker than the interval, at most."""
THROTTLED_PART: Final = 1 / 3
"""The longest wait that a broker can ask for, as a part of the session: past the session time-out
it would have evicted the member that it told to wait."""
_BLOCKED_PART: Final = 1 / 3
_WOKEN_LATE: Final = 1.0


@final
@attrs.frozen(kw_only=True)
class Pace:
    """How heartbeats are timed; all in seconds.

    Attributes:
        interval: between two of them.
        session_timeout: after which a silent member is evicted.
        request_timeout: after which the coordinator gives up waiting for an answer.
        clock: measures whether the event loop stood still.
        backoff: makes the waits between failed ones.
    """

    interval: float
    session_timeout: float
    request_timeout: float = math.inf
    clock: Clock
    backoff: Callable[[], Backoff]


def quick_waits(interval: float) -> Iterator[float]:
    """The waits before each heartbeat of a generation: none, a few quick ones, the interval."""
    yield 0.0
    wait = QUICK
    for _ in range(MOST_QUICK):
        if wait >= interval:
            break
        yield wait
        wait *= 2
    while True:
        yield interval


@final
class Heartbeats:
    """Sends the heartbeats of one membership."""

    def __init__(
        self,
        coordinator: Coordinator,
        membership: Membership,
        lease: Lease,
        pace: Pace,
        *,
        report: Report,
        blocked: Callable[[float], None],
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._lease = lease
        self._pace = pace
        self._report = report
        self._blocked = blocked
        self._waits = quick_waits(pace.interval)
        self._late = False

    async def until_rebalance(self) -> End:
        """Go on until a rebalance, a loss of membership or the end of the lease; returns it.

        Cancellation: the membership connection may be broken; nothing else.
        """
        return await self._run(rebalance_ends=True)

    async def until_lost(self) -> End:
        """Go on through a rebalance, while work drains, until membership is lost."""
        return await self._run(rebalance_ends=False)

    async def _run(self, *, rebalance_ends: bool) -> End:
        while True:
            await self._sleep(next(self._waits))
            end = await self._beat_until_answered(rebalance_ends=rebalance_ends)
            if end is not None:
                return end

    async def _sleep(self, seconds: float) -> None:
        """Wait, and notice when the event loop or the whole process stood still."""
        before = self._pace.clock.now()
        await trio.sleep(seconds)
        late = self._pace.clock.now() - before - seconds
        self._late = late > _WOKEN_LATE or self._lease.left <= 0
        if late > self._pace.session_timeout * _BLOCKED_PART:
            self._blocked(late)

    async def _beat_until_answered(self, *, rebalance_ends: bool) -> End | None:
        """One heartbeat with its repetitions; the end that it brought, if any."""
        backoff = self._pace.backoff()
        failures = 0
        while True:
            sent_at = self._pace.clock.now()
            try:
                throttled = await self._beat()
            except (BrokerError, TransportError) as error:
                reaction = decide(Request.HEARTBEAT, error)
                if reaction.action is Action.DRAIN:
                    # Kafka renews the session also where it answers so.
                    self._lease.extend(sent_at)
                    return End(Cause.REBALANCE) if rebalance_ends else None
                self._report(Request.HEARTBEAT, error, reaction)
                if reaction.action is not Action.RETRY:
                    return End(reaction.cause or Cause.MEMBERSHIP_LOST, str(error), error)
                if self._lease.left <= 0 and not self._late:
                    return _coordinator_lost(error)
                self._late = False
                failures += 1
                if (end := await self._recover(reaction, failures, backoff)) is not None:
                    return end
            else:
                if throttled is None:
                    return _coordinator_lost(None)
                self._lease.confirm(sent_at)
                if throttled > 0:
                    # INVARIANT: with the wait for the next one it is less than the session.
                    await trio.sleep(min(throttled, self._pace.session_timeout * THROTTLED_PART))
                return None

    async def _beat(self) -> float | None:
        """Send one; the throttle time of the answer, or None if the lease ended meanwhile.

        A process that was frozen wakes with its lease over: it asks once before it gives up.
        """
        left = self._lease.left
        if left <= 0:
            if not self._late:
                await trio.lowlevel.checkpoint()
                return None
            return await self._coordinator.heartbeat(self._membership)
        if left > self._pace.request_timeout:
            return await self._coordinator.heartbeat(self._membership)
        with trio.move_on_after(left):
            return await self._coordinator.heartbeat(self._membership)
        return None

    async def _recover(self, reaction: Reaction, failures: int, backoff: Backoff) -> End | None:
        """Wait and look for the coordinator, as the reaction says, within the lease."""
        with trio.move_on_after(max(0.0, self._lease.left)):
            if must_wait(reaction, failures):
                await trio.sleep(min(backoff.next(), self._pace.interval))
            if reaction.find:
                try:
                    await find_coordinator(self._coordinator.find, backoff, self._report)
                except (BrokerError, TransportError) as error:
                    return End(Cause.COORDINATOR_LOST, str(error), error)
        return None


def _coordinator_lost(error: BrokerError | TransportError | None) -> End:
    return End(
        Cause.COORDINATOR_LOST,
        "the coordinator did not confirm membership until the lease was over"
        + (f" ({error})" if error else ""),
        error,
    )
