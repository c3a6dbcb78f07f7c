"""The report of a failure, and the code in it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kgroup.security.settings import SaslMechanism
from kgroup.testing.simulation import Outcome, Process, Scenario, SimulationError, generate_plan
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.faults import Cut, Freeze
from kgroup.testing.simulation.history import ProcessEnded
from kgroup.testing.simulation.plan import LoginPlan
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.report import Failure, code_of, command_of, report
from kgroup.testing.simulation.shrinking import Shrunk
from kgroup.testing.simulation.workload import Workload
from kgroup.types import TopicPartition
from tests.testing.simulation.samples import broken

FAULTS = (Freeze(at=40.5, seconds=5.0, process="m1"), Cut(at=50.0, process="*", broker="b1"))


async def program(process: Process) -> None:
    """A program that does nothing."""


def a_failure(
    scenario: Scenario | None = None,
    worker: Worker = default_worker,
    failed_seeds: tuple[int, ...] = (17,),
) -> Failure:
    """Seed 17 breaks invariants 4 and 5, and still 4 with two faults."""
    scenario = scenario or Scenario(members=5)
    plan = generate_plan(scenario, 17)
    outcome = Outcome(plan=plan, history=(), violations=(broken(4), broken(5)))
    least = attrs.evolve(plan, faults=FAULTS, members=plan.members[:2], duration=60.0)
    shrunk = Outcome(plan=least, history=(), violations=(broken(4),))
    return Failure(
        scenario=scenario,
        worker=worker,
        outcome=outcome,
        shrunk=Shrunk(outcome=shrunk, invariant=4, runs=12, exhausted=False),
        failed_seeds=failed_seeds,
    )


def test_it_says_all_that_is_needed() -> None:
    """It has the seed, the violations, the schedule, how to run it again, and the timeline."""
    failure = a_failure()
    text = report(failure)
    faults = len(failure.outcome.plan.faults)
    for part in (
        "seed 17 fails",
        "invariant 4 broken at 50.000 s",
        "invariant 5 broken at 50.000 s",
        f"(12 runs): 2 faults, 2 members, 60 s, of {faults} faults, 5 members, 600 s",
        "40.50 s  m1 is frozen for 5.00 s",
        "kgroup simulate --seeds 17 --members 5 --brokers 3 --minutes 10 --faults-per-hour 90",
        "what happens",
    ):
        assert part in text
    assert "These seeds fail" not in text


def test_the_error_has_the_report_and_its_parts() -> None:
    """The error is an AssertionError and has the parts of its report."""
    failure = a_failure(failed_seeds=(17, 20))
    error = SimulationError(failure)
    assert isinstance(error, AssertionError)
    assert str(error) == report(failure)
    assert error.failure is failure
    assert "These seeds fail: 17, 20" in str(error)


def test_many_violations_are_cut_short() -> None:
    """Ten violations are shown, and the number of the others."""
    failure = a_failure()
    outcome = attrs.evolve(failure.outcome, violations=(broken(4),) * 25)
    assert "... and 15 more" in report(attrs.evolve(failure, outcome=outcome))


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(members=5),
        Scenario(brokers=1, duration=100.0, topics={"orders": 3}, faults_per_hour=0.0),
        Scenario(config={"session_timeout": 7.0}, broker_settings={"group.max.size": 9}),
    ],
)
def test_its_code_makes_the_same_plan(scenario: Scenario) -> None:
    """The code in the report makes the very plan that failed."""
    failure = a_failure(scenario, program)
    ran: list[Any] = []
    code = code_of(failure)
    assert code.endswith("\noutcome = simulate(plan, worker)")
    names: dict[str, Any] = {"simulate": lambda *given: ran.append(given)}
    prepared, _, last = code.rpartition("\n")
    exec(prepared.replace(", simulate", ""), names)  # noqa: S102 # our own code
    exec(last, names)  # noqa: S102
    assert ran == [(failure.shrunk.outcome.plan, program)]


def value(partition: TopicPartition, number: int) -> bytes:
    """A value of a record."""
    return b"%d of %d" % (number, partition.partition)


def test_its_code_gives_the_program_what_it_had() -> None:
    """Functions for values and stores are imported like the program, by the command, too."""
    failure = a_failure(worker=Workload(program, value, dict))
    *_, last = code = code_of(failure).splitlines()
    assert last == "outcome = simulate(plan, worker, value=value, setup=setup)"
    for line in ("program as worker", "value as value"):
        assert f"from {__name__} import {line}" in code
    assert "from builtins import dict as setup" in code
    command = command_of(failure)
    assert command is not None
    assert command.endswith(
        f" --worker {__name__}:program --value {__name__}:value --setup builtins:dict"
    )


def test_the_command_names_kgroup_s_program_beside_functions() -> None:
    """The command takes functions only for a program that is named; then its logins are off."""
    command = command_of(a_failure(worker=Workload(default_worker, value)))
    assert command is not None
    assert command.endswith(
        f" 3 --worker kgroup.testing.simulation.default_program:default_worker"
        f" --value {__name__}:value"
    )


def test_the_command_says_that_no_topic_is_deleted() -> None:
    """It does where the scenario says so."""
    command = command_of(a_failure(Scenario(deletes_topics=False), program))
    assert command is not None
    assert " --no-topic-deletions --worker " in command


def test_it_says_with_which_errors_programs_ended() -> None:
    """Each kind is counted, the most frequent first, with the last of them."""
    failure = a_failure()
    history = tuple(
        ProcessEnded(at=float(life), process="m1", life=life, error=error)
        for life, error in enumerate(("OSError: 1", "ValueError: x", None, "ValueError: y"))
    )
    shrunk = attrs.evolve(failure.shrunk.outcome, history=history)
    failure = attrs.evolve(failure, shrunk=attrs.evolve(failure.shrunk, outcome=shrunk))
    assert (
        "    ValueError: 2 times, the last at 3.000 s, m1: ValueError: y\n"
        "    OSError: once at 0.000 s, m1: OSError: 1\n"
    ) in report(failure)


def test_a_plan_that_could_not_be_shrunk_is_generated() -> None:
    """If nothing was removed, the code generates the plan unchanged."""
    failure = a_failure()
    whole = attrs.evolve(failure.shrunk, outcome=failure.outcome)
    assert "evolve" not in code_of(attrs.evolve(failure, shrunk=whole))


def test_the_command_names_the_program() -> None:
    """The command has a program's importable name."""
    command = command_of(a_failure(worker=program))
    assert command is not None
    assert command.endswith(f" --worker {__name__}:program")


