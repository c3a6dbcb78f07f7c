"""Campaigns: where seeds run, what ends a campaign, and what is cleaned up."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import psutil
import pytest
import trio

from kgroup import ConsumerGroup, serve
from kgroup.errors import ConfigError, UsageError
from kgroup.interfaces import Batch
from kgroup.testing.simulation import (
    Process,
    Progress,
    Scenario,
    SimulationError,
    Summary,
    check,
    default_worker,
    generate_plan,
    simulate,
)
from kgroup.testing.simulation.campaign import _refuse_idleness
from tests.child_processes import children_where
from tests.conftest import LEAN, ROOT
from tests.testing.simulation.programs import deadly, lossy, lossy_elsewhere
from tests.testing.simulation.samples import SMALL

CALM = attrs.evolve(SMALL, duration=30.0, faults_per_hour=0.0)


async def process_all(_: object, batch: Batch) -> None:
    """A function for ``serve`` that does its work and reports nothing."""
    await trio.lowlevel.checkpoint()


@pytest.fixture(autouse=True)
def _lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes import the tests' programs, and no hypothesis, as for a user.

    The checkout comes last: where an installed kgroup is tested it is theirs as well.
    """
    monkeypatch.setattr(sys, "path", [str(LEAN), *sys.path, str(ROOT)])


def test_seeds_that_pass_give_figures() -> None:
    """Every seed is run and reported; the figures are the sum of all."""
    seen: list[Progress] = []
    summary = check(CALM, range(3), processes=1, on_progress=seen.append)
    assert [(one.seeds, one.of) for one in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[-1].summary == summary
    assert summary.seconds >= 3 * CALM.duration


def test_the_first_failure_ends_it() -> None:
    """Without ``keep_going`` no seed is started after a failure, which is shrunk."""
    started: set[int] = set()

    async def program(process: Process) -> None:
        started.add(process._plan.seed)
        await lossy(process)

    seen: list[Progress] = []
    scenario = attrs.evolve(CALM, members=1)
    with pytest.raises(SimulationError) as raised:
        check(scenario, iter(range(5, 8)), program, on_progress=seen.append, most_runs=3)
    failure = raised.value.failure
    assert (failure.seed, failure.failed_seeds) == (5, (5,))
    assert failure.shrunk.runs <= 3
    assert failure.shrunk.outcome.violations
    assert (seen[0].seeds, seen[0].of, seen[0].failed) == (1, None, (5,))
    assert [one.shrinking for one in seen] == list(range(failure.shrunk.runs + 1))
    assert started == {5}


def _has_threads(process: psutil.Process) -> bool:
    """Whether it is a pool process at work."""
    return process.num_threads() > 1


KILLED = """
import attrs
from kgroup.testing.simulation import Scenario, check
if __name__ == "__main__":
    check(Scenario(duration=86400.0), range(2), processes=2)
"""


def test_other_processes_end_with_one_that_is_killed(tmp_path: Path) -> None:
    """Pool processes end with their parent, even in the middle of a simulation."""
    script = tmp_path / "campaign.py"
    script.write_text(KILLED)
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": path}
    ) as campaign:
        try:
            seen = psutil.Process(campaign.pid)
            while len(simulating := children_where(seen, _has_threads)) < 2:
                assert campaign.poll() is None
        finally:
            campaign.kill()
    _, left = psutil.wait_procs(simulating, timeout=200)
    assert left == []


def test_other_processes_run_seeds() -> None:
    """Several processes run every seed; the reported failure happened in this process."""
    seen: list[Progress] = []
    with pytest.raises(SimulationError) as raised:
        check(
            attrs.evolve(CALM, members=1),
            range(5, 9),
            lossy,
            processes=2,
            keep_going=True,
            on_progress=seen.append,
            most_runs=0,
        )
    assert raised.value.failure.failed_seeds == (5, 6, 7, 8)
    assert raised.value.failure.seed == 5
    assert seen[-1].seeds == 4
    assert multiprocessing.active_children() == []


def test_an_interruption_ends_all_processes() -> None:
    """Ctrl-C ends all pool processes and is not reported as a failure."""

    def interrupt(_: Progress) -> None:
        assert multiprocessing.active_children()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(CALM, itertools.count(), processes=2, on_progress=interrupt)
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_is_reported() -> None:
    """A pool process that ends without a result raises an error with its status."""
    with pytest.raises(UsageError, match=r"'kgroup simulation \d' ended with status 3"):
        check(CALM, range(2), deadly, processes=2)
    assert multiprocessing.active_children() == []


def test_a_failure_only_in_another_process_is_reported() -> None:
    """A seed that fails only in another process is reported as not deterministic."""
    with pytest.raises(RuntimeError, match="the program depends on more than its seed"):
        check(attrs.evolve(CALM, members=1), range(2), lossy_elsewhere, processes=2)


