"""The loan of the Consumer: the event loop takes a backlog itself, by calls that never wait."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, final

import pytest
import trio
import trio.testing
from confluent_kafka import KafkaError, Message

from kgroup.errors import FetchError, OffsetOutOfRangeError, UsageError
from kgroup.records import consumer_thread
from kgroup.records.buffer import FULL
from kgroup.records.fetcher import FetchFailure
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.records.waiters import ThreadRead
from kgroup.types import TopicPartition
from tests.records.environments import Environment, value_of
from tests.records.scripted import failure, record, run_of, scripted
from tests.records.test_consumer_thread import (
    PATIENCE,
    UNREADABLE,
    ScriptedConsumer,
    obeyed,
    running,
)

CHUNK = 4
A, B = (TopicPartition("t", number) for number in range(2))


class WatchedConsumer(ScriptedConsumer):
    """Notes which thread each call comes from, and checks that it holds the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.source: LibrdkafkaSource | None = None
        self.consumed: list[int] = []
        """For each call of ``consume`` the thread."""

    def poll(self, timeout: float) -> Message | None:
        """Do what the real one does."""
        self._check()
        return super().poll(timeout)

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Do what the real one does."""
        self._check()
        self.consumed.append(threading.get_ident())
        if self.fail_with is not None:
            raise self.fail_with
        return super().consume(num_messages, timeout)

    def _note(self, name: str, what: object) -> None:
        self._check()
        super()._note(name, what)

    def _check(self) -> None:
        if self.source is not None:
            assert self.source._thread._lock.locked()

    @property
    def taken(self) -> int:
        """How many calls came from the event loop's thread."""
        return self.consumed.count(threading.get_ident())


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_thread, "CHUNK", CHUNK)
    monkeypatch.setattr(consumer_thread, "TAKE", CHUNK)
    # The loans of most tests do not end because readers are slow.
    monkeypatch.setattr(consumer_thread, "LOAN", 3600.0)


@asynccontextmanager
async def reading(
    consumer: WatchedConsumer, *partitions: TopicPartition, **settings: Any
) -> AsyncIterator[LibrdkafkaSource]:
    """A source that reads these partitions."""
    async with running(consumer, **settings) as source:
        consumer.source = source
        source.assign(1, dict.fromkeys(partitions, 0))
        source.open(1, partitions)
        yield source


async def offsets(source: LibrdkafkaSource, partition: TopicPartition, wanted: int) -> list[int]:
    """The offsets of the next records of a partition."""
    found: list[int] = []
    while len(found) < wanted:
        batch = await source.receive(1, [partition], 1000)
        found += [message.offset() for message in batch.messages]
    return found


async def test_a_backlog_is_taken_by_the_loop_and_what_follows_by_the_thread() -> None:
    """Full chunks come in the loop's thread, in order; after one that is not full, polls do."""
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(5 * CHUNK + 1)))
    async with reading(consumer, A) as source:
        assert await offsets(source, A, 5 * CHUNK + 1) == list(range(5 * CHUNK + 1))
        assert consumer.taken == 5
        polls = consumer.polls
        await consumer.until(lambda: consumer.polls > polls)
        consumer.feed(record(A, 5 * CHUNK + 1))
        assert await offsets(source, A, 1) == [5 * CHUNK + 1]
        assert consumer.taken == 5
    assert source._limits.records == 0


def taking_turns(consumer: WatchedConsumer, chunks: int) -> None:
    """Feed full chunks of A and of B, in turn."""
    for start in range(0, chunks * CHUNK, CHUNK):
        for partition in (A, B):
            consumer.feed(*(record(partition, start + at) for at in range(CHUNK)))


async def test_readers_that_keep_pace_take_for_each_other() -> None:
    """Each of two tasks takes what belongs to the other too, and none of them misses a record."""
    consumer = WatchedConsumer()
    taking_turns(consumer, 10)
    found: dict[TopicPartition, list[int]] = {}
    async with reading(consumer, A, B) as source:
        for number in range(10):
            for partition in (A, B):
                found[partition] = await offsets(source, partition, CHUNK)
                assert found[partition] == list(range(number * CHUNK, (number + 1) * CHUNK))
    assert consumer.taken == 2 * 10 - 1


