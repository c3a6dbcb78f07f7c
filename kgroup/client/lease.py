"""The lease: until when the coordinator cannot have given this member's partitions away.

Measured by the member's own clock, from the sending of requests, so that it can only be too
careful. It ends at the earlier of two times:

- the last request that renewed the session and was answered well was sent, plus the session
  time-out: before that no coordinator evicts a silent member;
- the last heartbeat that was answered without an error was sent, plus the rebalance time-out:
  before that no rebalance that began later has gone on without this member.

Source: Kafka's ``ClassicGroup`` timers; OffsetCommit renews a session, in Stable and while
preparing, but tells nothing of a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from kgroup.interfaces import Clock


@final
class Lease:
    """One generation's lease. Without I/O; `on_confirm` is called when it is longer again."""

    def __init__(
        self,
        clock: Clock,
        *,
        session_timeout: float,
        rebalance_timeout: float,
        joined_at: float,
        on_confirm: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._renewed = joined_at
        self._confirmed = joined_at
        self._on_confirm = on_confirm

    def confirm(self, sent_at: float) -> None:
        """A heartbeat sent at this time was answered without an error."""
        self._confirmed = max(self._confirmed, sent_at)
        self.extend(sent_at)

    def extend(self, sent_at: float) -> None:
        """A request sent at this time renewed the session, and told nothing of a rebalance."""
        self._renewed = max(self._renewed, sent_at)
        self._on_confirm()

    @property
    def left(self) -> float:
        """Seconds until it ends; 0 or less when it is over."""
        ends = min(self._renewed + self._session_timeout, self._confirmed + self._rebalance_timeout)
        return ends - self._clock.now()

    @property
    def unconfirmed_for(self) -> float:
        """Seconds since the last heartbeat that was answered without an error was sent."""
        return self._clock.now() - self._confirmed
