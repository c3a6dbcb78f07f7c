"""Lists the slowest test files of a run; CI shows this list at its end."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pytest

SHOWN: Final = 15
TITLE: Final = "slowest files"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest files: the sum over all workers, with setup and teardown."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file, _, _ = report.nodeid.partition("::")
                seconds[file] += report.duration
    slowest = sorted(seconds.items(), key=lambda entry: entry[1], reverse=True)
    if terminalreporter.config.option.durations and slowest:
        terminalreporter.section(TITLE)
        for file, duration in slowest[:SHOWN]:
            terminalreporter.line(f"{duration:8.1f}s {file}")
