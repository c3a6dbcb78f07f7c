"""The embedded broker's settings, under the names of Kafka's own broker properties.

What is here has an effect. A property that Kafka has and this broker does nothing with is
refused like an unknown one: a setting that is taken and ignored would be a lie.

Source: Kafka's ``KafkaConfig`` and the configs it is made of; the defaults are Kafka's.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs
from attrs import validators

from kgroup.broker.groups.settings import PROPERTIES as GROUP_PROPERTIES
from kgroup.broker.groups.settings import CoordinatorSettings
from kgroup.errors import ConfigError

_INT16: Final = 2**15 - 1
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1


def _flag(text: str) -> bool:
    choices = {"true": True, "false": False}
    if text.strip().lower() not in choices:
        raise ValueError("true or false")
    return choices[text.strip().lower()]


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        allowed = f"a whole number from {least} to {most}"
        try:
            number = int(text)
        except ValueError:
            raise ValueError(allowed) from None
        if not least <= number <= most:
            raise ValueError(allowed)
        return number

    return read


def _seconds(least: int, most: int) -> Callable[[str], float]:
    whole = _whole(least, most)
    return lambda text: whole(text) / 1000


def _bytes_or_none(text: str) -> int | None:
    number = _whole(-1, _INT64)(text)
    return None if number == -1 else number


def _append_time(text: str) -> bool:
    choices = {"CreateTime": False, "LogAppendTime": True}
    if text not in choices:
        raise ValueError("CreateTime or LogAppendTime")
    return choices[text]


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text that is not empty")
    return text


@final
@attrs.frozen(kw_only=True)
class BrokerSettings:
    """How an embedded broker behaves. Durations are float seconds.

    Attributes:
        node_id: the broker's id (``node.id``); of several, the first one's.
        rack: its rack (``broker.rack``); of several, everyone's.
        auto_create_topics: whether Metadata may create a topic (``auto.create.topics.enable``).
        default_replication_factor: a topic's replicas likewise
            (``default.replication.factor``).
        offsets_topic_replication_factor: how many brokers can lead a shard of the group
            coordinator, but never more than there are (``offsets.topic.replication.factor``).
        transaction_log_partitions: how many shards the transactional ids are spread over
            (``transaction.state.log.num.partitions``).
        transaction_log_replication_factor: as that of the offsets topic
            (``transaction.state.log.replication.factor``).
        default_partitions: a topic's partitions where nobody says how many
            (``num.partitions``).
        delete_topics: whether topics can be deleted (``delete.topic.enable``).
        max_message_bytes: the largest record batch (``message.max.bytes``).
        append_time: whether records get the broker's time (``log.message.timestamp.type``).
        retention_bytes: the size of a partition past which its oldest batches go; None keeps
            all, in memory (``log.retention.bytes``).
        fetch_max_bytes: the most bytes of one Fetch answer (``fetch.max.bytes``).
        request_max_bytes: the largest request (``socket.request.max.bytes``).
        transaction_max_timeout: the longest transaction time-out that a producer may ask for
            (``transaction.max.timeout.ms``).
        groups: the group coordinator's settings.
        properties: what was set, by Kafka's name; for DescribeConfigs.
    """

    node_id: int = attrs.field(default=1, validator=validators.ge(0))
    rack: str | None = None
    auto_create_topics: bool = True
    default_partitions: int = attrs.field(default=1, validator=validators.ge(1))
    default_replication_factor: int = attrs.field(default=1, validator=validators.ge(1))
    offsets_topic_replication_factor: int = attrs.field(default=3, validator=validators.ge(1))
    transaction_log_partitions: int = attrs.field(default=50, validator=validators.ge(1))
    transaction_log_replication_factor: int = attrs.field(default=3, validator=validators.ge(1))
    delete_topics: bool = True
    max_message_bytes: int = attrs.field(default=1_048_588, validator=validators.ge(0))
    append_time: bool = False
    retention_bytes: int | None = None
    fetch_max_bytes: int = attrs.field(default=57_671_680, validator=validators.ge(1024))
    request_max_bytes: int = attrs.field(default=104_857_600, validator=validators.ge(1))
    transaction_max_timeout: float = attrs.field(default=900.0, validator=validators.gt(0))
    groups: CoordinatorSettings = attrs.field(factory=CoordinatorSettings)
    properties: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> BrokerSettings:
        """Read Kafka's broker properties; values are texts, or what ``str`` makes a text of.

        Raises:
            ConfigError: a property is unknown here, or its value is refused; it is named.
        """
        texts = {name: _as_text(value) for name, value in properties.items()}
        fields: dict[str, Any] = {}
        for name, text in texts.items():
            if name in GROUP_PROPERTIES:
                continue
            if name not in PROPERTIES:
                raise ConfigError(name, properties[name], _unknown(name))
            field, read, _ = PROPERTIES[name]
            try:
                fields[field] = read(text)
            except ValueError as error:
                raise ConfigError(name, properties[name], f"it must be {error}") from None
        return cls(groups=CoordinatorSettings.from_properties(texts), properties=texts, **fields)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(name: str) -> str:
    known = sorted([*PROPERTIES, *GROUP_PROPERTIES])
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"the embedded broker has no such property{hint}; it has: {', '.join(known)}"


#: Kafka's property -> the field it sets, how its text is read, Kafka's default as a text.
PROPERTIES: Final[Mapping[str, tuple[str, Callable[[str], object], str]]] = {
    "auto.create.topics.enable": ("auto_create_topics", _flag, "true"),
    "broker.rack": ("rack", _text, ""),
    "default.replication.factor": ("default_replication_factor", _whole(1, _INT16), "1"),
    "delete.topic.enable": ("delete_topics", _flag, "true"),
    "fetch.max.bytes": ("fetch_max_bytes", _whole(1024, _INT32), "57671680"),
    "log.message.timestamp.type": ("append_time", _append_time, "CreateTime"),
    "log.retention.bytes": ("retention_bytes", _bytes_or_none, "-1"),
    "message.max.bytes": ("max_message_bytes", _whole(0, _INT32), "1048588"),
    "node.id": ("node_id", _whole(0, _INT32), "1"),
    "num.partitions": ("default_partitions", _whole(1, _INT32), "1"),
    "offsets.topic.replication.factor": (
        "offsets_topic_replication_factor",
        _whole(1, _INT16),
        "3",
    ),
    "socket.request.max.bytes": ("request_max_bytes", _whole(1, _INT32), "104857600"),
    "transaction.max.timeout.ms": ("transaction_max_timeout", _seconds(1, _INT32), "900000"),
    "transaction.state.log.num.partitions": (
        "transaction_log_partitions",
        _whole(1, _INT32),
        "50",
    ),
    "transaction.state.log.replication.factor": (
        "transaction_log_replication_factor",
        _whole(1, _INT16),
        "3",
    ),
}
