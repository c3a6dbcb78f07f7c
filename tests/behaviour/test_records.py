"""Records on both brokers: batches, back-pressure, seeks, gaps, resets, transactions."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from kgroup.config import GroupConfig
from kgroup.errors import FetchError, NotOwnedError, OffsetOutOfRangeError, UsageError
from kgroup.events import Event, OffsetReset, RecordSourceFailed
from kgroup.generation.generation import Generation
from kgroup.generation.record_stream import RecordStream
from kgroup.group import default_runtime
from kgroup.interfaces import RecordSource
from kgroup.records.consumer_thread import CHUNK
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.testing import admin
from tests.behaviour.harness import SOON, Harness, harness, in_thread, numbers
from tests.brokers import Kafka


async def read(stream: RecordStream, count: int) -> list[int]:
    """Read at least so many numbers, and the rest of the last batch."""
    found: list[int] = []
    with trio.fail_after(SOON):
        while len(found) < count:
            found += numbers((await anext(stream)).messages)
    return found


async def nothing_comes(stream: RecordStream) -> None:
    """Check that the stream returns nothing for a while."""
    with trio.move_on_after(0.5):
        batch = await anext(stream)
        raise AssertionError(f"{batch} was handed out")


def texts(count: int, start: int = 0) -> list[str]:
    """The numbers as texts."""
    return [str(number) for number in range(start, start + count)]


async def test_batches_continue_each_other(kafka: Kafka) -> None:
    """Batches have at most the requested records, follow each other, and name the next offset."""
    async with harness(kafka) as here:
        await here.create(2)
        await here.produce(texts(250), 0)
        await here.produce(texts(30), 1)
        seen: dict[int, list[int]] = {0: [], 1: []}
        async with here.group() as group:
            generation = await group.next()
            async for batch in generation.records(max_records=100):
                assert 1 <= len(batch) <= 100
                assert batch.epoch == generation.epoch
                offsets = [message.offset() for message in batch.messages]
                so_far = seen[batch.partition.partition]
                assert batch.start_offset == len(so_far)
                assert offsets == list(range(len(so_far), len(so_far) + len(batch)))
                so_far += numbers(batch.messages)
                assert batch.next_offset == len(so_far)
                if len(seen[0]) == 250 and len(seen[1]) == 30:
                    break
        assert seen == {0: list(range(250)), 1: list(range(30))}


async def test_streams_share_no_partition(kafka: Kafka) -> None:
    """A second stream of a partition, or a stream of a partition not owned, is refused."""
    async with harness(kafka) as here:
        await here.create(2)
        await here.produce(["0"], 0)
        async with here.group() as group:
            generation = await group.next()
            stream = generation.records(here.partition(0))
            with pytest.raises(UsageError):
                generation.records()
            with pytest.raises(UsageError):
                generation.records(here.partition(0))
            with pytest.raises(NotOwnedError):
                generation.records(here.partition(2))
            stream.close()
            assert await read(generation.records(), 1) == [0]


async def test_a_slow_handler_stops_the_fetching(kafka: Kafka) -> None:
    """A slow handler bounds what is buffered, and later records come without a gap."""
    count, limit = 8000, 200
    sources: list[LibrdkafkaSource] = []

    def make(config: GroupConfig, on_fault: Any) -> RecordSource:
        sources.append(LibrdkafkaSource(config, on_fault=on_fault))
        return sources[-1]

    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(count))
        runtime = attrs.evolve(default_runtime(), record_source=make)
        async with here.group(runtime, max_buffered_records=limit) as group:
            generation = await group.next()
            stream = generation.records(max_records=50)
            found = await read(stream, 50)
            (source,) = sources
            with trio.fail_after(SOON):
                while source._limits.records == 0:  # noqa: ASYNC110 # it has no event for it
                    await trio.sleep(0.01)
            most = 0
            for _ in range(20):
                await trio.sleep(0.05)
                most = max(most, source._limits.records)
            assert most <= limit + CHUNK
            found += await read(stream, count - len(found))
        assert found == list(range(count))


async def test_a_thread_that_died_is_replaced_with_the_next_generation(kafka: Kafka) -> None:
    """The generation's streams fail; the next generation continues at the commit."""
    sources: list[LibrdkafkaSource] = []
    events: list[Event] = []

    def make(config: GroupConfig, on_fault: Any) -> RecordSource:
        sources.append(LibrdkafkaSource(config, on_fault=on_fault))
        return sources[-1]

    def broken() -> None:
        raise RuntimeError("as scripted")

    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(4))
        runtime = attrs.evolve(default_runtime(), record_source=make)
        async with here.group(runtime, events.append) as group:
            first = await group.next()
            stream = first.records(max_records=2)
            assert await read(stream, 2) == [0, 1]
            await first.commit({here.partition(0): 2})
            thread = sources[0]._thread.thread
            sources[0]._thread._post(broken)
            with pytest.raises(FetchError, match="as scripted"), trio.fail_after(SOON):
                while True:
                    await anext(stream)
            await in_thread(admin.add_partitions, here.bootstrap_servers, here.topic, 2)
            second = await group.next()
            assert await read(second.records(here.partition(0)), 2) == [2, 3]
            assert not thread.is_alive()
        assert [type(event) for event in events if isinstance(event, RecordSourceFailed)] == [
            RecordSourceFailed
        ]


