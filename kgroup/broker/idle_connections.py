"""Closes the connections of clients that send no request for too long.

A client is idle from the end of one request until the next one has arrived as a whole. While its
request is being served it is not idle, however long that takes. So a parked Join or Fetch keeps its
connection, and a request that never ends does not.

Source: Kafka's ``Selector.IdleExpiryManager``.
"""

from __future__ import annotations

from typing import Final, Protocol, final

import trio

from kgroup.broker.purgatory import Alarm


class Client(Protocol):
    """A connection that can be cut."""

    def cut(self) -> None:
        """End it now."""
        ...


@final
class IdleClients:
    """The idle connections of a broker, the one that has been idle for the longest time first.

    Attributes:
        alarm: closes them.

    Args:
        most: seconds that a connection may be idle; None for no limit.
    """

    def __init__(self, most: float | None) -> None:
        self._most = most
        self._since: dict[Client, float] = {}
        self.alarm: Final = Alarm(self._next_end, self._end)

    def touch(self, client: Client) -> None:
        """Count a client's idle time from now on."""
        if self._most is None:
            return
        self._since.pop(client, None)
        self._since[client] = trio.current_time()
        if len(self._since) == 1:
            self.alarm.reschedule()

    def forget(self, client: Client) -> None:
        """Stop counting: the client is not idle, or its connection has ended."""
        self._since.pop(client, None)

    def longest(self) -> Client | None:
        """The client that has been idle for the longest time, or None."""
        return next(iter(self._since), None)

    def _next_end(self) -> float | None:
        if self._most is None or not self._since:
            return None
        return next(iter(self._since.values())) + self._most

    def _end(self) -> None:
        now = trio.current_time()
        while (end := self._next_end()) is not None and end <= now:
            client = next(iter(self._since))
            del self._since[client]
            client.cut()
