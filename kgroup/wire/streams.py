"""Byte streams to a broker: how one is opened, and how it is cut into frames.

A frame is four bytes of length, then that many bytes; `kgroup.wire.codec` knows what is in it.
``open_tcp`` opens a PLAINTEXT stream, and TLS wraps it. Everything above takes a
`kgroup.interfaces.StreamOpener` and does not distinguish the two.

Invariant: memory grows with the bytes that have arrived, never with a length that was only
announced.
"""

from __future__ import annotations

import struct
from typing import Final, final

import trio

from kgroup.addresses import host_fault, port_fault
from kgroup.errors import ConnectionLostError, ProtocolError


async def open_tcp(host: str, port: int) -> trio.SocketStream:
    """Open a TCP connection, to whichever of the host's addresses answers first (RFC 8305).

    Small requests leave at once (TCP_NODELAY, which trio sets).

    Raises:
        OSError: the name is unknown, or none of its addresses answers; also for a host or a port
            that cannot be one, as a broker may name them.

    Cancellation: nothing is left open.
    """
    if fault := host_fault(host):
        await trio.lowlevel.checkpoint()
        raise OSError(f"the host {host!r:.80} {fault}")
    if fault := port_fault(port):
        await trio.lowlevel.checkpoint()
        raise OSError(f"the port {port} of {host} {fault}")
    try:
        return await trio.open_tcp_stream(host, port)
    except UnicodeError as error:  # of an international name that IDNA 2008 has not
        raise OSError(f"the host {host!r:.80} cannot be resolved: {error}") from error


MAX_FRAME: Final = 100 * 1024 * 1024
"""The longest frame that is read unless told otherwise, in bytes: ``socket.request.max.bytes``."""

_LENGTH: Final = struct.Struct(">i")
_SHORTEST: Final = 4
_CHUNK: Final = 64 * 1024


@final
class FrameStream:
    """The frames of one stream, in both directions; one task may send and one receive at a time.

    Args:
        stream: carries the bytes.
        peer: who is on the other side, for the texts of errors.
        max_frame: the longest frame that is read, in bytes.
    """

    def __init__(self, stream: trio.abc.Stream, peer: str, max_frame: int = MAX_FRAME) -> None:
        self._stream = stream
        self._peer = peer
        self._max_frame = max_frame
        self._received = bytearray()

    @property
    def unread(self) -> int:
        """How many bytes have arrived that belong to no frame read so far."""
        return len(self._received)

    async def send(self, body: bytes) -> None:
        """Send one frame.

        Raises:
            ConnectionLostError: the stream is broken or closed.

        Cancellation: a part of the frame may have been sent; the stream is useless.
        """
        try:
            await self._stream.send_all(_LENGTH.pack(len(body)) + body)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLostError(f"lost the connection to {self._peer}", sent=True) from error

    async def receive(self, longest: int | None = None) -> bytes:
        """Wait for the next whole frame.

        Args:
            longest: the most bytes of this one, where that is less than of any.

        Raises:
            ConnectionLostError: the stream ended or broke; ``answer_begun`` says whether within
                a frame.
            ProtocolError: the announced length is no frame's, or over the limit.

        Cancellation: what has arrived is kept.
        """
        await self._fill(_LENGTH.size)
        (length,) = _LENGTH.unpack_from(self._received)
        if length < _SHORTEST:
            raise ProtocolError(f"{self._peer} announced a frame of {length} bytes", sent=True)
        limit = self._max_frame if longest is None else min(longest, self._max_frame)
        if length > limit:
            raise ProtocolError(
                f"{self._peer} announced a frame of {length} bytes, the limit is"
                f" {limit}; is this Kafka's port, and is it PLAINTEXT?",
                sent=True,
            )
        end = _LENGTH.size + length
        await self._fill(end)
        body = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return body

    async def _fill(self, size: int) -> None:
        while len(self._received) < size:
            begun = bool(self._received)
            try:
                chunk = await self._stream.receive_some(_CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionLostError(
                    f"lost the connection to {self._peer}", sent=True, answer_begun=begun
                ) from error
            if not chunk:
                where = f"after {len(self._received)} bytes of an answer" if begun else "cleanly"
                raise ConnectionLostError(
                    f"{self._peer} closed the connection {where}", sent=True, answer_begun=begun
                )
            self._received += chunk
