"""The threaded group: generations, their ends, closing, and who waits for whom; on both brokers."""

from __future__ import annotations

import threading
import traceback

import pytest
import trio

from kgroup.errors import (
    FatalGroupError,
    FencedInstanceError,
    GroupClosedError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import (
    Assigned,
    Event,
    GenerationEnded,
    GenerationStarted,
    HandlerOutstayed,
    Joining,
    Left,
    RequestFailed,
)
from kgroup.generation.states import State
from kgroup.model import Cause, TopicPartition
from kgroup.threaded import ConsumerGroup, Generation
from tests.brokers import Kafka
from tests.threaded.stage import (
    QUICK,
    SOON,
    Ledger,
    Stage,
    Told,
    Work,
    in_handlers,
    in_the_body,
    member,
    process_all,
    thread,
    wait,
)


def test_generations_handlers_and_commits(kafka: Kafka) -> None:
    """``for`` gives a generation, handlers process its records and commit, leaving leaves."""
    here, told, ledger = Stage(kafka), Told(), Ledger()
    here.create(3, 50)
    held: list[Generation] = []
    with here.group(told) as group:
        for generation in group:
            held.append(generation)
            assert generation.assignment.partitions == tuple(map(here.partition, range(3)))
            assert generation.leader
            for partition in generation.assignment:
                assert generation.start(process_all, generation, partition, ledger)
            ledger.wait(150)
            break
    (generation,) = held
    assert generation.end is not None
    assert generation.end.cause is Cause.CLOSED
    assert set(ledger.counts().values()) == {1}
    assert [here.committed(number) for number in range(3)] == [50, 50, 50]
    assert told.wait(Left).told
    assert not [one for one in threading.enumerate() if one.name.startswith("kgroup-")]


def test_what_a_generation_says_of_itself(kafka: Kafka) -> None:
    """All that a trio generation tells, a threaded one tells too."""
    here = Stage(kafka)
    here.create(1, 5)
    with here.group(group_instance_id="me") as group:
        assert group.config.group_id == here.group_id
        assert repr(group) == f"<threaded ConsumerGroup {here.group_id!r}, joining>"
        generation = next(group)
        assert (generation.group_id, generation.group_instance_id) == (here.group_id, "me")
        assert generation.member_id
        assert generation.assignor == "range"
        assert (generation.epoch, generation.generation_id) == (1, 1)
        assert generation.positions == {here.partition(0): 0}
        assert state_of(generation) is State.RUNNING
        assert generation.end is None
        assert 0 < generation.lease <= 6.0
        assert not generation.ending.is_set()
        assert repr(generation) == f"<Generation 1 of {here.group_id!r}, running>"
    assert state_of(generation) is State.ENDED
    assert generation.lease == 0
    assert generation.ending.is_set()


def state_of(generation: Generation) -> State:
    """Its state at this moment; it changes behind a type checker's back."""
    return generation.state


def test_a_handler_that_returns_ends_its_generation(kafka: Kafka) -> None:
    """The next generation has a new epoch and id, and the same member id; all threads ended."""
    here = Stage(kafka)
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
    here, told, ledger = Stage(kafka), Told(), Ledger()
    here.create(2, 10)

    def fail(ledger: Ledger) -> None:
        ledger.wait(10)
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ExceptionGroup) as info, here.group(told) as group:
        for generation in group:
            generation.start(process_all, generation, here.partition(0), ledger)
            generation.start(fail, ledger)
    (error,) = info.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert "fail" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert here.committed(0) == 10
    assert told.wait(GenerationEnded).end.cause is Cause.TASK_RAISED
    assert told.wait(Left).told
    with pytest.raises(GroupClosedError):
        group.next()
    assert list(group) == []


def test_what_body_and_handlers_raise_comes_together(kafka: Kafka) -> None:
    """The group that the block raises holds the body's exception beside the handlers'."""
    here, told = Stage(kafka), Told()
    here.create()

    def fail() -> None:
        raise ZeroDivisionError("in a handler")

    def body(group: ConsumerGroup) -> None:
        generation = next(group)
        generation.start(fail)
        # It does not wait for the body, which does nothing but wait for it.
        generation.wait_ended(QUICK["drain_timeout"] / 2)
        raise KeyError("in the body")

    with pytest.raises(ExceptionGroup) as info, here.group(told) as group:
        body(group)
    assert {type(error) for error in info.value.exceptions} == {ZeroDivisionError, KeyError}


