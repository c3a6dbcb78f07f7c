"""An event that goes up once and whose raising never waits.

``threading.Event.set`` takes a lock that a waiting thread holds for moments. A signal handler can
interrupt that thread in such a moment, and if the handler then waits for the thread that raises
the event, both stand still. Here nobody holds a lock while others need it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NoReturn, final

from kgroup.errors import UsageError


@final
class Flag(threading.Event):
    """A ``threading.Event`` that kgroup sets; safe with signal handlers.

    INVARIANT: who waits is either in the queue before the flag goes up, and released by it, or
    sees it up.
    """

    def __init__(self) -> None:
        super().__init__()
        self._up = False
        self._waiting: deque[threading.Lock] = deque()

    def is_set(self) -> bool:
        """Whether it is up."""
        return self._up

    def set(self) -> None:
        """Raise it, and let everybody go who waits."""
        self._up = True
        try:
            while True:
                self._waiting.popleft().release()
        except IndexError:
            return  # that was everybody

    def clear(self) -> NoReturn:
        """Refused: what has ended does not begin again.

        Raises:
            UsageError: always.
        """
        raise UsageError("this event stays set: a generation that ends does not begin again")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is up; False if the seconds given are over before.

        A signal handler may raise out of it.
        """
        gate = threading.Lock()
        gate.acquire()
        self._waiting.append(gate)
        if self._up:
            self._forget(gate)
            return True
        try:
            return acquire(gate, timeout) or self._up
        finally:
            self._forget(gate)

    def _forget(self, gate: threading.Lock) -> None:
        try:
            self._waiting.remove(gate)
        except ValueError:
            return  # it was released


def acquire(gate: threading.Lock, timeout: float | None) -> bool:
    """Wait for a lock for so many seconds, none at all if negative, for ever if None."""
    if timeout is None:
        return gate.acquire()
    return gate.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
