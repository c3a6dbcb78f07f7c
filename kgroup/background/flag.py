"""An event that is set once, and that a thread can set without ever waiting.

``threading.Event.set`` takes a lock that a waiting thread holds for short moments. If a signal
handler interrupts the waiting thread in such a moment, and waits for the thread that sets the
event, both wait for ever. Here no thread holds a lock that another one needs.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Final, NoReturn, final

from kgroup.errors import UsageError

SIGNAL_INTERVAL: Final = 0.5
"""The longest time after which the main thread handles a signal that another thread received."""


@final
class Flag(threading.Event):
    """A ``threading.Event`` that kgroup sets once; safe with signal handlers.

    INVARIANT: a thread that waits has either put its lock into the deque before the flag is set,
    so that `set` releases the lock, or it sees that the flag is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._waiting: deque[threading.Lock] = deque()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all threads that wait."""
        self._is_set = True
        try:
            while True:
                self._waiting.popleft().release()
        except IndexError:
            return  # no thread waits any more

    def clear(self) -> NoReturn:
        """Refuse: the flag cannot be cleared.

        Raises:
            UsageError: always.
        """
        raise UsageError("this event stays set: a generation that ends does not begin again")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return False if that does not happen before the timeout.

        A signal handler may raise out of the wait.
        """
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        if self._is_set:
            self._forget(lock)
            return True
        try:
            return acquire(lock, timeout) or self._is_set
        finally:
            self._forget(lock)

    def _forget(self, lock: threading.Lock) -> None:
        try:
            self._waiting.remove(lock)
        except ValueError:
            return  # `set` has released it


def acquire(lock: threading.Lock, timeout: float | None) -> bool:
    """Acquire a lock within a timeout; None means no timeout, a negative one means 0.

    Python runs signal handlers in the main thread only, and the operating system may deliver a
    signal to any thread, as it does with one that was sent while the process was stopped. That
    wakes no main thread that waits for a lock. So the main thread waits for short times.
    """
    if threading.get_ident() != threading.main_thread().ident:
        if timeout is None:
            return lock.acquire()
        return lock.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(0.0, end - time.monotonic())
        if lock.acquire(timeout=min(left, SIGNAL_INTERVAL)):
            return True
        if left <= SIGNAL_INTERVAL:
            return False
