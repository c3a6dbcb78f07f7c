"""The topics of a simulation: created, extended, deleted, and written to.

A topic that is deleted and created again shares only its name with the one before. Each record's
value is a number that no other record has; from it follows which *creation* of its topic a record
belongs to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import attrs

from kgroup.broker import EmbeddedCluster, batches
from kgroup.broker.records import NewRecord, batch_of
from kgroup.interfaces import Message
from kgroup.record_headers import headers_of
from kgroup.testing.simulation import history
from kgroup.testing.simulation.observer import Recorder
from kgroup.types import TopicPartition

Value = Callable[[TopicPartition, int], bytes]
"""Makes the value of a record of its partition and its number."""
NUMBER: Final = "kgroup-number"
"""The header with a record's number, if the program's function makes the value."""


@final
@attrs.define(eq=False)
class Producer:
    """A transactional producer, in its current epoch.

    Attributes:
        transactional_id: its transactional id.
        producer_id: the id that the coordinator gave it.
        epoch: its epoch; each transaction has a new one.
        sequences: for each partition the sequence number of the next record.
    """

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[TopicPartition, int] = attrs.field(factory=dict)


@final
class SimulatedTopics:
    """All topics, and the numbers of their records."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        recorder: Recorder,
        *,
        committed_only: bool = False,
        value: Value | None = None,
    ) -> None:
        """Start without topics.

        Args:
            cluster: the brokers.
            recorder: records what happens.
            committed_only: whether the members read committed records only.
            value: makes values of records, which then have their number in a header; by default,
                the value is the number.
        """
        self._value = value
        self._cluster = cluster
        self._recorder = recorder
        self._committed_only = committed_only
        self._ends: Final[dict[TopicPartition, int]] = {}
        self._open: Final[dict[tuple[int, TopicPartition], int]] = {}
        self._number = 0
        self._first_numbers: Final[defaultdict[str, list[int]]] = defaultdict(list)

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic; 0 if it does not exist now."""
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
        """Delete a topic with its records and all committed offsets of it."""
        await self._cluster.delete_topic(topic)
        for partition in [one for one in self._ends if one.topic == topic]:
            del self._ends[partition]
        for key in [one for one in self._open if one[1].topic == topic]:
            del self._open[key]
        self._changed(topic)

    def append(
        self, partition: TopicPartition, count: int, producer: Producer | None = None
    ) -> None:
        """Append records, in a producer's open transaction if one is given."""
        now = self._cluster.cluster.now_ms()
        records = [
            self._record(partition, one) for one in range(self._number, self._number + count)
        ]
        self._number += count
        stamp: dict[str, Any] = {}
        if producer is not None:
            sequence = producer.sequences.get(partition, 0)
            producer.sequences[partition] = sequence + count
            stamp = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": sequence,
                "transactional": True,
            }
        header, data = batches.check(batch_of(records, now, **stamp))
        log = self._cluster.cluster.topics.log(partition.topic, partition.partition)
        first = log.append(data, header, now).base_offset
        self._recorder.record(
            history.Appended,
            partition=partition,
            first=first,
            next_offset=first + count,
            producer_id=None if producer is None else producer.producer_id,
        )
        if producer is None or not self._committed_only:
            self._visible_to(partition, first + count)
        else:
            self._open[producer.producer_id, partition] = first + count

    def transaction_ended(
        self,
        producer_id: int,
        committed: bool,  # noqa: FBT001 # as the broker calls it
        markers: Sequence[tuple[TopicPartition, int]],
    ) -> None:
        """A transaction was committed or aborted."""
        self._recorder.record(
            history.TransactionEnded,
            producer_id=producer_id,
            committed=committed,
            markers=tuple(markers),
        )
        for partition, _ in markers:
            end = self._open.pop((producer_id, partition), None)
            if committed and end is not None:
                self._visible_to(partition, end)

    def ends(self) -> dict[TopicPartition, int]:
        """For each partition the offset after the last record that members can read."""
        return {
            partition: self._ends.get(partition, 0)
            for partition in (
                TopicPartition(topic, number)
                for topic in sorted(self._first_numbers)
                for number in range(self.partitions(topic))
            )
        }

    def _visible_to(self, partition: TopicPartition, end: int) -> None:
        self._ends[partition] = max(end, self._ends.get(partition, 0))

    def creation_of(self, message: Message) -> int:
        """The creation of its topic that a record belongs to, from 1."""
        number = message.value()
        if self._value is not None:
            number = dict(headers_of(message) or ())[NUMBER]
        assert number is not None  # every record was written by `append`
        return bisect_right(self._first_numbers[message.topic()], int(number))

    def _record(self, partition: TopicPartition, number: int) -> NewRecord:
        digits = b"%d" % number
        if self._value is None:
            return NewRecord(digits)
        return NewRecord(self._value(partition, number), headers=((NUMBER, digits),))

    def _changed(self, topic: str) -> None:
        self._recorder.record(
            history.TopicChanged,
            topic=topic,
            partitions=self.partitions(topic),
            creation=len(self._first_numbers[topic]),
        )
