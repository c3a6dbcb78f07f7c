"""One value at a time out of the loop, none lost where the thread that waits is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, final

import trio

from kgroup.errors import UsageError
from kgroup.threaded.event_loop import BackgroundLoop

T = TypeVar("T")


@final
class Slot(Generic[T]):
    """Fetches in the loop, hands out in the thread that asked.

    A value that comes as its thread gives up, by a time-out or what a signal handler raised,
    stays for the next call.

    Args:
        loop: where it is fetched.
        fetch: waits for the next value.
        good: whether a value that stayed may still be handed out; asked in the loop.
        second: what a second thread that asks meanwhile is told.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        fetch: Callable[[], Awaitable[T]],
        good: Callable[[T], Awaitable[bool]],
        second: str,
    ) -> None:
        self._loop = loop
        self._fetch = fetch
        self._good = good
        self._second = second
        self._asking = threading.Lock()
        self._turn = trio.Lock()
        self._found: tuple[T] | None = None

    def take(self, timeout: float | None = None) -> T:
        """The next value.

        Raises:
            TimeoutError: there was none in so many seconds; nothing is lost.
            UsageError: another thread asks already.
        """
        if not self._asking.acquire(blocking=False):
            raise UsageError(self._second)
        try:
            self._loop.run(self._fill, timeout)
            found, self._found = self._found, None
            assert found is not None  # _fill has returned
            return found[0]
        finally:
            self._asking.release()

    async def _fill(self) -> None:
        # One that was given up may not have ended yet.
        async with self._turn:
            if self._found is None or not await self._good(self._found[0]):
                self._found = None
                self._found = (await self._fetch(),)
