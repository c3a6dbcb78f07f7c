"""A simulated program that commits offsets in transactions, by requests of its own.

confluent-kafka's producer opens real connections, so no simulation can have one. This one sends the
requests of a producer over the simulated network, where they are lost and come late as any others:

- each program has one transactional id for each partition, whether or not it owns the partition;
- a transaction that fails in any way, or takes too long, is given up. Its offsets are committed
  outside of it, so that the program loses nothing, and InitProducerId fences what may arrive late.

What it has processed does not depend on the transactions, which hold offsets only.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, final

import trio

from kgroup.errors import KgroupError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.simulation import Process
from kgroup.types import TopicPartition
from tests.broker.wire import Client

TIMEOUT: Final = timedelta(seconds=15)
"""The coordinator aborts a transaction that is open for longer."""
PATIENCE: Final = 3.0
"""Seconds that a transaction may take before it is given up: less than most stalls last."""
PAUSE: Final = 0.1
CONCURRENT: Final = 51
"""CONCURRENT_TRANSACTIONS: the transaction before was aborted; try again."""
OF_GROUP: Final = 0
OF_TRANSACTION: Final = 1


class RefusedError(Exception):
    """A broker refused a request of a transaction."""


FAILURES: Final = (
    OSError,
    EOFError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    KgroupError,
    RefusedError,
)
"""Whatever may become of a request."""


async def transactional_worker(process: Process) -> None:
    """Process every record, and commit each batch in a transaction of its own."""
    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(_handle, process, generation, partition)


async def _handle(process: Process, generation: Generation, partition: TopicPartition) -> None:
    producer = Producer(process, f"{process.name} {partition}")
    try:
        async for batch in generation.records(partition, max_records=20):
            for message in batch:
                await process.process(message)
                done = message.offset() + 1
                if generation.ending.is_set() and done < batch.next_offset:
                    break
            await _commit(producer, generation, partition, done)
            if done < batch.next_offset:
                return
    finally:
        await producer.aclose()


async def _commit(
    producer: Producer, generation: Generation, partition: TopicPartition, offset: int
) -> None:
    if not await producer.commit(generation, partition, offset):
        await generation.commit({partition: offset})


@final
class Producer:
    """Commits offsets of one partition, each in a transaction of its own."""

    def __init__(self, process: Process, transactional_id: str) -> None:
        self._process = process
        self._id = transactional_id
        self._identity: dict[str, Any] | None = None
        self._clients: dict[tuple[str, int], Client] = {}

    async def commit(self, generation: Generation, partition: TopicPartition, offset: int) -> bool:
        """Commit an offset; False if that may have failed."""
        with trio.move_on_after(PATIENCE), suppress(*FAILURES):
            await self._commit(generation, partition, offset)
            return True
        self._identity = None
        await self.aclose()
        return False

    async def aclose(self) -> None:
        """Close all connections; what was sent on them may still arrive."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await trio.aclose_forcefully(client.stream)

    async def _commit(self, generation: Generation, partition: TopicPartition, offset: int) -> None:
        of_transaction = await self._coordinator(OF_TRANSACTION, self._id)
        if self._identity is None:
            self._identity = await self._initialized(of_transaction)
        identity, group_id = self._identity, generation.group_id
        answer = await of_transaction.request(
            "add_offsets_to_txn", 3, **identity, group_id=group_id
        )
        _check(answer.error_code)
        of_group = await self._coordinator(OF_GROUP, group_id)
        generation.transaction_metadata()  # so that the group knows that a commit may come late
        part = {
            "partition_index": partition.partition,
            "committed_offset": offset,
            "committed_metadata": "",
        }
        answer = await of_group.request(
            "txn_offset_commit",
            3,
            **identity,
            group_id=group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._process.group_instance_id,
            topics=[{"name": partition.topic, "partitions": [part]}],
        )
        _check(answer.topics[0].partitions[0].error_code)
        answer = await of_transaction.request("end_txn", 3, **identity, committed=True)
        _check(answer.error_code)

    async def _initialized(self, coordinator: Client) -> dict[str, Any]:
        while True:
            answer = await coordinator.request(
                "init_producer_id",
                4,
                transactional_id=self._id,
                transaction_timeout=TIMEOUT,
                producer_id=-1,
                producer_epoch=-1,
            )
            if answer.error_code != CONCURRENT:
                break
            await trio.sleep(PAUSE)
        _check(answer.error_code)
        return {
            "transactional_id": self._id,
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }

    async def _coordinator(self, key_type: int, key: str) -> Client:
        server = self._process.random.choice(self._process.bootstrap_servers.split(","))
        host, _, port = server.rpartition(":")
        any_broker = await self._client(host, int(port))
        answer = await any_broker.request(
            "find_coordinator", 4, key_type=key_type, coordinator_keys=[key]
        )
        (found,) = answer.coordinators
        _check(found.error_code)
        return await self._client(found.host, found.port)

    async def _client(self, host: str, port: int) -> Client:
        if (host, port) not in self._clients:
            stream = await self._process.open_stream(host, port)
            self._clients[host, port] = Client(stream, self._process.name)
        return self._clients[host, port]


def _check(code: int) -> None:
    if code:
        raise RefusedError(f"error {code}")
