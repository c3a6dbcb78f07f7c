"""Which of a host's addresses a connection is opened to: one that has failed comes last.

A name may have several addresses, as a load balancer's or one of all brokers often has. The one
that accepts first is used, and what is wrong with it may show only later: a broker is frozen, a
proxy has nothing behind it, a certificate has expired. ``Connection.open`` reports that here, and
the next connection to the name tries the other addresses first.

The members of an event loop share what is remembered. It changes nothing but the order.

Source: Java's ``client.dns.lookup=use_all_dns_ips``; RFC 8305 for the head starts.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, final

import trio

from kgroup.errors import BrokerError, TransportError
from kgroup.loop_local import loop_local

HEAD_START: Final = 0.25
"""Seconds after which the next address is tried too, as in trio."""
HEAD_START_BEFORE_FAILED: Final = 1.0
"""Seconds after which one that has failed is tried too."""
MOST_HOSTS: Final = 1000
"""The most hosts of which failures are remembered; brokers may send any number of names."""

Host = tuple[str, int]


@final
class FailedAddresses:
    """The addresses on which connections have failed, by host and port."""

    def __init__(self) -> None:
        self._failed: dict[Host, dict[str, int]] = {}
        """For each address a number; that of the last failure is the greatest."""
        self._failures = count(1)

    def __contains__(self, host: Host) -> bool:
        return host in self._failed

    def add(self, host: Host, address: str) -> None:
        """A connection to this address has failed."""
        failed = self._failed.pop(host, {})
        failed[address] = next(self._failures)
        self._failed[host] = failed
        if len(self._failed) > MOST_HOSTS:
            del self._failed[next(iter(self._failed))]

    def discard(self, host: Host, address: str) -> None:
        """A connection to this address works."""
        failed = self._failed.get(host, {})
        failed.pop(address, None)
        if not failed:
            self._failed.pop(host, None)

    def in_order(self, host: Host, addresses: list[str]) -> list[tuple[str, bool]]:
        """The addresses in the order to try them, and whether each has failed.

        The failures of addresses that the host no longer has are forgotten.
        """
        failed = self._failed.get(host, {})
        for gone in failed.keys() - addresses:
            self.discard(host, gone)
        found = dict.fromkeys(addresses)
        order = sorted(found, key=lambda address: failed.get(address, -math.inf))
        return [(address, address in failed) for address in order]


_FAILED: Final = trio.lowlevel.RunVar[FailedAddresses]("kgroup_failed_addresses")


def failed_addresses() -> FailedAddresses:
    """Those of the event loop that runs here."""
    return loop_local(_FAILED, FailedAddresses)


@final
class Peer:
    """The address to which a connection was opened, if it is one of a name's.

    Args:
        host: what was connected to.
        port: its port.
        stream: the connection; nothing is remembered of one that is not TCP's.
    """

    def __init__(self, host: str, port: int, stream: trio.abc.Stream) -> None:
        self._host = (host, port)
        self._address = _address_of(stream) or host

    @contextmanager
    def failing(self, deadline: float) -> Iterator[None]:
        """Remember the address if the block raises what may be its fault, or the time is over.

        A cancellation before the deadline says nothing about it.
        """
        try:
            yield
        except (TransportError, BrokerError):
            self.failed()
            raise
        except trio.Cancelled:
            if trio.current_time() >= deadline:
                self.failed()
            raise

    def works(self) -> None:
        """Forget that it has failed."""
        failed_addresses().discard(self._host, self._address)

    def failed(self) -> None:
        """Remember that the connection has failed."""
        if self._address != self._host[0]:
            failed_addresses().add(self._host, self._address)


def _address_of(stream: trio.abc.Stream) -> str | None:
    """The other side's IP address, if it is a TCP connection that has not been reset already."""
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):
            address, _, *zone = stream.socket.getpeername()
            # Without its zone, a link-local address cannot be connected to.
            return None if any(zone) else str(address)
    return None


async def open_in_order(host: str, port: int) -> trio.SocketStream:
    """Connect to the first of a host's addresses that accepts; those that have failed come last.

    Raises:
        OSError: the host is unknown, or none of its addresses accepts.

    Cancellation: nothing is left open.
    """
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if any(any(zone) for *_, (_, _, *zone) in found):
        return await trio.open_tcp_stream(
            host, port
        )  # a link-local address is none without its zone
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    order = failed_addresses().in_order((host, port), addresses)
    opened: list[trio.SocketStream] = []
    errors: list[OSError] = []

    async def attempt(address: str, over: trio.Event) -> None:
        try:
            opened.append(await trio.open_tcp_stream(address, port))
            race.cancel_scope.cancel()
        except OSError as error:
            errors.append(error)
            over.set()

    try:
        async with trio.open_nursery() as race:
            for (address, _), following in zip(order, [*order[1:], ("", True)], strict=True):
                over = trio.Event()
                race.start_soon(attempt, address, over)
                with trio.move_on_after(HEAD_START_BEFORE_FAILED if following[1] else HEAD_START):
                    await over.wait()
        if opened:
            return opened.pop(0)
    finally:
        for stream in opened:
            await trio.aclose_forcefully(stream)
    causes = ExceptionGroup(f"no address of {host} accepts", errors)
    raise OSError(f"no address of {host} accepts connections to port {port}") from causes
