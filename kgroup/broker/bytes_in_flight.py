"""The bytes in flight on a broker's connections: unfinished requests, and responses not read yet.

Each request and response has a limit of its own; this is the limit for all of them together. When
it is exceeded, the connection whose bytes have not moved for the longest time is cut. So a client
that sends half a request, or never reads, makes room for clients that make progress.

Source: Kafka's ``queued.max.request.bytes`` (KIP-72). Kafka mutes connections instead, so that
enough stalled clients can keep all others from being read.
"""

from __future__ import annotations

from typing import final

from kgroup.broker.idle_connections import Client


@final
class BytesInFlight:
    """The bytes in flight of each connection that has many; the one that moved last is at the end.

    Args:
        most: the most bytes of all connections together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Client, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """The bytes in flight of all connections."""
        return self._total

    def hold(self, client: Client, size: int) -> None:
        """Set the bytes of a connection; this may cut other connections, or this one."""
        self.release(client)
        self._held[client] = size
        self._total += size
        while self._total > self._most:
            stalled = next(iter(self._held))
            self.release(stalled)
            stalled.cut()

    def release(self, client: Client) -> None:
        """Set the bytes of a connection to none."""
        self._total -= self._held.pop(client, 0)
