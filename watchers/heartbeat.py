"""The heartbeat loop: it keeps the membership alive, and learns when the membership ends.

A member of a classic group learns of a rebalance only from the response to a heartbeat. The first
heartbeats of a generation follow each other quickly, because rebalances come in bursts. All but the
very first are sent on the beat (``kgroup.client.beat``), so that all members of the group learn of
a rebalance together. While the coordinator is unavailable, the generation continues until its lease
expires.

A coordinator that still loads its groups answers every heartbeat without an error, whether or not
it will find the member. Once the lease is over, as after a suspension, such an answer is not enough
(``kgroup.client.lease`` says why it is until then): a SyncGroup has to succeed too. In a stable
group that request changes nothing, and only a coordinator that knows the member in this generation
answers it with the assignment.

Source: Kafka's ``AbstractCoordinator.HeartbeatThread``, ``GroupCoordinatorService.heartbeat``;
KIP-62, KIP-124 (throttling).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.beat import Beat
from kgroup.client.error_policy import Action, Reaction, Request, reaction_to
from kgroup.client.lease import Lease
from kgroup.client.retry import find_coordinator, must_wait
from kgroup.errors import BrokerError, TransportError
from kgroup.event_emitter import EventEmitter
from kgroup.events import LoopBlocked
from kgroup.interfaces import Clock, Coordinator
from kgroup.types import Cause, End, Membership

FIRST_INTERVAL: Final = 0.25
"""About the seconds between the first two heartbeats of a generation; the interval then doubles."""
MAX_QUICK: Final = 5
"""The most heartbeats that follow each other faster than the interval."""
MAX_THROTTLE_PART: Final = 1 / 3
"""The longest throttle time that is obeyed, as a part of the session timeout: after a longer one,
the coordinator would remove the very member that it throttled."""
LATE_PART: Final = 1 / 3
"""The part of the session timeout after which a blocked event loop is reported, and the body of a
loop over the group that does not return."""
_SUSPENDED: Final = 1.0


@final
@attrs.frozen(kw_only=True)
class Pace:
    """How heartbeats are timed, in seconds.

    Attributes:
        interval: the time between two heartbeats.
        beat: at which moments they are sent.
        session_timeout: the coordinator removes a member without heartbeats after this time.
        request_timeout: how long kgroup waits for the response to a heartbeat.
        clock: measures whether the event loop was blocked.
        backoff: makes the waits between failed heartbeats.
    """

    interval: float
    beat: Beat
    session_timeout: float
    request_timeout: float = math.inf
    clock: Clock
    backoff: Callable[[], Backoff]


def heartbeat_waits(interval: float) -> Iterator[float]:
    """The waits before each heartbeat of a generation: 0, a few short ones, then the interval.

    All but the first are arguments of `Beat.delay`.
    """
    yield 0.0
    wait = FIRST_INTERVAL
    for _ in range(MAX_QUICK):
        if wait >= interval:
            break
        yield wait
        wait *= 2
    while True:
        yield interval


@final
class Heartbeats:
    """Sends the heartbeats of one membership.

    Args:
        coordinator: the group's.
        membership: the member and its generation.
        lease: is extended by each heartbeat that confirms the membership.
        pace: when heartbeats are sent.
        emitter: for failures.
        synced: is set once SyncGroup has given the member its assignment. Before that, a SyncGroup
            of the leader without assignments would leave all members without partitions.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        membership: Membership,
        lease: Lease,
        pace: Pace,
        emitter: EventEmitter,
        synced: trio.Event,
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._lease = lease
        self._pace = pace
        self._emitter = emitter
        self._synced = synced
        self._waits = heartbeat_waits(pace.interval)
        self._was_suspended = False

    async def until_rebalance(self) -> End:
        """Send heartbeats until a rebalance, the loss of the membership, or the end of the lease.

        Returns:
            the end of the generation.

        Cancellation: the connection to the coordinator may be broken; nothing else changes.
        """
        return await self._run(rebalance_ends=True)

    async def until_lost(self) -> End:
        """Send heartbeats during the drain: a rebalance does not end them, the other causes do."""
        return await self._run(rebalance_ends=False)

    async def _run(self, *, rebalance_ends: bool) -> End:
        while True:
            interval = next(self._waits)
            await self._sleep(self._pace.beat.delay(interval) if interval else 0.0)
            end = await self._heartbeat_with_retries(rebalance_ends=rebalance_ends)
            if end is not None:
                return end

    async def _sleep(self, seconds: float) -> None:
        """Wait, and detect that the event loop was blocked or the process suspended.

        That is reported also if the wait is cancelled: the function that has blocked the loop may
        be the first to notice that the lease is over, which ends the generation.
        """
        before = self._pace.clock.now()
        try:
            await trio.sleep(seconds)
        finally:
            late = self._pace.clock.now() - before - seconds
            self._was_suspended = late > _SUSPENDED or self._lease.left <= 0
            if late > self._pace.session_timeout * LATE_PART:
                self._emitter.emit(LoopBlocked, seconds=late)

    async def _heartbeat_with_retries(self, *, rebalance_ends: bool) -> End | None:
        """Send one heartbeat, with retries; return the end of the generation if it brings one."""
        backoff = self._pace.backoff()
        failures = 0
        while True:
            sent_at = self._pace.clock.now()
            try:
                throttle_time = await self._send()
            except (BrokerError, TransportError) as error:
                reaction = reaction_to(Request.HEARTBEAT, error)
                if reaction.action is Action.DRAIN:
                    # REBALANCE_IN_PROGRESS. The coordinator renews the session even if it responds
                    # with this error.
                    self._lease.extend(sent_at)
                    return End(Cause.REBALANCE) if rebalance_ends else None
                self._emitter.failed(Request.HEARTBEAT, error, reaction)
                if reaction.action is not Action.RETRY:
                    return _membership_lost(reaction, error)
                if self._lease.left <= 0 and not self._was_suspended:
                    return _coordinator_lost(error)
                self._was_suspended = False
                failures += 1
                if (end := await self._recover(reaction, failures, backoff)) is not None:
                    return end
            else:
                return await self._answered(sent_at, throttle_time)

    async def _answered(self, sent_at: float, throttle_time: float | None) -> End | None:
        """Extend the lease, and wait as long as the broker asks for.

        Args:
            sent_at: when the heartbeat was sent.
            throttle_time: what `_send` returned.

        Returns:
            the end of the generation if the membership was not confirmed.
        """
        if throttle_time is None:
            return _coordinator_lost(None)
        if self._lease.left <= 0 and (end := await self._verify()) is not None:
            return end
        self._lease.confirm(sent_at)
        if throttle_time > 0:
            # INVARIANT: this wait and the next interval together are less than the session.
            await trio.sleep(min(throttle_time, self._pace.session_timeout * MAX_THROTTLE_PART))
        return None

    async def _send(self) -> float | None:
        """Send one request; return its throttle time, or None if the lease expires meanwhile.

        After a suspension, the lease has expired. Then one heartbeat is sent all the same: if the
        coordinator still knows the member (`_verify`), the generation continues.
        """
        left = self._lease.left
        if left <= 0:
            if not self._was_suspended:
                await trio.lowlevel.checkpoint()
                return None
            return await self._coordinator.heartbeat(self._membership)
        if left > self._pace.request_timeout:
            return await self._coordinator.heartbeat(self._membership)
        with trio.move_on_after(left):
            return await self._coordinator.heartbeat(self._membership)
        return None

    async def _verify(self) -> End | None:
        """Send a SyncGroup; return the end of the generation unless it succeeds."""
        if not self._synced.is_set():
            return None
        error: BrokerError | TransportError | None = None
        with trio.move_on_after(self._pace.request_timeout):
            try:
                await self._coordinator.sync(self._membership, {})
            except (BrokerError, TransportError) as failure:
                error = failure
            else:
                return None
        if error is None:
            return _coordinator_lost(None)
        reaction = reaction_to(Request.HEARTBEAT, error)
        self._emitter.failed(Request.SYNC, error, reaction)
        # Old coordinators answer REBALANCE_IN_PROGRESS also while they load.
        if reaction.action in (Action.RETRY, Action.DRAIN):
            return _coordinator_lost(error)
        return _membership_lost(reaction, error)

    async def _recover(self, reaction: Reaction, failures: int, backoff: Backoff) -> End | None:
        """Wait and look up the coordinator, as the reaction says, within the lease."""
        with trio.move_on_after(max(0.0, self._lease.left)):
            if must_wait(reaction, failures):
                await trio.sleep(min(backoff.next(), self._pace.interval))
            if reaction.find:
                try:
                    await find_coordinator(self._coordinator.find, backoff, self._emitter.failed)
                except (BrokerError, TransportError) as error:
                    return End(Cause.COORDINATOR_LOST, str(error), error)
        return None


def _membership_lost(reaction: Reaction, error: BrokerError | TransportError) -> End:
    return End(reaction.cause or Cause.MEMBERSHIP_LOST, str(error), error)


def _coordinator_lost(error: BrokerError | TransportError | None) -> End:
    return End(
        Cause.COORDINATOR_LOST,
        "the coordinator did not confirm the membership before the lease expired"
        + (f" ({error})" if error else ""),
        error,
    )
