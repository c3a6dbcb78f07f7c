"""The embedded broker's settings, under the names of Kafka's own broker properties.

Every property here has an effect. A property of Kafka that would have none is refused like an
unknown one, because a setting that is silently ignored misleads. Limits that Kafka has no name for
begin with ``kgroup.``; Kafka bounds those costs by its threads and disks.

Source: Kafka's ``KafkaConfig`` and the configs it is made of; the defaults are Kafka's, except
that of ``queued.max.request.bytes``, which Kafka does not bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES, CoordinatorSettings
from kgroup.errors import ConfigError, short_repr
from kgroup.types import INT32_MAX, INT64_MAX

_INT16: Final = 2**15 - 1
MOST_PARTITIONS: Final = 10_000
"""Partitions of one topic, and shards of one coordinator; Kafka's controller refuses more in one
request."""
MOST_BROKERS: Final = 100
"""The most brokers of one embedded cluster: each has its sockets and a replica of every shard."""
BROKERS: Final = bounds.whole(1, MOST_BROKERS)
PARTITIONS: Final = bounds.whole(1, MOST_PARTITIONS)
_COUNT: Final = bounds.whole(1, INT32_MAX)
_REPLICAS: Final = bounds.whole(1, _INT16)


@final
@attrs.frozen
class Reader:
    """How the text of a property is read.

    Attributes:
        of: the value of a text; raises ValueError if the text has none.
        allowed: the allowed texts, in words.
    """

    of: Callable[[str], object]
    allowed: str

    def __call__(self, text: str) -> object:
        """The value.

        Raises:
            ValueError: the text is not allowed; the message says what is.
        """
        try:
            return self.of(text)
        except (KeyError, ValueError):
            raise ValueError(self.allowed) from None


def _choice(choices: Mapping[str, object], allowed: str) -> Reader:
    return Reader(lambda text: choices[text], allowed)


def _whole(least: int, most: int) -> Reader:
    bound = bounds.whole(least, most)
    return Reader(bound.read, bound.allowed)


def _milliseconds(least: int, most: int) -> Reader:
    bound = bounds.whole(least, most)
    return Reader(lambda text: bound.read(text) / 1000, bound.allowed)


def _milliseconds_or_none() -> Reader:
    bound = bounds.whole(-1, INT32_MAX)

    def read(text: str) -> float | None:
        number: int = bound.read(text)
        return None if number == -1 else number / 1000

    return Reader(read, f"{bound.allowed}; -1 for never")


def _bytes_or_none() -> Reader:
    bound = bounds.whole(-1, INT64_MAX)

    def read(text: str) -> int | None:
        number: int = bound.read(text)
        return None if number == -1 else number

    return Reader(read, f"{bound.allowed}; -1 for no limit")


def _text() -> Reader:
    bound = bounds.text()

    def read(text: str) -> str:
        if not bound.holds(text):
            raise ValueError(bound.allowed)
        return text

    return Reader(read, bound.allowed)


_FLAG: Final = Reader(
    lambda text: {"true": True, "false": False}[text.strip().lower()], "it must be true or false"
)


@final
@attrs.frozen(kw_only=True)
class BrokerSettings:
    """How an embedded broker behaves. Durations are float seconds.

    Attributes:
        node_id: the broker's id (``node.id``); in a cluster, the first broker's.
        rack: its rack (``broker.rack``); in a cluster, every broker's.
        auto_create_topics: whether Metadata may create a topic (``auto.create.topics.enable``).
        default_replication_factor: a topic's replicas where a request gives no number
            (``default.replication.factor``).
        offsets_topic_replication_factor: how many brokers can lead a shard of the group
            coordinator, but never more than there are (``offsets.topic.replication.factor``).
        transaction_log_partitions: how many shards the transactional ids are spread over
            (``transaction.state.log.num.partitions``).
        transaction_log_replication_factor: as that of the offsets topic
            (``transaction.state.log.replication.factor``).
        default_partitions: a topic's partitions where a request gives no number
            (``num.partitions``).
        delete_topics: whether topics can be deleted (``delete.topic.enable``).
        max_message_bytes: the largest record batch (``message.max.bytes``).
        append_time: whether records get the broker's time (``log.message.timestamp.type``).
        timestamp_before_max: how far behind the broker's time a record's timestamp may be, in
            milliseconds: no float has Kafka's default (``log.message.timestamp.before.max.ms``).
        timestamp_after_max: how far ahead of it (``log.message.timestamp.after.max.ms``).
        retention_bytes: the size of a partition past which its oldest batches are deleted; None
            keeps all, in memory (``log.retention.bytes``).
        fetch_max_bytes: the most bytes of one Fetch response (``fetch.max.bytes``).
        max_partitions: the most partitions of all topics together (``kgroup.max.partitions``).
        max_decompressed_bytes: the most bytes of a record batch once it is decompressed
            (``kgroup.message.max.decompressed.bytes``).
        request_max_bytes: the largest request (``socket.request.max.bytes``).
        request_max_items: the most array items and tagged fields of one request, nested included
            (``kgroup.request.max.items``).
        answer_max_items: the most array items of one response (``kgroup.answer.max.items``).
        queued_max_bytes: the most bytes of unfinished requests and responses on all connections of
            a broker (``queued.max.request.bytes``).
        describe_max_partitions: the most partitions of one DescribeTopicPartitions response
            (``max.request.partition.size.limit``).
        connections_max_idle: after how many seconds without a request a connection is closed;
            None for never (``connections.max.idle.ms``).
        max_connections: the most connections of a broker (``max.connections``).
        max_connections_per_ip: the most connections from one address (``max.connections.per.ip``).
        max_transactional_ids: the most transactional ids (``kgroup.max.transactional.ids``).
        max_acls: the most rules of access that clients can bring the number to
            (``kgroup.max.acls``).
        max_scram_users: the most users with SCRAM passwords that clients can bring the number to
            (``kgroup.max.scram.users``).
        transaction_max_timeout: the longest transaction time-out that a producer may request
            (``transaction.max.timeout.ms``).
        groups: the group coordinator's settings.
        properties: the properties that were given, by Kafka's name; for DescribeConfigs.

    Raises:
        ConfigError: a value is not allowed; it names the field, the value and the bounds.
    """

    node_id: int = attrs.field(default=1, validator=bounds.whole(0, INT32_MAX))
    rack: str | None = attrs.field(default=None, validator=bounds.optional(bounds.text()))
    auto_create_topics: bool = attrs.field(default=True, validator=bounds.flag())
    default_partitions: int = attrs.field(default=1, validator=PARTITIONS)
    default_replication_factor: int = attrs.field(default=1, validator=_REPLICAS)
    offsets_topic_replication_factor: int = attrs.field(default=3, validator=_REPLICAS)
    transaction_log_partitions: int = attrs.field(default=50, validator=PARTITIONS)
    transaction_log_replication_factor: int = attrs.field(default=3, validator=_REPLICAS)
    delete_topics: bool = attrs.field(default=True, validator=bounds.flag())
    max_message_bytes: int = attrs.field(default=1_048_588, validator=bounds.whole(0, INT32_MAX))
    append_time: bool = attrs.field(default=False, validator=bounds.flag())
    timestamp_before_max: int = attrs.field(default=INT64_MAX, validator=bounds.whole(0, INT64_MAX))
    timestamp_after_max: int = attrs.field(default=3_600_000, validator=bounds.whole(0, INT64_MAX))
    retention_bytes: int | None = attrs.field(
        default=None, validator=bounds.optional(bounds.whole(0, INT64_MAX))
    )
    fetch_max_bytes: int = attrs.field(default=57_671_680, validator=bounds.whole(1024, INT32_MAX))
    request_max_bytes: int = attrs.field(default=104_857_600, validator=bounds.whole(1, INT32_MAX))
    max_partitions: int = attrs.field(default=50_000, validator=_COUNT)
    max_decompressed_bytes: int = attrs.field(
        default=67_108_864, validator=bounds.whole(0, INT32_MAX)
    )
    request_max_items: int = attrs.field(default=20_000, validator=_COUNT)
    answer_max_items: int = attrs.field(default=60_000, validator=_COUNT)
    queued_max_bytes: int = attrs.field(default=268_435_456, validator=bounds.whole(1, INT64_MAX))
    describe_max_partitions: int = attrs.field(default=2000, validator=_COUNT)
    connections_max_idle: float | None = attrs.field(
        default=600.0, validator=bounds.optional(bounds.seconds(0))
    )
    max_connections: int = attrs.field(default=INT32_MAX, validator=_COUNT)
    max_connections_per_ip: int = attrs.field(default=INT32_MAX, validator=_COUNT)
    max_transactional_ids: int = attrs.field(default=10_000, validator=_COUNT)
    max_acls: int = attrs.field(default=10_000, validator=_COUNT)
    max_scram_users: int = attrs.field(default=10_000, validator=_COUNT)
    transaction_max_timeout: float = attrs.field(default=900.0, validator=bounds.seconds())
    groups: CoordinatorSettings = attrs.field(
        factory=CoordinatorSettings,
        validator=bounds.instance(CoordinatorSettings, "a CoordinatorSettings"),
    )
    properties: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> BrokerSettings:
        """Read Kafka's broker properties; values are texts, or are made texts by ``str``.

        Raises:
            ConfigError: a property is unknown here, or its value is refused; it is named.
        """
        texts = as_texts(properties)
        fields: dict[str, Any] = {}
        for name, text in texts.items():
            if name in GROUP_PROPERTIES:
                continue
            if name not in PROPERTIES:
                raise ConfigError(short_repr(name)[1:-1], properties[name], _unknown(name))
            field, read, _ = PROPERTIES[name]
            try:
                fields[field] = read(text)
            except ValueError as error:
                raise ConfigError(name, properties[name], str(error)) from None
        return cls(groups=CoordinatorSettings.from_properties(texts), properties=texts, **fields)

    def check_brokers(self, brokers: int) -> None:
        """Check that a cluster of so many brokers can have these settings.

        Raises:
            ConfigError: there are too few or too many, or their ids would not fit in an int32.
        """
        BROKERS.check("brokers", brokers)
        highest = INT32_MAX - brokers + 1
        if self.node_id > highest:
            raise ConfigError(
                "node.id",
                self.node_id,
                f"the ids of {brokers} brokers count from it: it must be at most {highest}",
            )


def as_texts(properties: Mapping[str, object]) -> dict[str, str]:
    """The values of properties as Kafka's texts: ``true`` for True, ``str`` of any other.

    Raises:
        ConfigError: a value has no text.
    """
    return {name: _as_text(name, value) for name, value in properties.items()}


def _as_text(name: str, value: object) -> str:
    try:
        return str(value).lower() if isinstance(value, bool) else str(value)
    except Exception as error:
        # An int of more than 4,300 digits has no text, and an object may raise in its own.
        raise ConfigError(name, value, f"str() of it raised {short_repr(error)}") from error


def _unknown(name: object) -> str:
    known = sorted([*PROPERTIES, *GROUP_PROPERTIES])
    hint = bounds.did_you_mean(name, known)
    return f"the embedded broker has no such property{hint}; it has: {', '.join(known)}"


#: Kafka's property -> the field it sets, how its text is read, Kafka's default as a text.
PROPERTIES: Final[Mapping[str, tuple[str, Reader, str]]] = {
    "auto.create.topics.enable": ("auto_create_topics", _FLAG, "true"),
    "broker.rack": ("rack", _text(), ""),
    "connections.max.idle.ms": ("connections_max_idle", _milliseconds_or_none(), "600000"),
    "default.replication.factor": ("default_replication_factor", _whole(1, _INT16), "1"),
    "delete.topic.enable": ("delete_topics", _FLAG, "true"),
    "fetch.max.bytes": ("fetch_max_bytes", _whole(1024, INT32_MAX), "57671680"),
    "kgroup.answer.max.items": ("answer_max_items", _whole(1, INT32_MAX), "60000"),
    "kgroup.max.acls": ("max_acls", _whole(1, INT32_MAX), "10000"),
    "kgroup.max.partitions": ("max_partitions", _whole(1, INT32_MAX), "50000"),
    "kgroup.max.scram.users": ("max_scram_users", _whole(1, INT32_MAX), "10000"),
    "kgroup.max.transactional.ids": ("max_transactional_ids", _whole(1, INT32_MAX), "10000"),
    "kgroup.message.max.decompressed.bytes": (
        "max_decompressed_bytes",
        _whole(0, INT32_MAX),
        "67108864",
    ),
    "kgroup.request.max.items": ("request_max_items", _whole(1, INT32_MAX), "20000"),
    "log.message.timestamp.after.max.ms": (
        "timestamp_after_max",
        _whole(0, INT64_MAX),
        "3600000",
    ),
    "log.message.timestamp.before.max.ms": (
        "timestamp_before_max",
        _whole(0, INT64_MAX),
        "9223372036854775807",
    ),
    "log.message.timestamp.type": (
        "append_time",
        _choice(
            {"CreateTime": False, "LogAppendTime": True}, "it must be CreateTime or LogAppendTime"
        ),
        "CreateTime",
    ),
    "log.retention.bytes": ("retention_bytes", _bytes_or_none(), "-1"),
    "max.connections": ("max_connections", _whole(1, INT32_MAX), "2147483647"),
    "max.connections.per.ip": ("max_connections_per_ip", _whole(1, INT32_MAX), "2147483647"),
    "max.request.partition.size.limit": ("describe_max_partitions", _whole(1, INT32_MAX), "2000"),
    "message.max.bytes": ("max_message_bytes", _whole(0, INT32_MAX), "1048588"),
    "node.id": ("node_id", _whole(0, INT32_MAX), "1"),
    "num.partitions": ("default_partitions", _whole(1, MOST_PARTITIONS), "1"),
    "offsets.topic.replication.factor": (
        "offsets_topic_replication_factor",
        _whole(1, _INT16),
        "3",
    ),
    "queued.max.request.bytes": ("queued_max_bytes", _whole(1, INT64_MAX), "268435456"),
    "socket.request.max.bytes": ("request_max_bytes", _whole(1, INT32_MAX), "104857600"),
    "transaction.max.timeout.ms": (
        "transaction_max_timeout",
        _milliseconds(1, INT32_MAX),
        "900000",
    ),
    "transaction.state.log.num.partitions": (
        "transaction_log_partitions",
        _whole(1, MOST_PARTITIONS),
        "50",
    ),
    "transaction.state.log.replication.factor": (
        "transaction_log_replication_factor",
        _whole(1, _INT16),
        "3",
    ),
}
