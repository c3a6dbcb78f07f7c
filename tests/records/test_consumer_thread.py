"""The Consumer's thread with a scripted Consumer: commands, calls and deliveries."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka import KafkaError, KafkaException, Message

from kgroup.config import GroupConfig
from kgroup.errors import FetchError, StaleGenerationError
from kgroup.records import consumer_thread, lost_brokers
from kgroup.records.fetcher import NO_EPOCH, FetcherBroken
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.types import TopicPartition
from tests.records.scripted import failure, record, run_of

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE = 150.0
MINUTE = 60.0


class ScriptedConsumer:
    """A Consumer that returns what a test puts into it and records every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.epochs: list[int | None] = []
        """The leader epoch of each partition that was assigned."""
        self.compared: list[tuple[int, int, int | None]] = []
        """Each partition whose log was compared, with the offset and the epoch."""
        self.seeks_fail = 0
        """How many seeks fail before one succeeds."""
        self.threads: set[int] = set()
        self.changed = threading.Condition()
        self.messages: list[Message] = []
        self._once_assigned: set[int] = set()
        self.polls = 0
        self.watermarks_fail = False
        self.watermarks: dict[int, int] = {}
        """The high watermark of each partition, as far as a Fetch response has said it."""
        self.positions: dict[int, int] = {}
        """The position of each partition of which the last message was a marker."""
        self.position_epoch = NO_EPOCH
        self.fail_with: BaseException | None = None
        self.let_close = threading.Event()
        self.let_close.set()
        self.requested: list[tuple[str, int]] = []
        """Each topic that was requested, and how many calls in ``calls`` came before."""
        self.request_error: Exception = KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def open(self, settings: dict[str, Any]) -> Any:
        """Record the settings."""
        self.settings = settings
        return self

    def feed(self, *messages: Message) -> None:
        """Return these messages from the next polls, a partition's not before it is assigned."""
        with self.changed:
            self.messages += messages
            self.changed.notify_all()

    def poll(self, timeout: float) -> Message | None:
        """Do what the real one does."""
        with self.changed:
            self.threads.add(threading.get_ident())
            self.polls += 1
            self.changed.notify_all()
            if self.fail_with is not None:
                raise self.fail_with
            if not self._has_message():
                self.changed.wait(timeout)
            taken = self._take(1)
            self.changed.notify_all()  # this poll may be the last one for a while
            return taken[0] if taken else None

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Do what the real one does."""
        assert timeout == 0
        with self.changed:
            taken = self._take(num_messages)
            self.changed.notify_all()
        return taken

    def _has_message(self) -> bool:
        return bool(self.messages) and self._may_return(self.messages[0])

    def _take(self, count: int) -> list[Message]:
        taken = list(takewhile(self._may_return, self.messages[:count]))
        del self.messages[: len(taken)]
        return taken

    def _may_return(self, message: Message) -> bool:
        """An error that is about no partition comes at any time."""
        # The functions of the class, because some tests count the calls of the record's own.
        return (
            Message.error(message) is not None or Message.partition(message) in self._once_assigned
        )

    def get_watermark_offsets(
        self, partition: confluent_kafka.TopicPartition, *, cached: bool
    ) -> tuple[int, int]:
        """As the real one, which has invalid ones before the first response."""
        assert cached
        if self.watermarks_fail:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.threads.add(threading.get_ident())
        invalid = confluent_kafka.OFFSET_INVALID
        return invalid, self.watermarks.get(partition.partition, invalid)

    def position(
        self, partitions: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        """As the real one, which has invalid ones before the first message."""
        if self.watermarks_fail:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.threads.add(threading.get_ident())
        return [
            confluent_kafka.TopicPartition(
                one.topic,
                one.partition,
                self.positions.get(one.partition, confluent_kafka.OFFSET_INVALID),
                leader_epoch=self.position_epoch,
            )
            for one in partitions
        ]

    def list_topics(self, topic: str, timeout: float) -> None:
        """As the real one, which has no response without waiting."""
        assert timeout == 0
        with self.changed:
            self.threads.add(threading.get_ident())
            self.requested.append((topic, len(self.calls)))
            self.changed.notify_all()
        raise self.request_error

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Do what the real one does."""
        with self.changed:
            self._once_assigned.update(each.partition for each in partitions)
        self.epochs.extend(each.leader_epoch for each in partitions)
        self._note("assign", [(each.partition, each.offset) for each in partitions])

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Do what the real one does."""
        self._note("unassign", [each.partition for each in partitions])

    def seek(self, partition: confluent_kafka.TopicPartition) -> None:
        """As the real one, which compares the log with the leader epoch."""
        self.compared.append((partition.partition, partition.offset, partition.leader_epoch))
        if len(self.compared) <= self.seeks_fail:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def pause(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Do what the real one does."""
        self._note("pause", [each.partition for each in partitions])

    def resume(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Do what the real one does."""
        self._note("resume", [each.partition for each in partitions])

    def close(self) -> None:
        """Close, as slowly as the test wants."""
        self._note("close", None)
        self.let_close.wait(PATIENCE)

    def _note(self, name: str, what: object) -> None:
        with self.changed:
            self.threads.add(threading.get_ident())
            self.calls.append((name, what))
            self.changed.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait, outside of the event loop, until a condition holds for this consumer."""

        def wait() -> None:
            with self.changed:
                assert self.changed.wait_for(holds, PATIENCE)

        await trio.to_thread.run_sync(wait)


async def obeyed(source: LibrdkafkaSource) -> None:
    """Wait until the thread has run all commands and one more step."""
    for _ in range(2):
        done = threading.Event()
        source._thread._post(done.set)
        assert await trio.to_thread.run_sync(done.wait, PATIENCE)


@asynccontextmanager
async def running(
    consumer: ScriptedConsumer,
    faults: list[tuple[TopicPartition | None, str]] | None = None,
    **settings: Any,
) -> AsyncIterator[LibrdkafkaSource]:
    """A source over the scripted consumer."""
    config = GroupConfig(group_id="g", bootstrap_servers="h:1", topics=["t"], **settings)
    reported = [] if faults is None else faults
    source = LibrdkafkaSource(
        config,
        lambda partition, reason: reported.append((partition, reason)),
        open_consumer=consumer.open,
    )
    with trio.fail_after(PATIENCE):
        async with source:
            yield source


async def test_without_a_backlog_only_its_thread_touches_the_consumer() -> None:
    """Every call comes from one thread, which is named, is not trio's, and is joined at exit."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        thread = source._thread.thread
        assert thread.name == "kgroup-records-g"
        source.assign(1, {A: 0, B: 5})
        source.open(1, [A, B])
        consumer.feed(record(A, 0), record(A, 1), record(B, 5))
        for _ in range(2):
            await source.receive(1, [A, B], 10)
        source.seek(1, A, 7)
        source.revoke(1)
        source.prepare(["u"])
        await obeyed(source)
        identity = thread.ident
    assert not thread.is_alive()
    assert consumer.threads == {identity}
    assert identity != threading.get_ident()
    assert [topic for topic, _ in consumer.requested] == ["t", "u"]
    assert consumer.calls[0] == ("assign", [(0, 0), (1, 5)])
    assert consumer.calls[-1] == ("close", None)


async def test_nothing_is_polled_before_a_partition_is_open_nor_after_revoke() -> None:
    """Without an open partition, and from revoke to the next assign, there is no poll."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0})
        await obeyed(source)
        assert consumer.polls == 0
        source.open(1, [A])
        await consumer.until(lambda: consumer.polls > 0)
        source.revoke(1)
        await obeyed(source)
        polls = consumer.polls
        await obeyed(source)
        assert consumer.polls == polls
        source.assign(2, {A: 0})
        source.open(2, [A])
        await consumer.until(lambda: consumer.polls > polls)
    assert [name for name, _ in consumer.calls] == ["assign", "unassign", "close"]


async def test_a_consumer_without_brokers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Consumer continues where the old one was, in the same generation; a fault says so.

    It can connect to all brokers that the member knows by then.
    """
    monkeypatch.setattr(lost_brokers, "INTERVAL", 0.0)
    monkeypatch.setattr(lost_brokers, "PATIENCE", 0.0)
    first, second = ScriptedConsumer(), ScriptedConsumer()
    opened = [first, second]
    consumer: Any = SimpleNamespace(open=lambda settings: opened.pop(0).open(settings))
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults) as source:
        source.assign(1, {A: 0, B: 7})
        source.open(1, [A, B])
        first.feed(record(A, 0), record(A, 1))
        assert (await source.receive(1, [A], 1)).next_offset == 1
        source.use_addresses(lambda: {"moved:2", "h:1"})
        first.request_error = KafkaException(KafkaError(KafkaError._TRANSPORT))
        first.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        await second.until(lambda: bool(second.calls))
        assert first.calls[-1] == ("close", None)
        assert second.calls == [("assign", [(0, 2), (1, 7)])]
        servers = [each.settings["bootstrap.servers"] for each in (first, second)]
        assert servers == ["h:1", "h:1,moved:2"]
        second.feed(record(A, 2))
        assert (await source.receive(1, [A], 1)).next_offset == 2
        assert (await source.receive(1, [A], 1)).next_offset == 3
    assert {partition for partition, _ in faults} == {None}
    assert any("another Consumer takes its place" in reason for _, reason in faults)


UNREADABLE = UnicodeDecodeError("utf-8", b"Failed to resolve h\xff:1", 19, 20, "invalid start byte")


async def test_a_log_line_that_is_no_text_loses_nothing() -> None:
    """confluent-kafka raises where it cannot decode one, and drops what it was to return."""
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults) as source:
        source.assign(1, {A: 0, B: 5})
        source.open(1, [A, B])
        consumer.feed(record(A, 0))
        assert (await source.receive(1, [A], 1)).next_offset == 1
        consumer.fail_with = UNREADABLE
        await consumer.until(lambda: ("assign", [(0, 1), (1, 5)]) in consumer.calls)
        consumer.fail_with = None
        consumer.feed(record(A, 1), record(B, 5))
        assert (await source.receive(1, [A], 1)).next_offset == 2
        assert (await source.receive(1, [B], 1)).next_offset == 6
    assert consumer.calls[1:3] == [("unassign", [0, 1]), ("assign", [(0, 1), (1, 5)])]
    assert {partition for partition, _ in faults} == {None}
    assert "Failed to resolve h\\xff:1" in faults[0][1]


async def test_a_thread_that_fails_fails_every_receive() -> None:
    """receive raises the error that ended the thread."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        consumer.fail_with = RuntimeError("as scripted")
        with pytest.raises(FetchError, match="as scripted") as caught:
            await source.receive(1, [A], 1)
        assert caught.value.__cause__ is consumer.fail_with


@pytest.mark.parametrize("thread_dies", [True, False])
async def test_a_source_that_broke_is_replaced_in_the_next_generation(*, thread_dies: bool) -> None:
    """Another thread with its own Consumer reads; the old one is closed and reported."""
    first, second = ScriptedConsumer(), ScriptedConsumer()
    opened = [first, second]
    consumer: Any = SimpleNamespace(open=lambda settings: opened.pop(0).open(settings))
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults) as source:
        before = source._thread.thread
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A])
        if thread_dies:
            first.fail_with = RuntimeError("as scripted")
        else:
            first.feed(failure(None, KafkaError._FATAL))
        with pytest.raises(FetchError, match="another record source"):
            await source.receive(1, [A], 1)
        source.revoke(1)
        assert faults == []
        source.assign(2, {A: 5, B: 0})
        ((partition, reason),) = faults
        assert partition is None
        assert "another one takes its place in the generation of epoch 2" in reason
        source.open(2, [A])
        second.feed(record(A, 5))
        assert (await source.receive(2, [A], 1)).next_offset == 6
        await first.until(lambda: first.calls[-1][0] == "close")
        assert second.calls == [("assign", [(0, 5)])]
        source.assign(3, {A: 6})
        assert len(faults) == 1
    assert second.calls[-1][0] == "close"
    assert not before.is_alive()
    assert source._limits.records == 0


