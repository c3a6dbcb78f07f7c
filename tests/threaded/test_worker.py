"""Workers in few lines, with threads: `serve`, its pool of threads, and `run` in a process."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from kgroup.errors import ArgumentError, UsageError
from kgroup.events import CommitRefused, Event, GenerationDraining, GenerationEnded
from kgroup.interfaces import Batch
from kgroup.testing.admin import delete_topic
from kgroup.threaded import ConsumerGroup, Generation, run, serve
from kgroup.types import Cause, TopicPartition
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON, Harness, ProcessedRecords, thread, wait

once = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
"""For tests that are the same on every broker."""


@pytest.mark.parametrize("threads", [None, 1, 3, 20])
def test_every_record_in_its_partitions_order(kafka: Kafka, threads: int | None) -> None:
    """At most one thread processes a partition, in order, and all is committed."""
    here, processed = Harness(kafka), ProcessedRecords()
    partitions, records = 6, 200
    here.create(partitions, records)
    pauses, busy, together = random.Random(1), Counter[TopicPartition](), list[int]()
    lock, over = threading.Lock(), threading.Event()

    def handle(_: Generation, batch: Batch) -> None:
        with lock:
            busy[batch.partition] += 1
            together.append(sum(busy.values()))
            assert busy[batch.partition] == 1
            pause = pauses.choice([0.0, 0.0, 0.01])
        over.wait(pause)
        with lock:
            processed.add(batch)
            busy[batch.partition] -= 1

    with here.group() as group, thread(processed.wait, partitions * records) as waiting:

        def close() -> None:
            waiting.join(SOON)
            group.shutdown(promptly=True)

        with thread(close):
            serve(group, handle, threads=threads, max_records=7)
    for number in range(partitions):
        assert processed.offsets(here.partition(number)) == list(range(records))
        assert here.committed(number) == records
    assert max(together) <= (partitions if threads is None else min(threads, partitions))


@once
def test_a_stuck_function_of_a_pool_is_noticed(kafka: Kafka) -> None:
    """It ends the generation although the other thread takes one batch after the other."""
    here = Harness(kafka)
    here.create(2, 100)
    stuck, ends = here.partition(0), list[Cause]()

    def handle(generation: Generation, batch: Batch) -> None:
        if batch.partition == stuck:
            wait(generation.ending)
            group.shutdown(promptly=True)
        else:
            generation.ending.wait(0.01)

    def on_event(event: Event) -> None:
        if isinstance(event, GenerationEnded):
            ends.append(event.end.cause)

    with here.group(on_event, max_processing_time=0.5) as group:
        serve(group, handle, threads=2, max_records=1)
    assert ends == [Cause.PROCESSING_STUCK]


@once
def test_a_function_that_exits(kafka: Kafka) -> None:
    """After ``sys.exit`` in one thread, the others finish their batches and commit them."""
    here = Harness(kafka)
    here.create(2, 10)
    begun = threading.Barrier(2)

    def handle(generation: Generation, batch: Batch) -> None:
        begun.wait(SOON)
        if batch.partition == here.partition(0):
            sys.exit(3)
        wait(generation.ending)

    with pytest.raises(BaseExceptionGroup) as raised, here.group() as group:
        serve(group, handle)
    (error,) = raised.value.exceptions
    assert isinstance(error, SystemExit)
    assert f"for offsets 0 to 9 of {here.partition(0)}" in error.__notes__[0]
    assert [here.committed(number) for number in range(2)] == [None, 10]


@once
def test_a_slow_partition_occupies_one_thread(kafka: Kafka) -> None:
    """The others are processed to their end meanwhile, and few of its batches wait in memory."""
    here, processed = Harness(kafka), ProcessedRecords()
    here.create(3, 100)
    slow, freed = here.partition(0), threading.Event()

    def handle(_: Generation, batch: Batch) -> None:
        if batch.partition == slow:
            wait(freed)
        processed.add(batch)

    with here.group() as group:

        def watch() -> None:
            processed.wait(200)
            assert processed.offsets(slow) == []
            freed.set()
            processed.wait(300)
            group.shutdown(promptly=True)

        with thread(watch):
            serve(group, handle, threads=2, max_records=5)
    assert processed.offsets(slow) == list(range(100))
    assert [here.committed(number) for number in range(3)] == [100, 100, 100]


@pytest.mark.parametrize("threads", [None, 2])
def test_a_function_that_seeks(kafka: Kafka, threads: int | None) -> None:
    """That offset is committed, and comes next."""
    here = Harness(kafka)
    here.create(2, 10)
    seeking = here.partition(0)
    found: list[int | None] = []
    committed: list[int | None] = []
    other_done = threading.Event()

    def handle(generation: Generation, batch: Batch) -> int | None:
        if batch.partition != seeking:
            if batch.next_offset == 10:
                other_done.set()
            return None
        found.extend(message.offset() for message in batch)
        committed.append(here.committed())
        if len(found) == 2:
            wait(other_done)
            generation.seek(batch.partition, 0)
            return 77
        if batch.next_offset == 10:
            group.shutdown(promptly=True)
        return None

    with here.group() as group:
        serve(group, handle, threads=threads, max_records=2)
    assert found == [0, 1, *range(10)]
    assert committed[:3] == [None, 0, 2]
    assert here.committed() == 10


@once
@pytest.mark.parametrize("offset", [1, 8])
def test_a_seek_of_another_thread_just_before_a_commit(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """The batch is not committed: only the offset that was sought is, and nothing is refused."""
    here = Harness(kafka)
    here.create(1, 10)
    found: list[int | None] = []
    seeks: list[int] = []
    call_loop = Generation._run

    def call_loop_after_seek(generation: Generation, *args: Any) -> Any:
        if seeks:
            generation.seek(here.partition(0), seeks.pop())
        return call_loop(generation, *args)

    def handle(_: Generation, batch: Batch) -> int:
        first = batch.messages[0].offset() or 0
        found.append(first)
        if len(found) == 1:
            seeks.append(offset)
            return 4
        if first == 9:
            group.shutdown(promptly=True)
        return first + 1

    monkeypatch.setattr(Generation, "_run", call_loop_after_seek)
    with here.group() as group:
        serve(group, handle)
    assert found == [0, *range(offset, 10)]
    assert here.committed() == 10


@pytest.mark.parametrize("threads", [None, 2])
def test_a_function_that_pauses(kafka: Kafka, threads: int | None) -> None:
    """No other batch of the partition comes until the program resumes it; then all come."""
    here, processed = Harness(kafka), ProcessedRecords()
    here.create(3, 20)
    pausing, paused = here.partition(0), threading.Event()
    generations: list[Generation] = []

    def handle(generation: Generation, batch: Batch) -> None:
        processed.add(batch)
        if batch.partition == pausing and batch.start_offset == 4:
            # So that the other thread of the pool reads meanwhile.
            processed.wait(20 + 6)
            generation.pause(pausing)
            generations.append(generation)
            paused.set()

    with here.group() as group:

        def watch() -> None:
            wait(paused)
            processed.wait(40 + 6)
            assert processed.offsets(pausing) == list(range(6))
            generations[0].resume(pausing)
            processed.wait(60)
            group.shutdown(promptly=True)

        with thread(watch):
            serve(group, handle, threads=threads, max_records=2)
    assert processed.offsets(pausing) == list(range(20))
    assert [here.committed(number) for number in range(3)] == [20, 20, 20]


@once
def test_a_partition_that_is_paused_at_the_end(kafka: Kafka) -> None:
    """The end of a generation is not kept waiting, and the next one begins without the pause."""
    here, processed = Harness(kafka), ProcessedRecords()
    here.create(2, 6)

    def handle(generation: Generation, batch: Batch) -> None:
        processed.add(batch)
        if generation.epoch == 1 and batch.partition == here.partition(0):
            generation.pause(batch.partition)

    with here.group() as group:

        def rebalance() -> None:
            processed.wait(6 + 2)
            with here.group() as other:
                other.next(SOON)
            processed.wait(12)
            group.shutdown(promptly=True)

        with thread(rebalance):
            serve(group, handle, threads=2, max_records=2)
    assert [here.committed(number) for number in range(2)] == [6, 6]


@pytest.mark.parametrize("threads", [None, 2])
def test_the_end_of_a_generation_in_the_middle_of_a_batch(
    kafka: Kafka, threads: int | None
) -> None:
    """What was processed is committed, the rest is read in the next generation, nothing twice."""
    here = Harness(kafka)
    here.create(2, 50)
    found: list[tuple[int, int]] = []
    begun, all_found, lock = threading.Event(), threading.Event(), threading.Lock()

    def handle(generation: Generation, batch: Batch) -> int | None:
        for message in batch:
            with lock:
                found.append((batch.partition.partition, message.offset() or 0))
            if len(found) == 100:
                all_found.set()
            if generation.epoch == 1 and (message.offset() or 0) >= 5:
                begun.set()
                wait(generation.ending)
                return (message.offset() or 0) + 1
        return None

    with here.group() as group:

        def rebalance() -> None:
            wait(begun)
            with here.group() as other:
                other.next(SOON)
            wait(all_found)
            group.shutdown(promptly=True)

        with thread(rebalance):
            serve(group, handle, threads=threads)
    assert sorted(found) == [(part, offset) for part in range(2) for offset in range(50)]
    assert [here.committed(number) for number in range(2)] == [50, 50]


@once
@pytest.mark.parametrize("threads", [None, 2])
def test_an_exception_commits_nothing(kafka: Kafka, threads: int | None) -> None:
    """It surfaces from the group's block with its note, and the threads have ended."""
    here = Harness(kafka)
    here.create(1, 5)

    def handle(_: Generation, batch: Batch) -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised, here.group() as group:
        serve(group, handle, threads=threads)
    (error,) = raised.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert f"for offsets 0 to 4 of {here.topic}-0" in error.__notes__[0]
    assert here.committed() is None


