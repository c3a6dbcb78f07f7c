"""Faults just as a frozen member wakes: that moment is short, and random times hardly ever hit it.

A member that was frozen for longer than its session does not know that the group has gone on
without it. What it learns first decides what it does, so a quarter of all plans let a coordinator
or a network fail, or recover, about when the member wakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from kgroup.testing.simulation import faults
from kgroup.testing.simulation.faults import ALL, Fault
from kgroup.testing.simulation.plan import MemberPlan, Scenario

_ONE_IN_FOUR: Final = 4
_EARLIEST: Final = 20.0
"""Seconds after which the members have partitions."""
_AROUND: Final = (0.02, 0.02, 1.0)
"""How many seconds the other fault may begin, or end, before or after the member wakes."""
_LONGER: Final = (0.2, 6.0)
"""By how many seconds the member is frozen for longer than its session."""
_A_MOMENT: Final = 0.01


def generate_waking_faults(
    seed: int, scenario: Scenario, members: Sequence[MemberPlan], session: float
) -> Iterator[Fault]:
    """Freeze one member past its session, and let something else happen as it wakes; or nothing.

    Args:
        seed: decides all of it.
        scenario: decides whether there are faults at all; the plan must be long enough.
        members: the members.
        session: their session time-out.
    """
    random = Random(f"{seed} waking")
    seconds = round(session + random.uniform(*_LONGER), 3)
    latest = scenario.duration / 2 - seconds
    if not scenario.faults_per_hour or latest < _EARLIEST or random.randrange(_ONE_IN_FOUR):
        return
    at = round(random.uniform(_EARLIEST, latest), 3)
    process = random.choice(members).name
    yield faults.Freeze(at=at, process=process, seconds=seconds)
    around = random.choice(_AROUND)
    moment = round(at + seconds + random.uniform(-around, around), 3)
    yield from random.choice(_BESIDE)(random, scenario, process, moment)


def _brokers_die(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    """All brokers are killed and come back at once, and load their groups."""
    del process
    for number in range(1, scenario.brokers + 1):
        yield faults.BrokerDies(
            at=moment, seconds=_A_MOMENT, broker=f"b{number}", loading=_loading(random)
        )


def _coordinator_moves(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    del scenario, process
    away = random.choice((0.0, _loading(random)))
    yield faults.CoordinatorMoves(at=moment, away=away, loading=_loading(random))


def _network_returns(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    del scenario
    seconds = round(random.uniform(1.0, 10.0), 3)
    yield faults.Split(at=moment - seconds, process=process, broker=ALL, seconds=seconds)


def _network_stalls(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    del scenario
    seconds = round(random.uniform(1.0, 30.0), 3)
    yield faults.Stall(at=moment, process=process, broker=ALL, seconds=seconds)


def _connections_are_cut(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    del random, scenario
    yield faults.Cut(at=moment, process=process, broker=ALL)


def _it_freezes_again(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    """The same member is frozen once more, before it has done much."""
    del scenario
    seconds = round(random.uniform(0.5, 10.0), 3)
    yield faults.Freeze(at=moment + _A_MOMENT, process=process, seconds=seconds)


def _second_program(
    random: Random, scenario: Scenario, process: str, moment: float
) -> Iterator[Fault]:
    del scenario
    seconds = round(random.uniform(1.0, 20.0), 3)
    yield faults.SecondProgram(at=moment, process=process, seconds=seconds)


def _loading(random: Random) -> float:
    return round(random.uniform(1.0, 6.0), 3)


_BESIDE: Final[Sequence[Callable[[Random, Scenario, str, float], Iterator[Fault]]]] = (
    _brokers_die,
    _brokers_die,
    _coordinator_moves,
    _network_returns,
    _network_stalls,
    _connections_are_cut,
    _it_freezes_again,
    _second_program,
)
