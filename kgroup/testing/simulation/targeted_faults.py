"""Faults that wait for a state of the group, so that rare combinations are covered.

A *cell* is a kind of fault, a state of a member and a state of the coordinator. The seed alone
decides which cells its plan targets. Consecutive seeds walk through all cells, so a campaign covers
as much as it has seeds for, and a seed is the same simulation in every campaign. For a state that
is rare, the plan first gets another fault that leads to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

import attrs

from kgroup.broker.groups.states import GroupState
from kgroup.testing.simulation import faults
from kgroup.testing.simulation.fault_generation import KINDS, FaultChoices
from kgroup.testing.simulation.faults import ALL, Fault, Moment
from kgroup.testing.simulation.plan import MemberPlan, Scenario
from kgroup.testing.simulation.states import (
    ABSENT,
    AWAY,
    COORDINATOR_STATES,
    DEAD,
    DRAINING,
    FROZEN,
    JOINING,
    LEAVING,
    LOADING,
    MEMBER_STATES,
    SEARCHING,
    SYNCING,
)

Cell = tuple[str, str, str]
"""The name of a kind of fault, the state of a member, the state of the coordinator."""

CELLS_PER_PLAN: Final = 2
"""How many cells a plan targets."""
_ALL_STARTED: Final = 15.0
"""Seconds after which all programs have been started."""
_LATEST: Final = 0.6
"""The part of a plan in which targeted faults begin to wait for their moment."""
_LEAD_DELAY: Final = 3.0
"""The most seconds until a fault that leads to the state begins."""
_HALF: Final = 0.5
_EMPTY: Final = GroupState.EMPTY.value
_PREPARING: Final = GroupState.PREPARING_REBALANCE.value
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE.value


def _cells() -> Iterator[Cell]:
    for kind in KINDS:
        for member in MEMBER_STATES:
            for coordinator in COORDINATOR_STATES:
                yield kind.__name__, member, coordinator


CELLS: Final = tuple(_cells())
"""All cells. None is known to be unreachable."""
_STRIDE: Final = next(
    one for one in range(round(len(CELLS) * 0.382), len(CELLS)) if math.gcd(one, len(CELLS)) == 1
)
"""The distance from one cell to the next: large, so that a few seeds sample all kinds."""
_BY_NAME: Final = {kind.__name__: one for kind, one in KINDS.items()}


def generate_targeted_faults(
    seed: int,
    scenario: Scenario,
    topics: Mapping[str, int],
    members: Sequence[MemberPlan],
    session: float,
) -> Iterator[Fault]:
    """The targeted faults of a seed's plan, and the faults that lead to their states.

    Args:
        seed: decides which cells.
        scenario: decides whether there are faults at all.
        topics: each topic with its number of partitions.
        members: the members.
        session: their session time-out.
    """
    if not scenario.faults_per_hour:
        return
    random = Random(f"{seed} targets")
    for number in range(CELLS_PER_PLAN):
        name, member, coordinator = CELLS[(seed * CELLS_PER_PLAN + number) * _STRIDE % len(CELLS)]
        latest = scenario.duration * _LATEST
        at = round(random.uniform(min(_ALL_STARTED, latest / 2), latest), 3)
        longest = (scenario.duration - at) / 2
        choices = FaultChoices(random, at, longest, scenario, dict(topics), tuple(members))
        fault = attrs.evolve(
            _BY_NAME[name].generate(choices), when=Moment(member=member, coordinator=coordinator)
        )
        yield fault
        process = getattr(fault, "process", ALL)
        if process == ALL:
            process = choices.process
        for lead in _LEADS.get(coordinator, ()):
            yield from lead(choices, process, session)
        if coordinator not in _WITHOUT_MEMBERS:
            for lead in _LEADS.get(member, ()):
                yield from lead(choices, process, session)


# Faults that lead to a state. They begin about when the targeted fault begins to wait.

_Lead = Callable[[FaultChoices, str, float], Iterator[Fault]]


def _later(choices: FaultChoices) -> float:
    return round(choices.at + choices.random.uniform(0.0, _LEAD_DELAY), 3)


def _no_coordinator(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    del process, session
    away = choices.seconds(1.0, 5.0)
    yield faults.CoordinatorMoves(at=_later(choices), away=away, loading=choices.loading)


def _a_loading_coordinator(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    del process, session
    yield faults.CoordinatorMoves(at=_later(choices), away=0.0, loading=choices.seconds(1.0, 5.0))


def _no_members(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    """All members stop, or all are disconnected for longer than their sessions."""
    if choices.random.random() < _HALF:
        for name in choices.processes:
            yield faults.Stop(at=choices.at, process=name, seconds=choices.seconds(5.0, 20.0))
        return
    seconds = min(session + choices.seconds(5.0, 20.0), choices.longest)
    yield faults.Split(at=choices.at, process=ALL, broker=ALL, seconds=seconds)
    if choices.random.random() < _HALF:
        yield faults.Freeze(at=_later(choices), process=process, seconds=seconds)


def _a_rebalance(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    """Another member stops and comes back."""
    del session
    others = [one for one in choices.processes if one != process] or [process]
    other = choices.random.choice(others)
    yield faults.Stop(at=_later(choices), process=other, seconds=choices.seconds(2.0, 10.0))


def _a_frozen_member(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    seconds = min(
        choices.random.choice((1.0, session)) + choices.seconds(5.0, 20.0), choices.longest
    )
    yield faults.Freeze(at=_later(choices), process=process, seconds=round(seconds, 3))


def _a_stopped_member(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    del session
    yield faults.Stop(at=_later(choices), process=process, seconds=choices.seconds(2.0, 10.0))


def _a_crashed_member(choices: FaultChoices, process: str, session: float) -> Iterator[Fault]:
    del session
    yield faults.Crash(at=_later(choices), process=process, seconds=choices.seconds(5.0, 20.0))


_LEADS: Final[Mapping[str, Sequence[_Lead]]] = {
    AWAY: (_no_coordinator,),
    LOADING: (_a_loading_coordinator,),
    DEAD: (_no_members, _no_coordinator),
    _EMPTY: (_no_members,),
    _PREPARING: (_a_rebalance,),
    _COMPLETING: (_a_rebalance,),
    ABSENT: (_a_crashed_member,),
    FROZEN: (_a_frozen_member,),
    SEARCHING: (_a_stopped_member,),
    JOINING: (_a_rebalance,),
    SYNCING: (_a_rebalance,),
    DRAINING: (_a_rebalance,),
    LEAVING: (_a_stopped_member,),
}
_WITHOUT_MEMBERS: Final = frozenset({DEAD, _EMPTY})
"""States of the coordinator that determine the states of the members."""
