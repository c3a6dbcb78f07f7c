"""The background thread that runs trio, and the calls that other threads make into it.

This module knows nothing of groups. A thread's call runs in the event loop, and its result or
exception comes back to that thread.

Theory of operation. A thread hands its call to the loop with ``run_sync_soon``. It is woken once
the call has a result: a thread waits for a lock that the loop releases; a task of asyncio, which
must not block its thread, waits for a future (``kgroup.aio.bridge``). A call is registered in
``_calls`` first: when the loop ends, for whatever reason, it answers all registered calls, so that
nothing waits for a loop that has gone. A lock is used in place of a ``threading.Event`` because a
signal handler may interrupt the waiting thread at any point, and may itself make calls: see
``Flag``.

A call runs in a copy of its caller's context variables, and everything else in a copy of those of
the code that started the loop, as if trio ran in the program's own thread. So an event handler that
is called for a commit finds the span in which the program commits.

**A shared thread.** Several loops may run in one thread, as guests of one `trio.run` (``_Host``). A
guest is a task of the host with a nursery, calls and an end of its own. It begins by a call into
the host, which is answered like all others: if the host has ended meanwhile, the guest makes
another one, and if it has failed, the guest ends with its error. The host ends with its last guest.

What isolates guests: an exception of a guest's function, or of a call or callback made for it, ends
that guest only. What does not: code that blocks the thread blocks all of them, and if trio itself
fails, all of them end with its error. So only a loop that runs no code of the program may share.

INVARIANTS: every call that waits is answered, by its result or by `LoopEndedError`, however the
loop ends; calls start in the order in which they were made; the loop never waits for a thread; no
lock is held while Python code runs, so that a signal handler may call whatever the interrupted code
may. Only the host's thread counts guests.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, final

import attrs
import trio

from kgroup.background.flag import Flag, acquire
from kgroup.errors import KgroupError, UsageError
from kgroup.functions import is_program_error
from kgroup.worker_thread import post_to, threads_with_locks

T = TypeVar("T")


@final
class LoopEndedError(Exception):
    """The event loop ended before the call, or during it. Programs never see this error."""


class Waiting(Protocol):
    """What has to be woken when the loop ends."""

    def settle(self, value: None, error: BaseException, /) -> None:
        """Wake it, with the error that says so."""
        ...


@final
class Call(Generic[T]):
    """One call, which runs in the loop while another thread, or a task there, waits for its result.

    Args:
        on_settled: called in the loop's thread when there is a result.
    """

    def __init__(self, on_settled: Callable[[], object]) -> None:
        self._scope = trio.CancelScope()
        self._on_settled = on_settled
        self._value: T | None = None
        self._error: BaseException | None = None
        self.settled = False

    # In the loop's thread.

    async def run(self, fn: Callable[[], Awaitable[T]]) -> None:
        """Call a function, until `cancel`; the result is settled in any case."""
        try:
            with self._scope:
                self.settle(await fn(), None)
        except BaseException as error:
            if not is_program_error(error):
                raise
            self.settle(None, error)  # raised in the caller's thread
        finally:
            self.settle(None, LoopEndedError())

    def settle(self, value: T | None, error: BaseException | None) -> None:
        """Set the result; only the first one counts."""
        if not self.settled:
            self._value, self._error, self.settled = value, error, True
            self._on_settled()

    def cancel(self) -> None:
        """Cancel the function; if it ends by that, the result is a LoopEndedError."""
        self._scope.cancel()

    # In the caller's thread.

    def result(self) -> T:
        """The result of a call that is settled, or raise its exception."""
        error, self._error = self._error, None
        if error is None:
            return self._value  # type: ignore[return-value] # settled without an error
        try:
            raise _copy_of(error)
        finally:
            del error


@final
@attrs.frozen
class _SyncCall:
    """A call of a synchronous function that waits for those before it to start."""

    run: Callable[[], None]
    context: contextvars.Context


@final
@attrs.frozen
class _AsyncCall:
    """A call of an async function that has not started."""

    run: Callable[[], Awaitable[None]]
    context: contextvars.Context


@final
class BackgroundLoop:
    """Runs one async function in trio, in a background thread, until that function returns.

    Args:
        name: the name of the thread, if it is this loop's own.
        main: the function; calls are possible from its start until it returns.
        on_end: called in the thread when the loop has ended, however it ended.
        shares: whether it runs in the thread that such loops of this process share.

    Attributes:
        thread: the thread; until `start`, that of a loop that shares one is not known.
        ended: set when the function has returned, or cannot go on.
        error: what it raised, or None.
        pid: the process that made it, and alone can start it.
    """

    def __init__(
        self,
        name: str,
        main: Callable[[], Awaitable[None]],
        on_end: Callable[[], object],
        *,
        shares: bool = False,
    ) -> None:
        self._main = main
        self._on_end = on_end
        self._shares = shares
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ends_thread = not shares
        self._calls: set[Waiting] = set()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._unstarted: deque[_SyncCall | _AsyncCall] = deque()
        self.pid = os.getpid()
        self._context = contextvars.Context()
        self._ready = Flag()
        self._abandoned = False
        self.ended = Flag()
        self.error: BaseException | None = None

    @property
    def is_current_thread(self) -> bool:
        """Whether this code runs in the loop's thread."""
        return threading.get_ident() == self.thread.ident

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one in which the thread runs."""
        return os.getpid() != self.pid

    def check_start(self) -> None:
        """Check that `start` can begin here, and would not wait for the thread of this call.

        Raises:
            UsageError: it cannot, or would; nothing has begun, and the process that made the loop
                may start it, in another thread.
        """
        self._check_process()
        if self._shares:
            host = _HOSTS.get(os.getpid())
            (self if host is None else host.loop)._check_caller()  # noqa: SLF001

    def start(self) -> None:
        """Start the thread, or share one, and wait until calls are possible.

        If a signal handler raises out of the wait, the loop ends by itself, without running its
        function or by cancelling it: nobody else would end it.

        Raises:
            UsageError: it would share the thread in which this call is made, or was made before
                this process was forked.
        """
        self._check_process()
        try:
            if self._shares:
                self._begin_as_guest()
            else:
                self._context = contextvars.copy_context()
                self.thread.start()
            self._ready.wait()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Let the loop end by itself: the code that has started it was interrupted."""
        # Both, because the loop may not have begun: then a posted function would be lost.
        self._abandoned = True
        self.post(self._cancel)

    def _begin_as_guest(self) -> None:
        while True:
            try:
                host = _host()
                self.thread = host.loop.thread
                host.loop.run_sync(partial(host.admit, self, self._run_as_guest))
            except LoopEndedError:
                if host.loop.error is None:
                    continue  # its last guest has ended meanwhile
                # As if the thread were this loop's own. Another host would fail as this one did,
                # again and again, where trio cannot begin: without a descriptor that is free.
                self.finish(error=host.loop.error)
            except BaseException:  # it may not have got this guest, and have no other one
                if (made := _HOSTS.get(os.getpid())) is not None:
                    made.loop.post(made.leave_empty)
                raise
            return

    def join(self) -> None:
        """Wait until the loop has ended, and its thread if no other loop shares it.

        A signal handler may raise out of the wait.
        """
        # In Python 3.11, a Thread.join out of which a signal handler raises marks the thread as
        # ended, so it may only be called when the thread really is about to end.
        self.ended.wait()
        if self._ends_thread:
            self.thread.join()

    def run(
        self,
        fn: Callable[[], Awaitable[T]],
        timeout: float | None = None,
        late: Callable[[], str] = lambda: "the call has not ended in time",
    ) -> T:
        """Call an async function in the loop, and wait for its result.

        An exception that a signal handler raises out of the wait cancels the call, too.

        Args:
            fn: the function.
            timeout: the seconds to wait; None for no limit.
            late: returns the text of the TimeoutError.

        Raises:
            LoopEndedError: the loop ended before the call did, or has not started.
            TimeoutError: the call took longer than the timeout, and was cancelled.
            UsageError: the caller is the loop's own thread, or a forked process.
        """
        unsettled = _acquired()
        call = Call[T](unsettled.release)
        try:
            self.begin(call, fn)
            if not acquire(unsettled, timeout):
                raise TimeoutError(late())
            return call.result()
        finally:
            if not call.settled:
                self.post(call.cancel)

    def begin(self, call: Call[T], fn: Callable[[], Awaitable[T]]) -> None:
        """Start a call whose caller waits by other means; raises as `run` does."""
        self._submit(call, partial(self._start_call, call, fn, contextvars.copy_context()))

    def run_sync(self, fn: Callable[[], T]) -> T:
        """Call a synchronous function in the loop; raises as `run` does."""
        unsettled = _acquired()
        call = Call[T](unsettled.release)
        self._submit(call, partial(self._start_sync, call, fn, contextvars.copy_context()))
        acquire(unsettled, None)
        return call.result()

    def post(self, fn: Callable[[], object]) -> bool:
        """Schedule a function in the loop, without waiting; returns False if the loop has ended.

        It may be called anywhere, even in signal handlers.
        """
        if self._token is None or self.ended.is_set() or self.forked:
            return False
        return post_to(self._token, partial(self._call_as_guest, fn) if self._shares else fn)

    def register(self, wakeup: Waiting) -> None:
        """Wake what waits for something else when the loop ends.

        Raises:
            LoopEndedError: it has ended.
        """
        self._calls.add(wakeup)
        if self.ended.is_set():
            self._calls.discard(wakeup)
            raise LoopEndedError

    def unregister(self, wakeup: Waiting) -> None:
        """Stop waking it."""
        self._calls.discard(wakeup)

    def _check_process(self) -> None:
        if self.forked:
            raise UsageError(
                f"this process is a fork of process {self.pid}, to which the thread"
                f" {self.thread.name} belongs; make a ConsumerGroup in each process, after the fork"
            )

    def _check_caller(self) -> None:
        self._check_process()
        if self.is_current_thread:
            raise UsageError(
                f"this call was made in the thread {self.thread.name} and would wait for that"
                " very thread; an event handler has to make it in another thread"
            )
        if threading.get_ident() in threads_with_locks:
            raise UsageError(
                "this call was made by a finalizer, or by a trace function, while its thread took"
                " records, and would wait for ever; make the call in another thread"
            )

    def _submit(self, call: Call[Any], start: Callable[[], None]) -> None:
        self._check_caller()
        self._calls.add(call)
        # INVARIANT: the call is registered before this check, and the loop sets `ended` before it
        # answers the registered calls: one of the two sees the other.
        if self.ended.is_set():
            self._calls.discard(call)
            raise LoopEndedError
        # The loop may never have started, or may be about to set `ended`: nothing would answer.
        if not self.post(start):
            self._calls.discard(call)
            raise LoopEndedError

    # In the loop's thread.

    def _start_call(
        self, call: Call[T], fn: Callable[[], Awaitable[T]], context: contextvars.Context
    ) -> None:
        if self._nursery is None:
            call.settle(None, LoopEndedError())
            return
        self._unstarted.append(_AsyncCall(partial(self._run_call, call, fn), context))
        if len(self._unstarted) == 1:
            self._start_next()

    def _start_next(self) -> None:
        """Start a task for the first call that has not started, in the context of its caller.

        trio runs tasks that are started together in any order. So this is called for the next call
        only by the task of the one before, which has then come to its first wait when that begins.
        """
        if self._unstarted and self._nursery is not None:
            # trio gives a new task a copy of the context in which it is started.
            self._unstarted[0].context.run(self._nursery.start_soon, self._start_first)

    async def _start_first(self) -> None:
        first = self._unstarted.popleft()
        if isinstance(first, _SyncCall):
            first.run()
            self._start_next()
        else:
            self._start_next()
            await first.run()

    async def _run_call(self, call: Call[T], fn: Callable[[], Awaitable[T]]) -> None:
        try:
            await call.run(fn)
        finally:
            self._calls.discard(call)

    def _start_sync(self, call: Call[T], fn: Callable[[], T], context: contextvars.Context) -> None:
        if self._unstarted:
            self._unstarted.append(_SyncCall(partial(self._call_sync, call, fn), context))
        else:
            context.run(self._call_sync, call, fn)

    def _call_sync(self, call: Call[T], fn: Callable[[], T]) -> None:
        self._calls.discard(call)
        try:
            call.settle(fn(), None)
        except BaseException as error:
            if not is_program_error(error):
                raise
            call.settle(None, error)  # raised in the caller's thread

    def _run(self) -> None:
        try:
            self._context.run(trio.run, self._run_main)
        except BaseException as error:  # noqa: BLE001 # the owner of the loop raises it
            self.error = error
        finally:
            self.finish()

    async def _run_as_guest(self) -> None:
        try:
            await self._run_main()
        except BaseException as error:
            # trio has failed: it cancels its tasks, or forgets them. The host ends its guests.
            if _contains(error, trio.Cancelled) or isinstance(error, GeneratorExit):
                raise
            self.error = self.error or error

    def _call_as_guest(self, fn: Callable[[], object]) -> None:
        """Call a posted function; an exception would end the loops of all guests."""
        if self.ended.is_set():
            return
        try:
            fn()
        except BaseException as error:  # noqa: BLE001 # as in `_run`
            self.error = self.error or error
            self._cancel()

    def _cancel(self) -> None:
        """End without waiting for the function to return."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def finish(self, *, ends_thread: bool = True, error: BaseException | None = None) -> None:
        """Answer all calls, because the loop has ended; in its thread.

        Args:
            ends_thread: whether the thread ends with it.
            error: why it could not go on.
        """
        self._ends_thread, self.error = ends_thread, self.error or error
        self.ended.set()
        self._ready.set()
        while self._calls:
            self._calls.pop().settle(None, LoopEndedError())
        self._on_end()

    async def _run_main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._token, self._nursery = trio.lowlevel.current_trio_token(), nursery
            self._ready.set()
            try:
                if not self._abandoned:
                    await self._main()
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()


@final
class _Host:
    """A thread that several loops share, from the first one until the last one has ended."""

    def __init__(self) -> None:
        self.loop = BackgroundLoop("kgroup-shared", self._main, self._on_end)
        self._guests: set[BackgroundLoop] = set()
        self._over = trio.Event()

    def admit(self, guest: BackgroundLoop, run: Callable[[], Awaitable[None]]) -> None:
        """Run a loop here; in the loop.

        Raises:
            LoopEndedError: the last guest has ended.
        """
        if self._over.is_set():
            raise LoopEndedError
        self._guests.add(guest)
        # In the context of this call, which is that of the code that starts the guest.
        self._nursery.start_soon(self._run_guest, guest, run)

    def leave_empty(self) -> None:
        """End if there is no guest; in the loop."""
        if not self._guests:
            self._over.set()
            if _HOSTS.get(os.getpid()) is self:
                del _HOSTS[os.getpid()]

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            await self._over.wait()

    async def _run_guest(self, guest: BackgroundLoop, run: Callable[[], Awaitable[None]]) -> None:
        await run()
        self._guests.discard(guest)
        self.leave_empty()
        guest.finish(ends_thread=self._over.is_set())

    def _on_end(self) -> None:
        """End the guests that are left: trio has failed."""
        while self._guests:
            self._guests.pop().finish(error=self.loop.error)


_HOSTS: Final[dict[int, _Host]] = {}
"""The shared thread of each process, by its id: a fork has none of its own at first."""


def _host() -> _Host:
    """The host of this process, which may be about to end; another one if it has ended."""
    pid = os.getpid()
    if (known := _HOSTS.get(pid)) is not None:
        if not known.loop.ended.is_set():
            return known
        _HOSTS.pop(pid, None)
    made = _Host()
    try:
        made.loop.start()
        # Without a lock: two threads may both make one, and one of these is not needed.
        host = _HOSTS.setdefault(pid, made)
    except BaseException:  # a signal handler's, after the start
        made.loop.post(made.leave_empty)
        raise
    if host is not made:
        made.loop.post(made.leave_empty)
    return host


def _contains(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(kind) is not None
    return isinstance(error, kind)


def _acquired() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _copy_of(error: BaseException) -> BaseException:
    """A copy of one of kgroup's errors, since several threads may raise the same one.

    Raising an exception writes its traceback to it, so that the tracebacks of threads would mix.
    """
    if not isinstance(error, KgroupError):
        return error
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    if (notes := getattr(error, "__notes__", None)) is not None:
        copy.__notes__ = list(notes)  # a note of one thread is none of the others
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)