@once
def test_an_exception_after_a_commit_of_the_functions_own(kafka: Kafka) -> None:
    """The note on it does not say that the records will be read again."""
    here = Harness(kafka)
    here.create(1, 5)

    def handle(generation: Generation, batch: Batch) -> None:
        generation.commit({batch.partition: 3})
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised, here.group() as group:
        serve(group, handle)
    (error,) = raised.value.exceptions
    assert f"had committed offset 3 of {here.partition(0)} by then" in error.__notes__[0]
    assert here.committed() == 3


@once
@pytest.mark.parametrize("threads", [None, 2])
def test_a_commit_that_fails_is_not_the_functions_fault(kafka: Kafka, threads: int | None) -> None:
    """The end of the generation and the note say that the commit failed, and of which records."""
    here = Harness(kafka)
    here.create(1, 5)
    ends: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, GenerationEnded):
            ends.append(event.end.detail)

    def handle(generation: Generation, batch: Batch) -> None:
        # The worker's own commit, which is behind this one, is refused.
        generation.commit({batch.partition: batch.next_offset + 1}, beyond_read=True)

    with pytest.raises(ExceptionGroup) as raised, here.group(on_event=note) as group:
        serve(group, handle, threads=threads)
    (error,) = raised.value.exceptions
    what = f"committing offsets 0 to 4 of {here.topic}-0 raised"
    assert error.__notes__[0].startswith(f"{what} this, and not ")
    assert [one.startswith(what) for one in ends] == [True]


