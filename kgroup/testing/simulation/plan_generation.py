"""Generates a plan from a seed: the members' settings, the load and the faults.

The settings make time-outs, drains and rebalances overlap often: sessions and rebalance time-outs
are short, and work takes long now and then, also longer than a drain. Most faults come at a random
time; some wait for a state of the group (``targeted_faults``), some for a frozen member to wake
(``waking_faults``).

The order in which a generator is used, and the text that seeds it, are part of every plan: to
change either changes what all seeds mean. A new choice takes a generator of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

import attrs

from kgroup.security.settings import SaslMechanism
from kgroup.testing.simulation.fault_generation import KINDS, LOGIN_KINDS, FaultChoices, FaultKind
from kgroup.testing.simulation.faults import Fault, TopicDeleted
from kgroup.testing.simulation.network import Latency
from kgroup.testing.simulation.partition_handlers import (
    OWN_OFFSETS,
    PLAIN,
    SEEKS,
    TRANSACTIONS,
    WORKER,
)
from kgroup.testing.simulation.plan import LoginPlan, MemberPlan, Plan, Scenario, with_given
from kgroup.testing.simulation.targeted_faults import generate_targeted_faults
from kgroup.testing.simulation.waking_faults import generate_waking_faults

_HOUR: Final = 3600.0
_FAULTS_BEGIN: Final = 0.9
"""The part of a plan in which faults begin; in the rest the last ones end."""
_ONE_IN_THREE: Final = 3
_DRAINS: Final = 2
"""Long work takes up to so many times the longest drain."""
_LONGEST_WORK: Final = 0.2
"""The part of a plan that long work takes at most, so that the plan has room for other work."""
_HANDLERS: Final = (PLAIN, PLAIN, PLAIN, WORKER, OWN_OFFSETS, SEEKS)
_TRANSACTIONS: Final = 0.5
"""The probability that members commit offsets in transactions, where the handler can be plain."""
_TRANSACTIONAL: Final = (0.0, 0.0, 0.5)
_ISOLATION: Final = ("read_committed", "read_committed", "read_uncommitted")
_MECHANISMS: Final = (
    (SaslMechanism.PLAIN, (None, 5.0, 30.0, 120.0)),
    (SaslMechanism.SCRAM_SHA_256, (None, 60.0)),
)
"""How members log in, and after how many seconds again; SCRAM takes the processor 3 ms a login."""
_SESSIONS: Final = {6.0: (1.0, 2.0), 10.0: (1.0, 3.0), 20.0: (2.0, 3.0), 45.0: (3.0, 3.0)}
"""Session time-outs, each with the heartbeat intervals that go with it."""
_LOADS: Final = ((3.0, 6, (0.0, 0.01)), (4.0, 3, (0.01, 0.2)), (6.0, 2, (0.1, 1.0)))
"""Seconds between writes, the most records of a write, seconds of work for a record. One member
with one partition can do all the work in a third of its time."""


def generate_plan(scenario: Scenario, seed: int) -> Plan:
    """Generate the plan of a seed; the same for the same seed and scenario, on every machine.

    Args:
        scenario: what all seeds share.
        seed: any integer.
    """
    random = Random(f"{seed} plan")
    topics = dict(scenario.topics or _topics(random))
    session = random.choice(tuple(_SESSIONS))
    rebalance = random.choice((5.0, 10.0, 30.0, 60.0))
    config = {
        "session_timeout": session,
        "rebalance_timeout": rebalance,
        "heartbeat_interval": random.choice(_SESSIONS[session]),
        "drain_timeout": random.choice((1.0, 5.0, 30.0)),
        "request_timeout": random.choice((5.0, 10.0)),
        "assignors": random.choice((["range"], ["roundrobin"], ["range", "roundrobin"])),
        "partition_watch_interval": random.choice((5.0, 20.0)),
    }
    every, at_once, work = random.choice(_LOADS)
    static = random.randrange(_ONE_IN_THREE) == 0
    members = tuple(
        MemberPlan(
            name=f"m{number}",
            start_at=round(random.uniform(0.0, 10.0), 3),
            group_instance_id=f"instance-{number}" if static else None,
        )
        for number in range(1, scenario.members + 1)
    )
    delay = random.choice((0, 500, 3000))
    latency = random.choice((Latency(0.0002, 0.002), Latency(0.001, 0.02), Latency(0.01, 0.2)))
    # A generator of its own, so that these choices change nothing else in the plan.
    separate = Random(f"{seed} habits")
    partition_handler = separate.choice(_HANDLERS)
    transactional = separate.choice(_TRANSACTIONAL)
    if transactional:
        config["isolation_level"] = separate.choice(_ISOLATION)
    settings = with_given(config, scenario.config)
    targeted = tuple(generate_targeted_faults(seed, scenario, topics, members, session))
    waking = tuple(generate_waking_faults(seed, scenario, members, session))
    login_plan = _login_plan(seed)
    logins = login_plan if scenario.logins else None
    login_faults = () if logins is None else _login_faults(seed, scenario, topics, members)
    if scenario.deletes_topics and any(map(_resets_offsets, targeted)):
        partition_handler = PLAIN
    deletes_topics = scenario.deletes_topics and partition_handler == PLAIN
    # A producer cannot log in. The handler is the same whether or not the scenario has logins.
    if partition_handler == PLAIN and login_plan is None and _commits_in_transactions(seed):
        partition_handler = TRANSACTIONS
    all_faults = sorted(
        (*_faults(random, scenario, topics, members), *targeted, *waking, *login_faults),
        key=lambda fault: fault.at,
    )
    return Plan(
        seed=seed,
        duration=scenario.duration,
        brokers=scenario.brokers,
        topics=topics,
        members=members,
        config=settings,
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
        long_work=_long_work(seed, scenario, settings["drain_timeout"]),
        faults=tuple(fault for fault in all_faults if deletes_topics or not _resets_offsets(fault)),
        partition_handler=partition_handler,
        transactional=transactional,
        wall_clock_error=scenario.wall_clock_error,
        logins=logins,
        exactly_once=scenario.exactly_once,
    )


def _resets_offsets(fault: Fault) -> bool:
    """Whether a fault makes the offsets that a program has stored itself meaningless."""
    return isinstance(fault, TopicDeleted)


def _topics(random: Random) -> dict[str, int]:
    return random.choice(({"orders": 6}, {"orders": 3, "payments": 4}, {"orders": 1}))


def _long_work(seed: int, scenario: Scenario, drain_timeout: float) -> float:
    """In some plans a record takes longer, now and then, than a drain waits for it."""
    if Random(f"{seed} long work").randrange(_ONE_IN_THREE):
        return 0.0
    return min(_DRAINS * drain_timeout, scenario.duration * _LONGEST_WORK)


def _commits_in_transactions(seed: int) -> bool:
    return Random(f"{seed} offsets in transactions").random() < _TRANSACTIONS


def _login_plan(seed: int) -> LoginPlan | None:
    """How members log in, where the scenario has logins."""
    random = Random(f"{seed} logins")
    if random.randrange(_ONE_IN_THREE):
        return None
    mechanism, lifetimes = random.choice(_MECHANISMS)
    return LoginPlan(mechanism=mechanism, session_lifetime=random.choice(lifetimes))


def _login_faults(
    seed: int, scenario: Scenario, topics: dict[str, int], members: tuple[MemberPlan, ...]
) -> tuple[Fault, ...]:
    random = Random(f"{seed} login faults")
    rarer = attrs.evolve(scenario, faults_per_hour=scenario.faults_per_hour / 3)
    return _faults(random, rarer, topics, members, LOGIN_KINDS)


def _faults(
    random: Random,
    scenario: Scenario,
    topics: dict[str, int],
    members: tuple[MemberPlan, ...],
    kinds_of_faults: Mapping[type[Fault], FaultKind] = KINDS,
) -> tuple[Fault, ...]:
    if not scenario.faults_per_hour:
        return ()
    found: list[Fault] = []
    at = 0.0
    kinds = tuple(kinds_of_faults.values())
    weights = [kind.weight for kind in kinds]
    while True:
        at = round(at + random.expovariate(scenario.faults_per_hour / _HOUR), 3)
        if at > scenario.duration * _FAULTS_BEGIN:
            return tuple(found)
        longest = scenario.duration - at
        kind = random.choices(kinds, weights)[0]
        found.append(kind.generate(FaultChoices(random, at, longest, scenario, topics, members)))
