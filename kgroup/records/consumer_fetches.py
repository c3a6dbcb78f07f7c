"""``ConsumerFetches``: the partitions that a Consumer fetches, and how far each fetch is.

Starts, stops and restarts are collected while the thread runs commands, and are then applied by one
call each (`ConsumerFetches.apply`), because a rebalance of a thousand partitions is a thousand
commands at worst; so are a thousand commits whose records retention has deleted. While the member
joins, and as soon as partitions are assigned, the leaders that librdkafka may not know are
requested (``kgroup.records.topic_requests``); nothing waits for a response.

INVARIANT: only who holds the lock of the ``ConsumerThread`` uses it, because it calls the Consumer.
Any thread may look up a high watermark.

**What librdkafka does that one would not expect.**

- It never forgets a topic that it has fetched: it requests all of them once a second, also if they
  were deleted long ago. So the thread replaces a Consumer with many former topics
  (`ConsumerFetches.former_topics`).
- ``pause`` throws away what librdkafka has fetched ahead of a partition.
- It compares a log with the leader epoch of what is before a fetch when the leader changes, and in
  ``seek``, but not when a fetch begins (`ConsumerFetches.begin_again`).

Source: confluent-kafka 2.16's ``Consumer.c``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final, final

import attrs
import confluent_kafka
from confluent_kafka import KafkaException

from kgroup.records.fetcher import NO_EPOCH, FetchStart
from kgroup.records.topic_requests import request_leaders
from kgroup.types import TopicPartition

SEEK_INTERVAL: Final = 0.001
MOST_SEEKS: Final = 1000
"""Seconds between attempts to seek in fetches that are being started, and how many there are for
all partitions together. One or two are enough, if librdkafka's thread has the processor."""


@final
@attrs.define
class PartitionFetch:
    """A partition that is being fetched.

    Attributes:
        fetch_id: the fetch.
        start_offset: where it began.
        next_offset: the offset after the last record that arrived.
        leader_epoch: the leader epoch of that record, or of the one before the start.
        high_watermark: the partition's, as far as it is known.
        verifying: whether it was restarted to verify that the offset is out of range.
        compared: whether its log was compared with the leader epoch since librdkafka began it.
        comparing: whether it is about to be restarted for that; what arrives before is dropped.
        waits_at: the offset at which it waited at the last reading of its watermark, though the log
            goes on.
        waits: for how many readings in a row.
    """

    fetch_id: int
    start_offset: int
    next_offset: int
    leader_epoch: int
    high_watermark: int | None = None
    verifying: bool = False
    compared: bool = False
    comparing: bool = False
    waits_at: int = -1
    waits: int = 0

    @property
    def left(self) -> int:
        """How many offsets the log has after what has arrived, as far as that is known."""
        return (self.high_watermark or 0) - self.next_offset


