"""The background thread that runs trio, and calls into it from any other thread.

It knows nothing of groups. A call is made in the event loop and its outcome raised in the thread
that asked.

INVARIANTS: a call that waits is always answered: by its outcome, or by `LoopOverError` when the
loop has ended, however it ended; the loop never waits for a thread; no lock is held while Python
code runs, so that a signal handler may call whatever the code that it interrupted may.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar, final

import trio

from kgroup.errors import KgroupError, UsageError
from kgroup.threaded.flag import Flag, acquire

T = TypeVar("T")


@final
class LoopOverError(Exception):
    """The event loop has ended, or ended before the call did. Not shown to users."""


@final
class _Call(Generic[T]):
    """One call: made in the loop, waited for in another thread."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._gate = threading.Lock()
        self._gate.acquire()
        self._value: T | None = None
        self._error: BaseException | None = None
        self.settled = False

    # In the loop's thread.

    async def serve(self, fn: Callable[[], Awaitable[T]]) -> None:
        try:
            with self._scope:
                self.settle(await fn(), None)
        except Exception as error:  # noqa: BLE001 # it is the caller's
            self.settle(None, error)
        finally:
            self.settle(None, LoopOverError())

    def settle(self, value: T | None, error: BaseException | None) -> None:
        """Give the outcome; only the first one counts."""
        if not self.settled:
            self._value, self._error, self.settled = value, error, True
            self._gate.release()

    def cancel(self) -> None:
        self._scope.cancel()

    # In the caller's thread.

    def outcome(self, timeout: float | None) -> T:
        if not acquire(self._gate, timeout):
            raise TimeoutError
        error, self._error = self._error, None
        if error is None:
            return self._value  # type: ignore[return-value] # settled without an error
        try:
            raise _own(error)
        finally:
            del error


@final
class BackgroundLoop:
    """Runs one async function in a thread of its own until that returns.

    Args:
        name: the thread's.
        main: what runs there; calls are answered from its start until it returns.
        ended: is called in the thread when the loop has ended, however it ended.
    """

    def __init__(
        self, name: str, main: Callable[[], Awaitable[None]], ended: Callable[[], object]
    ) -> None:
        self._main = main
        self._ended = ended
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._calls: set[_Call[Any]] = set()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._pid = os.getpid()
        self._ready = Flag()
        self.over = Flag()
        self.error: BaseException | None = None

    @property
    def here(self) -> bool:
        """Whether this code runs in the loop's thread."""
        return threading.get_ident() == self._thread.ident

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that has the thread."""
        return os.getpid() != self._pid

    def start(self) -> None:
        """Start the thread, and wait until it takes calls."""
        self._thread.start()
        self._ready.wait()

    def join(self) -> None:
        """Wait until the thread has ended. A signal handler may raise out of it."""
        # In Python 3.11 Thread.join takes a thread for ended when a signal handler raises out of
        # it, so that it comes last.
        self.over.wait()
        self._thread.join()

    def run(self, fn: Callable[[], Awaitable[T]], timeout: float | None = None) -> T:
        """Call an async function in the loop, and wait for its outcome.

        Raises:
            LoopOverError: the loop ended before.
            TimeoutError: it took longer; it was cancelled.
            UsageError: called from the loop's own thread, or from a forked process.

        What a signal handler raises cancels the call as well.
        """
        call = _Call[T]()
        self._submit(call, partial(self._begin, call, fn))
        try:
            return call.outcome(timeout)
        finally:
            if not call.settled:
                self.post(call.cancel)

    def run_sync(self, fn: Callable[[], T]) -> T:
        """Call a function that does not wait, in the loop; see `run`."""
        call = _Call[T]()
        self._submit(call, partial(self._call, call, fn))
        return call.outcome(None)

    def post(self, fn: Callable[[], object]) -> bool:
        """Let the loop call a function soon; False if it has ended. Never waits.

        It may be called anywhere, in signal handlers too.
        """
        if self._token is None or self.over.is_set() or self.forked:
            return False
        try:
            self._token.run_sync_soon(fn)
        except (trio.RunFinishedError, OSError):
            return False  # it ends at this moment
        return True

    def _submit(self, call: _Call[Any], begin: Callable[[], None]) -> None:
        if self.forked:
            raise UsageError(
                f"this is a fork of process {self._pid}, where {self._thread.name} runs;"
                " make a ConsumerGroup in each process, after the fork"
            )
        if self.here:
            raise UsageError(
                f"this call would wait for {self._thread.name} in that very thread; from an event"
                " handler, hand it to another thread"
            )
        self._calls.add(call)
        # INVARIANT: looked at after the call is known, as the loop's end looks for calls after
        # it has said that it is over.
        if self.over.is_set():
            self._calls.discard(call)
            raise LoopOverError
        self.post(begin)

    # In the loop's thread.

    def _begin(self, call: _Call[T], fn: Callable[[], Awaitable[T]]) -> None:
        if self._nursery is None:
            call.settle(None, LoopOverError())
        else:
            self._nursery.start_soon(self._serve, call, fn)

    async def _serve(self, call: _Call[T], fn: Callable[[], Awaitable[T]]) -> None:
        try:
            await call.serve(fn)
        finally:
            self._calls.discard(call)

    def _call(self, call: _Call[T], fn: Callable[[], T]) -> None:
        self._calls.discard(call)
        try:
            call.settle(fn(), None)
        except Exception as error:  # noqa: BLE001 # it is the caller's
            call.settle(None, error)

    def _run(self) -> None:
        try:
            trio.run(self._answer_while_main_runs)
        except BaseException as error:  # noqa: BLE001 # raised where the loop is waited for
            self.error = error
        finally:
            self.over.set()
            self._ready.set()
            while self._calls:
                self._calls.pop().settle(None, LoopOverError())
            self._ended()
            self._ended()

    async def _answer_while_main_runs(self) -> None:
        async with trio.open_nursery() as nursery:
            self._token, self._nursery = trio.lowlevel.current_trio_token(), nursery
            self._ready.set()
            try:
                await self._main()
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()


def _own(error: BaseException) -> BaseException:
    """The caller's own copy: several threads may be given one error at a time.

    Raising writes to an exception, so that tracebacks of threads that raise the same one mix.
    """
    if not isinstance(error, KgroupError):
        return error
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    return own.with_traceback(error.__traceback__)
