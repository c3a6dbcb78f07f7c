"""A threaded generation: records, commits, positions for its threads; on both brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from kgroup.background.event_loop import BackgroundLoop, Call
from kgroup.errors import (
    LeaseExpiredError,
    NotOwnedError,
    OffsetBehindCommitError,
    OffsetBeyondReadError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import Committed, GenerationEnded
from kgroup.generation.task_errors import without_stale_errors
from kgroup.interfaces import Batch
from kgroup.threaded import Generation
from kgroup.threaded.records import Records
from kgroup.types import Cause, End, OffsetAndMetadata, TopicPartition
from tests.brokers import Kafka, unique
from tests.threaded.harness import SOON, Harness, RecordedEvents, thread, wait


@contextmanager
def generation_of(here: Harness) -> Iterator[Generation]:
    """One generation of a new member."""
    with here.group() as group:
        yield group.next(SOON)


def offsets(batch: Batch | None) -> list[int]:
    """The offsets in a batch."""
    assert batch is not None
    return [int(message.offset() or 0) for message in batch.messages]


def read(records: Records, count: int) -> list[int]:
    """Read this many records; return their offsets."""
    found: list[int] = []
    while len(found) < count:
        found += offsets(records.next(SOON))
    return found


def test_commits_and_their_refusals(kafka: Kafka) -> None:
    """A commit accepts and raises the same as the trio commit, in its thread."""
    here = Harness(kafka)
    here.create(1, 10)
    mine, foreign = here.partition(0), here.partition(7)
    with generation_of(here) as generation:
        generation.commit({})
        generation.commit({mine: 3}, beyond_read=True)
        assert here.committed() == 3
        generation.commit({mine: OffsetAndMetadata(4)}, beyond_read=True)
        with pytest.raises(OffsetBehindCommitError):
            generation.commit({mine: 2}, beyond_read=True)
        with pytest.raises(NotOwnedError):
            generation.commit({foreign: 1}, beyond_read=True)
        with pytest.raises(TypeError):
            generation.commit({mine: "5"})  # type: ignore[dict-item]
    assert here.committed() == 4
    with pytest.raises(StaleGenerationError) as info:
        generation.commit({mine: 9}, beyond_read=True)
    assert info.value.end == generation.end
    assert here.committed() == 4


def test_commits_of_many_threads_are_few_requests(kafka: Kafka) -> None:
    """Threads that commit at the same time share requests, and each gets its own outcome."""
    here, recorded = Harness(kafka), RecordedEvents()
    threads = 40
    here.create(threads)
    together = threading.Barrier(threads)
    outcomes: list[str] = []

    def commit(generation: Generation, partition: TopicPartition) -> None:
        together.wait(SOON)
        good = partition.partition % 2 == 0
        try:
            generation.commit(
                {partition: 1} if good else {here.partition(threads): 1}, beyond_read=True
            )
        except NotOwnedError:
            outcomes.append("refused")
        else:
            outcomes.append("committed")
        generation.ending.wait(SOON)

    with here.group(recorded) as group:
        generation = group.next(SOON)
        for partition in generation.assignment:
            generation.start(commit, generation, partition)
        while sum(len(event.offsets) for event in recorded.of(Committed)) < threads // 2:
            recorded.wait(Committed, len(recorded.of(Committed)) + 1)
    assert sorted(outcomes) == ["committed"] * 20 + ["refused"] * 20
    assert len(recorded.of(Committed)) < threads // 2


def test_streams_of_partitions(kafka: Kafka) -> None:
    """A stream is for one, several or all partitions; no partition has two streams."""
    here = Harness(kafka)
    here.create(3, 6)
    one, two, three = map(here.partition, range(3))
    with generation_of(here) as generation:
        first = generation.records(one, max_records=2)
        assert iter(first) is first
        assert offsets(first.next(SOON)) == [0, 1]
        assert str(one) in repr(first)
        others = generation.records(iter([two, three]))
        assert len(read(others, 12)) == 12
        with pytest.raises(UsageError, match="another stream"):
            generation.records()
        with pytest.raises(NotOwnedError):
            generation.records(here.partition(9))
        with pytest.raises(UsageError, match="max_records"):
            generation.records(one, max_records=0)
        first.close()
        first.close()
        assert list(first) == []
        again = generation.records(one)
        assert read(again, 4) == [2, 3, 4, 5]
        said = rf"no batch of {one} within 0.05 s, in generation \d+ of group '{here.group_id}'"
        with pytest.raises(TimeoutError, match=said):
            again.next(0.05)
        here.produce(1, 0)
        assert offsets(again.next(SOON)) == [6]
    assert again.next() is None
    assert list(again) == []


def test_pause_resume_and_seek(kafka: Kafka) -> None:
    """A paused partition returns no batch until it is resumed; a seek changes the position."""
    here = Harness(kafka)
    here.create(1, 10)
    partition = here.partition(0)
    with generation_of(here) as generation:
        records = generation.records(max_records=4)
        assert offsets(records.next(SOON)) == [0, 1, 2, 3]
        generation.pause([partition])
        with pytest.raises(TimeoutError):
            records.next(0.3)
        generation.resume()
        assert offsets(records.next(SOON)) == [4, 5, 6, 7]
        generation.commit({partition: 8}, beyond_read=True)
        generation.seek(partition, 5)
        assert read(records, 5) == [5, 6, 7, 8, 9]
        generation.commit({partition: 6}, beyond_read=True)
        for call in (generation.pause, generation.resume):
            with pytest.raises(NotOwnedError):
                call(here.partition(3))
        with pytest.raises(NotOwnedError):
            generation.seek(here.partition(3), 0)
        with pytest.raises(ValueError, match="librdkafka's OFFSET_END"):
            generation.seek(partition, -1)
    assert here.committed() == 6


def interrupted_wait(recorded: threading.Event, records: Records) -> None:
    """Let a thread wait for a batch, and give up when it has been fetched."""

    def give_up(lock: threading.Lock, timeout: float | None) -> bool:
        del lock, timeout
        while not any(fill.value for fill in tuple(records._slot._fills)):
            assert not recorded.wait(0.01)
        return False

    with pytest.MonkeyPatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr("kgroup.background.event_loop.acquire", give_up)
        records.next(1.0)


def test_a_batch_that_arrives_too_late_is_not_lost(kafka: Kafka) -> None:
    """If a thread gives up as its batch arrives, the next call returns it, unless a seek came."""
    here, never = Harness(kafka), threading.Event()
    here.create(1, 10)
    with generation_of(here) as generation:
        records = generation.records(max_records=2)
        interrupted_wait(never, records)
        assert offsets(records.next(SOON)) == [0, 1]
        interrupted_wait(never, records)
        generation.seek(here.partition(0), 6)
        assert offsets(records.next(SOON)) == [6, 7]
        interrupted_wait(never, records)
    assert records.next() is None


@pytest.mark.parametrize("in_handler", [False, True])
def test_a_batch_that_arrives_too_late_is_not_handed_out(kafka: Kafka, in_handler: bool) -> None:
    """It is the next one of its partition, also for another stream; no commit may pass it."""
    here, never, over = Harness(kafka), threading.Event(), threading.Event()
    here.create(1, 10)
    partition = here.partition(0)

    def read(generation: Generation) -> None:
        for expected in (0, 2, 4):
            records = generation.records(max_records=2)
            interrupted_wait(never, records)
            with pytest.raises(OffsetBeyondReadError):
                generation.commit({partition: expected + 1})
            records.close()
            with closing(generation.records(max_records=2)) as records:
                assert offsets(records.next(SOON)) == [expected, expected + 1]
            generation.commit({partition: expected + 2})
        over.set()

    with generation_of(here) as generation:
        if in_handler:
            generation.start(read, generation)
            wait(over)
        else:
            read(generation)
    assert here.committed() == 6


def test_a_batch_that_arrives_too_late_is_paused(kafka: Kafka) -> None:
    """If the program pauses its partition, the batch comes after `resume`."""
    here, never = Harness(kafka), threading.Event()
    here.create(1, 10)
    with generation_of(here) as generation:
        records = generation.records(max_records=2)
        interrupted_wait(never, records)
        generation.pause()
        with pytest.raises(TimeoutError):
            records.next(0.1)
        generation.resume()
        assert offsets(records.next(SOON)) == [0, 1]


def test_a_stream_closed_as_its_batch_arrives(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that waits gets none, and the next stream begins with that batch."""
    here = Harness(kafka)
    here.create(1, 10)
    with generation_of(here) as generation:
        records, settle = generation.records(max_records=2), Call.settle

        def close_and_settle(call: Call[Any], value: Any, error: BaseException | None) -> None:
            if not records._ended and any(fill.value for fill in tuple(records._slot._fills)):
                records._ended = True
                records._close()
            settle(call, value, error)

        with monkeypatch.context() as patch:
            patch.setattr(Call, "settle", close_and_settle)
            assert records.next(SOON) is None
        assert offsets(generation.records(max_records=2).next(SOON)) == [0, 1]


