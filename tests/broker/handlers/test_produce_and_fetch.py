"""Produce and Fetch: fetched batches equal produced ones, at once or after a wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedBroker, batches
from kgroup.broker.records import NewRecord, batch_of
from tests.broker.record_batches import NOW, append, batch, compressed, end_transaction
from tests.broker.wire import Client, connected

PRODUCE = range(3, 12)
FETCH = range(4, 17)


async def produce(
    client: Client,
    data: bytes | None,
    *,
    version: int = 9,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Any:
    """Produce one batch to topic t; return the partition's response."""
    part = {"index": partition, "records": data}
    answer = await client.request(
        "produce",
        version,
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(seconds=1),
        topic_data=[{"name": "t", "partition_data": [part]}],
    )
    return answer.responses[0].partition_responses[0]


def fetching(broker: EmbeddedBroker, version: int = 12, **details: Any) -> dict[str, Any]:
    """The fields of a Fetch of topic t, partition by partition from given offsets."""
    offsets = details.pop("offsets", {0: 0})
    most = details.pop("partition_max_bytes", 2**20)
    parts = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": most}
        for number, offset in offsets.items()
    ]
    if version >= 5:
        for part in parts:
            part["log_start_offset"] = -1
    topic = {"topic_id": broker.log.topic_id("t")} if version >= 13 else {"topic": "t"}
    fields = {
        "max_wait": timedelta(0),
        "min_bytes": 1,
        "max_bytes": 2**25,
        "isolation_level": 0,
        "topics": [{**topic, "partitions": parts}],
        **details,
    }
    if version >= 7:
        fields["forgotten_topics_data"] = []
    return fields


async def fetch(broker: EmbeddedBroker, client: Client, version: int = 12, **details: Any) -> Any:
    """Fetch from topic t."""
    return await client.request("fetch", version, **fetching(broker, version, **details))


def parts(answer: Any) -> list[Any]:
    """The partitions of the single topic in a response."""
    (topic,) = answer.responses
    return list(topic.partitions)


def offsets(data: bytes) -> list[int]:
    """The base offsets of fetched batches."""
    found, at = [], 0
    while at < len(data):
        header = batches.header_of(data[at:])
        found.append(header.base_offset)
        at += header.length + 12
    return found


@pytest.mark.parametrize("version", PRODUCE)
async def test_batches_are_taken_in_every_version(version: int) -> None:
    """The response has the first offset; with one broker acks=1 and acks=all are the same."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for acks, base in ((1, 0), (-1, 2)):
            done = await produce(client, batch(b"a", b"b"), version=version, acks=acks)
            assert (int(done.error_code), done.base_offset) == (0, base)
            assert done.log_append_time is None


@pytest.mark.parametrize("version", FETCH)
async def test_batches_come_back_in_every_version(version: int) -> None:
    """The fetched bytes equal the produced ones except for the offset."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        data = batch(b"a", b"b")
        await produce(client, batch(b"first"))
        await produce(client, data)
        (part,) = parts(await fetch(broker, client, version, offsets={0: 1}))
        assert (int(part.error_code), part.high_watermark) == (0, 3)
        assert part.last_stable_offset == 3
        assert part.records == batches.placed(data, 1, 0)


async def test_the_response_has_the_brokers_time(autojump_clock: trio.testing.MockClock) -> None:
    """If the topic uses append time, the Produce response has that time."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        await trio.sleep(0.123)
        done = await produce(client, batch(b"a"))
        assert round(done.log_append_time.timestamp() * 1000) == broker.cluster.now_ms()


@pytest.mark.parametrize(
    ("timestamp", "has_time"),
    [(NOW, True), (253_402_300_799_999, True), (253_402_300_800_000, False), (2**63 - 1, False)],
)
async def test_a_repeated_batch_has_its_own_time(timestamp: int, *, has_time: bool) -> None:
    """As in Kafka, which stores it with the producer's state; what a client made up is left out."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        data = batch(b"a", timestamp=timestamp, **fields)
        assert (await produce(client, data)).log_append_time is None
        again = await produce(client, data)
        assert (int(again.error_code), again.base_offset) == (0, 0)
        assert (again.log_append_time is not None) == has_time
        if has_time:
            assert round(again.log_append_time.timestamp() * 1000) == timestamp


