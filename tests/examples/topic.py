"""A test's own topic, what has been read of it, and what groups have committed for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Self, final

import attrs
from confluent_kafka.admin import AdminClient

from kgroup.testing import admin
from kgroup.types import TopicPartition
from tests.brokers import Kafka, unique

TIMEOUT: Final = 90.0
PAUSE: Final = 0.05

Record = tuple[TopicPartition, int]
"""Where a record is: its partition and offset."""


@final
@attrs.frozen
class Topic:
    """A topic on a running broker."""

    bootstrap_servers: str
    name: str
    partitions: tuple[TopicPartition, ...]

    @classmethod
    def create(cls, kafka: Kafka, partitions: int) -> Self:
        """Create it, with a name that no other test has."""
        name = unique("orders")
        admin.create_topic(kafka.bootstrap_servers, name, partitions)
        names = tuple(TopicPartition(name, number) for number in range(partitions))
        return cls(kafka.bootstrap_servers, name, names)

    def produce(self, count: int) -> list[Record]:
        """Produce so many records to every partition; where all of them are, in order."""
        values = [f"value {number}" for number in range(count)]
        placed: list[Record] = []
        for name in self.partitions:
            placed += admin.produce(
                self.bootstrap_servers, self.name, values, partition=name.partition
            )
        return placed

    def printed(self, lines: Iterable[str]) -> list[Record]:
        """The records of which a worker has printed the place: topic, partition, offset."""
        words = [line.split() for line in lines if line.startswith(f"{self.name} ")]
        return [(TopicPartition(topic, int(number)), int(at)) for topic, number, at, *_ in words]

    def ends(self) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will get."""
        return admin.end_offsets(self.bootstrap_servers, self.partitions)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """What a group has committed, where it has."""
        found = admin.committed_offsets(self.bootstrap_servers, group_id, self.partitions)
        return {name: at.offset for name, at in found.items() if at is not None}

    def wait_until_committed(self, group_id: str, timeout: float = TIMEOUT) -> None:
        """Wait until a group has committed the end of every partition."""
        deadline = time.monotonic() + timeout
        while (committed := self.committed(group_id)) != self.ends():
            assert time.monotonic() < deadline, f"committed are only {committed}"
            time.sleep(PAUSE)

    def wait_until_members(self, group_id: str, count: int, timeout: float = TIMEOUT) -> None:
        """Wait until a group has so many members."""
        deadline = time.monotonic() + timeout
        while len(found := self.members(group_id)) != count:
            assert time.monotonic() < deadline, f"members are {found}"
            time.sleep(PAUSE)

    def members(self, group_id: str) -> list[str]:
        """The ids of the members that the coordinator has in a group."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        described = client.describe_consumer_groups([group_id], request_timeout=TIMEOUT)
        return [member.member_id for member in described[group_id].result(TIMEOUT).members]


def next_offsets(records: Iterable[Record]) -> dict[TopicPartition, int]:
    """For each partition what to commit when all these records are handled."""
    following: dict[TopicPartition, int] = {}
    for name, offset in records:
        following[name] = max(following.get(name, 0), offset + 1)
    return following
