"""librdkafka's log lines: the same one is written once in a while."""

from __future__ import annotations

import logging

import pytest

from kgroup.records.librdkafka_log import LOG, MOST_REMEMBERED, SELDOM, Seldom

REFUSED = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"


def written(lines: list[tuple[float, str]]) -> list[float]:
    """When lines were let through, of those that came at these times."""
    seldom, through = Seldom(), []
    for time, text in lines:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "%s [c] %s", ("FAIL", text), None)
        record.created = time
        if seldom.filter(record):
            through.append(time)
    return through


def test_a_line_that_is_repeated_is_written_seldom() -> None:
    """Its details do not make it another one; another broker does."""
    lines = [
        (0.0, f"{REFUSED} (after 0ms in state CONNECT)"),
        (0.1, f"{REFUSED} (after 7ms in state CONNECT, 5 identical error(s) suppressed)"),
        (0.2, f"{REFUSED.replace('9092', '9093')} (after 0ms in state CONNECT)"),
        (SELDOM - 1, REFUSED),
        (SELDOM, REFUSED),
    ]
    assert written(lines) == [0.0, 0.2, SELDOM]


def test_what_is_remembered_has_a_bound() -> None:
    """Lines that are all different are all written, and not remembered for ever."""
    lines = [(0.0, f"line {number}") for number in range(3 * MOST_REMEMBERED)]
    assert len(written(lines)) == len(lines)
    again = [(1.0, "line 0"), (2.0, "line 0")]
    assert len(written([*lines[:MOST_REMEMBERED], *again])) == MOST_REMEMBERED
    assert len(written([*lines[: MOST_REMEMBERED + 1], *again])) == MOST_REMEMBERED + 2


def test_the_logger_has_it(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is logged there goes through it."""
    for _ in range(5):
        LOG.error("%s of this test", REFUSED)
    assert len([one for one in caplog.messages if "of this test" in one]) == 1
