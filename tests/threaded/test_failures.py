"""A threaded group when parts below it fail: fatal responses and crashes; on both brokers."""

from __future__ import annotations

import sys
import threading
import traceback

import pytest
import trio

from kgroup.errors import (
    FatalGroupError,
    FencedInstanceError,
    GroupClosedError,
    StaleGenerationError,
)
from kgroup.events import (
    Event,
    Joining,
    Left,
)
from kgroup.threaded import ConsumerGroup, Generation
from kgroup.types import Cause, TopicPartition
from tests.brokers import Kafka
from tests.threaded.harness import (
    SOON,
    Harness,
    RecordedEvents,
    thread,
    wait,
)


def test_a_fatal_error_is_raised_by_every_next(kafka: Kafka) -> None:
    """next() raises the FencedInstanceError of a fenced member, without an exception group."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    with here.group(recorded, group_instance_id="one") as first:
        generation = next(first)
        with here.group(group_instance_id="one") as second:
            with thread(lambda: next(second)):
                for _ in range(2):
                    with pytest.raises(FencedInstanceError):
                        first.next(SOON)
            assert generation.end is not None
            assert generation.end.cause is Cause.FENCED


def test_a_fatal_error_between_two_calls_is_raised_by_the_block(kafka: Kafka) -> None:
    """If no next() follows, leaving the block raises the error."""
    here = Harness(kafka)
    here.create()
    with pytest.raises(FatalGroupError), here.group(group_instance_id="one") as first:
        generation = next(first)
        with here.group(group_instance_id="one") as second, thread(lambda: next(second)):
            generation.wait_ended(SOON)


def test_a_fatal_error_and_a_handler_that_raises_after_it(kafka: Kafka) -> None:
    """Leaving the block raises both: the exception of the handler does not replace the error."""
    here, is_over = Harness(kafka), threading.Event()
    here.create()

    def outlast() -> None:
        wait(is_over)
        raise ValueError("too late")

    with (
        pytest.raises(ExceptionGroup) as caught,
        here.group(group_instance_id="one") as first,
    ):
        generation = next(first)
        assert generation.start(outlast)
        with here.group(group_instance_id="one") as second, thread(lambda: next(second)):
            generation.wait_ended(SOON)
        is_over.set()
    assert [type(one) for one in caught.value.exceptions] == [FencedInstanceError, ValueError]


def test_the_death_of_the_background_thread(kafka: Kafka) -> None:
    """All waiting calls raise, no thread hangs, and the block raises the error."""
    here = Harness(kafka)
    here.create()
    ended: list[object] = []
    reads, over = threading.Event(), threading.Event()

    def handle(generation: Generation) -> None:
        records = generation.records()
        reads.set()
        ended.extend(records)
        over.set()

    def crash() -> None:
        raise ZeroDivisionError("on purpose")

    def body(group: ConsumerGroup) -> None:
        generation = next(group)
        generation.start(handle, generation)
        wait(reads)
        assert group._loop._token is not None
        group._loop._token.run_sync_soon(crash)
        with pytest.raises(GroupClosedError):
            next_of(group)
        assert group._loop.ended.wait(SOON)
        with pytest.raises(StaleGenerationError):
            generation.commit({here.partition(0): 0})
        with pytest.raises(StaleGenerationError):
            generation.records()
        assert not generation.start(int)
        group.close()
        assert generation.ending.wait(SOON)

    with pytest.raises(trio.TrioInternalError), here.group() as group:
        body(group)
    wait(over)  # without the background thread, nothing waits for handlers
    assert ended == []


def test_the_death_of_the_background_thread_and_an_exception_of_the_body(kafka: Kafka) -> None:
    """The block raises both: that of the body only follows from the other, and does not name it."""
    here = Harness(kafka)
    here.create()

    def crash() -> None:
        raise ZeroDivisionError("on purpose")

    def body(group: ConsumerGroup) -> None:
        generation = next(group)
        assert group._loop._token is not None
        group._loop._token.run_sync_soon(crash)
        assert group._loop.ended.wait(SOON)
        generation.commit({here.partition(0): 0})

    with pytest.raises(ExceptionGroup, match="the event loop of group") as both:  # noqa: SIM117
        with here.group() as group:
            body(group)
    crashed, stale = both.value.exceptions
    assert isinstance(crashed, trio.TrioInternalError)
    assert "on purpose" in "".join(traceback.format_exception(crashed))
    assert isinstance(stale, StaleGenerationError)


def next_of(group: ConsumerGroup) -> Generation:
    """Call ``next``, with the exception that ends an iteration."""
    return group.next(SOON)


def test_an_event_handler_that_raises(kafka: Kafka) -> None:
    """An exception of an event handler ends nothing: the next generation comes."""
    here = Harness(kafka)
    here.create()

    def fail(event: Event) -> None:
        if isinstance(event, Joining):
            raise ZeroDivisionError("in the event handler")

    with here.group(fail) as group:
        assert next_of(group).assignment


def test_starts_that_exit(kafka: Kafka) -> None:
    """What they raise is raised by ``next()``; the background thread lives; the member leaves."""
    here = Harness(kafka)
    here.create()

    def starts(_: object) -> dict[TopicPartition, int]:
        sys.exit(3)

    recorded = RecordedEvents()
    with pytest.raises(SystemExit) as raised, here.group(recorded, starts=starts) as group:
        group.next(SOON)
    assert raised.value.code == 3
    assert len(recorded.of(Left)) == 1


def test_a_broker_gets_the_class_of_an_exception_only(kafka: Kafka) -> None:
    """The reason of LeaveGroup, which brokers log, has no text of what body or handler raised."""

    def in_the_body(_: ConsumerGroup, __: Generation) -> None:
        raise RuntimeError("hunter2")

    def too_late(group: ConsumerGroup, generation: Generation) -> None:
        def handle() -> None:
            generation.wait_ended(SOON)
            raise RuntimeError("hunter2")

        generation.start(handle)
        group.subscribe(["another"])
        group.next(SOON)

    for body, reason in (
        (in_the_body, "the block was left by RuntimeError"),
        (too_late, "a handler raised RuntimeError"),
    ):
        here, recorded = Harness(kafka), RecordedEvents()
        here.create()
        with (
            pytest.raises((RuntimeError, ExceptionGroup)),
            here.group(recorded, drain_timeout=0.1) as group,
        ):
            body(group, group.next(SOON))
        assert [left.reason for left in recorded.of(Left)] == [reason]