async def test_pause_and_resume(kafka: Kafka) -> None:
    """A paused partition is silent while others are not, and resumes where it was."""
    async with harness(kafka) as here:
        await here.create(2)
        await here.produce(texts(20), 0)
        await here.produce(texts(20), 1)
        async with here.group() as group:
            generation = await group.next()
            first, second = (
                generation.records(partition, max_records=5) for partition in here.partitions(2)
            )
            assert await read(first, 5) == [0, 1, 2, 3, 4]
            generation.pause(here.partition(0))
            await nothing_comes(first)
            assert await read(second, 20) == list(range(20))
            generation.resume(here.partition(0))
            assert await read(first, 15) == list(range(5, 20))


async def test_seek_goes_back_and_forward(kafka: Kafka) -> None:
    """After a seek, the record at that offset comes next, and commits are allowed from there."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(100))
        partition = here.partition(0)
        async with here.group() as group:
            generation = await group.next()
            stream = generation.records(max_records=10)
            assert await read(stream, 10) == list(range(10))
            await generation.commit({partition: 10}, beyond_read=True)
            generation.seek(partition, 90)
            assert await read(stream, 10) == list(range(90, 100))
            generation.seek(partition, 3)
            assert await read(stream, 10) == list(range(3, 13))
            await generation.commit({partition: 3}, beyond_read=True)
        assert await here.committed() == [3]
        async with here.group() as group:
            assert (await read((await group.next()).records(), 97))[0] == 3


async def test_a_half_read_queue_survives_a_rebalance(kafka: Kafka) -> None:
    """No record of a kept partition is lost or repeated, although many were fetched."""
    count = 5000
    async with harness(kafka) as here:
        await here.create(2)
        await here.produce(texts(count), 0)
        await here.produce(texts(count), 1)
        found: dict[int, list[int]] = {0: [], 1: []}
        generations: list[Generation] = []
        async with here.group(assignors=["range"]) as group:

            async def handle(generation: Generation, number: int) -> None:
                partition = here.partition(number)
                async for batch in generation.records(partition, max_records=7):
                    found[number] += numbers(batch.messages)
                    await generation.commit({partition: batch.next_offset})
                    here.processed.wake()
                    # The rest is read when the other member has its share, however late it joins.
                    if len(generation.assignment) == 2 and len(found[number]) > count // 2:
                        await generation.ending.wait()

            async def run() -> None:
                async for generation in group:
                    generations.append(generation)
                    here.processed.wake()
                    for partition in generation.assignment:
                        generation.start_soon(handle, generation, partition.partition)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await here.processed.until(
                    lambda: min(map(len, found.values())) > 20, "nothing read"
                )
                other = here.start("other")
                await here.processed.until(
                    lambda: other.owned() == len(generations[-1].assignment) == 1, "not shared"
                )
                (kept,) = generations[-1].assignment
                assert generations[-1].assignment.kept == {kept}
                assert 0 < generations[-1].start_offsets[kept] < count
                await here.processed.until(
                    lambda: (
                        len(here.processed.entries) + sum(map(len, found.values())) == 2 * count
                    ),
                    "not everything was read",
                )
                await group.aclose()
        given = 1 - kept.partition
        assert found[kept.partition] == list(range(count))
        rest = [int(entry.value) for entry in here.processed.entries]
        assert found[given] + rest == list(range(count))


async def cut(here: Harness, before: int) -> None:
    """Delete the records of partition 0 before an offset."""
    client = AdminClient({"bootstrap.servers": here.bootstrap_servers, "log_level": 0})
    wanted = KafkaPartition(here.topic, 0, before)
    (outcome,) = client.delete_records([wanted]).values()
    await in_thread(outcome.result, SOON)


@pytest.mark.parametrize(("reset", "first"), [("earliest", 60), ("latest", 100)])
async def test_a_committed_offset_that_is_gone(kafka: Kafka, reset: str, first: int) -> None:
    """A committed offset before the log's start is reset as ``auto_offset_reset`` says."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(100))
        async with here.group() as group:
            await (await group.next()).commit({here.partition(0): 10}, beyond_read=True)
        await cut(here, 60)
        events: list[Event] = []
        found = trio.Event()

        def note(event: Event) -> None:
            events.append(event)
            if isinstance(event, OffsetReset):
                found.set()

        async with (
            here.group(None, note, auto_offset_reset=reset) as group,
            trio.open_nursery() as nursery,
        ):
            generation = await group.next()
            assert generation.start_offsets == {here.partition(0): 10}
            stream = generation.records()
            if reset == "latest":

                async def produce_when_reset() -> None:
                    await found.wait()
                    await here.produce(texts(1, 100))

                nursery.start_soon(produce_when_reset)
            assert (await read(stream, 1))[0] == first
            (reset_event,) = [event for event in events if isinstance(event, OffsetReset)]
            assert (reset_event.partition, reset_event.offset) == (here.partition(0), first)
            await generation.commit({here.partition(0): 101}, beyond_read=True)
        assert await here.committed() == [101]