def test_a_time_out_of_wait_ended(kafka: Kafka) -> None:
    """wait_ended raises while the generation runs, and returns the end when it has ended."""
    here = Harness(kafka)
    here.create()
    with here.group() as group:
        generation = group.next(SOON)
        said = f"of group '{here.group_id}' has not ended within 0.01 s; it is running"
        with pytest.raises(TimeoutError, match=said):
            generation.wait_ended(0.01)
        with thread(lambda: list(group)):
            group.shutdown("enough")
            end = generation.wait_ended(SOON)
    assert (end.cause, end.detail) == (Cause.CLOSED, "enough")
    assert not generation.start(int)


def test_a_body_that_was_released_while_it_waited_does_not_count_again(kafka: Kafka) -> None:
    """If another thread has called next(), no drain waits for the body after a time-out."""
    here, events = Harness(kafka), RecordedEvents()
    here.create()
    with here.group(on_event=events, drain_timeout=1.0) as group:
        generation = group.next(SOON)
        with thread(lambda: list(group)):
            with pytest.raises(TimeoutError):
                generation.wait_ended(0.2)
            group.shutdown()
    assert not events.wait(GenerationEnded).cut_short


def test_calls_after_the_end(kafka: Kafka) -> None:
    """They say to take the next generation while the group goes on, and that it is closed later."""
    here = Harness(kafka)
    here.create()
    name = here.partition(0)
    with here.group() as group:
        generation = group.next(SOON)
        calls = (generation.pause, generation.records, partial(generation.seek, name, 1))
        generation.start(int)
        generation.wait_ended(SOON)
        assert list(generation.records(name)) == []
        for call in calls:
            with pytest.raises(StaleGenerationError, match="continue with the next generation"):
                call()
    for call in calls:
        with pytest.raises(StaleGenerationError, match="task returned: .*its group is closed"):
            call()


