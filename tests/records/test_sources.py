"""The behaviour of every source on every broker, by the same test functions."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from kgroup.errors import (
    NotOwnedError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    UsageError,
)
from kgroup.interfaces import RecordSource
from kgroup.records.buffered_source import BufferedSource
from kgroup.types import TopicPartition
from tests.records.environments import Environment, receive_values, value_of

CREATE_TIME = 1


def numbered(count: int, prefix: str = "") -> list[str]:
    """Distinct values."""
    return [f"{prefix}{number}" for number in range(count)]


async def test_reads_partitions_in_order_each_record_once(environment: Environment) -> None:
    """All records of all opened partitions arrive, in the order of each partition."""
    topic = await environment.topic(3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    for partition in partitions:
        await environment.produce(partition, numbered(50, f"{partition.partition}-"))
    async with environment.source() as source:
        source.assign(1, dict.fromkeys(partitions, 0))
        source.open(1, partitions)
        values = await receive_values(source, 1, partitions, 150, limit=7)
    for partition in partitions:
        assert values[partition] == numbered(50, f"{partition.partition}-")


async def test_a_message_has_what_was_produced(environment: Environment) -> None:
    """Topic, partition, offset, value, key, headers and time stamp can be read."""
    topic = await environment.topic()
    partition = TopicPartition(topic, 0)
    await environment.produce(partition, ["a", "b"])
    async with environment.source() as source:
        source.assign(1, {partition: 1})
        source.open(1, [partition])
        batch = await source.receive(1, [partition], 10)
    (message,) = batch.messages
    assert (message.topic(), message.partition(), message.offset()) == (topic, 0, 1)
    assert (message.key(), message.value(), message.headers()) == (None, b"b", None)
    assert message.timestamp()[0] == CREATE_TIME
    assert message.timestamp()[1] > 0
    assert batch.next_offset == 2


async def test_a_record_produced_while_receive_waits_arrives(environment: Environment) -> None:
    """A reader waits at the end of the log until the next record is produced."""
    partition = TopicPartition(await environment.topic(), 0)
    async with environment.source() as source, trio.open_nursery() as nursery:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        nursery.start_soon(environment.produce, partition, ["late"])
        assert value_of(await source.receive(1, [partition], 10)) == ["late"]


async def test_only_opened_partitions_are_handed_out(environment: Environment) -> None:
    """Receiving a partition that is not open, or not assigned, raises."""
    topic = await environment.topic(2)
    first, second, foreign = (TopicPartition(topic, number) for number in (0, 1, 7))
    async with environment.source() as source:
        source.assign(1, {first: 0, second: 0})
        source.open(1, [first])
        with pytest.raises(UsageError, match="not open"):
            await source.receive(1, [second], 1)
        with pytest.raises(NotOwnedError, match="-7"):
            await source.receive(1, [foreign], 1)
        with pytest.raises(NotOwnedError, match="-7"):
            source.open(1, [foreign])


async def test_the_lag_is_the_rest_of_the_log(environment: Environment) -> None:
    """It is known of partitions at the end too, counts what is buffered, and follows appends."""
    topic = await environment.topic(3)
    full, empty, unread = (TopicPartition(topic, number) for number in range(3))
    await environment.produce(full, numbered(30))
    async with environment.source() as source:
        assert isinstance(source, BufferedSource)
        source.assign(1, {full: 0, empty: 0, unread: 0})
        source.open(1, [full, empty])
        batch = await source.receive(1, [full], 10)
        assert batch.high_watermark == 30
        while source.lag(1)[empty] is None:  # noqa: ASYNC110 # the thread reports it to no one
            await trio.sleep(0.05)
        assert source.lag(1) == {full: 20, empty: 0, unread: None}
        records, size = source.buffered
        assert (records > 0) == (size > 0)
        await environment.produce(empty, numbered(5))
        batch = await source.receive(1, [empty], 2)
        assert source.lag(1)[empty] == 5 - batch.next_offset
        source.seek(1, full, 30)
        source.revoke(1)
        assert source.lag(1) == {}


async def test_a_kept_partition_continues_without_loss_or_repeat(environment: Environment) -> None:
    """Half-read queues of three generations give every record exactly once."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, numbered(300))
    seen: list[str] = []
    async with environment.source() as source:
        position = 0
        for epoch in (1, 2, 3):
            source.assign(epoch, {partition: position})
            source.open(epoch, [partition])
            for _ in range(4):
                batch = await source.receive(epoch, [partition], 25)
                seen += value_of(batch)
                position = batch.next_offset
            source.revoke(epoch)
            with pytest.raises(StaleGenerationError):
                await source.receive(epoch, [partition], 25)
    assert seen == numbered(300)[: len(seen)]
    assert len(seen) > 12


