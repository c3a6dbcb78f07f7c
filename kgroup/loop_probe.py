"""Finds out from another thread whether an event loop makes progress, without waiting for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import final

import trio

from kgroup.worker_thread import post_to


@final
class LoopProbe:
    """Made in the event loop that it probes.

    Each `blocked` schedules a call in the loop, unless an earlier one has not run yet. A loop that
    is blocked is therefore noticed by the second probe; probes cost nothing else.

    Args:
        now: a clock in seconds, for any thread.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._token = trio.lowlevel.current_trio_token()
        self._pid = os.getpid()
        self._sent: float | None = None

    @property
    def forked_from(self) -> int | None:
        """The process in which the loop runs, if this one is a fork of it."""
        return None if os.getpid() == self._pid else self._pid

    def blocked(self) -> float | None:
        """For how long the loop has not run a call that is scheduled; None if it has ended."""
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token:
            self._sent = None
            return 0.0
        if self.forked_from is not None:
            # A forked process has no such loop, and another thread may have held the lock of the
            # loop's queue at the moment of the fork: to schedule a call could wait for ever.
            return None
        sent = self._sent
        if sent is not None:
            return max(0.0, self._now() - sent)
        self._sent = self._now()
        if not post_to(self._token, partial(setattr, self, "_sent", None)):
            self._sent = None  # what has ended is not blocked, whenever it is asked again
            return None
        return 0.0
