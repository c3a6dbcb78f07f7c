"""Looks whether an unanswered commit has arrived late, and commits again what it has put back.

``late_commits`` says why, and which offsets count. A look is one OffsetFetch; it needs no turn
among the commits. What has to be committed again is sent in a turn of its own, so that no other
commit of the generation is under way: the next one is sent after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import trio

from kgroup.errors import BrokerError, TransportError
from kgroup.events import CommitsRestored
from kgroup.generation.commit_request import CommitRequest, numbers
from kgroup.generation.late_commits import LateCommit, LateCommits
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.offset_requests import OffsetRequests
from kgroup.generation.positions import Positions
from kgroup.types import OffsetAndMetadata, TopicPartition

_PAUSE_PART: Final = 1 / 4
"""The pause before a look, as a part of the time since the last unanswered commit."""
_LONGEST_PAUSE: Final = 60.0
"""The longest pause, in seconds. The shortest one is the heartbeat interval."""


@final
class LateCommitWatcher:
    """Looks at the committed offsets of one generation as long as a commit may arrive late.

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
        self._requests = OffsetRequests(member, lifecycle.membership)
        self._runs = False

    def start(self) -> None:
        """Begin to look, unless it does already or there is nothing to look for."""
        if self._late.left and not self._runs:
            self._runs = self._lifecycle.start_service(self._run)

    async def look(self) -> None:
        """Look once. A failure is reported as an event; a later look may succeed.

        Cancellation: the offsets connection may be broken; a commit that was sent is awaited.
        """
        known = self._late.to_look_at()
        if not known:
            await trio.lowlevel.checkpoint()
            return
        try:
            stored = await self._requests.committed(sorted(known))
        except (BrokerError, TransportError):
            return
        async with self._turn:
            put_back = {
                name: late
                for name, late in self._late.put_back(stored).items()
                if late is known[name]  # else another commit came in between
            }
            if put_back and self._lifecycle.lease.left > 0 and self._lifecycle.final_end is None:
                await self._restore(put_back, stored)

    async def _restore(
        self,
        put_back: Mapping[TopicPartition, LateCommit],
        stored: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        offsets = {name: at for name, late in put_back.items() if (at := late.acknowledged)}
        found = {name: at.offset for name in put_back if (at := stored[name])}
        request = CommitRequest(
            self._member,
            self._lifecycle,
            self._positions,
            self._late,
            offsets,
            {name: late.moves for name, late in put_back.items()},
        )
        with self._lifecycle.commit_scope():
            await request.run()
        if request.outcome(offsets) is None:
            self._member.emitter.emit(CommitsRestored, offsets=numbers(offsets), found=found)

    async def _run(self) -> None:
        interval = self._member.config.heartbeat_interval
        try:
            while self._late.left:
                age = trio.current_time() - self._late.last_at
                await trio.sleep(min(max(interval, age * _PAUSE_PART), _LONGEST_PAUSE))
                await self.look()
                self._late.forget_old()
        finally:
            self._runs = False
