"""A broker of a few lines: each connection is one function of the test, on memory streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, final

import trio
import trio.testing

from kgroup.errors import ConnectionLostError
from kgroup.wire.byte_streams import FrameStream
from kgroup.wire.codec import RequestFrame, decode_request, encode_response
from kgroup.wire.versions import API_KEYS, SUPPORTED_REQUESTS

NO_TIME: Mapping[str, Any] = {"throttle_time": timedelta(0)}
RANGES: Mapping[str, tuple[int, int]] = {
    api: (supported.lowest, supported.highest) for api, supported in SUPPORTED_REQUESTS.items()
}


@final
class Peer:
    """The broker's end of one connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.frames = FrameStream(stream, "the client")

    async def request(self) -> RequestFrame:
        """Wait for a request."""
        return decode_request(await self.frames.receive())

    async def answer(self, request: RequestFrame, **fields: Any) -> None:
        """Answer it without an error."""
        await self.frames.send(
            encode_response(request.api, request.version, fields, request.correlation_id)
        )

    async def negotiate(self, ranges: Mapping[str, tuple[int, int]] = RANGES) -> RequestFrame:
        """Answer the client's ApiVersions with these ranges."""
        request = await self.request()
        assert request.api == "api_versions"
        fields = {"error_code": 0, "api_keys": api_keys(ranges)}
        await self.answer(request, **fields, **(NO_TIME if request.version else {}))
        return request

    async def heartbeats(self) -> None:
        """Negotiate, then answer every request as a heartbeat without an error."""
        await self.negotiate()
        while True:
            await self.answer(await self.request(), error_code=0, **NO_TIME)

    async def rest(self) -> None:
        """Answer nothing more until the client closes the connection."""
        while await self.stream.receive_some():
            pass


def api_keys(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Ranges as in an ApiVersions response."""
    return [
        {"api_key": API_KEYS[api], "min_version": low, "max_version": high}
        for api, (low, high) in ranges.items()
    ]


@final
class ScriptedBroker:
    """Opens memory streams; the n-th connection is served by the n-th script, then refused."""

    def __init__(
        self, nursery: trio.Nursery, *scripts: Callable[[Peer], Awaitable[object]]
    ) -> None:
        self._nursery = nursery
        self._scripts = list(scripts)
        self.opened = 0
        self.streams: list[trio.abc.Stream] = []

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        """A `StreamOpener`."""
        await trio.lowlevel.checkpoint()
        if self.opened == len(self._scripts):
            raise ConnectionRefusedError(f"no script for {host}:{port}")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, self._scripts[self.opened], theirs)
        self.opened += 1
        self.streams.append(ours)
        return ours

    async def _serve(
        self, script: Callable[[Peer], Awaitable[object]], stream: trio.abc.Stream
    ) -> None:
        async with stream:
            try:
                await script(Peer(stream))
            except ConnectionLostError:
                return  # the client hung up