async def test_a_reader_that_goes_away_leaves_the_rest_to_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that has what it wanted takes no more; the thread does for those that wait."""
    monkeypatch.setattr(consumer_thread, "LOAN", 0.001)
    consumer = WatchedConsumer()
    taking_turns(consumer, 10)
    found: dict[TopicPartition, list[int]] = {}
    async with reading(consumer, A, B) as source, trio.open_nursery() as nursery:

        async def read(partition: TopicPartition) -> None:
            found[partition] = await offsets(source, partition, 40)

        nursery.start_soon(read, A)
        nursery.start_soon(read, B)
    assert found == {A: list(range(40)), B: list(range(40))}


async def test_a_reader_that_waits_is_not_served_at_the_pace_of_a_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its records are behind many others of the slow reader, which takes one chunk at a time."""
    monkeypatch.setattr(consumer_thread, "LOAN", 0.02)
    chunks = 1000
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(chunks * CHUNK)))
    consumer.feed(*(record(B, at) for at in range(CHUNK)))
    batches = 0
    async with reading(consumer, A, B) as source, trio.open_nursery() as nursery:

        async def read_slowly() -> None:
            nonlocal batches
            while True:
                await source.receive(1, [A], CHUNK)
                batches += 1
                await trio.sleep(0.005)  # several batches within LOAN

        nursery.start_soon(read_slowly)
        assert await offsets(source, B, CHUNK) == list(range(CHUNK))
        nursery.cancel_scope.cancel()
    assert batches < chunks


async def test_a_command_ends_the_loan_and_comes_before_what_is_taken() -> None:
    """After ``seek`` nothing of the old fetch is handed out, and the loop takes nothing first."""
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(3 * CHUNK)))
    async with reading(consumer, A) as source:
        assert await offsets(source, A, CHUNK) == list(range(CHUNK))
        with consumer.changed:
            consumer.messages.clear()
        taken = consumer.taken
        source.seek(1, A, 100)
        assert not source._fetcher.take_into(lambda _: None)
        await consumer.until(lambda: ("assign", [(0, 100)]) in consumer.calls)
        consumer.feed(record(A, 100))
        assert await offsets(source, A, 1) == [100]
        assert consumer.taken == taken


@final
class GatedLock:
    """A lock that the Consumer's thread gets only once a gate is open."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.gate = threading.Event()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Acquire it; only the thread waits for it."""
        if blocking:
            self.gate.wait(PATIENCE)
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """Release it."""
        self._lock.release()

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._lock.locked()


async def test_nothing_is_taken_between_a_command_and_its_execution() -> None:
    """The thread has taken the command out of its queue, and has not yet got the lock."""
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(3 * CHUNK)))
    async with reading(consumer, A) as source:
        assert await offsets(source, A, CHUNK) == list(range(CHUNK))
        fetcher: Any = source._fetcher
        fetcher._lock = lock = GatedLock(fetcher._lock)
        try:
            source.seek(1, A, 100)
            with trio.fail_after(PATIENCE):
                while not fetcher._commands.empty():  # noqa: ASYNC110 # the thread tells nobody
                    await trio.sleep(0.001)
            assert not fetcher.take_into(lambda _: None)
        finally:
            lock.gate.set()


async def test_revoke_and_close_end_the_loan() -> None:
    """A generation that ends in the middle of a backlog neither hangs nor hands out more."""
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(4 * CHUNK)))
    async with reading(consumer, A) as source:
        assert await offsets(source, A, CHUNK) == list(range(CHUNK))
        source.revoke(1)
        await obeyed(source)
        taken = consumer.taken
        source.assign(2, {A: CHUNK})
        source.open(2, [A])
        batch = await source.receive(2, [A], 1000)
        assert batch.messages[0].offset() == CHUNK
        assert consumer.taken >= taken
    assert not source._thread.thread.is_alive()