async def test_what_a_replaced_thread_still_hands_over_is_dropped() -> None:
    """Its records are dropped, and so is an error at the close of its Consumer."""
    first, second = ScriptedConsumer(), ScriptedConsumer()
    opened = [first, second]
    consumer: Any = SimpleNamespace(open=lambda settings: opened.pop(0).open(settings))
    async with running(consumer) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        first.feed(failure(None, KafkaError._FATAL))
        with pytest.raises(FetchError):
            await source.receive(1, [A], 1)
        old = source._thread
        source.assign(2, {A: 0})
        old._deliver([FetcherBroken("again"), run_of(A, 1, [0])])
        source.open(2, [A])
        second.feed(record(A, 0))
        assert (await source.receive(2, [A], 1)).next_offset == 1


async def test_refused_settings_surface_at_entry() -> None:
    """If the Consumer cannot be made, entering raises and leaves no thread."""

    def refuse(_: dict[str, Any]) -> Any:
        raise ValueError("as scripted")

    config = GroupConfig(group_id="g", bootstrap_servers="h:1", topics=["t"])
    source = LibrdkafkaSource(config, lambda *_: None, open_consumer=refuse)
    with pytest.raises(FetchError, match="as scripted"):
        await source.__aenter__()
    assert not source._thread.thread.is_alive()


