"""Streams that are opened, closed and sought at random while positions are lost, beside a broker.

Records are deleted, leaders answer ListOffsets late, with errors or with refusals, and calls are
given up. From each start, seek or reset on, every record is handed out once, in order.
"""

from __future__ import annotations

from random import Random
from typing import Any, final

import pytest
import trio
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    NoOffsetError,
    OffsetBehindCommitError,
    OffsetBeyondReadError,
    OffsetOutOfRangeError,
    StaleGenerationError,
)
from kgroup.events import Event, OffsetReset
from kgroup.generation.generation import Generation
from kgroup.generation.record_stream import RecordStream
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from tests.group.harness import Harness, harness

RUNS = 60
PARTITIONS = [TopicPartition("topic", number) for number in range(5)]
ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.REQUEST_TIMED_OUT,
)
COMMITS_FAIL = (
    OffsetBehindCommitError,
    OffsetBeyondReadError,
    CommitFailedError,
    CommitUnknownError,
    StaleGenerationError,
)


@final
class Play:
    """One run: a program that does all of this, and what it must be given next."""

    def __init__(self, here: Harness, random: Random) -> None:
        self.here = here
        self.random = random
        self.rule = random.choice(["earliest", "latest", "error"])
        self.next: dict[TopicPartition, int | None] = {}
        """The next record of each partition; None while its start is not known."""
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.streams: list[RecordStream] = []
        self.faults: list[Any] = []
        self.generation: Any = None
        self.nursery: Any = None

    def note(self, event: Event) -> None:
        """Continue where the member says that a partition starts."""
        if isinstance(event, OffsetReset):
            self.next[event.partition] = event.offset

    async def append(self, partition: TopicPartition, count: int) -> None:
        """Append records, each with its offset as its value."""
        first = self.ends[partition]
        self.ends[partition] += count
        values = [b"%d" % offset for offset in range(first, first + count)]
        await self.here.broker.append("topic", partition.partition, values)

    def first(self, partition: TopicPartition) -> int:
        """The first offset of a log."""
        return int(self._log(partition).start_offset)

    def delete(self, partition: TopicPartition, before: int) -> None:
        """Delete the first records of a log."""
        self._log(partition).delete_before(before)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go to an offset, which need not be in the log."""
        self.generation.seek(partition, offset)
        self.next[partition] = offset

    def open(self, *, rest: bool = False) -> None:
        """Open a stream of some partitions that no other has, or of all of these."""
        held = {name for stream in self.streams for name in stream.partitions}
        if free := [name for name in PARTITIONS if name not in held]:
            count = len(free) if rest else self.random.randint(1, len(free))
            stream = self.generation.records(self.random.sample(free, count))
            self.streams.append(stream)
            self.nursery.start_soon(self._read, stream)

    async def play(self, group: ConsumerGroup) -> None:
        """Play up to three generations, and read everything at the end."""
        for number in range(1, 4):
            self.generation = generation = await group.next()
            self.next = {name: generation.start_offsets.get(name) for name in PARTITIONS}
            self.streams.clear()
            async with trio.open_nursery() as self.nursery:
                self.open()
                await self._disturb(generation)
                if number == 3 or self.random.random() < 0.4:
                    await self._finish(generation)
                    self.nursery.cancel_scope.cancel()
                    return
                generation.start_soon(trio.lowlevel.checkpoint)  # its end
                await trio.sleep(self.random.random())
                self.nursery.cancel_scope.cancel()

    async def _read(self, stream: RecordStream) -> None:
        while True:
            try:
                with trio.move_on_after(self.random.choice([0.001, 0.05, 1.0, 1000.0])):
                    await self._take(stream)
            except StopAsyncIteration:
                return
            except OffsetOutOfRangeError as error:
                assert self.rule == "error"
                self._go_somewhere(error.partition)
            except NoOffsetError:
                assert self.rule == "error"
                for partition in stream.partitions:
                    if self.next[partition] is None:
                        self._go_somewhere(partition)
            except BrokerError:
                await trio.sleep(self.random.random())

    async def _take(self, stream: RecordStream) -> None:
        batch = await anext(stream)
        for message in batch.messages:
            assert message.offset() == self.next[batch.partition] == int(message.value() or b"")
            self.next[batch.partition] = message.offset() + 1
        if self.random.random() < 0.3:
            try:
                await self.generation.commit({batch.partition: batch.next_offset})
            except COMMITS_FAIL:
                return  # it has sought meanwhile, or the coordinator was slow

    def _go_somewhere(self, partition: TopicPartition) -> None:
        if self.generation.state is State.RUNNING:
            first, end = self.first(partition), self.ends[partition]
            self.seek(partition, self.random.randint(first, end))

    async def _disturb(self, generation: Generation) -> None:
        random = self.random
        steps = (
            self.open,
            self._close,
            lambda: generation.pause(random.choice(PARTITIONS)),
            lambda: generation.resume(random.choice(PARTITIONS)),
            self._seek,
            self._delete_some,
            self._lose_all,
            self._answer_late,
            self._refuse,
        )
        until = trio.current_time() + random.uniform(5, 90)
        while trio.current_time() < until and generation.state is State.RUNNING:
            await trio.sleep(random.choice([0, 0.01, 0.1, 1.0, 3.0]) * random.random())
            if random.random() < 0.2:
                await self.append(random.choice(PARTITIONS), random.randrange(1, 20))
            else:
                random.choice(steps)()
        for fault in self.faults:
            fault.cancel()

    def _close(self) -> None:
        if self.streams:
            stream = self.random.choice(list(self.streams))
            self.streams.remove(stream)
            stream.close()
            if self.random.random() < 0.5:
                self.open()

    def _seek(self) -> None:
        name = self.random.choice(PARTITIONS)
        end = self.ends[name]
        self.seek(name, self.random.choice([0, self.first(name), end, end + 50]))

    def _delete_some(self) -> None:
        name = self.random.choice(PARTITIONS)
        self.delete(name, self.random.randint(self.first(name), self.ends[name]))

    def _lose_all(self) -> None:
        for name in PARTITIONS:
            self.delete(name, self.ends[name])
            self.seek(name, 0)

    def _answer_late(self) -> None:
        seconds, times = self.random.uniform(0, 8), self.random.randint(1, 2)
        self.faults.append(self.here.broker.slow(seconds, "list_offsets", times=times))

    def _refuse(self) -> None:
        code, times = self.random.choice(ERRORS), self.random.randint(1, 3)
        self.faults.append(self.here.broker.inject("list_offsets", code, times=times))

    async def _finish(self, generation: Generation) -> None:
        generation.resume(PARTITIONS)
        self.open(rest=True)
        for _ in range(2):  # a reset to the end passes over what was appended before
            for name in PARTITIONS:
                await self.append(name, 3)
            await trio.sleep(70)
        assert self.next == self.ends

    def _log(self, partition: TopicPartition) -> Any:
        return self.here.broker.cluster.topics.log("topic", partition.partition)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_streams_at_random(autojump_clock: MockClock, seed: int) -> None:
    """Every record arrives once and in order, nothing hangs, and requests are bounded."""
    async with harness(len(PARTITIONS)) as here:
        play = Play(here, Random(seed))
        for name in PARTITIONS:
            await play.append(name, play.random.randint(1, 30))
        if play.random.random() < 0.7:  # the starts are not known at the hand-over
            times = play.random.randint(1, 12)
            here.broker.inject("list_offsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=times)
        config = here.config(auto_offset_reset=play.rule)
        runtime = memory_runtime(here.broker, seed=seed)
        async with ConsumerGroup(config, runtime=runtime, on_event=play.note) as group:
            await play.play(group)
        assert len(here.requests_for("list_offsets")) <= 2 * (here.now + 10) + 90
