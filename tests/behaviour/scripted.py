"""A transactional producer that sends single requests, also some that no client would send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, final

import trio

from kgroup.testing import admin
from tests.behaviour.harness import SOON, in_thread
from tests.broker.record_batches import batch
from tests.broker.wire import Client
from tests.brokers import Kafka, unique

BUSY: Final = frozenset({6, 14, 15, 16, 19, 51})
"""Transient errors of Kafka: NOT_LEADER_OR_FOLLOWER for a topic that has just been created,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS, and
CONCURRENT_TRANSACTIONS until the markers of the transaction before are written."""
SECONDS: Final = timedelta(seconds=30)
PAUSE: Final = 0.02
COMPLETE: Final = ("CompleteCommit", "CompleteAbort")


async def settled(send: Callable[[], Awaitable[int]]) -> int:
    """Repeat a request until the broker is no longer busy; returns the error."""
    with trio.fail_after(SOON):
        code = await send()
        while code in BUSY:
            await trio.sleep(PAUSE)
            code = await send()
        return code


@final
class ScriptedProducer:
    """Sends requests; each call returns the error of the response.

    Attributes:
        topic: its own, of two partitions; its group and its transactional id have the same name.
        producer_id: what InitProducerId gave.
        epoch: likewise.
    """

    def __init__(self, kafka: Kafka, client: Client) -> None:
        self.topic = unique("scripted")
        self.producer_id = -1
        self.epoch = -1
        self._servers = kafka.bootstrap_servers
        self._client = client

    async def create(self) -> None:
        """Create the topic."""
        await in_thread(admin.create_topic, self._servers, self.topic, partitions=2)

    async def delete(self) -> None:
        """Delete the topic."""
        await in_thread(admin.delete_topic, self._servers, self.topic)

    async def init(self) -> int:
        """Send InitProducerId, repeated until an open transaction is aborted."""
        await settled(lambda: self._find(1))
        return await settled(self._init)

    async def _find(self, key_type: int) -> int:
        answer = await self._client.request(
            "find_coordinator", 4, key_type=key_type, coordinator_keys=[self.topic]
        )
        return int(answer.coordinators[0].error_code)

    async def _init(self) -> int:
        answer = await self._client.request(
            "init_producer_id",
            4,
            transactional_id=self.topic,
            transaction_timeout=SECONDS,
            producer_id=-1,
            producer_epoch=-1,
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def add(self, partition: int = 0) -> int:
        """Send AddPartitionsToTxn."""

        async def send() -> int:
            answer = await self._client.request(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id=self.topic,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": self.topic, "partitions": [partition]}],
            )
            (topic,) = answer.results_by_topic_v3_and_below
            return int(topic.results_by_partition[0].partition_error_code)

        return await settled(send)

    async def write(
        self,
        sequence: int,
        version: int = 11,
        *,
        partition: int = 0,
        named: bool = True,
        **changes: Any,
    ) -> int:
        """Produce a batch of one record.

        Args:
            sequence: its sequence number.
            version: of the request.
            partition: where to.
            named: whether the request has the transactional id.
            changes: what the batch says of its producer in place of what is true.
        """
        identity = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        stamp = {**identity, "base_sequence": sequence, "transactional": True, **changes}
        part = {"index": partition, "records": batch(b"value", **stamp)}

        async def send() -> int:
            answer = await self._client.request(
                "produce",
                version,
                transactional_id=self.topic if named else None,
                acks=-1,
                timeout=SECONDS,
                topic_data=[{"name": self.topic, "partition_data": [part]}],
            )
            return int(answer.responses[0].partition_responses[0].error_code)

        return await settled(send)

    async def add_group(self) -> int:
        """Send AddOffsetsToTxn."""

        async def send() -> int:
            answer = await self._client.request(
                "add_offsets_to_txn", 3, **self._identity(), group_id=self.topic
            )
            return int(answer.error_code)

        await settled(lambda: self._find(0))
        return await settled(send)

    async def commit(self, version: int = 4, *, epoch: int | None = None) -> int:
        """Send TxnOffsetCommit."""
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        identity = self._identity()
        if epoch is not None:
            identity["producer_epoch"] = epoch

        async def send() -> int:
            answer = await self._client.request(
                "txn_offset_commit",
                version,
                **identity,
                group_id=self.topic,
                topics=[{"name": self.topic, "partitions": [part]}],
            )
            return int(answer.topics[0].partitions[0].error_code)

        await settled(lambda: self._find(0))
        return await settled(send)

    async def end(self, *, committed: bool) -> int:
        """Send EndTxn and wait until every marker is written: Kafka answers before that."""

        async def send() -> int:
            answer = await self._client.request(
                "end_txn", 3, **self._identity(), committed=committed
            )
            return int(answer.error_code)

        code = await settled(send)
        with trio.fail_after(SOON):
            while True:
                answer = await self._client.request(
                    "describe_transactions", 0, transactional_ids=[self.topic]
                )
                if answer.transaction_states[0].transaction_state in COMPLETE:
                    return code
                await trio.sleep(PAUSE)

    async def ends(self) -> tuple[int, int]:
        """The end offset of partition 0, and the end for readers of committed records."""
        return await self._end(0), await self._end(1)

    async def _end(self, isolation_level: int) -> int:
        part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        found = -1

        async def send() -> int:
            nonlocal found
            answer = await self._client.request(
                "list_offsets",
                5,
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[{"name": self.topic, "partitions": [part]}],
            )
            partition = answer.topics[0].partitions[0]
            found = partition.offset
            return int(partition.error_code)

        assert await settled(send) == 0
        return found

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.topic,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


@asynccontextmanager
async def scripted_producer(kafka: Kafka) -> AsyncIterator[ScriptedProducer]:
    """A producer with a topic, a producer id and an epoch."""
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        producer = ScriptedProducer(kafka, Client(stream))
        await producer.create()
        assert await producer.init() == 0
        yield producer
