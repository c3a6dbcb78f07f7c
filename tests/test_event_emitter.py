"""The emitter: the subject of each event, and the handlers that get it."""

from __future__ import annotations

import pytest
import trio

from kgroup.client.error_policy import Request, reaction_to
from kgroup.errors import ConnectionLostError
from kgroup.event_emitter import EventEmitter
from kgroup.events import Event, GenerationStarted, RecordSourceFailed, RequestFailed
from kgroup.types import Membership, TopicPartition

MEMBERSHIP = Membership(
    group_id="g",
    member_id="m-1",
    group_instance_id=None,
    generation_id=7,
    epoch=3,
    assignor="range",
    leader=True,
)


def test_events_have_the_member_that_was_bound_last() -> None:
    """First no member, then a membership, then a member without one, then no member again."""
    events: list[Event] = []
    emitter = EventEmitter("g", events.append)
    emitter.emit(GenerationStarted)
    emitter.bind(MEMBERSHIP)
    emitter.emit(GenerationStarted)
    emitter.bind(None, "m-1")
    emitter.emit(GenerationStarted)
    emitter.bind(None)
    emitter.emit(GenerationStarted)
    assert events == [
        GenerationStarted(group_id="g"),
        GenerationStarted(group_id="g", member_id="m-1", generation_id=7, epoch=3),
        GenerationStarted(group_id="g", member_id="m-1"),
        GenerationStarted(group_id="g"),
    ]


def test_every_handler_gets_each_event_in_order() -> None:
    """Each handler gets each event, in the order of the handlers."""
    heard: list[tuple[str, Event]] = []
    emitter = EventEmitter(
        "g",
        lambda event: heard.append(("first", event)),
        lambda event: heard.append(("second", event)),
    )
    emitter.emit(GenerationStarted)
    assert [who for who, _ in heard] == ["first", "second"]
    assert heard[0][1] is heard[1][1]


def test_a_failure_says_what_follows() -> None:
    """The event has the request, the reason and the next action in words."""
    events: list[Event] = []
    error = ConnectionLostError("it is gone")
    reaction = reaction_to(Request.HEARTBEAT, error)
    EventEmitter("g", events.append).failed(Request.HEARTBEAT, error, reaction)
    assert events == [
        RequestFailed(
            group_id="g", request="Heartbeat", reason="it is gone", next_action=str(reaction)
        )
    ]
    assert "send the request again" in str(events[0])


def test_a_fault_of_the_source() -> None:
    """The event may be about a partition, or about none."""
    events: list[Event] = []
    emitter = EventEmitter("g", events.append)
    emitter.fault(TopicPartition("t", 0), "away")
    emitter.fault(None, "all are")
    assert events == [
        RecordSourceFailed(group_id="g", partition=TopicPartition("t", 0), reason="away"),
        RecordSourceFailed(group_id="g", partition=None, reason="all are"),
    ]


def test_a_handler_that_raises_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log has its traceback, the other handlers get every event, and nothing is raised."""
    events: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError(f"no room for {event}")

    emitter = EventEmitter("g", broken, events.append)
    emitter.emit(GenerationStarted)
    emitter.fault(None, "away")
    assert len(events) == 2
    (record,) = caplog.records
    assert "the group continues" in record.getMessage()
    assert record.exc_info
    assert "no room for" in str(record.exc_info[1])


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, GeneratorExit])
async def test_no_exception_of_a_handler_ends_the_event_loop(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """A fault is emitted in a callback of trio, in which any exception would end the loop."""
    events: list[Event] = []

    def broken(event: Event) -> None:
        raise error(f"because of {event}")

    emitter = EventEmitter("g", broken, events.append)
    trio.lowlevel.current_trio_token().run_sync_soon(emitter.fault, None, "away")
    while not events:
        await trio.lowlevel.checkpoint()
    assert [record.name for record in caplog.records] == ["kgroup"]


def test_ctrl_c_in_a_handler_is_passed_on() -> None:
    """A KeyboardInterrupt is the user's, and not the handler's."""

    def interrupted(_: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventEmitter("g", interrupted).emit(GenerationStarted)
