"""Writes events to the logger ``kgroup``.

Each record of an event has the attributes ``group_id``, ``member_id``, ``generation_id``,
``partition`` (as text, or None if the event is not about one) and ``event``, the event itself, so
that a formatter or filter of the program can use them. A program that wants other log lines passes
its own event handler to the group. An event that has an exception for the log, such as the first
failure of a record, is logged with its traceback.

A request, a read or a login that goes on failing, as when a server is away, is logged once a
minute, with the number of times; each time is an event.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, final

import attrs

from kgroup.events import Event, Joined, LoginDelayed, RecordSourceFailed, RequestFailed
from kgroup.guarded_log import GuardedLog

LOGGER: Final = logging.getLogger("kgroup")
LOG: Final = GuardedLog(LOGGER)
"""The way to it for all lines of kgroup."""
REPEATED_AFTER: Final = 60.0
"""Seconds after which a failure that goes on is logged again."""
MOST_FAILURES: Final = 1000
"""How many different failures are remembered."""


@attrs.define
class _Failure:
    """A failure that goes on.

    Attributes:
        began: when it was logged first.
        logged: when it was logged last.
        times: how often it happened.
    """

    began: float
    logged: float
    times: int = 1


@final
class EventLog:
    """Logs the events of one group, each as one line at its level; repeated failures seldom.

    Args:
        now: a clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures: dict[tuple[object, ...], _Failure] = {}

    def __call__(self, event: Event) -> None:
        """Log an event, unless it repeats a failure that was logged within the last minute."""
        if isinstance(event, Joined):
            self._failures.clear()  # requests are answered again
        if isinstance(event, RequestFailed | RecordSourceFailed | LoginDelayed):
            self._log_failure(event)
        else:
            _write(event, event.severity, "")

    def _log_failure(self, event: RequestFailed | RecordSourceFailed | LoginDelayed) -> None:
        now = self._now()
        key = (
            type(event),
            event.reason,
            getattr(event, "request", None),
            getattr(event, "partition", None),
        )
        known = self._failures.get(key)
        if known is None:
            if len(self._failures) >= MOST_FAILURES:
                self._failures.clear()
            self._failures[key] = _Failure(now, now)
            _write(event, event.severity, "")
            return
        known.times += 1
        if now - known.logged < REPEATED_AFTER:
            _write(event, logging.DEBUG, "")
            return
        known.logged = now
        _write(event, event.severity, f" ({known.times} times in {now - known.began:.0f} s)")


def _write(event: Event, level: int, repeated: str) -> None:
    if not LOGGER.isEnabledFor(level):
        return
    extra, error = attributes_of(event), event.logged_error
    LOG.log(level, "%s%s", event, repeated, extra=extra, exc_info=error)


def attributes_of(event: Event) -> dict[str, object]:
    """The attributes of a log record about an event."""
    partition = getattr(event, "partition", None)
    return {
        "group_id": event.group_id,
        "member_id": event.member_id,
        "generation_id": event.generation_id,
        "partition": None if partition is None else str(partition),
        "event": event,
    }
