"""One OffsetCommit with its retries, until every partition in it has an outcome.

The coordinator answers for each partition, and the error policy says what each code means. So a
partition has one of these outcomes:

- *committed*: the lower bound of later commits is raised, and the lease is extended;
- *refused*: the code concerns this partition only, and is in `CommitFailedError`;
- *stale*: the coordinator refused the generation, or it has ended. One such code decides for every
  partition that is still open, and ends the generation;
- *unknown*: a request was sent and never answered, or the coordinator had written it and its
  replicas did not confirm that in time. It may have been applied, whatever the response to a later
  attempt. So the caller gets `CommitUnknownError`, unless a later attempt succeeds.

A partition whose code is transient (the coordinator is loading, or has moved) stays open, and the
next attempt sends only the open ones. A code that is mostly transient is so for a limited time. It
concerns its topic, not the coordinator: where nothing else is open, `CommitRequest.advance` returns
before the wait, so that commits of other topics need not wait too.
``commits`` decides what is sent, and when. Several callers may share one request;
`CommitRequest.outcome` gives each caller the error for its own offsets.

The generation id of the request is that of the `Membership`, which ``kgroup.client.coordinator``
writes into it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, KeysView, Mapping
from typing import Final, final

import trio

from kgroup.client.broker_errors import advice, broker_error
from kgroup.client.error_policy import (
    Action,
    Reaction,
    Request,
    is_coordinator_away,
    reaction_to,
    reaction_to_code,
)
from kgroup.client.retry import find_coordinator, must_wait
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    KgroupError,
    NotSentError,
    StaleGenerationError,
    TransportError,
    short_list,
)
from kgroup.event_emitter import EventEmitter
from kgroup.events import CommitRefused, Committed
from kgroup.generation.late_commits import LateCommits
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.generation.scopes import may_end_early
from kgroup.types import Cause, End, Membership, OffsetAndMetadata, TopicPartition

CommitOffsets = Mapping[TopicPartition, OffsetAndMetadata]
_APPLIED: Final = 0
_NOTHING: Final = "nothing was committed"
_MAY_BE_APPLIED: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""Codes of a coordinator whose replicas did not confirm a commit in time. It has written it, and
the commit counts once they are back. (It also answers so where it has written nothing.)"""
_LAST_ANSWER: Final = (
    "the coordinator's last answer in the time for a commit, at most commit_timeout; the same"
    " offsets can be committed again while the generation lasts"
)
_RETRY_IN_A_DRAIN: Final = 0.5
"""Seconds for which a code that is not retried for ever is retried once the generation is ending:
the group waits for the drain, whose last commits wait for this one."""