async def test_a_reader_that_is_slow_does_not_keep_the_loan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread goes on without the loop, up to the buffer's limit, and then holds a partition."""
    monkeypatch.setattr(consumer_thread, "LOAN", 0.001)
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(100 * CHUNK)))
    async with (
        reading(consumer, A, B, max_buffered_records=16 * CHUNK) as source,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(source.receive, 1, [B], 1)
        await consumer.until(lambda: ("pause", [0]) in consumer.calls)
        assert source._limits.records >= 4 * CHUNK
        nursery.cancel_scope.cancel()


async def test_large_records_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One take is about as large as ``TAKE_BYTES``, so that it does not block the event loop."""
    monkeypatch.setattr(consumer_thread, "TAKE_BYTES", 2000)
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at, b"x" * 1000) for at in range(5 * CHUNK)))
    async with reading(consumer, A) as source:
        first = await source.receive(1, [A], 1000)
        assert len(first) == CHUNK
        assert len(await source.receive(1, [A], 1000)) == 2


async def test_an_error_in_the_loop_is_treated_as_in_the_thread() -> None:
    """A position out of range is verified by the thread; a Consumer that fails fails receive."""
    consumer = WatchedConsumer()
    out_of_range = failure(A, KafkaError._AUTO_OFFSET_RESET, CHUNK)
    consumer.feed(*(record(A, at) for at in range(CHUNK)), out_of_range)
    async with reading(consumer, A) as source:
        await offsets(source, A, CHUNK)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                with pytest.raises(OffsetOutOfRangeError):
                    await source.receive(1, [A], 1)

            await consumer.until(lambda: ("assign", [(0, CHUNK)]) in consumer.calls)
            consumer.feed(out_of_range)
        source.seek(1, A, 50)
        await consumer.until(lambda: ("assign", [(0, 50)]) in consumer.calls)
        consumer.feed(*(record(A, 50 + at) for at in range(CHUNK)))
        await offsets(source, A, CHUNK)
        consumer.fail_with = RuntimeError("as scripted")
        with pytest.raises(FetchError, match="as scripted"):
            await source.receive(1, [A], 1)


async def test_a_log_line_that_is_no_text_loses_nothing() -> None:
    """What the loop's thread did not get is fetched again before anything else is taken."""
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(CHUNK)))
    async with reading(consumer, A) as source:
        await offsets(source, A, CHUNK)
        consumer.fail_with = UNREADABLE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets, source, A, 2 * CHUNK)
            await consumer.until(lambda: ("assign", [(0, CHUNK)]) in consumer.calls)
            consumer.fail_with = None
            consumer.feed(*(record(A, CHUNK + at) for at in range(2 * CHUNK)))


async def test_a_reader_that_is_cancelled_while_it_takes_leaves_it_to_another() -> None:
    """Whichever reader is cancelled, the other one still gets its records."""
    source, fetcher = scripted()
    source.assign(1, {A: 0, B: 0})
    source.open(1, [A, B])
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        found: list[int] = []

        async def read_a() -> None:
            with scope:
                await source.receive(1, [A], 10)

        async def read_b() -> None:
            found.extend(m.offset() for m in (await source.receive(1, [B], 10)).messages)

        nursery.start_soon(read_a)
        nursery.start_soon(read_b)
        await trio.testing.wait_all_tasks_blocked()
        fetch_id = fetcher.fetches[B].fetch_id
        fetcher.backlog = [run_of(B, fetch_id - 1, [7]) for _ in range(5)]
        fetcher.backlog.append(run_of(B, fetch_id, [0, 1]))
        fetcher.deliver(source)
        scope.cancel()
    assert found == [0, 1]


