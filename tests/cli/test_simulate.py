"""``kgroup simulate``: its options, its output, its exit status."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from kgroup.cli import main
from kgroup.cli.simulate import _Display, _summary_lines
from kgroup.testing.simulation import (
    Progress,
    Scenario,
    Summary,
    default_worker,
    generate_plan,
    simulate,
)
from kgroup.testing.simulation.hanging import SimulationHangError
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.workload import Workload

LOSSY = "tests.testing.simulation.programs:lossy"
JSON_READER = "tests.testing.simulation.programs:json_reader"
VALUE = "tests.testing.simulation.programs:document"
SETUP = "tests.testing.simulation.programs:numbers"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the change of ``sys.path`` by the command, which adds the current folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def run(*options: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["simulate", "--processes", "1", *options])


def test_a_seed_that_holds_is_summarised(tmp_path: Path) -> None:
    """A single seed has a summary in figures; its trace is the one that the library gives."""
    trace = tmp_path / "trace.txt"
    small = ("--members", "2", "--brokers", "1", "--minutes", "0.5", "--faults-per-hour", "0")
    result = run("--seeds", "17", *small, "--trace", str(trace))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("seed 17: every invariant holds\n  virtual time ")
    assert re.search(r"records +(\d+) written, \1 processed, 0 processed again", result.output)
    assert re.search(r"^  unprocessed +none$", result.output, re.MULTILINE)
    scenario = Scenario(members=2, brokers=1, duration=30.0, faults_per_hour=0.0, logins=True)
    assert trace.read_text(encoding="utf-8") == simulate(generate_plan(scenario, 17)).trace


def test_a_failure_is_reported() -> None:
    """The status is 1, and the report has the command that gives the same failure again."""
    options = ("--members", "1", "--brokers", "1", "--minutes", "0.5", "--faults-per-hour", "0")
    result = run("--seeds", "5:7", *options, "--worker", LOSSY)
    assert result.exit_code == 1
    assert result.output.startswith("seed 5 fails\n    invariant 7 broken at ")
    command = re.search(r"^ +kgroup simulate (.*)$", result.output, re.MULTILINE)
    assert command is not None
    assert run(*command[1].split()).output == result.output


def test_a_program_has_values_and_a_store_of_its_own() -> None:
    """Its functions are imported, and the command that repeats a failure names them."""
    small = ("--members", "1", "--brokers", "1", "--minutes", "0.5", "--faults-per-hour", "0")
    own = ("--worker", JSON_READER, "--value", VALUE, "--setup", SETUP, "--no-topic-deletions")
    result = run("--seeds", "5", *small, *own)
    assert result.exit_code == 0, result.output
    failed = run("--seeds", "5", *small, *own[:4], "--setup", "builtins:dict")
    assert failed.exit_code == 1
    assert "invariant 14 broken" in failed.output
    assert f"--worker {JSON_READER} --value {VALUE} --setup builtins:dict" in failed.output


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (("--worker", VALUE), "--worker=<function document"),
        (("--worker", JSON_READER, "--value", SETUP), "--value=<function numbers"),
        (("--worker", JSON_READER, "--setup", VALUE), "--setup=<function document"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(option: tuple[str, ...], named: str) -> None:
    """The error names the option and what the function is called with, and no seed is run."""
    result = run("--seeds", "5", *option)
    assert result.exit_code == 2
    text = " ".join(result.output.replace("│", " ").split())
    assert named in text
    assert "it is called with" in text


def test_the_summary_says_why_records_were_not_processed() -> None:
    """Each reason that occurs has its number."""
    summary = Summary(written=20, processed=5, aborted=7, deleted=6)
    line = "  unprocessed   7 in aborted transactions, 6 deleted with their topic, 2 skipped"
    assert line in _summary_lines(range(1), summary, 1.0)


def test_options_reach_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option has its effect; hours and minutes are added; the default is ten minutes."""
    calls: list[tuple[object, ...]] = []

    def check(scenario: Scenario, seeds: range, *rest: object, **more: object) -> object:
        calls.append((scenario, seeds, *rest, more["processes"], more["keep_going"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("kgroup.cli.simulate.check", check)
    assert CliRunner().invoke(main, ["simulate"]).exit_code == 130
    result = run(
        *("--seeds", "3:9", "--hours", "2", "--minutes", "10", "--members", "6", "--brokers", "2"),
        *("--faults-per-hour", "7.5", "--keep-going"),
    )
    assert result.exit_code == 130
    assert result.output.endswith("interrupted\n")
    for options in ((), ("--logins",)):
        run("--seeds", "1", "--worker", LOSSY, *options)
    run("--seeds", "1", "--no-logins", "--no-topic-deletions")
    scenario = Scenario(members=6, brokers=2, duration=7800.0, faults_per_hour=7.5, logins=True)
    assert calls[:2] == [
        (Scenario(logins=True), range(100), Workload(default_worker), None, False),
        (scenario, range(3, 9), Workload(default_worker), 1, True),
    ]
    assert [call[0] for call in calls[2:]] == [
        Scenario(),
        Scenario(logins=True),
        Scenario(deletes_topics=False),
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--seeds", "x"), "'x' is neither a seed, such as 17, nor FIRST:END"),
        (("--seeds", "5:5"), "'5:5' contains no seed"),
        (("--seeds", "-1"), "'-1' is neither a seed"),
        (("--worker", "program"), "'program' is not MODULE:FUNCTION"),
        (("--worker", "nowhere:f"), "'nowhere:f' cannot be imported: No module named 'nowhere'"),
        (("--worker", "kgroup.types:INT32_MAX"), "not an async function"),
        (("--worker", "kgroup.types:f"), "cannot be imported"),
        (("--worker", LOSSY, "--value", "kgroup.types:INT32_MAX"), "2147483647, not a function"),
        (("--value", VALUE), "--value is for a program of your own, which --worker names"),
        (("--setup", SETUP), "--setup is for a program of your own, which --worker names"),
        (("--seeds", "0:99999999999999999999999"), "a whole number from 0 to 9223372036854775807"),
        (("--seeds", "0:1000001"), "has 1000001 seeds; one command runs at most 1000000"),
        (("--minutes", "nan"), "'nan' is refused: it must be a number from 0 to 60000"),
        (("--minutes", "inf"), "'inf' is refused"),
        (("--hours", "1e308"), "'1e308' is refused: it must be a number from 0 to 1000"),
        (("--hours", "0"), "for '--hours' / '--minutes': it must be a number of seconds from 1"),
        (("--hours", "26"), "4 members may be simulated for at most 25 hours (100 member-hours"),
        (("--faults-per-hour", "inf"), "'inf' is refused: it must be a number from 0 to 100000"),
        (("--faults-per-hour", "99999", "--hours", "1"), "at most 10000 faults in 1 hours"),
        (("--members", "100000000"), "'100000000' is refused"),
        (("--processes", "257"), "a whole number from 1 to 256"),
        (("--trace", "t"), "--trace is for a single seed"),
        (("--members", "0"), "'0' is refused: it must be a whole number from 1 to 100"),
    ],
)
def test_bad_options_are_refused(options: tuple[str, ...], complaint: str) -> None:
    """Nothing is run, and the message says what is wrong."""
    result = run(*options)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


def test_a_trace_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The message names the file and why."""
    trace = tmp_path / "nowhere" / "trace"
    small = ("--members", "1", "--brokers", "1", "--minutes", "0.1")
    result = run("--seeds", "1", *small, "--trace", str(trace))
    assert result.exit_code == 1
    assert f"cannot write {trace}: No such file or directory" in " ".join(result.output.split())


def test_a_terminal_shows_the_progress() -> None:
    """The bar has seeds, their rate, virtual hours a second, failures, and the shrinking."""
    console = Console(force_terminal=True, width=120, record=True, color_system=None)
    with _Display(console) as display:
        display.show(Progress(seeds=3, of=10, failed=(2,)))
        display._bar.refresh()
        display.show(Progress(seeds=3, of=10, failed=(2,), shrinking=4))
        display._bar.refresh()
    shown = console.export_text()
    assert "seeds" in shown
    assert "3/10" in shown
    assert re.search(r"seeds/s, .* virtual h/s, 1 failed", shown)
    assert "shrinking (plan 4)" in shown


def test_elsewhere_a_line_is_printed_each_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """It has what the bar has, on the standard error; the output is for the result."""
    display = _Display(Console(force_terminal=False))
    times = iter([10.0, 61.0, 62.0, 130.0])
    display._began = display._told = 0.0
    display._now = lambda: next(times)
    with display:
        for seeds in (1, 2, 3):
            display.show(Progress(seeds=seeds, of=10))
        display.show(Progress(seeds=4, of=10, failed=(2,), shrinking=7))
    shown = capsys.readouterr()
    first, second = shown.err.splitlines()
    assert re.fullmatch(r"seeds 2/10, .* seeds/s, .* virtual h/s", first)
    assert re.fullmatch(r"shrinking \(plan 7\) 4/10, .* virtual h/s, 1 failed", second)
    assert shown.out == ""


@pytest.mark.parametrize(
    ("failed", "failure", "found"),
    [
        ((), "", "every invariant holds in these"),
        ((9, 4), "invariant 7\ninvariant 8", "these fail: 4, 9\n    invariant 7\n    invariant 8"),
    ],
)
def test_a_campaign_that_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, failed: tuple[int, ...], failure: str, found: str
) -> None:
    """It says how many seeds were run, and what was found."""

    def check(*_: object, on_progress: Callable[[Progress], object], **__: object) -> object:
        on_progress(Progress(seeds=5, of=6, failed=failed, failure=failure))
        raise KeyboardInterrupt

    monkeypatch.setattr("kgroup.cli.simulate.check", check)
    result = run("--seeds", "3:9")
    assert result.exit_code == 130
    assert result.stderr == f"interrupted after 5 of 6 seeds; {found}\n"


def test_the_verdict_is_printed_last() -> None:
    """The states that were visited come before it, so that it is on the screen."""
    lines = _summary_lines(range(2), Summary(), 1.0)
    assert lines[0].startswith("state coverage: 0 of ")
    assert lines[-8] == "seeds 0 to 1: every invariant holds"


def test_a_scheme_is_judged_and_not_failed(tmp_path: Path) -> None:
    """What a group protocol breaks is listed, and the exit status is 0; a trace can be kept."""
    trace = tmp_path / "trace.txt"
    small = ("--members", "2", "--minutes", "2", "--faults-per-hour", "300")
    result = run("--seeds", "3", "--scheme", "zookeeper", *small, "--trace", str(trace))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("zookeeper: 1 seed\n  records ")
    assert re.search(r"invariant 2 .*\n +(broken in 1 seed, \d+ times?;|holds)", result.output)
    assert "PartitionsTaken(" in trace.read_text(encoding="utf-8")


def test_the_seed_timeout_holds_for_a_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulation of an earlier protocol that takes too long is reported, also for its trace."""
    timeouts = []

    def hang(*_: object, seed_timeout: float) -> tuple[HistoryEntry, ...]:
        timeouts.append(seed_timeout)
        raise SimulationHangError(3, 1.0, "seed 3 hangs")

    monkeypatch.setattr("kgroup.cli.simulate.record", hang)
    monkeypatch.setattr("kgroup.testing.simulation.schemes.findings.record", hang)
    for trace in ((), ("--trace", str(tmp_path / "trace.txt"))):
        result = run("--seeds", "3", "--scheme", "zookeeper", "--seed-timeout", "2.5", *trace)
        assert (result.exit_code, result.output) == (1, "Error: seed 3 hangs\n")
    assert timeouts == [2.5, 2.5]


@pytest.mark.parametrize(
    "option",
    [
        ["--worker", LOSSY],
        ["--value", VALUE],
        ["--setup", SETUP],
        ["--logins"],
        ["--processes=2"],
        ["--keep-going"],
    ],
)
def test_an_option_without_effect_beside_a_scheme_is_refused(option: list[str]) -> None:
    """A program of the user's cannot be run with another protocol; nor do others apply."""
    result = run("--seeds", "3", "--scheme", "broker", *option)
    assert result.exit_code == 2
    assert f"leave out {option[0].partition('=')[0]}" in " ".join(result.output.split())
