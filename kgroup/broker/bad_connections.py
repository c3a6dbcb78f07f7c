"""Logs the connections that end because of what their client sent, at a bounded rate.

A port scanner, a health check that sends a byte, or a client that expects TLS can open thousands a
minute. A few lines say what is wrong; those that are left out are counted.
"""

from __future__ import annotations

import logging
from typing import Final, final

import trio

from kgroup.client.backoff import RateLimit

_LOG: Final = logging.getLogger("kgroup.broker")
_AT_ONCE: Final = 10
_PER_SECOND: Final = 0.1


@final
class BadConnections:
    """The log of one broker's bad connections."""

    def __init__(self) -> None:
        self._limit = RateLimit(_AT_ONCE, _PER_SECOND)
        self._left_out = 0

    def report(self, host: str, reason: str) -> None:
        """Log why a client's connection was closed, unless there were many lines just before."""
        now = trio.current_time()
        if self._limit.wait(now):
            self._left_out += 1
            return
        self._limit.count(now)
        self.report_left_out()
        _LOG.warning("connection from %s closed: %s", host, reason)

    def report_left_out(self) -> None:
        """Log how many connections were closed without a line of their own, if any were."""
        if self._left_out:
            _LOG.warning(
                "%d more connections closed because of what their clients sent; at most a line"
                " every %.0f s says why",
                self._left_out,
                1 / _PER_SECOND,
            )
            self._left_out = 0
