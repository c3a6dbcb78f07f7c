"""All uses of trio's private parts by the simulator; nothing else in kgroup touches them.

Six things that a simulation needs have no public interface:

- *Deterministic scheduling.* In each round of its loop trio takes the runnable tasks and shuffles
  them with the module's own generator ``_r``. With ``_ALLOW_DETERMINISTIC_SCHEDULING`` (made for
  Hypothesis) it sorts them by their creation first, so that seeding ``_r`` fixes the order. Both
  are module globals: they are restored after the run, and two simulations must not run in two
  threads of one process at a time.
- *Autojump that can be refused.* ``MockClock._autojump`` jumps unconditionally; `autojump_clock`
  replaces it on one instance. It also returns the deadline itself as the time: MockClock adds up
  the jumps, and the sums differ from the deadlines in the last bits.
- *Ctrl-C in the loop.* ``runner.deliver_ki`` is what trio's own handler calls when the signal
  arrives in code that must not be interrupted; ``watchdog`` has a handler of its own.
- *Raising in a task*, whether it waits or is to run next. ``trio.lowlevel.reschedule`` is public,
  but only ``task._next_send_fn`` and ``task._next_send`` say which. It ends runs that hang.
- *Who waits for a thread.* A task in ``to_thread.run_sync`` is found by the code that it is in.
- *Freezing a task.* ``runner.runq`` is the queue of tasks for the next round; taking a task out
  of it is what freezes a program (see ``freezing``).

`check` verifies before every simulation that these parts exist. A release of trio that changed
them is refused by name, because a simulation that runs without them would look fine and prove
nothing.

Source: trio's ``_core/_run.py``, ``_core/_mock_clock.py``.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import attrs
import trio
from trio.testing import MockClock

from kgroup.errors import UsageError

_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR: Final = "_r"
_AUTOJUMP: Final = "_autojump"
_RUN_SYNC: Final = trio.to_thread.run_sync.__code__
"""The code that a task is in while a worker thread works for it."""
_IDLE_THREAD: Final = "Trio thread"
"""How trio names a worker thread that waits for work."""


def _run_module() -> Any:
    core = getattr(trio, "_core", None)
    return getattr(core, "_run", None)


def check() -> None:
    """Check that this release of trio has everything that is used here.

    Raises:
        UsageError: it lacks some of it; the message names what.
    """
    run = _run_module()
    missing = [
        name
        for name, exists in (
            (f"trio._core._run.{_SWITCH}", hasattr(run, _SWITCH)),
            (
                f"trio._core._run.{_GENERATOR}",
                isinstance(getattr(run, _GENERATOR, None), random.Random),
            ),
            ("trio._core._run.GLOBAL_RUN_CONTEXT", hasattr(run, "GLOBAL_RUN_CONTEXT")),
            (
                "trio._core._run.Deadlines.next_deadline",
                hasattr(getattr(run, "Deadlines", None), "next_deadline"),
            ),
            ("trio._core._run.Error", hasattr(run, "Error")),
            (
                "trio._core._run.Runner.deliver_ki",
                hasattr(getattr(run, "Runner", None), "deliver_ki"),
            ),
            *(
                (f"trio.lowlevel.Task.{name}", name in attrs.fields_dict(trio.lowlevel.Task))
                for name in ("_next_send_fn", "_next_send")
            ),
            (f"trio.testing.MockClock.{_AUTOJUMP}", hasattr(MockClock, _AUTOJUMP)),
        )
        if not exists
    ]
    if missing:
        raise UsageError(
            f"trio {trio.__version__} has no {', '.join(missing)}, which the simulator needs to"
            " be the same for the same seed: install a release of trio that kgroup was tested with"
        )


@contextmanager
def deterministic_scheduling(seed: int) -> Iterator[None]:
    """Let a seed decide the order in which trio runs its tasks; restore everything afterwards."""
    check()
    run = _run_module()
    generator: random.Random = getattr(run, _GENERATOR)
    switch, state = getattr(run, _SWITCH), generator.getstate()
    setattr(run, _SWITCH, True)
    generator.seed(seed)
    try:
        yield
    finally:
        setattr(run, _SWITCH, switch)
        generator.setstate(state)


@final
class TimedCalls:
    """The functions that a clock has to call, each at its time."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, at: float, fn: Callable[[], None]) -> None:
        """Add a call; calls of one time are made in the order in which they were added."""
        heapq.heappush(self._waiting, (at, next(self._numbers), fn))

    @property
    def next_time(self) -> float:
        """The time of the earliest call; infinity if there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def run_due(self, now: float) -> None:
        """Make every call whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2]()