@pytest.mark.parametrize("threads", [None, 1])
def test_a_topic_that_is_deleted_while_its_batch_is_processed(
    kafka: Kafka, threads: int | None
) -> None:
    """There is nothing left to commit of it, and the worker goes on with its other topics."""
    gone, left = Harness(kafka), Harness(kafka)
    gone.create(1, 1)
    left.create()
    refused: list[TopicPartition] = []
    found: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, CommitRefused):
            refused.extend(event.offsets)
            left.produce(1, 0)

    def handle(_: Generation, batch: Batch) -> None:
        found.append(batch.partition.topic)
        if batch.partition.topic == gone.topic:
            delete_topic(kafka.bootstrap_servers, gone.topic)  # waits until no broker knows it
        else:
            group.shutdown(promptly=True)

    with left.group(on_event, topics=[gone.topic, left.topic]) as group:
        serve(group, handle, threads=threads)
    assert refused == [gone.partition(0)]
    assert found == [gone.topic, left.topic]
    assert left.committed() == 1


def test_an_async_function() -> None:
    """It is refused before the member joins, with what to call in its place."""
    nowhere = Harness(Kafka("nobody", "127.0.0.1:1"))

    async def handle(_: Generation, batch: Batch) -> None:
        """Process nothing."""

    with pytest.raises(ArgumentError, match=r"it is an async function.*kgroup\.run"):
        run(nowhere.config(), handle)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"it is an async function.*kgroup\.threaded\.retrying"):
        serve(nowhere.group(), handle)  # type: ignore[arg-type]


@once
def test_a_cancelled_group_does_not_wait_for_its_handlers(kafka: Kafka) -> None:
    """`cancel` ends the drain; the thread stays behind, and its commit is refused."""
    here, held, freed = Harness(kafka), threading.Event(), threading.Event()
    here.create(1, 1)
    draining = threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, GenerationDraining):
            draining.set()

    def handle(_: Generation, batch: Batch) -> None:
        held.set()
        wait(freed)

    def cancel(group: ConsumerGroup) -> None:
        wait(held)
        group.shutdown(promptly=True)
        wait(draining)
        group.cancel()

    try:
        with here.group(on_event) as group, thread(cancel, group):
            serve(group, handle)
    finally:
        freed.set()
    assert here.committed() is None


@once
def test_wrong_arguments(kafka: Kafka) -> None:
    """They are refused in the call itself, before the member joins."""
    here = Harness(kafka)
    with here.group() as group:
        for wrong in ({"threads": 0}, {"threads": 1.5}, {"max_records": 0}, {"handle": "handle"}):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                serve(group, **{"handle": print, **wrong})  # type: ignore[arg-type]
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                run(here.config(), **{"handle": print, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="group"):
        serve(here.config(), print)  # type: ignore[arg-type]


@once
def test_run_outside_of_the_main_thread(kafka: Kafka) -> None:
    """It is refused, because only the main thread receives signals."""
    with (
        pytest.raises(UsageError, match=r"main thread only.*kgroup\.threaded\.serve"),
        thread(run, Harness(kafka).config(), print),
    ):
        pass
