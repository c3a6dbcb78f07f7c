"""The events: the message, the subject and the level of each."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
from typing import Any, Final

import attrs
import pytest

from kgroup import events
from kgroup.events import (
    Assigned,
    AssignmentRefused,
    AssignorAbandoned,
    BackingOff,
    BatchCancelled,
    BatchDone,
    BatchFailed,
    BodyStillRunning,
    CommitRefused,
    CommitsMissing,
    CommitsRestored,
    Committed,
    CoordinatorFound,
    DeadLetterTopicMissing,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    HandlerStillRunning,
    JobStillRunning,
    Joined,
    Joining,
    Left,
    LoginDelayed,
    LoopBlocked,
    OffsetReset,
    OwnStartsDelayed,
    ParkingFailed,
    PartitionsLeaderless,
    PartitionsNotRead,
    PartitionsUnassigned,
    PatternsUnmatched,
    ProgramLoopBlocked,
    RecordFailed,
    RecordParked,
    RecordSourceFailed,
    RequestFailed,
    RetriesEnded,
    TaskStillRunning,
    TopicsMissing,
    TopicsRefused,
    UnsafeInterruptHandler,
)
from kgroup.types import Assignment, Cause, End, TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING

#: An event, its level, its message.
EVENTS: Final[list[tuple[type[Event], dict[str, Any], int, str]]] = [
    (
        CoordinatorFound,
        {"node_id": 2, "address": "here:9092"},
        INFO,
        "the coordinator is broker 2 at here:9092",
    ),
    (
        BatchDone,
        {
            "batch_id": "0123456789abcdef",
            "ranges": {P0: (0, 10), P1: (5, 12_350)},
            "rows": 12_345,
            "bytes": None,
            "planning": 0.25,
            "running": 0.75,
            "committing": 0.004,
            "lag": 5_000,
        },
        INFO,
        (
            "batch 01234567: 12,345 rows of 2 partitions in 1.00 s (12,296 rows/s), committed in"
            " 4 ms, lag 5,000"
        ),
    ),
    (
        BatchFailed,
        {"batch_id": "01234567", "ranges": {P0: (0, 9)}, "running": 1.5, "reason": "OSError: no"},
        WARNING,
        "batch 01234567 of 1 partition failed after 1.50 s: OSError: no",
    ),
    (
        BatchCancelled,
        {"batch_id": "01234567", "ranges": {P0: (0, 9)}, "running": 1.5, "reason": "rebalance"},
        INFO,
        "batch 01234567 of 1 partition cancelled after 1.50 s: rebalance",
    ),
    (
        JobStillRunning,
        {"job_group": "g", "thread": "t-1", "stack": "here", "tasks": 2, "seconds": 5.0},
        WARNING,
        (
            "job group g was cancelled 5 s ago and is still running, with 2 tasks; the generation"
            " cannot end before it. Stack of thread t-1:\nhere"
        ),
    ),
    (
        JobStillRunning,
        {"job_group": "g", "thread": "t-1", "stack": None, "tasks": None, "seconds": 5.0},
        WARNING,
        (
            "job group g was cancelled 5 s ago and is still running; the generation cannot end"
            " before it"
        ),
    ),
    (
        UnsafeInterruptHandler,
        {},
        WARNING,
        (
            "SIGINT has PySpark's handler, which raises KeyboardInterrupt in whatever code runs,"
            " trio's included: at Ctrl-C the member would not leave the group. Make the session"
            " before trio.run(), and then call signal.signal(signal.SIGINT,"
            " signal.default_int_handler); or receive the signal by trio.open_signal_receiver()"
        ),
    ),
    (Joining, {"reason": "because"}, INFO, "joining: because"),
    (
        Joined,
        {"leader": True, "assignor": "range", "members": 3},
        INFO,
        "joined as the leader of 3 members, with assignor range",
    ),
    (
        Joined,
        {"leader": False, "assignor": "range", "members": 0},
        INFO,
        "joined as a follower, with assignor range",
    ),
    (
        Assigned,
        {"assignment": Assignment((P0, P1), frozenset({P1, P2})), "start_offsets": {P0: 5}},
        INFO,
        "assigned t-0 from 5, t-1 (start offset not known yet) (1 added, 1 kept, 1 removed)",
    ),
    (
        Assigned,
        {
            "assignment": Assignment((P0, P1)),
            "start_offsets": {P0: 5, P1: 0},
            "start_origins": {P0: "starts", P1: "earliest"},
        },
        INFO,
        "assigned t-0 from 5 (starts), t-1 from 0 (earliest) (2 added, 0 kept, 0 removed)",
    ),
    (
        Assigned,
        {"assignment": Assignment(()), "start_offsets": {}},
        INFO,
        "assigned nothing (0 added, 0 kept, 0 removed)",
    ),
    (
        PartitionsUnassigned,
        {"partitions": (P0, P1)},
        WARNING,
        (
            "the assignor assigned no member to t-0, t-1; these partitions are not read in this"
            " generation"
        ),
    ),
    (
        AssignorAbandoned,
        {"assignor": "slow", "seconds": 2.04, "thread": "k"},
        WARNING,
        (
            "stopped waiting for the assignor 'slow' after 2.0 s; it may still run in the thread"
            " 'k', and its result will be ignored"
        ),
    ),
    (
        AssignmentRefused,
        {"entries": {"'my topic'-0": "its name is bad"}},
        WARNING,
        (
            "the leader's assignment has invalid entries, which this member ignores: 'my topic'-0"
            " (its name is bad)"
        ),
    ),
    (
        TopicsRefused,
        {"topics": {f"{n:02}": "is bad" for n in range(22)}},
        WARNING,
        (
            "other members subscribe to topics that this leader cannot assign: "
            + ", ".join(f"'{n:02}' (is bad)" for n in range(20))
            + " and 2 more"
        ),
    ),
    (
        PartitionsLeaderless,
        {"partitions": (P0, P2)},
        WARNING,
        (
            "no broker leads t-0, t-2: they cannot be read or written until a broker with a replica"
            " of them is back"
        ),
    ),
    (
        TopicsMissing,
        {"topics": ("a", "b"), "nearest": {"b": "bb"}},
        WARNING,
        (
            "subscribed topics do not exist: a, b (did you mean bb?); once they exist, the group"
            " rebalances and reads them"
        ),
    ),
    (
        PatternsUnmatched,
        {"patterns": ("a.*", "b"), "nearest": {"b": "bb"}},
        WARNING,
        (
            "no topic matches these subscribed patterns: 'a.*', 'b' (did you mean topic bb?). A"
            " pattern has to match a topic's whole name; internal topics are excluded, and so are"
            " those that this user may not DESCRIBE. Once a topic matches, the group rebalances and"
            " reads it"
        ),
    ),
    (
        OffsetReset,
        {"partition": P0, "offset": 7, "reason": "no offset", "skipped": False},
        INFO,
        "t-0 starts at offset 7: no offset",
    ),
    (
        OffsetReset,
        {"partition": P0, "offset": 7, "reason": "gone", "skipped": True},
        WARNING,
        "t-0 starts at offset 7: gone",
    ),
    (GenerationStarted, {}, INFO, "generation started"),
    (
        GenerationDraining,
        {"end": End(Cause.REBALANCE), "seconds": 12.34},
        INFO,
        "draining, for at most 12.3 s (rebalance)",
    ),
    (
        GenerationEnded,
        {"end": End(Cause.REBALANCE), "cut_short": False},
        INFO,
        "generation ended (rebalance)",
    ),
    (
        GenerationEnded,
        {"end": End(Cause.REBALANCE), "cut_short": True},
        WARNING,
        "generation ended (rebalance); its work was still running when its drain ended",
    ),
    (
        GenerationEnded,
        {"end": End(Cause.MEMBERSHIP_LOST, "forgotten"), "cut_short": False},
        WARNING,
        "generation ended, and its partitions are lost (membership lost: forgotten)",
    ),
    (
        GenerationEnded,
        {"end": End(Cause.REBALANCE), "cut_short": False, "seconds": 2.43},
        INFO,
        "generation ended (rebalance); its drain took 2.4 s",
    ),
    (
        GenerationEnded,
        {"end": End(Cause.REBALANCE), "cut_short": False, "seconds": 0.02},
        INFO,
        "generation ended (rebalance)",
    ),
    (
        GenerationEnded,
        {"end": End(Cause.REBALANCE), "cut_short": True, "seconds": 25.0},
        WARNING,
        (
            "generation ended (rebalance); its work was still running when its drain ended; its"
            " drain took 25.0 s"
        ),
    ),
    (
        GenerationEnded,
        {"end": End(Cause.FENCED), "cut_short": False, "seconds": 1.0},
        WARNING,
        ("generation ended, and its partitions are lost (fenced); its tasks took 1.0 s to end"),
    ),
    (Committed, {"offsets": {P1: 4, P0: 3}, "seconds": 0.1}, DEBUG, "committed t-0 at 3, t-1 at 4"),
    (
        CommitRefused,
        {"offsets": {P1: 4, P0: 3}, "reason": "stale", "stale": True},
        WARNING,
        "the commit of t-0 at 3, t-1 at 4 was not confirmed: stale",
    ),
    (
        CommitsRestored,
        {"offsets": {P1: 4, P0: 3}, "found": {P1: 2, P0: 1}},
        WARNING,
        (
            "a commit that had got no answer arrived late, and stored t-0 at 1, t-1 at 2; committed"
            " again what had been acknowledged after it: t-0 at 3, t-1 at 4"
        ),
    ),
    (
        CommitsMissing,
        {"partitions": (P0, P1)},
        WARNING,
        (
            "records of t-0, t-1 were handed out, and nothing has been committed since: the member"
            " that owns the partitions next will get these records again. Once they are processed,"
            " call generation.commit({batch.partition: batch.next_offset})"
        ),
    ),
    (
        PartitionsNotRead,
        {"partitions": (P0, P1)},
        WARNING,
        "no stream is open for t-0, t-1; call generation.records() to read them",
    ),
    (
        LoopBlocked,
        {"seconds": 12.34},
        WARNING,
        (
            "the process was suspended, or kgroup's event loop was blocked, for 12.3 s;"
            " meanwhile no heartbeat was sent. If the program was not suspended, move blocking work"
            " to a thread; with kgroup.threaded and kgroup.aio, whose loop has a thread of its own,"
            " something held the interpreter lock"
        ),
    ),
    (
        RequestFailed,
        {"request": "Heartbeat", "reason": "lost", "next_action": "again"},
        WARNING,
        "Heartbeat failed: lost; next: again",
    ),
    (
        BackingOff,
        {"seconds": 0.123, "reason": "refused"},
        INFO,
        "waiting 0.12 s before joining again: refused",
    ),
    (
        BackingOff,
        {"seconds": 0.123, "reason": "a task returned", "advice": "loop?"},
        WARNING,
        "waiting 0.12 s before joining again: a task returned; loop?",
    ),
    (Left, {"reason": "closed", "notified": True}, INFO, "left the group: closed"),
    (
        Left,
        {"reason": "closed", "notified": False},
        INFO,
        (
            "stopped without leaving the group: closed; if it is still a member, others get its"
            " partitions when its session ends"
        ),
    ),
    (
        RecordSourceFailed,
        {"partition": P0, "reason": "away"},
        WARNING,
        "fault while reading t-0: away",
    ),
    (
        RecordSourceFailed,
        {"partition": None, "reason": "away"},
        WARNING,
        "fault while reading: away",
    ),
    (
        LoginDelayed,
        {"reason": "away"},
        WARNING,
        "no new login yet: away",
    ),
    (
        OwnStartsDelayed,
        {"function": "load", "partitions": 3, "waited": 10.2},
        WARNING,
        (
            "load, the function of GroupConfig.starts, was called for 3 partitions 10 s ago and has"
            " not returned; they are not read before"
        ),
    ),
    (
        HandlerStillRunning,
        {"thread": "worker-1", "stack": "here\nthere"},
        WARNING,
        (
            "thread worker-1 is still running after the drain; its commits are refused, and the"
            " member joins no new generation until it returns. Its stack:\nhere\nthere"
        ),
    ),
    (
        BodyStillRunning,
        {"seconds": 15.2, "stack": "here\nthere"},
        WARNING,
        (
            "the body of the loop over the group is still running 15 s after its generation; its"
            " commits are refused, the member joins no new generation until it calls next(), and"
            " the others may have to wait for that up to rebalance_timeout. Let the body return"
            " when generation.ending is set. Its stack:\nhere\nthere"
        ),
    ),
    (
        TaskStillRunning,
        {"task": "handle", "stack": "here\nthere"},
        WARNING,
        (
            "task handle is still running after it was cancelled; its commits are refused, and the"
            " member joins no new generation until it returns. It is cancelled again every second."
            " Its stack:\nhere\nthere"
        ),
    ),
    (
        ProgramLoopBlocked,
        {"stack": "here\nthere"},
        WARNING,
        (
            "something blocks asyncio's event loop, so the cancelled tasks of the generation cannot"
            " end, and the member joins no new generation until they have. Other members may have"
            " to wait for that up to rebalance_timeout; then the coordinator removes this member."
            " Put what blocks into asyncio.to_thread(). The loop's thread is here:\nhere\nthere"
        ),
    ),
    (
        RecordFailed,
        {
            "partition": P0,
            "offset": 7,
            "attempts": 2,
            "max_attempts": 5,
            "reason": "ValueError: x",
            "pause": 2.0,
        },
        WARNING,
        (
            "attempt 2 of 5 to process the record at t-0 offset 7 failed: ValueError: x; the next"
            " one is in 2 s"
        ),
    ),
    (
        ParkingFailed,
        {
            "partition": P0,
            "offset": 7,
            "attempts": 1,
            "max_attempts": 5,
            "reason": "away",
            "pause": 2.0,
        },
        WARNING,
        "attempt 1 of 5 to park the record at t-0 offset 7 failed: away; the next one is in 2 s",
    ),
    (
        DeadLetterTopicMissing,
        {"topic": "faild", "nearest": "failed"},
        WARNING,
        (
            "the topic of dead letters, 'faild', does not exist (did you mean failed?), or the"
            " producer's user may not DESCRIBE it. Unless the brokers create topics automatically,"
            " the first record that has to be parked will end the worker. Create it:"
            " kafka-topics.sh --bootstrap-server HOST:PORT --create --topic faild"
        ),
    ),
    (
        RecordParked,
        {"partition": P0, "offset": 7, "attempts": 5, "reason": "ValueError: x"},
        WARNING,
        "parked the record at t-0 offset 7 after attempt 5: ValueError: x",
    ),
    (
        RecordParked,
        {"partition": P0, "offset": 7, "attempts": 5, "reason": "x", "topic": "failed"},
        WARNING,
        "parked the record at t-0 offset 7 in topic 'failed' after attempt 5: x",
    ),
    (
        RetriesEnded,
        {"partition": P0, "offset": 7, "attempts": 2},
        INFO,
        (
            "the record at t-0 offset 7 is not tried again after attempt 2, because the generation"
            " ends; it is not committed, so the next owner reads it"
        ),
    ),
    (
        BatchDone,
        {
            "batch_id": "3f2a9b77c0ffee",
            "ranges": {P0: (0, 5)},
            "rows": 0,
            "bytes": None,
            "planning": 0.0,
            "running": 0.0,
            "committing": 0.0,
            "lag": 0,
        },
        INFO,
        "batch 3f2a9b77: 0 rows of 1 partition in 0.00 s (0 rows/s), committed in 0 ms, lag 0",
    ),
]

KINDS: Final = {
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, Event) and not kind.__subclasses__()
}


@pytest.mark.parametrize(("kind", "fields", "level", "message"), EVENTS)
def test_messages_and_levels(kind: type[Event], fields: Any, level: int, message: str) -> None:
    """Each event has its message and its level."""
    event = kind(group_id="g", **fields)
    assert event.message() == message
    assert event.severity == level


@pytest.mark.parametrize(("kind", "fields", "level", "message"), EVENTS)
def test_every_event_is_json(kind: type[Event], fields: Any, level: int, message: str) -> None:
    """Name, level, fields and message are values of JSON; attrs can take the event apart, too."""
    event = kind(group_id="g", member_id="m", generation_id=2, epoch=5, **fields)
    written = json.loads(json.dumps(event.as_dict(), allow_nan=False))
    assert written == event.as_dict()
    assert (written["event"], written["level"]) == (kind.__name__, logging.getLevelName(level))
    assert written["message"] == message
    shown = {field.name for field in attrs.fields(kind) if field.repr}
    assert set(written) == {"event", "level", "message", *shown}
    assert attrs.asdict(event).keys() == attrs.fields_dict(kind).keys()
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 # as a log queue does


class UnpicklableError(Exception):
    """An exception that pickle cannot make again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one + two)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(RecordFailed, {"max_attempts": 3, "pause": 1.0}), (RecordParked, {})],
)
def test_an_exception_is_for_the_log_alone(
    kind: type[RecordFailed | RecordParked], fields: Any
) -> None:
    """JSON, text, equality and pickle know nothing of it."""
    record: dict[str, Any] = {"partition": P0, "offset": 5, "attempts": 1, "reason": "r"}
    event = kind(group_id="g", **record, **fields, error=UnpicklableError(1, 2))
    without = kind(group_id="g", **record, **fields)
    assert event == without
    assert event.as_dict() == without.as_dict()
    assert repr(event) == repr(without)
    found = pickle.loads(pickle.dumps(event))  # noqa: S301 # as a log queue does
    assert (found, found.error) == (without, None)


