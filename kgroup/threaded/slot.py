"""How a thread waits for generations and records: it may give up at any time, and loses none."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, Generic, TypeVar, final

import trio

from kgroup.background.event_loop import BackgroundLoop
from kgroup.background.flag import acquire
from kgroup.errors import UsageError

T = TypeVar("T")

ROUND_TRIP: Final = 0.01
"""The least seconds that a call into the loop is waited for. With less, a program that only looks
whether there is a value (``timeout=0``) might never get one, because no call would be answered."""


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


class _Fill(Generic[T]):
    """One call into the loop for a value.

    Attributes:
        value: at most one value, for the thread that waits; only the loop changes it.
        claim: one entry, removed by the thread that takes the value, or by `Slot.empty`, which puts
            the value back; the first of them decides.
        begun: whether its call has begun; only the loop reads and writes it, and `given_up`.
        given_up: whether no thread waits for it any more.
    """

    def __init__(self) -> None:
        self.value = deque[T]()
        self.claim = deque([None])
        self.begun = self.given_up = False

    def claimed(self) -> bool:
        """Whether the caller is the first one to decide about the value."""
        try:
            self.claim.pop()
        except IndexError:
            return False
        return True


@final
class Slot(Generic[T]):
    """Passes one value at a time from the loop to a thread, and loses none.

    If the waiting thread gives up, because of a timeout or an exception of a signal handler, a
    value that arrives at that moment is put back, before any later call of that thread. That holds
    until the moment in which `take` returns: a value that the thread has taken stays here until
    then.

    Args:
        loop: where values are fetched.
        fetch: waits for the next value.
        put_back: called in the loop with a value that no thread has taken; `fetch` returns it
            again, unless it is not valid any more.
        busy: the message of the UsageError for a second thread that calls `take` meanwhile.
        shortcut: gets the next value without the loop, within a timeout; it returns None if that is
            not possible. It is not called while a value may be on its way from the loop.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        fetch: Callable[[], Awaitable[T]],
        put_back: Callable[[T], object],
        busy: str,
        shortcut: Callable[[float | None], T | None] | None = None,
    ) -> None:
        self._loop = loop
        self._fetch = fetch
        self._put_back = put_back
        self._busy = busy
        self._shortcut = shortcut
        self._fills: set[_Fill[T]] = set()
        """Those that may still get a value, or have one; those that were given up, too."""
        self._takers: list[object] = []
        """The calls of `take`, of which the first one is answered. It is no lock, because a signal
        handler may raise between acquiring a lock and whatever would release it."""
        self._filling = trio.Lock()

    def take(
        self,
        timeout: float | None = None,
        late: Callable[[], str] = lambda: "there was no value in time",
        taken: Callable[[T], object] = lambda _: None,
    ) -> T:
        """Wait for the next value.

        Args:
            timeout: the seconds to wait, and up to `ROUND_TRIP` if they are fewer; None for no
                limit.
            late: returns the text of the TimeoutError: what the caller has waited for.
            taken: called with the value. What has to be done with it is done here, because a signal
                handler may raise in it, and the value is then put back.

        Raises:
            TimeoutError: no value arrived in time; none is lost.
            UsageError: another thread waits already.
        """
        me = object()
        fill: _Fill[T] | None = None
        # A signal handler may raise after every call in here, also after one that has succeeded.
        try:
            self._takers.append(me)
            if self._takers[0] is not me:
                raise UsageError(self._busy)
            began = monotonic()
            found = self._without_loop(timeout, late)
            if found is not None:
                taken(found)
                self._takers.remove(me)
                return found
            if timeout is not None:
                timeout -= monotonic() - began
            while True:
                fill = _Fill[T]()
                self._fills.add(fill)
                limit = None if timeout is None else max(timeout, ROUND_TRIP)
                self._loop.run(partial(self._fill, fill), limit, late)
                if fill.claimed():  # otherwise `empty` was quicker
                    break
                self._fills.discard(fill)
            value = fill.value[0]
            taken(value)
            self._fills.discard(fill)
            self._takers.remove(me)
            return value
        except BaseException:
            if me in self._takers:
                self._takers.remove(me)
            if fill is not None:
                self._loop.post(partial(self._give_up, fill))
            raise

    def _without_loop(self, timeout: float | None, late: Callable[[], str]) -> T | None:
        if self._shortcut is None or self._fills:
            return None
        try:
            return self._shortcut(timeout)
        except TimeoutError:
            raise TimeoutError(late()) from None

    # In the loop.

    def empty(self) -> None:
        """Put back what no thread has taken yet."""
        for fill in tuple(self._fills):
            if fill.claimed():
                self._give_up(fill)

    def _give_up(self, fill: _Fill[T]) -> None:
        fill.given_up = True
        if not fill.begun:  # its call was refused, or is cancelled before it fetches anything
            self._fills.discard(fill)
        with suppress(IndexError):
            self._put_back(fill.value.pop())
            # Not before: until then, the shortcut would get what comes after that value.
            self._fills.discard(fill)

    async def _fill(self, fill: _Fill[T]) -> None:
        fill.begun = True
        # A second signal handler's exception may have kept a thread from saying that it gave up.
        for other in self._fills - {fill}:
            if other.begun:  # before this one; the next one may have been added already
                self._give_up(other)
        try:
            # The fetch of an earlier call that was given up may not have ended yet.
            async with self._filling:
                value = await self._fetch()
                if fill.given_up:
                    self._put_back(value)
                else:
                    fill.value.append(value)
        finally:
            if not fill.value:
                self._fills.discard(fill)
