"""Checks whether a commit that got no answer has arrived late, and commits again what it overwrote.

``late_commits`` says why, and which commits count. A check is an OffsetFetch. What was overwritten
is committed again in a turn among the generation's commits, so that no other one is under way; the
next one is sent after it, and counts.

In a drain checks are frequent again: if its deadline comes before the work is done, there is no
last one.

INVARIANT: nothing waits for a check for long: neither the program's commits, nor the end of the
generation. A check that takes longer is given up, and made again later.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, final

import trio

from kgroup.client.error_policy import Action, Reaction, Request
from kgroup.client.retry import until_answered
from kgroup.errors import BrokerError, TransportError
from kgroup.events import CommitsRestored
from kgroup.generation.commit_request import CommitRequest, numbers
from kgroup.generation.late_commits import LateCommits, PendingCommits
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.types import OffsetAndMetadata, TopicPartition

LONGEST: Final = 1.0
"""Seconds after which an OffsetFetch or an OffsetCommit of a check is given up."""
_PAUSE_PART: Final = 1 / 4
"""The pause before a check, as a part of the time since the last unanswered commit. In a drain, a
pause is no longer than this part of the longest drain."""
_LONGEST_PAUSE: Final = 60.0
"""The longest pause, in seconds. The shortest one is the heartbeat interval; in a short drain, it
is shorter still."""
_LATER: Final = Reaction(Action.IGNORE)


@final
class LateCommitWatcher:
    """Checks the committed offsets of one generation as long as a commit may arrive late.

    Args:
        member: the parts of the member that outlive this generation.
        lifecycle: the generation's.
        positions: the generation's.
        late: what may arrive.
        turn: is held while a commit of the generation is sent.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        late: LateCommits,
        turn: trio.StrictFIFOLock,
    ) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._positions = positions
        self._late = late
        self._turn = turn
        self._runs = False

    def start(self) -> None:
        """Check from time to time from now on, if there is anything to check."""
        if self._late.pending and not self._runs:
            self._runs = self._lifecycle.start_service(self._run)

    async def check(self) -> None:
        """Check once. A failure is reported as an event; a later check may succeed.

        Cancellation: a connection to the coordinator may be broken. A commit that was sent counts
        as one without an answer.
        """
        known = {
            name: commits
            for name, commits in self._late.pending.items()
            if commits.acknowledged is not None
        }
        stored = await self._fetch(known) if known else None
        if stored is None:
            await trio.lowlevel.checkpoint()
            return
        async with self._turn:
            # Where another commit came in between, what was fetched is out of date.
            fetched = {
                name: stored[name]
                for name, commits in known.items()
                if self._late.pending.get(name) is commits
            }
            overwritten = self._late.fetched(fetched)
            if overwritten and self._lifecycle.lease.left > 0:  # which an end may have revoked
                with trio.move_on_after(LONGEST):
                    await self._commit_again(overwritten, fetched)

    async def _fetch(
        self, known: Mapping[TopicPartition, PendingCommits]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None] | None:
        """What is stored, or None if that cannot be learnt now."""
        member = self._member
        fetch = partial(member.coordinator.fetch_offsets, self._lifecycle.membership, sorted(known))
        with trio.move_on_after(LONGEST), suppress(BrokerError, TransportError):
            return await until_answered(
                Request.FETCH_OFFSETS,
                fetch,
                find=member.coordinator.find,
                backoff=member.new_backoff(),
                report=self._report,
            )
        return None

    def _report(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        again = reaction.action is Action.RETRY
        self._member.emitter.failed(request, error, reaction if again else _LATER)

    async def _commit_again(
        self,
        overwritten: Mapping[TopicPartition, PendingCommits],
        stored: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        offsets = {
            name: commits.acknowledged
            for name, commits in overwritten.items()
            if commits.acknowledged is not None
        }
        moves = {name: commits.moves for name, commits in overwritten.items()}
        request = CommitRequest(
            self._member, self._lifecycle, self._positions, self._late, offsets, moves
        )
        await request.run()
        request.outcome(offsets)  # reports what was refused
        if restored := request.applied:
            self._member.emitter.emit(
                CommitsRestored,
                offsets=numbers(restored),
                found={name: at.offset for name in restored if (at := stored[name]) is not None},
            )

    async def _run(self) -> None:
        try:
            if self._late.any_inherited:
                await self.check()
            while self._late.pending:
                await self._pause()
                await self.check()
                self._late.forget_old()
        finally:
            self._runs = False

    async def _pause(self) -> None:
        """Wait before the next check: less if a drain begins, or another commit gets no answer."""
        config = self._member.config
        pause = (trio.current_time() - self._late.last_at) * _PAUSE_PART
        due = trio.current_time() + min(max(config.heartbeat_interval, pause), _LONGEST_PAUSE)
        while not self._lifecycle.ending.is_set():
            with trio.move_on_at(due):
                await self._lifecycle.until_ending(self._late.more.wait)
                due = min(due, trio.current_time() + config.heartbeat_interval)
                continue
            return
        in_drain = min(config.heartbeat_interval, config.longest_drain * _PAUSE_PART)
        await trio.sleep_until(min(due, trio.current_time() + in_drain))
