"""Log lines are made from events, here and nowhere else.

They go to the logger ``kgroup``; a program that wants others gives the group a handler of its own.
"""

from __future__ import annotations

import logging
from typing import Final

from kgroup.events import Event, severity

LOGGER: Final = logging.getLogger("kgroup")


def log(event: Event) -> None:
    """Write one event as one line, at its own level."""
    LOGGER.log(severity(event), "%s", event)
