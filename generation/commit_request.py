"""One OffsetCommit with its repetitions, until every partition in it has its outcome.

Says what came of it for any part of the offsets. What may be sent, and when, is decided in
``commits``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.error_policy import Action, Reaction, Request, broker_error, decide, reaction_for
from kgroup.client.lease import Lease
from kgroup.client.retry import Report, find_coordinator, must_wait
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    KgroupError,
    StaleGenerationError,
    TransportError,
)
from kgroup.generation.commit_bounds import CommitBounds
from kgroup.interfaces import Clock, Coordinator
from kgroup.types import Cause, End, Membership, OffsetAndMetadata, TopicPartition

Positions = Mapping[TopicPartition, OffsetAndMetadata]
_APPLIED: Final = 0


@final
@attrs.frozen(kw_only=True)
class CommitContext:
    """What commits of one generation need of their surroundings.

    Attributes:
        membership: under whose id they are made.
        coordinator: sends them.
        lease: past it nothing is sent.
        floors: nothing goes behind them.
        clock: the lease's clock.
        backoff: makes the waits between attempts.
        commit_timeout: seconds for one commit, with all its attempts.
        report: is told of failures.
        committed: is told what was applied.
        refused: is told what was refused, why, and whether as stale.
        end: ends the generation; returns the end that was recorded, which may be an earlier one.
        why: the generation's recorded end, if it has one.
    """

    membership: Membership
    coordinator: Coordinator
    lease: Lease
    floors: CommitBounds
    clock: Clock
    backoff: Callable[[], Backoff]
    commit_timeout: float
    report: Report
    committed: Callable[[Mapping[TopicPartition, int]], None]
    refused: Callable[[Mapping[TopicPartition, int], str, bool], None]
    end: Callable[[End], End]
    why: Callable[[], End | None]


@final
class CommitRequest:
    """One commit on its way.

    INVARIANT: a partition is open until its outcome is known, and `run` only stops with open
    ones where a failure concerns them all, or where the scope around it is cancelled.
    """

    def __init__(
        self,
        setting: CommitContext,
        offsets: Positions,
        moves: Mapping[TopicPartition, int],
        lease_confirmed: Callable[[], Awaitable[None]],
    ) -> None:
        self._setting = setting
        self._lease_confirmed = lease_confirmed
        self._moves = moves
        self._open = dict(offsets)
        self._refused: dict[TopicPartition, BrokerError] = {}
        self._passing: dict[TopicPartition, BrokerError] = {}
        self._failure: Exception | None = None
        self._unanswered = False
        self._stopped: StaleGenerationError | None = None
        self._between = trio.CancelScope()

    @property
    def unanswered(self) -> bool:
        """Whether the coordinator may yet receive a request of this commit that got no answer."""
        return self._unanswered

    async def run(self) -> None:
        """Send until nothing is open, or nothing can be done for what is."""
        backoff = self._setting.backoff()
        failures = 0
        while self._open and self._failure is None:
            reaction = await self._once()
            if reaction is None:
                continue
            failures += 1
            if self._stopped is None:
                with trio.CancelScope() as self._between:
                    await self._recover(reaction, failures, backoff)
            if self._stopped is not None:
                self.cut_off(self._stopped)

    def stop(self, error: StaleGenerationError) -> None:
        """Send nothing again; an answer that is awaited still counts."""
        self._stopped = error
        self._between.cancel()

    def cut_off(self, error: StaleGenerationError) -> None:
        """The generation has passed: this is the outcome of what is still open."""
        if self._open and self._failure is None:
            self._give_up(error, stale=True)

    def outcome(self, offsets: Positions) -> Exception | None:
        """What came of one caller's offsets: the error to raise, or None where all are in."""
        setting = self._setting
        left = {name: offsets[name] for name in offsets if name in self._open}
        if left and self._failure is not None:
            return self._failure
        if left and self._unanswered:
            setting.refused(numbers(left), "no answer came; the outcome is unknown", False)
            return unknown_error(setting, left)
        refused = {
            name: self._refused.get(name) or self._passing.get(name) or _never_sent(name)
            for name in offsets
            if name in self._refused or name in left
        }
        if not refused:
            return None
        reasons = ", ".join(f"{name}: {error.name}" for name, error in sorted(refused.items()))
        setting.refused(numbers({name: offsets[name] for name in refused}), reasons, False)
        return CommitFailedError(
            f"{setting.membership}: these were not committed, all others were: {reasons}", refused
        )

    async def _once(self) -> Reaction | None:
        """Send what is open; the reaction that follows where something stays open."""
        setting = self._setting
        sent_at = setting.clock.now()
        sent = False

        def sending() -> None:
            nonlocal sent
            sent = True

        try:
            codes = await setting.coordinator.commit(setting.membership, self._open, sending)
        except trio.Cancelled:
            self._unanswered |= sent
            raise
        except (BrokerError, TransportError) as error:
            self._unanswered |= sent
            return self._failed(error)
        except (KgroupError, ValueError) as error:
            self._give_up(error)
            return None
        return self._answered(codes, sent_at)

    async def _recover(self, reaction: Reaction, failures: int, backoff: Backoff) -> None:
        """Do what the reaction asks for, and let nothing be sent again past the lease."""
        if must_wait(reaction, failures):
            await trio.sleep(backoff.next())
        if reaction.find:
            await self._find(backoff)
        await self._lease_confirmed()

    async def _find(self, backoff: Backoff) -> None:
        try:
            await find_coordinator(self._setting.coordinator.find, backoff, self._setting.report)
        except (BrokerError, TransportError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception, *, stale: bool = False) -> None:
        """Send no more; what was sent before and never answered stays unknown."""
        self._failure = error
        if self._unanswered:
            end = error.end if isinstance(error, StaleGenerationError) else None
            self._failure = unknown_error(self._setting, self._open, end)
            self._failure.__cause__ = error
        self._setting.refused(numbers(self._open), str(self._failure), stale)

    def _failed(self, error: BrokerError | TransportError) -> Reaction | None:
        reaction = decide(Request.COMMIT, error)
        self._setting.report(Request.COMMIT, error, reaction)
        if self._stopped is not None and isinstance(error, TransportError):
            self.cut_off(self._stopped)
            return None
        if reaction.action is Action.RETRY:
            return reaction
        if self._unanswered:
            self._give_up(error)
            return None
        for name in self._open:
            self._refused[name] = error if isinstance(error, BrokerError) else _never_sent(name)
        self._open.clear()
        return None

    def _answered(self, codes: Mapping[TopicPartition, int], sent_at: float) -> Reaction | None:
        setting = self._setting
        applied = {
            name: self._open.pop(name).offset for name, code in codes.items() if code == _APPLIED
        }
        if applied:
            setting.floors.raise_to(applied, self._moves)
            setting.lease.extend(sent_at)
            setting.committed(applied)
        following: Reaction | None = None
        for name in list(self._open):
            reaction = reaction_for(Request.COMMIT, codes[name])
            error = broker_error(Request.COMMIT, codes[name], f"{name} of {setting.membership}")
            if reaction.action in (Action.LOST, Action.FAIL):
                self._stale(reaction, error)
                return None
            if reaction.action is Action.RETRY:
                self._passing[name] = error
                following = reaction
                setting.report(Request.COMMIT, error, reaction)
            else:
                self._refused[name] = error
                del self._open[name]
        return following

    def _stale(self, reaction: Reaction, error: BrokerError) -> None:
        setting = self._setting
        setting.refused(numbers(self._open), error.name, True)
        end = setting.end(End(reaction.cause or Cause.MEMBERSHIP_LOST, str(error), error))
        # An earlier attempt that was never answered may have been applied before.
        self._failure = (
            unknown_error(setting, self._open, end)
            if self._unanswered
            else stale_error(setting.membership, end, f"the coordinator refused it ({error.name})")
        )


