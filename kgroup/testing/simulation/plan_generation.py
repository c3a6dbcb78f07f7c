"""Draws a plan from a seed: how the members are set, and what goes wrong when.

The settings are such that time-outs, drains and rebalances meet each other often: short sessions,
short rebalance time-outs, work that takes long now and then. Most faults come at a time that
is drawn, and some in a state of the group; see ``targets``.
"""

from __future__ import annotations

import random
from typing import Final

from kgroup.testing.simulation.fault_generation import KINDS, Draw
from kgroup.testing.simulation.faults import Fault, TopicDeleted
from kgroup.testing.simulation.network import Latency
from kgroup.testing.simulation.partition_handlers import OWN_OFFSETS, PLAIN, SEEKS
from kgroup.testing.simulation.plan import MemberPlan, Plan, Scenario
from kgroup.testing.simulation.targeted_faults import targeted

_HOUR: Final = 3600.0
_CALM: Final = 0.9
"""The part of a plan in which faults begin; the rest sees the end of the last ones."""
_ONE_IN_THREE: Final = 3
_HABITS: Final = (PLAIN, PLAIN, PLAIN, PLAIN, OWN_OFFSETS, SEEKS)
_TRANSACTIONAL: Final = (0.0, 0.0, 0.5)
_ISOLATION: Final = ("read_committed", "read_committed", "read_uncommitted")
_SESSIONS: Final = {6.0: (1.0, 2.0), 10.0: (1.0, 3.0), 20.0: (2.0, 3.0), 45.0: (3.0, 3.0)}
"""Session time-outs, each with the seconds between heartbeats that go with it."""
_LOADS: Final = ((3.0, 6, (0.0, 0.01)), (4.0, 3, (0.01, 0.2)), (6.0, 2, (0.1, 1.0)))
"""Seconds between writes, records of one write, seconds of work for a record: never more work
than one member of one partition can do in a third of its time."""


def draw(scenario: Scenario, seed: int) -> Plan:
    """The plan of one seed; the same for the same seed and scenario, wherever it is drawn."""
    chance = random.Random(f"{seed} plan")
    topics = dict(scenario.topics or _topics(chance))
    session = chance.choice(tuple(_SESSIONS))
    rebalance = chance.choice((5.0, 10.0, 30.0, 60.0))
    config = {
        "session_timeout": session,
        "rebalance_timeout": rebalance,
        "heartbeat_interval": chance.choice(_SESSIONS[session]),
        "drain_timeout": chance.choice((1.0, 5.0, 30.0)),
        "request_timeout": chance.choice((5.0, 10.0)),
        "assignors": chance.choice((["range"], ["roundrobin"], ["range", "roundrobin"])),
        "partition_watch_interval": chance.choice((5.0, 20.0)),
    }
    every, at_once, work = chance.choice(_LOADS)
    static = chance.randrange(_ONE_IN_THREE) == 0
    members = tuple(
        MemberPlan(
            name=f"m{number}",
            start_at=round(chance.uniform(0.0, 10.0), 3),
            group_instance_id=f"instance-{number}" if static else None,
        )
        for number in range(1, scenario.members + 1)
    )
    delay = chance.choice((0, 500, 3000))
    latency = chance.choice((Latency(0.0002, 0.002), Latency(0.001, 0.02), Latency(0.01, 0.2)))
    # Drawn apart, so that all else of a plan is the same whatever its programs do.
    apart = random.Random(f"{seed} habits")
    habit = apart.choice(_HABITS)
    transactional = apart.choice(_TRANSACTIONAL)
    if transactional:
        config["isolation_level"] = apart.choice(_ISOLATION)
    aimed = tuple(targeted(seed, scenario, topics, members, session))
    if any(map(_takes_logs, aimed)):
        habit = PLAIN
    drawn = sorted(
        (*_faults(chance, scenario, topics, members), *aimed), key=lambda fault: fault.at
    )
    return Plan(
        seed=seed,
        duration=scenario.duration,
        brokers=scenario.brokers,
        topics=topics,
        members=members,
        config={**config, **scenario.config},
        broker_settings={
            "group.initial.rebalance.delay.ms": delay,
            "group.min.session.timeout.ms": 1000,
            "auto.create.topics.enable": False,
            "default.replication.factor": scenario.brokers,
            **scenario.broker_settings,
        },
        latency=latency,
        records_every=every,
        records_at_once=at_once,
        work=work,
        faults=tuple(fault for fault in drawn if habit == PLAIN or not _takes_logs(fault)),
        habit=habit,
        transactional=transactional,
    )


def _takes_logs(fault: Fault) -> bool:
    """Whether the offsets that a program keeps by itself mean something else afterwards."""
    return isinstance(fault, TopicDeleted)


def _topics(chance: random.Random) -> dict[str, int]:
    return chance.choice(({"orders": 6}, {"orders": 3, "payments": 4}, {"orders": 1}))


def _faults(
    chance: random.Random,
    scenario: Scenario,
    topics: dict[str, int],
    members: tuple[MemberPlan, ...],
) -> tuple[Fault, ...]:
    if not scenario.faults_per_hour:
        return ()
    found: list[Fault] = []
    at = 0.0
    kinds = tuple(KINDS.values())
    weights = [kind.weight for kind in kinds]
    while True:
        at = round(at + chance.expovariate(scenario.faults_per_hour / _HOUR), 3)
        if at > scenario.duration * _CALM:
            return tuple(found)
        longest = scenario.duration - at
        kind = chance.choices(kinds, weights)[0]
        found.append(kind.draw(Draw(chance, at, longest, scenario, topics, members)))
