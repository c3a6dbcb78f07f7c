"""The threaded group: generations, their handlers and ends, hand-over; on both brokers."""

from __future__ import annotations

import threading
import traceback

import pytest

from kgroup.errors import (
    GroupClosedError,
)
from kgroup.events import (
    Assigned,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    HandlerStillRunning,
    Left,
)
from kgroup.generation.states import State
from kgroup.threaded import ConsumerGroup, Generation
from kgroup.threaded.generation_threads import GenerationThreads
from kgroup.types import Cause, TopicPartition
from tests.brokers import Kafka
from tests.threaded.harness import (
    QUICK,
    SOON,
    Harness,
    ProcessedRecords,
    RecordedEvents,
    Work,
    in_handlers,
    in_the_body,
    member,
    process_all,
    wait,
)


def test_generations_handlers_and_commits(kafka: Kafka) -> None:
    """``for`` returns a generation, handlers process and commit, and the block leaves the group."""
    here, recorded, processed = Harness(kafka), RecordedEvents(), ProcessedRecords()
    here.create(3, 50)
    held: list[Generation] = []
    with here.group(recorded) as group:
        for generation in group:
            held.append(generation)
            assert generation.assignment.partitions == tuple(map(here.partition, range(3)))
            assert generation.leader
            for partition in generation.assignment:
                assert generation.start(process_all, generation, partition, processed)
            processed.wait(150)
            break
    (generation,) = held
    assert generation.end is not None
    assert generation.end.cause is Cause.CLOSED
    assert set(processed.counts().values()) == {1}
    assert [here.committed(number) for number in range(3)] == [50, 50, 50]
    assert recorded.wait(Left).notified
    assert not [one for one in threading.enumerate() if one.name.startswith("kgroup-")]


def test_the_attributes_of_a_generation(kafka: Kafka) -> None:
    """A threaded generation has the attributes of the trio generation."""
    here = Harness(kafka)
    here.create(1, 5)
    with here.group(group_instance_id="me") as group:
        assert group.config.group_id == here.group_id
        assert repr(group) == f"<threaded ConsumerGroup {here.group_id!r}, joining>"
        generation = next(group)
        assert (generation.group_id, generation.group_instance_id) == (here.group_id, "me")
        assert generation.member_id
        assert generation.assignor == "range"
        assert (generation.epoch, generation.generation_id) == (1, 1)
        assert generation.start_offsets == {here.partition(0): 0}
        assert state_of(generation) is State.RUNNING
        assert generation.end is None
        assert 0 < generation.lease <= QUICK["session_timeout"]
        assert not generation.ending.is_set()
        assert repr(generation) == f"<Generation 1 of {here.group_id!r}, running>"
    assert state_of(generation) is State.ENDED
    assert generation.lease == 0
    assert generation.ending.is_set()


def state_of(generation: Generation) -> State:
    """The state at this moment, without a type checker's assumption that it stays."""
    return generation.state


def test_a_handler_that_returns_ends_its_generation(kafka: Kafka) -> None:
    """The next generation has a new epoch and id, and the same member id; all threads ended."""
    here = Harness(kafka)
    here.create(2)
    with here.group() as group:
        first = next(group)
        ended: list[bool] = []

        def stay(generation: Generation) -> None:
            ended.append(generation.ending.wait(SOON))

        def go() -> str:
            return "the value of a handler means nothing"

        assert first.start(stay, first)
        assert first.start(go)
        second = group.next(SOON)
        assert ended == [True]
        assert first.end is not None
        assert first.end.cause is Cause.TASK_RETURNED
        assert "go returned" in first.end.detail
        assert first.wait_ended() == first.end
        assert (second.epoch, second.member_id) == (first.epoch + 1, first.member_id)
        assert second.generation_id > first.generation_id
        assert not first.start(go)


def test_a_handler_that_raises_is_raised_by_the_block(kafka: Kafka) -> None:
    """Its siblings drain, ``for`` ends, and ``with`` raises it in a group, one level deep."""
    here, recorded, processed = Harness(kafka), RecordedEvents(), ProcessedRecords()
    here.create(2, 10)

    def fail(processed: ProcessedRecords) -> None:
        processed.wait(10)
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ExceptionGroup) as info, here.group(recorded) as group:
        for generation in group:
            generation.start(process_all, generation, here.partition(0), processed)
            generation.start(fail, processed)
    (error,) = info.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert "fail" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert here.committed(0) == 10
    assert recorded.wait(GenerationEnded).end.cause is Cause.TASK_RAISED
    assert recorded.wait(Left).notified
    with pytest.raises(GroupClosedError):
        group.next()
    assert list(group) == []


