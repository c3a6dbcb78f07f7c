"""The demo's topic on a Kafka cluster: its creation, lines, committed offsets and removal.

A thin layer over confluent-kafka. `DemoCluster` blocks, `LineProducer` does not. The topic and the
group have unique names, so that the demo can run on a shared cluster and leave it as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, final

import trio
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kgroup.cli.demo import DemoError
from kgroup.errors import AuthenticationError
from kgroup.records.topic_requests import has_broker
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.secret import without_locals
from kgroup.security.settings import Security
from kgroup.testing.admin import RELIABLE_PRODUCER
from kgroup.wire.librdkafka_login import login_settings
from kgroup.wire.librdkafka_texts import text_of

TIMEOUT: Final = 15.0
"""Seconds that a cluster may take to answer a request."""
_PAUSE: Final = 0.05
SEND_INTERVAL: Final = 1.0
"""Seconds between two calls of `LineProducer.send`: long enough that workers receive batches."""
LINES_PER_PARTITION: Final = 10
"""Consecutive lines that go to one partition before the next one gets some."""
FLUSH_TIMEOUT: Final = 60.0
"""Seconds that a cluster may take to acknowledge what was sent."""
REMOVE_TIMEOUT: Final = 60.0
"""Seconds within which the group must be empty: a killed member's session has to time out."""
LOST: Final = 20.0
"""Seconds without any broker after which librdkafka counts as having lost all for good."""
_METADATA_PAUSE: Final = 0.2
_PATIENCE: Final = 5.0
"""Seconds of one call that waits for the cluster; then it is seen whether brokers are lost."""
_MAX_QUEUED: Final = 50_000
"""Half of what librdkafka's queue holds by default."""

# librdkafka's own codes are public names that begin with _.
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
"""The errors of messages that were taken back from a producer."""

T = TypeVar("T")


