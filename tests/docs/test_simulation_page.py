"""docs/simulation.md: its worker fails as the page says, and the corrected worker passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from kgroup.interfaces import Batch
from kgroup.testing.simulation import Scenario, SimulationError, Summary, Worker, check
from kgroup.testing.simulation.workload import Setup, Value

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"
BLOCKS: Final = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
WORKER, TEST, SERVED = BLOCKS[:3]
(PLAIN,) = (block for block in BLOCKS if "handle_simulated" in block)
(SQLITE,) = (block for block in BLOCKS if "sqlite" in block)
FAULT: Final = "                    break  # make way for the next owner\n"
CORRECTED: Final = (
    "                    await generation.commit({partition: message.offset()})\n"
    "                    return\n"
)
LONGEST: Final = 40

Run = Callable[[str], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the page's test with a worker in this process: less time, more faults."""

    def simulation(worker: Worker, *, seeds: range, **scenario: Any) -> None:
        given = Scenario(**scenario, duration=100.0, faults_per_hour=400.0)
        check(given, seeds[:12], worker, processes=1, most_runs=1)

    def with_worker(source: str) -> None:
        module = ModuleType("worker")
        exec(source, vars(module))  # noqa: S102 # the page's own code
        monkeypatch.setitem(sys.modules, "worker", module)
        names: dict[str, Any] = {}
        exec(TEST, names)  # noqa: S102
        names["test_worker"](simulation)

    return with_worker


def test_the_example_is_short() -> None:
    """The worker and the test that reveals its fault take less than forty lines."""
    assert len((WORKER + TEST).splitlines()) < LONGEST


def test_the_worker_fails(run: Run) -> None:
    """The simulator finds that the page's worker commits records that it has not processed."""
    with pytest.raises(SimulationError, match="invariant 7 broken.*has not been processed"):
        run(WORKER)


def test_the_corrected_worker_passes(run: Run) -> None:
    """With the correction that the page describes, the worker passes."""
    assert FAULT in WORKER
    run(WORKER.replace(FAULT, CORRECTED))


def test_the_worker_with_sqlite_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values, its store and its assertion are simulated; each run has a database of its own."""
    monkeypatch.syspath_prepend(str(PAGE.parents[1] / "examples"))
    summaries: list[Summary] = []

    def simulation(
        worker: Worker, *, value: Value, setup: Setup, seeds: range, **rest: Any
    ) -> None:
        given = Scenario(**rest, duration=60.0, faults_per_hour=300.0)
        summaries.append(check(given, seeds[:4], worker, value=value, setup=setup, processes=1))

    names: dict[str, Any] = {}
    exec(SQLITE, names)  # noqa: S102 # the page's own code
    names["test_orders"](simulation)
    assert summaries[0].processed > 50


def test_a_plain_function_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called with the batches, and what it leaves is handed out again."""

    def handle(_generation: object, batch: Batch) -> int | None:
        return batch.next_offset - 1 if len(batch) > 1 else None

    module = ModuleType("worker")
    vars(module)["handle"] = handle
    monkeypatch.setitem(sys.modules, "worker", module)
    names: dict[str, Any] = {}
    exec(PLAIN, names)  # noqa: S102
    summary = check(Scenario(duration=60.0), range(3), names["member"], processes=1, most_runs=1)
    assert summary.processed > 50


def test_the_worker_with_serve_passes(run: Run) -> None:
    """A function that returns where it stopped needs no correction."""
    run(SERVED)