def test_what_the_body_raises_comes_alone(kafka: Kafka) -> None:
    """Without a failed handler the body's own exception leaves the block as it is."""
    here, told = Stage(kafka), Told()
    here.create()
    error = KeyError("in the body")
    with pytest.raises(KeyError) as info, here.group(told) as group:
        next(group)
        raise error
    assert info.value is error
    assert "in the body" in told.wait(Left).reason


def test_an_interrupt_drains_and_leaves(kafka: Kafka) -> None:
    """``KeyboardInterrupt`` in the body lets handlers finish and commit, and comes out bare."""
    here, told = Stage(kafka), Told()
    here.create(1, 1)
    begun = threading.Event()

    def handle(generation: Generation) -> None:
        for batch in generation.records():
            begun.set()
            wait(generation.ending)
            generation.commit({batch.partition: batch.next_offset})

    with pytest.raises(KeyboardInterrupt), here.group(told) as group:
        generation = next(group)
        generation.start(handle, generation)
        wait(begun)
        raise KeyboardInterrupt
    assert here.committed() == 1
    assert told.wait(Left).told


def test_a_second_interrupt_cuts_the_drain(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted while it drains, the block is left without a drain and still says farewell."""
    here, told = Stage(kafka), Told()
    here.create(1, 1)
    release = threading.Event()

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), here.group(told, drain_timeout=14.0) as group:
        generation = next(group)
        generation.start(release.wait, SOON)
        monkeypatch.setattr(group._loop, "join", interrupted)
    release.set()
    ended = told.wait(GenerationEnded)
    assert ended.end.cause in (Cause.CANCELLED, Cause.CLOSED)
    assert told.wait(Left).told
    assert told.wait(HandlerOutstayed).thread.endswith("Event.wait()")


@pytest.mark.parametrize("work", [in_handlers, in_the_body])
def test_hand_over_loses_and_repeats_nothing(kafka: Kafka, work: Work) -> None:
    """While threaded members come and go every record is processed, none twice, in order.

    So it is for work in handler threads and for work in the loop's body alone.
    """
    here, ledger = Stage(kafka), Ledger()
    partitions, each = 4, 1000
    here.create(partitions, each)
    with member(here, ledger, work):
        ledger.wait(200)
        with member(here, ledger, work) as second:
            second.wait(Assigned)
            here.produce(each, *range(partitions))
            ledger.wait(partitions * each + 500)
        ledger.wait(2 * partitions * each)
    for number in range(partitions):
        assert ledger.offsets(here.partition(number)) == list(range(2 * each))
        assert here.committed(number) == 2 * each


def test_a_hundred_partitions_have_a_hundred_threads(kafka: Kafka) -> None:
    """With a handler thread for each of 100 partitions all records are processed once."""
    here, ledger = Stage(kafka), Ledger()
    partitions, each = 100, 100
    here.create(partitions, each)
    together = threading.Barrier(partitions)

    def handle(generation: Generation, partition: TopicPartition) -> None:
        together.wait(SOON)
        process_all(generation, partition, ledger)

    with here.group() as group:
        generation = next(group)
        assert all(generation.start(handle, generation, name) for name in generation.assignment)
        ledger.wait(partitions * each)
    assert set(ledger.counts().values()) == {1}
    assert len(ledger.counts()) == partitions * each
    assert {here.committed(number) for number in range(partitions)} == {each}


# Threads that outstay.


def test_a_thread_that_outstays_holds_up_the_next_join(kafka: Kafka) -> None:
    """It is named with its stack, refused as stale, its records end, and no Join goes out."""
    here, told = Stage(kafka), Told()
    here.create(2, 5)
    release, inside = threading.Event(), threading.Event()
    refused: list[StaleGenerationError] = []
    rest: list[object] = []

    def outstay(generation: Generation) -> None:
        records = generation.records(here.partition(0))
        batch = next(records)
        inside.set()
        wait_for_release()
        rest.extend(records)
        try:
            generation.commit({batch.partition: batch.next_offset})
        except StaleGenerationError as error:
            refused.append(error)

    def wait_for_release() -> None:
        wait(release)

    with here.group(told, drain_timeout=0.5) as group:
        first = next(group)
        first.start(outstay, first)
        wait(inside)
        first.start(int)
        with pytest.raises(TimeoutError):
            group.next(0.1)
        event = told.wait(HandlerOutstayed)
        assert event.thread == f"kgroup-{here.group_id}-{outstay.__qualname__}()"
        assert "wait_for_release" in event.stack
        assert (event.member_id, event.epoch) == (first.member_id, first.epoch)
        joins = len(told.of(Joining))
        assert told.of(GenerationEnded)
        with pytest.raises(TimeoutError):
            group.next(0.5)
        assert len(told.of(Joining)) == joins
        release.set()
        second = group.next(SOON)
        assert (second.epoch, second.positions[here.partition(0)]) == (first.epoch + 1, 0)
    assert len(refused) == 1
    assert refused[0].end == first.end
    assert rest == []
    assert here.committed() is None


def test_what_an_outstaying_thread_raises_is_not_lost(kafka: Kafka) -> None:
    """Raised after its generation has ended, it ends the group and comes out of the block."""
    here, told = Stage(kafka), Told()
    here.create()
    release = threading.Event()

    def fail_late() -> None:
        wait(release)
        raise ZeroDivisionError("late")

    with pytest.raises(ExceptionGroup) as info, here.group(told, drain_timeout=0.2) as group:
        first = next(group)
        first.start(fail_late)
        first.start(int)

        def let_go() -> None:
            told.wait(HandlerOutstayed)
            release.set()

        with thread(let_go):
            assert list(group) == []
    (error,) = info.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert told.wait(Left).told


def test_closing_does_not_wait_for_an_outstaying_thread_for_ever(kafka: Kafka) -> None:
    """The member leaves after the drain; the thread is named, and left behind."""
    here, told = Stage(kafka), Told()
    here.create()
    release = threading.Event()
    with here.group(told, drain_timeout=0.2) as group:
        first = next(group)
        first.start(release.wait, SOON)
    assert told.of(HandlerOutstayed)
    assert told.of(Left)[0].told
    release.set()


# Closing.


def test_closing_from_another_thread_ends_a_waiting_next(kafka: Kafka) -> None:
    """A ``for`` that waits ends, and when close() returns the member has left."""
    here, told = Stage(kafka), Told()
    here.create()
    left: list[bool] = []
    with here.group(told) as group:

        def close() -> None:
            told.wait(GenerationStarted)
            group.close("enough")
            left.append(bool(told.of(Left)))
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
    assert told.of(Left)[0].reason == "enough"


def test_closing_ends_the_wait_for_an_outstaying_thread(kafka: Kafka) -> None:
    """A next() that waits for a thread to go, not for the coordinator, ends as well."""
    here, told = Stage(kafka), Told()
    here.create()
    release = threading.Event()

    def close() -> None:
        told.wait(HandlerOutstayed)
        group.close()

    with here.group(told, drain_timeout=0.1) as group, thread(close):
        first = next(group)
        first.start(release.wait, SOON)
        first.start(int)
        assert list(group) == []
    release.set()


def test_closing_amid_a_join(kafka: Kafka) -> None:
    """A Join that the coordinator holds back for others is given up at once."""
    here, told = Stage(kafka), Told()
    here.create(2)
    with here.group(drain_timeout=14.0) as holder:
        generation = next(holder)
        release = threading.Event()
        generation.start(release.wait, SOON)
        with here.group(told) as group:

            def close() -> None:
                # Without an id first, then with the one that was given: that one is held back.
                told.wait(Joining, 2)
                wait(generation.ending)
                group.close()

            with thread(close):
                assert list(group) == []
            assert generation.state is State.DRAINING
        release.set()
    assert told.of(Left)


def test_closing_in_the_owner_only_signals(kafka: Kafka) -> None:
    """In the thread that is inside the block close() does not wait, and work can be finished."""
    here, ledger = Stage(kafka), Ledger()
    here.create(1, 10)
    with here.group() as group:
        generation = next(group)
        batch = next(generation.records())
        group.close()
        assert generation.ending.wait(SOON)
        generation.commit({batch.partition: batch.next_offset})
        ledger.add(batch)
        with pytest.raises(GroupClosedError):
            group.next()
    assert here.committed() == len(ledger.entries)


def test_closing_in_a_handler_only_signals(kafka: Kafka) -> None:
    """A handler that closes its group is drained like every other."""
    here, told = Stage(kafka), Told()
    here.create()
    after: list[bool] = []
    with here.group(told) as group:

        def handle(generation: Generation) -> None:
            group.close("from a handler")
            after.append(generation.ending.wait(SOON))

        for generation in group:
            generation.start(handle, generation)
    assert after == [True]
    assert told.wait(Left).reason == "from a handler"


def test_closing_in_an_event_handler_only_signals(kafka: Kafka) -> None:
    """An event handler, which the group's own thread calls, can close the group."""
    here = Stage(kafka)
    here.create()

    def close(event: Event) -> None:
        if isinstance(event, GenerationStarted):
            group.close()

    group = here.group(close)
    with group:
        generations = list(group)
    assert [one.epoch for one in generations] in ([], [1])


def test_closed_before_it_is_entered(kafka: Kafka) -> None:
    """A group that was closed before yields nothing."""
    here = Stage(kafka)
    group = here.group()
    group.close()
    with group:
        assert list(group) == []


# Misuse.


def test_next_in_a_handler_is_refused(kafka: Kafka) -> None:
    """Also in a thread pool's function that runs in the handler's context."""
    here = Stage(kafka)
    here.create()

    def handle(group: ConsumerGroup) -> None:
        next(group)

    with pytest.raises(ExceptionGroup) as info, here.group() as group:
        for generation in group:
            generation.start(handle, group)
    (error,) = info.value.exceptions
    assert isinstance(error, UsageError)
    assert "called by a handler" in str(error)


def test_two_threads_in_next_are_refused() -> None:
    """The second one is told; the first goes on."""
    told = Told()
    nowhere = Stage(Kafka("nobody", "127.0.0.1:1"))
    with nowhere.group(told) as group:

        def first() -> None:
            with pytest.raises(GroupClosedError):
                group.next()

        with thread(first):
            told.wait(RequestFailed)
            with pytest.raises(UsageError, match="another thread waits"):
                group.next()
            group.shutdown()


def test_it_is_entered_once(kafka: Kafka) -> None:
    """next() before ``with``, and a second ``with``, are refused."""
    group = Stage(kafka).group()
    with pytest.raises(UsageError, match="is not open"):
        group.next()
    with group, pytest.raises(UsageError, match="entered once"):
        group.__enter__()


def test_a_time_out_of_next_loses_nothing(kafka: Kafka) -> None:
    """The next call goes on where the one was that gave up."""
    here, told = Stage(kafka), Told()
    with here.group(told) as group:
        with pytest.raises(TimeoutError):
            group.next(0)
        here.create()
        generation = group.next(SOON)
        while not generation.assignment:
            generation = group.next(SOON)
        with pytest.raises(TimeoutError):
            generation.wait_ended(0)


# When things go wrong below.


def test_a_fatal_error_is_raised_by_every_next(kafka: Kafka) -> None:
    """A member that was fenced is told so, bare, in the thread that asks."""
    here, told = Stage(kafka), Told()
    here.create()
    with here.group(told, group_instance_id="one") as first:
        generation = next(first)
        with here.group(group_instance_id="one") as second:
            with thread(lambda: next(second)):
                for _ in range(2):
                    with pytest.raises(FencedInstanceError):
                        first.next(SOON)
            assert generation.end is not None
            assert generation.end.cause is Cause.FENCED


def test_a_fatal_error_that_nobody_asked_for_is_raised_by_the_block(kafka: Kafka) -> None:
    """Fenced in its body, the block raises it as it is left."""
    here = Stage(kafka)
    here.create()
    with pytest.raises(FatalGroupError), here.group(group_instance_id="one") as first:
        generation = next(first)
        with here.group(group_instance_id="one") as second, thread(lambda: next(second)):
            generation.wait_ended(SOON)


def test_the_death_of_the_background_thread(kafka: Kafka) -> None:
    """Whoever waits is told, nobody hangs, and the block raises what happened."""
    here = Stage(kafka)
    here.create()
    ended: list[object] = []

    def handle(generation: Generation) -> None:
        ended.extend(generation.records())
        ended.append("over")

    def crash() -> None:
        raise ZeroDivisionError("on purpose")

    def body(group: ConsumerGroup) -> None:
        generation = next(group)
        generation.start(handle, generation)
        group._loop.post(crash)
        with pytest.raises(GroupClosedError):
            next_of(group)
        assert group._loop.over.wait(SOON)
        with pytest.raises(StaleGenerationError):
            generation.commit({here.partition(0): 0})
        with pytest.raises(StaleGenerationError):
            generation.records()
        assert not generation.start(int)
        group.close()
        assert generation.ending.wait(SOON)

    with pytest.raises(trio.TrioInternalError), here.group() as group:
        body(group)
    assert ended == ["over"]


def next_of(group: ConsumerGroup) -> Generation:
    """As ``next``, with the exception that ends an iteration shown."""
    return group.next(SOON)


def test_an_event_handler_that_raises(kafka: Kafka) -> None:
    """What an event handler raises ends the group and comes out of the block."""
    here = Stage(kafka)
    here.create()

    def fail(event: Event) -> None:
        if isinstance(event, Joining):
            raise ZeroDivisionError("in the event handler")

    with pytest.raises(ExceptionGroup) as info, here.group(fail) as group:
        assert list(group) == []
    assert info.group_contains(ZeroDivisionError)
