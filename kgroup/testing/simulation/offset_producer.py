"""``OffsetProducer``: commits offsets in transactions, as a simulated program's producer does.

confluent-kafka's producer opens real connections, so no simulation can have one. This one sends a
producer's requests over the simulated network, where they are lost and come late as any others do.
Its transactions hold offsets only: what the program has processed does not depend on them.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from random import Random
from typing import Any, Final, final

import trio

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import KgroupError
from kgroup.generation.generation import Generation
from kgroup.interfaces import StreamOpener
from kgroup.testing.simulation.process import Process
from kgroup.types import TopicPartition
from kgroup.wire.byte_streams import FrameStream
from kgroup.wire.codec import decode_response, encode_request

_TIMEOUT: Final = timedelta(seconds=15)
"""The coordinator aborts a transaction that is open for longer."""
_PATIENCE: Final = 3.0
"""Seconds that a transaction may take before it is given up: less than most stalls last."""
_PAUSE: Final = 0.1
"""Seconds until a producer asks again whether its earlier transaction is over."""
_OF_GROUP: Final = 0
_OF_TRANSACTION: Final = 1


class _RefusedError(Exception):
    """A broker refused a request of a transaction."""


_FAILURES: Final = (
    OSError,  # no connection
    KgroupError,
    _RefusedError,
)
"""Whatever may become of a request."""


@final
class OffsetProducer:
    """Commits offsets of one partition, each in a transaction of its own.

    A transaction that fails in any way, or takes too long, is given up. What is still under way of
    it may arrive later; InitProducerId of the next one fences it.

    Args:
        process: its program.
        partition: the partition; each program has one transactional id for it.
    """

    def __init__(self, process: Process, partition: TopicPartition) -> None:
        self._transactional_id = f"{process.name} {partition}"
        self._partition = partition
        self._group_instance_id = process.group_instance_id
        self._identity: dict[str, Any] | None = None
        self._connections = _Connections(
            process.open_stream, process.name, process.bootstrap_servers, process.random
        )

    async def commit(self, generation: Generation, offset: int) -> bool:
        """Commit an offset in a transaction; False if that may have failed.

        Cancellation: as if the transaction failed.
        """
        with trio.move_on_after(_PATIENCE), suppress(*_FAILURES):
            await self._commit(generation, offset)
            return True
        self._identity = None
        await self.aclose()
        return False

    async def aclose(self) -> None:
        """Close all connections; what was sent on them may still arrive."""
        await self._connections.aclose()

    async def _commit(self, generation: Generation, offset: int) -> None:
        of_transaction = await self._connections.coordinator(
            _OF_TRANSACTION, self._transactional_id
        )
        if self._identity is None:
            self._identity = await self._initialized(of_transaction)
        identity, group_id = self._identity, generation.group_id
        answer = await of_transaction.request(
            "add_offsets_to_txn", 3, **identity, group_id=group_id
        )
        _check(answer.error_code)
        of_group = await self._connections.coordinator(_OF_GROUP, group_id)
        generation.transaction_metadata()  # so that the group knows that a commit may come late
        part = {
            "partition_index": self._partition.partition,
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
            group_instance_id=self._group_instance_id,
            topics=[{"name": self._partition.topic, "partitions": [part]}],
        )
        _check(answer.topics[0].partitions[0].error_code)
        answer = await of_transaction.request("end_txn", 3, **identity, committed=True)
        _check(answer.error_code)

    async def _initialized(self, coordinator: _Connection) -> dict[str, Any]:
        while True:
            answer = await coordinator.request(
                "init_producer_id",
                4,
                transactional_id=self._transactional_id,
                transaction_timeout=_TIMEOUT,
                producer_id=-1,
                producer_epoch=-1,
            )
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await trio.sleep(_PAUSE)
        _check(answer.error_code)
        return {
            "transactional_id": self._transactional_id,
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }


@final
class _Connections:
    """A producer's connections to brokers, one for each."""

    def __init__(
        self, open_stream: StreamOpener, client_id: str, bootstrap_servers: str, random: Random
    ) -> None:
        self._open_stream = open_stream
        self._client_id = client_id
        self._bootstrap_servers = bootstrap_servers.split(",")
        self._random = random
        self._open: dict[tuple[str, int], _Connection] = {}

    async def coordinator(self, key_type: int, key: str) -> _Connection:
        """Ask any broker for a coordinator, and connect to that."""
        host, _, port = self._random.choice(self._bootstrap_servers).rpartition(":")
        any_broker = await self._to(host, int(port))
        answer = await any_broker.request(
            "find_coordinator", 4, key_type=key_type, coordinator_keys=[key]
        )
        (found,) = answer.coordinators
        _check(found.error_code)
        return await self._to(found.host, found.port)

    async def aclose(self) -> None:
        """Close all of them, also if it is cancelled; what was sent may still arrive."""
        open_ones, self._open = list(self._open.values()), {}
        async with AsyncExitStack() as closing:
            for connection in open_ones:
                closing.push_async_callback(trio.aclose_forcefully, connection.stream)

    async def _to(self, host: str, port: int) -> _Connection:
        if (host, port) not in self._open:
            stream = await self._open_stream(host, port)
            self._open[host, port] = _Connection(stream, self._client_id)
        return self._open[host, port]


@final
class _Connection:
    """One connection to a broker, for one request at a time."""

    def __init__(self, stream: trio.abc.Stream, client_id: str) -> None:
        self.stream: Final = stream
        self._frames = FrameStream(stream, "a broker")
        self._client_id = client_id
        self._sent = 0

    async def request(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request by kio's name, and wait for kio's answer."""
        self._sent += 1
        body = encode_request(
            api, version, fields, correlation_id=self._sent, client_id=self._client_id
        )
        await self._frames.send(body)
        return decode_response(api, version, await self._frames.receive())[1]


def _check(code: int) -> None:
    if code:
        raise _RefusedError(code_name(code))