async def test_an_offset_that_is_gone_is_an_error_with_error(kafka: Kafka) -> None:
    """With ``error`` the handler gets the error and may seek."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(100))
        async with here.group() as group:
            await (await group.next()).commit({here.partition(0): 10}, beyond_read=True)
        await cut(here, 60)
        async with here.group(auto_offset_reset="error") as group:
            generation = await group.next()
            stream = generation.records()
            with pytest.raises(OffsetOutOfRangeError) as caught, trio.fail_after(SOON):
                await anext(stream)
            assert caught.value.partition == here.partition(0)
            generation.seek(here.partition(0), 70)
            assert (await read(stream, 1))[0] == 70
        assert await here.committed() == [10]


async def test_the_log_is_cut_under_a_reader(kafka: Kafka) -> None:
    """Records that are deleted before they are fetched are skipped and reported."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce([str(number).rjust(1000) for number in range(3000)])
        events: list[Event] = []
        async with here.group(
            None, events.append, max_buffered_records=50, max_buffered_bytes=64 * 1024
        ) as group:
            generation = await group.next()
            stream = generation.records(max_records=10)
            found = await read(stream, 10)
            await cut(here, 2900)
            found += await read(stream, 1)
            while found[-1] < 2999:
                found += await read(stream, 1)
            assert found == sorted(set(found))
            assert found[-100:] == list(range(2900, 3000))
            assert len(found) < 3000
            assert [event.offset for event in events if isinstance(event, OffsetReset)][-1] == 2900


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
async def test_transactions_and_isolation(kafka: Kafka, level: str) -> None:
    """Only readers of uncommitted records get aborted and open ones."""
    async with harness(kafka) as here:
        await here.create()
        producer = Producer(
            {
                "bootstrap.servers": here.bootstrap_servers,
                "transactional.id": here.group_id,
                **admin.RELIABLE_PRODUCER,
                "log_level": 0,
            }
        )

        def write(start: int) -> None:
            producer.begin_transaction()
            for value in texts(3, start):
                producer.produce(here.topic, value, partition=0)
            producer.flush(SOON)

        await in_thread(producer.init_transactions, SOON)
        for start, end in (
            (0, producer.commit_transaction),
            (10, producer.abort_transaction),
            (20, producer.commit_transaction),
        ):
            await in_thread(write, start)
            await in_thread(end, SOON)
        await in_thread(write, 30)
        async with here.group(isolation_level=level) as group:
            stream = (await group.next()).records(max_records=2)
            if level == "read_uncommitted":
                wanted = [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]
                assert await read(stream, 12) == wanted
                await in_thread(producer.abort_transaction, SOON)
                return
            assert await read(stream, 6) == [0, 1, 2, 20, 21, 22]
            await nothing_comes(stream)
            await in_thread(producer.commit_transaction, SOON)
            assert await read(stream, 3) == [30, 31, 32]


