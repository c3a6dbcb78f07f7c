"""DescribeLogDirs, DescribeProducers, transactions, and requests for what this broker lacks."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import pytest
import trio

from kgroup.broker import EmbeddedBroker
from kgroup.broker.log import PartitionLog
from kgroup.broker.records import marker
from kgroup.types import TopicPartition
from tests.broker.record_batches import NOW, append, batch
from tests.broker.wire import Client, connected


@pytest.mark.parametrize("version", range(1, 6))
async def test_log_dirs_have_the_sizes_of_partitions(version: int) -> None:
    """All topics or some are described; the one log directory is called "memory"."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        await broker.create_topic("u")
        data = batch(b"x")
        append(broker.cluster.topics.log("t", 1), data)
        for topics, wanted in (
            (None, {("t", 0): 0, ("t", 1): len(data), ("u", 0): 0}),
            ([{"topic": "t", "partitions": [1, 5]}], {("t", 1): len(data)}),
        ):
            (folder,) = (await client.request("describe_log_dirs", version, topics=topics)).results
            assert (int(folder.error_code), folder.log_dir) == (0, "memory")
            assert {
                (topic.name, part.partition_index): part.partition_size
                for topic in folder.topics
                for part in topic.partitions
            } == wanted


async def test_producers_of_a_partition_are_listed() -> None:
    """The response has epochs, last sequence numbers and times, and starts of transactions."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        log = broker.cluster.topics.log("t", 0)
        append(log, batch(b"a", b"b", producer_id=4, producer_epoch=2, base_sequence=0))
        append(
            log,
            batch(b"c", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        )
        topics = [{"name": "t", "partition_indexes": [0, 1]}]
        (topic,) = (await client.request("describe_producers", 0, topics=topics)).topics
        known, unknown = topic.partitions
        assert [
            (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
            for one in known.active_producers
        ] == [(4, 2, 1, -1), (5, 0, 0, 2)]
        assert [(one.last_timestamp, one.coordinator_epoch) for one in known.active_producers] == [
            (NOW, -1),
            (NOW, -1),
        ]
        log.end_transaction(5, 1, marker(5, 1, committed=False, now=NOW + 5), committed=False)
        (topic,) = (await client.request("describe_producers", 0, topics=topics)).topics
        fenced = topic.partitions[0].active_producers[1]
        assert (fenced.producer_epoch, fenced.last_sequence) == (1, -1)
        assert (fenced.last_timestamp, fenced.coordinator_epoch) == (NOW + 5, 0)
        assert (int(unknown.error_code), unknown.active_producers) == (3, ())
        topics = [{"name": "no name", "partition_indexes": [0]}]
        (topic,) = (await client.request("describe_producers", 0, topics=topics)).topics
        assert int(topic.partitions[0].error_code) == 17


async def test_too_many_producers_are_counted_and_not_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer with more items than it may have is refused before any producer is looked at."""
    async with connected(kgroup_answer_max_items=100) as (broker, client):
        await broker.create_topic("t")
        log = broker.cluster.topics.log("t", 0)
        topics = [{"name": "t", "partition_indexes": [0]}]
        for producer_id in range(100):
            append(log, batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0))
        (topic,) = (await client.request("describe_producers", 0, topics=topics)).topics
        (part,) = topic.partitions
        assert (int(part.error_code), len(part.active_producers)) == (0, 100)
        append(log, batch(b"a", producer_id=100, producer_epoch=0, base_sequence=0))
        monkeypatch.setattr(PartitionLog, "producers", None)
        (topic,) = (await client.request("describe_producers", 0, topics=topics)).topics
        (part,) = topic.partitions
        assert (int(part.error_code), part.active_producers) == (44, ())
        assert broker.cluster.internal_errors.seen == 0


async def begun(broker: EmbeddedBroker, client: Client, name: str) -> int:
    """Begin a transaction on t-0; return its producer id."""
    transactions = broker.cluster.transaction_coordinator_of(name)
    assert transactions is not None
    producer_id, epoch = transactions.transactions.init_producer(name, 60.0, -1, -1)
    transactions.transactions.add_partitions(
        trio.current_time(), name, producer_id, epoch, [TopicPartition("t", 0)]
    )
    return producer_id