def test_the_command_says_whether_members_log_in() -> None:
    """It says so where the command's default differs: with logins only for kgroup's own worker."""
    for worker, logins, said in (
        (default_worker, True, ""),
        (default_worker, False, " --no-logins"),
        (program, True, " --logins"),
        (program, False, ""),
    ):
        command = command_of(a_failure(Scenario(logins=logins), worker))
        assert command is not None
        assert f"--wall-clock-error 3{said} --worker" in f"{command} --worker"


def test_logins_that_were_removed_are_removed_in_the_code() -> None:
    """The code of a shrunk plan has no logins either."""
    failure = a_failure(Scenario(logins=True))
    logins = LoginPlan(mechanism=SaslMechanism.PLAIN, session_lifetime=None)
    generated = attrs.evolve(failure.outcome.plan, logins=logins)
    with_logins = attrs.evolve(failure, outcome=attrs.evolve(failure.outcome, plan=generated))
    assert "    logins=None,\n" in code_of(with_logins)
    assert "logins=None" not in code_of(failure)


def test_what_no_command_can_say_is_left_to_python() -> None:
    """For settings, or a program without a name, there is code and no command."""
    assert command_of(a_failure(Scenario(config={"session_timeout": 7.0}))) is None
    assert command_of(a_failure(Scenario(topics={"orders": 3}))) is None

    async def closure(process: Process) -> None:
        """A program of this test."""

    failure = a_failure(worker=closure)
    assert command_of(failure) is None
    assert command_of(a_failure(worker=Workload(program, setup=lambda: 7))) is None
    names: dict[str, Any] = {}
    exec("async def of_no_module(process): ...", {"__name__": None}, names)  # noqa: S102 # our own
    assert command_of(a_failure(worker=names["of_no_module"])) is None
    assert "closure" in code_of(failure)
    assert "kgroup simulate" not in report(failure)


@pytest.mark.parametrize(
    ("exactly_once", "option"),
    [(None, None), (True, "--exactly-once"), (False, "--no-exactly-once")],
)
def test_the_command_says_whether_records_may_repeat(
    exactly_once: bool | None, option: str | None
) -> None:
    """It has the option of the scenario, and none by default."""
    command = command_of(a_failure(Scenario(exactly_once=exactly_once)))
    assert command is not None
    assert {one for one in command.split() if "exactly-once" in one} == {option} - {None}
