"""``kgroup demo``: its options, its last line, its exit status."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from kgroup.cli.demo import command
from kgroup.cli.demo.audit import AuditReport, audit
from kgroup.cli.demo.director import DRIVERS, DemoPlan
from kgroup.cli.demo.display import Display
from kgroup.testing.spark import java
from tests.cli.demo.story import whole_story

RIGHT = audit(whole_story().evidence())
WRONG = {
    "unplaced": 1,
    "lost": 1,
    "never_produced": 1,
    "repeated_planned": 1,
    "beyond_batch_in_hand": 1,
    "out_of_order": 1,
    "stale_commits_accepted": 1,
    "offsets_wrong": 1,
    "counts_equal": False,
    "problems": ("no worker came",),
}

Run = Callable[..., Result]


@pytest.fixture
def plans() -> list[DemoPlan]:
    """The plans with which the command ran a demo."""
    return []


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plans: list[DemoPlan]
) -> Callable[..., Result]:
    """Runs the command with these options and a demo that ends with the given report."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(account: AuditReport, *options: str) -> Result:
        async def run_demo(plan: DemoPlan, folder: Path, display: Display) -> AuditReport:
            (folder / "journal").write_text("something")
            display.say("It happens.")
            plans.append(plan)
            return account

        monkeypatch.setattr(command, "run_demo", run_demo)
        return CliRunner().invoke(command.demo, options)

    return run


def test_the_defaults(run: Run, plans: list[DemoPlan], tmp_path: Path) -> None:
    """50,000 lines of Python's own modules, three workers, the demo's own broker; status 0."""
    result = run(RIGHT)
    assert result.exit_code == 0, result.output
    assert "It happens." in result.output
    assert result.output.endswith("The account is right.\n")
    (plan,) = plans
    assert len(plan.lines) == 50_000
    assert (plan.workers, plan.bootstrap_servers) == (3, None)
    assert list(tmp_path.iterdir()) == []


def test_the_options(run: Run, plans: list[DemoPlan], tmp_path: Path) -> None:
    """Files, lines, workers, partitions and the existing cluster are those of the options."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a\n")
    other.write_text("b\n")
    options = ["--lines=1000", "--workers=4", "--partitions=9", "--bootstrap-servers=h:1"]
    result = run(RIGHT, f"--file={one}", f"--file={other}", *options)
    assert result.exit_code == 0, result.output
    lines = ["a", "b"] * 500
    assert plans == [DemoPlan(lines=lines, workers=4, partitions=9, bootstrap_servers="h:1")]


def test_with_spark_the_workers_are_two_drivers(
    run: Run, plans: list[DemoPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two by default; it was checked before that they can run."""
    monkeypatch.setattr(command, "require_spark", lambda: None)
    assert run(RIGHT, "--spark").exit_code == 0
    assert run(RIGHT, "--spark", "--workers=1").exit_code == 2
    (plan,) = plans
    assert (plan.workers, plan.worker_kind) == (2, DRIVERS)


@pytest.mark.parametrize("missing", ["pyarrow", "pyspark", "psutil", "Java"])
def test_the_error_names_what_spark_lacks(
    run: Run, plans: list[DemoPlan], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """The error comes before anything is started, and says what to do."""
    # The test must not depend on what is installed, so stubs replace the packages that are there.
    for name in "pyarrow", "pyspark":
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__version__="4.0.0"))
    if missing == "Java":
        monkeypatch.setattr(java, "_candidates", lambda *, installed: iter(()))
    else:
        monkeypatch.setitem(sys.modules, missing, None)
        for name in [name for name in sys.modules if name.startswith("kgroup.testing.spark")]:
            monkeypatch.delitem(sys.modules, name)
    result = run(RIGHT, "--spark")
    assert result.exit_code == 1
    assert missing in result.output
    assert "install" in result.output
    assert plans == []


def test_json_is_the_last_line(run: Run) -> None:
    """With --json the last line is an object with every figure."""
    result = run(RIGHT, "--json")
    assert result.exit_code == 0
    account = json.loads(result.output.splitlines()[-1])
    assert account == {**attrs.asdict(RIGHT), "problems": []}


@pytest.mark.parametrize("figure", WRONG)
def test_a_failed_demo_ends_with_status_1(run: Run, figure: str, tmp_path: Path) -> None:
    """The output says what is wrong; the workers' files are kept, with --json too."""
    change: dict[str, Any] = {figure: WRONG[figure]}
    account = attrs.evolve(RIGHT, **change)
    result = run(account, "--json")
    assert result.exit_code == 1
    assert f"WRONG: {account.faults[0]}\n" in result.output
    assert "The account is right" not in result.output
    (kept,) = tmp_path.glob("*/journal")
    assert f"What the workers wrote is in {kept.parent}\n" in result.output
    assert json.loads(result.output.splitlines()[-1])[figure] == json.loads(
        json.dumps(WRONG[figure])
    )


@pytest.mark.parametrize(
    "option",
    [
        "--lines=999",
        "--workers=2",
        "--partitions=0",
        "--file=/no/such/file",
        "--timeline=/no/such/page.html",
    ],
)
def test_a_wrong_option_is_refused(run: Run, option: str, plans: list[DemoPlan]) -> None:
    """A wrong option is an error before anything is started."""
    assert run(RIGHT, option).exit_code == 2
    assert plans == []


def test_a_text_without_a_line_is_refused(run: Run, tmp_path: Path, plans: list[DemoPlan]) -> None:
    """The error names the file and the option."""
    file = tmp_path / "empty"
    file.touch()
    result = run(RIGHT, f"--file={file}")
    assert result.exit_code == 1
    assert f"no line of text in {file}; name text files with --file" in result.output
    assert plans == []


def test_a_bug_in_the_demo_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bug in the demo itself ends with a traceback in place of a report."""

    async def fail(plan: DemoPlan, folder: Path, display: Display) -> AuditReport:
        raise RuntimeError(f"{plan} {folder} {display}")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(command, "run_demo", fail)
    result = CliRunner().invoke(command.demo, [])
    assert isinstance(result.exception, ExceptionGroup)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", [SystemExit(1), OSError(28, "No space left on device")])
def test_output_that_cannot_be_written_ends_the_demo_by_a_bare_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: BaseException
) -> None:
    """A closed pipe, and a full disk, leave no traceback of an exception group, and no folder."""

    async def fail(*_: object) -> AuditReport:
        raise failure

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(command, "run_demo", fail)
    with pytest.raises(type(failure)) as raised:
        command.demo.main([], standalone_mode=False)
    assert raised.value is failure
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("account", [RIGHT, attrs.evolve(RIGHT, problems=("no topic",))])
def test_the_account_is_printed_without_its_page(
    run: Run, tmp_path: Path, account: AuditReport
) -> None:
    """If no worker has begun, or the page cannot be written, all else is printed before that."""
    page = tmp_path / "page.html"
    result = run(account, "--json", "--timeline", str(page))
    assert result.exit_code == 1
    assert "The account is right." in result.stdout or "WRONG: no topic" in result.stdout
    assert json.loads(result.stdout.splitlines()[-1])["problems"] == list(account.problems)
    assert f"{page} was not written: no worker has written an event" in result.stderr
    assert not page.exists()
