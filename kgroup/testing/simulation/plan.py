"""A plan: everything that a seed decides before a simulation begins.

A ``Scenario`` holds what all seeds share, a ``Plan`` is that of one seed. Two runs of a plan are
the same. A plan without some of its faults makes all its other choices as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.broker.broker_settings import BROKERS, BrokerSettings
from kgroup.broker.security.settings import SESSION_LIFETIME
from kgroup.config import FIELDS, LONGEST_HEARTBEAT_PART, GroupConfig
from kgroup.errors import ConfigError
from kgroup.security.settings import SaslMechanism
from kgroup.testing.simulation.faults import Fault
from kgroup.testing.simulation.network import Latency
from kgroup.types import topic_fault

_HOUR: Final = 3600.0
MEMBERS: Final = bounds.whole(1, 100)
LONGEST_HOURS: Final = 1000
DURATION: Final = bounds.seconds(1, LONGEST_HOURS * _HOUR)
FAULTS_PER_HOUR: Final = bounds.number(0, 100_000)
WALL_CLOCK_ERROR: Final = bounds.seconds(0, 86_400)
MOST_MEMBER_HOURS: Final = 100
"""The most hours that all members together may be simulated; each takes about 8 MB of history."""
MOST_FAULTS: Final = 10_000
MOST_TOPICS: Final = 100
MOST_PARTITIONS: Final = 1000
"""The most partitions of all topics together."""
TOPICS: Final = (
    f"it must be None, or 1 to {MOST_TOPICS} topics with 1 to {MOST_PARTITIONS} partitions in all"
)
_RELATED: Final = ("session_timeout", "rebalance_timeout", "heartbeat_interval")
_ANY_GROUP: Final[Mapping[str, Any]] = {
    "bootstrap_servers": "broker:9092",
    "group_id": "group",
    "topics": ("topic",),
    **{name: getattr(FIELDS, name).default for name in _RELATED},
}
_NAMES: Final = bounds.instance(Mapping, "a mapping of names to values")


def _check_topics(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping) or not 1 <= len(value) <= MOST_TOPICS:
        raise ConfigError(attribute.name, value, TOPICS)
    for name, partitions in value.items():
        if fault := topic_fault(name):
            raise ConfigError(attribute.name, name, f"this name {fault}")
        bounds.whole(1, MOST_PARTITIONS).check(f"{attribute.name}[{name!r}]", partitions)
    if sum(value.values()) > MOST_PARTITIONS:
        raise ConfigError(attribute.name, value, TOPICS)


def with_given(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A seed's settings of a group with those of its scenario, which the seed's make room for.

    GroupConfig refuses a heartbeat interval that is too long for the session or the rebalance
    time-out.
    """
    both = {**chosen, **given}
    session, rebalance, heartbeat = related = [both[name] for name in _RELATED]
    if not all(map(bounds.is_number, related)):
        return both  # GroupConfig refuses it
    fitting = {
        "session_timeout": max(session, heartbeat * 3),
        "rebalance_timeout": max(rebalance, heartbeat / LONGEST_HEARTBEAT_PART),
    }
    if "heartbeat_interval" not in given:
        most = min(session / 3, rebalance * LONGEST_HEARTBEAT_PART)
        fitting = {"heartbeat_interval": min(heartbeat, most)}
    return {**both, **fitting, **given}


def _check_settings(config: Mapping[str, Any], broker_settings: Mapping[str, object]) -> None:
    """Refuse settings that every program, or every broker, would refuse later."""
    try:
        GroupConfig(**{**_ANY_GROUP, **with_given(_ANY_GROUP, config)})
    except ConfigError as error:
        raise ConfigError(f"config[{error.field!r}]", error.value, error.allowed) from None
    except TypeError as error:
        raise ConfigError("config", config, f"GroupConfig refuses it: {error}") from None
    try:
        BrokerSettings.from_properties(broker_settings)
    except ConfigError as error:
        raise ConfigError(f"broker_settings[{error.field!r}]", error.value, error.allowed) from None


