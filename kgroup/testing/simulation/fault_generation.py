"""Draws single faults: for each kind what it happens to, and for how long."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, final

import attrs

from kgroup.testing.simulation import faults
from kgroup.testing.simulation.faults import EVERYBODY, Fault
from kgroup.testing.simulation.plan import MemberPlan, Scenario


@final
class Draw:
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
        self.longest = longest
        self._scenario = scenario
        self._topics = topics
        self._members = members

    def seconds(self, *choices: float) -> float:
        """How long: somewhere below one of these, and over before the plan is."""
        most = self.chance.choice(choices)
        return round(min(self.chance.uniform(most / 10, most), self.longest), 3)

    @property
    def processes(self) -> tuple[str, ...]:
        """All programs."""
        return tuple(member.name for member in self._members)

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


def _freeze(draw: Draw) -> Fault:
    return faults.Freeze(at=draw.at, process=draw.process, seconds=draw.seconds(*_SHORT_OR_LONG))


def _crash(draw: Draw) -> Fault:
    return faults.Crash(at=draw.at, process=draw.process, seconds=draw.seconds(1.0, 5.0, 60.0))


def _stop(draw: Draw) -> Fault:
    return faults.Stop(at=draw.at, process=draw.process, seconds=draw.seconds(1.0, 5.0, 60.0))


def _twin(draw: Draw) -> Fault:
    return faults.Twin(at=draw.at, process=draw.process, seconds=draw.seconds(10.0, 60.0))


def _slow_work(draw: Draw) -> Fault:
    times = draw.chance.choice((10.0, 100.0))
    return faults.SlowWork(
        at=draw.at, process=draw.process, times=times, seconds=draw.seconds(15.0, 60.0)
    )


def _split(draw: Draw) -> Fault:
    return faults.Split(
        at=draw.at,
        process=draw.process,
        broker=draw.one_or_all_brokers,
        seconds=draw.seconds(*_SHORT_OR_LONG),
    )


def _stall(draw: Draw) -> Fault:
    return faults.Stall(
        at=draw.at,
        process=draw.process,
        broker=EVERYBODY,
        seconds=draw.seconds(15.0, 30.0),
    )


def _cut(draw: Draw) -> Fault:
    process = draw.chance.choice((EVERYBODY, draw.process))
    return faults.Cut(at=draw.at, process=process, broker=draw.one_or_all_brokers)


def _slow_network(draw: Draw) -> Fault:
    return faults.SlowNetwork(
        at=draw.at,
        process=draw.process,
        broker=draw.one_or_all_brokers,
        delay=draw.seconds(0.5, 4.0, 8.0),
        seconds=draw.seconds(10.0, 30.0),
    )


def _broker_stops(draw: Draw) -> Fault:
    return faults.BrokerStops(
        at=draw.at, broker=draw.broker, seconds=draw.seconds(5.0, 60.0), loading=draw.loading
    )


def _broker_dies(draw: Draw) -> Fault:
    return faults.BrokerDies(
        at=draw.at, broker=draw.broker, seconds=draw.seconds(5.0, 60.0), loading=draw.loading
    )


def _slow_broker(draw: Draw) -> Fault:
    return faults.SlowBroker(
        at=draw.at,
        broker=draw.broker,
        delay=draw.seconds(0.5, 4.0),
        seconds=draw.seconds(5.0, 30.0),
    )


def _coordinator_moves(draw: Draw) -> Fault:
    return faults.CoordinatorMoves(
        at=draw.at,
        away=draw.chance.choice((0.0, draw.seconds(1.0, 5.0))),
        loading=draw.loading,
    )


def _leader_moves(draw: Draw) -> Fault:
    topic, partition = draw.partition
    return faults.LeaderMoves(at=draw.at, topic=topic, partition=partition)


def _more_partitions(draw: Draw) -> Fault:
    return faults.MorePartitions(at=draw.at, topic=draw.topic, by=draw.chance.randint(1, 2))


def _topic_deleted(draw: Draw) -> Fault:
    topic, partition = draw.partition
    return faults.TopicDeleted(
        at=draw.at,
        topic=topic,
        partitions=draw.chance.choice((partition + 1, draw.partitions_of(topic))),
        seconds=draw.seconds(0.5, 5.0, 30.0),
    )


@final
@attrs.frozen
class Kind:
    """A kind of fault: what draws one, and how often it comes compared with the others."""

    draw: Callable[[Draw], Fault]
    weight: float


KINDS: Final[Mapping[type[Fault], Kind]] = {
    faults.Freeze: Kind(_freeze, 4.0),
    faults.Crash: Kind(_crash, 3.0),
    faults.Stop: Kind(_stop, 3.0),
    faults.Twin: Kind(_twin, 1.0),
    faults.SlowWork: Kind(_slow_work, 2.0),
    faults.Split: Kind(_split, 3.0),
    faults.Stall: Kind(_stall, 4.0),
    faults.Cut: Kind(_cut, 2.0),
    faults.SlowNetwork: Kind(_slow_network, 1.0),
    faults.BrokerStops: Kind(_broker_stops, 1.0),
    faults.BrokerDies: Kind(_broker_dies, 1.0),
    faults.SlowBroker: Kind(_slow_broker, 1.0),
    faults.CoordinatorMoves: Kind(_coordinator_moves, 3.0),
    faults.LeaderMoves: Kind(_leader_moves, 1.0),
    faults.MorePartitions: Kind(_more_partitions, 0.5),
    faults.TopicDeleted: Kind(_topic_deleted, 1.5),
}
"""All kinds of faults."""