@pytest.mark.parametrize("seed", range(2))
async def test_every_record_arrives_once_and_in_order(
    seed: int, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small chunks, slow and cancelled readers, seeks and generations, no record is lost."""
    monkeypatch.setattr(consumer_thread, "LOAN", 0.005)
    random = Random(seed)
    topic = await environment.topic(4)
    partitions = [TopicPartition(topic, number) for number in range(4)]
    for partition in partitions:
        await environment.produce(partition, [str(at) for at in range(200)])
    positions = dict.fromkeys(partitions, 0)
    async with environment.source(max_buffered_records=100) as source:

        async def read(epoch: int, partition: TopicPartition) -> None:
            while positions[partition] < 200:
                with trio.move_on_after(random.choice((0.0, 0.001, 60.0))):
                    batch = await source.receive(epoch, [partition], random.randint(1, 40))
                    assert value_of(batch)[0] == str(positions[partition])
                    positions[partition] = batch.next_offset
                    if random.random() < 0.1:
                        positions[partition] = max(0, batch.next_offset - 5)
                        source.seek(epoch, partition, positions[partition])
                await trio.sleep(random.choice((0, 0, 0.002)))

        for epoch in range(1, 5):
            source.assign(epoch, positions)
            source.open(epoch, partitions)
            with trio.move_on_after(60.0 if epoch == 4 else 0.05):
                async with trio.open_nursery() as nursery:
                    for partition in partitions:
                        nursery.start_soon(read, epoch, partition)
            source.revoke(epoch)
    assert set(positions.values()) == {200}


class Waking:
    """Wakes a thread of a test."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.may_wake: threading.Event | None = None

    def set(self) -> None:
        """Wake it."""
        self.woken.set()

    def wait(self, timeout: float | None) -> None:
        """Wait."""
        if not self.woken.wait(PATIENCE if timeout is None else timeout):
            raise TimeoutError
        if self.may_wake is not None:
            assert self.may_wake.wait(PATIENCE)
        self.woken.clear()


async def holds(condition: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    while not condition():  # noqa: ASYNC110 # no event says so
        await trio.sleep(0.001)


def thread_read(*partitions: TopicPartition) -> ThreadRead:
    """What a thread reads in the first generation."""
    return ThreadRead(
        epoch=1,
        partitions=frozenset(partitions),
        limit=1000,
        may_read=lambda: True,
        hand_out=lambda batch: batch,
        waiter=Waking(),
    )


async def test_threads_take_for_themselves_and_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a backlog is read, the event loop takes nothing for the threads that read it."""
    monkeypatch.setattr(consumer_thread, "LOAN", 0.01)
    consumer = WatchedConsumer()
    taking_turns(consumer, 10)
    found: dict[TopicPartition, list[int]] = {A: [], B: []}

    def read(source: LibrdkafkaSource, partition: TopicPartition) -> None:
        mine = thread_read(partition)
        while len(found[partition]) < 10 * CHUNK:
            batch = source.receive_in_thread(mine, None)
            assert batch is not None
            found[partition] += [message.offset() for message in batch.messages]

    async with reading(consumer, A, B) as source, trio.open_nursery() as nursery:
        for partition in (A, B):
            nursery.start_soon(trio.to_thread.run_sync, read, source, partition)
    assert found == {A: list(range(10 * CHUNK)), B: list(range(10 * CHUNK))}
    assert consumer.taken == 0
    assert source._limits.records == 0


async def test_a_thread_that_waits_is_woken_by_the_end() -> None:
    """It then asks the event loop, which knows why there is nothing more."""
    consumer = WatchedConsumer()
    async with reading(consumer, A) as source, trio.open_nursery() as nursery:
        answers: list[object] = ["none yet"]

        async def read() -> None:
            answers[0] = await trio.to_thread.run_sync(
                source.receive_in_thread, thread_read(A), None
            )

        nursery.start_soon(read)
        await holds(lambda: bool(source._waiting))
        with pytest.raises(UsageError, match="another receive"):
            await source.receive(1, [A], 1)
        source.revoke(1)
    assert answers == [None]
    assert not source._waiting


async def test_a_thread_that_is_slow_to_wake_does_not_disturb_the_next_generation() -> None:
    """The partition that was kept has another reader by then, which is woken by its records."""
    consumer = WatchedConsumer()
    async with reading(consumer, A) as source, trio.open_nursery() as nursery:
        mine, may_wake = thread_read(A), threading.Event()
        assert isinstance(mine.waiter, Waking)
        mine.waiter.may_wake = may_wake
        nursery.start_soon(trio.to_thread.run_sync, source.receive_in_thread, mine, None)
        await holds(lambda: bool(source._waiting))
        source.revoke(1)
        source.assign(2, {A: 0})
        source.open(2, [A])
        found: list[int] = []

        @nursery.start_soon
        async def _() -> None:
            found.extend(m.offset() for m in (await source.receive(2, [A], 10)).messages)

        await holds(lambda: len(source._waiting) == 2)
        may_wake.set()
        await holds(lambda: len(source._waiting) == 1)
        consumer.feed(record(A, 0))
    assert found == [0]


async def test_faults_that_a_thread_takes_are_delivered_in_the_event_loop() -> None:
    """A handler of events is called there only, and records do not overtake the fault."""
    consumer = WatchedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    consumer.feed(*(record(A, at) for at in range(CHUNK)))
    consumer.feed(
        record(A, CHUNK), failure(A, KafkaError.LEADER_NOT_AVAILABLE), record(A, CHUNK + 1)
    )
    async with reading(consumer, A, faults=faults) as source:
        assert await offsets(source, A, CHUNK) == list(range(CHUNK))
        read = thread_read(A)
        found: list[int] = []
        while len(found) < 2:
            batch = await trio.to_thread.run_sync(source.receive_in_thread, read, None)
            assert batch is not None
            found += [message.offset() for message in batch.messages]
        assert found == [CHUNK, CHUNK + 1]
    assert [partition for partition, _ in faults] == [A]


async def test_a_fault_that_is_reported_just_before_a_thread_takes() -> None:
    """Its records are taken in: only the event loop may look how long ago a report was."""
    source, fetcher = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    run = run_of(A, fetcher.fetches[A].fetch_id, range(3))
    fetcher.backlog = [run]
    take_into = fetcher.take_into

    def take_after_a_fault(*args: Any, **kwargs: Any) -> bool:
        fault = FetchFailure(A, "LEADER_NOT_AVAILABLE", "it is away")
        trio.from_thread.run_sync(source.deliver, [fault])
        return take_into(*args, **kwargs)

    fetcher.take_into = take_after_a_fault  # type: ignore[method-assign]
    batch = await trio.to_thread.run_sync(source.receive_in_thread, thread_read(A), PATIENCE)
    assert batch is not None
    assert list(batch.messages) == list(run.messages)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_the_work_for_a_batch_does_not_grow_with_the_readers(*, in_thread: bool) -> None:
    """While one reader works through its backlog, the others are not woken, whoever takes."""
    chunks = 50
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at) for at in range(chunks * CHUNK)))
    steps = Steps()
    others = [TopicPartition("t", number) for number in range(1, 8)]
    async with reading(consumer, A, *others) as source, trio.open_nursery() as nursery:
        for partition in others:
            nursery.start_soon(source.receive, 1, [partition], 1)
        await trio.testing.wait_all_tasks_blocked()
        first = await offsets(source, A, CHUNK)
        trio.lowlevel.add_instrument(steps)
        if in_thread:
            read = thread_read(A)
            for _ in range(chunks - 1):
                batch = source.receive_in_thread(read, 0)
                assert batch is not None
                first += [message.offset() for message in batch.messages]
        else:
            first += await offsets(source, A, (chunks - 1) * CHUNK)
        trio.lowlevel.remove_instrument(steps)
        assert first == list(range(chunks * CHUNK))
        nursery.cancel_scope.cancel()
    assert steps.count <= (2 if in_thread else chunks + 2)


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count."""
        del task
        self.count += 1


async def test_the_buffer_is_bounded_however_slow_a_reader_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it has one record of a hundred, no more wait for it than the settings allow."""
    monkeypatch.setattr(consumer_thread, "LOAN", 0.001)
    size, most = 1000, 40_000
    consumer = WatchedConsumer()
    consumer.feed(*(record(A, at, b"x" * size) for at in range(2000)))
    highest = 0
    async with reading(consumer, A, max_buffered_bytes=most) as source:
        limits = source._limits
        count = limits.count_delivered

        def watch(records: int, size: int) -> None:
            nonlocal highest
            count(records, size)
            highest = max(highest, limits.bytes)

        monkeypatch.setattr(limits, "count_delivered", watch)
        for at in range(20):
            batch = await source.receive(1, [A], 1)
            assert batch.messages[0].offset() == at
            # The thread is as far ahead as it will get: it waits for a command.
            await holds(lambda: limits.stopped)
    assert len(consumer.messages) > 1000
    assert 0 < highest <= most * FULL + CHUNK * size