async def test_a_kept_partition_with_another_position_is_read_from_there(
    environment: Environment,
) -> None:
    """Records without a commit are read again; those that others committed are skipped."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, numbered(100))
    async with environment.source() as source:
        for epoch, position in ((1, 0), (2, 3), (3, 60)):
            source.assign(epoch, {partition: position})
            source.open(epoch, [partition])
            batch = await source.receive(epoch, [partition], 20)
            assert value_of(batch)[0] == str(position)
            source.revoke(epoch)


async def test_revoke_wakes_a_receive_that_waits(environment: Environment) -> None:
    """A waiting receive ends with StaleGenerationError as its generation does."""
    partition = TopicPartition(await environment.topic(), 0)
    async with environment.source() as source, trio.open_nursery() as nursery:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        nursery.start_soon(_revoke_soon, source)
        with pytest.raises(StaleGenerationError, match="epoch 1"):
            await source.receive(1, [partition], 1)


async def _revoke_soon(source: RecordSource) -> None:
    await trio.testing.wait_all_tasks_blocked()
    source.revoke(1)


async def test_seek_goes_back_and_forward(environment: Environment) -> None:
    """After a seek the next record is at its offset, whatever was queued."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, numbered(50))
    async with environment.source() as source:
        source.assign(1, {partition: 10})
        source.open(1, [partition])
        for offset in (10, 40, 0, 25):
            source.seek(1, partition, offset)
            values = await receive_values(source, 1, [partition], 5, limit=5)
            assert values[partition][0] == str(offset)


async def test_pause_holds_back_and_resume_loses_nothing(environment: Environment) -> None:
    """A paused partition returns nothing while another one is read, and later everything."""
    topic = await environment.topic(2)
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await environment.produce(paused, numbered(20, "p"))
    await environment.produce(other, numbered(20, "o"))
    async with environment.source() as source:
        source.assign(1, {paused: 0, other: 0})
        source.open(1, [paused, other])
        source.pause(1, [paused])
        values = await receive_values(source, 1, [paused, other], 20)
        assert values == {paused: [], other: numbered(20, "o")}
        source.resume(1, [paused])
        values = await receive_values(source, 1, [paused, other], 20)
        assert values == {paused: numbered(20, "p"), other: []}


@pytest.mark.parametrize("offset", [5, 40], ids=["before the start", "past the end"])
async def test_an_offset_out_of_range_is_raised_until_seek(
    environment: Environment, offset: int
) -> None:
    """The error names partition and offset; other partitions are still read; a seek ends it."""
    topic = await environment.topic(2)
    cut, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await environment.produce(cut, numbered(20))
    await environment.delete_records(cut, 10)
    await environment.produce(other, numbered(5))
    async with environment.source() as source:
        source.assign(1, {cut: offset, other: 0})
        source.open(1, [cut, other])
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="seek") as caught:
                await source.receive(1, [cut], 10)
            assert caught.value.partition == cut
            assert caught.value.offset == offset
        assert (await receive_values(source, 1, [other], 5))[other] == numbered(5)
        source.seek(1, cut, 10)
        assert (await receive_values(source, 1, [cut], 10))[cut] == numbered(20)[10:]


async def test_a_position_falls_out_of_range_only_for_its_own_fetch(
    environment: Environment,
) -> None:
    """After a seek, an error of the earlier position is not raised."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, numbered(5))
    async with environment.source() as source:
        source.assign(1, {partition: 99})
        source.open(1, [partition])
        for _ in range(5):
            source.seek(1, partition, 99)
            await trio.sleep(0.01)
            source.seek(1, partition, 2)
            assert (await receive_values(source, 1, [partition], 3))[partition] == ["2", "3", "4"]


async def test_markers_of_transactions_are_no_records(environment: Environment) -> None:
    """Aborted records arrive with read_uncommitted only; next_offset is past the last marker."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.transact(partition, ["a", "b"], commit=True)  # 0, 1, marker 2
    await environment.transact(partition, ["lost"], commit=False)  # 3, marker 4
    await environment.transact(partition, ["c"], commit=True)  # 5, marker 6
    async with environment.source(isolation_level="read_committed") as source:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        values = await receive_values(source, 1, [partition], 3, limit=1)
        assert values[partition] == ["a", "b", "c"]
    async with environment.source(isolation_level="read_uncommitted") as source:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        batches = [await source.receive(1, [partition], 1) for _ in range(4)]
        assert [value_of(batch) for batch in batches] == [["a"], ["b"], ["lost"], ["c"]]
        assert [batch.next_offset for batch in batches] == [1, 2, 4, 7]
        assert [batch.start_offset for batch in batches] == [0, 1, 2, 4]
        source.revoke(1)
        source.assign(2, {partition: 6})
        source.open(2, [partition])
        await environment.produce(partition, ["d"])
        assert value_of(await source.receive(2, [partition], 10)) == ["d"]


