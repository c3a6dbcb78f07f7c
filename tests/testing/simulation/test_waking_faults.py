"""Plans let something happen just as a frozen member wakes."""

from __future__ import annotations

import attrs
import pytest

from kgroup.testing.simulation import Scenario, faults
from kgroup.testing.simulation.faults import Fault
from kgroup.testing.simulation.plan import MemberPlan
from kgroup.testing.simulation.waking_faults import generate_waking_faults

LONG = Scenario(duration=300.0)
MEMBERS = (MemberPlan(name="m1", start_at=0.0), MemberPlan(name="m2", start_at=1.0))
SESSION = 10.0


def drawn(scenario: Scenario, seeds: int = 400) -> list[list[Fault]]:
    """The faults of these seeds, without the seeds that have none."""
    found = [list(generate_waking_faults(one, scenario, MEMBERS, SESSION)) for one in range(seeds)]
    return [one for one in found if one]


def test_a_quarter_of_the_plans_have_them() -> None:
    """So that they neither hide other faults nor are rare."""
    assert len(drawn(LONG)) == pytest.approx(100, abs=30)


def test_the_other_fault_begins_or_ends_as_the_member_wakes() -> None:
    """The member is frozen for longer than its session, and wakes at most a second away from it."""
    kinds = set()
    for freeze, *others in drawn(LONG):
        assert isinstance(freeze, faults.Freeze)
        assert freeze.seconds > SESSION
        wakes = freeze.at + freeze.seconds
        assert others
        for one in others:
            kinds.add(type(one))
            ends = one.at + getattr(one, "seconds", 0.0)
            assert min(abs(one.at - wakes), abs(ends - wakes)) <= 1.02
    assert kinds == {
        faults.BrokerDies,
        faults.CoordinatorMoves,
        faults.Cut,
        faults.Freeze,
        faults.SecondProgram,
        faults.Split,
        faults.Stall,
    }


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(attrs.evolve(LONG, faults_per_hour=0.0), id="without faults"),
        pytest.param(attrs.evolve(LONG, duration=50.0), id="too short"),
    ],
)
def test_some_scenarios_have_none(scenario: Scenario) -> None:
    """A calm plan stays calm, and one that is too short has no room for them."""
    assert drawn(scenario) == []
