"""Where librdkafka's own log lines go: to the logger ``kgroup.librdkafka``, each one seldom.

While brokers are away its clients may say so twenty times a second.
"""

from __future__ import annotations

import logging
import re
from typing import Final, final

SELDOM: Final = 30.0
"""Seconds within which the same line is written once."""
MOST_REMEMBERED: Final = 1000
_DETAILS: Final = re.compile(r" \(after \d+ms .*")
"""In what the same line differs: how long it took, and how often it was left out before."""


@final
class Seldom(logging.Filter):
    """Lets a line through if the same one has not gone through within ``SELDOM``."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        said = _DETAILS.sub("", record.getMessage())
        if record.created - self._written.get(said, -SELDOM) < SELDOM:
            return False
        if len(self._written) >= MOST_REMEMBERED:
            self._written.clear()
        self._written[said] = record.created
        return True


LOG: Final = logging.getLogger("kgroup.librdkafka")
LOG.addFilter(Seldom())
