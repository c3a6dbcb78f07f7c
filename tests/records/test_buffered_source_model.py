"""The queues against a model: nothing lost, nothing repeated, order kept, epochs respected."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kgroup.errors import OffsetOutOfRangeError, StaleGenerationError
from kgroup.interfaces import Batch
from kgroup.records.fetcher import OutOfRange, PassedTo
from kgroup.records.waiters import ThreadRead
from kgroup.types import TopicPartition
from tests.records.scripted import run_of, scripted

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
#: Offsets of records, with the gaps that markers and compaction leave.
LOG = [offset for offset in range(120) if offset % 7 != 3 and offset % 11 not in (5, 6)]
END = LOG[-1] + 1

partitions = st.sampled_from(PARTITIONS)
subsets = st.lists(partitions, unique=True)
mostly_all = st.just(PARTITIONS) | st.just(PARTITIONS) | subsets
#: The distance of a new position from the reader's; in most cases 0.
moves = st.sampled_from([0, 0, 0, 0, 1, 2, 5, 30, -1, -3, -30])
offsets = st.integers(0, END)


@attrs.define
class Expected:
    """The model of a partition of the current generation.

    Attributes:
        last: the batch that was handed out last, unless it was put back or a seek followed.
        on_top: how many of the queued records have been put back.
    """

    position: int
    opened: bool = False
    paused: bool = False
    fault: bool = False
    last: Batch | None = None
    on_top: int = 0


class NeverWoken:
    """A thread that stops waiting at once."""

    def set(self) -> None:
        """It does not wait."""

    def wait(self, timeout: float | None) -> None:
        """Raise TimeoutError."""
        assert timeout is not None
        raise TimeoutError


class SourceMachine(RuleBasedStateMachine):
    """Drives a source and its fetcher, and predicts every hand-out."""

    @initialize()
    def begin(self) -> None:
        """Make a source with a small buffer, so that fetching stops and resumes."""
        self.source, self.fetcher = scripted(max_records=60)
        self.epoch = 0
        self.current = False
        self.expected: dict[TopicPartition, Expected] = {}
        #: By fetch_id: the next offset that its fetch will hand over.
        self.cursors: dict[int, int] = {}
        #: By fetch_id: the offset up to which its fetch has said that there is no further record.
        self.passed: dict[int, int] = {}

    def cursor(self, partition: TopicPartition) -> int:
        """The next offset of a partition's current fetch."""
        start = self.fetcher.fetches[partition]
        return self.cursors.setdefault(start.fetch_id, start.offset)

    @rule(wanted=mostly_all, moves=st.lists(moves, min_size=3, max_size=3), opened=mostly_all)
    def next_generation(
        self, wanted: list[TopicPartition], moves: list[int], opened: list[TopicPartition]
    ) -> None:
        """Begin a generation at the last positions or at others, and open streams."""
        if self.current:
            self.source.revoke(self.epoch)
        self.epoch += 1
        self.current = True
        positions = {}
        for partition in wanted:
            known = self.expected.get(partition)
            at = known.position + moves[partition.partition] if known else 0
            positions[partition] = min(max(at, 0), END)
        on_top = {partition: known.on_top for partition, known in self.expected.items()}
        self.expected = {
            one: Expected(at, on_top=on_top.get(one, 0)) for one, at in positions.items()
        }
        self.source.assign(self.epoch, positions)
        assert set(self.fetcher.fetches) <= set(positions)
        self.open(opened)

    @precondition(lambda self: self.current)
    @rule()
    def revoke(self) -> None:
        """End the generation."""
        self.source.revoke(self.epoch)
        self.current = False

    @precondition(lambda self: self.current and any(not e.opened for e in self.expected.values()))
    @rule(wanted=mostly_all)
    def open(self, wanted: list[TopicPartition]) -> None:
        """Open streams."""
        mine = [partition for partition in wanted if partition in self.expected]
        self.source.open(self.epoch, mine)
        for partition in mine:
            self.expected[partition].opened = True
            assert partition in self.fetcher.fetches or self.expected[partition].fault

    @precondition(lambda self: self.fetcher.fetches and not self.fetcher.limits.stopped)
    @rule(order=st.permutations(PARTITIONS), count=st.integers(1, 30))
    def deliver(self, order: list[TopicPartition], count: int) -> None:
        """Deliver the fetcher's next items, possibly between generations."""
        free = [one for one in order if one in self.fetcher.fetches.keys() - self.fetcher.held]
        if not free:
            return
        partition = free[0]
        fetch_id = self.fetcher.fetches[partition].fetch_id
        first = bisect_left(LOG, self.cursor(partition))
        found = LOG[first : first + count]
        if found:
            self.cursors[fetch_id] = found[-1] + 1
            self.fetcher.deliver(self.source, run_of(partition, fetch_id, found))

    @precondition(lambda self: self.fetcher.fetches)
    @rule(partition=partitions, most=st.integers(1, 3))
    def deliver_passed(self, partition: TopicPartition, most: int) -> None:
        """Deliver that what follows in the log is no record, as far as that is so."""
        start = self.fetcher.fetches.get(partition)
        if start is not None and partition not in self.fetcher.held:
            cursor = self.cursor(partition)
            rest = LOG[bisect_left(LOG, cursor) :]
            offset = min(cursor + most, rest[0] if rest else END + 2)
            self.cursors[start.fetch_id] = self.passed[start.fetch_id] = offset
            self.source.deliver([PassedTo(partition, start.fetch_id, offset)])

    @rule(partition=partitions, which=st.integers(0, 100))
    def deliver_stale(self, partition: TopicPartition, which: int) -> None:
        """Deliver records of an earlier fetch, which no reader may see."""
        now = self.fetcher.fetches.get(partition)
        stale = [fetch_id for fetch_id in self.cursors if now is None or fetch_id != now.fetch_id]
        if stale and not self.fetcher.limits.stopped:
            run = run_of(partition, stale[which % len(stale)], [0, 1, 2])
            self.fetcher.deliver(self.source, run)

    @precondition(lambda self: self.current)
    @rule(partition=partitions, rarely=st.integers(0, 3))
    def fall_out_of_range(self, partition: TopicPartition, rarely: int) -> None:
        """Report that a position is not in the log."""
        start = self.fetcher.fetches.get(partition)
        if start is not None and rarely == 0:
            at = self.cursor(partition)
            self.source.deliver([OutOfRange(partition, start.fetch_id, at, "as scripted")])
            self.expected[partition].fault = True
            self.cursors[-1 - partition.partition] = at
            self.passed[-1 - partition.partition] = self.passed.get(start.fetch_id, 0)

    @precondition(lambda self: self.current)
    @rule(partition=partitions, offset=offsets)
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Seek."""
        if partition in self.expected:
            self.source.seek(self.epoch, partition, offset)
            known = self.expected[partition]
            known.position, known.fault = offset, False
            known.last, known.on_top = None, 0

    @precondition(lambda self: self.current)
    @rule(partition=partitions, deliver=st.booleans())
    def put_back(self, partition: TopicPartition, *, deliver: bool) -> None:
        """Give back what was handed out last, also after more records or a fault were delivered."""
        known = self.expected.get(partition)
        if known is not None and known.last is not None:
            if deliver and self.fetcher.fetches and not self.fetcher.limits.stopped:
                self.deliver([partition], 3)
            before = dict(self.fetcher.fetches)
            self.source.put_back(self.epoch, known.last)
            assert self.fetcher.fetches == before
            known.position, known.on_top = known.last.start_offset, known.on_top + len(known.last)
            known.last = None

    @precondition(lambda self: self.current)
    @rule(wanted=subsets, pause=st.booleans())
    def switch(self, wanted: list[TopicPartition], *, pause: bool) -> None:
        """Pause or resume."""
        mine = [partition for partition in wanted if partition in self.expected]
        (self.source.pause if pause else self.source.resume)(self.epoch, mine)
        for partition in mine:
            self.expected[partition].paused = pause

    @precondition(lambda self: any(known.opened for known in self.expected.values()))
    @rule(
        some=mostly_all, limit=st.integers(1, 25), times=st.integers(1, 4), in_thread=st.booleans()
    )
    def receive(
        self, some: list[TopicPartition], limit: int, times: int, *, in_thread: bool
    ) -> None:
        """Receive the batch that the model predicts, or none if there is none."""
        opened = [one for one, known in self.expected.items() if known.opened]
        wanted = [one for one in opened if one in some] or opened
        for _ in range(times):
            self.receive_once(wanted, limit, in_thread=in_thread)

    @precondition(lambda self: any(known.opened for known in self.expected.values()))
    @rule(
        order=st.permutations(PARTITIONS),
        counts=st.lists(st.integers(1, 20), min_size=1, max_size=5),
        limit=st.integers(1, 25),
        stale=st.booleans(),
        in_thread=st.booleans(),
    )
    def activate(
        self,
        order: list[TopicPartition],
        counts: list[int],
        limit: int,
        *,
        stale: bool,
        in_thread: bool,
    ) -> None:
        """Deliver and receive in turns, as a running group does."""
        for count in counts:
            if self.fetcher.fetches and not self.fetcher.limits.stopped:
                self.deliver(order, count)
            if stale and not self.fetcher.limits.stopped:
                self.deliver_stale(order[0], 0)
            self.receive(PARTITIONS, limit, 1, in_thread=in_thread)
            order = [*order[1:], order[0]]

    def receive_once(self, wanted: list[TopicPartition], limit: int, *, in_thread: bool) -> None:
        """Receive, and compare with the model."""
        if in_thread:
            answer = self.try_receive_in_thread(wanted, limit)
        else:
            answer = trio.run(self.try_receive, wanted, limit)
        if not self.current:
            assert isinstance(answer, StaleGenerationError)
            return
        if answer is None:
            for partition in wanted:
                known = self.expected[partition]
                assert known.paused or (not self.queued(partition) and not known.fault)
            return
        if isinstance(answer, OffsetOutOfRangeError):
            known = self.expected[answer.partition]
            assert answer.partition in wanted
            assert known.fault
            assert not known.paused
            assert not self.queued(answer.partition)
            return
        assert isinstance(answer, Batch)
        known = self.expected[answer.partition]
        assert answer.partition in wanted
        assert answer.epoch == self.epoch
        assert not known.paused
        assert 1 <= len(answer) <= limit
        got = [message.offset() for message in answer.messages]
        first = bisect_left(LOG, known.position)
        assert got == LOG[first : first + len(got)]
        assert answer.start_offset == known.position
        assert answer.next_offset == self.next_offset(answer.partition, got[-1] + 1)
        known.position, known.last = answer.next_offset, answer
        known.on_top = max(0, known.on_top - len(answer))

    def next_offset(self, partition: TopicPartition, after: int) -> int:
        """Where the partition goes on after the records that end here."""
        start = self.fetcher.fetches.get(partition)
        fetch_id = -1 - partition.partition if start is None else start.fetch_id
        passed = self.passed.get(fetch_id, 0)
        there_is_none = bisect_left(LOG, after) == bisect_left(LOG, passed)
        return passed if passed > after and there_is_none else after

    def queued(self, partition: TopicPartition) -> bool:
        """Whether delivered records have not been received yet."""
        known = self.expected[partition]
        start = self.fetcher.fetches.get(partition)
        if start is not None:
            upper = self.cursor(partition)
        elif known.fault:
            upper = self.cursors[-1 - partition.partition]
        else:
            return False
        return bisect_left(LOG, known.position) < bisect_left(LOG, upper)

    def try_receive_in_thread(self, wanted: list[TopicPartition], limit: int) -> Any:
        """As `try_receive`, by what a thread calls, which has no event loop."""
        handed_out: list[Batch] = []

        def hand_out(batch: Batch) -> Batch:
            handed_out.append(batch)
            return batch

        read = ThreadRead(
            epoch=self.epoch,
            partitions=frozenset(wanted),
            limit=limit,
            may_read=lambda: True,
            hand_out=hand_out,
            waiter=NeverWoken(),
        )
        try:
            batch = self.source.receive_in_thread(read, timeout=0)
        except TimeoutError:
            batch = None
        else:
            if batch is None:
                answer = trio.run(self.try_receive, wanted, limit)
                assert not isinstance(answer, Batch | None)
                return answer
        assert handed_out == ([] if batch is None else [batch])
        return batch

    async def try_receive(self, wanted: list[TopicPartition], limit: int) -> Any:
        """The batch or the error of receive, or None if it waits (and is then cancelled)."""
        answer: Any = None

        async def receive() -> None:
            nonlocal answer
            try:
                answer = await self.source.receive(self.epoch, wanted, limit)
            except (OffsetOutOfRangeError, StaleGenerationError) as error:
                answer = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return answer

    @invariant()
    def the_limits_balance(self) -> None:
        """The limits count exactly the records and bytes in the queues."""
        queues = self.source._queues.values()
        assert self.fetcher.limits.records == sum(queue.records for queue in queues)
        assert self.fetcher.limits.bytes == sum(queue.size for queue in queues)

    @invariant()
    def the_buffer_is_bounded(self) -> None:
        """Fetching stops at 15, or at 5 of a partition while a reader waits; then one delivery.

        What was put back comes on top.
        """
        part = 15 // len(PARTITIONS)
        queues = self.source._queues
        on_top = {name: known.on_top for name, known in self.expected.items()}
        over = sorted((queues[name].records - on_top.get(name, 0) for name in queues), reverse=True)
        assert all(records < part + 30 for records in over[1:])
        assert sum(over[:1]) < 15 + 30

    @invariant()
    def the_fetcher_works_in_a_generation(self) -> None:
        """Between generations the fetcher is inactive."""
        assert self.fetcher.active == self.current


SourceMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestQueued = SourceMachine.TestCase
