"""A fetcher that only records the calls it gets, and records to feed queues with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

from confluent_kafka import KafkaError, Message

from kgroup import interfaces
from kgroup.records.buffer import BufferLimits
from kgroup.records.buffered_source import BufferedSource
from kgroup.records.fetcher import NO_EPOCH, FetchedItem, FetchedRun, FetchStart
from kgroup.types import TopicPartition


def record(
    partition: TopicPartition, offset: int, value: bytes = b"v", leader_epoch: int = NO_EPOCH
) -> Message:
    """A record as librdkafka returns it."""
    message: Message = Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        value=value,
        leader_epoch=leader_epoch,
    )
    return message


def failure(
    partition: TopicPartition | None, code: int, offset: int = -1, text: str = "as scripted"
) -> Message:
    """An error as librdkafka returns it in place of a record."""
    error = KafkaError(code, text)
    if partition is None:
        nothing: Message = Message(error=error)
        return nothing
    message: Message = Message(
        topic=partition.topic, partition=partition.partition, offset=offset, error=error
    )
    return message


def truncation(partition: TopicPartition, position: int, end: int) -> Message:
    """The error of a log that was cut below a position; an end of -1 if its leader has none."""
    what = "No epoch found less or equal to" if end < 0 else "Partition log truncation detected at"
    text = (
        f"{what} offset {position} (leader epoch 3): broker end offset is {end} (offset leader"
        f" epoch {-1 if end < 0 else 2}). Reset: Local: Partition log truncation detected (broker"
        " 2)"
    )
    return failure(partition, KafkaError._AUTO_OFFSET_RESET, position, text)


def run_of(
    partition: TopicPartition, fetch_id: int, offsets: Sequence[int], leader_epoch: int = NO_EPOCH
) -> FetchedRun:
    """A run of records of one byte each."""
    records = [record(partition, at, leader_epoch=leader_epoch) for at in offsets]
    messages = cast("Sequence[interfaces.Message]", records)
    return FetchedRun(partition, fetch_id, messages, len(offsets), leader_epoch)


class ScriptedFetcher:
    """Records every call; a test delivers items for it, or leaves them in ``backlog``."""

    def __init__(self, limits: BufferLimits) -> None:
        self.limits = limits
        self.fetches: dict[TopicPartition, FetchStart] = {}
        self.held: set[TopicPartition] = set()
        self.active = False
        self.resumed = 0
        self.backlog: list[FetchedRun] = []
        self.watermarks: dict[TopicPartition, int] = {}

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """What a test has set."""
        return self.watermarks.get(partition)

    @property
    def has_more(self) -> bool:
        """Whether there is a backlog."""
        return bool(self.backlog) and not self.limits.stopped

    @property
    def serves_threads(self) -> bool:
        """Its calls are recorded in any thread."""
        return True

    def take_into(
        self, take_in: Callable[[Sequence[FetchedItem]], None], *, in_loop: bool = True
    ) -> bool:
        """The first run of the backlog."""
        del in_loop
        if not self.has_more:
            return False
        run = self.backlog.pop(0)
        self.count(run)
        take_in((run,))
        return True

    def activate(self) -> None:
        """Record that a generation begins."""
        self.active = True

    def deactivate(self) -> None:
        """Record that a generation has ended."""
        self.active = False

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Record the fetches."""
        self.stop(starts)
        self.fetches.update(starts)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the fetches."""
        for partition in partitions:
            self.fetches.pop(partition, None)
            self.held.discard(partition)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Record the held partitions."""
        assert set(partitions) <= self.fetches.keys()
        self.held.update(partitions)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the held partitions."""
        assert set(partitions) <= self.held
        self.held.difference_update(partitions)

    def resume_fetching(self) -> None:
        """Count the call."""
        self.resumed += 1
        self.limits.stopped = False

    def deliver(self, source: BufferedSource, *runs: FetchedRun) -> None:
        """Deliver items as a real fetcher does: count them, and stop if the buffer is full."""
        self.count(*runs)
        source.deliver(runs)

    def count(self, *runs: FetchedRun) -> None:
        """Count items whose delivery has begun."""
        self.limits.count_delivered(
            sum(len(run.messages) for run in runs), sum(run.size for run in runs)
        )
        if self.limits.is_full():
            self.limits.stopped = True


def scripted(
    max_records: int = 1000,
    max_bytes: int = 10**6,
    on_fault: Callable[[TopicPartition | None, str], None] = lambda _partition, _reason: None,
) -> tuple[BufferedSource, ScriptedFetcher]:
    """A source over a scripted fetcher."""
    limits = BufferLimits(max_records, max_bytes)
    fetcher = ScriptedFetcher(limits)
    return BufferedSource(fetcher, limits, on_fault), fetcher
