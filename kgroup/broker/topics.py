"""Topics of the embedded broker: their names, ids, partitions and configs.

They are created, extended and deleted with Kafka's checks and error codes. A topic that is created
again has another id and empty logs. Handlers translate requests and responses.

Source: Kafka's ``ReplicationControlManager``, ``Topic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, final
from uuid import UUID

import attrs

from kgroup.broker.broker_settings import MOST_PARTITIONS, BrokerSettings
from kgroup.broker.internal_topics import refuse_creation
from kgroup.broker.log import LogSettings, PartitionLog
from kgroup.broker.replicas import LiveBrokers, PartitionReplicas
from kgroup.broker.request_error import RequestError
from kgroup.broker.topic_configs import TOPIC_CONFIGS, normalized
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition, topic_fault

UNSET: Final = -1
"""In a request: the broker's default number of partitions, or replication factor."""


@final
@attrs.define(eq=False)
class Topic:
    """A topic, with the logs and the replicas of its partitions, both by number."""

    is_internal: ClassVar = False

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    log_settings: LogSettings
    rotation: int
    """The rotation of partition 0; see ``LiveBrokers.place_replicas``."""
    logs: list[PartitionLog] = attrs.field(factory=list)
    replicas: list[PartitionReplicas] = attrs.field(factory=list)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of partition 0, which Kafka returns for the topic."""
        return len(self.replicas[0].node_ids)

    def add(self, replicas: Sequence[PartitionReplicas]) -> None:
        """Add a partition for each of these replicas."""
        self.replicas.extend(replicas)
        self.logs.extend(PartitionLog(self.log_settings) for _ in replicas)


@final
class Topics:
    """All topics of a cluster."""

    def __init__(
        self,
        settings: BrokerSettings,
        new_id: Callable[[], UUID],
        live_brokers: LiveBrokers | None = None,
    ) -> None:
        self._settings = settings
        self._new_id = new_id
        self._live_brokers = live_brokers or LiveBrokers([settings.node_id])
        self._made = 0
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_metric: dict[str, str] = {}
        """Each topic by its name in Kafka's metrics, which do not distinguish '.' and '_'."""
        self._partitions = 0

    def __iter__(self) -> Iterator[Topic]:
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def get(self, name: str) -> Topic | None:
        """A topic by its name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """A topic by its id."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def partitions(self, name: str) -> int | None:
        """The number of partitions of a topic, or None for an unknown one."""
        topic = self._by_name.get(name)
        return None if topic is None else len(topic.logs)

    def has(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        return 0 <= partition.partition < (self.partitions(partition.topic) or 0)

    def log(self, name: str, partition: int) -> PartitionLog:
        """The log of a partition.

        Raises:
            RequestError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self.log_and_replicas(name, partition)[0]

    def log_and_replicas(self, name: str, partition: int) -> tuple[PartitionLog, PartitionReplicas]:
        """The log of a partition, and its replicas.

        Raises:
            RequestError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._by_name.get(name)
        if topic is None or not 0 <= partition < len(topic.logs):
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{partition}"
            )
        return topic.logs[partition], topic.replicas[partition]

    def create(
        self,
        name: str,
        partitions: int = UNSET,
        *,
        replication_factor: int = UNSET,
        assignments: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; with ``validate_only`` only return what would be created.

        ``assignments`` are the replicas of each partition; with them, the numbers of partitions and
        replicas are not used.

        Raises:
            RequestError: INVALID_TOPIC_EXCEPTION, INVALID_REQUEST, TOPIC_ALREADY_EXISTS,
                INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
                INVALID_CONFIG, POLICY_VIOLATION if there would be too many partitions in all.
        """
        fault = topic_fault(name)
        if fault is not None:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r} {fault}")
        refuse_creation(name)
        if name in self._by_name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        self._refuse_collision(name)
        if assignments:
            partitions = len(assignments)
        elif partitions == UNSET:
            partitions = self._settings.default_partitions
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partitions} partitions; there must be 1 to {MOST_PARTITIONS}",
            )
        self._refuse_excess(partitions)
        if replication_factor == UNSET:
            replication_factor = self._settings.default_replication_factor
        if assignments:
            replicas = self._chosen(assignments)
        else:
            turns = range(self._made, self._made + partitions)
            replicas = [
                self._live_brokers.place_replicas(rotation, replication_factor)
                for rotation in turns
            ]
        given = _with_values(configs or {})
        topic = Topic(name, self._new_id(), given, self._log_settings(given), self._made)
        topic.add(replicas)
        if not validate_only:
            self._made += 1
            self._partitions += partitions
            self._by_metric[_metric(name)] = name
            self._by_name[name] = self._by_id[topic.topic_id] = topic
        return topic

    def grow(
        self,
        name: str,
        partitions: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions, so that it has ``partitions`` in all.

        Raises:
            RequestError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
                INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        if not len(topic.logs) < partitions <= MOST_PARTITIONS:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {len(topic.logs)} partitions and cannot have {partitions}:"
                f" it must be more, and at most {MOST_PARTITIONS}",
            )
        numbers = range(len(topic.logs), partitions)
        self._refuse_excess(len(numbers))
        if assignments is None:
            factor = topic.replication_factor
            replicas = [
                self._live_brokers.place_replicas(topic.rotation + number, factor)
                for number in numbers
            ]
        elif len(assignments) == len(numbers):
            replicas = self._chosen(assignments)
        else:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"there are {len(assignments)} assignments for {len(numbers)} new partitions",
            )
        if not validate_only:
            self._partitions += len(replicas)
            topic.add(replicas)

    def _refuse_excess(self, more: int) -> None:
        most = self._settings.max_partitions
        if self._partitions + more > most:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"{more} more partitions are too many: there are {self._partitions}, and"
                f" kgroup.max.partitions is {most}",
            )

    def _chosen(self, assignments: Sequence[Sequence[int]]) -> list[PartitionReplicas]:
        replicas = [self._live_brokers.place_on(replicas) for replicas in assignments]
        if len({len(replicas.node_ids) for replicas in replicas}) > 1:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions have different numbers of replicas",
            )
        return replicas

    def configure(
        self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set the configs of a topic; every other config has its default.

        Raises:
            RequestError: INVALID_CONFIG.
        """
        settings = self._log_settings(configs)
        if validate_only:
            return
        topic.configs, topic.log_settings = dict(configs), settings
        for log in topic.logs:
            log.configure(settings)

    def delete(self, topic: Topic) -> list[TopicPartition]:
        """Delete a topic, and return its partitions.

        Raises:
            RequestError: TOPIC_DELETION_DISABLED.
        """
        if not self._settings.delete_topics:
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        del self._by_metric[_metric(topic.name)]
        self._partitions -= len(topic.logs)
        for log in topic.logs:
            log.close()
        return [TopicPartition(topic.name, number) for number in range(len(topic.logs))]

    def config_defaults(self) -> dict[str, str]:
        """Every topic config with its default."""
        own = self._settings
        effective = {
            "max.message.bytes": str(own.max_message_bytes),
            "message.timestamp.after.max.ms": str(own.timestamp_after_max),
            "message.timestamp.before.max.ms": str(own.timestamp_before_max),
            "message.timestamp.type": "LogAppendTime" if own.append_time else "CreateTime",
            "retention.bytes": str(-1 if own.retention_bytes is None else own.retention_bytes),
        }
        return {name: config.default for name, config in TOPIC_CONFIGS.items()} | effective

    def _refuse_collision(self, name: str) -> None:
        other = self._by_metric.get(_metric(name))
        if other is not None:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} collides with {other!r}"
            )

    def _log_settings(self, configs: Mapping[str, str]) -> LogSettings:
        own, values = self._settings, normalized(configs)
        retention_bytes = own.retention_bytes
        if "retention.bytes" in values:
            given = int(values["retention.bytes"])
            retention_bytes = None if given < 0 else given
        policies = values.get("cleanup.policy", "delete").split(",")
        if "delete" not in policies:
            retention_bytes = None  # of a topic that is only compacted, none is too old
        append_time = own.append_time
        if "message.timestamp.type" in values:
            append_time = values["message.timestamp.type"] == "LogAppendTime"
        return LogSettings(
            max_message_bytes=int(values.get("max.message.bytes", own.max_message_bytes)),
            append_time=append_time,
            retention_bytes=retention_bytes,
            needs_keys="compact" in policies,
            # An empty policy keeps all records of its own accord, and lets a client delete them.
            deletes="delete" in policies or "compact" not in policies,
            timestamp_before_max=int(
                values.get("message.timestamp.before.max.ms", own.timestamp_before_max)
            ),
            timestamp_after_max=int(
                values.get("message.timestamp.after.max.ms", own.timestamp_after_max)
            ),
        )


def _with_values(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs, of which each must have a value."""
    for name, value in configs.items():
        if value is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"the config {name} has no value")
    return {name: value for name, value in configs.items() if value is not None}


def _metric(name: str) -> str:
    return name.replace(".", "_")
