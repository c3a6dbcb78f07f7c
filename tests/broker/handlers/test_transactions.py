"""The transaction requests, from InitProducerId to what a consumer may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedBroker, cluster_state, shards
from kgroup.broker.groups import java_hashing, registry
from kgroup.broker.transaction_coordinator import LAST_EPOCH, Transaction
from kgroup.types import TopicPartition
from tests.broker.handlers.test_produce_and_fetch import fetch, produce
from tests.broker.record_batches import batch
from tests.broker.wire import Client, connected

TP = TopicPartition("t", 0)


class Producer:
    """A transactional producer, request by request."""

    def __init__(self, client: Client, transactional_id: str = "x") -> None:
        self._client = client
        self._id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    async def init(self, version: int = 4) -> int:
        """Send InitProducerId; return the error."""
        answer = await self._client.request(
            "init_producer_id",
            version,
            transactional_id=self._id,
            transaction_timeout=timedelta(seconds=60),
        )
        if not int(answer.error_code):
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def add(self, *partitions: int, version: int = 3, topic: str = "t") -> list[int]:
        """Send AddPartitionsToTxn; return each partition's error."""
        answer = await self._client.request(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": partitions}],
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [int(one.partition_error_code) for one in found.results_by_partition]

    async def add_group(self, group_id: str, version: int = 3) -> int:
        """Send AddOffsetsToTxn; return the error."""
        answer = await self._client.request(
            "add_offsets_to_txn", version, **self._identity(), group_id=group_id
        )
        return int(answer.error_code)

    async def commit_offset(self, offset: int, version: int = 3, group_id: str = "g") -> int:
        """Send TxnOffsetCommit of a group; return the error."""
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = await self._client.request(
            "txn_offset_commit",
            version,
            **self._identity(),
            group_id=group_id,
            topics=[{"name": "t", "partitions": [part]}],
        )
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, committed: bool, version: int = 3) -> int:
        """Send EndTxn; return the error."""
        answer = await self._client.request(
            "end_txn", version, **self._identity(), committed=committed
        )
        return int(answer.error_code)

    async def write(self, value: bytes, sequence: int, version: int = 9) -> int:
        """Produce to t-0; return the error."""
        data = batch(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        done = await produce(self._client, data, version=version, transactional_id=self._id)
        return int(done.error_code)

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self._id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


@pytest.fixture
async def parts() -> AsyncIterator[tuple[EmbeddedBroker, Client, Producer]]:
    """A broker with topic t, and a producer that has its id."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        producer = Producer(client)
        assert await producer.init() == 0
        yield broker, client, producer


Parts = tuple[EmbeddedBroker, Client, Producer]


async def test_an_idempotent_producer_needs_no_transaction(parts: Parts) -> None:
    """Without a transactional id a producer gets an id and epoch 0."""
    _, client, producer = parts
    answer = await client.request(
        "init_producer_id", 0, transactional_id=None, transaction_timeout=timedelta(0)
    )
    assert (int(answer.error_code), answer.producer_epoch) == (0, 0)
    assert answer.producer_id != producer.producer_id


@pytest.mark.parametrize("committed", [True, False])
async def test_records_and_offsets_share_one_outcome(parts: Parts, committed: bool) -> None:
    """Both can be read after a commit, and neither after an abort."""
    broker, _, producer = parts
    assert await producer.add(0) == [0]
    assert await producer.write(b"a", 0) == 0
    assert await producer.add_group("g") == 0
    assert await producer.commit_offset(5) == 0
    assert broker.cluster.topics.log("t", 0).last_stable_offset == 0
    assert await broker.committed("g") == {}
    assert await producer.end(committed=committed) == 0
    log = broker.cluster.topics.log("t", 0)
    assert [one.value for one in log.records(0, 9, committed=True)[0]] == [b"a"] * committed
    offsets = {tp: one.offset for tp, one in (await broker.committed("g")).items()}
    assert offsets == ({TP: 5} if committed else {})


async def test_a_partition_that_was_not_added_cannot_be_written(parts: Parts) -> None:
    """The error is INVALID_TXN_STATE, from KIP-890 on TRANSACTION_ABORTABLE."""
    broker, _, producer = parts
    assert [await producer.write(b"a", 0, version) for version in (3, 10, 11)] == [48, 48, 120]
    assert [await producer.commit_offset(5, version) for version in (0, 3, 4)] == [48, 48, 120]
    assert broker.cluster.topics.log("t", 0).end_offset == 0


async def test_unknown_partitions_are_named_whatever_the_transaction_is(parts: Parts) -> None:
    """An offset of one is answered so beside offsets that are outside of the transaction."""
    _, client, producer = parts
    part = {"committed_offset": 5, "committed_metadata": ""}
    found = []
    for topics in (("t", "missing"), ("missing",)):
        answer = await client.request(
            "txn_offset_commit",
            4,
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id="g",
            topics=[
                {
                    "name": topic,
                    "partitions": [{"partition_index": number, **part} for number in (0, 7)],
                }
                for topic in topics
            ],
        )
        found.append(
            {
                (topic.name, part.partition_index): int(part.error_code)
                for topic in answer.topics
                for part in topic.partitions
            }
        )
    missing = {("missing", 0): 3, ("missing", 7): 3}
    assert found == [{("t", 0): 120, ("t", 7): 3, **missing}, missing]


async def test_no_batch_takes_the_place_of_one_that_was_refused(parts: Parts) -> None:
    """After a refused batch the one sent behind it is out of order, and the repeated one is not."""
    broker, client, producer = parts
    assert await producer.write(b"a", 0) == 48
    assert await producer.add(0) == [0]
    assert [await producer.write(b"b", 1), await producer.write(b"a", 0)] == [45, 0]
    assert await producer.write(b"b", 1) == 0
    stranger = Producer(client)
    stranger.producer_id, stranger.epoch = 77, 0
    assert await stranger.write(b"c", 0) == 49
    log = broker.cluster.topics.log("t", 0)
    assert [one.value for one in log.records(0, 9, committed=False)[0]] == [b"a", b"b"]


async def test_all_partitions_are_added_or_none(parts: Parts) -> None:
    """If one partition is unknown, the others get OPERATION_NOT_ATTEMPTED."""
    _, _, producer = parts
    assert await producer.add(0, 9) == [55, 3]
    assert await producer.end(committed=True) == 48


async def test_a_coordinators_partitions_cannot_be_added(parts: Parts) -> None:
    """They are refused to every user; groups are added by AddOffsetsToTxn."""
    _, _, producer = parts
    assert await producer.add(0, topic="__consumer_offsets") == [29]


async def test_a_group_needs_a_name(parts: Parts) -> None:
    """As in Kafka, an empty group id can be added, and its commit is refused."""
    producer = parts[2]
    assert await producer.add_group("") == 0
    assert await producer.commit_offset(5, group_id="") == 24


async def test_the_next_producer_fences_the_one_before(parts: Parts) -> None:
    """It aborts an open transaction first; then requests with the old epoch are refused."""
    broker, client, old = parts
    await old.add(0)
    await old.write(b"a", 0)
    new = Producer(client)
    assert await new.init() == 51
    assert await new.init() == 0
    assert new.epoch > old.epoch
    assert await old.end(committed=True) == 90
    assert await old.add(0) == [90]
    assert await old.write(b"b", 1) == 47
    log = broker.cluster.topics.log("t", 0)
    assert log.records(0, 9, committed=True)[0] == []


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, 47), (2, 90)],
)
async def test_old_clients_know_no_fencing(parts: Parts, version: int, code: int) -> None:
    """Before KIP-588 a fenced producer gets INVALID_PRODUCER_EPOCH."""
    _, client, old = parts
    await Producer(client).init()
    assert await old.add(0, version=version) == [code]
    assert await old.add_group("g", version=version) == code
    assert await old.end(committed=True, version=version) == code


async def test_a_deleted_topic_is_no_hindrance(parts: Parts) -> None:
    """A transaction with a deleted topic ends; a new topic of that name gets its marker."""
    broker, _, producer = parts
    await producer.add(0)
    await producer.write(b"a", 0)
    await broker.delete_topic("t")
    assert await producer.write(b"b", 1) == 3
    assert await producer.end(committed=True) == 0
    await broker.create_topic("t")
    assert await producer.add(0) == [0]
    await broker.delete_topic("t")
    await broker.create_topic("t")
    assert await producer.write(b"c", 1) == 0
    log = broker.cluster.topics.log("t", 0)
    assert (log.last_stable_offset, log.end_offset) == (0, 1)
    assert await producer.end(committed=True) == 0
    assert (log.last_stable_offset, log.end_offset) == (2, 2)


def state_of(broker: EmbeddedBroker) -> Transaction:
    """What the coordinator knows of transactional id x."""
    node = broker.cluster.transaction_coordinator_of("x")
    assert node is not None
    return node.transactions.find("x")


async def stable(broker: EmbeddedBroker, client: Client) -> tuple[int, int]:
    """The last stable offset and the end of t-0, as a read_committed consumer sees them."""
    answer = await fetch(broker, client, isolation_level=1)
    (part,) = answer.responses[0].partitions
    return part.last_stable_offset, part.high_watermark


async def refused(producer: Producer) -> list[int]:
    """The errors of every request of a transaction."""
    return [
        *await producer.add(0),
        await producer.add_group("g"),
        await producer.write(b"no", 0),
        await producer.commit_offset(5),
        await producer.end(committed=True),
    ]


async def test_no_client_may_use_the_epoch_that_only_fences(
    parts: Parts, autojump_clock: trio.testing.MockClock
) -> None:
    """Up to the last epoch and beyond, an expired transaction is aborted and blocks no reader."""
    broker, client, producer = parts
    first_id = producer.producer_id
    state_of(broker).epoch = LAST_EPOCH - 3
    seen, end = [], 0
    other = await Client.open(broker)
    async with other.stream:
        for _ in range(4):
            assert await producer.init() == 0
            seen.append((producer.producer_id == first_id, producer.epoch))
            assert await producer.add(0) == [0]
            assert await producer.add_group("g") == 0
            assert await producer.write(b"x", 0) == 0
            fenced = Producer(other)
            fenced.producer_id, fenced.epoch = producer.producer_id, producer.epoch + 1
            assert await refused(fenced) == [90, 90, 47, 47, 90]
            assert await stable(broker, other) == (end, end + 1)
            await trio.sleep(61)
            end += 2
            assert await stable(broker, other) == (end, end)
            assert await refused(producer) == [90, 90, 47, 47, 90]
            if state_of(broker).epoch > LAST_EPOCH:
                assert await refused(fenced) == [90, 90, 47, 47, 90]
            await trio.sleep(61)
            assert await stable(broker, client) == (end, end)
    assert seen == [(True, LAST_EPOCH - 2), (True, LAST_EPOCH), (False, 0), (False, 2)]
    assert broker.cluster.internal_errors.seen == 0


async def test_a_failed_abort_is_tried_again(
    parts: Parts, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no marker can be built, the transaction stays as it was until the next time-out."""
    broker, client, producer = parts
    assert await producer.add(0) == [0]
    assert await producer.write(b"x", 0) == 0
    with monkeypatch.context() as patch:
        patch.setattr(cluster_state, "marker", None)
        await trio.sleep(61)
        assert broker.cluster.internal_errors.seen == 1
        assert state_of(broker).epoch == producer.epoch
        assert await stable(broker, client) == (0, 1)
    await trio.sleep(60)
    assert broker.cluster.internal_errors.seen == 1
    assert state_of(broker).epoch == producer.epoch + 1
    assert await stable(broker, client) == (2, 2)


async def test_a_transaction_with_many_groups_keeps_their_shards_only(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TxnOffsetCommit computes one shard, however many groups its transaction has."""
    broker, _, producer = parts
    for number in range(200):
        assert await producer.add_group(f"g{number}") == 0
    assert len(state_of(broker).shards) <= broker.cluster.settings.groups.offsets_topic_partitions
    computed = set()

    def shard_of(name: str, count: int) -> int:
        computed.add(name)
        return java_hashing.shard_of(name, count)

    for module in (cluster_state, registry, shards):
        monkeypatch.setattr(module, "shard_of", shard_of)
    assert await producer.commit_offset(1, group_id="g199") == 0
    assert computed == {"g199", "x"}
    for number in range(200):
        assert await producer.commit_offset(1, group_id=f"g{number}") == 0
    computed.clear()
    assert await producer.commit_offset(1, group_id="g7") == 0
    assert computed == {"g7"}
