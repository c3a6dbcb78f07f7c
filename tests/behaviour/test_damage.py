"""Records that are damaged in transit, on both brokers: an error, and nothing is skipped."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, final

import pytest
import trio

from kgroup.errors import FetchError
from tests.behaviour.harness import SOON, harness, numbers
from tests.brokers import Kafka

DAMAGED: Final = b"damaged"
_LENGTH: Final = struct.Struct(">i")


@final
class Damage:
    """A proxy to a broker, which its clients never bypass, and which can damage records.

    Answers name the broker by host and port; here they name this way's port instead.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._own_port = 0
        self.on = True

    async def run(self, nursery: trio.Nursery) -> str:
        """Start it; returns its ``host:port``."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._own_port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, self._serve, [listener])
        return f"127.0.0.1:{self._own_port}"

    async def _serve(self, client: trio.SocketStream) -> None:
        async with (
            client,
            await trio.open_tcp_stream(self._host, self._port) as broker,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._requests, client, broker)
            await self._answers(broker, client)
            nursery.cancel_scope.cancel()

    async def _requests(self, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        try:
            async for data in client:
                await broker.send_all(data)
            await broker.send_eof()
        except trio.BrokenResourceError:
            return  # the client is gone

    async def _answers(self, broker: trio.SocketStream, client: trio.SocketStream) -> None:
        buffered = bytearray()
        try:
            async for data in broker:
                buffered += data
                while len(buffered) >= _LENGTH.size:
                    end = _LENGTH.size + _LENGTH.unpack_from(buffered)[0]
                    if len(buffered) < end:
                        break
                    await client.send_all(self._changed(bytes(buffered[:end])))
                    del buffered[:end]
        except trio.BrokenResourceError:
            return  # the client is gone

    def _changed(self, answer: bytes) -> bytes:
        host = self._host.encode()
        answer = answer.replace(
            host + _LENGTH.pack(self._port), host + _LENGTH.pack(self._own_port)
        )
        return answer.replace(DAMAGED, DAMAGED.upper()) if self.on else answer


@asynccontextmanager
async def damage(kafka: Kafka) -> AsyncIterator[tuple[Damage, str]]:
    """A proxy to the broker, and its ``host:port``."""
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    async with trio.open_nursery() as nursery:
        way = Damage(host, int(port))
        yield way, await way.run(nursery)
        nursery.cancel_scope.cancel()


async def test_a_damaged_batch_is_an_error_and_is_not_skipped(kafka: Kafka) -> None:
    """With a wrong CRC the stream raises FetchError; other partitions and commits still work."""
    async with damage(kafka) as (way, bootstrap_servers), harness(kafka) as here:
        await here.create(2)
        await here.produce([DAMAGED], 0)
        await here.produce(["0", "1"], 1)
        spoilt, sound = here.partitions(2)
        async with here.group(bootstrap_servers=bootstrap_servers) as group:
            generation = await group.next()
            with trio.fail_after(SOON):
                with pytest.raises(FetchError) as caught:
                    await anext(generation.records(spoilt))
                assert caught.value.partition == spoilt
                assert not generation.ending.is_set()
                batch = await anext(generation.records(sound))
                assert numbers(batch.messages)[0] == 0
                await generation.commit({sound: 1}, beyond_read=True)
        way.on = False
        async with here.group(bootstrap_servers=bootstrap_servers) as group:
            generation = await group.next()
            assert generation.start_offsets == {spoilt: 0, sound: 1}
            with trio.fail_after(SOON):
                batch = await anext(generation.records(spoilt))
            assert [message.value() for message in batch.messages] == [DAMAGED]
