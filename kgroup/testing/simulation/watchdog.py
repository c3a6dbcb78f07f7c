"""Ends a simulation that hangs, and lets Ctrl-C end any simulation.

Theory of operation
-------------------
trio can only ask its tasks to end. A program that shields itself from cancellation, computes
without end, or blocks its thread does not answer, and the run would never be over. So a thread that
is no part of the run waits for ``timeout`` real seconds. Then the run is *abandoned*, by the
mildest of these means that ends it:

1. trio's loop is asked to call `_end_tasks` between two steps of tasks. This cancels all tasks, and
   in each further round raises `_AbandonedError` in each task that is left, whether it is
   shielded or not. The tasks unwind as after any other exception.
2. In a step that never ends, the loop is not reached. The watchdog sends SIGINT to the main thread:
   its handler raises in the middle of the step, and a blocking system call returns.
3. A task that catches everything and goes on ends never. After `_MOST_ROUNDS` the loop itself is
   left by an exception from the clock, which it asks for the time in every round. What is left of
   the tasks may then complain on stderr.
4. Nothing can be raised in a C library that blocks and never returns to Python, nor in a step that
   never ends where no signal arrives: outside the main thread, and on Windows. The error goes to
   stderr, and the process ends.

Ctrl-C first does what it does in any run of trio: the tasks are cancelled. If the run has not ended
after `_GRACE` real seconds, or at the second Ctrl-C, it is abandoned too.

INVARIANT: a run that ends in time is the same with and without a watchdog.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn, final

import trio
from trio.testing import MockClock

from kgroup import bounds
from kgroup.testing.simulation import hanging, trio_internals
from kgroup.testing.simulation.hanging import SimulationHangError
from kgroup.worker_thread import post_to

SEED_TIMEOUT: Final = 600.0
"""Real seconds that a simulation may take by default; the largest one needs a few minutes."""
TIMEOUTS: Final = bounds.seconds(0.001, 30 * 86_400)
_GRACE: Final = 3.0
"""Real seconds in which a run that is interrupted or abandoned has to end."""
_SIGNALS: Final = 3
"""How often the main thread gets a signal before the process is ended."""
_MOST_ROUNDS: Final = 1000
"""Rounds of the loop in which tasks that are told to end may still wait."""


class _AbandonedError(BaseException):
    """Raised in a task, or in trio's loop, where ``except Exception`` must not stop it."""