@pytest.mark.parametrize(
    ("data", "details", "code"),
    [
        (batch(b"a"), {"partition": 1}, 3),
        (batch(b"a"), {"acks": 2}, 21),
        (batch(b"a")[:-1] + b"?", {}, 2),
        (None, {}, 87),
        (batch(b"x" * 2000), {}, 10),
        (batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), {}, 53),
    ],
    ids=["partition", "acks", "CRC", "null", "large", "no transaction"],
)
async def test_a_batch_can_be_refused(
    data: bytes | None, details: dict[str, Any], code: int
) -> None:
    """Each invalid batch gets an error for its partition, and nothing is stored."""
    async with connected(message_max_bytes=1000) as (broker, client):
        await broker.create_topic("t")
        done = await produce(client, data, **details)
        assert (int(done.error_code), done.base_offset) == (code, -1)
        assert broker.cluster.topics.log("t", 0).end_offset == 0


@pytest.mark.parametrize("policy", ["compact", "delete,compact", "delete"])
async def test_a_compacted_topic_needs_keys(policy: str) -> None:
    """One record without a key is enough for its whole batch to be refused."""
    keyed, plain = NewRecord(b"v", b"k"), NewRecord(b"v")
    refused = 0 if policy == "delete" else 87
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"cleanup.policy": policy})
        for records, code in (([keyed, keyed], 0), ([keyed, plain], refused)):
            done = await produce(client, batch_of(records, NOW))
            assert int(done.error_code) == code
        assert int((await produce(client, compressed(1, b"no key"))).error_code) == refused
        assert int((await produce(client, compressed(4, b"unreadable"))).error_code) == 0


@pytest.mark.parametrize("version", [7, 8, 11])
async def test_a_record_far_ahead_of_the_brokers_time_is_refused(version: int) -> None:
    """By default an hour is the most; its batch is refused, and the response names the record."""
    hour = 3_600_000
    records = [NewRecord(b"v", timestamp=NOW), NewRecord(b"v", timestamp=NOW + 2 * hour)]
    async with connected() as (broker, client):
        await broker.create_topic("t")
        done = await produce(client, batch(b"a", timestamp=NOW + hour))
        assert int(done.error_code) == 0
        done = await produce(client, batch_of(records, NOW), version=version)
        assert (int(done.error_code), done.base_offset) == (32, -1)
        if version >= 8:
            assert [one.batch_index for one in done.record_errors] == [1]
            assert f"record 1 of the batch: its timestamp {NOW + 2 * hour}" in done.error_message
        for codec in (1, 4):
            done = await produce(client, compressed(codec, b"a", timestamp=NOW + 2 * hour))
            assert int(done.error_code) == 32
        assert broker.cluster.topics.log("t", 0).end_offset == 1


@pytest.mark.parametrize(
    ("config", "value", "offset", "code"),
    [
        ("message.timestamp.before.max.ms", "1000", -2000, 32),
        ("message.timestamp.before.max.ms", "1000", 0, 0),
        ("message.timestamp.after.max.ms", "1000", 2000, 32),
        ("message.timestamp.after.max.ms", str(2**63 - 1), 2**60, 0),
        ("message.timestamp.type", "LogAppendTime", 2**60, 0),
    ],
)
@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_a_topic_says_which_timestamps_it_takes(
    config: str, value: str, offset: int, code: int, codec: int
) -> None:
    """Both limits count from the broker's time; there is none where the broker sets timestamps."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={config: value})
        timestamp = broker.cluster.now_ms() + offset
        done = await produce(client, compressed(codec, b"a", timestamp=timestamp))
        assert int(done.error_code) == code


async def test_a_record_without_a_timestamp_is_taken() -> None:
    """-1 is no time, so no limit concerns it."""
    async with connected(log_message_timestamp_before_max_ms=1) as (broker, client):
        await broker.create_topic("t")
        body = batch(b"a")[batches.HEADER.size :]
        done = await produce(
            client, batches.assemble(body, count=1, base_timestamp=-1, max_timestamp=-1)
        )
        assert int(done.error_code) == 0


@pytest.mark.parametrize(
    ("data", "newest"),
    [
        (batch_of([NewRecord(b"a"), NewRecord(b"b", timestamp=NOW + 5)], NOW), NOW + 5),
        (compressed(1, b"a", b"b"), NOW),
        (compressed(3, b"a", b"b"), NOW),
    ],
    ids=["plain", "gzip", "unreadable"],
)
async def test_a_batch_without_a_maximum_timestamp_gets_it(data: bytes, newest: int) -> None:
    """A batch whose client left the maximum timestamp to the broker is found by time."""
    unset = batches.with_max_timestamp(data, batches.NO_TIMESTAMP)
    async with connected() as (broker, client):
        await broker.create_topic("t")
        assert int((await produce(client, unset)).error_code) == 0
        log = broker.cluster.topics.log("t", 0)
        (stored,) = log.read(0, 1, committed=False, at_least_one=True).data
        assert batches.header_of(stored).max_timestamp == newest
        batches.check(stored)  # its CRC is right
        part = {"partition_index": 0, "timestamp": NOW - 1, "current_leader_epoch": -1}
        answer = await client.request(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "t", "partitions": [part]}],
        )
        assert answer.topics[0].partitions[0].offset == 0


async def test_a_batch_without_a_maximum_timestamp_is_checked() -> None:
    """A record far ahead of the broker's time is refused in a batch without a maximum, too."""
    records = [NewRecord(b"a"), NewRecord(b"b", timestamp=NOW + 10 * 3_600_000)]
    unset = batches.with_max_timestamp(batch_of(records, NOW), batches.NO_TIMESTAMP)
    async with connected() as (broker, client):
        await broker.create_topic("t")
        assert int((await produce(client, unset)).error_code) == 32


