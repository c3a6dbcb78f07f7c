"""Every place where the simulator reaches into trio itself, and nothing else.

Trio shuffles its runnable tasks on purpose and lets nobody put a task aside; a simulation that
replays from a seed, and a member that freezes, need both. What is used is looked for before a
simulation begins: where trio has moved on, that is an error that names it, and no simulation
that silently means less.

Source: trio's ``_core/_run.py``, ``_core/_mock_clock.py``.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import trio
from trio.testing import MockClock

from kgroup.errors import UsageError

_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR: Final = "_r"
_AUTOJUMP: Final = "_autojump"


def _run_module() -> Any:
    core = getattr(trio, "_core", None)
    return getattr(core, "_run", None)


def check() -> None:
    """Look for everything that is used.

    Raises:
        UsageError: this release of trio lacks some of it.
    """
    run = _run_module()
    missing = [
        name
        for name, there in (
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
            (f"trio.testing.MockClock.{_AUTOJUMP}", hasattr(MockClock, _AUTOJUMP)),
        )
        if not there
    ]
    if missing:
        raise UsageError(
            f"trio {trio.__version__} has no {', '.join(missing)}: a simulation would not be the"
            " same for the same seed; install a release of trio that kgroup was tested with"
        )


@contextmanager
def deterministic_scheduling(seed: int) -> Iterator[None]:
    """Let trio choose by a seed; afterwards everything is as it was."""
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
class Calls:
    """What a clock has to call, and when."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, at: float, fn: Callable[[], None]) -> None:
        """Have a function called at a time; those of one time in the order in which they came."""
        heapq.heappush(self._waiting, (at, next(self._numbers), fn))

    @property
    def next(self) -> float:
        """The time of the first; infinity if there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def make(self, until: float) -> None:
        """Make every call whose time has come."""
        while self._waiting and self._waiting[0][0] <= until:
            heapq.heappop(self._waiting)[2]()


def clock_that_jumps(when: Callable[[], bool], look_again: float, calls: Calls) -> MockClock:
    """A clock that jumps to the next deadline once every task waits, where ``when`` allows it.

    Args:
        when: is asked before each jump.
        look_again: real seconds after which it is asked again.
        calls: are made on the way, each at its time, between two rounds of trio's loop.
    """
    check()
    clock = MockClock(autojump_threshold=0)
    context = _run_module().GLOBAL_RUN_CONTEXT
    time = 0.0

    def current_time() -> float:
        return time

    def jump_if_allowed() -> None:
        nonlocal time
        allowed = when()
        threshold = 0.0 if allowed else look_again
        if clock.autojump_threshold != threshold:
            clock.autojump_threshold = threshold
        if allowed:
            # As MockClock itself does, without all the other statistics of the run, and exactly
            # to the deadline, not to where the sum of all jumps has come.
            at = min(context.runner.deadlines.next_deadline(), calls.next)
            if time < at < math.inf:
                time = at
            calls.make(time)

    clock.current_time = current_time  # type: ignore[method-assign]
    setattr(clock, _AUTOJUMP, jump_if_allowed)
    return clock


def runnable_tasks() -> deque[trio.lowlevel.Task]:
    """The tasks of this run that are to go on in the next round of its loop, as trio holds them.

    Raises:
        UsageError: this release of trio holds them otherwise.
    """
    context = getattr(_run_module(), "GLOBAL_RUN_CONTEXT", None)
    runner = getattr(context, "runner", None)
    queue = getattr(runner, "runq", None)
    if not isinstance(queue, deque):
        raise UsageError(
            f"trio {trio.__version__} holds its runnable tasks otherwise than kgroup knows: a"
            " member cannot be frozen; install a release of trio that kgroup was tested with"
        )
    return queue
