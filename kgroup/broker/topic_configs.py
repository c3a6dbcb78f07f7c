"""The configs of topics: each one's type, its default, the values that it can have.

``cleanup.policy``, ``max.message.bytes``, ``retention.bytes`` and those of timestamps have an
effect here. The others concern disks, replicas and age, and a log in memory keeps its records until
they are deleted: their values are checked, stored and returned.

Source: Kafka's ``LogConfig``, ``ConfigDef``, ``ServerTopicConfigSynonyms``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import IntEnum
from typing import Final, final

import attrs

from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

LONGEST_VALUE: Final = 2**15 - 1
"""The most bytes of a config's value that a DescribeConfigs response can carry."""
_LARGEST_INT: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}")
_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@final
class ConfigType(IntEnum):
    """The type of a config's value, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class _InvalidValueError(Exception):
    """A value that the config cannot have: the value as Kafka shows it, and its reason."""

    def __init__(self, shown: object, reason: str) -> None:
        super().__init__(f"{shown}", reason)


@final
@attrs.frozen
class TopicConfig:
    """A config that a topic can have.

    Attributes:
        config_type: the type of its value.
        default: its value if neither the topic nor the broker sets one.
        normalize: returns the value as Kafka returns it, or raises `_InvalidValueError`.
        broker_property: the broker property that has the default, if there is one.
    """

    config_type: ConfigType
    default: str
    normalize: Callable[[str], str]
    broker_property: str = ""


def _number(config_type: ConfigType, text: str, number: Callable[[str], float | None]) -> float:
    value = number(text.strip())
    if value is None:
        raise _InvalidValueError(text, f"Not a number of type {config_type.name}")
    return value


def _check_bounds(value: float, shown: object, least: float, most: float) -> None:
    if not value >= least:
        raise _InvalidValueError(shown, f"Value must be at least {least}")
    if value > most:
        raise _InvalidValueError(shown, f"Value must be no more than {most}")


def _whole(
    config_type: ConfigType, default: int, least: int, name: str = "", *, most: int | None = None
) -> TopicConfig:
    """A whole number; ``name`` is the broker property that has its default."""
    largest = _LARGEST_INT if config_type is ConfigType.INT else _LARGEST_LONG

    def number(text: str) -> int | None:
        value = int(text) if _WHOLE.fullmatch(text) else None
        return value if value is not None and -largest - 1 <= value <= largest else None

    def normalize(text: str) -> str:
        value = _number(config_type, text, number)
        _check_bounds(value, value, least, largest if most is None else most)
        return str(value)

    return TopicConfig(config_type, str(default), normalize, name)


def _int(default: int, least: int, name: str = "", *, most: int | None = None) -> TopicConfig:
    return _whole(ConfigType.INT, default, least, name, most=most)


def _long(default: int, least: int, name: str = "") -> TopicConfig:
    return _whole(ConfigType.LONG, default, least, name)


_ANY_INT: Final = _int(-1, -_LARGEST_INT - 1)


def _gzip_level(text: str) -> str:
    level = _ANY_INT.normalize(text)
    if level != "-1" and not 1 <= int(level) <= 9:
        raise _InvalidValueError(level, "Value must be between 1 and 9 or equal to -1")
    return level


def _as_java_shows(value: float) -> str:
    """A number as Java's ``Double.toString`` writes it."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    exact = Decimal(repr(value))
    digits = f"{exact.scaleb(-exact.adjusted()).normalize():f}"
    return f"{digits}{'' if '.' in digits else '.0'}E{exact.adjusted()}"


def _ratio(default: float, name: str) -> TopicConfig:
    """A number from 0 to 1."""

    def number(text: str) -> float | None:
        value = float(text) if _DECIMAL.fullmatch(text) else math.inf
        return value if math.isfinite(value) else None

    def normalize(text: str) -> str:
        value = _number(ConfigType.DOUBLE, text, number)
        _check_bounds(value, _as_java_shows(value), 0, 1)
        return _as_java_shows(value)

    return TopicConfig(ConfigType.DOUBLE, str(default), normalize, name)


def _boolean(name: str = "") -> TopicConfig:
    """A truth value, by default false."""

    def normalize(text: str) -> str:
        value = text.strip().lower()
        if value not in ("true", "false"):
            raise _InvalidValueError(text, "Expected value to be either true or false")
        return value

    return TopicConfig(ConfigType.BOOLEAN, "false", normalize, name)


def _one_of(default: str, names: tuple[str, ...], broker_property: str) -> TopicConfig:
    """One of these words."""

    def normalize(text: str) -> str:
        value = text.strip()
        if value not in names:
            raise _InvalidValueError(value, f"String must be one of: {', '.join(names)}")
        return value

    return TopicConfig(ConfigType.STRING, default, normalize, broker_property)