def test_a_body_that_waited_is_waited_for_again(kafka: Kafka) -> None:
    """After a timeout of wait_ended, the drain waits again for the body's work."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(1, 5)
    with here.group(recorded) as group:
        generation = group.next(SOON)
        with pytest.raises(TimeoutError):
            generation.wait_ended(0.01)
        generation.start(int)
        wait(generation.ending)
        assert not recorded.of(GenerationEnded)
        generation.commit({here.partition(0): 3}, beyond_read=True)
    assert here.committed() == 3


def test_a_transaction(kafka: Kafka) -> None:
    """Offsets are sent with a producer's transaction, under the generation's id."""
    here = Harness(kafka)
    here.create(1, 5)
    mine = here.partition(0)
    producer = Producer(
        {"bootstrap.servers": here.bootstrap_servers, "transactional.id": unique("threaded")}
    )
    producer.init_transactions(SOON)
    with generation_of(here) as generation:
        assert generation.member_id.encode() in generation.transaction_metadata()
        producer.begin_transaction()
        generation.commit_in_transaction(producer, {mine: 2}, beyond_read=True)
        producer.commit_transaction(SOON)
        assert here.committed() == 2
        with pytest.raises(NotOwnedError):
            generation.commit_in_transaction(producer, {here.partition(1): 2}, beyond_read=True)
    producer.begin_transaction()
    with pytest.raises(StaleGenerationError):
        generation.commit_in_transaction(producer, {mine: 3}, beyond_read=True)
    producer.abort_transaction(SOON)
    assert here.committed() == 2


def test_the_bodys_scope_ends_quietly_with_the_generation(kafka: Kafka) -> None:
    """A stale commit of this generation ends the block; any other exception goes through."""
    here, recorded = Harness(kafka), RecordedEvents()
    here.create(1, 5)
    reached: list[str] = []
    error = StaleGenerationError("another's", End(Cause.REBALANCE))
    with here.group(recorded, drain_timeout=0.2) as group:
        generation = group.next(SOON)
        with generation.scope():
            reached.append("in")
        generation.start(int)
        recorded.wait(GenerationEnded)
        with generation.scope():
            generation.commit({here.partition(0): 1}, beyond_read=True)
            reached.append("not here")
        with pytest.raises(StaleGenerationError) as info, generation.scope():
            raise error
        assert info.value is error
        with pytest.raises(ExceptionGroup) as several, generation.scope():
            raise ExceptionGroup("two", [LeaseExpiredError("gone"), KeyError("stays")])
        assert [type(it) for it in several.value.exceptions] == [KeyError]
    assert reached == ["in"]
    assert here.committed() is None


def test_stale_errors_of_the_generation_are_removed() -> None:
    """Stale errors of other generations, and other errors, are kept."""
    end, other = End(Cause.FENCED), End(Cause.FENCED)
    own = StaleGenerationError("own", end)
    foreign = StaleGenerationError("foreign", other)
    assert without_stale_errors(own, end) is None
    assert without_stale_errors(own, None) is own
    assert without_stale_errors(foreign, end) is foreign
    assert without_stale_errors(LeaseExpiredError("over"), None) is None
    assert without_stale_errors(ExceptionGroup("all", [own, own]), end) is None


def test_no_thread_can_be_started(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system has no more threads, the generation ends with that error, which is raised."""
    here = Harness(kafka)
    here.create()

    def refuse(thread: threading.Thread) -> None:
        del thread
        raise RuntimeError("can't start new thread")

    with pytest.raises(ExceptionGroup) as info, here.group() as group:
        for generation in group:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                assert generation.start(int)
    assert [str(error) for error in info.value.exceptions] == ["can't start new thread"]


