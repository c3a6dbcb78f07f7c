"""GroupConfig: every setting of a consumer group, with its default, its reason and its bounds.

A wrong value is refused when the object is made, by a ``ConfigError`` that names the field,
the value and what is allowed. docs/configuration.md is made from ``FIELDS``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.extension_checks import check_assignor
from kgroup.interfaces import Assignor
from kgroup.types import AutoOffsetReset, IsolationLevel, topic_fault

BUILTIN_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The assignors that go by name."""
DEFAULT_ASSIGNORS: Final = ("range", "roundrobin")
"""What is offered unless said otherwise: eager ones, that every client knows."""
MOST_TOPICS: Final = 100_000
"""Names and patterns of one subscription; a JoinGroup request carries all of them."""
MOST_ASSIGNORS: Final = 100
TOPICS: Final = f"it must be a list of 1 to {MOST_TOPICS} topics or patterns"
ASSIGNORS: Final = (
    f"it must list 1 to {MOST_ASSIGNORS} assignors, each one of {', '.join(BUILTIN_ASSIGNORS)} or"
    " an object with name and assign()"
)
DRAIN_MARGIN: Final = 1.0
"""Seconds before the rebalance time-out at which a drain ends, for the Join to arrive in time."""
CLOSING_MARGIN: Final = 2.0
"""Seconds of `GroupConfig.longest_close` for what ends by force, connections and the thread that
fetches records, after the leave."""
_LONGEST_INSTANCE: Final = 249
_INSTANCE: Final = re.compile(r"[a-zA-Z0-9._-]+")


def _topics(value: Iterable[str | re.Pattern[str]]) -> tuple[str | re.Pattern[str], ...]:
    return bounds.listed("topics", value, MOST_TOPICS)  # type: ignore[no-any-return]


def _assignors(value: Iterable[str | Assignor]) -> tuple[str | Assignor, ...]:
    return bounds.listed("assignors", value, MOST_ASSIGNORS)  # type: ignore[no-any-return]


def _offset_reset(value: str | AutoOffsetReset) -> AutoOffsetReset:
    return bounds.member_of(AutoOffsetReset, value)


def _isolation_level(value: str | IsolationLevel) -> IsolationLevel:
    return bounds.member_of(IsolationLevel, value)


def _check_topics(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, tuple) or not value:
        raise ConfigError(attribute.name, value, TOPICS)
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
    if not isinstance(value, tuple) or not value:
        raise ConfigError(attribute.name, value, ASSIGNORS)
    names = []
    for assignor in value:
        if isinstance(assignor, str):
            if assignor not in BUILTIN_ASSIGNORS:
                raise ConfigError(attribute.name, assignor, ASSIGNORS)
            names.append(assignor)
        else:
            names.append(check_assignor(attribute.name, assignor))
    if len(set(names)) != len(names):
        raise ConfigError(attribute.name, value, "an assignor's name must occur once only")


def _is_instance(value: object) -> bool:
    return (
        isinstance(value, str)
        and _INSTANCE.fullmatch(value) is not None
        and len(value) <= _LONGEST_INSTANCE
        and value not in (".", "..")
    )


def _why(reason: str, *, allowed: str | None = None) -> dict[str, str]:
    return {"reason": reason} if allowed is None else {"reason": reason, "allowed": allowed}


