"""The report of a failure: what is broken, the smallest plan that breaks it, and how to rerun it.

INVARIANT: the code in the report runs the shrunk plan exactly as it was run. Only a program that
cannot be imported has to be filled in.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from kgroup.testing.simulation.checks.losses import Losses
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.faults import Fault
from kgroup.testing.simulation.history import HandedOut, HistoryEntry, Processed, ProcessEnded
from kgroup.testing.simulation.plan import Plan, Scenario
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.run import Outcome
from kgroup.testing.simulation.shrinking import Shrunk
from kgroup.testing.simulation.timeline import timeline
from kgroup.testing.simulation.workload import Workload

_HOW_TO_REPORT: Final = (
    "No program has reported a record as processed, so that all count as lost. Where the work on a"
    " record is done, such as in the function that is given to kgroup.serve, a program calls"
    " process.processed(message), or await process.process(message), which takes some time first."
)
_MOST_VIOLATIONS: Final = 10
_MINUTE: Final = 60.0


@final
@attrs.frozen(kw_only=True)
class Failure:
    """A seed that breaks an invariant.

    Attributes:
        scenario: the scenario that its plan was generated from.
        worker: the program.
        outcome: the outcome of the plan as generated.
        shrunk: the smallest plan that still fails.
        failed_seeds: all seeds that fail, in order; this one is the first.
    """

    scenario: Scenario
    worker: Worker
    outcome: Outcome
    shrunk: Shrunk
    failed_seeds: tuple[int, ...]

    @property
    def seed(self) -> int:
        """The seed."""
        return self.outcome.plan.seed


@final
class SimulationError(AssertionError):
    """A simulation broke an invariant; the text of the error is the whole report.

    Attributes:
        failure: the parts of the report.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(report(failure))
        self.failure: Final = failure


def report(failure: Failure) -> str:
    """The report as text, without a newline at the end."""
    return "\n".join(_lines(failure))


def _lines(failure: Failure) -> Iterator[str]:
    violations = failure.outcome.violations
    yield f"seed {failure.seed} fails"
    for violation in violations[:_MOST_VIOLATIONS]:
        yield f"    {violation}"
    if len(violations) > _MOST_VIOLATIONS:
        yield f"    ... and {len(violations) - _MOST_VIOLATIONS} more"
    if len(failure.failed_seeds) > 1:
        yield f"These seeds fail: {', '.join(map(str, failure.failed_seeds))}"
    if _never_reports(failure.outcome):
        yield _HOW_TO_REPORT
    yield ""
    yield from _schedule(failure)
    yield from _errors(failure.shrunk.outcome.history)
    yield ""
    command = command_of(failure)
    if command is not None:
        yield "Run it again:"
        yield f"    {command}"
    yield "Run the smallest plan that fails:"
    for line in code_of(failure).splitlines():
        yield f"    {line}"
    yield ""
    yield "What happens in it:"
    yield timeline(failure.shrunk.outcome)


def _never_reports(outcome: Outcome) -> bool:
    """Whether programs got records, and records count as lost only because none was reported."""
    kinds = set(map(type, outcome.history))
    loses = any(one.number == Losses.number for one in outcome.violations)
    return loses and HandedOut in kinds and Processed not in kinds


def _schedule(failure: Failure) -> Iterator[str]:
    shrunk = failure.shrunk
    yield (
        f"The smallest plan found that still breaks invariant {shrunk.invariant}"
        f" ({shrunk.runs} runs{', the most allowed' if shrunk.exhausted else ''}):"
        f" {_size(shrunk.outcome.plan)}, of {_size(failure.outcome.plan)}"
    )
    for fault in shrunk.outcome.plan.faults:
        yield f"    {fault}"
    for violation in shrunk.outcome.violations[:_MOST_VIOLATIONS]:
        yield f"    {violation}"
        for line in violation.detail.splitlines():
            yield f"        {line}"


def _errors(history: Sequence[HistoryEntry]) -> Iterator[str]:
    """With which errors programs ended, and how often."""
    ended: defaultdict[str, list[ProcessEnded]] = defaultdict(list)
    for entry in history:
        if isinstance(entry, ProcessEnded) and entry.error is not None:
            kind, _, _ = entry.error.partition(":")
            ended[kind].append(entry)
    if not ended:
        return
    yield "Programs ended with errors in it:"
    for kind, entries in sorted(ended.items(), key=lambda one: -len(one[1])):
        last = entries[-1]
        times = "once" if len(entries) == 1 else f"{len(entries)} times, the last"
        yield f"    {kind}: {times} at {last.at:.3f} s, {last.process}: {last.error}"


