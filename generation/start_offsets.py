"""How the partitions of one generation find where they start, before and after the hand-over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar, final

import trio

from kgroup.client.cluster import EARLIEST, LATEST
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    TransportError,
)
from kgroup.event_emitter import EventEmitter
from kgroup.events import OffsetReset
from kgroup.generation.commit_bounds import CommitBounds
from kgroup.generation.commits import Committer
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.position_lookup import PositionLookup, StartPosition
from kgroup.types import AutoOffsetReset as Rule
from kgroup.types import IsolationLevel, OffsetAndMetadata, TopicPartition

EAGER: Final = 2.0
"""Seconds for which a hand-over waits for leaders to tell where their partitions begin."""

T = TypeVar("T")

_NEVER_MOVED: Final = 0
_FROM_ZERO: Final = StartPosition(
    0, Rule.EARLIEST, "no offset is committed and its leader does not answer, so from the beginning"
)


@final
class StartOffsets:
    """Positions of one generation, and what is yet to be found of them."""

    def __init__(
        self,
        positions: PositionLookup,
        emitter: EventEmitter,
        rule: Rule,
        *,
        commit_latest: bool,
        seek: Callable[[TopicPartition, int], None],
    ) -> None:
        self._positions = positions
        self._emitter = emitter
        self._rule = rule
        self._commit_latest = commit_latest
        self._seek = seek
        self._unlocated: set[TopicPartition] = set()
        self._found: Mapping[TopicPartition, StartPosition] = {}
        self.without_commit: frozenset[TopicPartition] = frozenset()
        """Those partitions of the hand-over for which the group has committed nothing."""

    async def before_hand_over(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Where each partition starts, as far as it can be known soon.

        A leader that is away must not keep the other partitions waiting: what is not told in
        time begins at 0 where the rule is ``earliest`` (if 0 is gone from the log, reading finds
        out), and is found when it is first read where the rule is ``latest``.

        Raises:
            BrokerError | TransportError: what the recovery table does not retry.
        """
        committed = await self._positions.committed(partitions)
        known = {name: at.offset for name, at in committed.items() if at is not None}
        missing = [name for name in partitions if name not in known]
        if missing and self._rule is not Rule.ERROR:
            with trio.move_on_after(EAGER):
                self._found = await self._positions.without_commit(missing)
        if self._rule is Rule.EARLIEST:
            self._found = {**dict.fromkeys(missing, _FROM_ZERO), **self._found}
        self._emit(self._found, skipped=False)
        known |= {name: start.offset for name, start in self._found.items()}
        self._unlocated = set(partitions) - known.keys()
        self.without_commit = frozenset(missing)
        return known

    async def commit_found(self, committer: Committer) -> None:
        """Commit what `before_hand_over` resolved as latest."""
        await self._commit(self._found, committer)

    async def locate(
        self,
        partitions: Collection[TopicPartition],
        error: OffsetOutOfRangeError | None,
        *,
        lifecycle: Lifecycle,
        floors: CommitBounds,
        committer: Committer,
    ) -> None:
        """Find positions for a stream that begins, or that met an offset that is not there.

        A partition that the program sought, before or meanwhile, keeps the position it was given.
        A request to a leader ends when the generation's end begins; the commit of a position that
        was found does not, because the drain waits for it.

        Raises:
            NoOffsetError | OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
            StaleGenerationError: the generation's end began before the leaders had answered; the
                partitions keep the positions they had.
        """
        if error is not None:
            known = floors.moves([error.partition])
            start = await self._until_ending(
                lifecycle, partial(self._positions.out_of_range, error)
            )
            found: Mapping[TopicPartition, StartPosition] = {error.partition: start}
        else:
            known = dict.fromkeys(sorted(self._unlocated.intersection(partitions)), _NEVER_MOVED)
            wanted = {name for name in known if floors.moves([name])[name] == _NEVER_MOVED}
            if not wanted:
                await trio.lowlevel.checkpoint()
                return
            without_commit = partial(self._positions.without_commit, wanted)
            found = await self._until_ending(lifecycle, without_commit)
        moved = floors.moves(found)
        starts = {name: start for name, start in found.items() if moved[name] == known[name]}
        for name, start in starts.items():
            self._unlocated.discard(name)
            floors.reset(name, start.offset)
            self._seek(name, start.offset)
        self._emit(starts, skipped=error is not None)
        await self._commit(starts, committer)

    async def look(
        self,
        partitions: Collection[TopicPartition],
        *,
        earliest: bool,
        isolation_level: IsolationLevel | None = None,
    ) -> Mapping[TopicPartition, int]:
        """The first offsets, or the ends, as far as leaders tell them now."""
        timestamp = EARLIEST if earliest else LATEST
        return await self._positions.now(partitions, timestamp, isolation_level)

    async def _until_ending(self, lifecycle: Lifecycle, find: Callable[[], Awaitable[T]]) -> T:
        if (found := await lifecycle.until_ending(find)) is not None:
            return found.value
        raise StaleGenerationError(
            f"{self._positions.membership}: the generation ended ({lifecycle.why}) before the"
            " partitions' leaders said where to start; nothing was read or committed. Go on with"
            " the next generation",
            lifecycle.why,
        )

    def _emit(self, starts: Mapping[TopicPartition, StartPosition], *, skipped: bool) -> None:
        for name, start in sorted(starts.items()):
            self._emitter.emit(
                OffsetReset,
                partition=name,
                offset=start.offset,
                reason=start.reason,
                skipped=skipped,
            )

    async def _commit(
        self, starts: Mapping[TopicPartition, StartPosition], committer: Committer
    ) -> None:
        """Commit positions at the end of the log, so that a restart skips nothing."""
        latest = {
            name: OffsetAndMetadata(start.offset)
            for name, start in starts.items()
            if start.rule is Rule.LATEST
        }
        if not latest or not self._commit_latest:
            return
        try:
            await committer.commit(latest)
        except (CommitFailedError, CommitUnknownError, StaleGenerationError, TransportError):
            # The committer has told of it; the first commit of the program makes up for it.
            return
