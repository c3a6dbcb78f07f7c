"""Tests are handed out as pytest-xdist would, at the cost of those that have not ended."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import Scheduling, pytest_xdist_make_scheduler


class Worker:
    """Stands for a worker's process: it receives the tests that it runs."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        """Keep what it is to run."""
        self.given += indices

    def shutdown(self) -> None:
        """It gets no more tests."""
        self.shutting_down = True


def test_every_test_is_handed_out_once(request: pytest.FixtureRequest) -> None:
    """Each test runs once, those of a group in one worker, and no ended group is kept."""
    names = [f"tests/test_a.py::test[{number}]" for number in range(40)]
    names += [f"tests/test_b.py::test_{number}@group" for number in range(5)]
    config: Any = SimpleNamespace(
        option=request.config.option,
        getvalue=lambda name: ["2*popen"] if name == "tx" else request.config.getvalue(name),
    )
    scheduling = Scheduling(config)
    workers: list[Any] = [Worker("gw0"), Worker("gw1")]
    for worker in workers:
        scheduling.add_node(worker)
    for worker in workers:
        scheduling.add_node_collection(worker, names)
    scheduling.schedule()
    ran: list[list[int]] = [[], []]
    kept = 0
    while not scheduling.tests_finished:
        for worker, done in zip(workers, ran, strict=True):
            if len(done) < len(worker.given):
                done.append(worker.given[len(done)])
                scheduling.mark_test_complete(worker, done[-1])
                kept = max(kept, *map(len, scheduling.assigned_work.values()))
    last = [worker.given[len(done) :] for worker, done in zip(workers, ran, strict=True)]
    assert sorted(chain(*ran, *last)) == list(range(len(names)))
    grouped = set(range(40, 45))
    together = [grouped & {*worker.given} for worker in workers]
    assert [found for found in together if found] == [grouped]
    assert kept <= 4


@pytest.mark.parametrize(("dist", "ours"), [("loadgroup", True), ("load", False)])
def test_other_ways_are_those_of_the_plugin(dist: str, ours: bool) -> None:
    """Only the way that this suite uses is replaced."""
    config: Any = SimpleNamespace(
        getoption=lambda _: dist, getvalue=lambda name: ["popen"] if name == "tx" else None
    )
    assert (pytest_xdist_make_scheduler(config, None) is not None) == ours