async def test_what_is_no_record_is_no_lag(environment: Environment) -> None:
    """An aborted transaction at the end of a log leaves nothing to read, and no lag."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.transact(partition, ["a"], commit=True)  # 0, marker 1
    async with environment.source(isolation_level="read_committed") as source:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        assert isinstance(source, BufferedSource)
        assert (await source.receive(1, [partition], 10)).next_offset == 2
        await environment.transact(partition, ["lost", "too"], commit=False)  # 2, 3, marker 4
        while source.lag(1) != {partition: 0}:
            with trio.move_on_after(0.01):
                await source.receive(1, [partition], 10)
                raise AssertionError("there was a record")
        await environment.transact(partition, ["b"], commit=True)  # 5
        batch = await source.receive(1, [partition], 10)
        assert (value_of(batch), batch.start_offset) == (["b"], 2)


async def test_a_deleted_topic_is_reported_and_waited_for(environment: Environment) -> None:
    """A deleted topic raises nothing: an event reports it once, and others are read."""
    doomed = TopicPartition(await environment.topic(), 0)
    other = TopicPartition(await environment.topic(), 0)
    await environment.produce(doomed, ["x"])
    async with environment.source() as source:
        source.assign(1, {doomed: 0, other: 0})
        source.open(1, [doomed, other])
        assert (await receive_values(source, 1, [doomed], 1))[doomed] == ["x"]
        await environment.delete(doomed.topic)
        await environment.fault_reported.wait()
        assert environment.faults[0][0] == doomed
        await environment.produce(other, ["y"])
        assert (await receive_values(source, 1, [doomed, other], 1))[other] == ["y"]
    assert len(environment.faults) == len(set(environment.faults))


async def test_a_topic_made_again_and_shorter_is_out_of_range(environment: Environment) -> None:
    """If a recreated topic does not have the position, it is out of range."""
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, numbered(10, "old"))
    async with environment.source() as source:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        await receive_values(source, 1, [partition], 10)
        await environment.delete(partition.topic)
        await environment.fault_reported.wait()
        await environment.topic(1, partition.topic)
        await environment.produce(partition, numbered(3, "new"))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await source.receive(1, [partition], 100)
        assert (caught.value.partition, caught.value.offset) == (partition, 10)
        source.seek(1, partition, 0)
        values = await receive_values(source, 1, [partition], 3)
        assert values[partition] == numbered(3, "new")


async def test_a_topic_made_again_and_longer_is_read_at_the_position(
    environment: Environment,
) -> None:
    """If a recreated topic has the position, reading continues there.

    Unless a fetch that goes on meanwhile has met the topic while it was empty: then it says so.
    """
    partition = TopicPartition(await environment.topic(), 0)
    await environment.produce(partition, numbered(10, "old"))
    async with environment.source() as source:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        await receive_values(source, 1, [partition], 10)
        source.revoke(1)
        await environment.delete(partition.topic)
        await environment.topic(1, partition.topic)
        await environment.produce(partition, numbered(30, "new"))
        source.assign(2, {partition: 10})
        source.open(2, [partition])
        try:
            values = await receive_values(source, 2, [partition], 20)
        except OffsetOutOfRangeError as error:
            found: object = (error.offset, error.divergent_offset)
        else:
            found = values[partition]
        assert found in ((10, 0), numbered(30, "new")[10:])


async def test_cancelled_receives_lose_nothing(environment: Environment) -> None:
    """The records of a cancelled receive are returned by the next one."""
    partition = TopicPartition(await environment.topic(), 0)
    seen: list[str] = []
    async with environment.source() as source, trio.open_nursery() as nursery:
        source.assign(1, {partition: 0})
        source.open(1, [partition])
        nursery.start_soon(environment.produce, partition, numbered(200))
        for turn in itertools.count():
            with trio.move_on_after(0.002 * (turn % 3)):
                seen += value_of(await source.receive(1, [partition], 3))
            if len(seen) == 200:
                break
    assert seen == numbered(200)


async def test_a_hundred_readers_of_a_partition_each(environment: Environment) -> None:
    """A hundred tasks that read one partition each get their own records, and no others'."""
    topic = await environment.topic(100)
    partitions = [TopicPartition(topic, number) for number in range(100)]
    for number in (0, 17, 99):
        await environment.produce(partitions[number], numbered(10, f"{number}-"))
    got: dict[int, list[str]] = {}

    async with environment.source() as source, trio.open_nursery() as nursery:
        source.assign(1, dict.fromkeys(partitions, 0))

        async def read(partition: TopicPartition) -> None:
            source.open(1, [partition])
            try:
                while True:
                    batch = await source.receive(1, [partition], 4)
                    got.setdefault(partition.partition, []).extend(value_of(batch))
                    if sum(map(len, got.values())) == 30:
                        source.revoke(1)
            except StaleGenerationError:
                return

        for partition in partitions:
            nursery.start_soon(read, partition)
    assert got == {number: numbered(10, f"{number}-") for number in (0, 17, 99)}


async def test_a_stuck_partition_does_not_stop_the_others(environment: Environment) -> None:
    """If one partition without a reader fills the buffers, another one is still read."""
    topic = await environment.topic(2)
    stuck, lively = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await environment.produce(stuck, numbered(3000))
    async with environment.source(max_buffered_records=200, max_buffered_bytes=10_000) as source:
        source.assign(1, {stuck: 0, lively: 0})
        source.open(1, [stuck, lively])
        values = await receive_values(source, 1, [stuck], 10, limit=10)
        await environment.produce(lively, numbered(1000))
        values = await receive_values(source, 1, [lively], 1000, limit=10)
        assert values[lively] == numbered(1000)
        values = await receive_values(source, 1, [stuck], 2990, limit=100)
        assert values[stuck] == numbered(3000)[10:]
