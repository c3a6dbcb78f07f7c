"""Plans target every state of a member and of the coordinator with every kind of fault."""

from __future__ import annotations

import math
from typing import Final

import attrs
import pytest

from kgroup.testing.simulation import Scenario, faults, generate_plan, history, simulate
from kgroup.testing.simulation.fault_generation import KINDS
from kgroup.testing.simulation.faults import Fault, Moment
from kgroup.testing.simulation.states import COORDINATOR_STATES, MEMBER_STATES
from kgroup.testing.simulation.targeted_faults import CELLS, CELLS_PER_PLAN
from tests.testing.simulation.samples import SMALL, a_plan

STABLE: Final = Moment(member="running", coordinator="Stable")


def targets_of(seed: int, scenario: Scenario = SMALL) -> list[tuple[str, str, str]]:
    """The cells that a seed's plan targets."""
    return [
        (type(one).__name__, one.when.member, one.when.coordinator)
        for one in generate_plan(scenario, seed).faults
        if one.when is not None
    ]


def test_seeds_that_follow_each_other_aim_at_every_cell_once() -> None:
    """Consecutive seeds cover every cell exactly once."""
    first = 8_000_000
    seeds = range(first, first + math.ceil(len(CELLS) / CELLS_PER_PLAN))
    aimed = [cell for seed in seeds for cell in targets_of(seed)]
    assert set(aimed) == set(CELLS)
    assert len(aimed) < len(CELLS) + CELLS_PER_PLAN


def test_every_fault_has_a_cell_with_every_state() -> None:
    """There is a cell for every fault and every pair of states."""
    assert (
        len(CELLS) == len(set(CELLS)) == len(KINDS) * len(MEMBER_STATES) * len(COORDINATOR_STATES)
    )


def test_a_calm_scenario_aims_at_nothing() -> None:
    """Without faults no fault waits for a moment."""
    assert targets_of(1, attrs.evolve(SMALL, faults_per_hour=0.0)) == []


def moments(fault: Fault) -> list[history.FaultBegan]:
    """The outcome of a small simulation with one fault."""
    outcome = simulate(a_plan(faults=(fault,)))
    assert outcome.violations == ()
    return [one for one in outcome.history if isinstance(one, history.FaultBegan)]


def test_a_fault_strikes_in_its_moment() -> None:
    """A fault waits until the member and the coordinator are in its states."""
    crash = faults.Crash(at=0.0, when=STABLE, process="m1", seconds=5.0)
    (began,) = moments(crash)
    assert 0.0 < began.at < 10.0
    assert (began.members, began.coordinator) == (("running",), "Stable")


def test_a_fault_whose_moment_never_comes_does_not_happen() -> None:
    """Such a fault is not injected and does not prolong the simulation."""
    never = Moment(member="frozen", coordinator="Stable")
    assert moments(faults.Cut(at=1.0, when=never, process="m1", broker="b1")) == []


@pytest.mark.parametrize("process", ["m1", "*"])
def test_any_member_will_do_for_a_fault_of_all(process: str) -> None:
    """A fault without a member waits for any member."""
    gone = faults.Crash(at=20.0, process="m2", seconds=30.0)
    moment = Moment(member="absent", coordinator="Stable")
    cut = faults.Cut(at=25.0, when=moment, process=process, broker="b1")
    outcome = simulate(a_plan(faults=(gone, cut)))
    began = [one for one in outcome.history if isinstance(one, history.FaultBegan)]
    assert [one.members for one in began[1:]] == ([("running", "absent")] if process == "*" else [])
