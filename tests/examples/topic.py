"""The topic of a test, the records read from it, and the offsets that groups have committed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, Self, final

import attrs
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from kgroup.testing import admin
from kgroup.types import TopicPartition
from tests.brokers import Kafka, unique

TIMEOUT: Final = 150.0
PAUSE: Final = 0.05

Record = tuple[TopicPartition, int]
"""The partition and offset of a record."""


@final
@attrs.frozen
class Topic:
    """A topic on a running broker."""

    bootstrap_servers: str
    name: str
    partitions: tuple[TopicPartition, ...]

    @classmethod
    def create(cls, kafka: Kafka, partitions: int) -> Self:
        """Create a topic with a unique name."""
        name = unique("orders")
        admin.create_topic(kafka.bootstrap_servers, name, partitions)
        names = tuple(TopicPartition(name, number) for number in range(partitions))
        return cls(kafka.bootstrap_servers, name, names)

    def produce(self, count: int) -> list[Record]:
        """Produce this number of records to every partition; return all positions, in order."""
        values = [f"value {number}" for number in range(count)]
        placed: list[Record] = []
        for name in self.partitions:
            placed += admin.produce(
                self.bootstrap_servers, self.name, values, partition=name.partition
            )
        return placed

    def printed(self, lines: Iterable[str]) -> list[Record]:
        """The records that a worker has printed, each as topic, partition and offset."""
        words = [line.split() for line in lines if line.startswith(f"{self.name} ")]
        return [(TopicPartition(topic, int(number)), int(at)) for topic, number, at, *_ in words]

    def ends(self) -> dict[TopicPartition, int]:
        """The end offset of each partition."""
        return admin.end_offsets(self.bootstrap_servers, self.partitions)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        found = admin.committed_offsets(self.bootstrap_servers, group_id, self.partitions)
        return {name: at.offset for name, at in found.items() if at is not None}

    def wait_until_committed(self, group_id: str, timeout: float = TIMEOUT) -> None:
        """Wait until a group has committed the end of every partition."""
        deadline = time.monotonic() + timeout
        while (committed := self.committed(group_id)) != self.ends():
            assert time.monotonic() < deadline, f"committed are only {committed}"
            time.sleep(PAUSE)

    def wait_until_shared(self, group_id: str, members: int, timeout: float = TIMEOUT) -> None:
        """Wait until so many members have partitions; a member without any is still joining."""
        deadline = time.monotonic() + timeout
        while True:
            group = self._described(group_id)
            owned = [len(member.assignment.topic_partitions) for member in group.members]
            if group.state is ConsumerGroupState.STABLE and len(owned) == members and all(owned):
                return
            assert time.monotonic() < deadline, f"{group.state}, members own {owned}"
            time.sleep(PAUSE)

    def members(self, group_id: str) -> list[str]:
        """The ids of a group's members."""
        return [member.member_id for member in self._described(group_id).members]

    def _described(self, group_id: str) -> Any:
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        described = client.describe_consumer_groups([group_id], request_timeout=TIMEOUT)
        return described[group_id].result(TIMEOUT)


def next_offsets(records: Iterable[Record]) -> dict[TopicPartition, int]:
    """For each partition, the offset to commit after these records."""
    following: dict[TopicPartition, int] = {}
    for name, offset in records:
        following[name] = max(following.get(name, 0), offset + 1)
    return following