def test_a_thread_that_fails_when_all_is_over(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception of a thread that outlived its group goes to ``threading.excepthook``."""
    here = Harness(kafka)
    here.create()
    release, recorded = threading.Event(), threading.Event()
    hooked: list[threading.ExceptHookArgs] = []

    def hook(args: threading.ExceptHookArgs) -> None:
        hooked.append(args)
        recorded.set()

    def fail() -> None:
        wait(release)
        raise ZeroDivisionError("much too late")

    with here.group(drain_timeout=0.1) as group:
        group.next(SOON).start(fail)
    monkeypatch.setattr(threading, "excepthook", hook)
    release.set()
    wait(recorded)
    assert hooked[0].exc_type is ZeroDivisionError


def test_a_stream_whose_opening_is_interrupted(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed, and the partitions can be read by the next one."""
    here = Harness(kafka)
    here.create(1, 1)
    with here.group() as group:
        generation = group.next(SOON)
        run_sync = BackgroundLoop.run_sync

        def interrupted(loop: BackgroundLoop, fn: Callable[[], Any]) -> None:
            run_sync(loop, fn)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(BackgroundLoop, "run_sync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                generation.records()
        batch = generation.records().next(SOON)
        assert batch is not None
        assert batch.start_offset == 0


def test_a_stream_whose_closing_is_interrupted(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call of close closes it."""
    here = Harness(kafka)
    here.create(1, 1)

    def interrupted(_: BackgroundLoop, __: Callable[[], object]) -> bool:
        raise KeyboardInterrupt

    with generation_of(here) as generation:
        records = generation.records()
        with monkeypatch.context() as patch:
            patch.setattr(BackgroundLoop, "post", interrupted)
            with pytest.raises(KeyboardInterrupt):
                records.close()
        records.close()
        assert offsets(generation.records().next(SOON)) == [0]


def test_two_threads_on_one_stream(kafka: Kafka) -> None:
    """The second thread that iterates over a stream is refused."""
    here, asked = Harness(kafka), threading.Event()
    here.create()
    with here.group() as group:
        generation = group.next(SOON)
        records = generation.records()

        def first() -> None:
            asked.set()
            assert records.next(SOON) is None

        with thread(first):
            wait(asked)
            while not records._slot._takers:
                threading.Event().wait(0.001)
            with pytest.raises(UsageError, match="two threads"):
                next(records)
            group.shutdown()
