"""Runs an async function in virtual time, the same for the same seed.

INVARIANTS: time jumps only when every task waits and no worker thread runs; trio's choices come
from the seed; nothing of this outlives the run.
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

from kgroup.testing.simulation import trio_internals
from kgroup.testing.simulation.socket_guard import no_sockets

T = TypeVar("T")

_LOOK_AGAIN: Final = 0.001
"""Real seconds until a clock that waits for worker threads looks at them again."""
_IDLE: Final = "Trio thread"
"""How trio names a worker thread that waits for work; any simulation may get it."""
_IN_A_THREAD: Final = trio.to_thread.run_sync.__code__
"""What a task stands in while a worker thread works for it."""


_calls: Final[ContextVar[trio_internals.Calls]] = ContextVar("kgroup_calls_of_the_clock")


def call_at(at: float, fn: Callable[[], None]) -> None:
    """Have a function called at a virtual time, once every task waits; inside of `run_virtual`.

    It must neither raise nor take long; waking tasks is what it is for. It costs far less than a
    task, or a scope, with a deadline.
    """
    _calls.get().add(at, fn)


def _clock(calls: trio_internals.Calls) -> MockClock:
    """A clock that jumps when all tasks wait, and for no worker thread."""
    bystanders = {one for one in threading.enumerate() if not one.name.startswith(_IDLE)}

    def nobody_works() -> bool:
        # This thread alone, as mostly: asked at every jump, so the cheapest question comes first.
        if threading.active_count() == 1 or bystanders.issuperset(threading.enumerate()):
            return True
        return not any(map(_has_thread, _tasks()))

    return trio_internals.clock_that_jumps(nobody_works, _LOOK_AGAIN, calls)


def run_virtual(seed: int, main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run ``main(*args)`` as ``trio.run`` does, from virtual time 0 on.

    The garbage collector rests meanwhile: when it runs is nothing that a seed decides.

    Args:
        seed: of trio's own choices.
        main: an async function.
        args: its arguments.

    Raises:
        UsageError: this release of trio cannot be made to choose by a seed. A real socket inside
            raises it too, where it is made.
        KeyboardInterrupt: bare, wherever inside it was raised.
        RuntimeError: called from inside of ``trio.run``; use ``trio.to_thread.run_sync`` there.
    """
    calls = trio_internals.Calls()

    async def guarded() -> T:
        with no_sockets():
            return await main(*args)

    # Around the run, for what the clock calls is no task's and may ask for another call.
    token = _calls.set(calls)
    with trio_internals.deterministic_scheduling(seed), _without_collector():
        try:
            return trio.run(guarded, clock=_clock(calls))
        except BaseExceptionGroup as errors:
            if errors.subgroup(KeyboardInterrupt) is not None:
                # Which of its tasks it met is nothing to whoever has interrupted the simulation.
                raise KeyboardInterrupt from errors
            raise
        finally:
            _calls.reset(token)


@contextmanager
def _without_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _tasks() -> Iterator[trio.lowlevel.Task]:
    """Every task of this run."""
    root = trio.lowlevel.current_root_task()
    found = [] if root is None else [root]
    while found:
        task = found.pop()
        yield task
        for nursery in task.child_nurseries:
            found.extend(nursery.child_tasks)


def _has_thread(task: trio.lowlevel.Task) -> bool:
    return any(frame.f_code is _IN_A_THREAD for frame, _ in task.iter_await_frames())
