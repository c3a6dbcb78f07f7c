"""A client of the tests' own: one connection to an embedded broker, one request at a time."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import trio

from kgroup.broker import EmbeddedBroker, in_memory
from kgroup.wire.codec import decode_response, encode_request

LENGTH: Final = struct.Struct(">i")
LONGEST_IDLE: Final = 3600.0
"""Seconds: six times what a broker lets a connection be idle for, so that a test that waits for the
end of one fails where the broker never ends it."""


class Client:
    """Sends requests by kio's names and gives kio's answers."""

    def __init__(self, stream: trio.abc.Stream, name: str = "test") -> None:
        self.stream = stream
        self._name = name
        self._sent = 0
        self._bytes = b""

    @classmethod
    async def open(cls, broker: EmbeddedBroker, name: str = "test") -> Client:
        """Connect in memory."""
        return cls(await broker.open_stream(broker.host, broker.port), name)

    async def request(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request and wait for its answer."""
        await self.send(api, version, **fields)
        return await self.answer(api, version)

    async def send(self, api: str, version: int, **fields: Any) -> None:
        """Send a request, and wait for nothing."""
        self._sent += 1
        body = encode_request(api, version, fields, correlation_id=self._sent, client_id=self._name)
        await self.send_frame(body)

    async def send_frame(self, body: bytes) -> None:
        """Send bytes as one frame."""
        await self.stream.send_all(LENGTH.pack(len(body)) + body)

    async def answer(self, api: str, version: int) -> Any:
        """Wait for the answer to the request sent the longest ago."""
        return decode_response(api, version, await self.frame())[1]

    async def frame(self) -> bytes:
        """Wait for one frame's body."""
        (length,) = LENGTH.unpack(await self._read(LENGTH.size))
        return await self._read(length)

    async def is_closed(self) -> bool:
        """Wait for what comes next; whether it is the end of the connection, and comes in time."""
        with trio.move_on_after(LONGEST_IDLE):
            return not await self.stream.receive_some(1)
        return False

    async def _read(self, size: int) -> bytes:
        while len(self._bytes) < size:
            chunk = await self.stream.receive_some(65536)
            if not chunk:
                raise EOFError("the broker closed the connection")
            self._bytes += chunk
        taken, self._bytes = self._bytes[:size], self._bytes[size:]
        return taken


def joining(**details: Any) -> dict[str, Any]:
    """The fields of a JoinGroup of a new member of group g."""
    return {
        "group_id": "g",
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        **details,
    }


async def commit(
    client: Client,
    version: int = 9,
    *,
    topics: Sequence[str] = ("t",),
    partition: int = 0,
    epoch: int | None = None,
    group_id: str = "g",
    **details: Any,
) -> int:
    """Commit offset 7 of a partition of each topic, without a member id; the first error."""
    part = {"partition_index": partition, "committed_offset": 7, "committed_metadata": "m"}
    if epoch is not None:
        part["committed_leader_epoch"] = epoch
    answer = await client.request(
        "offset_commit",
        version,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [part]} for topic in topics],
        **details,
    )
    return int(answer.topics[0].partitions[0].error_code)


@asynccontextmanager
async def connected(**settings: object) -> AsyncIterator[tuple[EmbeddedBroker, Client]]:
    """A broker in memory and a connection to it; ``_`` in a property's name stands for a dot."""
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    async with in_memory(properties) as broker:
        client = await Client.open(broker)
        yield broker, client
        await client.stream.aclose()
