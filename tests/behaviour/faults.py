"""Separates a member from its coordinator by holding back its heartbeats."""

from __future__ import annotations

import struct
from typing import Final, final

import trio

from kgroup.wire.byte_streams import open_tcp

HEARTBEAT: Final = 12
"""The API key."""


@final
class Heartbeats:
    """Opens connections on which heartbeats, and nothing else, can be held back."""

    def __init__(self) -> None:
        self._gate = trio.Event()
        self._gate.set()

    def hold(self) -> None:
        """Hold heartbeats back from now on."""
        self._gate = trio.Event()

    def release(self) -> None:
        """Stop holding heartbeats back."""
        self._gate.set()

    async def wait_until_released(self) -> None:
        """Wait while heartbeats are held back."""
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
            await self._heartbeats.wait_until_released()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()
