"""A broker made of one function: its stream has the response once a request is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import trio

from kgroup.wire.codec import RequestFrame, decode_request, encode_response
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.wire.scripted import NO_TIME, api_keys

_LENGTH: Final = 4

Answer = Callable[[RequestFrame], bytes | None]
"""The frame body that answers a request; None ends the connection."""


def negotiated(frame: RequestFrame, api: str, version: int) -> bytes:
    """An honest ApiVersions response that allows one version of one API."""
    ranges = {name: (spoken.lowest, spoken.highest) for name, spoken in SUPPORTED_REQUESTS.items()}
    ranges[api] = (version, version)
    fields = {"error_code": 0, "api_keys": api_keys(ranges)}
    more: Any = NO_TIME if frame.version else {}
    return encode_response(frame.api, frame.version, {**fields, **more}, frame.correlation_id)


@final
class AnsweringStream(trio.abc.Stream):
    """One connection; requests are answered as they are sent."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._received = b""
        self._ended = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Take a whole request and answer it."""
        await trio.lowlevel.checkpoint()
        if self._ended:
            raise trio.BrokenResourceError
        answer = self._answer(decode_request(bytes(data), _LENGTH))
        if answer is None:
            self._ended = True
        else:
            self._received += len(answer).to_bytes(_LENGTH, "big") + answer

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return the response; wait for ever if there is none left."""
        await trio.lowlevel.checkpoint()
        if self._received:
            size = len(self._received) if max_bytes is None else max_bytes
            given, self._received = self._received[:size], self._received[size:]
            return given
        if not self._ended:
            await trio.sleep_forever()
        return b""

    async def wait_send_all_might_not_block(self) -> None:
        """Nothing ever blocks."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the stream."""
        self._ended = True
        await trio.lowlevel.checkpoint()