@pytest.fixture
def module_of_this_process() -> Iterator[ModuleType]:
    """A module that no other process can import."""
    module = ModuleType("module_of_this_process")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_a_program_that_others_cannot_import_runs_here(
    module_of_this_process: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """A program that cannot be imported runs in this process."""
    here: list[str] = []

    async def program(process: Process) -> None:
        here.append(process.name)
        await default_worker(process)

    program.__module__, program.__qualname__ = module_of_this_process.__name__, "program"
    module_of_this_process.program = program  # type: ignore[attr-defined]
    check(CALM, range(2), program, processes=2)
    assert len(here) == 2 * CALM.members
    assert capfd.readouterr().err == ""


def test_a_simulation_that_cannot_be_run_names_its_seed() -> None:
    """An error of the simulation itself is raised unchanged, with the seed in a note."""

    def value(partition: object, number: int) -> bytes:
        return b"%d" % (7 // (number < 3))

    with pytest.raises(ZeroDivisionError) as raised:
        check(CALM, [11], default_worker, value=value, processes=1)
    assert raised.value.__notes__ == ["This happened in the simulation of seed 11."]


def test_a_program_that_never_joins_is_no_success() -> None:
    """A campaign without any generation has tested nothing and raises an error."""

    async def program(process: Process) -> None:
        raise ValueError("a setting is missing")

    text = (
        r"no group became stable in any of 2 .* ended with: m\d: ValueError: a setting is missing"
    )
    with pytest.raises(UsageError, match=text):
        check(CALM, range(2), program)


def test_a_program_that_processes_nothing_is_no_success() -> None:
    """A campaign in which no record was read has tested nothing and raises an error."""

    async def program(process: Process) -> None:
        async with ConsumerGroup(process.config(topics=["misspelt"])) as group:
            await serve(group, process_all)

    with pytest.raises(UsageError, match=r"no record was processed in any of 2 .* could be read"):
        check(CALM, range(2), program)


def test_where_nothing_could_be_read_there_is_nothing_to_process() -> None:
    """Records of aborted transactions and of deleted topics are no fault of a program."""
    summary = Summary(generations=1, written=5, aborted=3, deleted=2)
    _refuse_idleness(Progress(seeds=1, summary=summary))
    with pytest.raises(UsageError, match="although 1 could be read"):
        _refuse_idleness(Progress(seeds=1, summary=attrs.evolve(summary, deleted=1)))


@pytest.mark.parametrize("share", ["serve", "loop"])
def test_a_program_that_never_reports_is_told_how(share: str) -> None:
    """It fails in its first seed, and the report says what to call and where."""

    async def program(process: Process) -> None:
        async with ConsumerGroup(process.config()) as group:
            if share == "serve":
                await serve(group, process_all)
            async for generation in group:
                async for batch in generation.records():
                    await generation.commit({batch.partition: batch.next_offset})

    with pytest.raises(SimulationError) as raised:
        check(CALM, range(5, 8), program, most_runs=0)
    text = str(raised.value)
    assert "seed 5 fails\n    invariant 7 broken" in text
    assert "No program has reported a record as processed" in text
    assert "process.processed(message), or await process.process(message)" in text


def test_a_program_that_loses_records_is_not_told_to_report() -> None:
    """The report of one that has reported records does not say how."""
    with pytest.raises(SimulationError) as raised:
        check(attrs.evolve(CALM, members=1), [5], lossy, processes=1, most_runs=0)
    assert "No program has reported" not in str(raised.value)


@pytest.mark.parametrize(
    ("seeds", "named"),
    [
        (3, "seeds=3"),
        ("0:3", "seeds='0'"),
        ([1, 2.5], "seeds=2.5"),
        (iter([True]), "seeds=True"),
        (None, "seeds=None"),
    ],
)
def test_seeds_that_are_no_integers_are_refused(seeds: Any, named: str) -> None:
    """The error names what was given, and what to give instead of a single number."""
    with pytest.raises(ConfigError) as raised:
        check(CALM, seeds, processes=1)
    assert str(raised.value).startswith(f"{named} is refused: it must be an iterable of integers")
    assert "range(3) for the seeds 0, 1 and 2, or [3] for seed 3 alone" in str(raised.value)


@pytest.mark.parametrize("seeds", [[], range(5, 5), iter(())])
def test_without_a_seed_nothing_is_tested(seeds: Iterable[int]) -> None:
    """A campaign without seeds raises an error."""
    with pytest.raises(ConfigError, match="without a seed nothing is tested"):
        check(CALM, seeds, processes=1)


def test_nothing_of_a_simulation_stays() -> None:
    """A simulation leaves no objects behind, and the garbage collector is on again."""
    made_once = {"kgroup.wire.codec._Codec", "kgroup.wire.entities.FieldShape"}  # for each request

    def objects() -> Counter[str]:
        gc.collect()
        names = (f"{type(one).__module__}.{type(one).__name__}" for one in gc.get_objects())
        ours = (name for name in names if name.startswith(("kgroup.", "trio.")))
        return Counter(name for name in ours if name not in made_once)

    scenario = Scenario(members=2, duration=20.0, topics={"orders": 1}, faults_per_hour=400.0)
    check(scenario, range(5), processes=1)
    before = objects()
    check(scenario, range(5, 15), processes=1)
    assert objects() - before == Counter()
    assert gc.isenabled()


def test_an_interrupted_simulation_is_interrupted() -> None:
    """Ctrl-C in a simulation raises a bare KeyboardInterrupt."""

    async def program(process: Process) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(generate_plan(CALM, 0), program)


INTERRUPTED = """
import os
import signal

from kgroup.testing.simulation import Scenario, check

if __name__ == "__mp_main__":
    os.kill(os.getpid(), signal.SIGINT)  # while a process of the pool is still importing

if __name__ == "__main__":
    scenario = Scenario(members=1, brokers=1, duration=30.0, faults_per_hour=0.0)
    print(check(scenario, range(2), processes=2).crashes)
"""


def test_ctrl_c_while_the_processes_start_is_the_parent_s(tmp_path: Path) -> None:
    """A SIGINT that reaches a new process of the pool neither ends it nor prints a traceback."""
    (tmp_path / "campaign.py").write_text(INTERRUPTED, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "campaign.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("0\n", "")
