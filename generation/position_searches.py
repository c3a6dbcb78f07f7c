"""Searches for positions after the hand-over, for the streams of one generation.

A stream needs a search where the start of a partition was not found before the hand-over, and where
a log does not have the offset at which it is to be read. `StartFinder` knows what to request and
which rule applies; this module says when, and for which partitions together.

**Rounds.** All partitions of a generation that wait for the same kind of search share its requests,
whichever stream they belong to: if the records of a whole topic have been deleted, that costs one
ListOffsets for each leader, and not one for each partition. So a round begins `GATHERED` seconds
after the first partition that asks for it.

**Waits.** A leader may be away, or may keep naming an end that its log does not have. What was
searched for, and has given no record since, waits for the next round of repeated searches; the wait
between these rises. Rounds of first searches are limited for the whole life of a member
(`MemberContext.search_limit`), because a broken broker can return a record before each error.

A search belongs to the generation. It goes on if the program gives up the call that began it: a
program whose calls are shorter than the brokers take to answer would otherwise never get a record.
It ends without a result if the program seeks in its partition, or if its stream is closed.

Source: Kafka's ``OffsetFetcher.resetPositionsIfNeeded``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, final

import attrs
import trio

from kgroup.errors import OffsetOutOfRangeError, StaleGenerationError
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.generation.start_finder import StartFinder
from kgroup.types import TopicPartition

GATHERED: Final = 0.02
"""Seconds for which a round of first searches waits for other partitions."""

OnOver: TypeAlias = Callable[[Exception | None], None]
"""Is called when a search is over, with what it raised."""


@final
@attrs.frozen(eq=False)
class _Search:
    """A search for one position.

    Attributes:
        partition: whose.
        error: names the offset that the log does not have; None at the beginning of a stream.
        on_over: is called once, unless the search is withdrawn.
    """

    partition: TopicPartition
    error: OffsetOutOfRangeError | None
    on_over: OnOver


@final
class PositionSearches:
    """The searches of one generation. Its methods are called in the event loop only.

    Args:
        member: the parts of the member.
        lifecycle: the generation's.
        positions: the generation's, in which results are entered.
        starts: finds positions.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        starts: StartFinder,
    ) -> None:
        self._member: Final = member
        self._lifecycle: Final = lifecycle
        self._positions: Final = positions
        self._starts: Final = starts
        self._current: dict[TopicPartition, _Search] = {}
        self._rounds: dict[bool, list[_Search]] = {}
        """The next round of first searches (False) and of repeated ones (True), if they have any
        partitions."""
        self._repeated: set[TopicPartition] = set()
        """The partitions that were searched for, and have given no record since."""
        self._backoff = member.new_backoff()

    def begin(
        self, partition: TopicPartition, error: OffsetOutOfRangeError | None, on_over: OnOver
    ) -> None:
        """Begin a search for a position; nothing happens if the generation's end has begun.

        Args:
            partition: whose. It has no search.
            error: names the offset that the log does not have; None if its start is not known.
            on_over: is called when the position is known, or cannot be found because a leader
                refuses the request.
        """
        self._current[partition] = search = _Search(partition, error, on_over)
        self._plan([search])

    async def find(self, wanted: Mapping[TopicPartition, OffsetOutOfRangeError | None]) -> None:
        """Search for positions, and wait until all of them are known.

        Raises:
            BrokerError: a leader refuses the request, and would refuse it again.
            StaleGenerationError: the generation's end began before the leaders had answered; what
                was not found keeps the position it had.

        Cancellation: what was not found keeps the position it had.
        """
        left, over = set(wanted), trio.Event()
        failures: list[Exception] = []

        def on_over(partition: TopicPartition, error: Exception | None) -> None:
            left.discard(partition)
            if error is not None:
                failures.append(error)
            if failures or not left:
                over.set()

        if not wanted:
            await trio.lowlevel.checkpoint()
            return
        for name, error in wanted.items():
            self.begin(name, error, partial(on_over, name))
        try:
            finished = await self._lifecycle.until_ending(over.wait)
        finally:
            self.withdraw(left)
        if finished is None:
            why = self._lifecycle.recorded_end
            raise StaleGenerationError(
                f"{self._lifecycle.membership}: the generation ended ({why}) before the"
                " partitions' leaders answered with a start offset; nothing was read or committed."
                " Continue with the next generation",
                why,
            )
        if failures:
            raise failures[0]

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """End the searches for these without a result: nothing is read from them any more."""
        for name in partitions:
            self._current.pop(name, None)

    def sought(self, partition: TopicPartition) -> None:
        """End the search for a partition in which the program has sought: it is read from there."""
        if (search := self._current.get(partition)) is not None:
            self._end(search)
        self.arrived(partition)

    def arrived(self, partition: TopicPartition) -> None:
        """A partition can be read: its next search is a first one. Any thread may call it."""
        if partition in self._repeated:
            self._repeated.discard(partition)
            if not self._repeated:
                self._backoff.reset()

    def _plan(self, searches: Iterable[_Search]) -> None:
        """Add searches to the next rounds."""
        for search in searches:
            repeated = search.partition in self._repeated
            if (waiting := self._rounds.get(repeated)) is not None:
                waiting.append(search)
                continue
            self._rounds[repeated] = [search]
            if repeated:
                wait = self._backoff.next()
            else:
                wait = max(GATHERED, self._member.search_limit.delay(trio.current_time()))
            self._lifecycle.start_service(self._run_round, repeated, wait)

    async def _run_round(self, repeated: bool, wait: float) -> None:  # noqa: FBT001
        await trio.sleep(wait)
        searches = [one for one in self._rounds.pop(repeated) if self._is_current(one)]
        # Where nothing is committed, more has to be requested, which must not delay the others.
        for at_beginning in (False, True):
            chosen = [one for one in searches if (one.error is None) is at_beginning]
            if chosen:
                self._lifecycle.start_service(self._search, chosen)

    async def _search(self, searches: Collection[_Search]) -> None:
        self._repeated.update(one.partition for one in searches)
        wanted = {one.partition: one.error for one in searches}
        try:
            finished = await self._lifecycle.until_ending(partial(self._starts.search, wanted))
        except Exception as error:  # noqa: BLE001  # the program's next call raises it
            for one in searches:
                self._end(one, error)
            return
        if finished is None:
            return
        result = finished.value
        current = [one for one in searches if self._is_current(one)]
        self._plan(
            one
            for one in current
            if one.partition not in result.found and one.partition not in result.refused
        )
        starts = {
            one.partition: result.found[one.partition]
            for one in current
            if one.partition in result.found
        }
        epoch = self._lifecycle.membership.epoch
        for name, start in starts.items():
            self._positions.reset(name, start.offset)
            self._member.source.seek(epoch, name, start.offset)
        self._starts.emit(starts)
        for one in current:
            if (refused := result.refused.get(one.partition)) is not None:
                self._end(one, refused)
        # Nothing is read before that is committed, so that no commit of the program is undone.
        await self._starts.commit_initial(starts)
        for one in current:
            if one.partition in starts:
                self._end(one)

    def _end(self, search: _Search, error: Exception | None = None) -> None:
        if not self._is_current(search):
            return
        del self._current[search.partition]
        if error is not None or search.error is None:
            self.arrived(search.partition)
        search.on_over(error)

    def _is_current(self, search: _Search) -> bool:
        return self._current.get(search.partition) is search
