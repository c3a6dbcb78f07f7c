"""What separates a member from its coordinator: heartbeats that are held back."""

from __future__ import annotations

import struct
from typing import Final, final

import trio

from kgroup.wire.streams import open_tcp

HEARTBEAT: Final = 12
"""The API key."""


@final
class Heartbeats:
    """Opens connections on which heartbeats can be held back, and nothing else."""

    def __init__(self) -> None:
        self._gate = trio.Event()
        self._gate.set()

    def hold(self) -> None:
        """Send none from now on."""
        self._gate = trio.Event()

    def let_go(self) -> None:
        """Send them again."""
        self._gate.set()

    async def wait_until_free(self) -> None:
        """Wait while they are held back."""
        await self._gate.wait()

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """A ``StreamOpener``."""
        return _Gated(await open_tcp(host, port), self)


@final
class _Gated(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream, heartbeats: Heartbeats) -> None:
        self._stream = stream
        self._heartbeats = heartbeats

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        _, api_key = struct.unpack_from(">ih", data)
        if api_key == HEARTBEAT:
            await self._heartbeats.wait_until_free()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()
