"""The topics of a simulation: how they come, grow and go, and what is written to them.

A topic that is deleted and created again has its name and nothing else in common with the one
before. Each record's value is a number that no other record has, so that of every record that a
program holds one can say which *creation* of its topic it belongs to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Final, final

from kgroup.broker import EmbeddedCluster, batches
from kgroup.broker.records import NewRecord, batch_of
from kgroup.model import TopicPartition
from kgroup.protocols import Message
from kgroup.testing.simulation import facts
from kgroup.testing.simulation.observer import Recorder


@final
class Topics:
    """All topics, and the numbers of their records."""

    def __init__(self, cluster: EmbeddedCluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._number = 0
        self._first_numbers: Final[defaultdict[str, list[int]]] = defaultdict(list)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it does not exist now."""
        return self._cluster.cluster.topics.partitions(topic) or 0

    async def create(self, topic: str, partitions: int) -> None:
        """Create a topic, for the first time or again."""
        await self._cluster.create_topic(topic, partitions)
        self._first_numbers[topic].append(self._number)
        self._changed(topic)

    async def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        await self._cluster.add_partitions(topic, partitions)
        self._changed(topic)

    async def delete(self, topic: str) -> None:
        """Delete a topic with its records, and with what groups have committed of it."""
        await self._cluster.delete_topic(topic)
        self._changed(topic)

    def append(self, partition: TopicPartition, count: int) -> None:
        """Write so many records."""
        now = self._cluster.cluster.now_ms()
        records = [NewRecord(b"%d" % one) for one in range(self._number, self._number + count)]
        self._number += count
        header, data = batches.check(batch_of(records, now))
        log = self._cluster.cluster.topics.log(partition.topic, partition.partition)
        first = log.append(data, header, now).base_offset
        self._recorder.note(
            facts.Appended, partition=partition, first=first, next_offset=first + count
        )

    def creation_of(self, message: Message) -> int:
        """Which creation of its topic a record belongs to, from 1."""
        value = message.value()
        assert value is not None  # all records are written here
        return bisect_right(self._first_numbers[message.topic()], int(value))

    def _changed(self, topic: str) -> None:
        self._recorder.note(
            facts.TopicChanged,
            topic=topic,
            partitions=self.partitions(topic),
            creation=len(self._first_numbers[topic]),
        )
