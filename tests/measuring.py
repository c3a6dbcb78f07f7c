"""Which tests coverage is measured with: those of single modules, not those of the whole.

Coverage takes two to four times the processor time of a test on Python 3.11. Tests that play
stories, often against a real Kafka, or many generated cases run code that the tests of its modules
run anyway. Meanwhile the measuring stops. The process that hands tests out to workers runs none,
and is not measured either.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import PurePath
from typing import Final

import coverage
import pytest

from tests.collecting import relative

STORIES: Final = tuple(
    PurePath("tests", place)
    for place in (
        "aio/test_behaviour.py",
        "aio/test_random_cancellation.py",
        "assignors/test_cooperative.py",
        "assignors/test_general.py",
        "assignors/test_range.py",
        "assignors/test_roundrobin.py",
        "assignors/test_sticky.py",
        "behaviour",
        "benchmarks",
        "broker/interop",
        "cli/demo/test_whole_demo.py",
        "cli/timeline/test_hostile_lines.py",
        "conformance",
        "docs",
        "examples",
        "generation/test_position_searches.py",
        "group/test_idle.py",
        "group/test_inherited_assignments.py",
        "group/test_streams_at_random.py",
        "group/test_subscribe.py",
        "hostile",
        "house",
        "records/test_buffered_source_model.py",
        "records/test_sources.py",
        "recovery",
        "schedules",
        "security/test_broken_logins.py",
        "security/test_hostile_properties.py",
        "testing/simulation/schemes",
        "testing/simulation/test_campaign.py",
        "testing/simulation/test_fault_injection.py",
        "testing/simulation/test_found_plans.py",
        "testing/simulation/test_logins.py",
        "testing/simulation/test_own_starts.py",
        "testing/simulation/test_partition_handlers.py",
        "testing/simulation/test_producers.py",
        "testing/simulation/test_programs.py",
        "testing/simulation/test_subscriptions.py",
        "testing/simulation/test_targeted_faults.py",
        "testing/simulation/test_waiting_records.py",
        "testing/simulation/test_watchdog.py",
        "testing/simulation/test_workload.py",
        "testing/simulation/zookeeper/test_ensemble_model.py",
        "threaded/test_closing_ends.py",
        "threaded/test_group.py",
        "threaded/test_signals.py",
    )
)
"""Folders and files whose tests are not measured; only a few lines are run by nothing else."""

INHERITED: Final = "COVERAGE_PROCESS_CONFIG"
"""The variable with which coverage measures the processes that a measured one starts."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop measuring for the time of a test that is a story."""
    with not_measured() if is_story(relative(item)) else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Stop measuring while other processes run the tests."""
    workers = session.config.getoption("numprocesses", None)
    with not_measured() if workers else nullcontext():
        return (yield)


@contextmanager
def not_measured() -> Iterator[None]:
    """Stop measuring this process, if it is measured, and those that it starts meanwhile."""
    measuring = coverage.Coverage.current()
    if measuring is None:
        yield
        return
    inherited = os.environ.pop(INHERITED, None)
    measuring.stop()
    try:
        yield
    finally:
        measuring.start()
        if inherited is not None:
            os.environ[INHERITED] = inherited


def is_story(path: PurePath) -> bool:
    """Whether a test file, relative to the root, is among the stories."""
    return any(path.is_relative_to(story) for story in STORIES)
