"""Closing a threaded group, from any thread; on both brokers."""

from __future__ import annotations

import threading

import pytest

from kgroup.errors import (
    GroupClosedError,
    StaleGenerationError,
)
from kgroup.events import (
    Event,
    GenerationDraining,
    GenerationStarted,
    HandlerStillRunning,
    Joining,
    Left,
)
from kgroup.generation.states import State
from kgroup.threaded import Generation
from tests.brokers import Kafka
from tests.threaded.harness import (
    SOON,
    Harness,
    ProcessedRecords,
    RecordedEvents,
    thread,
    wait,
)


def test_closing_from_another_thread_ends_a_waiting_next(kafka: Kafka) -> None:
    """A waiting ``for`` ends, and when close() returns the member has left."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    left: list[bool] = []
    with here.group(recorded) as group:

        def close() -> None:
            recorded.wait(GenerationStarted)
            group.close("enough")
            left.append(bool(recorded.of(Left)))
            group.close()
            group.shutdown()

        with thread(close):
            generations = list(group)
        assert len(generations) == 1
        assert left == [True]
        with pytest.raises(GroupClosedError, match="enough"):
            group.next()
        with pytest.raises(StaleGenerationError):
            generations[0].commit({here.partition(0): 0})
    with thread(group.close):
        group.close()
    assert recorded.of(Left)[0].reason == "enough"


def test_the_loop_ends_after_the_handlers(kafka: Kafka) -> None:
    """A close ends the loop over the group only when the handlers have returned."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    returned: list[bool] = []

    def handle() -> None:
        recorded.wait(GenerationDraining)
        returned.append(True)

    with here.group(recorded) as group:
        for generation in group:
            generation.start(handle)
            group.shutdown(promptly=True)
        assert returned == [True]


def test_closing_ends_the_wait_for_a_thread_that_still_runs(kafka: Kafka) -> None:
    """A next() that waits for a thread, and not for the coordinator, ends as well."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    release = threading.Event()

    def close() -> None:
        recorded.wait(HandlerStillRunning)
        group.close()

    with here.group(recorded, drain_timeout=0.1) as group, thread(close):
        first = next(group)
        first.start(release.wait, SOON)
        first.start(int)
        assert list(group) == []
    release.set()


def test_closing_amid_a_join(kafka: Kafka) -> None:
    """A JoinGroup that the coordinator holds back for others is abandoned at once."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(2)
    with here.group() as holder:
        generation = next(holder)
        release = threading.Event()
        generation.start(release.wait, SOON)
        with here.group(recorded) as group:

            def close() -> None:
                # The first JoinGroup has no id; the second has the new id and is held back.
                recorded.wait(Joining, 2)
                wait(generation.ending)
                group.close()

            with thread(close):
                assert list(group) == []
            assert generation.state is State.DRAINING
        release.set()
    assert recorded.of(Left)


def test_closing_in_the_owner_only_signals(kafka: Kafka) -> None:
    """In the thread inside the block, close() does not wait, and work can be finished."""
    here, processed = Harness(kafka), ProcessedRecords()
    here.create(1, 10)
    with here.group() as group:
        generation = next(group)
        batch = next(generation.records())
        group.close()
        assert generation.ending.wait(SOON)
        generation.commit({batch.partition: batch.next_offset})
        processed.add(batch)
        with pytest.raises(GroupClosedError):
            group.next()
    assert here.committed() == len(processed.entries)


def test_closing_in_a_handler_only_signals(kafka: Kafka) -> None:
    """A handler that closes its group is drained like every other."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    after: list[bool] = []
    with here.group(recorded) as group:

        def handle(generation: Generation) -> None:
            group.close("from a handler")
            after.append(generation.ending.wait(SOON))

        for generation in group:
            generation.start(handle, generation)
    assert after == [True]
    assert recorded.wait(Left).reason == "from a handler"


def test_closing_in_an_event_handler_only_signals(kafka: Kafka) -> None:
    """An event handler, which the group's own thread calls, can close the group."""
    here = Harness(kafka)
    here.create()

    def close(event: Event) -> None:
        if isinstance(event, GenerationStarted):
            group.close()

    group = here.group(close)
    with group:
        generations = list(group)
    assert [one.epoch for one in generations] in ([], [1])


def test_a_group_closed_before_it_is_entered(kafka: Kafka) -> None:
    """The group yields no generation."""
    here = Harness(kafka)
    group = here.group()
    group.close()
    with group:
        assert list(group) == []
