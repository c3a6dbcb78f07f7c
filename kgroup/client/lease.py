"""The lease: until when the coordinator cannot have given this member's partitions away.

Theory of operation
===================

By itself, a coordinator assigns a member's partitions to another member in two ways only. It evicts
a member from which it has heard nothing for the session time-out; or it completes a rebalance
without a member that has not joined within the rebalance time-out. It answers no question about
either in advance: a member that was suspended (SIGSTOP, a paused virtual machine, a closed laptop)
finds out with its next request, after its handler has already processed records that another member
may be reading. So each member measures for itself how long it is safe, and stops by itself.

The lease is the earlier of two times:

- the sending of the last request that renewed the session and was answered without an error, plus
  the session time-out. Until then no coordinator evicts a silent member;
- the sending of the last *heartbeat* that was answered without an error, plus the rebalance
  time-out. Such an answer says that no rebalance was waiting for this member's JoinGroup, and one
  that began later waits for it that long.

Both count from the sending and not from the answer. The coordinator restarted its timer at some
moment between the two, so that the earlier one is safe. Past the lease, streams hand out nothing
and no commit is sent, until a heartbeat confirms the membership or the generation is lost.
This module only measures. ``RecordStream`` (``kgroup.generation.record_stream``), ``LeasedBatches``
(``kgroup.generation.leased_batches``) and ``Committer`` (``kgroup.generation.commits``) act on it.

**One number.** `Lease.ends` is computed when a request renews the lease, and not when it is read,
because a program that goes through a batch reads it before each record. When the generation is
over, `Lease.revoke` sets it to minus infinity, so that one comparison covers the lease and the
generation. Only the event loop writes it. Any thread may read it, and sees the value either before
or after a change; both are safe.

**Traps.**

- The clock must count the time in which the machine was suspended, and must not be trio's: after a
  suspension the event loop resumes as if no time had passed.
- A commit (OffsetCommit) renews the session, in a stable group and in one that prepares a
  rebalance. But it succeeds during a rebalance too, so it confirms nothing: `extend` moves the
  first of the two times only. A member that commits busily and whose heartbeats fail still stops.
- The lease begins when JoinGroup is *sent*. The coordinator may have parked that request for the
  whole rebalance, so the lease may be over when the answer arrives; then the generation waits for a
  heartbeat before it is handed over.
- A coordinator that loads its groups answers heartbeats without an error, and knows no member.
  An answer that arrives within the lease may still extend it: the member has not been evicted,
  and its session timeout starts again when the group is loaded. After the lease, the coordinator
  may have evicted the member before the loading began. Only a request that a loading coordinator
  refuses can show that; see ``kgroup.watchers.heartbeat``.
- The lease covers what a coordinator does by itself. Another process that joins with the same
  ``group_instance_id``, and an administrator who removes the member, cause its partitions to be
  reassigned at once. No clock can tell in advance; the next heartbeat reports it.
- A lease that is over is not the end of the generation. The coordinator may have been away for all
  members alike; only its refusal, or the heartbeat loop, ends the generation.

Source: Kafka's ``ClassicGroup`` timers; ``OffsetMetadataManager.validateOffsetCommit`` renews the
session.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

from kgroup.interfaces import Clock


@final
class Lease:
    """One generation's lease. Without I/O.

    Args:
        clock: counts suspended time.
        session_timeout: the group's, in seconds.
        rebalance_timeout: the group's, in seconds.
        joined_at: when JoinGroup was sent.
        on_confirm: is called whenever the lease was extended.

    Attributes:
        ends: when it is over, by the clock; minus infinity once it was revoked.
        round_trip: the seconds after which the last heartbeat was answered.
    """

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
        self._revoked = False
        self.round_trip = 0.0
        self.ends = self._end()

    def confirm(self, sent_at: float) -> None:
        """A heartbeat that was sent at this time was answered without an error."""
        self._confirmed = max(self._confirmed, sent_at)
        self.round_trip = max(0.0, self._clock.now() - sent_at)
        self.extend(sent_at)

    def extend(self, sent_at: float) -> None:
        """A request sent at this time renewed the session; it says nothing about a rebalance."""
        self._renewed = max(self._renewed, sent_at)
        self.ends = self._end()
        self._on_confirm()

    def revoke(self) -> None:
        """End it now, because the generation is over; nothing extends it any more."""
        self._revoked = True
        self.ends = self._end()

    @property
    def left(self) -> float:
        """Seconds until the lease is over; 0 or less when it is."""
        return self.ends - self._clock.now()

    @property
    def unconfirmed_for(self) -> float:
        """Seconds since the last heartbeat that was answered without an error was sent."""
        return self._clock.now() - self._confirmed

    def _end(self) -> float:
        if self._revoked:
            return -math.inf
        return min(self._renewed + self._session_timeout, self._confirmed + self._rebalance_timeout)
