"""A plan: everything that a seed decides before a simulation begins.

A ``Scenario`` is what all seeds share, a ``Plan`` is one seed's. Two runs of one plan are the
same; a plan with fewer faults is the same but for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.broker.broker_settings import BROKERS
from kgroup.errors import ConfigError
from kgroup.testing.simulation.faults import Fault
from kgroup.testing.simulation.network import Latency
from kgroup.types import topic_fault

_HOUR: Final = 3600.0
MEMBERS: Final = bounds.whole(1, 100)
LONGEST_HOURS: Final = 1000
DURATION: Final = bounds.seconds(1, LONGEST_HOURS * _HOUR)
FAULTS_PER_HOUR: Final = bounds.number(0, 100_000)
MOST_MEMBER_HOURS: Final = 100
"""What all members of a simulation may live together; each hour of one is about 8 MB of facts."""
MOST_FAULTS: Final = 10_000
MOST_TOPICS: Final = 100
MOST_PARTITIONS: Final = 1000
"""Partitions of all topics of a simulation together."""
TOPICS: Final = (
    f"it must be None, or 1 to {MOST_TOPICS} topics with 1 to {MOST_PARTITIONS} partitions in all"
)
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


@final
@attrs.frozen(kw_only=True)
class Scenario:
    """What all seeds share. Durations are float seconds.

    Attributes:
        members: how many programs.
        brokers: how many.
        duration: until the last fault and the last record.
        topics: each with its number of partitions; None lets the seed choose.
        faults_per_hour: how many, on average; 0 for a world without any.
        config: settings of every member's group, which no seed may change.
        broker_settings: Kafka's property names with their values, which no seed may change.

    Raises:
        ConfigError: a value is not allowed, or all together would cost too much.
    """

    members: int = attrs.field(default=4, validator=MEMBERS)
    brokers: int = attrs.field(default=3, validator=BROKERS)
    duration: float = attrs.field(default=600.0, validator=DURATION)
    topics: Mapping[str, int] | None = attrs.field(
        default=None, validator=_check_topics, metadata={"allowed": TOPICS}
    )
    faults_per_hour: float = attrs.field(default=90.0, validator=FAULTS_PER_HOUR)
    config: Mapping[str, Any] = attrs.field(factory=dict, validator=_NAMES)
    broker_settings: Mapping[str, object] = attrs.field(factory=dict, validator=_NAMES)

    def __attrs_post_init__(self) -> None:
        """What members and faults together may cost; a simulation keeps all that happens."""
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


@final
@attrs.frozen(kw_only=True)
class MemberPlan:
    """One member's program.

    Attributes:
        name: of its process.
        start_at: when it is started first.
        group_instance_id: if it is a static member.
    """

    name: str
    start_at: float
    group_instance_id: str | None = None


@final
@attrs.frozen(kw_only=True)
class Plan:
    """One simulation. Durations are float seconds.

    Attributes:
        seed: of every choice that is not made yet.
        duration: until the last fault and the last record.
        brokers: how many.
        topics: each with its number of partitions at the beginning.
        members: the programs.
        config: settings of every member's group beside those that its program gives.
        broker_settings: Kafka's property names with their values.
        latency: of every route.
        records_every: seconds between two writes, on average.
        records_at_once: how many records a write has, at most.
        work: how long a program takes for a record, at least and at most.
        faults: in the order of their times.
        habit: how kgroup's own example worker handles a partition: "plain", "own offsets" (it
            seeks to what it has stored itself) or "seeks" (anywhere).
        transactional: which part of the writes is in transactions, 0 to 1.

    Raises:
        ConfigError: a number is not allowed; a wait of NaN seconds would have no end.
    """

    seed: int
    # A plan that is made smaller may be shorter than a scenario.
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
    habit: str = attrs.field(default="plain", validator=bounds.text())
    transactional: float = attrs.field(default=0.0, validator=bounds.number(0, 1))
