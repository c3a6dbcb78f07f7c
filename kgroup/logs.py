"""Writes events to the logger ``kgroup``; no other module logs what happens in a group.

A program that wants other log lines passes its own event handler to the group.
"""

from __future__ import annotations

import logging
from typing import Final

from kgroup.events import Event, severity

LOGGER: Final = logging.getLogger("kgroup")


def log(event: Event) -> None:
    """Log an event as one line, at the event's level."""
    LOGGER.log(severity(event), "%s", event)
