"""How a thread waits for generations and records: it may give up at any time, and loses none."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Generic, TypeVar, final

import trio

from kgroup.background.event_loop import BackgroundLoop
from kgroup.background.flag import acquire
from kgroup.errors import UsageError

T = TypeVar("T")


@final
class ThreadWakeup:
    """Wakes a thread that waits for records; from any thread, and when the loop ends."""

    def __init__(self, loop: BackgroundLoop) -> None:
        self._loop = loop
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        """Let the wait end, or the next one if there is none now."""
        if self._asleep.locked():
            with suppress(RuntimeError):  # another thread was quicker
                self._asleep.release()

    def settle(self, value: None, error: BaseException) -> None:
        """Wake it, because the loop has ended; it finds out."""
        del value, error
        self.set()

    def wait(self, timeout: float | None) -> None:
        """Wait until it is woken, or was since the last wait.

        Raises:
            TimeoutError: that did not happen in time.
            LoopEndedError: the loop has ended.
        """
        self._loop.register(self)
        try:
            if not acquire(self._asleep, timeout):
                raise TimeoutError
        finally:
            self._loop.unregister(self)


@final
class Slot(Generic[T]):
    """Passes one value at a time from the loop to a thread, and loses none.

    If the waiting thread gives up, because of a timeout or an exception of a signal handler, a
    value that arrives at that moment stays in the slot for the next call.

    Args:
        loop: where values are fetched.
        fetch: waits for the next value.
        is_valid: returns whether a value that stayed in the slot may still be returned; it runs in
            the loop.
        busy: the message of the UsageError for a second thread that calls `take` meanwhile.
        shortcut: gets the next value without the loop, within a timeout; it returns None if that is
            not possible. It is not called while a value may be on its way from the loop.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        fetch: Callable[[], Awaitable[T]],
        is_valid: Callable[[T], Awaitable[bool]],
        busy: str,
        shortcut: Callable[[float | None], T | None] | None = None,
    ) -> None:
        self._loop = loop
        self._fetch = fetch
        self._is_valid = is_valid
        self._busy = busy
        self._shortcut = shortcut
        self._fills: set[object] = set()
        """The calls of `_fill` that have not ended; those that were given up, too."""
        self._taking = threading.Lock()
        self._filling = trio.Lock()
        self._value: tuple[T] | None = None

    def take(
        self,
        timeout: float | None = None,
        late: Callable[[], str] = lambda: "there was no value in time",
    ) -> T:
        """Wait for the next value.

        Args:
            timeout: the seconds to wait; None for no limit.
            late: returns the text of the TimeoutError: what the caller has waited for.

        Raises:
            TimeoutError: no value arrived in time; none is lost.
            UsageError: another thread waits already.
        """
        if not self._taking.acquire(blocking=False):
            raise UsageError(self._busy)
        try:
            if self._shortcut is not None and not self._fills and self._value is None:
                began = monotonic()
                try:
                    found = self._shortcut(timeout)
                except TimeoutError:
                    raise TimeoutError(late()) from None
                if found is not None:
                    return found
                if timeout is not None:
                    timeout -= monotonic() - began
            fill = object()
            self._fills.add(fill)
            self._loop.run(partial(self._fill, fill), timeout, late)
            value, self._value = self._value, None
            assert value is not None  # _fill has returned
            return value[0]
        finally:
            self._taking.release()

    async def _fill(self, fill: object) -> None:
        try:
            # The fetch of an earlier call that was given up may not have ended yet.
            async with self._filling:
                if self._value is None or not await self._is_valid(self._value[0]):
                    self._value = None
                    self._value = (await self._fetch(),)
        finally:
            self._fills.discard(fill)