@final
@attrs.frozen(kw_only=True)
class GroupConfig:
    """All settings of one member of a consumer group; durations are float seconds.

    Raises:
        ConfigError: a value is not allowed; it names the field, the value and what is.
    """

    group_id: str = attrs.field(
        validator=bounds.text(),
        metadata=_why("The group; members with the same id share the topics."),
    )
    bootstrap_servers: tuple[str, ...] = attrs.field(
        converter=bounds.servers,
        validator=bounds.check_servers,
        metadata=_why(
            "Brokers to ask first, 'host:port'; each is tried until one answers.",
            allowed=bounds.SERVERS,
        ),
    )
    topics: tuple[str | re.Pattern[str], ...] = attrs.field(
        converter=_topics,
        validator=_check_topics,
        metadata=_why(
            "What to read: names, and compiled patterns that match whole names (Kafka's own topics"
            " never match). A topic that does not exist yet is watched until it does; it is never"
            " created by reading.",
            allowed=TOPICS,
        ),
    )
    assignors: tuple[str | Assignor, ...] = attrs.field(
        default=DEFAULT_ASSIGNORS,
        converter=_assignors,
        validator=_check_assignors,
        metadata=_why(
            "In order of preference; the group takes one that all members know. A member follows"
            " the cooperative protocol only if all that it offers are cooperative (KIP-429).",
            allowed=ASSIGNORS,
        ),
    )
    heartbeat_interval: float = attrs.field(
        default=1.0,
        validator=bounds.seconds(),
        metadata=_why(
            "Members learn of a rebalance only from a heartbeat's answer, so this is what a"
            " hand-over mostly waits for; one small request each."
        ),
    )
    session_timeout: float = attrs.field(
        default=30.0,
        validator=bounds.seconds(),
        metadata=_why(
            "Without a heartbeat for so long a member is evicted. Bounded by the broker"
            " (group.min.session.timeout.ms and max, 6 s to 30 min by default)."
        ),
    )
    rebalance_timeout: float = attrs.field(
        default=30.0,
        validator=bounds.seconds(),
        metadata=_why(
            "How long the coordinator waits in a rebalance for this member to finish its work and"
            " join again, and after it for the leader's assignment; bounds the drain."
        ),
    )
    watch_partition_changes: bool = attrs.field(
        default=True,
        validator=bounds.flag(),
        metadata=_why("Whether the leader watches the topics for new and vanished partitions."),
    )
    partition_watch_interval: float = attrs.field(
        default=5.0,
        validator=bounds.seconds(),
        metadata=_why("How often the leader asks for metadata to watch partitions."),
    )
    rejoin_backoff: float = attrs.field(
        default=0.1,
        validator=bounds.seconds(),
        metadata=_why(
            "The first wait before trying again what failed; doubles, with jitter. Without it a"
            " broken broker would be asked as fast as it refuses."
        ),
    )
    rejoin_backoff_max: float = attrs.field(
        default=5.0,
        validator=bounds.seconds(),
        metadata=_why("The longest such wait: how late a recovery can be noticed."),
    )
    drain_timeout: float = attrs.field(
        default=25.0,
        validator=bounds.seconds(0),
        metadata=_why(
            "How long tasks may go on with what they hold when a generation ends as planned; less"
            " where rebalance_timeout demands it."
        ),
    )
    close_timeout: float = attrs.field(
        default=5.0,
        validator=bounds.seconds(),
        metadata=_why(
            "The deadline of leaving the group, after the drain. Closing takes at most the drain,"
            " this and 2 s (`GroupConfig.longest_close`), whatever is down."
        ),
    )
    auto_offset_reset: AutoOffsetReset = attrs.field(
        default=AutoOffsetReset.EARLIEST,
        converter=_offset_reset,
        validator=bounds.one_of(AutoOffsetReset),
        metadata=_why(
            "Where a partition without a usable offset starts; 'earliest' skips nothing."
        ),
    )
    commit_initial_position: bool = attrs.field(
        default=True,
        validator=bounds.flag(),
        metadata=_why(
            "Commit a position that was resolved as latest at once, so that a restart before the"
            " first record skips nothing."
        ),
    )
    isolation_level: IsolationLevel = attrs.field(
        default=IsolationLevel.READ_UNCOMMITTED,
        converter=_isolation_level,
        validator=bounds.one_of(IsolationLevel),
        metadata=_why(
            "Whether records of open and aborted transactions are read; goes to both planes."
        ),
    )
    group_instance_id: str | None = attrs.field(
        default=None,
        validator=bounds.Bound(
            lambda value: value is None or _is_instance(value),
            "it must be None or 1 to 249 ASCII letters, digits, '.', '_', '-', not '.' or '..'",
        ),
        metadata=_why(
            "A static identity (KIP-345): a restart within the session time-out causes no"
            " rebalance, and closing does not leave the group."
        ),
    )
    client_id: str = attrs.field(
        default="kgroup",
        validator=bounds.text(),
        metadata=_why("How brokers' logs and quotas name this client; prefixes member ids."),
    )
    rack_id: str | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.text()),
        metadata=_why(
            "This member's rack, for rack-aware assignment (KIP-881) and fetching (KIP-392)."
        ),
    )
    request_timeout: float = attrs.field(
        default=10.0,
        validator=bounds.seconds(),
        metadata=_why(
            "The deadline of each request to a broker; a parked Join has its own"
            " (rebalance_timeout + 5 s)."
        ),
    )
    commit_timeout: float = attrs.field(
        default=30.0,
        validator=bounds.seconds(),
        metadata=_why(
            "How long a commit goes on while its coordinator is away or moves, with all its"
            " attempts; a restart of a broker is no failure of a handler. Never past the drain."
        ),
    )
    max_buffered_bytes: int = attrs.field(
        default=64 * 1024 * 1024,
        validator=bounds.whole(1024, bounds.MOST_BUFFERED),
        metadata=_why("How much fetched data may wait in this member before fetching stops."),
    )
    max_buffered_records: int = attrs.field(
        default=100_000,
        validator=bounds.whole(1, 10_000_000),
        metadata=_why("How many fetched records may wait in this member before fetching stops."),
    )
    max_processing_time: float | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.seconds()),
        metadata=_why(
            "If set, a batch that a handler holds for longer ends the generation, with a cause that"
            " says so; a stuck handler then gives its partitions to others."
        ),
    )
    offset_retention: float | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.seconds()),
        metadata=_why(
            "None leaves it to the broker: since Kafka 2.1 (KIP-211) offsets are kept for"
            " offsets.retention.minutes (7 days) after the group became empty. A value makes every"
            " commit an OffsetCommit v4 or older, the last that carries one; brokers then expire"
            " the offset that long after its commit, once its topic is not subscribed any more."
            " v4 carries neither leader epochs nor a static identity."
        ),
    )

    @property
    def longest_close(self) -> float:
        """Seconds within which a group with these settings has closed, whatever is down.

        The longest drain (``drain_timeout``, or ``rebalance_timeout`` less 1 s if that is
        shorter), then ``close_timeout`` for leaving, then 2 s for what ends by force. An
        orchestrator that kills what does not stop in time should wait for longer than that. Tasks
        of the program that go on after they were cancelled add the time that they take.
        """
        drain = min(self.drain_timeout, max(0.0, self.rebalance_timeout - DRAIN_MARGIN))
        return drain + self.close_timeout + CLOSING_MARGIN

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
