"""Runs an async function in virtual time, the same way for the same seed.

Theory of operation
-------------------
trio asks its clock two things: what time it is, and how long it may sleep until the next deadline.
``MockClock`` answers with a time of its own, which never advances by itself. With an *autojump
threshold* trio calls the clock's ``_autojump`` once no task has been runnable for that many real
seconds; the clock then sets its time to the earliest deadline, and the tasks whose deadline that
is become runnable. A threshold of 0 makes every wait instantaneous.

Two things are added, in ``trio_internals.autojump_clock``:

- *Worker threads.* A task that waits in ``trio.to_thread.run_sync`` looks idle to trio while its
  thread still works; jumping then would let every time-out expire during an instant of real
  time. So before each jump the clock asks whether a worker thread is at work. If one is, it tries
  again after `_POLL_INTERVAL` real seconds. Trap: trio keeps idle threads for reuse, so that the
  number of threads alone proves nothing; `_clock` looks for tasks that wait for one.
- *Calls at a time* (`call_at`). The simulated network wakes a reader when bytes arrive. A task or
  a cancel scope with a deadline for each message would double the cost of a message, so the clock
  itself calls a function at that time, between two rounds of trio's loop. The next jump goes to
  the earlier of trio's next deadline and the next such call.

Determinism. trio shuffles the tasks of each round on purpose. `run_virtual` turns on trio's
private switch for deterministic scheduling, which sorts them first, and seeds the generator that
shuffles them; both are as they were after the run. It also stops the garbage collector: a
finalizer that runs at an arbitrary moment may wake tasks or close streams. What else could break
"same seed, same trace" is listed in ``engine``.

INVARIANTS: time jumps only when every task waits and no worker thread works. trio's choices come
from the seed. Nothing set here outlives the run.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import trio
from trio.testing import MockClock

from kgroup.testing.simulation import hanging, trio_internals
from kgroup.testing.simulation.socket_guard import no_sockets
from kgroup.testing.simulation.watchdog import SEED_TIMEOUT, Watchdog

T = TypeVar("T")

_POLL_INTERVAL: Final = 0.001
"""Real seconds after which a clock that waits for worker threads checks them again."""

_running: Final[ContextVar[tuple[trio_internals.TimedCalls, Watchdog]]] = ContextVar("kgroup_run")
"""The clock's calls and the watchdog of the run."""


def call_at(at: float, fn: Callable[[], None]) -> None:
    """Call a function at a virtual time, once every task waits; only inside `run_virtual`.

    The function is called by the clock, outside any task. It must not raise and must be quick; it
    is meant for waking tasks.
    """
    calls, _ = _running.get()
    calls.add(at, fn)


def end_by(at: float, why: str) -> None:
    """End the run as one that hangs if it lasts until a virtual time; only inside `run_virtual`.

    Args:
        at: the virtual time.
        why: what has not happened by then, as a sentence without its full stop.
    """
    _, watchdog = _running.get()
    call_at(at, lambda: watchdog.abandon(why))


def _clock(calls: trio_internals.TimedCalls) -> MockClock:
    """A clock that jumps when all tasks wait and no worker thread works."""
    others = trio_internals.other_threads()

    def no_thread_works() -> bool:
        # This runs before every jump, so the cheapest test comes first: as a rule there is no
        # thread but this one.
        if threading.active_count() == 1 or others.issuperset(threading.enumerate()):
            return True
        tasks = hanging.all_tasks(trio.lowlevel.current_root_task())
        return not any(map(trio_internals.waits_for_thread, tasks))

    return trio_internals.autojump_clock(no_thread_works, _POLL_INTERVAL, calls)


def run_virtual(
    seed: int,
    main: Callable[..., Awaitable[T]],
    *args: Any,
    seed_timeout: float = SEED_TIMEOUT,
) -> T:
    """Run ``main(*args)`` as ``trio.run`` does, in virtual time that begins at 0.

    The garbage collector is off meanwhile: when it runs does not follow from the seed.

    Args:
        seed: decides trio's own choices.
        main: an async function.
        args: its arguments.
        seed_timeout: real seconds that the run may take.

    Raises:
        SimulationHangError: it did not end in that time.
        UsageError: this release of trio lacks the internals that make it deterministic; or the
            code inside tried to open a real socket (raised where it tried).
        KeyboardInterrupt: raised bare, whichever task it interrupted, and also if a task does not
            end when it is cancelled.
        Exception: what a task raised, without the groups of the nurseries around it; an
            ExceptionGroup, if several tasks failed.
        RuntimeError: called from inside ``trio.run``; use ``trio.to_thread.run_sync`` there.
    """
    calls, watchdog = trio_internals.TimedCalls(), Watchdog(seed, seed_timeout)

    async def guarded() -> T:
        with watchdog.in_run(), no_sockets():
            return await main(*args)

    # Set outside the run: what the clock calls runs in no task, and may itself use `call_at`.
    token = _running.set((calls, watchdog))
    with trio_internals.deterministic_scheduling(seed), _without_collector():
        try:
            with watchdog.watching():
                clock = _clock(calls)
                watchdog.before_run(clock)
                return trio.run(guarded, clock=clock)
        except BaseExceptionGroup as errors:
            if errors.subgroup(KeyboardInterrupt) is not None:
                # Which of the simulated tasks it interrupted does not matter to the user.
                raise KeyboardInterrupt from errors
            failure = _without_nurseries(errors)
        finally:
            _running.reset(token)
    # Raised here, so that the exception keeps its own cause and context, and gets no others.
    raise failure


def _without_nurseries(error: BaseException) -> BaseException:
    """An exception without the groups in which it is alone."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def _without_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
