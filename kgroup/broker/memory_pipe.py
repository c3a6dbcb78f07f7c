"""A connection in memory: two ends without sockets, and without a limit of bytes in flight.

trio's ``memory_stream_pair`` does the same, but yields four times as often, to find mistakes in
tests; a simulated group exchanges so many small messages that this would cost too much.

INVARIANTS: bytes arrive in order; bytes sent before an end closed can still be read; only the
reader of an empty end ever waits.
"""

from __future__ import annotations

import operator
from typing import final

import trio


@final
class _Way:
    """One direction: the bytes that are sent and not read yet, and the task that waits for them."""

    __slots__ = ("arrived", "reader", "reader_closed", "reading", "sender_closed", "sending")

    def __init__(self) -> None:
        self.arrived = bytearray()
        self.reader: trio.lowlevel.Task | None = None
        self.reader_closed = False
        self.sender_closed = False
        self.sending = self.reading = False

    def wake(self) -> None:
        """Wake the waiting reader, if there is one."""
        reader, self.reader = self.reader, None
        if reader is not None:
            trio.lowlevel.reschedule(reader)

    async def wait(self) -> None:
        """Wait for ``wake``."""
        self.reader = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self.reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


@final
class PipeEnd(trio.abc.HalfCloseableStream):
    """One end. Made by ``pipe``."""

    def __init__(self, incoming: _Way, outgoing: _Way) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See ``trio.abc.SendStream``.

        Raises:
            trio.ClosedResourceError: this end is closed.
            trio.BrokenResourceError: the other end is closed.
            trio.BusyResourceError: another task sends on it.

        Cancellation: nothing was sent.
        """
        await self.wait_send_all_might_not_block()
        if data:
            self._outgoing.arrived += data
            self._outgoing.wake()

    async def wait_send_all_might_not_block(self) -> None:
        """See ``trio.abc.SendStream``; it never blocks. Raises what ``send_all`` does."""
        way = self._outgoing
        if way.sending:
            raise trio.BusyResourceError("another task sends on this connection")
        way.sending = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            way.sending = False
        if way.sender_closed:
            raise trio.ClosedResourceError("this end of the connection was closed")
        if way.reader_closed:
            raise trio.BrokenResourceError("the other end of the connection was closed")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ``trio.abc.ReceiveStream``.

        Raises:
            trio.ClosedResourceError: this end is closed.
            trio.BusyResourceError: another task reads from it.
            ValueError: ``max_bytes`` is less than 1.

        Cancellation: nothing is lost.
        """
        way = self._incoming
        if max_bytes is not None and operator.index(max_bytes) < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it must be 1 or more")
        if way.reading:
            raise trio.BusyResourceError("another task reads from this connection")
        way.reading = True
        try:
            if way.arrived or way.sender_closed or way.reader_closed:
                await trio.lowlevel.checkpoint()
            else:
                await way.wait()
        finally:
            way.reading = False
        if way.reader_closed:
            raise trio.ClosedResourceError("this end of the connection was closed")
        taken = bytes(way.arrived if max_bytes is None else way.arrived[:max_bytes])
        del way.arrived[: len(taken)]
        return taken

    async def send_eof(self) -> None:
        """See ``trio.abc.HalfCloseableStream``; a second call does nothing."""
        if not self._outgoing.sender_closed:
            await self.wait_send_all_might_not_block()
        self._end()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """See ``trio.abc.AsyncResource``."""
        self._end()
        self._incoming.reader_closed = True
        self._incoming.arrived.clear()
        self._incoming.wake()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        self._outgoing.sender_closed = True
        self._outgoing.wake()


def pipe() -> tuple[PipeEnd, PipeEnd]:
    """Make two connected ends."""
    there, back = _Way(), _Way()
    return PipeEnd(back, there), PipeEnd(there, back)
