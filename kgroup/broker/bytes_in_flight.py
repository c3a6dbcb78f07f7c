"""Bytes under way on a broker's connections: of requests that are coming, of answers not read yet.

Each request and answer is limited by itself; here is what they may take together. Where that is
too much, the connection is cut whose bytes have stood still for the longest time: a client that
sends half a request, or never reads, gives way to those that go on.

Source: Kafka's ``queued.max.request.bytes`` (KIP-72), which mutes connections instead; behind
enough clients that stand still nobody would be read there.
"""

from __future__ import annotations

from typing import final

from kgroup.broker.idle_connections import Client


@final
class BytesInFlight:
    """The bytes of each connection that has many under way, the one that moved last at the end.

    Args:
        most: how many there may be in all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Client, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self._total

    def hold(self, client: Client, size: int) -> None:
        """A connection has so many bytes under way now; others may be cut for it, or itself."""
        self.release(client)
        self._held[client] = size
        self._total += size
        while self._total > self._most:
            stalled = next(iter(self._held))
            self.release(stalled)
            stalled.cut()

    def release(self, client: Client) -> None:
        """A connection has none under way."""
        self._total -= self._held.pop(client, 0)
