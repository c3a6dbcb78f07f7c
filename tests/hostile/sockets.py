"""Faults below the frames: a request or a response is cut, delayed, repeated, or is not Kafka's.

Each happens to one kind of request of a whole group, for a while. The connection may not be used
again after it, except where nothing is wrong but the speed. None of it ends the group.
"""

from __future__ import annotations

import enum
import struct
from random import Random
from typing import Final, final

import trio

from kgroup.broker import EmbeddedBroker
from kgroup.wire.codec import decode_request
from tests.hostile.group import Wire

_LENGTH: Final = struct.Struct(">i")
_LENGTHS: Final = (0, -1, 1, 3, 2**31 - 1, -(2**31), 100 * 1024 * 1024 + 1)
_NOISE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x16\x03\x03\x00\x7a\x02",
    bytes(64),
)
"""What other programs, and TLS, send."""


@final
class Fault(enum.Enum):
    """What happens to a request or its response."""

    REQUEST_CUT = "a request that was cut"
    REQUEST_STUCK = "a request that did not get through"
    CUT = "a response that was cut"
    STUCK = "a response that did not end"
    DRIP = "a response that came slowly"
    TWICE = "a response that came twice"
    OTHER_ID = "a response with another correlation id"
    LENGTH = "a length that is wrong"
    NOISE = "noise in place of a response"


@final
class Sockets(Wire):
    """Opens streams to a broker, and disturbs those on which one kind of request is sent."""

    ends_groups = False

    def __init__(self, broker: EmbeddedBroker, api: str, random: Random, rate: float) -> None:
        super().__init__(broker, api, random, rate)
        self._fault = random.choice(list(Fault))
        # Where nothing but ApiVersions is answered, an alert of TLS says that TLS is expected.
        self._noise = _NOISE[:1] if api == "api_versions" else _NOISE

    def connection(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The client's end of a connection."""
        return _Socket(stream, self)

    def fault_of(self, api: str) -> Fault | None:
        """What happens to this request."""
        self.requests += 1
        if not self.hostile or api != self._api or self._random.random() > self._rate:
            return None
        self.changes.append(self._fault.value)
        return self._fault

    def cut(self, data: bytes) -> bytes:
        """Some of the first bytes, but not all."""
        return data[: self._random.randrange(len(data))]

    def disturbed(self, fault: Fault, frame: bytes) -> bytes:
        """The bytes that arrive in place of a response."""
        if fault is Fault.TWICE:
            return frame * 2
        if fault is Fault.OTHER_ID:
            (number,) = _LENGTH.unpack_from(frame, 4)
            return frame[:4] + _LENGTH.pack(number ^ 1) + frame[8:]
        if fault is Fault.LENGTH:
            return _LENGTH.pack(self._random.choice(_LENGTHS)) + frame[4:]
        if fault is Fault.NOISE:
            return self._random.choice(self._noise)
        return self.cut(frame)

    def speed(self) -> float:
        """Seconds between two bytes."""
        return self._random.choice((0.001, 0.1, 5.0))


@final
class _Socket(trio.abc.Stream):
    """One connection."""

    def __init__(self, inner: trio.abc.Stream, sockets: Sockets) -> None:
        self._inner = inner
        self._sockets = sockets
        self._fault: Fault | None = None
        self._arrived = b""
        self._over = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        request = bytes(data)
        if self._fault not in (None, Fault.DRIP):
            self._sockets.reused = self._fault.value
        self._fault = self._sockets.fault_of(decode_request(request, 4).api)
        if self._fault not in (Fault.REQUEST_CUT, Fault.REQUEST_STUCK):
            await self._inner.send_all(request)
            return
        if some := self._sockets.cut(request):
            await self._inner.send_all(some)
        if self._fault is Fault.REQUEST_STUCK:
            await trio.sleep_forever()
        await trio.aclose_forcefully(self._inner)
        raise trio.BrokenResourceError

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._fault is None:
            return await self._inner.receive_some(max_bytes)
        if not self._arrived and not self._over:
            self._arrived = await self._response(self._fault)
            self._over = True
        if self._fault is Fault.DRIP and self._arrived:
            await trio.sleep(self._sockets.speed())
            first, self._arrived = self._arrived[:1], self._arrived[1:]
            self._over = bool(self._arrived)
            return first
        await trio.lowlevel.checkpoint()
        some, self._arrived = self._arrived, b""
        if some or self._fault is Fault.CUT:
            return some
        await trio.sleep_forever()
        raise AssertionError

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _response(self, fault: Fault) -> bytes:
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + _LENGTH.unpack_from(frame)[0]:
            more = await self._inner.receive_some()
            if not more:
                return b""
            frame += bytes(more)
        return frame if fault is Fault.DRIP else self._sockets.disturbed(fault, frame)
