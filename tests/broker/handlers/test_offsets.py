"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kgroup.broker.log import PartitionLog
from kgroup.error_codes import ErrorCode
from tests.broker.record_batches import append, batch
from tests.broker.wire import Client, connected


async def list_offset(
    client: Client, timestamp: int, *, version: int = 7, partition: int = 0, **details: int
) -> Any:
    """Request one offset of topic t; ``details`` are fields of its partition."""
    fields: dict[str, Any] = {"isolation_level": details.pop("level", 0)} if version >= 2 else {}
    if version >= 10:
        fields["timeout"] = timedelta(seconds=1)
    part = {"partition_index": partition, "timestamp": timestamp, **details}
    answer = await client.request(
        "list_offsets",
        version,
        replica_id=-1,
        topics=[{"name": "t", "partitions": [part]}],
        **fields,
    )
    return answer.topics[0].partitions[0]


def fill(log: PartitionLog) -> None:
    """Write offsets 0 to 5 at times 10, 30, 20; the last two in an open transaction."""
    append(log, batch(b"a", b"b", timestamp=10))
    append(log, batch(b"a", b"b", timestamp=30))
    data = batch(
        b"a",
        b"b",
        timestamp=20,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    append(log, data)


@pytest.mark.parametrize("version", range(1, 12))
async def test_ends_and_times_in_every_version(version: int) -> None:
    """The latest and earliest offset, and the first record not older than a time."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        fill(broker.cluster.topics.log("t", 0))
        broker.cluster.topics.log("t", 0).delete_before(1)
        for timestamp, offset, time in ((-1, 6, -1), (-2, 1, -1), (11, 2, 30), (31, -1, -1)):
            found = await list_offset(client, timestamp, version=version)
            assert (int(found.error_code), found.offset, found.timestamp) == (0, offset, time)


async def test_special_offsets() -> None:
    """The greatest time (KIP-734) and the earliest local offset; tiered storage has none."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        fill(broker.cluster.topics.log("t", 0))
        newest = await list_offset(client, -3)
        assert (newest.offset, newest.timestamp) == (2, 30)
        assert (await list_offset(client, -4, version=8)).offset == 0
        for timestamp, version in ((-5, 9), (-6, 11)):
            found = await list_offset(client, timestamp, version=version)
            assert (int(found.error_code), found.offset, found.leader_epoch) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
async def test_a_special_offset_needs_its_version(timestamp: int, version: int) -> None:
    """A special offset of a later version is UNSUPPORTED_VERSION for that partition."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for partition in (0, 1):  # whether or not there is such a partition, as in Kafka
            found = await list_offset(client, timestamp, version=version, partition=partition)
            assert int(found.error_code) == 35


async def test_committed_readers_see_the_stable_end() -> None:
    """With read_committed the latest offset is the last stable one."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        log = broker.cluster.topics.log("t", 0)
        fill(log)
        assert (await list_offset(client, -1, level=1)).offset == 4
        append(log, batch(b"late", timestamp=99))
        assert (await list_offset(client, 99)).offset == 6
        assert (await list_offset(client, 99, level=1)).offset == -1


@pytest.mark.parametrize("timestamp", [15, 20, -3])
async def test_no_committed_reader_finds_the_first_record_of_an_open_transaction(
    timestamp: int,
) -> None:
    """Its offset is the last stable one, which is the end of what such a reader can see."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        log = broker.cluster.topics.log("t", 0)
        append(log, batch(b"a", timestamp=10))
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        append(log, batch(b"b", timestamp=20, transactional=True, **producer))
        assert (await list_offset(client, timestamp)).offset == 1
        found = await list_offset(client, timestamp, level=1)
        assert (int(found.error_code), found.offset, found.timestamp) == (0, -1, -1)


async def test_unknown_partitions_and_epochs_are_errors() -> None:
    """An unknown partition and a future leader epoch get an error."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        assert int((await list_offset(client, -1, partition=3)).error_code) == 3
        assert int((await list_offset(client, -1, current_leader_epoch=4)).error_code) == 75


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_one_epoch_ends_with_the_log(version: int) -> None:
    """Epoch 0 ends where the log ends; other epochs are unknown."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await broker.append("t", 0, [b"a", b"b"])
        plain = {"replica_id": -1} if version >= 3 else {}
        for number, current, epoch, expected in (
            (0, -1, 0, (0, 0, 2)),
            (0, -1, 1, (0, -1, -1)),
            (0, 1, 0, (75, -1, -1)),
            (9, -1, 0, (3, -1, -1)),
        ):
            part = {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
            answer = await client.request(
                "offset_for_leader_epoch",
                version,
                topics=[{"topic": "t", "partitions": [part]}],
                **plain,
            )
            found = answer.topics[0].partitions[0]
            assert (int(found.error_code), found.leader_epoch, found.end_offset) == expected


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_from_the_front(version: int) -> None:
    """The response has the new start; an offset past the end, or another broker, is refused."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await broker.append("t", 0, [b"a", b"b", b"c"])
        for number, offset, expected in (
            (0, 2, (0, 2)),
            (0, 9, (1, -1)),
            (7, 0, (3, -1)),
            (0, -1, (0, 3)),
        ):
            part = {"partition_index": number, "offset": offset}
            answer = await client.request(
                "delete_records",
                version,
                topics=[{"name": "t", "partitions": [part]}],
                timeout=timedelta(seconds=1),
            )
            done = answer.topics[0].partitions[0]
            assert (int(done.error_code), done.low_watermark) == expected


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_records_of_an_internal_topic_cannot_be_deleted(topic: str) -> None:
    """Only its coordinator changes it."""
    async with connected() as (_, client):
        answer = await client.request(
            "delete_records",
            2,
            topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            timeout=timedelta(seconds=1),
        )
        assert int(answer.topics[0].partitions[0].error_code) == 17


@pytest.mark.parametrize(("policy", "code"), [("compact", 44), ("compact,delete", 0), ("", 0)])
async def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(
    policy: str, code: int
) -> None:
    """DeleteRecords needs a topic that is not compacted, or whose policy deletes too."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"cleanup.policy": policy})
        log = broker.cluster.topics.log("t", 0)
        append(log, batch(b"a"))
        parts = [{"partition_index": 0, "offset": 1}]
        answer = await client.request(
            "delete_records",
            2,
            topics=[{"name": "t", "partitions": parts}],
            timeout=timedelta(seconds=1),
        )
        assert int(answer.topics[0].partitions[0].error_code) == code
        assert log.start_offset == (0 if code else 1)


async def test_a_partition_that_is_named_twice_is_refused() -> None:
    """As in Kafka it is answered once, with INVALID_REQUEST, and others are answered."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        parts = [{"partition_index": number, "timestamp": -1} for number in (0, 1, 0)]
        answer = await client.request(
            "list_offsets",
            1,
            replica_id=-1,
            topics=[{"name": "t", "partitions": parts}, {"name": "t", "partitions": parts[:1]}],
        )
        (topic,) = answer.topics
        found = {part.partition_index: int(part.error_code) for part in topic.partitions}
        assert len(topic.partitions) == 2
        assert found == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}
