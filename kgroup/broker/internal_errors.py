"""Internal errors of the broker: exceptions that no request should ever cause.

Such a defect is logged, answered with UNKNOWN_SERVER_ERROR or a closed connection, and kept here,
so that a test can require that there was none. It never ends the broker.
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
    """One internal error: what the broker was doing, and the exception."""

    during: str
    error: Exception


@final
class InternalErrors:
    """The latest internal errors of a cluster.

    Attributes:
        seen: how many there have been in all.
    """

    def __init__(self) -> None:
        self._latest: deque[InternalError] = deque(maxlen=_KEPT)
        self.seen = 0

    @property
    def latest(self) -> tuple[InternalError, ...]:
        """The latest ones, the oldest first."""
        return tuple(self._latest)

    def record(self, during: str, error: Exception) -> None:
        """Log an internal error with its traceback, and keep it without.

        A traceback keeps what its functions worked on: requests, and the data of a client.
        """
        self.seen += 1
        self._latest.append(InternalError(during, error))
        _LOG.error("internal error of the embedded broker: %s", during, exc_info=error)
        left: list[BaseException | None] = [error]
        cleared = set[int]()
        while left:
            kept = left.pop()
            if kept is None or id(kept) in cleared:  # causes may form a circle
                continue
            cleared.add(id(kept))
            kept.__traceback__ = None
            left += [kept.__cause__, kept.__context__, *getattr(kept, "exceptions", ())]
