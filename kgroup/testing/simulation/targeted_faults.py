"""Faults that strike in a state of the group, so that none is left to chance.

Every kind of fault meets every state of a member and of the coordinator. The seed alone says
which of these *cells* its plan aims at: seeds that follow each other walk through all of them, so
a campaign covers what it has the seeds for, and one seed is the same simulation in any campaign.
For a state that is rare something is done first that leads to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from kgroup.broker.groups.states import GroupState
from kgroup.testing.simulation import faults
from kgroup.testing.simulation.fault_generation import KINDS, Draw
from kgroup.testing.simulation.faults import EVERYBODY, Fault, Moment
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

AIMED_AT: Final = 2
"""How many cells a plan aims at."""
_BEGUN: Final = 15.0
"""Seconds after which all programs have been started."""
_SOON: Final = 0.6
"""The part of a plan in which moments begin to be waited for."""
_ABOUT: Final = 3.0
"""Seconds within which what leads to a state begins."""
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
"""All of them; none is known that no simulation can reach."""
_STRIDE: Final = next(
    one for one in range(round(len(CELLS) * 0.382), len(CELLS)) if math.gcd(one, len(CELLS)) == 1
)
"""From one seed's cell to the next one's: far, so that a few seeds cover a bit of everything."""
_BY_NAME: Final = {kind.__name__: one for kind, one in KINDS.items()}


def targeted(
    seed: int,
    scenario: Scenario,
    topics: Mapping[str, int],
    members: Sequence[MemberPlan],
    session: float,
) -> Iterator[Fault]:
    """The faults with which the plan of a seed aims at its cells, and what leads to their states.

    Args:
        seed: says which cells.
        scenario: says whether there are faults at all.
        topics: each with its number of partitions.
        members: the programs.
        session: their session time-out.
    """
    if not scenario.faults_per_hour:
        return
    chance = random.Random(f"{seed} targets")
    for number in range(AIMED_AT):
        name, member, coordinator = CELLS[(seed * AIMED_AT + number) * _STRIDE % len(CELLS)]
        latest = scenario.duration * _SOON
        at = round(chance.uniform(min(_BEGUN, latest / 2), latest), 3)
        longest = (scenario.duration - at) / 2
        draw = Draw(chance, at, longest, scenario, dict(topics), tuple(members))
        fault = attrs.evolve(
            _BY_NAME[name].draw(draw), when=Moment(member=member, coordinator=coordinator)
        )
        yield fault
        process = getattr(fault, "process", EVERYBODY)
        if process == EVERYBODY:
            process = draw.process
        for lead in _LEADS.get(coordinator, ()):
            yield from lead(draw, process, session)
        if coordinator not in _ENDS_MEMBERS:
            for lead in _LEADS.get(member, ()):
                yield from lead(draw, process, session)


# What leads to a state: begins at about the time from which the moment is waited for.

_Lead = Callable[[Draw, str, float], Iterator[Fault]]


def _later(draw: Draw) -> float:
    return round(draw.at + draw.chance.uniform(0.0, _ABOUT), 3)


def _no_coordinator(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    del process, session
    away = draw.seconds(1.0, 5.0)
    yield faults.CoordinatorMoves(at=_later(draw), away=away, loading=draw.loading)


def _a_loading_coordinator(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    del process, session
    yield faults.CoordinatorMoves(at=_later(draw), away=0.0, loading=draw.seconds(1.0, 5.0))


def _no_members(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    """All stop, or all are cut off for longer than their sessions."""
    if draw.chance.random() < _HALF:
        for name in draw.processes:
            yield faults.Stop(at=draw.at, process=name, seconds=draw.seconds(5.0, 20.0))
        return
    seconds = min(session + draw.seconds(5.0, 20.0), draw.longest)
    yield faults.Split(at=draw.at, process=EVERYBODY, broker=EVERYBODY, seconds=seconds)
    if draw.chance.random() < _HALF:
        yield faults.Freeze(at=_later(draw), process=process, seconds=seconds)


def _a_rebalance(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    """Another member stops, and comes back."""
    del session
    others = [one for one in draw.processes if one != process] or [process]
    other = draw.chance.choice(others)
    yield faults.Stop(at=_later(draw), process=other, seconds=draw.seconds(2.0, 10.0))


def _a_frozen_member(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    seconds = min(draw.chance.choice((1.0, session)) + draw.seconds(5.0, 20.0), draw.longest)
    yield faults.Freeze(at=_later(draw), process=process, seconds=round(seconds, 3))


def _a_stopped_member(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    del session
    yield faults.Stop(at=_later(draw), process=process, seconds=draw.seconds(2.0, 10.0))


def _a_crashed_member(draw: Draw, process: str, session: float) -> Iterator[Fault]:
    del session
    yield faults.Crash(at=_later(draw), process=process, seconds=draw.seconds(5.0, 20.0))


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
_ENDS_MEMBERS: Final = frozenset({DEAD, _EMPTY})
"""States of the coordinator that say where members are."""
