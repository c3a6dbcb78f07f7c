"""Handler threads that still run after the drain: named, refused, waited for; on both brokers."""

from __future__ import annotations

import threading

import pytest

from kgroup.errors import (
    StaleGenerationError,
)
from kgroup.events import (
    BodyStillRunning,
    GenerationEnded,
    HandlerStillRunning,
    Joining,
    Left,
)
from kgroup.threaded import Generation
from tests.brokers import Kafka
from tests.threaded.harness import (
    SOON,
    Harness,
    RecordedEvents,
    thread,
    wait,
)


def test_a_thread_that_still_runs_holds_up_the_next_join(kafka: Kafka) -> None:
    """An event has its stack, its commits are stale, its records end, and no JoinGroup is sent."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(2, 5)
    release, inside = threading.Event(), threading.Event()
    refused: list[StaleGenerationError] = []
    rest: list[object] = []

    def handle_longer(generation: Generation) -> None:
        records = generation.records(here.partition(0))
        batch = next(records)
        wait_for_release()
        rest.extend(records)
        try:
            generation.commit({batch.partition: batch.next_offset})
        except StaleGenerationError as error:
            refused.append(error)

    def wait_for_release() -> None:
        inside.set()
        wait(release)

    with here.group(recorded, drain_timeout=0.5) as group:
        first = next(group)
        first.start(handle_longer, first)
        wait(inside)
        first.start(int)
        with pytest.raises(TimeoutError):
            group.next(0.1)
        event = recorded.wait(HandlerStillRunning)
        assert event.thread == f"kgroup-{here.group_id}-{handle_longer.__qualname__}()"
        assert "wait_for_release" in event.stack
        assert (event.member_id, event.epoch) == (first.member_id, first.epoch)
        joins = len(recorded.of(Joining))
        assert recorded.of(GenerationEnded)
        with pytest.raises(TimeoutError):
            group.next(0.5)
        assert len(recorded.of(Joining)) == joins
        release.set()
        second = group.next(SOON)
        assert (second.epoch, second.start_offsets[here.partition(0)]) == (first.epoch + 1, 0)
    assert len(refused) == 1
    assert refused[0].end == first.end
    assert rest == []
    assert here.committed() is None


def test_a_body_that_does_not_return(kafka: Kafka) -> None:
    """An event has the stack of its thread; the member joins again once it calls next()."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()

    def stay() -> BodyStillRunning:
        return recorded.wait(BodyStillRunning)

    with here.group(recorded, drain_timeout=0.1, session_timeout=6.0) as group:
        first = group.next(SOON)
        first.start(int)
        event = stay()
        assert "in stay" in event.stack
        assert event.epoch == first.epoch
        assert group.next(SOON).epoch == first.epoch + 1


def test_what_a_thread_raises_after_the_drain_is_not_lost(kafka: Kafka) -> None:
    """An exception after the end of its generation closes the group, and the block raises it."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    release = threading.Event()

    def fail_late() -> None:
        wait(release)
        raise ZeroDivisionError("late")

    with pytest.raises(ExceptionGroup) as info, here.group(recorded, drain_timeout=0.2) as group:
        first = next(group)
        first.start(fail_late)
        first.start(int)

        def let_go() -> None:
            recorded.wait(HandlerStillRunning)
            release.set()

        with thread(let_go):
            assert list(group) == []
    (error,) = info.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert recorded.wait(Left).notified


def test_closing_does_not_wait_for_a_thread_for_ever(kafka: Kafka) -> None:
    """The member leaves after the drain; the thread is named, and left behind."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    release = threading.Event()
    with here.group(recorded, drain_timeout=0.2) as group:
        first = next(group)
        first.start(release.wait, SOON)
    assert recorded.of(HandlerStillRunning)
    assert recorded.of(Left)[0].notified
    release.set()