@final
@attrs.frozen(kw_only=True)
class Scenario:
    """What all seeds of a campaign share. Durations are float seconds.

    Attributes:
        members: the number of members.
        brokers: the number of brokers.
        duration: how long faults happen and records are written.
        topics: each topic with its number of partitions; None lets the seed choose.
        faults_per_hour: the number of faults an hour, on average; 0 for none.
        wall_clock_error: the most seconds by which half of the wall clocks are wrong at first; they
            jump, too. With 0 all clocks agree.
        logins: whether, in a third of the plans, members log in, and users and rights are revoked;
            a program that does not use `Process.config` takes `Process.security` for that.
        deletes_topics: whether topics are deleted and created again. It makes offsets in a store of
            the program's own meaningless; a program that cannot notice this is simulated without.
        exactly_once: whether it is a failure if a record is processed again. By default it is one
            for programs that keep offsets of their own, with ``GroupConfig.starts``.
        config: settings of every member's group; they take precedence over the seed's.
        broker_settings: Kafka's broker properties; they take precedence over the seed's.

    Raises:
        ConfigError: a value is out of bounds, or all together would cost too much.
    """

    members: int = attrs.field(default=4, validator=MEMBERS)
    brokers: int = attrs.field(default=3, validator=BROKERS)
    duration: float = attrs.field(default=600.0, validator=DURATION)
    topics: Mapping[str, int] | None = attrs.field(
        default=None, validator=_check_topics, metadata={"allowed": TOPICS}
    )
    faults_per_hour: float = attrs.field(default=90.0, validator=FAULTS_PER_HOUR)
    wall_clock_error: float = attrs.field(default=3.0, validator=WALL_CLOCK_ERROR)
    logins: bool = attrs.field(default=False, validator=bounds.flag())
    deletes_topics: bool = attrs.field(default=True, validator=bounds.flag())
    exactly_once: bool | None = attrs.field(default=None, validator=bounds.optional(bounds.flag()))
    config: Mapping[str, Any] = attrs.field(factory=dict, validator=_NAMES)
    broker_settings: Mapping[str, object] = attrs.field(factory=dict, validator=_NAMES)

    def __attrs_post_init__(self) -> None:
        """Check the settings, and bound the cost: a simulation keeps its history in memory."""
        _check_settings(self.config, self.broker_settings)
        hours = self.duration / _HOUR
        if self.members * hours > MOST_MEMBER_HOURS:
            raise ConfigError(
                "duration",
                self.duration,
                f"{self.members} members may be simulated for at most"
                f" {MOST_MEMBER_HOURS / self.members:g} hours ({MOST_MEMBER_HOURS} member-hours,"
                " about 8 MB each): use fewer members or less time, and more seeds",
            )
        if self.faults_per_hour * hours > MOST_FAULTS:
            raise ConfigError(
                "faults_per_hour",
                self.faults_per_hour,
                f"there may be at most {MOST_FAULTS} faults in {hours:g} hours: use fewer faults"
                " or less time, and more seeds",
            )


WORK: Final = "it must be two times in seconds, from 0 to 86400, the shorter one first"


def _check_work(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    times = bounds.seconds(0, 86_400)
    if not isinstance(value, tuple) or len(value) != 2 or not all(map(times.holds, value)):
        raise ConfigError(attribute.name, value, WORK)
    if value[0] > value[1]:
        raise ConfigError(attribute.name, value, WORK)


_BY_PASSWORD: Final = bounds.Bound(
    lambda value: isinstance(value, SaslMechanism) and value is not SaslMechanism.OAUTHBEARER,
    "it must be SaslMechanism.PLAIN, SCRAM_SHA_256 or SCRAM_SHA_512",
)


@final
@attrs.frozen(kw_only=True)
class LoginPlan:
    """How the members log in.

    Attributes:
        mechanism: one with a password.
        session_lifetime: the seconds after which a member has to log in again; None for never.
    """

    mechanism: SaslMechanism = attrs.field(validator=_BY_PASSWORD)
    session_lifetime: float | None = attrs.field(validator=bounds.optional(SESSION_LIFETIME))


@final
@attrs.frozen(kw_only=True)
class MemberPlan:
    """One member.

    Attributes:
        name: the name of its program.
        start_at: when it is started for the first time.
        group_instance_id: the instance id of a static member, or None.
    """

    name: str
    start_at: float
    group_instance_id: str | None = None


@final
@attrs.frozen(kw_only=True)
class Plan:
    """One simulation. Durations are float seconds.

    Attributes:
        seed: decides every choice that the plan leaves open.
        duration: how long faults happen and records are written.
        brokers: the number of brokers.
        topics: each topic with its number of partitions at the beginning.
        members: the members.
        config: settings of every member's group, beside those that its program gives.
        broker_settings: Kafka's broker properties.
        latency: the latency between members and brokers.
        records_every: seconds between two writes, on average.
        records_at_once: the most records of one write.
        work: the least and the most seconds that a program takes for a record.
        long_work: one record in fifty takes up to so many seconds more than ``work``; 0 for none.
        faults: the faults, in the order of their times.
        partition_handler: how kgroup's own example program handles a partition: "plain",
            "own offsets" (it seeks to the offsets in a store of its own), "seeks" (anywhere),
            "worker" (as `kgroup.run` does) or "transactions" (it commits offsets in them).
        transactional: the part of the writes that is in transactions, 0 to 1.
        wall_clock_error: the most seconds by which half of the wall clocks are wrong at first.
        logins: how the members log in, or None.
        exactly_once: see `Scenario`.

    Raises:
        ConfigError: a number is out of bounds; a wait of NaN seconds, for example, would never end.
    """

    seed: int
    # A shrunk plan may be shorter than a scenario can be.
    duration: float = attrs.field(validator=bounds.seconds(0, LONGEST_HOURS * _HOUR))
    brokers: int = attrs.field(validator=BROKERS)
    topics: Mapping[str, int]
    members: tuple[MemberPlan, ...]
    config: Mapping[str, Any]
    broker_settings: Mapping[str, object]
    latency: Latency
    records_every: float = attrs.field(validator=bounds.seconds(most=100 * LONGEST_HOURS * _HOUR))
    records_at_once: int = attrs.field(validator=bounds.whole(1, 100_000))
    work: tuple[float, float] = attrs.field(validator=_check_work, metadata={"allowed": WORK})
    faults: tuple[Fault, ...]
    long_work: float = attrs.field(default=0.0, validator=bounds.seconds(0, 86_400))
    partition_handler: str = attrs.field(default="plain", validator=bounds.text())
    transactional: float = attrs.field(default=0.0, validator=bounds.number(0, 1))
    wall_clock_error: float = attrs.field(default=3.0, validator=WALL_CLOCK_ERROR)
    logins: LoginPlan | None = None
    exactly_once: bool | None = None