def items_of(text: str) -> list[str]:
    """The items of a list."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _policies(text: str) -> str:
    items = items_of(text)
    for item in items:
        if item not in ("compact", "delete"):
            raise _InvalidValueError(item, "String must be one of: compact, delete")
    return ",".join(dict.fromkeys(items))


def _throttled(name: str) -> TopicConfig:
    """Replicas, as partition and broker; or all of them."""

    def normalize(text: str) -> str:
        items = items_of(text)
        if items != ["*"] and not all(map(_REPLICA.fullmatch, items)):
            raise _InvalidValueError(
                f"[{', '.join(items)}]",
                f"{name} must be the literal '*' or a list of replicas in the following format:"
                " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )
        return ",".join(items)

    return TopicConfig(ConfigType.LIST, "", normalize)


_FOLLOWERS: Final = "follower.replication.throttled.replicas"
_LEADERS: Final = "leader.replication.throttled.replicas"
_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMES: Final = ("CreateTime", "LogAppendTime")
_WEEK: Final = 7 * 86_400_000

#: Every config of a topic, by its name.
TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    "cleanup.policy": TopicConfig(ConfigType.LIST, "delete", _policies, "log.cleanup.policy"),
    "compression.gzip.level": TopicConfig(
        ConfigType.INT, "-1", _gzip_level, "compression.gzip.level"
    ),
    "compression.lz4.level": _int(9, 1, "compression.lz4.level", most=17),
    "compression.type": _one_of("producer", _CODECS, "compression.type"),
    "compression.zstd.level": _int(3, -131_072, "compression.zstd.level", most=22),
    "delete.retention.ms": _long(86_400_000, 0, "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": _long(60_000, 0, "log.segment.delete.delay.ms"),
    "flush.messages": _long(_LARGEST_LONG, 1, "log.flush.interval.messages"),
    "flush.ms": _long(_LARGEST_LONG, 0),
    _FOLLOWERS: _throttled(_FOLLOWERS),
    "index.interval.bytes": _int(4096, 0, "log.index.interval.bytes"),
    _LEADERS: _throttled(_LEADERS),
    "local.retention.bytes": _long(-2, -2, "log.local.retention.bytes"),
    "local.retention.ms": _long(-2, -2, "log.local.retention.ms"),
    "max.compaction.lag.ms": _long(_LARGEST_LONG, 1, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": _int(1_048_588, 0, "message.max.bytes"),
    "message.timestamp.after.max.ms": _long(3_600_000, 0, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _long(
        _LARGEST_LONG, 0, "log.message.timestamp.before.max.ms"
    ),
    "message.timestamp.type": _one_of("CreateTime", _TIMES, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": _ratio(0.5, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _long(0, 0, "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _int(1, 1, "min.insync.replicas"),
    "preallocate": _boolean("log.preallocate"),
    "remote.log.copy.disable": _boolean(),
    "remote.log.delete.on.disable": _boolean(),
    "remote.storage.enable": _boolean(),
    "retention.bytes": _long(-1, -_LARGEST_LONG - 1, "log.retention.bytes"),
    "retention.ms": _long(_WEEK, -1),
    "segment.bytes": _int(2**30, 2**20, "log.segment.bytes"),
    "segment.index.bytes": _int(10 * 2**20, 4, "log.index.size.max.bytes"),
    "segment.jitter.ms": _long(0, 0),
    "segment.ms": _long(_WEEK, 1),
    "unclean.leader.election.enable": _boolean("unclean.leader.election.enable"),
}


def normalized(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a topic, each as Kafka returns it.

    Raises:
        RequestError: INVALID_CONFIG: an unknown name, or a value that a config cannot have.
    """
    unknown = next((name for name in configs if name not in TOPIC_CONFIGS), None)
    if unknown is not None:
        raise _refused(f"Unknown topic config name: {unknown}")
    values: dict[str, str] = {}
    for name, text in configs.items():
        if len(text.encode()) > LONGEST_VALUE:
            raise _refused(f"{name} has more than {LONGEST_VALUE} bytes")
        try:
            values[name] = TOPIC_CONFIGS[name].normalize(text)
        except _InvalidValueError as error:
            shown, reason = error.args
            raise _refused(f"Invalid value {shown} for configuration {name}: {reason}") from error
    _check_together(values)
    return values


def _check_together(values: Mapping[str, str]) -> None:
    if values.get("remote.storage.enable") == "true":
        raise _refused(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage."
        )
    shortest, longest = (
        int(values.get(name, TOPIC_CONFIGS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        raise _refused(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) >"
            f" max.compaction.lag.ms ({longest})"
        )


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_CONFIG, message)
