"""Byte streams to a broker: how one is opened, and how it is cut into frames.

A frame is four bytes of length, then that many bytes; `kgroup.wire.codec` knows what is in it.
``open_tcp`` opens a TCP stream, and `kgroup.wire.tls` puts TLS on it. Everything above takes a
`kgroup.interfaces.StreamOpener`, so that tests can replace the network by memory.

INVARIANT: memory grows with the bytes that have arrived, never with a length that was only
announced.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
from contextlib import suppress
from typing import Final, final

import trio

from kgroup.addresses import host_fault, port_fault
from kgroup.errors import AuthenticationError, ConnectionLostError, ProtocolError
from kgroup.wire.host_addresses import failed_addresses, open_in_order


async def open_tcp(host: str, port: int) -> trio.SocketStream:
    """Open a TCP connection to the first of the host's addresses that accepts it (RFC 8305).

    Those on which a connection has failed later, before its first request, are tried last.

    Small requests are sent at once (TCP_NODELAY, which trio sets).

    Raises:
        OSError: the host is unknown, or none of its addresses accepts; also if the host or port,
            which may come from a broker, is invalid, or no thread can be started to look it up.

    Cancellation: nothing is left open.
    """
    if fault := host_fault(host):
        await trio.lowlevel.checkpoint()
        raise OSError(f"the host {host!r:.80} {fault}")
    if fault := port_fault(port):
        await trio.lowlevel.checkpoint()
        raise OSError(f"the port {port} of {host} {fault}")
    try:
        if (host, port) in failed_addresses():
            return await open_in_order(host, port)
        return await trio.open_tcp_stream(host, port)
    except UnicodeError as error:  # an international name that IDNA 2008 does not allow
        raise OSError(f"the host {host!r:.80} cannot be resolved: {error}") from error
    except RuntimeError as error:
        # Names are looked up in threads: none can start at the system's limit, or as Python ends.
        if "new thread" not in str(error):
            raise
        raise OSError(f"the host {host!r:.80} cannot be looked up: {error}") from error


def discard_unsent(stream: trio.abc.Stream) -> None:
    """Let closing a stream discard what the peer has not received yet, where it is TCP's.

    By default the operating system sends it on for minutes after the close.
    """
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):  # the socket may be closed already
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)


MAX_FRAME: Final = 100 * 1024 * 1024
"""The default size of the largest frame, in bytes: that of ``socket.request.max.bytes``."""

_LENGTH: Final = struct.Struct(">i")
_SHORTEST: Final = 4
_NO_LINGERING: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
"""``struct linger``: on, for 0 seconds. The connection is reset then."""
_TLS_ALERT: Final = re.compile(rb"\x15\x03[\x00-\x04]\x00")
"""How the answer to the first request begins if the port expects TLS: an alert record, of 2 bytes.
Read as a length, that is 352 MB; no response is as large as that."""
_CHUNK: Final = 64 * 1024


@final
class FrameStream:
    """Sends and receives frames on a stream; one task may send and one receive at a time.

    Args:
        stream: carries the bytes.
        peer: the name of the other side in errors.
        max_frame: the size of the largest frame, in bytes.
    """

    def __init__(self, stream: trio.abc.Stream, peer: str, max_frame: int = MAX_FRAME) -> None:
        self._stream = stream
        self._peer = peer
        self._max_frame = max_frame
        self._received = bytearray()
        self._begun = False
        """Whether a frame has arrived, so that the other side does not expect TLS."""

    @property
    def unread(self) -> int:
        """The number of bytes that have arrived and belong to no frame read so far."""
        return len(self._received)

    @property
    def beginning(self) -> bytes:
        """The first few of those bytes, which show what kind of program sent them."""
        return bytes(self._received[: _LENGTH.size])

    def discard(self) -> None:
        """Release what has arrived, apart from its beginning: nothing more is read.

        A response of many megabytes may have been cut in its middle.
        """
        self._received = self._received[: _LENGTH.size]

    async def send(self, body: bytes) -> None:
        """Send one frame.

        Raises:
            ConnectionLostError: the stream is broken or closed.

        Cancellation: part of the frame may have been sent; the stream can no longer be used.
        """
        try:
            await self._stream.send_all(_LENGTH.pack(len(body)) + body)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLostError(f"lost the connection to {self._peer}", sent=True) from error

    async def receive(self, longest: int | None = None) -> bytes:
        """Wait for the next complete frame.

        Args:
            longest: the largest size of this one, if that is less than ``max_frame``.

        Raises:
            ConnectionLostError: the stream ended or broke; ``answer_begun`` says whether that was
                within a frame.
            ProtocolError: the announced length is too small for a frame, or over the limit.
            AuthenticationError: in place of the first frame, the other side says that it expects
                TLS.

        Cancellation: bytes that have arrived are kept.
        """
        await self._fill(_LENGTH.size)
        if not self._begun and _TLS_ALERT.match(self._received):
            raise AuthenticationError.in_tls(
                f"{self._peer} answered with a TLS alert: its port expects TLS; use protocol SSL or"
                " SASL_SSL, or the port of a listener without TLS"
            )
        (length,) = _LENGTH.unpack_from(self._received)
        if length < _SHORTEST:
            raise ProtocolError(f"{self._peer} announced a frame of {length} bytes", sent=True)
        limit = self._max_frame if longest is None else min(longest, self._max_frame)
        if length > limit:
            raise ProtocolError(
                f"{self._peer} announced a frame of {length} bytes, the limit is {limit}", sent=True
            )
        end = _LENGTH.size + length
        await self._fill(end)
        body = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        self._begun = True
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
                where = f"after {len(self._received)} bytes of a response" if begun else "cleanly"
                raise ConnectionLostError(
                    f"{self._peer} closed the connection {where}", sent=True, answer_begun=begun
                )
            self._received += chunk