@final
class Watchdog:
    """Watches one run of trio.

    Args:
        seed: named in the error.
        timeout: real seconds after which the run is abandoned.
    """

    def __init__(self, seed: int, timeout: float) -> None:
        self._seed = seed
        self._timeout = timeout
        self._why = (
            f"it has not ended after {timeout:g} real seconds (seed_timeout, or --seed-timeout)"
        )
        self._error: SimulationHangError | None = None
        self._interrupted = False
        self._abandoned = False
        self._news: Final[queue.SimpleQueue[bool]] = queue.SimpleQueue()
        """True when the run has ended, False when it is interrupted; signal handlers may put it."""
        self._thread: Final = threading.current_thread()
        self._threads_before: frozenset[threading.Thread] = frozenset()
        self._clock: MockClock | None = None
        self._now: Callable[[], float] = lambda: 0.0
        self._token: trio.lowlevel.TrioToken | None = None
        self._main: trio.lowlevel.Task | None = None
        self._scope = trio.CancelScope()
        self._rounds = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the run in the block.

        Raises:
            SimulationHangError: it did not end by itself.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        thread = threading.Thread(target=self._watch, name="simulation watchdog", daemon=True)
        thread.start()
        self._threads_before = trio_internals.other_threads()
        try:
            # The thread may send its signal until it has ended; the handler must be there for it.
            with self._signals():
                try:
                    yield
                finally:
                    self._news.put(True)
                    thread.join()
        except BaseException:
            # What is raised instead has no context: what the tasks raised is of no use. A run that
            # was abandoned too late, when it ended by itself, has no such error, and keeps its own.
            if self._error is None and not self._interrupted:
                raise
        if self._error is not None:
            raise self._error from None
        if self._interrupted:
            raise KeyboardInterrupt from None

    def before_run(self, clock: MockClock) -> None:
        """Take the clock of the run."""
        self._clock, self._now = clock, clock.current_time

    @contextmanager
    def in_run(self) -> Iterator[None]:
        """Take the tasks of the run; its main task runs in the block."""
        self._main = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._scope:
                yield
        finally:
            self._token = None  # no task is left to be ended

    def abandon(self, why: str) -> None:
        """Let the run end as one that hangs.

        Args:
            why: what has not happened, as a sentence without its full stop.
        """
        self._why = why
        self._abandoned = True
        self._soon_end_tasks()

    def _watch(self) -> None:
        """What the thread does."""
        for timeout in (self._timeout, _GRACE):
            if (has_ended := self._next_news(timeout)) is None:
                break
            if has_ended:
                return
        self.abandon(self._why)
        # On Python 3.11 a thread that is traced, by coverage or a debugger, can repeat a call for
        # ever while the main thread, blocked in C, does not handle its signal.
        sys.settrace(None)
        for _ in range(_SIGNALS):
            if self._ends_within(_GRACE / _SIGNALS):
                return
            if self._thread is threading.main_thread() and hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self._thread.ident or 0, signal.SIGINT)
        if not self._ends_within(_GRACE):
            self._end_process()

    def _next_news(self, timeout: float) -> bool | None:
        """Whether the run has ended (or else is interrupted); None after the time-out."""
        with suppress(queue.Empty):
            return self._news.get(timeout=timeout)
        return None

    def _ends_within(self, timeout: float) -> bool:
        while (has_ended := self._next_news(timeout)) is False:
            pass
        return bool(has_ended)

    def _end_tasks(self) -> None:
        """Called by trio's loop, in every round until no task is left."""
        if self._token is None:
            return
        self._describe()
        self._scope.cancel()
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS and self._clock is not None:
            self._clock.current_time = self._leave_loop  # type: ignore[method-assign]
        elif self._rounds > 1:
            for task in hanging.all_tasks(self._main):
                if hanging.is_leaf(task):
                    trio_internals.raise_in(task, _AbandonedError())
        self._soon_end_tasks()

    def _soon_end_tasks(self) -> None:
        token = self._token  # the run may end meanwhile, in the other thread
        if token is not None:
            post_to(token, self._end_tasks)

    def _leave_loop(self) -> NoReturn:
        """Stands in for the clock's ``current_time``."""
        raise _AbandonedError

    def _describe(self, frame: FrameType | None = None) -> None:
        """Make the error, unless it is made.

        Args:
            frame: where a task computes or blocks its thread, if one does.
        """
        if self._interrupted or self._error is not None:
            return
        at = self._now()
        head = f"seed {self._seed} hangs at {at:.3f} s of virtual time: {self._why}"
        where = hanging.lines(self._main, frame, self._threads_before)
        self._error = SimulationHangError(self._seed, at, "\n".join((head, *where)))

    def _end_process(self) -> NoReturn:
        self._describe(hanging.thread_frames().get(self._thread.ident or 0))
        text = f"{self._error or 'interrupted'}\nNothing can be raised there: the process ends.\n"
        # What pytest has captured would be lost with the process.
        uncaptured = getattr(sys.modules.get("kgroup.testing.plugin"), "uncaptured_stderr", None)
        if uncaptured is not None:
            os.write(uncaptured, text.encode(errors="replace"))
        else:
            sys.stderr.write(text)
            sys.stderr.flush()
        os._exit(1)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Notice Ctrl-C, and raise in a step of a task when the watchdog's signal arrives.

        trio sets a handler of its own where Python's is set, which is replaced here by one that
        does what trio's would do.
        """
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before is None:
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            if self._abandoned:
                self._leave_step(frame)
            elif before is signal.default_int_handler:
                self._interrupted = True
                self._news.put(False)
                if self._main is not None and trio.lowlevel.currently_ki_protected():
                    trio_internals.deliver_interrupt()
                else:
                    raise KeyboardInterrupt
            elif callable(before):  # it is ignored in a process of the pool
                before(number, frame)

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _leave_step(self, frame: FrameType | None) -> None:
        """Raise in the step that a task takes; the loop itself comes to `_end_tasks`."""
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            return
        self._describe(frame)
        raise _AbandonedError
