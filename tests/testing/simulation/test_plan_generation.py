"""Plans follow from their seed, and all faults end in time."""

from __future__ import annotations

from typing import Final

from kgroup.testing.simulation import Scenario, faults, generate_plan
from kgroup.testing.simulation.fault_injection import INJECTORS
from kgroup.testing.simulation.faults import Fault, LastingFault
from kgroup.testing.simulation.schemes.plans import comparable_plan

SEEDS: Final = range(200)
ROUGH: Final = Scenario(faults_per_hour=300.0, logins=True)


def kinds() -> set[type[Fault]]:
    """Every kind of fault."""
    return {
        one
        for one in vars(faults).values()
        if isinstance(one, type) and issubclass(one, Fault) and one not in (Fault, LastingFault)
    }


def test_a_seed_has_one_plan() -> None:
    """The same seed and scenario give equal plans, different seeds different ones."""
    assert generate_plan(ROUGH, 7) == generate_plan(ROUGH, 7)
    assert generate_plan(ROUGH, 7) != generate_plan(ROUGH, 8)


def test_every_fault_is_over_in_time() -> None:
    """Faults are in the order of their times and end before the plan does."""
    for seed in SEEDS:
        plan = generate_plan(ROUGH, seed)
        assert list(plan.faults) == sorted(plan.faults, key=lambda one: one.at)
        for fault in plan.faults:
            assert 0 < fault.at + getattr(fault, "seconds", 0.0) <= plan.duration + 0.001


def test_every_kind_of_fault_is_generated() -> None:
    """Every kind of fault can be generated and injected."""
    generated = {type(fault) for seed in SEEDS for fault in generate_plan(ROUGH, seed).faults}
    assert generated == kinds() == set(INJECTORS)


def test_a_calm_scenario_has_no_fault() -> None:
    """A scenario without faults gives plans without faults."""
    assert generate_plan(Scenario(faults_per_hour=0.0), 1).faults == ()


def test_what_a_scenario_says_no_seed_changes() -> None:
    """Settings, topics, members and brokers of the scenario are in every plan."""
    scenario = Scenario(
        members=7,
        brokers=2,
        topics={"mine": 5},
        config={"session_timeout": 9.0},
        broker_settings={"group.max.size": 5},
    )
    for seed in range(20):
        plan = generate_plan(scenario, seed)
        assert [one.name for one in plan.members] == [f"m{number}" for number in range(1, 8)]
        assert (plan.brokers, plan.topics) == (2, {"mine": 5})
        assert plan.config["session_timeout"] == 9.0
        assert plan.broker_settings["group.max.size"] == 5


def test_long_work_outlasts_drains_and_leaves_time() -> None:
    """Some plans have work that a drain cannot wait for, and none has work that fills the plan."""
    plans = [generate_plan(ROUGH, seed) for seed in SEEDS]
    longest = [plan for plan in plans if plan.long_work]
    assert len(plans) / 4 < len(longest) < len(plans) / 2
    for plan in longest:
        assert plan.config["drain_timeout"] < plan.long_work <= plan.duration * 0.2
    assert comparable_plan(ROUGH, longest[0].seed).long_work == 0.0


def test_settings_fit_each_other() -> None:
    """No plan has settings that a group refuses."""
    for seed in SEEDS:
        config = generate_plan(ROUGH, seed).config
        assert config["heartbeat_interval"] <= config["session_timeout"] / 3