@final
class ConsumerFetches:
    """The fetches of a Consumer.

    Attributes:
        by_partition: those that have been applied.
        topics: how many topics they have.
        held: partitions whose fetches are paused.
    """

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, PartitionFetch] = {}
        self.topics = 0
        self.held: set[TopicPartition] = set()
        self._stops: dict[TopicPartition, None] = {}
        self._starts: dict[TopicPartition, FetchStart] = {}
        self._again: dict[TopicPartition, PartitionFetch] = {}
        self._assigned_topics: set[str] = set()
        """All topics of which this Consumer has fetched a partition."""
        self._subscribed: frozenset[str] = frozenset()
        """The topics that its members prepared last."""

    def use(self, consumer: confluent_kafka.Consumer) -> None:
        """Continue every fetch in this new Consumer, after the last record that arrived."""
        self.consumer = consumer
        self._assigned_topics = set()
        self._assign(self.by_partition)

    def prepare(self, topics: Collection[str], subscribed: frozenset[str]) -> None:
        """Request the leaders of topics of which partitions may be started soon.

        librdkafka keeps what it knows of a topic up to date as long as it fetches the topic.

        Args:
            topics: the topics.
            subscribed: all topics that the members that use the Consumer may still want.
        """
        self._subscribed = subscribed
        fetched = self._fetched_topics()
        request_leaders(self.consumer, (topic for topic in topics if topic not in fetched))

    def add_starts(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Begin these fetches, also of partitions that are fetched already, with `apply`."""
        for partition, start in starts.items():
            self._forget(partition)
            self._starts[partition] = start

    def add_stops(self, partitions: Collection[TopicPartition]) -> None:
        """End the fetches of these partitions with `apply`."""
        for partition in partitions:
            self._forget(partition)

    def apply(self) -> bool:
        """Apply all stops by one call, all starts by another, and all restarts by two.

        Returns:
            whether a fetch has begun.
        """
        stops, self._stops = self._stops, {}
        if stops:
            self.release(stops)
            self.consumer.incremental_unassign([to_confluent(partition) for partition in stops])
        starts, self._starts = self._starts, {}
        if starts:
            self.consumer.incremental_assign(
                [
                    to_confluent(partition, start.offset, start.leader_epoch)
                    for partition, start in starts.items()
                ]
            )
            for partition, start in starts.items():
                self.by_partition[partition] = PartitionFetch(
                    start.fetch_id, start.offset, start.offset, start.leader_epoch
                )
            new = {partition.topic: None for partition in starts if partition not in stops}
            request_leaders(self.consumer, new)
            self._assigned_topics.update(new)
        if self._again:
            self._apply_again()
        self.topics = len(self._fetched_topics())
        return bool(starts)

    def former_topics(self) -> int:
        """How many topics librdkafka requests for ever although nothing wants them any more.

        Those of the subscription do not count: a member whose partitions change from one generation
        to the next may get their partitions again.
        """
        return len(self._assigned_topics - self._fetched_topics() - self._subscribed)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Pause those of the partitions that are fetched."""
        fetched = [partition for partition in partitions if partition in self.by_partition]
        if fetched:
            self.held.update(fetched)
            self.consumer.pause([to_confluent(partition) for partition in fetched])

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Resume those of the partitions that are paused."""
        held = [partition for partition in partitions if partition in self.held]
        if held:
            self.held.difference_update(held)
            self.consumer.resume([to_confluent(partition) for partition in held])

    def begin_again(self, partition: TopicPartition, fetch: PartitionFetch) -> None:
        """With `apply`, fetch once more from where this is, unless another has taken its place.

        If the leader epoch of what is before that is known, librdkafka compares the log with it.
        Otherwise it would do so only when the leader changes, which may have happened before the
        fetch began.
        """
        self._again[partition] = fetch

    def _apply_again(self) -> None:
        again, self._again = self._again, {}
        fetches = {
            name: fetch for name, fetch in again.items() if self.by_partition.get(name) is fetch
        }
        ended = {
            name: fetch
            for name, fetch in fetches.items()
            if fetch.leader_epoch == NO_EPOCH or not self._seek(name, fetch)
        }
        # After an error librdkafka fetches the partition no more. A fetch that began before the
        # comparison could fail in the same way.
        to_compare = [name for name, fetch in ended.items() if fetch.leader_epoch != NO_EPOCH]
        held = [name for name in to_compare if name not in self.held]
        self.hold(held)
        self._begin_again(ended)
        for _ in range(MOST_SEEKS):  # librdkafka first stops the fetches before
            to_compare = [name for name in to_compare if not self._seek(name, ended[name])]
            if not to_compare:
                break
            time.sleep(SEEK_INTERVAL)
        self.release(held)
        for fetch in fetches.values():
            fetch.compared, fetch.comparing = True, False

    def _seek(self, partition: TopicPartition, fetch: PartitionFetch) -> bool:
        """Whether librdkafka accepts a seek, which it does of a partition that it fetches."""
        try:
            self.consumer.seek(to_confluent(partition, fetch.next_offset, fetch.leader_epoch))
        except KafkaException:
            return False
        return True

    def begin_all_again(self) -> None:
        """Begin every fetch again after the last record that arrived."""
        self._begin_again(self.by_partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The high watermark of a partition that is fetched, as far as it is known."""
        fetch = self.by_partition.get(partition)
        return None if fetch is None else fetch.high_watermark

    def _begin_again(self, fetches: Mapping[TopicPartition, PartitionFetch]) -> None:
        if fetches:
            self.consumer.incremental_unassign([to_confluent(name) for name in fetches])
        self._assign(fetches)

    def _assign(self, fetches: Mapping[TopicPartition, PartitionFetch]) -> None:
        """Let the Consumer, which has none of them, fetch from where each fetch is."""
        for fetch in fetches.values():
            fetch.compared = False
        if fetches:
            self._assigned_topics.update(name.topic for name in fetches)
            self.consumer.incremental_assign(
                [
                    to_confluent(name, fetch.next_offset, fetch.leader_epoch)
                    for name, fetch in fetches.items()
                ]
            )
        if held := [name for name in fetches if name in self.held]:
            self.consumer.pause([to_confluent(name) for name in held])

    def _forget(self, partition: TopicPartition) -> None:
        self._starts.pop(partition, None)
        if self.by_partition.pop(partition, None) is not None:
            self._stops[partition] = None

    def _fetched_topics(self) -> set[str]:
        return {partition.topic for partition in self.by_partition}


def to_confluent(
    partition: TopicPartition,
    offset: int = confluent_kafka.OFFSET_INVALID,
    leader_epoch: int = NO_EPOCH,
) -> confluent_kafka.TopicPartition:
    """confluent-kafka's value for a partition, and for an offset and an epoch if they are given."""
    return confluent_kafka.TopicPartition(
        partition.topic, partition.partition, offset, leader_epoch=leader_epoch
    )
