"""Members that log in: when plans say so, and what becomes of a session that has expired."""

from __future__ import annotations

from typing import Final

import attrs
import pytest

from kgroup.errors import ConfigError
from kgroup.events import Joined
from kgroup.security.settings import SaslMechanism
from kgroup.testing.simulation import (
    Outcome,
    Process,
    Scenario,
    default_worker,
    faults,
    generate_plan,
    history,
    simulate,
)
from kgroup.testing.simulation.fault_generation import LOGIN_KINDS
from kgroup.testing.simulation.plan import LoginPlan
from tests.testing.simulation.samples import a_plan

SHORT: Final = LoginPlan(mechanism=SaslMechanism.PLAIN, session_lifetime=5.0)
M1: Final = "m1"


def joins(outcome: Outcome) -> int:
    """How often members have joined."""
    reported = [one.event for one in outcome.history if isinstance(one, history.EventReported)]
    return sum(isinstance(event, Joined) for event in reported)


def errors(outcome: Outcome) -> list[str]:
    """The errors with which programs have ended."""
    ended = [one.error for one in outcome.history if isinstance(one, history.ProcessEnded)]
    return [error for error in ended if error is not None]


def test_a_third_of_the_plans_have_logins_if_the_scenario_says_so() -> None:
    """Each kind of fault of logins is among theirs, and no plan without logins has one."""
    plans = [generate_plan(Scenario(logins=True), seed) for seed in range(120)]
    found = [plan for plan in plans if plan.logins is not None]
    kinds = {type(fault) for plan in found for fault in plan.faults}
    assert len(plans) // 4 < len(found) < len(plans) // 2
    assert kinds >= LOGIN_KINDS.keys()
    assert {plan.logins.mechanism for plan in found if plan.logins} == {
        SaslMechanism.PLAIN,
        SaslMechanism.SCRAM_SHA_256,
    }
    for seed, plan in enumerate(plans):
        without = generate_plan(Scenario(), seed)
        others = tuple(fault for fault in plan.faults if type(fault) not in LOGIN_KINDS)
        assert without == attrs.evolve(plan, logins=None, faults=others)
        assert plan.logins is not None or plan == without


def test_sessions_are_renewed_without_a_rebalance() -> None:
    """Members whose sessions last for five seconds join as often as those without logins."""
    outcome = simulate(a_plan(logins=SHORT))
    assert outcome.violations == ()
    assert not errors(outcome)
    assert joins(outcome) == joins(simulate(a_plan()))


@pytest.mark.parametrize("mechanism", [SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256])
def test_a_session_that_expires_while_its_member_is_frozen(mechanism: SaslMechanism) -> None:
    """The member logs in on another connection, and its program does not end."""
    freeze = faults.Freeze(at=30.0, process=M1, seconds=30.0)
    outcome = simulate(a_plan(logins=attrs.evolve(SHORT, mechanism=mechanism), faults=(freeze,)))
    assert outcome.violations == ()
    assert not errors(outcome)


def test_a_password_that_the_member_learns_late() -> None:
    """A renewal by the old password ends the group; with the new one the member is back."""
    change = faults.PasswordChanges(at=30.0, process=M1, seconds=30.0)
    outcome = simulate(a_plan(logins=SHORT, faults=(change,)))
    assert outcome.violations == ()
    assert errors(outcome)
    assert all("SASL_AUTHENTICATION_FAILED" in error for error in errors(outcome))
    processed = [one for one in outcome.history if isinstance(one, history.Processed)]
    assert any(one.process == M1 and one.at > 60.0 for one in processed)


def test_overlapping_faults_of_one_user() -> None:
    """A user that is removed stays so while its password changes, and returns with the new one."""
    overlapping = (
        faults.UserRevoked(at=20.0, process=M1, seconds=30.0),
        faults.UserRevoked(at=25.0, process=M1, seconds=40.0),
        faults.PasswordChanges(at=30.0, process=M1, seconds=10.0),
    )
    outcome = simulate(a_plan(logins=SHORT, faults=overlapping))
    assert outcome.violations == ()
    joined = [
        one.at
        for one in outcome.history
        if isinstance(one, history.EventReported)
        and isinstance(one.event, Joined)
        and one.process == M1
    ]
    assert joined
    assert not [at for at in joined if 20.5 < at < 65.0]
    assert joined[-1] > 65.0


def test_faults_of_logins_have_no_effect_without_logins() -> None:
    """So a plan from which logins are removed can still be run."""
    every = (
        faults.SessionsEnd(at=20.0, process=M1),
        faults.UserRevoked(at=30.0, process=M1, seconds=10.0),
        faults.PasswordChanges(at=50.0, process=M1, seconds=10.0),
        faults.RightRevoked(at=70.0, process=M1, resource_type="group", seconds=10.0),
    )
    assert {type(fault) for fault in every} == LOGIN_KINDS.keys()
    assert joins(simulate(a_plan(faults=every))) == joins(simulate(a_plan()))


def test_a_program_with_a_configuration_of_its_own() -> None:
    """``Process.security`` says how to log in; without logins it changes nothing."""
    seen: list[object] = []

    async def worker(process: Process) -> None:
        seen.append(process.security.mechanism)
        await default_worker(process)

    for logins in SHORT, None:
        assert simulate(a_plan(logins=logins, duration=20.0), worker).violations == ()
    assert seen == [SaslMechanism.PLAIN, SaslMechanism.PLAIN, None, None]


def test_a_mechanism_without_a_password_is_refused() -> None:
    """The simulator has no tokens."""
    with pytest.raises(ConfigError, match=r"mechanism.*SaslMechanism\.PLAIN"):
        LoginPlan(mechanism=SaslMechanism.OAUTHBEARER, session_lifetime=None)
