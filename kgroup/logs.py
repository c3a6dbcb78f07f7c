"""Writes events to the logger ``kgroup``; no other module logs what happens in a group.

Each log record has the attributes ``group_id``, ``member_id``, ``generation_id``, ``partition`` (as
text, or None if the event is not about one) and ``event``, the event itself, so that a formatter or
filter of the program can use them. A program that wants other log lines passes its own event
handler to the group.
"""

from __future__ import annotations

import logging
from typing import Final

from kgroup.events import Event

LOGGER: Final = logging.getLogger("kgroup")


def log(event: Event) -> None:
    """Log an event as one line, at the event's level."""
    level = event.severity
    if not LOGGER.isEnabledFor(level):
        return
    partition = getattr(event, "partition", None)
    extra = {
        "group_id": event.group_id,
        "member_id": event.member_id,
        "generation_id": event.generation_id,
        "partition": None if partition is None else str(partition),
        "event": event,
    }
    LOGGER.log(level, "%s", event, extra=extra)
