"""What the demo does to a cluster: its topic, its committed offsets, its removal. All calls block.

Thin over confluent-kafka. Everything has a name that nobody else uses, so that a cluster with
other tenants is left as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar, final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kgroup.cli.demo.errors import DemoError

TIMEOUT: Final = 15.0
"""Seconds that a cluster gets for what is asked of it."""
_PAUSE: Final = 0.05

T = TypeVar("T")


@final
class DemoCluster:
    """The demo's topic and group on a cluster."""

    def __init__(self, bootstrap_servers: str, topic: str, group_id: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.group_id = group_id
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
        }
        self._admin = AdminClient(self._settings)

    def create_topic(self, partitions: int) -> None:
        """Create the topic, with the cluster's default replication.

        Raises:
            DemoError: the cluster refused, or cannot be reached.
        """
        made = self._admin.create_topics(
            [NewTopic(self.topic, partitions)], operation_timeout=TIMEOUT
        )
        _result(made[self.topic].result, f"topic {self.topic} cannot be created")
        self._wait_for_leaders(partitions)

    def add_partitions(self, total: int) -> None:
        """Let the topic have so many partitions.

        Raises:
            DemoError: the cluster refused, or cannot be reached.
        """
        added = self._admin.create_partitions(
            [NewPartitions(self.topic, total)], operation_timeout=TIMEOUT
        )
        _result(added[self.topic].result, f"topic {self.topic} cannot have more partitions")
        self._wait_for_leaders(total)

    def committed(self, partitions: int) -> dict[int, int]:
        """What the group has committed, by partition; 0 where nothing.

        Raises:
            DemoError: the cluster did not say.
        """
        asked = [TopicPartition(self.topic, number) for number in range(partitions)]
        consumer = Consumer({**self._settings, "group.id": self.group_id})
        try:
            answers = _result(
                lambda timeout: consumer.committed(asked, timeout=timeout),
                f"the offsets of group {self.group_id} cannot be had",
            )
        finally:
            consumer.close()
        return {answer.partition: max(answer.offset, 0) for answer in answers}

    def remove(self) -> None:
        """Delete the topic and the group, which its members have left.

        Raises:
            DemoError: something was left behind; it says what.
        """
        deleted = self._admin.delete_topics([self.topic], operation_timeout=TIMEOUT)
        _result(deleted[self.topic].result, f"topic {self.topic} is left behind")
        # A member that was killed stays in the group until its session is over.
        deadline = time.monotonic() + TIMEOUT
        left_behind = f"group {self.group_id} is left behind"
        while not _result(self._delete_group, left_behind):
            if time.monotonic() > deadline:
                raise DemoError(f"{left_behind}: it still has members")
            time.sleep(_PAUSE)

    def _delete_group(self, timeout: float) -> bool:
        """Delete the group; False if it still has members."""
        deleted = self._admin.delete_consumer_groups([self.group_id])
        try:
            deleted[self.group_id].result(timeout)
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_ID_NOT_FOUND):
                raise
            return bool(code == KafkaError.GROUP_ID_NOT_FOUND)
        return True

    def _wait_for_leaders(self, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            topics = _result(
                lambda timeout: self._admin.list_topics(self.topic, timeout=timeout).topics,
                f"the partitions of topic {self.topic} cannot be had",
            )
            known = topics[self.topic].partitions.values()
            if sum(partition.leader >= 0 for partition in known) == partitions:
                return
            time.sleep(_PAUSE)
        raise DemoError(f"topic {self.topic} has no leader for each of {partitions} partitions")


def _result(ask: Callable[[float], T], otherwise: str) -> T:
    try:
        return ask(TIMEOUT)
    except KafkaException as error:
        raise DemoError(f"{otherwise}: {error.args[0].str()}") from error
    except TimeoutError:
        raise DemoError(f"{otherwise}: no answer within {TIMEOUT:g} s") from None