def stale_error(membership: Membership, end: End, reason: str) -> StaleGenerationError:
    """The error of a commit under a generation that has passed."""
    return StaleGenerationError(
        f"{membership}: nothing was committed, because {reason}. The records after the last"
        " commit will be read again by whoever owns the partitions; go on with the next"
        " generation",
        end,
    )


def unknown_error(
    setting: CommitContext, offsets: Positions, end: End | None = None
) -> CommitUnknownError:
    """The error of a commit whose answer never came."""
    listed = ", ".join(f"{name} at {position.offset}" for name, position in sorted(offsets.items()))
    advice = "Committing the same or later offsets again is safe"
    if end is not None:
        advice = f"The generation has ended since ({end}); go on with the next one"
    return CommitUnknownError(
        f"{setting.membership}: the commit of {listed} was sent and not answered in"
        f" time; it may have been applied. {advice}",
        end,
    )


def numbers(offsets: Positions) -> dict[TopicPartition, int]:
    """The bare offsets, as events tell them."""
    return {name: position.offset for name, position in offsets.items()}


def _never_sent(partition: TopicPartition) -> BrokerError:
    return broker_error(
        Request.COMMIT,
        ErrorCode.NETWORK_EXCEPTION,
        str(partition),
        "the coordinator could not be reached in time, and nothing was sent",
    )