@final
class CommitRequest:
    """One OffsetCommit that is being sent.

    INVARIANT: a partition is open until its outcome is known. `run` stops with open partitions only
    if a failure concerns all of them, or if the scope around it is cancelled. `advance` also stops
    where these wait for their topics.

    Args:
        member: the parts of the member that outlive this generation.
        lifecycle: the generation's.
        positions: the generation's; a commit raises their lower bounds.
        late: the generation's unanswered commits; this one may become one of them.
        offsets: for each partition what is committed.
        moves: `Positions.moves` when the caller committed.

    Attributes:
        applied: what the coordinator has stored.
        unconfirmed: whether an attempt may have been applied that was not confirmed.
        reached: whether the coordinator has answered.
        unreached: whether an attempt to reach it failed.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        late: LateCommits,
        offsets: CommitOffsets,
        moves: Mapping[TopicPartition, int],
    ) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._membership = lifecycle.membership
        self._positions = positions
        self._late = late
        self._moves = moves
        self._open = dict(offsets)
        self._refused: dict[TopicPartition, BrokerError] = {}
        self._in_doubt: dict[TopicPartition, BrokerError] = {}
        """Refusals of partitions that an earlier, unanswered attempt may have committed."""
        self._retried: dict[TopicPartition, BrokerError] = {}
        self._limited: dict[TopicPartition, float] = {}
        """When, by trio's clock, each partition first got a code that is not retried for ever."""
        self._failure: Exception | None = None
        self._why_stale = ""
        self._failures = 0
        self._backoff = member.new_backoff()
        self._next: Reaction | None = None
        """What to do before the next attempt, after one that has left something open."""
        self._began = member.clock.now()
        self.applied: dict[TopicPartition, OffsetAndMetadata] = {}
        self.unconfirmed = False
        self.reached = self.unreached = False

    async def run(self) -> None:
        """Send until nothing is open, or nothing can be done for what is."""
        while await self.advance():
            await self.recover()

    async def advance(self) -> bool:
        """Send until nothing is open, or nothing can be done for what is, or it needs its topics.

        Returns:
            whether all that is open waits until the coordinator knows its topics; then `recover`
            has to be called before this is called again.
        """
        while self._open and self._failure is None:
            # The end of the generation cancels the wait, and what would be sent after it.
            with self._lifecycle.until_ended():
                await self._lifecycle.wait_to_commit()
            self._next = await self._send_once()
            if self._next is None:
                continue
            self._failures += 1
            if self._next.retry_for < math.inf:
                return True
            await self.recover()
        return False

    async def recover(self) -> None:
        """Do what the last answer requires before the next attempt; give up if all is over."""
        if self._next is not None and self._lifecycle.final_end is None:
            # Cancelled once the generation is over: then nothing is sent again.
            with self._lifecycle.until_ended():
                await self._recover(self._next)
        if self._lifecycle.final_end is not None:
            self.cut_off(self._lifecycle.final_end)

    @property
    def left(self) -> KeysView[TopicPartition]:
        """The partitions whose outcome is not known yet."""
        return self._open.keys()

    def cut_off(self, end: End) -> None:
        """The generation is over: give up what is still open."""
        if self._open and self._failure is None:
            self._why_stale = _ended(end)
            self._give_up(generation_ended_error(self._membership, end), stale=True)

    def outcome(self, offsets: CommitOffsets) -> Exception | None:
        """The error for one caller's offsets, or None if all of them were committed."""
        left = {name: offsets[name] for name in offsets if name in self._open}
        in_doubt = {name: offsets[name] for name in offsets if name in self._in_doubt}
        refused = {name: self._refused[name] for name in offsets if name in self._refused}
        if left and self._failure is None and not self.unconfirmed:
            refused |= {name: self._retried.get(name) or NotSentError(name) for name in left}
        reasons = self._report_refused(offsets, refused) if refused else ""
        failed = bool(left) and self._failure is not None  # which was reported for all of `_open`
        doubtful = in_doubt | left if self.unconfirmed and not failed else in_doubt
        unknown = self._unknown(doubtful) if doubtful else None
        if failed:
            return self._failure_of(offsets, in_doubt | left)
        if unknown is not None:
            return unknown
        if not refused:
            return None
        what = _NOTHING
        if len(refused) < len(offsets):
            what = "these partitions were not committed, the others were"
        return CommitFailedError(f"{self._membership}: {what}: {reasons}", refused)

    def _failure_of(self, offsets: CommitOffsets, unconfirmed: CommitOffsets) -> Exception | None:
        """The failure of all that is open, for one caller, some of whose offsets are confirmed."""
        failure, committed = self._failure, offsets.keys() & self.applied.keys()
        if isinstance(failure, CommitUnknownError):
            own = unknown_error(self._membership, unconfirmed, failure.end)
            own.__cause__ = failure.__cause__
            return own
        if committed and isinstance(failure, StaleGenerationError) and failure.end is not None:
            return stale_error(self._membership, failure.end, self._why_stale, committed)
        return failure

    def _unknown(self, offsets: CommitOffsets) -> CommitUnknownError:
        """Report that the outcome for these is unknown, and return the error for their caller."""
        self._emit_refused(offsets, "it was not confirmed in time; the outcome is unknown")
        error = unknown_error(self._membership, offsets)
        refusals = (self._in_doubt[name] for name in offsets if name in self._in_doubt)
        error.__cause__ = next(refusals, None)
        return error

    def _report_refused(
        self, offsets: CommitOffsets, refused: Mapping[TopicPartition, BrokerError]
    ) -> str:
        """Report a caller's refused offsets as an event, and return why they were refused."""
        by_reason = _by_reason(refused)
        reasons = "; ".join(
            f"{', '.join(map(str, names))}: {why}" for why, names in by_reason.items()
        )
        only = next(iter(by_reason)) if len(by_reason) == 1 else reasons  # the event lists them
        self._emit_refused({name: offsets[name] for name in refused}, only)
        return reasons

    async def _send_once(self) -> Reaction | None:
        """Send what is open; return what the error policy says if something stays open."""
        sent_at = self._member.clock.now()
        sent = False

        def sending() -> None:
            nonlocal sent
            sent = True
            until_ended.shield()

        def lost() -> None:
            self._got_no_answer()
            until_ended.unshield()

        coordinator = self._member.coordinator
        codes: Mapping[TopicPartition, int] | None = None
        try:
            # Until it is sent, the end of the generation cancels it: it could only be refused, and
            # a coordinator that does not answer would keep the member from joining again. So it
            # does while another connection is opened, since the first attempt gets no answer.
            with may_end_early(self._lifecycle.until_ended()) as until_ended:
                codes = await coordinator.commit(self._membership, self._open, sending, lost)
        except trio.Cancelled:
            if sent:
                self._got_no_answer()
            self.unreached = True
            raise
        except (BrokerError, TransportError) as error:
            if sent:
                self._got_no_answer()
            self.unreached |= isinstance(error, TransportError)
            return self._failed(error)
        except (KgroupError, ValueError) as error:
            self._give_up(error)
            return None
        if codes is None:
            end = self._lifecycle.final_end
            assert end is not None  # it has cancelled the attempt
            if sent:  # the end came just before that, and the sending noticed it
                self._got_no_answer()
            self.unreached = True
            self.cut_off(end)
            return None
        return self._answered(codes, sent_at)

    def _got_no_answer(self) -> None:
        self.unconfirmed = True
        self._late.unanswered(self._open)

    async def _recover(self, reaction: Reaction) -> None:
        """Wait and find the coordinator as the reaction says."""
        member = self._member
        if must_wait(reaction, self._failures):
            await self._pause(reaction, self._backoff.next())
        if reaction.find:
            try:
                await find_coordinator(
                    member.coordinator.find, self._backoff, member.emitter.failed
                )
            except (BrokerError, TransportError) as error:
                self.unreached = True
                self._give_up(error)

    async def _pause(self, reaction: Reaction, seconds: float) -> None:
        """Wait, but not past the end of a limited time to retry."""
        if reaction.retry_for == math.inf:
            await trio.sleep(seconds)
            return
        began = min(self._limited.get(name, math.inf) for name in self._open)
        until = min(began + self._retry_for(reaction), trio.current_time() + seconds)
        if self._lifecycle.ending.is_set():
            await trio.sleep_until(until)
            return
        with trio.move_on_at(until):
            await self._lifecycle.ending.wait()  # which shortens the time to retry

    def _give_up(self, error: Exception, *, stale: bool = False) -> None:
        """Send no more; what was sent before and never answered stays unknown."""
        self._failure = error
        if self.unconfirmed:
            end = error.end if isinstance(error, StaleGenerationError) else None
            self._failure = unknown_error(self._membership, self._open, end)
            self._failure.__cause__ = error
        self._emit_refused(self._open, str(self._failure), stale=stale)

    def _failed(self, error: BrokerError | TransportError) -> Reaction | None:
        reaction = reaction_to(Request.COMMIT, error)
        self._member.emitter.failed(Request.COMMIT, error, reaction)
        if (end := self._lifecycle.final_end) is not None and isinstance(error, TransportError):
            self.cut_off(end)
            return None
        if reaction.action is Action.RETRY:
            return reaction
        if isinstance(error, BrokerError) and reaction.loses_generation:
            self._stale(reaction, error, str(error))
            return None
        if self.unconfirmed:
            self._give_up(error)
            return None
        for name in self._open:
            self._refused[name] = error if isinstance(error, BrokerError) else NotSentError(name)
        self._open.clear()
        return None

    def _answered(self, codes: Mapping[TopicPartition, int], sent_at: float) -> Reaction | None:
        self.reached = True
        stored = {name: self._open.pop(name) for name, code in codes.items() if code == _APPLIED}
        if stored:
            self.applied.update(stored)
            applied = numbers(stored)
            self._positions.raise_lower_bounds(applied, self._moves)
            self._late.acknowledged(stored, self._moves)
            self._lifecycle.lease.extend(sent_at)
            self._member.emitter.emit(Committed, offsets=applied, seconds=self._seconds)
        following: Reaction | None = None
        for name in list(self._open):
            reaction = reaction_to_code(Request.COMMIT, codes[name])
            error = broker_error(Request.COMMIT, codes[name], f"{name} of {self._membership}")
            self.unconfirmed |= codes[name] in _MAY_BE_APPLIED
            if reaction.loses_generation:
                self._stale(reaction, error, f"the coordinator refused it ({error.name})")
                return None
            if reaction.action is Action.RETRY and self._may_retry(name, reaction):
                self._retried[name] = error
                # What concerns the coordinator decides for what concerns a topic only.
                if following is None or following.retry_for < math.inf:
                    following = reaction
                self._member.emitter.failed(Request.COMMIT, error, reaction)
            else:
                (self._in_doubt if self.unconfirmed else self._refused)[name] = error
                del self._open[name]
        return following

    def _may_retry(self, name: TopicPartition, reaction: Reaction) -> bool:
        """Whether the time has not passed for which the reaction is to retry."""
        if reaction.retry_for == math.inf:
            return True
        now = trio.current_time()
        # Written as in `_pause`, so that rounding cannot make a wait of no time.
        return now < self._limited.setdefault(name, now) + self._retry_for(reaction)

    def _retry_for(self, reaction: Reaction) -> float:
        ending = self._lifecycle.ending.is_set()
        return min(reaction.retry_for, _RETRY_IN_A_DRAIN) if ending else reaction.retry_for

    def _stale(self, reaction: Reaction, error: BrokerError, why: str) -> None:
        self._emit_refused(self._open, error.name, stale=True)
        end = self._lifecycle.end(End(reaction.cause or Cause.MEMBERSHIP_LOST, str(error), error))
        self._why_stale = why
        # An earlier attempt that was never answered may have been applied before.
        self._failure = (
            unknown_error(self._membership, self._open, end)
            if self.unconfirmed
            else stale_error(self._membership, end, why)
        )

    def _emit_refused(self, offsets: CommitOffsets, reason: str, *, stale: bool = False) -> None:
        emit_refused(self._member.emitter, offsets, reason, stale=stale, seconds=self._seconds)

    @property
    def _seconds(self) -> float:
        """The time since the first attempt."""
        return max(0.0, self._member.clock.now() - self._began)  # a program's clock may go back