async def test_many_refused_records_are_not_listed() -> None:
    """A response lists at most 1,000; without a list, a producer fails all records alike."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"cleanup.policy": "compact"})
        for count, listed in ((1000, 1000), (1001, 0)):
            done = await produce(client, batch(*[b"v"] * count))
            assert (int(done.error_code), len(done.record_errors)) == (87, listed)


@pytest.mark.parametrize("version", [12, 13])
async def test_what_cannot_be_fetched_is_an_error(version: int) -> None:
    """Errors are returned at once, together with the valid partitions' records."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        await broker.append("t", 0, [b"a"])
        answer = await fetch(
            broker, client, version, offsets={0: 0, 1: 7, 9: 0}, max_wait=timedelta(hours=1)
        )
        good, outside, missing = parts(answer)
        assert int(good.error_code) == 0
        assert offsets(good.records) == [0]
        assert (int(outside.error_code), int(missing.error_code)) == (1, 3)
        await broker.delete_topic("t")
        await broker.create_topic("t", 2)


async def test_an_unknown_topic_is_an_error_by_name_and_by_id() -> None:
    """A name is UNKNOWN_TOPIC_OR_PARTITION, an id is UNKNOWN_TOPIC_ID."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        old = fetching(broker, 13)
        await broker.delete_topic("t")
        (part,) = parts(await client.request("fetch", 13, **old))
        assert int(part.error_code) == 100
        (part,) = parts(await fetch(broker, client, 12))
        assert int(part.error_code) == 3


async def test_a_future_leader_epoch_is_unknown() -> None:
    """A client that knows a later leader than the broker must wait (KIP-320)."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        fields = fetching(broker)
        fields["topics"][0]["partitions"][0]["current_leader_epoch"] = 1
        (part,) = parts(await client.request("fetch", 12, **fields))
        assert int(part.error_code) == 75


async def test_a_fetch_waits_for_records(autojump_clock: trio.testing.MockClock) -> None:
    """The response is sent with the first record, or empty after the wait."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        late: dict[str, Any] = {"offsets": {0: 0, 1: 0}, "max_wait": timedelta(seconds=5)}
        answer = await fetch(broker, client, **late)
        assert trio.current_time() == 5
        assert [one.records for one in parts(answer)] == [b"", b""]
        await client.send("fetch", 12, **fetching(broker, **late))
        await trio.sleep(1)
        await broker.append("t", 1, [b"a"])
        answer = await client.answer("fetch", 12)
        assert trio.current_time() == 6
        assert [bool(one.records) for one in parts(answer)] == [False, True]


async def test_a_fetch_waits_for_enough_bytes(autojump_clock: trio.testing.MockClock) -> None:
    """min_bytes counts the bytes of all partitions."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        size = len(batch(b"a"))
        await client.send(
            "fetch",
            12,
            **fetching(
                broker, offsets={0: 0, 1: 0}, max_wait=timedelta(seconds=60), min_bytes=3 * size
            ),
        )
        for second, partition in enumerate((0, 1, 0)):
            await trio.sleep_until(second + 1)
            await broker.append("t", partition, [b"a"])
        answer = await client.answer("fetch", 12)
        assert trio.current_time() == 3
        assert [offsets(one.records) for one in parts(answer)] == [[0, 1], [0]]