async def test_a_restart_behind_a_transaction_marker_repeats_nothing(kafka: Kafka) -> None:
    """After a commit before a marker, reading continues behind it."""
    async with harness(kafka) as here:
        await here.create()
        settings = {"bootstrap.servers": here.bootstrap_servers, "log_level": 0}
        producer = Producer(
            {**settings, **admin.RELIABLE_PRODUCER, "transactional.id": here.group_id}
        )
        await in_thread(producer.init_transactions, SOON)
        for start in (0, 10):
            producer.begin_transaction()
            for value in texts(3, start):
                producer.produce(here.topic, value, partition=0)
            await in_thread(producer.commit_transaction, SOON)
        partition = here.partition(0)
        async with here.group(isolation_level="read_committed") as group:
            generation = await group.next()
            batch = await anext(generation.records(max_records=3))
            assert numbers(batch.messages) == [0, 1, 2]
            assert batch.next_offset == 3
            await generation.commit({partition: batch.next_offset})
        async with here.group(isolation_level="read_committed") as group:
            assert await read((await group.next()).records(), 3) == [10, 11, 12]


async def test_big_records_come_through_a_small_buffer(kafka: Kafka) -> None:
    """Records far larger than the buffer still come once and in order."""
    async with harness(kafka) as here:
        await here.create()
        big = [str(number).rjust(900_000) for number in range(8)]
        await here.produce(big)
        async with here.group(max_buffered_bytes=64 * 1024, max_buffered_records=10) as group:
            stream = (await group.next()).records()
            assert await read(stream, 8) == list(range(8))


async def test_nothing_is_delivered_after_the_end(kafka: Kafka) -> None:
    """A stream of an ended generation ends, although records are fetched; the next continues."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(1000))
        async with here.group() as group:
            first = await group.next()
            stream = first.records(max_records=10)
            assert await read(stream, 10) == list(range(10))
            await first.commit({here.partition(0): 10}, beyond_read=True)
            first.start_soon(trio.lowlevel.checkpoint)
            await first.ending.wait()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            second = await group.next()
            assert await read(second.records(max_records=10), 10) == list(range(10, 20))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_where_a_new_group_starts(kafka: Kafka, reset: str) -> None:
    """Without an offset ``auto_offset_reset`` decides; latest is committed at once."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(5))
        async with here.group(auto_offset_reset=reset) as group:
            generation = await group.next()
            first = {"earliest": 0, "latest": 5}[reset]
            assert generation.start_offsets == {here.partition(0): first}
            stream = generation.records()
            await in_thread(
                admin.produce, here.bootstrap_servers, here.topic, texts(5, 5), partition=0
            )
            assert await read(stream, 10 - first) == list(range(first, 10))
        assert await here.committed() == [None if reset == "earliest" else 5]