@final
class DemoCluster:
    """The demo's topic and group on a cluster.

    To make one blocks, as its calls do, if the login is looked up.

    Raises:
        DemoError: there is nothing to log in with.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        group_id: str,
        security: Security | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.group_id = group_id
        self._settings = _client(bootstrap_servers, security)
        with without_locals():
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
        """Raise the topic's number of partitions to ``total``.

        Raises:
            DemoError: the cluster refused, or cannot be reached.
        """
        added = self._admin.create_partitions(
            [NewPartitions(self.topic, total)], operation_timeout=TIMEOUT
        )
        _result(added[self.topic].result, f"topic {self.topic} cannot have more partitions")
        self._wait_for_leaders(total)

    def committed(self, partitions: int) -> dict[int, int]:
        """The group's committed offset of each partition; 0 where it committed none.

        Raises:
            DemoError: the offsets cannot be fetched.
        """
        names = [TopicPartition(self.topic, number) for number in range(partitions)]
        consumer = Consumer({**self._settings, "group.id": self.group_id})
        try:
            offsets = _result(
                lambda timeout: consumer.committed(names, timeout=timeout),
                f"the committed offsets of group {self.group_id} cannot be fetched",
            )
        finally:
            consumer.close()
        return {one.partition: max(one.offset, 0) for one in offsets}

    def remove(self) -> None:
        """Delete the topic, and the group, once its members have left.

        Raises:
            DemoError: the topic or the group could not be deleted.
        """
        deleted = self._admin.delete_topics([self.topic], operation_timeout=TIMEOUT)
        _result(deleted[self.topic].result, f"topic {self.topic} could not be deleted")
        # A killed member stays in the group until its session times out.
        deadline = time.monotonic() + REMOVE_TIMEOUT
        failure = f"group {self.group_id} could not be deleted"
        while not _result(self._delete_group, failure):
            if time.monotonic() > deadline:
                raise DemoError(f"{failure}: it still has members")
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
                f"the partitions of topic {self.topic} cannot be fetched",
            )
            known = topics[self.topic].partitions.values()
            if sum(partition.leader >= 0 for partition in known) == partitions:
                return
            time.sleep(_PAUSE)
        raise DemoError(
            f"some of the {partitions} partitions of topic {self.topic} had no leader within"
            f" {TIMEOUT:g} s"
        )


@final
class LineProducer:
    """Produces the lines, and remembers at which offset each of them was stored.

    A few consecutive lines go to each partition in turn, added partitions included. The audit
    compares the workers' journals with ``placed``.

    librdkafka may lose all its brokers when the last one of a cluster stops, and does not find them
    when they are back (``kgroup.records.lost_brokers``). Another producer then sends what this one
    still has. A line that was under way at that moment may be written twice.

    To make one blocks if the login is looked up.

    Raises:
        DemoError: there is nothing to log in with.

    Attributes:
        placed: partition and offset of each acknowledged line -> the line's index.
        sent: how many lines were given to librdkafka.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        lines: Sequence[str],
        security: Security | None = None,
    ) -> None:
        self._lines = lines
        self._topic = topic
        self._refused: KafkaError | None = None
        self._settings: dict[str, Any] = {
            **_client(bootstrap_servers, security),
            **RELIABLE_PRODUCER,
            "linger.ms": 5,
        }
        self._producer = Producer(self._settings)
        self._had_broker = time.monotonic()
        self._taken_back: list[int] = []
        self.partitions = 0
        self.sent = 0
        self.placed: dict[tuple[int, int], int] = {}

    @property
    def left(self) -> int:
        """How many lines were not sent yet."""
        return len(self._lines) - self.sent

    async def spread_over(self, partitions: int) -> None:
        """Wait until the producer's metadata has so many partitions; then send to all of them.

        Raises:
            DemoError: the partitions did not appear in the metadata in time.
        """
        deadline = trio.current_time() + FLUSH_TIMEOUT
        while trio.current_time() < deadline:
            self._replace_if_lost()
            if await trio.to_thread.run_sync(self._known_partitions) >= partitions:
                self.partitions = partitions
                return
            await trio.sleep(_METADATA_PAUSE)
        raise DemoError(
            f"the producer's metadata of topic {self._topic} did not reach {partitions} partitions"
            f" within {FLUSH_TIMEOUT:g} s"
        )

    def send(self, number: int) -> None:
        """Send the next lines, at most as many as are left and fit into librdkafka's queue.

        Raises:
            DemoError: the cluster refused a line.
        """
        self._producer.poll(0)
        self._replace_if_lost()
        room = _MAX_QUEUED - len(self._producer)
        for line in range(self.sent, self.sent + max(0, min(number, self.left, room))):
            self._send_one(line)
            self.sent += 1
        self._raise_refusal()

    async def flush(self) -> None:
        """Wait until every line that was sent is acknowledged.

        Raises:
            DemoError: the cluster refused a line, or did not acknowledge all of them in time.
        """
        deadline = trio.current_time() + FLUSH_TIMEOUT
        waiting = 1
        while waiting and trio.current_time() < deadline:
            self._replace_if_lost()
            waiting = await trio.to_thread.run_sync(
                lambda: self._producer.flush(_PATIENCE), abandon_on_cancel=True
            )
        self._raise_refusal()
        if waiting:
            raise DemoError(f"{waiting} lines were not acknowledged within {FLUSH_TIMEOUT:g} s")

    def _send_one(self, line: int) -> None:
        def placed(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None and error.code() in _PURGED:
                self._taken_back.append(line)
            elif error is not None or partition is None or offset is None:
                self._refused = error
            else:
                self.placed[partition, offset] = line

        self._producer.produce(
            self._topic,
            self._lines[line].encode(),
            partition=line // LINES_PER_PARTITION % self.partitions,
            on_delivery=placed,
        )

    def _replace_if_lost(self) -> None:
        """Let another producer go on if this one has had no broker for long."""
        now = time.monotonic()
        if has_broker(self._producer, self._topic):
            self._had_broker = now
        elif now - self._had_broker > LOST:
            lost, self._producer = self._producer, Producer(self._settings)
            self._had_broker = now
            lost.purge()
            lost.flush(_PATIENCE)
            lines, self._taken_back = sorted(self._taken_back), []
            for line in lines:
                self._send_one(line)

    def _raise_refusal(self) -> None:
        if self._refused is not None:
            raise DemoError(f"the cluster refused a line: {text_of(self._refused)}")

    def _known_partitions(self) -> int:
        try:
            topics = self._producer.list_topics(self._topic, timeout=_PATIENCE).topics
        except KafkaException:
            return 0
        return len(topics[self._topic].partitions)


def _client(bootstrap_servers: str, security: Security | None) -> dict[str, Any]:
    """The settings of a client: its brokers, TLS and login.

    Raises:
        DemoError: there is nothing to log in with.
    """
    security = security or Security()
    try:
        login = login_settings(security)
    except AuthenticationError as error:
        raise DemoError(f"no login at {bootstrap_servers}: {error}") from error
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        **librdkafka_settings(security),
        **login,
    }


def _result(request: Callable[[float], T], failure: str) -> T:
    try:
        return request(TIMEOUT)
    except KafkaException as error:
        raise DemoError(f"{failure}: {text_of(error.args[0])}") from error
    except TimeoutError:
        raise DemoError(f"{failure}: no answer within {TIMEOUT:g} s") from None
