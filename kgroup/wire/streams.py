"""Ways to open a byte stream to a broker. PLAINTEXT is here; TLS wraps what it opens.

Everything above takes a `kgroup.interfaces.StreamOpener` and never asks which one it is.
"""

from __future__ import annotations

import trio

from kgroup.addresses import host_fault, port_fault


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