@pytest.mark.parametrize("version", [12, 13])
async def test_a_waiting_fetch_ends_when_the_topic_is_deleted(
    autojump_clock: trio.testing.MockClock, version: int
) -> None:
    """No Fetch waits for a deleted topic, even if a topic of the same name is created at once."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await client.send(
            "fetch", version, **fetching(broker, version, max_wait=timedelta(seconds=60))
        )
        await trio.sleep(1)
        await broker.delete_topic("t")
        await broker.create_topic("t")
        (part,) = parts(await client.answer("fetch", version))
        assert int(part.error_code) == (100 if version == 13 else 3)
        assert trio.current_time() == 1


async def test_sizes_are_kept_but_for_the_first_batch() -> None:
    """Limits apply by partition and in total; the first batch is returned whole in any case."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        for _ in range(3):
            for partition in (0, 1):
                await broker.append("t", partition, [b"a"])
        size = len(batch(b"a"))
        both = {0: 0, 1: 0}
        for limits, expected in (
            ({"partition_max_bytes": 1}, [[0], []]),
            ({"partition_max_bytes": 2 * size}, [[0, 1], [0, 1]]),
            ({"max_bytes": 4 * size}, [[0, 1, 2], [0]]),
            ({"max_bytes": 0}, [[0], []]),
        ):
            answer = await fetch(broker, client, offsets=both, **limits)
            assert [offsets(one.records) for one in parts(answer)] == expected


async def test_committed_reads_stop_at_the_stable_offset() -> None:
    """With read_committed, open transactions are not returned and aborted ones are listed."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        log = broker.cluster.topics.log("t", 0)
        own = {"producer_epoch": 0, "transactional": True}
        append(log, batch(b"a", producer_id=1, base_sequence=0, **own))
        append(log, batch(b"b", producer_id=2, base_sequence=0, **own))
        end_transaction(log, 1, committed=False)
        (part,) = parts(await fetch(broker, client, isolation_level=1))
        assert (offsets(part.records), part.last_stable_offset, part.high_watermark) == ([0], 1, 3)
        assert [(one.producer_id, one.first_offset) for one in part.aborted_transactions] == [
            (1, 0)
        ]
        (part,) = parts(await fetch(broker, client))
        assert offsets(part.records) == [0, 1, 2]
        assert part.aborted_transactions is None


async def test_sessions_are_declined() -> None:
    """Responses have no session; to go on with one is an error, to begin or close one is not."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        answer = await fetch(broker, client, session_id=0, session_epoch=0)
        assert (int(answer.error_code), answer.session_id) == (0, 0)
        for session_id in (0, 5):
            answer = await fetch(broker, client, session_id=session_id, session_epoch=1)
            assert (int(answer.error_code), answer.responses) == (70, ())
            for epoch in (-1, 0):
                answer = await fetch(broker, client, session_id=session_id, session_epoch=epoch)
                assert int(answer.error_code) == 0


@pytest.mark.parametrize("version", [12, 13])
async def test_a_partition_that_is_named_twice_is_answered_once(version: int) -> None:
    """It has its first place and the offset that was named last, as in Kafka."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        for _ in range(3):
            await broker.append("t", 0, [b"a"])
        fields = fetching(broker, version, offsets={0: 0, 1: 0})
        (again,) = fetching(broker, version, offsets={0: 2})["topics"]
        for topics in (
            [*fields["topics"], again],
            [{**again, "partitions": [*fields["topics"][0]["partitions"], *again["partitions"]]}],
        ):
            answer = await client.request("fetch", version, **{**fields, "topics": topics})
            first, second = parts(answer)
            assert (first.partition_index, offsets(first.records)) == (0, [2])
            assert second.partition_index == 1


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
async def test_a_negative_leader_epoch_is_none(epoch: int) -> None:
    """A Fetch with any negative leader epoch is read without a check of it."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        fields = fetching(broker)
        fields["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        (part,) = parts(await client.request("fetch", 12, **fields))
        assert int(part.error_code) == 0


async def test_a_fetch_waits_for_no_more_than_it_may_return(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With min_bytes above max_bytes, or the broker's own limit, the limit is enough."""
    async with connected(fetch_max_bytes=1024) as (broker, client):
        await broker.create_topic("t")
        await broker.append("t", 0, [b"a" * 1024])
        for most in (10, 2**25):
            late: dict[str, Any] = {"max_wait": timedelta(seconds=60), "min_bytes": 2000}
            (part,) = parts(await fetch(broker, client, max_bytes=most, **late))
            assert offsets(part.records) == [0]
        assert trio.current_time() == 0


async def test_a_fetch_of_nothing_is_answered_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A Fetch without partitions does not wait."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        fields = {**fetching(broker, max_wait=timedelta(seconds=60)), "topics": []}
        assert (await client.request("fetch", 12, **fields)).responses == ()
        assert trio.current_time() == 0