async def test_a_thread_that_does_not_end_is_reported() -> None:
    """At exit the source waits up to the deadline, then reports the thread with its stack."""
    consumer = ScriptedConsumer()
    consumer.let_close.clear()
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults, close_timeout=0.05) as source:
        pass
    ((partition, reason),) = faults
    assert partition is None
    assert "kgroup-records-g did not end within 0.05 s" in reason
    assert "in close" in reason
    consumer.let_close.set()
    await trio.to_thread.run_sync(source._thread.thread.join, PATIENCE)


async def test_a_thread_is_waited_for_up_to_the_deadline_around_it() -> None:
    """If a scope around the source has an earlier deadline than ``close_timeout``, it counts."""
    consumer = ScriptedConsumer()
    consumer.let_close.clear()
    faults: list[tuple[TopicPartition | None, str]] = []
    with trio.CancelScope() as around:
        async with running(consumer, faults, close_timeout=PATIENCE) as source:
            thread = source._thread.thread
            around.deadline = trio.current_time() + 0.1
        consumer.let_close.set()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE):
            await trio.to_thread.run_sync(thread.join, PATIENCE)
    ((_, reason),) = faults
    (seconds,) = re.findall(r"did not end within ([0-9.e-]+) s", reason)
    assert float(seconds) <= 0.1


