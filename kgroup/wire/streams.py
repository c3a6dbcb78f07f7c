"""Ways to open a byte stream to a broker. PLAINTEXT is here; TLS wraps what it opens.

Everything above takes a `kgroup.protocols.StreamOpener` and never asks which one it is.
"""

from __future__ import annotations

import trio


async def open_tcp(host: str, port: int) -> trio.SocketStream:
    """Open a TCP connection, to whichever of the host's addresses answers first (RFC 8305).

    Small requests leave at once (TCP_NODELAY, which trio sets).

    Raises:
        OSError: the name is unknown, or none of its addresses answers.

    Cancellation: nothing is left open.
    """
    return await trio.open_tcp_stream(host, port)
