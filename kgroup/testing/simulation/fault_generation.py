"""Generates single faults: for each kind, which members it affects and for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, final

import attrs

from kgroup.testing.simulation import faults
from kgroup.testing.simulation.faults import ALL, Fault
from kgroup.testing.simulation.plan import MemberPlan, Scenario


@final
class FaultChoices:
    """Random choices for one fault: of members, brokers, topics and durations."""

    def __init__(
        self,
        random: Random,
        at: float,
        longest: float,
        scenario: Scenario,
        topics: dict[str, int],
        members: tuple[MemberPlan, ...],
    ) -> None:
        self.random = random
        self.at = at
        self.longest = longest
        self._scenario = scenario
        self._topics = topics
        self._members = members

    def seconds(self, *choices: float) -> float:
        """A duration: up to one of these, and ending before the plan does."""
        most = self.random.choice(choices)
        return round(min(self.random.uniform(most / 10, most), self.longest), 3)

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of all programs."""
        return tuple(member.name for member in self._members)

    @property
    def process(self) -> str:
        """The name of one of the programs."""
        return self.random.choice(self._members).name

    @property
    def one_or_all_brokers(self) -> str:
        """A broker, or `ALL`."""
        return self.random.choice((ALL, self.broker))

    @property
    def broker(self) -> str:
        """The name of one of the brokers."""
        return f"b{self.random.randint(1, self._scenario.brokers)}"

    @property
    def loading(self) -> float:
        """How long a coordinator that moves takes to load."""
        return self.random.choice((0.0, self.seconds(1.0, 5.0)))

    @property
    def topic(self) -> str:
        """The name of one of the topics."""
        return self.random.choice(sorted(self._topics))

    def partitions_of(self, topic: str) -> int:
        """The number of partitions that a topic has at the beginning."""
        return self._topics[topic]

    @property
    def partition(self) -> tuple[str, int]:
        """A topic and one of the partitions that it has from the beginning."""
        topic = self.topic
        return topic, self.random.randrange(self._topics[topic])


_SHORT_OR_LONG: Final = (2.0, 15.0, 60.0)


def _freeze(choices: FaultChoices) -> Fault:
    return faults.Freeze(
        at=choices.at, process=choices.process, seconds=choices.seconds(*_SHORT_OR_LONG)
    )


def _crash(choices: FaultChoices) -> Fault:
    return faults.Crash(
        at=choices.at, process=choices.process, seconds=choices.seconds(1.0, 5.0, 60.0)
    )


def _stop(choices: FaultChoices) -> Fault:
    return faults.Stop(
        at=choices.at, process=choices.process, seconds=choices.seconds(1.0, 5.0, 60.0)
    )


def _second_program(choices: FaultChoices) -> Fault:
    return faults.SecondProgram(
        at=choices.at, process=choices.process, seconds=choices.seconds(10.0, 60.0)
    )


def _slow_work(choices: FaultChoices) -> Fault:
    times = choices.random.choice((10.0, 100.0))
    return faults.SlowWork(
        at=choices.at, process=choices.process, times=times, seconds=choices.seconds(15.0, 60.0)
    )


def _split(choices: FaultChoices) -> Fault:
    return faults.Split(
        at=choices.at,
        process=choices.process,
        broker=choices.one_or_all_brokers,
        seconds=choices.seconds(*_SHORT_OR_LONG),
    )


def _stall(choices: FaultChoices) -> Fault:
    return faults.Stall(
        at=choices.at,
        process=choices.process,
        broker=ALL,
        seconds=choices.seconds(15.0, 30.0),
    )


def _cut(choices: FaultChoices) -> Fault:
    process = choices.random.choice((ALL, choices.process))
    return faults.Cut(at=choices.at, process=process, broker=choices.one_or_all_brokers)


def _slow_network(choices: FaultChoices) -> Fault:
    return faults.SlowNetwork(
        at=choices.at,
        process=choices.process,
        broker=choices.one_or_all_brokers,
        delay=choices.seconds(0.5, 4.0, 8.0),
        seconds=choices.seconds(10.0, 30.0),
    )


def _broker_stops(choices: FaultChoices) -> Fault:
    return faults.BrokerStops(
        at=choices.at,
        broker=choices.broker,
        seconds=choices.seconds(5.0, 60.0),
        loading=choices.loading,
    )


