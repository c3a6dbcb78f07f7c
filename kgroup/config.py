"""GroupConfig: every setting of a consumer group, with its default, its reason and its bounds.

A wrong value is refused when the object is made, by a ``ConfigError`` that names the field,
the value and what is allowed. docs/configuration.md is made from ``FIELDS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast, final

import attrs

from kgroup.addresses import split_address
from kgroup.errors import ConfigError
from kgroup.model import INT32_MAX, IsolationLevel, OffsetReset, text_fault, topic_fault
from kgroup.protocols import Assignor

BUILTIN_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The assignors that go by name."""
DEFAULT_ASSIGNORS: Final = ("range", "roundrobin")
"""What is offered unless said otherwise: eager ones, that every client knows."""
LONGEST_DURATION: Final = INT32_MAX / 1000
"""Seconds; what an int32 of milliseconds holds on the wire."""
_LONGEST_INSTANCE: Final = 249
_INSTANCE: Final = re.compile(r"[a-zA-Z0-9._-]+")

K = TypeVar("K", OffsetReset, IsolationLevel)

Check = Callable[["GroupConfig", "attrs.Attribute[Any]", Any], None]


def _allowed(predicate: Callable[[Any], bool], allowed: str) -> Check:
    def check(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not predicate(value):
            raise ConfigError(attribute.name, value, allowed)

    return check


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(*, zero: bool = False) -> Check:
    least = "0 or more" if zero else "at least 0.001"
    return _allowed(
        lambda value: _is_number(value) and (0 if zero else 0.001) <= value <= LONGEST_DURATION,
        f"it must be seconds, {least} and at most {LONGEST_DURATION:.3f}",
    )


def _optional_seconds() -> Check:
    return _allowed(
        lambda value: value is None or (_is_number(value) and 0.001 <= value <= LONGEST_DURATION),
        f"it must be seconds, at least 0.001 and at most {LONGEST_DURATION:.3f}, or None",
    )


def _whole(least: int, most: int) -> Check:
    return _allowed(
        lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        ),
        f"it must be a whole number from {least} to {most}",
    )


def _flag() -> Check:
    return _allowed(lambda value: isinstance(value, bool), "it must be True or False")


def _text() -> Check:
    return _allowed(
        _is_text,
        "it must be a str that is not blank, without NUL, of at most 32767 bytes in UTF-8",
    )


def _is_text(value: object) -> bool:
    """Whether both planes can say it: librdkafka's values are C strings, and trimmed."""
    if not isinstance(value, str):
        return False
    return bool(value.strip()) and "\0" not in value and text_fault(value) is None


def _servers(value: str | Iterable[str]) -> tuple[str, ...]:
    """``"a:9092,b:9092"`` or an iterable of such pieces, as a tuple."""
    if isinstance(value, str):
        return tuple(piece.strip() for piece in value.split(",") if piece.strip())
    return _tuple(value)  # type: ignore[no-any-return]


