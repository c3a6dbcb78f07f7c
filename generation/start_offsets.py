"""How the partitions of one generation find where they start, before and after the hand-over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.cluster import EARLIEST, LATEST, Cluster
from kgroup.client.error_policy import Action, Request, decide
from kgroup.client.retry import Report, until_answered
from kgroup.errors import (
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    NoOffsetError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    TransportError,
)
from kgroup.event_emitter import EventEmitter
from kgroup.events import OffsetReset
from kgroup.generation.commit_bounds import CommitBounds
from kgroup.generation.commits import Committer
from kgroup.generation.lifecycle import Lifecycle
from kgroup.interfaces import Coordinator
from kgroup.types import (
    AutoOffsetReset,
    IsolationLevel,
    Membership,
    OffsetAndMetadata,
    TopicPartition,
)
from kgroup.types import AutoOffsetReset as Rule

_TIMESTAMPS: Final = {AutoOffsetReset.EARLIEST: EARLIEST, AutoOffsetReset.LATEST: LATEST}


@final
@attrs.frozen
class StartPosition:
    """A position that no commit gave: the offset, by which rule, and why."""

    offset: int
    rule: AutoOffsetReset
    reason: str


@final
class PositionLookup:
    """Finds positions for one membership."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        membership: Membership,
        reset: AutoOffsetReset,
        *,
        backoff: Callable[[], Backoff],
        report: Report,
    ) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self.membership = membership
        self._reset = reset
        self._backoff = backoff
        self._report = report

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The group's stable offsets; None where there is none.

        Raises:
            BrokerError | TransportError: what the recovery table does not retry.

        Cancellation: the offsets connection may be broken; nothing else.
        """
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        return await until_answered(
            Request.FETCH_OFFSETS,
            partial(self._coordinator.fetch_offsets, self.membership, partitions),
            find=self._coordinator.find,
            backoff=self._backoff(),
            report=self._report,
        )

    async def without_commit(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, StartPosition]:
        """Positions of partitions for which nothing is committed.

        Raises:
            NoOffsetError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        if self._reset is AutoOffsetReset.ERROR:
            names = ", ".join(map(str, sorted(partitions)))
            raise NoOffsetError(
                f"{self.membership}: no offset is committed for {names} and auto_offset_reset is"
                " 'error'; commit a position first, or choose 'earliest' or 'latest'"
            )
        rule = self._reset
        late: Collection[TopicPartition] = ()
        if rule is AutoOffsetReset.LATEST:
            late = await self._added_later(partitions)
        found: dict[TopicPartition, StartPosition] = {}
        reason = f"no offset is committed, so by auto_offset_reset at the {rule.value}"
        for name, offset in (await self._list(set(partitions).difference(late), rule)).items():
            found[name] = StartPosition(offset, rule, reason)
        reason = "no offset is committed and the partition was added later, so at the earliest"
        for name, offset in (await self._list(late, AutoOffsetReset.EARLIEST)).items():
            found[name] = StartPosition(offset, AutoOffsetReset.EARLIEST, reason)
        return found

    async def out_of_range(self, error: OffsetOutOfRangeError) -> StartPosition:
        """The position after one that the log does not have.

        Raises:
            OffsetOutOfRangeError: the very one, where ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        if self._reset is AutoOffsetReset.ERROR:
            raise error
        found = await self._list([error.partition], self._reset)
        at = f"offset {error.offset}" if error.offset >= 0 else "its position"
        reason = f"{at} is not in the log, so by auto_offset_reset at the {self._reset.value}"
        return StartPosition(found[error.partition], self._reset, reason)

    async def now(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        isolation_level: IsolationLevel | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Offsets from the leaders that answer now; the others' partitions are left out.

        One request for each leader; Metadata is asked only where who leads is not known any more.

        Raises:
            BrokerError: a leader refuses for good.

        Cancellation: nothing changes.
        """
        found: dict[TopicPartition, int] = {}
        try:
            answers = await self._cluster.list_offsets(
                sorted(partitions),
                timestamp,
                isolation_level=isolation_level,
                remembered=True,
            )
        except TransportError as error:
            self._report(Request.LIST_OFFSETS, error, decide(Request.LIST_OFFSETS, error))
            return found
        told: set[TransportError] = set()
        for name, answer in answers.items():
            if isinstance(answer, int):
                found[name] = answer
                continue
            if answer in told:  # the way to one leader fails once for all of its partitions
                continue
            reaction = decide(Request.LIST_OFFSETS, answer)
            if reaction.action is not Action.RETRY:
                raise answer
            self._report(Request.LIST_OFFSETS, answer, reaction)
            if isinstance(answer, TransportError):
                told.add(answer)
        return found

    async def _added_later(
        self, partitions: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Those of topics of which the group has committed other partitions."""
        topics = {name.topic for name in partitions}
        known = await until_answered(
            Request.METADATA,
            partial(self._cluster.metadata, topics),
            find=None,
            backoff=self._backoff(),
            report=self._report,
        )
        everything = [
            TopicPartition(topic.name, number)
            for topic in known.topics.values()
            for number in range(topic.partitions)
        ]
        committed = await self.committed(everything)
        begun = {name.topic for name, offset in committed.items() if offset is not None}
        return frozenset(name for name in partitions if name.topic in begun)

    async def _list(
        self, partitions: Collection[TopicPartition], rule: AutoOffsetReset
    ) -> dict[TopicPartition, int]:
        """Offsets from the leaders, however long it takes for all to answer."""
        found: dict[TopicPartition, int] = {}

        async def ask() -> None:
            # Sorted, so that the same partitions make the same requests in every run.
            wanted = sorted(set(partitions) - found.keys())
            answers = await self._cluster.list_offsets(wanted, _TIMESTAMPS[rule])
            failed: BrokerError | TransportError | None = None
            for name, answer in answers.items():
                if isinstance(answer, int):
                    found[name] = answer
                else:
                    failed = answer
            if failed is not None:
                raise failed

        if partitions:
            await until_answered(
                Request.LIST_OFFSETS,
                ask,
                find=None,
                backoff=self._backoff(),
                report=self._report,
            )
        return found


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
