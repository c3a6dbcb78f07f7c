"""A plan: everything that a seed decides before a simulation begins.

A ``Scenario`` is what all seeds share, a ``Plan`` is one seed's. Two runs of one plan are the
same; a plan with fewer faults is the same but for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import attrs
from attrs import validators

from kgroup.testing.simulation.faults import Fault
from kgroup.testing.simulation.network import Latency


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
    """

    members: int = attrs.field(default=4, validator=validators.ge(1))
    brokers: int = attrs.field(default=3, validator=validators.ge(1))
    duration: float = attrs.field(default=600.0, validator=validators.gt(0))
    topics: Mapping[str, int] | None = None
    faults_per_hour: float = attrs.field(default=90.0, validator=validators.ge(0))
    config: Mapping[str, Any] = attrs.field(factory=dict)
    broker_settings: Mapping[str, object] = attrs.field(factory=dict)


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
    """

    seed: int
    duration: float
    brokers: int
    topics: Mapping[str, int]
    members: tuple[MemberPlan, ...]
    config: Mapping[str, Any]
    broker_settings: Mapping[str, object]
    latency: Latency
    records_every: float
    records_at_once: int
    work: tuple[float, float]
    faults: tuple[Fault, ...]