async def listed(client: Client, version: int = 2, **filters: Any) -> list[str]:
    """List transactions; return their transactional ids."""
    fields: dict[str, Any] = {"state_filters": (), "producer_id_filters": (), **filters}
    if version >= 1:
        fields.setdefault("duration_filter", -1)
    if version >= 2:
        fields.setdefault("transactional_id_pattern", None)
    answer = await client.request("list_transactions", version, **fields)
    assert int(answer.error_code) == 0
    return [one.transactional_id for one in answer.transaction_states]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_transactions_are_listed(version: int) -> None:
    """All are listed, or those with a state, a producer, a duration or a name.

    The duration counts from the start, and goes on when the transaction has ended.
    """
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await begun(broker, client, "a")
        second = await begun(broker, client, "b")
        coordinator = broker.cluster.transaction_coordinator_of("b")
        assert coordinator is not None
        coordinator.transactions.end("b", second, 0, committed=True)
        assert await listed(client, version) == ["a", "b"]
        assert await listed(client, version, state_filters=["Ongoing"]) == ["a"]
        assert await listed(client, version, producer_id_filters=[second]) == ["b"]
        assert await listed(client, version, state_filters=["Nonsense"]) == []
        if version >= 1:
            assert await listed(client, version, duration_filter=0) == ["a", "b"]
            assert await listed(client, version, duration_filter=3_600_000) == []
            coordinator.transactions.init_producer("b", 60.0)
            assert await listed(client, version, duration_filter=3_600_000) == ["b"]
        if version >= 2:
            assert await listed(client, version, transactional_id_pattern="b.*") == ["b"]


async def test_an_unknown_state_is_named() -> None:
    """The response lists the unknown filters."""
    async with connected() as (_, client):
        answer = await client.request(
            "list_transactions", 0, state_filters=["Ongoing", "x"], producer_id_filters=()
        )
        assert answer.unknown_state_filters == ("x",)


async def test_a_transaction_is_described() -> None:
    """Partitions, those of groups too, start and time-out; an unknown one is not found."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        producer_id = await begun(broker, client, "a")
        coordinator = broker.cluster.transaction_coordinator_of("a")
        assert coordinator is not None
        for shard in (7, 3):
            coordinator.transactions.add_group(trio.current_time(), "a", producer_id, 0, shard)
        answer = await client.request("describe_transactions", 0, transactional_ids=["a", "b", ""])
        known, unknown, nameless = answer.transaction_states
        assert (int(known.error_code), known.transaction_state) == (0, "Ongoing")
        assert (known.producer_id, known.producer_epoch) == (producer_id, 0)
        assert known.transaction_timeout == timedelta(seconds=60)
        assert [(one.topic, one.partitions) for one in known.topics] == [
            ("t", (0,)),
            ("__consumer_offsets", (3, 7)),
        ]
        started = known.transaction_start_time.timestamp() * 1000
        assert 0 <= broker.cluster.now_ms() - started < 60_000
        assert int(unknown.error_code) == 105
        assert (unknown.producer_id, unknown.producer_epoch) == (0, 0)
        assert int(nameless.error_code) == 42
        coordinator.transactions.end("a", producer_id, 0, committed=False)
        answer = await client.request("describe_transactions", 0, transactional_ids=["a"])
        (ended,) = answer.transaction_states
        assert ended.transaction_state == "CompleteAbort"
        assert abs(ended.transaction_start_time.timestamp() * 1000 - started) < 60_000
        coordinator.transactions.init_producer("a", 60.0)
        # Before the first transaction the start is -1, which kio cannot read.
        await client.send("describe_transactions", 0, transactional_ids=["a"])
        assert b"Empty" + struct.pack(">iq", 60_000, -1) in await client.frame()


async def test_queries_without_results() -> None:
    """There are no quotas and no SCRAM users."""
    async with connected() as (_, client):
        quotas = await client.request("describe_client_quotas", 1, components=[], strict=False)
        assert (int(quotas.error_code), quotas.entries) == (0, ())
        api = "describe_user_scram_credentials"
        assert (await client.request(api, 0, users=None)).results == ()
        (user,) = (await client.request(api, 0, users=[{"name": "a"}])).results
        assert (user.user, int(user.error_code)) == ("a", 91)
