"""Searches for positions after the hand-over, for all streams of one generation.

A stream needs a search where the start of a partition was not found before the hand-over, and where
a log does not have the offset at which it is to be read. `StartFinder` knows what to request and
which rule applies; this module says when, and for which partitions together. ``stream_positions``
is the other side: what one stream waits for.

**Rounds.** All partitions of a generation that wait for the same kind of search share its requests,
whichever stream they belong to: if the records of a whole topic have been deleted, that costs one
ListOffsets for each leader, and not one for each partition. So a round begins `GATHERED` seconds
after the first partition that asks for it. What one leader does not answer, or refuses, concerns
its partitions only.

**Waits.** A leader may be away, or may keep naming an end that its log does not have. What was
searched for, and has given no record since, waits for the next round of repeated searches; the wait
between these rises, until there was no such round for a while. All searches of a member are limited
(`MemberContext.search_limit`), because a broken broker can return a record before each error.

A search belongs to the generation. It goes on if the program gives up the call that began it: a
program whose calls are shorter than the brokers take to answer would otherwise never get a record.
It ends without moving the partition if the program seeks there, or if its stream is closed.

**Commits before a start is known.** A program may commit a partition that it has not read, to say
where it begins. The partition is then read from there, and what was found is not committed over it.
If such a commit was called but not acknowledged (it is on its way, its outcome is unknown, or its
transaction is undecided), the committed offset is fetched first.

INVARIANT: a partition is moved only by its current search, and only while the generation runs.

Source: Kafka's ``OffsetFetcher.resetPositionsIfNeeded``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar, final

import attrs
import trio

from kgroup.errors import OffsetOutOfRangeError
from kgroup.generation.commits import Committer
from kgroup.generation.lifecycle import Finished, Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.generation.start_finder import SearchResult, StartFinder, StartPosition, StartRule
from kgroup.generation.states import State
from kgroup.types import TopicPartition

GATHERED: Final = 0.02
"""Seconds for which a round of first searches waits for other partitions."""

T = TypeVar("T")

OnOver: TypeAlias = Callable[[Exception | None], None]
"""Is called when a search is over, with what it raised."""


@final
@attrs.frozen(eq=False)
class PositionSearch:
    """A search for one position.

    Attributes:
        partition: whose.
        error: names the offset that the log does not have; None if the start is not known.
        on_over: is called once, with what was raised, or when the position is known or the program
            has sought; not if the search is withdrawn or the generation's end begins before.
    """

    partition: TopicPartition
    error: OffsetOutOfRangeError | None
    on_over: OnOver


@final
class PositionSearches:
    """The searches of one generation.

    Args:
        member: the parts of the member.
        lifecycle: the generation's.
        positions: the generation's, in which results are entered.
        starts: finds positions.
        committer: knows which partitions the program commits.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        starts: StartFinder,
        committer: Committer,
    ) -> None:
        self._member: Final = member
        self._lifecycle: Final = lifecycle
        self._positions: Final = positions
        self._starts: Final = starts
        self._committer: Final = committer
        self._current: dict[TopicPartition, PositionSearch] = {}
        self._rounds: dict[bool, list[PositionSearch]] = {}
        """The next round of first searches (False) and of repeated ones (True), if they have any
        partitions."""
        self._repeated: set[TopicPartition] = set()
        """The partitions that were searched for, and have given no record since."""
        self._repeated_at = 0.0
        self._backoff = member.new_backoff()

    def begin(
        self, partition: TopicPartition, error: OffsetOutOfRangeError | None, on_over: OnOver
    ) -> PositionSearch:
        """Begin a search for a position; none is made if the generation's end has begun.

        Args:
            partition: whose; it has no search, because streams do not share partitions.
            error: as `PositionSearch.error`.
            on_over: as `PositionSearch.on_over`.
        """
        assert partition not in self._current
        self._current[partition] = search = PositionSearch(partition, error, on_over)
        self._plan([search])
        return search

    def withdraw(self, searches: Iterable[PositionSearch]) -> None:
        """End searches without a result: nothing is read from their partitions any more."""
        for search in searches:
            if self._is_current(search):
                del self._current[search.partition]

    def begin_at_commits(self, partitions: Iterable[TopicPartition]) -> None:
        """Locate those partitions which the program has committed before their start was known."""
        for name in partitions:
            if (committed := self._positions.committed_unlocated(name)) is not None:
                self._begin_at(name, committed)

    def sought(self, partition: TopicPartition) -> None:
        """End the search for a partition in which the program has sought: it is read from there."""
        self.arrived(partition)
        if (search := self._current.get(partition)) is not None:
            self._end(search)

    def arrived(self, partition: TopicPartition) -> None:
        """The next search for this partition is a first one. Any thread may call it."""
        self._repeated.discard(partition)

    def _plan(self, searches: Iterable[PositionSearch]) -> None:
        """Add searches to the next rounds."""
        for search in searches:
            repeated = search.partition in self._repeated
            if (waiting := self._rounds.get(repeated)) is not None:
                waiting.append(search)
                continue
            self._rounds[repeated] = [search]
            self._lifecycle.start_service(self._run_round, repeated)

    async def _run_round(self, repeated: bool) -> None:  # noqa: FBT001
        await trio.sleep(self._next_wait() if repeated else GATHERED)
        limit = self._member.search_limit
        # The other round may be counted meanwhile.
        while (wait := limit.wait(trio.current_time())) > 0:  # noqa: ASYNC110
            await trio.sleep(wait)
        searches = self._rounds.pop(repeated)
        # Where nothing is committed, more has to be requested, which must not delay the others.
        for at_beginning in (False, True):
            self._start(one for one in searches if (one.error is None) is at_beginning)

    def _next_wait(self) -> float:
        now = trio.current_time()
        if now - self._repeated_at > 2 * self._member.config.rejoin_backoff_max:
            self._backoff.reset()
        wait = self._backoff.next()
        self._repeated_at = now + wait
        return wait

    def _start(self, chosen: Iterable[PositionSearch]) -> None:
        if searches := [one for one in chosen if self._is_current(one)]:
            self._member.search_limit.count(trio.current_time())
            self._lifecycle.start_service(self._search, searches)

    async def _search(self, searches: Collection[PositionSearch]) -> None:
        self._repeated.update(one.partition for one in searches)
        by_name = {one.partition: one for one in searches}
        wanted = {name: one.error for name, one in by_name.items()}
        chosen = await self._or_end(searches, partial(self._starts.choose, wanted))
        if chosen is None:
            return
        # A leader that is silent must not keep what the others find waiting.
        for names in self._starts.by_leader(chosen.value):
            self._lifecycle.start_service(
                self._search_by,
                {name: chosen.value[name] for name in names},
                [by_name[name] for name in names],
            )

    async def _search_by(
        self,
        chosen: Mapping[TopicPartition, StartRule | StartPosition],
        searches: Collection[PositionSearch],
    ) -> None:
        result = await self._or_end(searches, partial(self._starts.search, chosen))
        if result is not None and self._lifecycle.state is State.RUNNING:
            with self._lifecycle.working():
                await self._enter(result.value, searches)

    async def _or_end(
        self, searches: Iterable[PositionSearch], find: Callable[[], Awaitable[T]]
    ) -> Finished[T] | None:
        """Call a function until the generation's end begins; what it raises ends the searches."""
        try:
            return await self._lifecycle.until_ending(find)
        except Exception as error:  # noqa: BLE001  # the program's next call raises it
            for one in searches:
                self._end(one, error)
            return None

    async def _enter(self, result: SearchResult, searches: Collection[PositionSearch]) -> None:
        """Move the partitions that were found, and plan the next search for those that were not."""
        found: dict[PositionSearch, StartPosition] = {}
        undecided: dict[PositionSearch, StartPosition] = {}
        again: list[PositionSearch] = []
        for one in searches:
            if not self._is_current(one):
                continue
            if (start := result.found.get(one.partition)) is not None:
                if (committed := self._positions.committed_unlocated(one.partition)) is not None:
                    self._begin_at(one.partition, committed)
                elif one.error is None and self._committer.unlocated_commits[one.partition] > 0:
                    undecided[one] = start
                else:
                    found[one] = start
            elif (refused := result.refused.get(one.partition)) is not None:
                self._end(one, refused)
            else:
                again.append(one)
        self._plan(again)
        if undecided:
            self._lifecycle.start_service(self._follow_commits, undecided)
        if found:
            await self._move(found)

    async def _follow_commits(self, found: Mapping[PositionSearch, StartPosition]) -> None:
        """Begin where the program has committed partitions before their starts were known.

        Args:
            found: where they begin if the group has no offset of them that is in their logs.
        """
        called: dict[PositionSearch, int] = {}
        for one in found:
            if self._committer.may_be_committing(one.partition):
                self._plan([one])
            else:
                called[one] = self._committer.unlocated_commits[one.partition]
        names = [one.partition for one in called]
        result = await self._or_end(called, partial(self._starts.requests.committed, names))
        if result is None or self._lifecycle.state is not State.RUNNING:
            return
        left: dict[PositionSearch, StartPosition] = {}
        for one, number in called.items():
            name = one.partition
            if not self._is_current(one):
                continue
            if (acknowledged := self._positions.committed_unlocated(name)) is not None:
                self._begin_at(name, acknowledged)
            elif self._committer.unlocated_commits[name] > number:
                self._plan([one])  # the answer may be older than that commit
            elif (at := result.value[name]) is None or self._starts.is_lost(name, at.offset):
                left[one] = found[one]
            else:
                self._begin_at(name, at.offset)
        if left:
            with self._lifecycle.working():
                await self._move(left)

    async def _move(self, found: Mapping[PositionSearch, StartPosition]) -> None:
        error: Exception | None = None
        try:
            await self._set_positions(found)
        except Exception as raised:  # noqa: BLE001  # the program's next call raises it
            error = raised
        for one in found:
            self._end(one, error)

    async def _set_positions(self, found: Mapping[PositionSearch, StartPosition]) -> None:
        for one, start in found.items():
            self._positions.reset(one.partition, start.offset)
            self._member.source.seek(self._lifecycle.membership.epoch, one.partition, start.offset)
        self._starts.emit({one.partition: start for one, start in found.items()})
        # The partitions are read only after that, so that later commits follow this one. A handler
        # of the event may have sought.
        await self._starts.commit_initial(
            {one.partition: start for one, start in found.items() if self._is_current(one)}
        )

    def _begin_at(self, partition: TopicPartition, committed: int) -> None:
        """Read a partition from where the program has committed it; the next member would too."""
        self._positions.move(partition, committed)
        self._member.source.seek(self._lifecycle.membership.epoch, partition, committed)
        if (search := self._current.get(partition)) is not None:
            self._end(search)

    def _end(self, search: PositionSearch, error: Exception | None = None) -> None:
        if not self._is_current(search):
            return
        del self._current[search.partition]
        if error is not None or search.error is None:
            self.arrived(search.partition)
        search.on_over(error)

    def _is_current(self, search: PositionSearch) -> bool:
        return self._current.get(search.partition) is search
