"""GroupConfig: every setting of a consumer group, with its default, its bounds and its reason.

A value that is not allowed raises a ``ConfigError`` when the object is made; the error names the
field, the value and what is allowed. docs/configuration.md is generated from ``FIELDS`` and
``RULES``.
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, final, get_args

import attrs

from kgroup import bounds
from kgroup.errors import ArgumentError, ConfigError
from kgroup.extension_checks import check_assignor
from kgroup.interfaces import Assignor, LoadStarts
from kgroup.security.properties import Properties, PropertySource
from kgroup.security.property_table import ROWS, PropertyKind
from kgroup.security.setting_names import names_checked
from kgroup.security.settings import Security
from kgroup.types import (
    AutoOffsetReset,
    IsolationLevel,
    IsolationLevelName,
    OffsetResetName,
    topic_fault,
)

AssignorName = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
BUILTIN_ASSIGNORS: Final[tuple[str, ...]] = get_args(AssignorName)
"""The assignors that a name selects."""
DEFAULT_ASSIGNORS: Final = ("range", "roundrobin")
"""The default: eager assignors, which every client knows."""
MOST_TOPICS: Final = 100_000
"""The most names and patterns of one subscription; a JoinGroup request carries all of them."""
MOST_ASSIGNORS: Final = 100
TOPICS: Final = f"it must be a list of 1 to {MOST_TOPICS} topics or patterns"
ASSIGNORS: Final = (
    f"it must list 1 to {MOST_ASSIGNORS} assignors, each one of {', '.join(BUILTIN_ASSIGNORS)} or"
    " an object with name and assign()"
)
DRAIN_MARGIN: Final = 1.0
"""Seconds from the end of a drain to the rebalance timeout, so that the JoinGroup is in time."""
LONGEST_HEARTBEAT_PART: Final = 2 / 3
"""The longest time between two heartbeats, as a part of the rebalance timeout."""
CLOSING_MARGIN: Final = 2.0
"""Seconds of `GroupConfig.longest_close` after the leave: then connections and the thread that
fetches records are closed by force."""
_LONGEST_INSTANCE: Final = 249
_INSTANCE: Final = re.compile(r"[a-zA-Z0-9._-]+")


def _topics(value: Iterable[str | re.Pattern[str]]) -> tuple[str | re.Pattern[str], ...]:
    return bounds.listed("topics", value, MOST_TOPICS)  # type: ignore[no-any-return]


def checked_topics(value: Iterable[str | re.Pattern[str]]) -> tuple[str | re.Pattern[str], ...]:
    """The topics of a subscription, by the rules of ``GroupConfig.topics``.

    Raises:
        ArgumentError: they are not allowed.
    """
    try:
        topics = _topics(value)
        _check_topic_names("topics", topics)
    except ConfigError as error:
        raise ArgumentError("topics", error.value, error.allowed) from None
    return topics


def _assignors(value: Iterable[AssignorName | str | Assignor]) -> tuple[str | Assignor, ...]:
    return bounds.listed("assignors", value, MOST_ASSIGNORS)  # type: ignore[no-any-return]


def _offset_reset(value: OffsetResetName | str | AutoOffsetReset) -> AutoOffsetReset:
    return bounds.member_of(AutoOffsetReset, value)


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _isolation_level(value: IsolationLevelName | str | IsolationLevel) -> IsolationLevel:
    return bounds.member_of(IsolationLevel, value)


def _check_topics(_: GroupConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    _check_topic_names(attribute.name, value)


def _check_topic_names(field: str, value: Any) -> None:
    if not isinstance(value, tuple) or not value:
        raise ConfigError(field, value, TOPICS)
    for topic in value:
        if isinstance(topic, re.Pattern) and isinstance(topic.pattern, str):
            continue
        fault = topic_fault(topic)
        if fault:
            raise ConfigError(
                field,
                topic,
                f"this name {fault}; a topic's name has 1 to 249 ASCII letters, digits, '.', '_' or"
                " '-'; a pattern is re.compile(\"orders.*\"), which matches whole names",
            )
    if len(set(value)) != len(value):
        raise ConfigError(field, value, "each topic may occur only once")


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
        raise ConfigError(attribute.name, value, "each assignor's name may occur only once")


def _is_instance(value: object) -> bool:
    return (
        isinstance(value, str)
        and _INSTANCE.fullmatch(value) is not None
        and len(value) <= _LONGEST_INSTANCE
        and value not in (".", "..")
    )


def _documented(reason: str, *, allowed: str | None = None) -> dict[str, str]:
    return {"reason": reason} if allowed is None else {"reason": reason, "allowed": allowed}


@final
@names_checked("GroupConfig", [field.name for field in attrs.fields(Security)])
@attrs.frozen(kw_only=True)
class GroupConfig:
    """All settings of one member of a consumer group; durations are float seconds.

    Raises:
        ConfigError: a value is not allowed, or a name is unknown; the error names the field and
            what is allowed.
    """

    group_id: str = attrs.field(
        validator=bounds.text(),
        metadata=_documented("The group; members with the same group id share the partitions."),
    )
    bootstrap_servers: tuple[str, ...] = attrs.field(
        converter=bounds.servers,
        validator=bounds.check_servers,
        metadata=_documented(
            "The brokers to contact first, as 'host:port'; kgroup tries each until one answers.",
            allowed=bounds.SERVERS,
        ),
    )
    topics: tuple[str | re.Pattern[str], ...] = attrs.field(
        converter=_topics,
        validator=_check_topics,
        metadata=_documented(
            "The topics to read: names, and compiled patterns, which must match whole names and"
            " never match Kafka's internal topics. A topic that does not exist yet is read once it"
            " exists; kgroup never creates it. `subscribe()` replaces them while the group runs.",
            allowed=TOPICS,
        ),
    )
    assignors: tuple[str | Assignor, ...] = attrs.field(
        default=DEFAULT_ASSIGNORS,
        converter=_assignors,
        validator=_check_assignors,
        metadata=_documented(
            "The assignors that the member offers, in order of preference; the group chooses one"
            " that all members offer. The member uses the cooperative protocol only if all its"
            " assignors are cooperative (KIP-429).",
            allowed=ASSIGNORS,
        ),
    )
    heartbeat_interval: float = attrs.field(
        default=1.0,
        validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT),
        metadata=_documented(
            "Members learn of a rebalance only from the response to a heartbeat, so a rebalance"
            " mostly waits for this interval. A heartbeat is one small request. See the rules"
            " below."
        ),
    )
    session_timeout: float = attrs.field(
        default=30.0,
        validator=bounds.timeout(),
        metadata=_documented(
            "The coordinator removes a member from which it gets no heartbeat for this long. The"
            " broker bounds it (group.min.session.timeout.ms and group.max.session.timeout.ms; by"
            " default 6 s to 30 min)."
        ),
    )
    rebalance_timeout: float = attrs.field(
        default=30.0,
        validator=bounds.timeout(),
        metadata=_documented(
            "How long the coordinator waits in a rebalance for this member to finish its work and"
            " join again, and then for the leader's assignment. It also bounds the drain."
        ),
    )
    watch_partition_changes: bool = attrs.field(
        default=True,
        validator=bounds.flag(),
        metadata=_documented(
            "Whether the leader watches the group's topics for added and deleted partitions."
        ),
    )
    partition_watch_interval: float = attrs.field(
        default=1.0,
        validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT),
        metadata=_documented(
            "How often the leader requests the metadata of the group's topics to find added and"
            " deleted partitions. Members that subscribe by pattern resolve it as often, but not"
            " more often than every 5 s, because that needs the metadata of all topics."
        ),
    )
    rejoin_backoff: float = attrs.field(
        default=0.1,
        validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT),
        metadata=_documented(
            "The first wait before a failed request is sent again. It doubles with each failure,"
            " with jitter, so that a broken broker is not flooded with requests."
        ),
    )
    rejoin_backoff_max: float = attrs.field(
        default=5.0,
        validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT),
        metadata=_documented(
            "The longest such wait. The member may notice a broker's recovery this much later."
        ),
    )
    drain_timeout: float = attrs.field(
        default=25.0,
        validator=bounds.timeout(0),
        metadata=_documented(
            "How long tasks may continue their current work after an end at which commits still"
            " succeed (the drain); less if rebalance_timeout requires it."
        ),
    )
    close_timeout: float = attrs.field(
        default=5.0,
        validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT),
        metadata=_documented(
            "How long leaving the group may take after the drain. Closing takes at most"
            " heartbeat_interval, the drain, this timeout and 2 s (`GroupConfig.longest_close`),"
            " whatever has failed."
        ),
    )
    auto_offset_reset: AutoOffsetReset = attrs.field(
        default=AutoOffsetReset.EARLIEST,
        converter=_offset_reset,
        validator=bounds.one_of(AutoOffsetReset),
        metadata=_documented(
            "Where to start in a partition that has no committed offset, or one that is not in its"
            " log: at the 'earliest' record there, which skips none, or behind the 'latest'."
        ),
    )
    starts: LoadStarts | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.function()),
        metadata=_documented(
            "A function of the program that says where partitions start, for programs that keep"
            " offsets in a store of their own, with their results; see docs/exactly_once.md. It is"
            " called before each generation with a tuple of partitions, and returns a mapping of"
            " them to offsets; one that is missing, or None, starts at the group's committed"
            " offset. An async function runs in the event loop, another one in a thread; heartbeats"
            " continue meanwhile. What it raises ends the group.",
            allowed="it must be None or a function",
        ),
    )
    commit_initial_position: bool = attrs.field(
        default=True,
        validator=bounds.flag(),
        metadata=_documented(
            "Whether a start offset that comes from 'latest', or from a log that was truncated or"
            " created again, is committed immediately, so that a restart before the first record"
            " skips no record."
        ),
    )
    isolation_level: IsolationLevel = attrs.field(
        default=IsolationLevel.READ_UNCOMMITTED,
        converter=_isolation_level,
        validator=bounds.one_of(IsolationLevel),
        metadata=_documented("Whether records of open and aborted transactions are read."),
    )
    group_instance_id: str | None = attrs.field(
        default=None,
        validator=bounds.Bound(
            lambda value: value is None or _is_instance(value),
            "it must be None or 1 to 249 ASCII letters, digits, '.', '_', '-', not '.' or '..'",
        ),
        metadata=_documented(
            "The identity of a static member (KIP-345): a restart within session_timeout causes no"
            " rebalance, and closing does not leave the group."
        ),
    )
    security: Security = attrs.field(
        factory=Security,
        validator=bounds.instance(Security, "a kgroup.Security"),
        metadata=_documented(
            "How connections are encrypted, and how the client logs in; see docs/security.md. It"
            " serves the group's own connections and those on which records are read."
        ),
    )
    client_id: str = attrs.field(
        default="kgroup",
        validator=bounds.text(),
        metadata=_documented(
            "The name of this client in brokers' logs and quotas; member ids begin with it."
        ),
    )
    events_to: str | None = attrs.field(
        default=None,
        converter=_path,
        validator=bounds.optional(bounds.text()),
        metadata=_documented(
            "A file to which the member appends its events, a line of JSON each. `kgroup timeline`"
            " draws such files; members may share one."
        ),
    )
    rack_id: str | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.text()),
        metadata=_documented(
            "The member's rack, for rack-aware assignment (KIP-881) and fetching (KIP-392)."
        ),
    )
    request_timeout: float = attrs.field(
        default=10.0,
        validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT),
        metadata=_documented(
            "How long kgroup waits for the response to a request, and for a connection to open; for"
            " the response to a JoinGroup or a follower's SyncGroup it waits rebalance_timeout + 5"
            " s."
        ),
    )
    startup_timeout: float | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.timeout()),
        metadata=_documented(
            "How long the first `next()` tries to reach the group's coordinator until it raises a"
            " `StartupTimeoutError`. Once a JoinGroup was answered it has no effect, and it does"
            " not limit how long other members may take to join. None tries for ever."
        ),
    )
    commit_timeout: float = attrs.field(
        default=30.0,
        validator=bounds.timeout(),
        metadata=_documented(
            "How long a commit is retried while the coordinator is unavailable or moves, so that"
            " the restart of a broker fails no handler. The end of the drain ends it earlier."
            " A request that is not answered within request_timeout is not sent again, but workers"
            " of `run` and `serve` commit again until the generation has ended."
        ),
    )
    max_buffered_bytes: int = attrs.field(
        default=64 * 1024 * 1024,
        validator=bounds.whole(1024, bounds.MOST_BUFFERED),
        metadata=_documented(
            "How many bytes of fetched records the member may buffer before it stops fetching."
        ),
    )
    max_buffered_records: int = attrs.field(
        default=100_000,
        validator=bounds.whole(1, 10_000_000),
        metadata=_documented(
            "How many fetched records the member may buffer before it stops fetching."
        ),
    )
    max_processing_time: float | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.timeout()),
        metadata=_documented(
            "If set, a handler that holds a batch for longer ends the generation, with the cause"
            " 'processing stuck', so that other members get the partitions of a stuck handler. A"
            " thread, or a task that ignores its cancellation, keeps this member out of the group"
            " until it returns or the process is restarted; `health()` is then not live."
        ),
    )
    offset_retention: float | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.timeout()),
        metadata=_documented(
            "With None, the broker decides: since Kafka 2.1 (KIP-211) it keeps offsets for"
            " offsets.retention.minutes (7 days) after the group became empty. With a value, every"
            " commit is an OffsetCommit v4 or older, the last version that carries a retention;"
            " brokers then delete the offset that long after its commit, once no member subscribes"
            " to the topic. v4 carries neither leader epochs nor a static identity."
        ),
    )

    @classmethod
    def from_properties(cls, source: PropertySource | Properties, **fields: Any) -> GroupConfig:
        """Make it of the properties of Kafka's Java client or of librdkafka, by either's names.

        A property that is missing leaves kgroup's own default, which may differ from the other
        client's. ``max.poll.interval.ms`` sets ``max_processing_time`` only, and not
        ``rebalance_timeout``. docs/security.md says more.

        Args:
            source: the path of a properties file, or names and values; see
                `Security.from_properties`.
            fields: fields of this class, ``topics`` among them; they take precedence. So that a
                token is fetched or a password looked up by the program, give ``security`` itself.

        Raises:
            ConfigError: a property is unknown, has a wrong value, or asks for what kgroup cannot
                do, or a required one is missing; the error names it. No error shows a secret.
        """
        properties = source if isinstance(source, Properties) else Properties(source)
        del source
        with properties.naming_errors(fields):
            read = properties.settings(PropertyKind.GROUP, fields)
            _refuse_missing({**read, **fields})
            if "security" not in fields:
                read["security"] = Security.from_properties(properties)
            return cls(**{**read, **fields})

    @property
    def longest_close(self) -> float:
        """The most seconds that closing a group with these settings takes, whatever has failed.

        It is one ``heartbeat_interval`` until the drain begins, the longest drain
        (``drain_timeout``, or ``rebalance_timeout`` less 1 s if that is shorter), then
        ``close_timeout`` for leaving, then 2 s to close connections and threads by force. Closing
        with ``promptly=True`` leaves out the first part. An orchestrator that kills programs should
        wait for longer than that. Tasks of the program that continue after their cancellation add
        their own time.
        """
        return self.heartbeat_interval + self.longest_drain + self.close_timeout + CLOSING_MARGIN

    @property
    def longest_drain(self) -> float:
        """The most seconds that a drain takes with these settings.

        That is ``drain_timeout``, or ``rebalance_timeout`` less 1 s if that is shorter.
        """
        return longest_drain(self.drain_timeout, self.rebalance_timeout)

    def __attrs_post_init__(self) -> None:
        """Check the rules between settings."""
        for rule in RULES:
            rule.check(self)


FIELDS: Final = attrs.fields(GroupConfig)
"""The settings as data; ``metadata["reason"]`` says what each is for."""


def _with_fields(text: str) -> str:
    """The docstring of `GroupConfig` with what each field is for, so that ``help()`` shows it."""
    indent = " " * 4
    lines = (
        textwrap.fill(
            f"{one.name}: {one.metadata['reason']}",
            100,
            initial_indent=indent,
            subsequent_indent=indent + "    ",
        )
        for one in FIELDS
    )
    before, heading, after = text.partition("Raises:\n")
    return "\n".join((f"{before}Attributes:", *lines, "", f"{heading}{after}"))


# Python 3.13 has taken the indent out already.
GroupConfig.__doc__ = _with_fields(inspect.cleandoc(GroupConfig.__doc__ or ""))


def _refuse_missing(given: Mapping[str, Any]) -> None:
    """Refuse settings that come from properties and lack a field without a default.

    Raises:
        ConfigError: one is missing; the error has the name of its property.
    """
    if given.keys() - {field.name for field in FIELDS}:
        return  # one may be misspelt; the class refuses it by its nearest name
    for field in FIELDS:
        if field.default is not attrs.NOTHING or field.name in given:
            continue
        name = next((row.java for row in ROWS if row.field == field.name and row.java), None)
        if name is None:
            raise ConfigError(
                field.name, None, f"no property has it; pass from_properties(..., {field.name}=...)"
            )
        raise ConfigError(
            name,
            None,
            f"it is required: add it to the properties, or pass {field.name}=... beside them",
        )


def _check_heartbeats_of_a_session(config: GroupConfig) -> None:
    longest = config.session_timeout / 3
    if config.heartbeat_interval * 3 > config.session_timeout + 1e-9:
        raise ConfigError(
            "heartbeat_interval",
            config.heartbeat_interval,
            "it must be at most a third of session_timeout"
            f" ({config.session_timeout:g} s), so that one lost heartbeat does not cost the"
            f" membership{bounds.in_seconds(config.heartbeat_interval, longest)}",
        )


def _check_heartbeats_of_a_rebalance(config: GroupConfig) -> None:
    longest = config.rebalance_timeout * LONGEST_HEARTBEAT_PART
    if config.heartbeat_interval > longest + 1e-9:
        raise ConfigError(
            "heartbeat_interval",
            config.heartbeat_interval,
            f"it must be at most two thirds of rebalance_timeout ({config.rebalance_timeout:g}"
            " s), so that a member learns of a rebalance in time to finish its work and join"
            f" again{bounds.in_seconds(config.heartbeat_interval, longest)}",
        )


def _check_retention(config: GroupConfig) -> None:
    if config.offset_retention is not None and config.group_instance_id is not None:
        raise ConfigError(
            "offset_retention",
            config.offset_retention,
            "it must be None if group_instance_id is set, because the commits that carry a"
            " retention (v4) carry no static identity and could not be fenced",
        )


def _check_backoff(config: GroupConfig) -> None:
    if config.rejoin_backoff_max < config.rejoin_backoff:
        raise ConfigError(
            "rejoin_backoff_max",
            config.rejoin_backoff_max,
            f"it must be at least rejoin_backoff ({config.rejoin_backoff:g} s)"
            + bounds.in_seconds(config.rejoin_backoff, config.rejoin_backoff_max),
        )


@final
@attrs.frozen
class SettingsRule:
    """A rule between settings.

    Attributes:
        words: the rule, for docs/configuration.md.
        check: raises a ``ConfigError`` for settings that break it.
    """

    words: str
    check: Callable[[GroupConfig], None]


RULES: Final = (
    SettingsRule(
        "`heartbeat_interval` is at most a third of `session_timeout`, so that one lost heartbeat"
        " does not cost the membership.",
        _check_heartbeats_of_a_session,
    ),
    SettingsRule(
        "`heartbeat_interval` is at most two thirds of `rebalance_timeout`, so that a member learns"
        " of a rebalance in time to finish its work and join again.",
        _check_heartbeats_of_a_rebalance,
    ),
    SettingsRule(
        "`offset_retention` is None if `group_instance_id` is set: the commits that carry a"
        " retention (v4) carry no static identity and could not be fenced.",
        _check_retention,
    ),
    SettingsRule("`rejoin_backoff_max` is at least `rejoin_backoff`.", _check_backoff),
)
"""What ``GroupConfig`` checks once each setting has passed its own check."""


def longest_drain(drain_timeout: float, rebalance_timeout: float) -> float:
    """See `GroupConfig.longest_drain`."""
    return min(drain_timeout, max(0.0, rebalance_timeout - DRAIN_MARGIN))