def _tuple(value: Any) -> Any:
    """A list of anything as a tuple; what is no list stays, for the field's check to name."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return tuple(value)
    return value


def _topics(value: Iterable[str | re.Pattern[str]]) -> tuple[str | re.Pattern[str], ...]:
    return _tuple(value)  # type: ignore[no-any-return]


def _assignors(value: Iterable[str | Assignor]) -> tuple[str | Assignor, ...]:
    return _tuple(value)  # type: ignore[no-any-return]


def _offset_reset(value: str | OffsetReset) -> OffsetReset:
    return _member_of(OffsetReset, value)


def _isolation_level(value: str | IsolationLevel) -> IsolationLevel:
    return _member_of(IsolationLevel, value)


def _check_servers(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    allowed = "it must name brokers as 'host:port', separated by commas or in a list"
    if not isinstance(value, tuple) or not value:
        raise ConfigError(attribute.name, value, allowed)
    for server in value:
        try:
            split_address(server)
        except ValueError as error:
            raise ConfigError(attribute.name, server, f"{error}; {allowed}") from None


def _check_topics(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, tuple) or not value:
        raise ConfigError(
            attribute.name, value, "it must be a list of one topic or pattern or more"
        )
    for topic in value:
        if isinstance(topic, re.Pattern) and isinstance(topic.pattern, str):
            continue
        fault = topic_fault(topic)
        if fault:
            raise ConfigError(
                attribute.name,
                topic,
                f"this name {fault}; a topic has 1 to 249 ASCII letters, digits, '.', '_', '-',"
                " a pattern is compiled from a str",
            )
    if len(set(value)) != len(value):
        raise ConfigError(attribute.name, value, "a topic must be named once only")


def _check_assignors(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    known = ", ".join(BUILTIN_ASSIGNORS)
    allowed = f"it must list assignors, each one of {known} or an object with name and assign()"
    if not isinstance(value, tuple) or not value:
        raise ConfigError(attribute.name, value, allowed)
    names = []
    for assignor in value:
        if isinstance(assignor, str):
            if assignor not in BUILTIN_ASSIGNORS:
                raise ConfigError(attribute.name, assignor, allowed)
            names.append(assignor)
        elif (
            callable(getattr(assignor, "assign", None))
            and isinstance(getattr(assignor, "name", None), str)
            and assignor.name
        ):
            names.append(assignor.name)
            _check_traits(attribute.name, assignor)
        else:
            raise ConfigError(attribute.name, assignor, allowed)
    if len(set(names)) != len(names):
        raise ConfigError(attribute.name, value, "an assignor's name must occur once only")


def _check_traits(field: str, assignor: Any) -> None:
    """What a custom assignor may have beside its name and ``assign``."""
    for name in ("user_data", "on_assignment"):
        if not callable(getattr(assignor, name, len)):
            raise ConfigError(field, assignor, f"its {name}, if it has one, must be a method")
    if not isinstance(getattr(assignor, "cooperative", False), bool):
        raise ConfigError(
            field, assignor, "its 'cooperative', if it has one, must be True or False"
        )


def _check_instance(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if (
        not isinstance(value, str)
        or not _INSTANCE.fullmatch(value)
        or len(value) > _LONGEST_INSTANCE
        or value in (".", "..")
    ):
        raise ConfigError(
            attribute.name,
            value,
            "it must be None or 1 to 249 ASCII letters, digits, '.', '_', '-', not '.' or '..'",
        )


def _member_of(kind: type[K], value: object) -> K:
    try:
        return kind(value)
    except ValueError:
        return cast("K", value)


def _is_a(kind: type[OffsetReset | IsolationLevel]) -> Check:
    words = ", ".join(repr(item.value) for item in kind)
    return _allowed(lambda value: isinstance(value, kind), f"it must be one of {words}")


def _why(reason: str) -> dict[str, str]:
    return {"reason": reason}


@final
@attrs.frozen(kw_only=True)
class GroupConfig:
    """All settings of one member of a consumer group; durations are float seconds.

    Raises:
        ConfigError: a value is not allowed; it names the field, the value and what is.
    """

    group_id: str = attrs.field(
        validator=_text(),
        metadata=_why("The group; members with the same id share the topics."),
    )
    bootstrap_servers: tuple[str, ...] = attrs.field(
        converter=_servers,
        validator=_check_servers,
        metadata=_why("Brokers to ask first, 'host:port'; each is tried until one answers."),
    )
    topics: tuple[str | re.Pattern[str], ...] = attrs.field(
        converter=_topics,
        validator=_check_topics,
        metadata=_why(
            "What to read: names, and compiled patterns that match whole names (Kafka's own topics"
            " never match). A topic that does not exist yet is watched until it does; it is never"
            " created by reading."
        ),
    )
    assignors: tuple[str | Assignor, ...] = attrs.field(
        default=DEFAULT_ASSIGNORS,
        converter=_assignors,
        validator=_check_assignors,
        metadata=_why(
            "In order of preference; the group takes one that all members know. A member follows"
            " the cooperative protocol only if all that it offers are cooperative (KIP-429)."
        ),
    )
    heartbeat_interval: float = attrs.field(
        default=1.0,
        validator=_seconds(),
        metadata=_why(
            "Members learn of a rebalance only from a heartbeat's answer, so this is what a"
            " hand-over mostly waits for; one small request each."
        ),
    )
    session_timeout: float = attrs.field(
        default=30.0,
        validator=_seconds(),
        metadata=_why(
            "Without a heartbeat for so long a member is evicted. Bounded by the broker"
            " (group.min.session.timeout.ms and max, 6 s to 30 min by default)."
        ),
    )
    rebalance_timeout: float = attrs.field(
        default=30.0,
        validator=_seconds(),
        metadata=_why(
            "How long the coordinator waits in a rebalance for this member to finish its work and"
            " join again, and after it for the leader's assignment; bounds the drain."
        ),
    )
    watch_partition_changes: bool = attrs.field(
        default=True,
        validator=_flag(),
        metadata=_why("Whether the leader watches the topics for new and vanished partitions."),
    )
    partition_watch_interval: float = attrs.field(
        default=5.0,
        validator=_seconds(),
        metadata=_why("How often the leader asks for metadata to watch partitions."),
    )
    rejoin_backoff: float = attrs.field(
        default=0.1,
        validator=_seconds(),
        metadata=_why(
            "The first wait before trying again what failed; doubles, with jitter. Without it a"
            " broken broker would be asked as fast as it refuses."
        ),
    )
    rejoin_backoff_max: float = attrs.field(
        default=5.0,
        validator=_seconds(),
        metadata=_why("The longest such wait: how late a recovery can be noticed."),
    )
    drain_timeout: float = attrs.field(
        default=25.0,
        validator=_seconds(zero=True),
        metadata=_why(
            "How long tasks may go on with what they hold when a generation ends as planned; less"
            " where rebalance_timeout demands it."
        ),
    )
    close_timeout: float = attrs.field(
        default=5.0,
        validator=_seconds(),
        metadata=_why("The deadline of leaving the group, after the drain."),
    )
    auto_offset_reset: OffsetReset = attrs.field(
        default=OffsetReset.EARLIEST,
        converter=_offset_reset,
        validator=_is_a(OffsetReset),
        metadata=_why(
            "Where a partition without a usable offset starts; 'earliest' skips nothing."
        ),
    )
    commit_initial_position: bool = attrs.field(
        default=True,
        validator=_flag(),
        metadata=_why(
            "Commit a position that was resolved as latest at once, so that a restart before the"
            " first record skips nothing."
        ),
    )
    isolation_level: IsolationLevel = attrs.field(
        default=IsolationLevel.READ_UNCOMMITTED,
        converter=_isolation_level,
        validator=_is_a(IsolationLevel),
        metadata=_why(
            "Whether records of open and aborted transactions are read; goes to both planes."
        ),
    )
    group_instance_id: str | None = attrs.field(
        default=None,
        validator=_check_instance,
        metadata=_why(
            "A static identity (KIP-345): a restart within the session time-out causes no"
            " rebalance, and closing does not leave the group."
        ),
    )
    client_id: str = attrs.field(
        default="kgroup",
        validator=_text(),
        metadata=_why("How brokers' logs and quotas name this client; prefixes member ids."),
    )
    rack_id: str | None = attrs.field(
        default=None,
        validator=_allowed(
            lambda value: value is None or _is_text(value),
            "it must be None, or a str that is not blank, without NUL, of at most 32767 bytes",
        ),
        metadata=_why(
            "This member's rack, for rack-aware assignment (KIP-881) and fetching (KIP-392)."
        ),
    )
    request_timeout: float = attrs.field(
        default=10.0,
        validator=_seconds(),
        metadata=_why(
            "The deadline of each request to a broker; a parked Join has its own"
            " (rebalance_timeout + 5 s)."
        ),
    )
    commit_timeout: float = attrs.field(
        default=30.0,
        validator=_seconds(),
        metadata=_why(
            "How long a commit goes on while its coordinator is away or moves, with all its"
            " attempts; a restart of a broker is no failure of a handler. Never past the drain."
        ),
    )
    max_buffered_bytes: int = attrs.field(
        default=64 * 1024 * 1024,
        validator=_whole(1024, 2**41),
        metadata=_why("How much fetched data may wait in this member before fetching stops."),
    )
    max_buffered_records: int = attrs.field(
        default=100_000,
        validator=_whole(1, 10_000_000),
        metadata=_why("How many fetched records may wait in this member before fetching stops."),
    )
    max_processing_time: float | None = attrs.field(
        default=None,
        validator=_optional_seconds(),
        metadata=_why(
            "If set, a batch that a handler holds for longer ends the generation, with a cause that"
            " says so; a stuck handler then gives its partitions to others."
        ),
    )
    offset_retention: float | None = attrs.field(
        default=None,
        validator=_optional_seconds(),
        metadata=_why(
            "None leaves it to the broker: since Kafka 2.1 (KIP-211) offsets are kept for"
            " offsets.retention.minutes (7 days) after the group became empty. A value makes every"
            " commit an OffsetCommit v4 or older, the last that carries one; brokers then expire"
            " the offset that long after its commit, once its topic is not subscribed any more."
            " v4 carries neither leader epochs nor a static identity."
        ),
    )

    def __attrs_post_init__(self) -> None:
        """The rules between fields."""
        if self.heartbeat_interval * 3 > self.session_timeout + 1e-9:
            raise ConfigError(
                "heartbeat_interval",
                self.heartbeat_interval,
                "it must be at most a third of session_timeout"
                f" ({self.session_timeout:g} s), so that one lost heartbeat loses no membership",
            )
        if self.heartbeat_interval * 3 > self.rebalance_timeout * 2 + 1e-9:
            raise ConfigError(
                "heartbeat_interval",
                self.heartbeat_interval,
                "it must be at most two thirds of rebalance_timeout"
                f" ({self.rebalance_timeout:g} s), so that a member hears of a rebalance in time to"
                " finish its work and join",
            )
        if self.offset_retention is not None and self.group_instance_id is not None:
            raise ConfigError(
                "offset_retention",
                self.offset_retention,
                "it must be None together with group_instance_id, because the commits that"
                " carry a retention (v4) carry no static identity and could not be fenced",
            )
        if self.rejoin_backoff_max < self.rejoin_backoff:
            raise ConfigError(
                "rejoin_backoff_max",
                self.rejoin_backoff_max,
                f"it must be at least rejoin_backoff ({self.rejoin_backoff:g} s)",
            )


FIELDS: Final = attrs.fields(GroupConfig)
"""The settings as data; ``metadata["reason"]`` says what each is for."""
