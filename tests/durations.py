"""Lists the slowest test files of a run, and their processor time; CI shows this at its end.

The processor time is that of pytest's workers and of the processes that they have waited for. A
Kafka that tests share, and Spark's JVM, are counted where they end, or not at all.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Final

import pytest

SHOWN: Final = 25
TITLE: Final = "slowest files: seconds, and seconds of the processor"

_counted = {"until now": 0.0}


def pytest_collection_finish() -> None:
    """Begin to count: what collecting costs is no test's."""
    _counted["until now"] = sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in each report the processor time since the last one of this worker."""
    report = yield
    now = sum(os.times()[:4])
    report.processor = now - _counted["until now"]  # type: ignore[attr-defined]
    _counted["until now"] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest files: the sums over all workers, with setup and teardown."""
    seconds: dict[str, float] = defaultdict(float)
    processor: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file, _, _ = report.nodeid.partition("::")
                seconds[file] += report.duration
                processor[file] += getattr(report, "processor", 0.0)
    if not terminalreporter.config.option.durations or not seconds:
        return
    terminalreporter.section(TITLE)
    slowest = sorted(seconds, key=lambda file: seconds[file] + processor[file], reverse=True)
    for file in slowest[:SHOWN]:
        terminalreporter.line(f"{seconds[file]:8.1f}s {processor[file]:7.1f}s {file}")
    total = sum(processor.values())
    terminalreporter.line(f"{sum(seconds.values()):8.1f}s {total:7.1f}s all files")