def test_how_json_names_partitions_and_ends() -> None:
    """Partitions are topic and number; an end has its cause and its detail."""
    assigned = Assigned(group_id="g", assignment=Assignment((P1, P0)), start_offsets={P0: 7})
    assert assigned.as_dict()["assignment"] == ["t-0", "t-1"]
    assert assigned.as_dict()["start_offsets"] == {"t-0": 7}
    ended = GenerationEnded(
        group_id="g", end=End(Cause.TASK_RAISED, "bad", ValueError("bad")), cut_short=False
    )
    assert ended.as_dict()["end"] == {"cause": Cause.TASK_RAISED.value, "detail": "bad"}


def test_an_assignor_that_had_no_time_is_no_warning() -> None:
    """At an ordinary start of several members the first assignment is often not waited for."""
    abandoned = AssignorAbandoned(group_id="g", assignor="range", seconds=0.01, thread="k")
    assert abandoned.severity == DEBUG


def test_no_event_is_left_out() -> None:
    """The table above has every kind of event."""
    assert {kind for kind, *_ in EVENTS} == KINDS


def test_no_event_is_an_error() -> None:
    """No level is above WARNING: kgroup recovers from what it reports, and raises the rest."""
    assert max(level for _, _, level, _ in EVENTS) == WARNING