async def test_fetching_stops_when_the_buffer_is_full_and_resumes() -> None:
    """With records unread the thread stops polling; reading them lets it resume."""
    consumer = ScriptedConsumer()
    async with running(consumer, max_buffered_records=16) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        consumer.feed(*(record(A, at) for at in range(6)))
        await consumer.until(lambda: not consumer.messages)
        consumer.feed(record(A, 6))
        await obeyed(source)
        assert len(consumer.messages) == 1
        assert (await source.receive(1, [A], 6)).next_offset == 6
        assert (await source.receive(1, [A], 6)).next_offset == 7
    assert not any(name == "pause" for name, _ in consumer.calls)


async def test_a_delivery_wakes_the_loop_once_and_only_the_readers_it_concerns() -> None:
    """A chunk of many records of one partition makes one delivery and wakes one of the tasks."""
    consumer = ScriptedConsumer()
    partitions = [TopicPartition("t", number) for number in range(100)]
    async with running(consumer) as source, trio.open_nursery() as nursery:
        delivered: list[int] = []
        deliver = source._thread._deliver
        source._thread._deliver = lambda items: (delivered.append(len(items)), deliver(items))  # type: ignore[func-returns-value, assignment]
        source.assign(1, dict.fromkeys(partitions, 0))
        source.open(1, partitions)
        woken: list[int] = []

        async def read(partition: TopicPartition) -> None:
            with pytest.raises(StaleGenerationError):
                while True:
                    batch = await source.receive(1, [partition], 1000)
                    woken.append(partition.partition)
                    assert len(batch) == 500
                    source.revoke(1)

        for partition in partitions:
            nursery.start_soon(read, partition)
        consumer.feed(*(record(partitions[42], at) for at in range(500)))
    assert woken == [42]
    assert delivered == [1]


class IdleConsumer(ScriptedConsumer):
    """A Consumer without records, on which a minute of polls takes no time.

    Attributes:
        seconds: how long its polls would have taken.
        over: set when they have taken a minute; the poll after that waits for ``go_on``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.readings = 0
        self.over, self.go_on = threading.Event(), threading.Event()

    def poll(self, timeout: float) -> Message | None:
        """Return at once, and count the time."""
        if self.seconds > MINUTE:
            self.over.set()
            assert self.go_on.wait(PATIENCE)
            return None
        self.polls += 1
        self.seconds += timeout
        return None

    def get_watermark_offsets(
        self, partition: confluent_kafka.TopicPartition, *, cached: bool
    ) -> tuple[int, int]:
        """Count the readings."""
        self.readings += 1
        return super().get_watermark_offsets(partition, cached=cached)


async def test_a_thread_that_reads_an_idle_topic_wakes_fifty_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute has 3,000 polls, one request in 10 s, one reading of a watermark a second."""
    consumer = IdleConsumer()
    consumer.watermarks = {0: 0, 1: 0}
    monkeypatch.setattr(consumer_thread, "monotonic", lambda: consumer.seconds)
    async with running(consumer) as source:
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        assert await trio.to_thread.run_sync(consumer.over.wait, PATIENCE)
        assert consumer.calls == [("assign", [(0, 0), (1, 0)])]
        assert source._thread._posted == 0  # the event loop was not woken at all
        consumer.go_on.set()
    assert consumer.polls <= MINUTE / 0.02 + 2
    assert consumer.readings <= 2 * (MINUTE + 2)
    assert len(consumer.requested) <= 1 + MINUTE / lost_brokers.QUIET


