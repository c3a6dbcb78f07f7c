"""Log lines: one for each event, with its level and its message."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kgroup.events import (
    Committed,
    GenerationEnded,
    Joined,
    Joining,
    LoopBlocked,
    RecordFailed,
    RecordParked,
    RecordSourceFailed,
    RequestFailed,
)
from kgroup.logs import LOGGER, REPEATED_AFTER, EventLog
from kgroup.types import Cause, End, TopicPartition


def test_an_event_is_one_line_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    """Logger, level and text are the event's."""
    events = [
        Joining(group_id="g", reason="r"),
        Committed(group_id="g", offsets={TopicPartition("t", 0): 1}, seconds=0.1),
        LoopBlocked(group_id="g", seconds=11.0),
        GenerationEnded(group_id="g", end=End(Cause.FENCED), cut_short=False),
    ]
    with caplog.at_level(logging.DEBUG, "kgroup"):
        for event in events:
            EventLog()(event)
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
    fault = RecordSourceFailed(partition=TopicPartition("t", 1), reason="r", **ids)
    with caplog.at_level(logging.DEBUG, "kgroup"):
        EventLog()(joining)
        EventLog()(fault)
    found: list[Any] = caplog.records
    assert [(one.group_id, one.member_id, one.generation_id) for one in found] == [
        ("g", "m", 3)
    ] * 2
    assert [(one.partition, one.event) for one in found] == [(None, joining), ("t-1", fault)]


def test_a_record_that_fails_is_logged_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Its first failure and its parking are; the failures between them are one line."""
    record: dict[str, Any] = {"group_id": "g", "partition": TopicPartition("t", 0), "offset": 5}
    errors = [ValueError(number) for number in range(3)]
    for number in (0, 1):
        EventLog()(
            RecordFailed(
                attempts=number + 1,
                max_attempts=3,
                pause=1.0,
                reason="r",
                error=errors[number],
                **record,
            )
        )
    EventLog()(RecordParked(attempts=3, reason="r", error=errors[2], **record))
    found = [one.exc_info and one.exc_info[1] for one in caplog.records]
    assert found == [errors[0], None, errors[2]]


def test_a_planned_rebalance_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A rebalance because of a new member is no warning."""
    with caplog.at_level(logging.WARNING, "kgroup"):
        EventLog()(GenerationEnded(group_id="g", end=End(Cause.REBALANCE), cut_short=False))
    assert caplog.records == []


def test_a_percent_sign_is_a_percent_sign(caplog: pytest.LogCaptureFixture) -> None:
    """A percent sign in a broker's or a user's text is not read as a format."""
    with caplog.at_level(logging.INFO, "kgroup"):
        EventLog()(Joining(group_id="100%s", reason="%d"))
    assert caplog.messages == ["group 100%s: joining: %d"]


def test_a_failure_that_goes_on_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With how often it happened; another failure, and one after a success, is logged at once."""
    time = [0.0]
    write = EventLog(lambda: time[0])

    def failed(reason: str = "refused") -> RequestFailed:
        return RequestFailed(group_id="g", request="Join", reason=reason, next_action="again")

    def warnings() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        caplog.clear()
        return found

    with caplog.at_level(logging.DEBUG, "kgroup"):
        write(failed())
        assert warnings() == [str(failed())]
        for time[0] in (0.1, 5.0, REPEATED_AFTER - 0.1):
            write(failed())
            (quiet,) = caplog.records
            assert (quiet.levelno, quiet.getMessage()) == (logging.DEBUG, str(failed()))
            caplog.clear()
        write(failed("unreachable"))
        assert warnings() == [str(failed("unreachable"))]
        time[0] = REPEATED_AFTER + 1
        write(failed())
        assert warnings() == [f"{failed()} (5 times in 61 s)"]
        write(failed())
        assert warnings() == []
        write(Joined(group_id="g", leader=True, assignor="range", members=1))
        write(failed())
        assert warnings() == [str(failed())]


def test_the_failures_of_two_partitions_are_two(caplog: pytest.LogCaptureFixture) -> None:
    """Each partition's first failure is logged."""
    write = EventLog(lambda: 0.0)
    for number in (0, 1, 0):
        write(RecordSourceFailed(group_id="g", partition=TopicPartition("t", number), reason="r"))
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 2


def test_the_library_sets_no_handler_and_no_level() -> None:
    """The program alone decides what is logged, and where."""
    assert LOGGER.name == "kgroup"
    assert LOGGER.handlers == []
    assert LOGGER.level == logging.NOTSET