def _size(plan: Plan) -> str:
    faults, members = len(plan.faults), len(plan.members)
    return (
        f"{faults} fault{'s' * (faults != 1)}, {members} member{'s' * (members != 1)},"
        f" {plan.duration:g} s"
    )


def command_of(failure: Failure) -> str | None:
    """The command that runs the seed again, or None if it takes Python code to do so."""
    scenario = failure.scenario
    workload = Workload.of(failure.worker)
    is_named = workload != Workload(default_worker)
    functions = {
        "worker": workload.worker if is_named else None,
        "value": workload.value,
        "setup": workload.setup,
    }
    given = {name: _importable(one) for name, one in functions.items() if one is not None}
    options = Scenario(
        members=scenario.members,
        brokers=scenario.brokers,
        duration=scenario.duration / _MINUTE * _MINUTE,
        faults_per_hour=scenario.faults_per_hour,
        wall_clock_error=scenario.wall_clock_error,
        logins=scenario.logins,
        deletes_topics=scenario.deletes_topics,
        exactly_once=scenario.exactly_once,
    )
    if None in given.values() or options != scenario:
        return None
    command = (
        f"kgroup simulate --seeds {failure.seed} --members {scenario.members}"
        f" --brokers {scenario.brokers} --minutes {_number(scenario.duration / _MINUTE)}"
        f" --faults-per-hour {_number(scenario.faults_per_hour)}"
        f" --wall-clock-error {_number(scenario.wall_clock_error)}"
    )
    if scenario.logins is is_named:
        command += " --logins" if scenario.logins else " --no-logins"
    if not scenario.deletes_topics:
        command += " --no-topic-deletions"
    if scenario.exactly_once is not None:
        command += " --exactly-once" if scenario.exactly_once else " --no-exactly-once"
    places = (f" --{name} {':'.join(place)}" for name, place in given.items() if place)
    return f"{command}{''.join(places)}"


def code_of(failure: Failure) -> str:
    """Python code that runs the shrunk plan and puts its outcome into ``outcome``."""
    generated, plan = failure.outcome.plan, failure.shrunk.outcome.plan
    workload = Workload.of(failure.worker)
    functions = {"value": workload.value, "setup": workload.setup}
    given = {name: function for name, function in functions.items() if function is not None}
    lines = [
        "import attrs",
        "from kgroup.testing.simulation import Scenario, faults, generate_plan, simulate",
    ]
    if plan.members != generated.members:
        lines.append("from kgroup.testing.simulation.plan import MemberPlan")
    for name, function in {"worker": workload.worker, **given}.items():
        place = _importable(function)
        lines.append(
            f"{name} = ...  # {getattr(function, '__qualname__', function)}"
            if place is None
            else f"from {place[0]} import {place[1]} as {name}"
        )
    lines.append(f"plan = generate_plan({_brief(failure.scenario)}, {failure.seed})")
    changes = list(_changes(generated, plan))
    if changes:
        lines += ["plan = attrs.evolve(", "    plan,", *changes, ")"]
    lines.append(
        f"outcome = simulate({', '.join(['plan', 'worker', *(f'{n}={n}' for n in given)])})"
    )
    return "\n".join(lines)


def _changes(generated: Plan, plan: Plan) -> Iterator[str]:
    if plan.duration != generated.duration:
        yield f"    duration={plan.duration!r},"
    if plan.logins != generated.logins:
        yield "    logins=None,"
    if plan.members != generated.members:
        yield from _listed("members", [repr(one) for one in plan.members])
    if plan.faults != generated.faults:
        yield from _listed("faults", [_fault_code(one) for one in plan.faults])


def _fault_code(fault: Fault) -> str:
    """A fault as code, without arguments that have their default."""
    code = repr(fault).replace("when=None, ", "").replace("when=Moment(", "when=faults.Moment(")
    return f"faults.{code}"


def _listed(name: str, values: Sequence[str]) -> Iterator[str]:
    if not values:
        yield f"    {name}=(),"
        return
    yield f"    {name}=("
    for value in values:
        yield f"        {value},"
    yield "    ),"


def _number(value: float) -> str:
    return repr(int(value) if value == int(value) else value)


def _brief(scenario: Scenario) -> str:
    """A scenario as code, without arguments that have their default."""
    default = Scenario()
    given = {
        field.name: _plain(getattr(scenario, field.name))
        for field in attrs.fields(Scenario)
        if getattr(scenario, field.name) != getattr(default, field.name)
    }
    return f"Scenario({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _importable(given: Callable[..., object]) -> tuple[str, str] | None:
    """The module and the name of a function or class, or None if it cannot be imported by them."""
    if not inspect.isfunction(given) and not inspect.isclass(given):
        return None
    if given.__module__ in (None, "__main__") or not given.__qualname__.isidentifier():
        return None
    return given.__module__, given.__qualname__
