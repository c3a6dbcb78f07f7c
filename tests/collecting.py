"""The order of all tests, including those on Spark, and which of them share a process.

pytest-xdist requires that every worker collects the same tests in the same order, and each worker
collects for itself. INVARIANT: the order is a function of the path relative to the root, of the
fixtures that a test names, and of the order in which a file defines its tests. Nothing here depends
on hashes, on the worker or on what other workers do, and no test item is a key of a dict: an
item's hash is that of its node id, which pytest-xdist changes while it collects.

The longest tests begin first, so that no worker is left alone with one at the end. Tests that use a
Spark session share a worker, because a process has one session. Tests on Spark that start a Kafka
share another worker, because each process would start its own Kafka.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from functools import cache
from pathlib import Path, PurePath
from typing import Final

import pytest

SESSION: Final = "session"
KAFKA: Final = "kafka"
ON_SPARK: Final = PurePath("tests", "spark")
GROUPS: Final = {"spark": SESSION, "kafka": KAFKA, "real_kafka": KAFKA}
"""The group of a test on Spark, by the first of these fixtures that it uses."""
FIRST: Final = (
    "tests/testing/simulation/test_seeds.py",
    "tests/schedules/test_schedules.py",
    "tests/cli/demo/test_whole_demo.py",
    "tests/testing/simulation/mutations/test_mutations.py",
    "tests/broker/interop/test_groups.py",
    "tests/broker/interop/test_java_tools.py",
    "tests/broker/interop/test_mixed_group.py",
    "tests/behaviour/test_freeze.py",
    "tests/testing/test_kafka.py",
    "tests/spark/examples/test_exactly_once.py",
    "tests/spark/test_drivers.py",
    SESSION,
    "tests/spark/test_demo.py",
    "tests/spark/test_cluster.py",
)
"""The files and groups of tests that take longest, in the order in which they begin.

The seeds compute for minutes. The tests after them mostly wait for the processes that they start,
and short tests fill the rest of the time.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, because hardly anything becomes garbage then."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the groups before pytest-xdist reads them, and put the tests in order.

    The sort is stable: tests of one file stay in the order in which pytest collected them. After
    this hook, pytest itself groups tests that share a parameter of a session's fixture.
    """
    for item in items:
        if (name := group(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=place)


def place(item: pytest.Item) -> tuple[int, str]:
    """The sort key of a test: its place in ``FIRST``, then its path."""
    return _place(relative(item).as_posix(), group(item))


@cache
def _place(path: str, group_name: str | None) -> tuple[int, str]:
    ranks = (rank for rank, name in enumerate(FIRST) if name in {path, group_name})
    return next(ranks, len(FIRST)), path


def group(item: pytest.Item) -> str | None:
    """The group of a test on Spark, by its fixtures; None for every other test."""
    if not _on_spark(relative(item)):
        return None
    names = getattr(item, "fixturenames", ())
    return next((name for fixture, name in GROUPS.items() if fixture in names), None)


@cache
def _on_spark(path: PurePath) -> bool:
    return path.is_relative_to(ON_SPARK)


def relative(item: pytest.Item) -> PurePath:
    """The path of the test's file, relative to the root of the checkout."""
    return _relative(item.path, item.config.rootpath)


@cache  # ten thousand tests are in four hundred files
def _relative(path: Path, root: Path) -> PurePath:
    return path.relative_to(root)
