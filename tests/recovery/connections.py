"""Connections of a client to a broker in memory: they record requests, and can fail.

A fault affects every request of its API until kgroup has noticed a failure: a connection that
was found broken is replaced once without a report.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Any, Final, final

import attrs
import trio

from kgroup.broker import EmbeddedBroker
from kgroup.wire.codec import decode_request

_LENGTH: Final = 4
#: A frame of ten bytes whose correlation id belongs to no request.
_GARBAGE: Final = struct.pack(">iiiH", 10, -77, 0, 0)


@final
class Trouble(enum.Enum):
    """What can happen to a request on its way."""

    CUT_BEFORE = "the connection ends before the request has arrived"
    CUT_AFTER = "the connection ends after the request was handled"
    SILENT_BEFORE = "the request never arrives, and the connection stays"
    SILENT_AFTER = "the answer never arrives, and the connection stays"
    GARBAGE = "something other than an answer arrives"


_ARRIVES: Final = {Trouble.CUT_AFTER, Trouble.SILENT_AFTER}


@final
@attrs.frozen
class Sent:
    """A request that the client sent."""

    at: float
    api: str
    request: Any
    connection: int
    troubled: bool = False

    @property
    def member_id(self) -> str | None:
        """The member id in the request, if it has one."""
        members = getattr(self.request, "members", None)
        if members:
            return str(members[0].member_id)
        return getattr(self.request, "member_id", None)


@final
@attrs.define(eq=False)
class _Plan:
    trouble: Trouble
    api: str
    while_true: Callable[[], bool]


@final
class Connections:
    """Opens connections to one broker, records their requests, and makes them fail."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._plans: list[_Plan] = []
        self._opened = 0
        self._began = trio.current_time()
        self.sent: list[Sent] = []

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        """A ``StreamOpener``."""
        stream = await self._broker.open_stream(host, port)
        self._opened += 1
        return _Connection(stream, self, self._opened)

    def trouble(self, trouble: Trouble, api: str, while_true: Callable[[], bool]) -> None:
        """Let this happen to the API's requests for as long as ``while_true()``."""
        self._plans.append(_Plan(trouble, api, while_true))

    def note(self, frame: bytes, connection: int) -> Trouble | None:
        """Record a request, and return what happens to it."""
        decoded = decode_request(frame[_LENGTH:])
        now = trio.current_time() - self._began
        planned = (plan for plan in self._plans if plan.api == decoded.api and plan.while_true())
        trouble = next((plan.trouble for plan in planned), None)
        self.sent.append(Sent(now, decoded.api, decoded.entity, connection, trouble is not None))
        return trouble


@final
class _Connection(trio.abc.Stream):
    """One connection."""

    def __init__(self, inner: trio.abc.Stream, connections: Connections, number: int) -> None:
        self._inner = inner
        self._connections = connections
        self._number = number
        self._trouble: Trouble | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._trouble = self._connections.note(bytes(data), self._number)
        if self._trouble is Trouble.CUT_BEFORE:
            await trio.aclose_forcefully(self._inner)
            raise trio.BrokenResourceError
        if self._trouble is None or self._trouble in _ARRIVES:
            await self._inner.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._trouble is None:
            return await self._inner.receive_some(max_bytes)
        if self._trouble is Trouble.GARBAGE:
            self._trouble = None
            await trio.lowlevel.checkpoint()
            return _GARBAGE
        if self._trouble in _ARRIVES:
            await self._inner.receive_some(max_bytes)
        if self._trouble is Trouble.CUT_AFTER:
            await trio.aclose_forcefully(self._inner)
            raise trio.BrokenResourceError
        await trio.sleep_forever()
        raise AssertionError

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()