def autojump_clock(
    may_jump: Callable[[], bool], poll_interval: float, calls: TimedCalls
) -> MockClock:
    """A clock that jumps to the next deadline once every task waits and ``may_jump`` allows it.

    Args:
        may_jump: called before each jump.
        poll_interval: real seconds after which it is called again if it said no.
        calls: made on the way, each at its time, between two rounds of trio's loop.
    """
    check()
    clock = MockClock(autojump_threshold=0)
    context = _run_module().GLOBAL_RUN_CONTEXT
    time = 0.0

    def current_time() -> float:
        return time

    def jump_if_allowed() -> None:
        nonlocal time
        allowed = may_jump()
        threshold = 0.0 if allowed else poll_interval
        if clock.autojump_threshold != threshold:
            clock.autojump_threshold = threshold
        if allowed:
            # MockClock asks for all statistics of the run to learn the next deadline, which is
            # slow, and adds the jump to its time, which is inexact.
            at = min(context.runner.deadlines.next_deadline(), calls.next_time)
            if time < at < math.inf:
                time = at
            calls.run_due(time)

    clock.current_time = current_time  # type: ignore[method-assign]
    setattr(clock, _AUTOJUMP, jump_if_allowed)
    return clock


def deliver_interrupt() -> None:
    """Raise KeyboardInterrupt in the main task, at its next checkpoint; for a signal handler."""
    _run_module().GLOBAL_RUN_CONTEXT.runner.deliver_ki()


def raise_in(task: trio.lowlevel.Task, error: BaseException) -> None:
    """Raise in a task between two of its steps, whether it is shielded from cancellation or not.

    What it waits for does not learn of it, so the run is of no further use. A task that has not
    begun is left alone.
    """
    state: Any = task
    outcome = _run_module().Error(error)
    if state._next_send_fn is None:  # noqa: SLF001
        trio.lowlevel.reschedule(task, outcome)
    elif state._next_send is not None:  # noqa: SLF001
        state._next_send = outcome  # noqa: SLF001


def waits_for_thread(task: trio.lowlevel.Task) -> bool:
    """Whether a worker thread works for a task."""
    return any(frame.f_code is _RUN_SYNC for frame, _ in task.iter_await_frames())


def other_threads() -> frozenset[threading.Thread]:
    """The threads that no task can get to work for it, called before a run.

    A worker thread that is idle now, from an earlier run, may work in this one.
    """
    threads = threading.enumerate()
    return frozenset(one for one in threads if not one.name.startswith(_IDLE_THREAD))


def runnable_tasks() -> deque[trio.lowlevel.Task]:
    """trio's own queue of the tasks that run in the next round of its loop.

    Raises:
        UsageError: this release of trio keeps them in something else.
    """
    context = getattr(_run_module(), "GLOBAL_RUN_CONTEXT", None)
    runner = getattr(context, "runner", None)
    queue = getattr(runner, "runq", None)
    if not isinstance(queue, deque):
        raise UsageError(
            f"trio {trio.__version__} does not keep its runnable tasks in a deque, so that the"
            " simulator cannot freeze a member: install a release of trio that kgroup was tested"
            " with"
        )
    return queue