def _broker_dies(choices: FaultChoices) -> Fault:
    return faults.BrokerDies(
        at=choices.at,
        broker=choices.broker,
        seconds=choices.seconds(5.0, 60.0),
        loading=choices.loading,
    )


def _slow_broker(choices: FaultChoices) -> Fault:
    return faults.SlowBroker(
        at=choices.at,
        broker=choices.broker,
        delay=choices.seconds(0.5, 4.0),
        seconds=choices.seconds(5.0, 30.0),
    )


def _coordinator_moves(choices: FaultChoices) -> Fault:
    return faults.CoordinatorMoves(
        at=choices.at,
        away=choices.random.choice((0.0, choices.seconds(1.0, 5.0))),
        loading=choices.loading,
    )


def _leader_moves(choices: FaultChoices) -> Fault:
    topic, partition = choices.partition
    return faults.LeaderMoves(at=choices.at, topic=topic, partition=partition)


def _more_partitions(choices: FaultChoices) -> Fault:
    return faults.MorePartitions(
        at=choices.at, topic=choices.topic, by=choices.random.randint(1, 2)
    )


def _sessions_end(choices: FaultChoices) -> Fault:
    return faults.SessionsEnd(at=choices.at, process=choices.process)


def _user_revoked(choices: FaultChoices) -> Fault:
    return faults.UserRevoked(
        at=choices.at, process=choices.process, seconds=choices.seconds(*_SHORT_OR_LONG)
    )


def _password_changes(choices: FaultChoices) -> Fault:
    return faults.PasswordChanges(
        at=choices.at, process=choices.process, seconds=choices.seconds(*_SHORT_OR_LONG)
    )


def _right_revoked(choices: FaultChoices) -> Fault:
    return faults.RightRevoked(
        at=choices.at,
        process=choices.process,
        resource_type=choices.random.choice(("group", "topic")),
        seconds=choices.seconds(*_SHORT_OR_LONG),
    )


def _topic_deleted(choices: FaultChoices) -> Fault:
    topic, partition = choices.partition
    return faults.TopicDeleted(
        at=choices.at,
        topic=topic,
        partitions=choices.random.choice((partition + 1, choices.partitions_of(topic))),
        seconds=choices.seconds(0.5, 5.0, 30.0),
    )


@final
@attrs.frozen
class FaultKind:
    """A kind of fault: the function that generates one, and how frequent it is."""

    generate: Callable[[FaultChoices], Fault]
    weight: float


KINDS: Final[Mapping[type[Fault], FaultKind]] = {
    faults.Freeze: FaultKind(_freeze, 4.0),
    faults.Crash: FaultKind(_crash, 3.0),
    faults.Stop: FaultKind(_stop, 3.0),
    faults.SecondProgram: FaultKind(_second_program, 1.0),
    faults.SlowWork: FaultKind(_slow_work, 2.0),
    faults.Split: FaultKind(_split, 3.0),
    faults.Stall: FaultKind(_stall, 4.0),
    faults.Cut: FaultKind(_cut, 2.0),
    faults.SlowNetwork: FaultKind(_slow_network, 1.0),
    faults.BrokerStops: FaultKind(_broker_stops, 1.0),
    faults.BrokerDies: FaultKind(_broker_dies, 1.0),
    faults.SlowBroker: FaultKind(_slow_broker, 1.0),
    faults.CoordinatorMoves: FaultKind(_coordinator_moves, 3.0),
    faults.LeaderMoves: FaultKind(_leader_moves, 1.0),
    faults.MorePartitions: FaultKind(_more_partitions, 0.5),
    faults.TopicDeleted: FaultKind(_topic_deleted, 1.5),
}
"""All kinds of faults that can happen in every plan."""

LOGIN_KINDS: Final[Mapping[type[Fault], FaultKind]] = {
    faults.SessionsEnd: FaultKind(_sessions_end, 2.0),
    faults.UserRevoked: FaultKind(_user_revoked, 2.0),
    faults.PasswordChanges: FaultKind(_password_changes, 2.0),
    faults.RightRevoked: FaultKind(_right_revoked, 2.0),
}
"""The kinds of faults that happen beside them in a plan with logins."""