def test_what_body_and_handlers_raise_comes_together(kafka: Kafka) -> None:
    """The group that the block raises holds the body's exception beside the handlers'."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()

    def fail() -> None:
        raise ZeroDivisionError("in a handler")

    def body(group: ConsumerGroup) -> None:
        generation = next(group)
        generation.start(fail)
        # It does not wait for the body, which does nothing but wait for it.
        generation.wait_ended(QUICK["drain_timeout"] / 2)
        raise KeyError("in the body")

    with pytest.raises(ExceptionGroup) as info, here.group(recorded) as group:
        body(group)
    assert {type(error) for error in info.value.exceptions} == {ZeroDivisionError, KeyError}


def test_what_the_body_raises_comes_alone(kafka: Kafka) -> None:
    """Without a failed handler the body's own exception leaves the block as it is."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create()
    error = KeyError("in the body")
    with pytest.raises(KeyError) as info, here.group(recorded) as group:
        next(group)
        raise error
    assert info.value is error
    assert recorded.wait(Left).reason == "the block was left by KeyError"  # the broker logs it


def test_an_interrupt_as_a_generation_is_returned(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call returns it: otherwise its partitions would not be read."""
    here = Harness(kafka)
    here.create()

    def interrupted(_: GenerationThreads) -> None:
        raise KeyboardInterrupt

    with here.group() as group:
        first = group.next(SOON)
        first.start(int)
        with monkeypatch.context() as patch:
            patch.setattr(GenerationThreads, "join", interrupted)
            with pytest.raises(KeyboardInterrupt):
                group.next(SOON)
        second = group.next(SOON)
        assert second.epoch == first.epoch + 1
        assert second.state is State.RUNNING


def test_an_interrupt_drains_and_leaves(kafka: Kafka) -> None:
    """``KeyboardInterrupt`` in the body lets handlers finish and commit, and comes out bare."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(1, 1)
    begun = threading.Event()

    def handle(generation: Generation) -> None:
        for batch in generation.records():
            begun.set()
            wait(generation.ending)
            generation.commit({batch.partition: batch.next_offset})

    with pytest.raises(KeyboardInterrupt), here.group(recorded) as group:
        generation = next(group)
        generation.start(handle, generation)
        wait(begun)
        raise KeyboardInterrupt
    assert here.committed() == 1
    assert recorded.wait(Left).notified


def test_a_second_interrupt_cuts_the_drain(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during the drain ends the drain, and the member still leaves the group."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(1, 1)
    release = threading.Event()

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), here.group(recorded) as group:
        generation = next(group)
        generation.start(release.wait, SOON)
        monkeypatch.setattr(group._loop, "join", interrupted)
    release.set()
    ended = recorded.wait(GenerationEnded)
    assert ended.end.cause in (Cause.CANCELLED, Cause.CLOSED)
    assert recorded.wait(Left).notified
    assert recorded.wait(HandlerStillRunning).thread.endswith("Event.wait()")


@pytest.mark.parametrize("work", [in_handlers, in_the_body])
def test_hand_over_loses_and_repeats_nothing(kafka: Kafka, work: Work) -> None:
    """While threaded members come and go every record is processed, none twice, in order.

    So it is for work in handler threads and for work in the loop's body alone.
    """
    here, processed = Harness(kafka), ProcessedRecords()
    partitions, each = 4, 1000
    here.create(partitions, each)
    with member(here, processed, work):
        processed.wait(200)
        with member(here, processed, work) as second:
            second.wait(Assigned)
            here.produce(each, *range(partitions))
            processed.wait(partitions * each + 500)
        processed.wait(2 * partitions * each)
    for number in range(partitions):
        assert processed.offsets(here.partition(number)) == list(range(2 * each))
        assert here.committed(number) == 2 * each


def test_a_hundred_partitions_have_a_hundred_threads(kafka: Kafka) -> None:
    """With a handler thread for each of 100 partitions all records are processed once."""
    here, processed = Harness(kafka), ProcessedRecords()
    partitions, each = 100, 100
    here.create(partitions, each)
    together = threading.Barrier(partitions)

    def handle(generation: Generation, partition: TopicPartition) -> None:
        together.wait(SOON)
        process_all(generation, partition, processed)

    with here.group() as group:
        generation = next(group)
        assert all(generation.start(handle, generation, name) for name in generation.assignment)
        processed.wait(partitions * each)
    assert set(processed.counts().values()) == {1}
    assert len(processed.counts()) == partitions * each
    assert {here.committed(number) for number in range(partitions)} == {each}


def test_a_generation_that_comes_as_next_times_out(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call returns it; until then no body works in it, and its drain waits for none."""
    here = Harness(kafka)
    here.create()
    recorded = RecordedEvents()

    def give_up_late(lock: threading.Lock, timeout: float | None) -> bool:
        return lock.acquire(timeout=SOON) and timeout is None

    def time_out(group: ConsumerGroup) -> None:
        with monkeypatch.context() as patch, pytest.raises(TimeoutError):
            patch.setattr("kgroup.background.event_loop.acquire", give_up_late)
            group.next(SOON)

    with here.group(recorded) as group:
        time_out(group)
        generation = group.next()
        assert len(recorded.of(GenerationStarted)) == 1
        group.unsubscribe()
        recorded.wait(GenerationDraining)
        assert generation.state is State.DRAINING  # until the body calls next
        group.subscribe([here.topic])
        time_out(group)
        group.unsubscribe()
        assert not recorded.wait(GenerationEnded, 2).cut_short