@pytest.mark.parametrize("cause", list(Cause))
def test_a_planned_end_is_info(cause: Cause) -> None:
    """An end that other members or the program caused is INFO, any other is WARNING."""
    unplanned = {
        Cause.FENCED,
        Cause.MEMBERSHIP_LOST,
        Cause.TASK_RAISED,
        Cause.COORDINATOR_LOST,
        Cause.PROCESSING_STUCK,
    }
    ended = GenerationEnded(group_id="g", end=End(cause), cut_short=False)
    assert ended.severity == (WARNING if cause in unplanned else INFO)


def test_a_line_names_group_member_and_generation() -> None:
    """A line starts with the group, the member and the generation, as far as there are any."""
    lines = [
        str(GenerationStarted(group_id="g")),
        str(GenerationStarted(group_id="g", member_id="m")),
        str(GenerationStarted(group_id="g", member_id="m", generation_id=0, epoch=1)),
    ]
    assert lines == [
        "group g: generation started",
        "group g, member m: generation started",
        "group g, member m, generation 0: generation started",
    ]


def test_the_root_has_no_message() -> None:
    """Every subclass has to define its message."""
    with pytest.raises(NotImplementedError):
        Event(group_id="g").message()


def test_no_event_has_room_for_a_secret() -> None:
    """No event has a configuration, or a field with the name of a secret."""
    for kind in KINDS:
        for field in attrs.fields(kind):
            assert "config" not in str(field.type).lower()
            assert not {"password", "secret", "token", "sasl"} & set(field.name.split("_"))


def test_rows_per_second_are_of_the_whole_batch() -> None:
    """All three durations count; a batch that took no time has 0 rows per second."""
    batch = BatchDone(
        group_id="g",
        batch_id="b",
        ranges={P0: (0, 9)},
        rows=6,
        bytes=None,
        planning=1.0,
        running=1.5,
        committing=0.5,
        lag=0,
    )
    assert batch.rows_per_second == 2
    assert attrs.evolve(batch, planning=0, running=0, committing=0).rows_per_second == 0


@pytest.mark.parametrize(("kind", "fields", "level", "message"), EVENTS)
def test_every_event_is_hashable(kind: type[Event], fields: Any, level: int, message: str) -> None:
    """Events can be in sets and keys of dicts, also those with mappings; equal ones are one."""
    assert len({kind(group_id="g", **fields), kind(group_id="g", **fields)}) == 1


def test_events_are_values() -> None:
    """Events are frozen, and equal if their fields are."""
    event = Joining(group_id="g", reason="r")
    assert event == Joining(group_id="g", reason="r")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.reason = "other"  # type: ignore[misc]