class Clock:
    """Shows the thread the time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(consumer_thread, "monotonic", lambda: self.seconds)


@asynccontextmanager
async def idle(consumer: ScriptedConsumer, stage: str) -> AsyncIterator[LibrdkafkaSource]:
    """A source of which nothing is wanted, in one of these stages; `A` has two records or none."""
    async with running(consumer, max_buffered_records=4) as source:
        if stage != "no generation":
            source.assign(1, {A: 0})
        if stage in ("buffer full", "between generations"):
            consumer.feed(record(A, 0), record(A, 1))
            source.open(1, [A])
            await consumer.until(lambda: not consumer.messages)
        if stage == "between generations":
            source.revoke(1)
        await obeyed(source)
        yield source


@pytest.mark.parametrize(
    "stage", ["no generation", "no stream", "buffer full", "between generations"]
)
async def test_a_thread_with_nothing_to_poll_for_does_not_poll(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a generation, a stream or room in the buffer, a command is no reason to poll."""
    Clock(monkeypatch)
    consumer = ScriptedConsumer()
    async with idle(consumer, stage) as source:
        polls = consumer.polls
        for _ in range(100):
            await obeyed(source)  # each wakes the thread twice
        assert consumer.polls == polls


@pytest.mark.parametrize("stage", ["no generation", "no stream"])
async def test_a_consumer_without_a_fetch_is_polled_once_a_second(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What librdkafka says does not pile up in its queue, and a minute costs 60 polls."""
    clock = Clock(monkeypatch)
    consumer = ScriptedConsumer()
    async with idle(consumer, stage) as source:
        before = consumer.polls
        for _ in range(60):
            clock.seconds += consumer_thread.IDLE_POLL
            await obeyed(source)
        assert consumer.polls == before + 60
        assert consumer.requested == []
        assert source._thread._posted == 0


@pytest.mark.parametrize("stage", ["buffer full", "between generations"])
async def test_a_consumer_with_a_broker_is_not_polled_for_its_errors(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows in a full buffer, or before a generation, stays in librdkafka's queue."""
    clock = Clock(monkeypatch)
    consumer = ScriptedConsumer()
    async with idle(consumer, stage) as source:
        consumer.feed(record(A, 2))
        polls, requests = consumer.polls, len(consumer.requested)
        for _ in range(60):
            clock.seconds += consumer_thread.IDLE_POLL
            await obeyed(source)
        assert consumer.polls == polls
        assert 1 <= len(consumer.requested) - requests <= 60 / lost_brokers.QUIET


@pytest.mark.parametrize("stage", ["buffer full", "between generations"])
async def test_a_consumer_without_a_broker_is_polled_for_its_errors(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors do not pile up behind records without room, nor these in ours; each comes once."""
    clock = Clock(monkeypatch)
    consumer = ScriptedConsumer()
    async with idle(consumer, stage) as source:
        consumer.request_error = KafkaException(KafkaError(KafkaError._TRANSPORT))
        down = failure(None, KafkaError._TRANSPORT)
        for _ in range(3):  # outages
            consumer.feed(*(record(A, offset) for offset in (2, 3, 4)), down, record(A, 5))
            clock.seconds += lost_brokers.QUIET
            await obeyed(source)
            assert consumer.messages == []
            assert consumer.calls[-1] == ("assign", [(0, 2)])  # those behind are fetched again
            assert source.buffered[0] == 2
        consumer.feed(*(record(A, offset) for offset in range(2, 7)))
        await obeyed(source)
        assert consumer.messages != []  # not before the next second
        if stage == "between generations":
            source.assign(2, {A: 0})
            source.open(2, [A])
        epoch = 2 if stage == "between generations" else 1
        offsets: list[int | None] = []
        while len(offsets) < 7:
            batch = await source.receive(epoch, [A], 10)
            offsets += [message.offset() for message in batch.messages]
        assert offsets == list(range(7))
