"""Shrinking: the result is the smallest plan that fails, whatever the failure needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.security.settings import SaslMechanism
from kgroup.testing.simulation import MemberPlan, Outcome, Plan
from kgroup.testing.simulation.faults import Cut, Fault, Freeze, Moment
from kgroup.testing.simulation.history import FaultBegan
from kgroup.testing.simulation.plan import LoginPlan
from kgroup.testing.simulation.shrinking import shrink
from tests.testing.simulation.samples import a_plan, broken


def freeze(at: float, seconds: float = 8.0) -> Freeze:
    """A fault that lasts."""
    return Freeze(at=at, seconds=seconds, process="m1")


def cut(at: float) -> Cut:
    """A fault without a duration."""
    return Cut(at=at, process="m1", broker="b1")


def failing_if(fails: Callable[[Plan], bool], at: float = 100.0) -> Callable[[Plan], Outcome]:
    """A function that runs plans and reports invariant 4 as broken if ``fails`` returns true."""

    def run(plan: Plan) -> Outcome:
        found = (broken(at=min(at, plan.duration)),) if fails(plan) else ()
        return Outcome(plan=plan, history=(), violations=found)

    return run


@given(
    number=st.integers(1, 24),
    needed=st.sets(st.integers(0, 23), max_size=5),
)
def test_what_is_left_is_what_is_needed(number: int, needed: set[int]) -> None:
    """Exactly the faults that the failure needs are left."""
    faults: tuple[Fault, ...] = tuple(cut(float(at)) for at in range(number))
    necessary = {faults[one] for one in needed if one < number}
    run = failing_if(lambda plan: necessary <= set(plan.faults))
    shrunk = shrink(run(a_plan(faults=faults)), run, most_runs=1000)
    assert set(shrunk.outcome.plan.faults) == necessary
    assert not shrunk.exhausted


def test_no_single_fault_can_be_left_out() -> None:
    """If any two faults fail together, two are left, in order."""
    faults = tuple(cut(float(at)) for at in range(9))
    run = failing_if(lambda plan: len(plan.faults) >= 2)
    left = shrink(run(a_plan(faults=faults)), run).outcome.plan.faults
    assert len(left) == 2
    assert list(left) == sorted(left, key=lambda one: one.at)


def test_faults_become_as_short_as_can_be() -> None:
    """A fault is made shorter as long as the plan still fails."""
    run = failing_if(lambda plan: any(getattr(one, "seconds", 0) >= 1 for one in plan.faults))
    (fault,) = shrink(run(a_plan(faults=(freeze(10.0, 32.0),))), run).outcome.plan.faults
    assert isinstance(fault, Freeze)
    assert 1 <= fault.seconds <= 1.5


def test_members_and_time_that_are_not_needed_go() -> None:
    """Members and time that the failure does not need are removed."""
    members = tuple(MemberPlan(name=f"m{one}", start_at=0.0) for one in range(1, 7))
    plan = a_plan(members=members, faults=(cut(20.0), cut(110.0)))
    run = failing_if(
        lambda plan: "m3" in {one.name for one in plan.members} and plan.duration > 30, at=40.2
    )
    shrunk = shrink(run(plan), run).outcome.plan
    assert [one.name for one in shrunk.members] == ["m3"]
    assert 30 < shrunk.duration <= 41
    assert shrunk.faults == ()


@pytest.mark.parametrize("needed", [False, True])
def test_logins_that_are_not_needed_go(needed: bool) -> None:
    """They stay only if the plan holds without them."""
    logins = LoginPlan(mechanism=SaslMechanism.PLAIN, session_lifetime=5.0)
    run = failing_if(lambda plan: plan.logins is not None or not needed)
    shrunk = shrink(run(a_plan(logins=logins)), run).outcome.plan
    assert shrunk.logins == (logins if needed else None)


def test_all_else_stays() -> None:
    """Seed, settings, topics and network stay the same."""
    plan = a_plan(faults=(freeze(1.0), cut(2.0)))
    run = failing_if(lambda _: True)
    shrunk = shrink(run(plan), run).outcome.plan
    changed = {"duration", "members", "faults"}
    for field in attrs.fields(Plan):
        if field.name not in changed:
            assert getattr(shrunk, field.name) == getattr(plan, field.name)


def test_another_invariant_does_not_count() -> None:
    """A smaller plan that breaks another invariant, or raises, does not count."""
    plan = a_plan(faults=(cut(1.0), cut(2.0), cut(3.0)))

    def run(plan: Plan) -> Outcome:
        if len(plan.faults) == 2:
            raise RuntimeError("this plan cannot be run")
        number = 4 if len(plan.faults) == 3 else 5
        return Outcome(plan=plan, history=(), violations=(broken(number, at=120.0),))

    shrunk = shrink(run(plan), run)
    assert shrunk.invariant == 4
    assert shrunk.outcome.plan.faults == plan.faults
    assert [one.number for one in shrunk.outcome.violations] == [4]


def test_runs_are_bounded() -> None:
    """No more plans are run than allowed, and the result says that the bound ended it."""
    counter = itertools.count()
    fails = failing_if(lambda plan: len(plan.faults) >= 7)

    def run(plan: Plan) -> Outcome:
        next(counter)
        return fails(plan)

    plan = a_plan(faults=tuple(cut(float(at)) for at in range(20)))
    shrunk = shrink(fails(plan), run, most_runs=10)
    assert shrunk.exhausted
    assert shrunk.runs == next(counter) == 10
    assert shrunk.outcome.violations


def test_no_plan_is_run_twice() -> None:
    """No plan is run a second time."""
    seen: list[str] = []
    fails = failing_if(lambda plan: len(plan.faults) >= 3)

    def run(plan: Plan) -> Outcome:
        seen.append(repr(plan))
        return fails(plan)

    shrink(fails(a_plan(faults=tuple(freeze(float(at)) for at in range(8)))), run)
    assert len(seen) == len(set(seen))


def test_nothing_wrong_is_nothing_to_shrink() -> None:
    """An outcome without a violation is refused."""
    run = failing_if(lambda _: False)
    with pytest.raises(ValueError, match="seed 7 broke no invariant"):
        shrink(run(a_plan()), run)


def test_a_fault_that_waited_for_a_moment_happens_at_its_time() -> None:
    """The moment is replaced by its time if the plan still fails."""
    moment = Moment(member="running", coordinator="Stable")
    waits = attrs.evolve(cut(3.0), when=moment)

    def run(plan: Plan) -> Outcome:
        struck = [FaultBegan(at=max(one.at, 7.0), fault=one) for one in plan.faults]
        found = (broken(at=50.0),) if any(one.at == 7.0 for one in struck) else ()
        return Outcome(plan=plan, history=tuple(struck), violations=found)

    assert shrink(run(a_plan(faults=(waits,))), run).outcome.plan.faults == (cut(7.0),)


def test_faults_whose_moments_came_in_another_order_all_stay() -> None:
    """Each fault gets the time of its own moment."""
    moment = Moment(member="running", coordinator="Stable")
    first = Cut(at=3.0, process="m1", broker="b1", when=moment)
    second = Cut(at=5.0, process="m2", broker="b1", when=moment)
    came = {"m1": 9.0, "m2": 6.0}

    def run(plan: Plan) -> Outcome:
        struck = [
            FaultBegan(at=one.at if one.when is None else came[one.process], fault=one)
            for one in plan.faults
            if isinstance(one, Cut)
        ]
        found = (broken(at=50.0),) if len(struck) == 2 else ()
        return Outcome(plan=plan, history=tuple(struck), violations=found)

    left = shrink(run(a_plan(faults=(first, second))), run).outcome.plan.faults
    assert left == (
        attrs.evolve(second, at=6.0, when=None),
        attrs.evolve(first, at=9.0, when=None),
    )
