"""Log lines: one for each event, with its level and its message."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kgroup.events import Committed, GenerationEnded, Joining, LoopBlocked, SourceFault
from kgroup.logs import LOGGER, log
from kgroup.types import Cause, End, TopicPartition


def test_an_event_is_one_line_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    """Logger, level and text are the event's."""
    events = [
        Joining(group_id="g", reason="r"),
        Committed(group_id="g", offsets={TopicPartition("t", 0): 1}),
        LoopBlocked(group_id="g", seconds=11.0),
        GenerationEnded(group_id="g", end=End(Cause.FENCED), cut_short=False),
    ]
    with caplog.at_level(logging.DEBUG, "kgroup"):
        for event in events:
            log(event)
    assert caplog.record_tuples == [
        ("kgroup", level, str(event))
        for level, event in zip(
            (logging.INFO, logging.DEBUG, logging.WARNING, logging.WARNING), events, strict=True
        )
    ]


def test_a_record_has_the_event_and_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    """Formatters and filters find group, member, generation, partition and the event itself."""
    ids: dict[str, Any] = {"group_id": "g", "member_id": "m", "generation_id": 3}
    joining = Joining(reason="r", **ids)
    fault = SourceFault(partition=TopicPartition("t", 1), reason="r", **ids)
    with caplog.at_level(logging.DEBUG, "kgroup"):
        log(joining)
        log(fault)
    found: list[Any] = caplog.records
    assert [(one.group_id, one.member_id, one.generation_id) for one in found] == [
        ("g", "m", 3)
    ] * 2
    assert [(one.partition, one.event) for one in found] == [(None, joining), ("t-1", fault)]


def test_a_planned_rebalance_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A rebalance because of a new member is no warning."""
    with caplog.at_level(logging.WARNING, "kgroup"):
        log(GenerationEnded(group_id="g", end=End(Cause.REBALANCE), cut_short=False))
    assert caplog.records == []


def test_a_percent_sign_is_a_percent_sign(caplog: pytest.LogCaptureFixture) -> None:
    """A percent sign in a broker's or a user's text is not read as a format."""
    with caplog.at_level(logging.INFO, "kgroup"):
        log(Joining(group_id="100%s", reason="%d"))
    assert caplog.messages == ["group 100%s: joining: %d"]


def test_the_library_sets_no_handler_and_no_level() -> None:
    """The program alone decides what is logged, and where."""
    assert LOGGER.name == "kgroup"
    assert LOGGER.handlers == []
    assert LOGGER.level == logging.NOTSET