def emit_refused(
    emitter: EventEmitter,
    offsets: CommitOffsets,
    reason: str,
    *,
    stale: bool = False,
    seconds: float = 0.0,
) -> None:
    """Emit that these offsets were not committed, why, and whether the generation was stale.

    Args:
        emitter: the member's.
        offsets: the offsets.
        reason: why.
        stale: whether the reason is that the generation has ended.
        seconds: the time since the commit was sent; 0 if it was not.
    """
    emitter.emit(
        CommitRefused, offsets=numbers(offsets), reason=reason, stale=stale, seconds=seconds
    )


def _by_reason(refused: Mapping[TopicPartition, BrokerError]) -> dict[str, list[TopicPartition]]:
    """The partitions that were refused, by what the broker said and what can be done about it."""
    found: dict[str, list[TopicPartition]] = {}
    for name, error in sorted(refused.items()):
        if isinstance(error, NotSentError):
            more = "the coordinator could not be reached in time"
        else:
            more = advice(Request.COMMIT, error.code, name.topic)
            if is_coordinator_away(error.code):
                more = _LAST_ANSWER
        found.setdefault(f"{error.name} ({more})" if more else error.name, []).append(name)
    return found


def stale_error(
    membership: Membership, end: End, reason: str, committed: Collection[TopicPartition] = ()
) -> StaleGenerationError:
    """The error of a commit under a generation that is over.

    Args:
        membership: that of the generation.
        end: its end.
        reason: why the commit, or the rest of it, failed.
        committed: the partitions of it that were committed before.
    """
    what = f"nothing but {short_list(sorted(committed))} was committed" if committed else _NOTHING
    return StaleGenerationError(
        f"{membership}: {what}, because {reason}. The next owner of the partitions"
        " reads the records after the last commit again; continue with the next generation",
        end,
    )


def generation_ended_error(membership: Membership, end: End) -> StaleGenerationError:
    """The error of a commit that was not sent, because its generation has ended."""
    return stale_error(membership, end, _ended(end))


def _ended(end: End) -> str:
    return f"the generation has ended ({end})"


def unknown_error(
    membership: Membership, offsets: CommitOffsets, end: End | None = None
) -> CommitUnknownError:
    """The error of a commit whose answer never came."""
    listed = ", ".join(f"{name} at {position.offset}" for name, position in sorted(offsets.items()))
    advice = "Committing the same or later offsets again is safe"
    if end is not None:
        advice = f"The generation has ended since ({end}); continue with the next one"
    return CommitUnknownError(
        f"{membership}: the commit of {listed} was sent, and not confirmed in"
        f" time; it may have been applied. {advice}",
        end,
    )


def numbers(offsets: CommitOffsets) -> dict[TopicPartition, int]:
    """The bare offsets, as events have them."""
    return {name: position.offset for name, position in offsets.items()}
