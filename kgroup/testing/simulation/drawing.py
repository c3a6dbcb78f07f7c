"""Draws a plan from a seed: how the members are set, and what goes wrong when.

The settings are such that time-outs, drains and rebalances meet each other often: short sessions,
short rebalance time-outs, work that takes long now and then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from kgroup.testing.simulation import faults
from kgroup.testing.simulation.faults import EVERYBODY, Fault
from kgroup.testing.simulation.network import Latency
from kgroup.testing.simulation.plan import MemberPlan, Plan, Scenario

_HOUR: Final = 3600.0
_CALM: Final = 0.9
"""The part of a plan in which faults begin; the rest sees the end of the last ones."""
_ONE_IN_THREE: Final = 3
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
    return Plan(
        seed=seed,
        duration=scenario.duration,
        brokers=scenario.brokers,
        topics=topics,
        members=members,
        config={**config, **scenario.config},
        broker_settings={
            "group.initial.rebalance.delay.ms": chance.choice((0, 500, 3000)),
            "group.min.session.timeout.ms": 1000,
            "auto.create.topics.enable": False,
            "default.replication.factor": scenario.brokers,
            **scenario.broker_settings,
        },
        latency=chance.choice((Latency(0.0002, 0.002), Latency(0.001, 0.02), Latency(0.01, 0.2))),
        records_every=every,
        records_at_once=at_once,
        work=work,
        faults=_faults(chance, scenario, topics, members),
    )


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
    kinds, weights = zip(*_KINDS, strict=True)
    while True:
        at = round(at + chance.expovariate(scenario.faults_per_hour / _HOUR), 3)
        if at > scenario.duration * _CALM:
            return tuple(found)
        longest = scenario.duration - at
        make = chance.choices(kinds, weights)[0]
        found.append(make(_Draw(chance, at, longest, scenario, topics, members)))


class _Draw:
    """The choices of one fault."""

    def __init__(
        self,
        chance: random.Random,
        at: float,
        longest: float,
        scenario: Scenario,
        topics: dict[str, int],
        members: tuple[MemberPlan, ...],
    ) -> None:
        self.chance = chance
        self.at = at
        self._longest = longest
        self._scenario = scenario
        self._topics = topics
        self._members = members

    def seconds(self, *choices: float) -> float:
        """How long: somewhere below one of these, and over before the plan is."""
        most = self.chance.choice(choices)
        return round(min(self.chance.uniform(most / 10, most), self._longest), 3)

    @property
    def process(self) -> str:
        """One of the programs."""
        return self.chance.choice(self._members).name

    @property
    def one_or_all_brokers(self) -> str:
        """A broker, or all."""
        return self.chance.choice((EVERYBODY, self.broker))

    @property
    def broker(self) -> str:
        """One of the brokers."""
        return f"b{self.chance.randint(1, self._scenario.brokers)}"

    @property
    def loading(self) -> float:
        """For how long a coordinator that moves is loaded."""
        return self.chance.choice((0.0, self.seconds(1.0, 5.0)))

    @property
    def topic(self) -> str:
        """One of the topics."""
        return self.chance.choice(sorted(self._topics))

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has at the beginning."""
        return self._topics[topic]

    @property
    def partition(self) -> tuple[str, int]:
        """A topic and one of the partitions that it has from the beginning."""
        topic = self.topic
        return topic, self.chance.randrange(self._topics[topic])


_SHORT_OR_LONG: Final = (2.0, 15.0, 60.0)


def _freeze(draw: _Draw) -> Fault:
    return faults.Freeze(at=draw.at, process=draw.process, seconds=draw.seconds(*_SHORT_OR_LONG))


def _crash(draw: _Draw) -> Fault:
    return faults.Crash(at=draw.at, process=draw.process, seconds=draw.seconds(1.0, 5.0, 60.0))


def _stop(draw: _Draw) -> Fault:
    return faults.Stop(at=draw.at, process=draw.process, seconds=draw.seconds(1.0, 5.0, 60.0))


def _twin(draw: _Draw) -> Fault:
    return faults.Twin(at=draw.at, process=draw.process, seconds=draw.seconds(10.0, 60.0))


def _slow_work(draw: _Draw) -> Fault:
    times = draw.chance.choice((10.0, 100.0))
    return faults.SlowWork(
        at=draw.at, process=draw.process, times=times, seconds=draw.seconds(15.0, 60.0)
    )


def _split(draw: _Draw) -> Fault:
    return faults.Split(
        at=draw.at,
        process=draw.process,
        broker=draw.one_or_all_brokers,
        seconds=draw.seconds(*_SHORT_OR_LONG),
    )


def _stall(draw: _Draw) -> Fault:
    return faults.Stall(
        at=draw.at,
        process=draw.process,
        broker=EVERYBODY,
        seconds=draw.seconds(15.0, 30.0),
    )


def _cut(draw: _Draw) -> Fault:
    process = draw.chance.choice((EVERYBODY, draw.process))
    return faults.Cut(at=draw.at, process=process, broker=draw.one_or_all_brokers)


def _slow_network(draw: _Draw) -> Fault:
    return faults.SlowNetwork(
        at=draw.at,
        process=draw.process,
        broker=draw.one_or_all_brokers,
        delay=draw.seconds(0.5, 4.0, 8.0),
        seconds=draw.seconds(10.0, 30.0),
    )


def _broker_stops(draw: _Draw) -> Fault:
    return faults.BrokerStops(
        at=draw.at, broker=draw.broker, seconds=draw.seconds(5.0, 60.0), loading=draw.loading
    )


def _broker_dies(draw: _Draw) -> Fault:
    return faults.BrokerDies(
        at=draw.at, broker=draw.broker, seconds=draw.seconds(5.0, 60.0), loading=draw.loading
    )


def _slow_broker(draw: _Draw) -> Fault:
    return faults.SlowBroker(
        at=draw.at,
        broker=draw.broker,
        delay=draw.seconds(0.5, 4.0),
        seconds=draw.seconds(5.0, 30.0),
    )


def _coordinator_moves(draw: _Draw) -> Fault:
    return faults.CoordinatorMoves(
        at=draw.at,
        away=draw.chance.choice((0.0, draw.seconds(1.0, 5.0))),
        loading=draw.loading,
    )


def _leader_moves(draw: _Draw) -> Fault:
    topic, partition = draw.partition
    return faults.LeaderMoves(at=draw.at, topic=topic, partition=partition)


def _more_partitions(draw: _Draw) -> Fault:
    return faults.MorePartitions(at=draw.at, topic=draw.topic, by=draw.chance.randint(1, 2))


def _topic_deleted(draw: _Draw) -> Fault:
    topic, partition = draw.partition
    return faults.TopicDeleted(
        at=draw.at,
        topic=topic,
        partitions=draw.chance.choice((partition + 1, draw.partitions_of(topic))),
        seconds=draw.seconds(0.5, 5.0, 30.0),
    )


_KINDS: Final[tuple[tuple[Callable[[_Draw], Fault], float], ...]] = (
    (_freeze, 4.0),
    (_crash, 3.0),
    (_stop, 3.0),
    (_twin, 1.0),
    (_slow_work, 2.0),
    (_split, 3.0),
    (_stall, 4.0),
    (_cut, 2.0),
    (_slow_network, 1.0),
    (_broker_stops, 1.0),
    (_broker_dies, 1.0),
    (_slow_broker, 1.0),
    (_coordinator_moves, 3.0),
    (_leader_moves, 1.0),
    (_more_partitions, 0.5),
    (_topic_deleted, 1.5),
)
"""Each kind of fault, and how often it comes compared with the others."""
