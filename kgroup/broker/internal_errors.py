"""What went wrong in the broker itself: exceptions that no request should ever cause.

A defect is logged, met with UNKNOWN_SERVER_ERROR or a closed connection, and kept here, so that a
test can require that there is none. It never ends the broker.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, final

import attrs

_LOG: Final = logging.getLogger("kgroup.broker")
_KEPT: Final = 100


@final
@attrs.frozen(eq=False)
class InternalError:
    """One of them: what the broker was doing, and the exception."""

    during: str
    error: Exception


@final
class InternalErrors:
    """The latest internal_errors of a cluster.

    Attributes:
        seen: how many there were in all.
    """

    def __init__(self) -> None:
        self._latest: deque[InternalError] = deque(maxlen=_KEPT)
        self.seen = 0

    @property
    def latest(self) -> tuple[InternalError, ...]:
        """Some of them, the oldest first."""
        return tuple(self._latest)

    def record(self, during: str, error: Exception) -> None:
        """Log a defect, with its traceback, and keep it."""
        self.seen += 1
        self._latest.append(InternalError(during, error))
        _LOG.error("%s: a defect", during, exc_info=error)
