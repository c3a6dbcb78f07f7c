"""``LostBrokers``: notices that librdkafka has lost all its brokers for good. Without I/O.

librdkafka forgets the brokers that a Metadata response does not list, those of
``bootstrap.servers`` included. A broker that is the last one of its cluster to stop lists none at
all. librdkafka then begins again with ``bootstrap.servers``; but if it does so a moment too early,
it forgets them once more, and then it never connects to anything again, without a word. So a
Consumer that has had brokers and has none any more is replaced.

A Consumer that merely waits for its brokers to come back looks the same, and is replaced too: the
new one waits as well as the old one. It is not replaced again before it has had a broker.

Source: librdkafka 2.16's ``rd_kafka_metadata_decommission_unavailable_brokers`` and
``rd_kafka_rebootstrap_tmr_cb``.
"""

from __future__ import annotations

from typing import Final, final

PATIENCE: Final = 3.0
"""Seconds without any broker after which a Consumer is replaced."""
INTERVAL: Final = 1.0
"""Seconds between two checks, once an error says that brokers may be lost."""
ALERT: Final = 10.0
"""Seconds after such an error for which these checks continue: brokers can be lost only then."""
QUIET: Final = 10.0
"""Seconds without records after which it is checked whether there is a broker at all."""


@final
class LostBrokers:
    """Says when to check whether a Consumer has a broker, and when to replace it.

    Args:
        now: the present time in seconds.
    """

    def __init__(self, now: float) -> None:
        self._connected = False
        self._alert_until = now
        self._next_check = now + QUIET
        self._lost_at: float | None = None

    def suspect(self, now: float) -> None:
        """An error says that a broker, or all of them, cannot be reached."""
        self._alert_until = now + ALERT
        if self._lost_at is None:
            self._next_check = min(self._next_check, now + INTERVAL)

    def connected(self, now: float) -> None:
        """Records have arrived, or a request was sent: there is a broker."""
        self._connected = True
        self._lost_at = None
        self._next_check = now + (INTERVAL if now < self._alert_until else QUIET)

    def must_check(self, now: float) -> bool:
        """Whether to find out now if there is a broker."""
        return now >= self._next_check

    def must_replace(self, now: float) -> bool:
        """There is no broker; return whether to replace the Consumer."""
        self._next_check = now + INTERVAL
        if self._lost_at is None:
            self._lost_at = now
        return self._connected and now - self._lost_at >= PATIENCE
