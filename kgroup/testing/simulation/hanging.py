"""Describes what keeps a simulation from ending: which task, in which line of the program.

INVARIANT: this only looks. It is called in the thread of the run, where no task takes a step
meanwhile; only when that thread cannot be reached does another thread call it.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final, final

import trio

from kgroup.errors import UsageError
from kgroup.testing.simulation import trio_internals
from kgroup.testing.simulation.freezing import owner_of

_Frames = Sequence[tuple[FrameType, int]]
"""Frames with their lines, the outermost first."""

_MOST_PLACES: Final = 8
_MOST_FRAMES: Final = 12
"""The most places, and the most frames of each, that are shown."""
_LIBRARIES: Final = frozenset({"trio", "kgroup", "outcome", "threading", "contextlib"})
"""Packages whose frames are left out, so that what is left is the program's own."""


@final
class SimulationHangError(UsageError):
    """A simulation did not end; the text says which seed, and what each task was doing.

    Attributes:
        seed: the seed.
        at: the virtual time at which it was abandoned.
    """

    def __init__(self, seed: int, at: float, text: str) -> None:
        super().__init__(text)
        self.seed: Final = seed
        self.at: Final = at

    def __reduce__(self) -> tuple[type[SimulationHangError], tuple[int, float, str]]:
        """Pickle the fields as well: another process may have run the seed."""
        return type(self), (self.seed, self.at, str(self))


def all_tasks(root: trio.lowlevel.Task | None) -> list[trio.lowlevel.Task]:
    """A task and all below it, parents before their children, in the same order in every run."""
    found = [] if root is None else [root]
    for task in found:
        for nursery in task.child_nurseries:
            found.extend(sorted(nursery.child_tasks, key=_name))
    return found


def is_leaf(task: trio.lowlevel.Task) -> bool:
    """Whether no other task has to end before this one can."""
    return not any(nursery.child_tasks for nursery in task.child_nurseries)


def lines(
    root: trio.lowlevel.Task | None,
    frame: FrameType | None,
    threads_before: Collection[threading.Thread],
) -> Iterator[str]:
    """What keeps a run from ending.

    Args:
        root: its main task, or None if it has not begun.
        frame: where a task computes or blocks its thread, or None if every task waits.
        threads_before: the threads that are no worker threads of the run.
    """
    if frame is not None:
        yield f"  {_current()} computes, or blocks its thread:"
        yield from _shown(_in_step(frame))
        return
    leaves = list(filter(is_leaf, all_tasks(root)))
    programs = [one for one in leaves if owner_of(one) is not None] or leaves
    in_threads = [one for one in programs if trio_internals.waits_for_thread(one)]
    queue = trio_internals.runnable_tasks() if programs else ()
    runnable = [one for one in programs if one in queue]
    own = [one for one in programs if _own(_stack(one))]
    found: dict[tuple[str, ...], list[str]] = {}
    for task in in_threads or runnable or own or programs:
        found.setdefault(tuple(_shown(_stack(task))), []).append(_name(task))
    does = "waiting for a worker thread" if in_threads else "not ending"
    for stack, names in list(found.items())[:_MOST_PLACES]:
        others = f" (and {len(names) - 1} more tasks)" if len(names) > 1 else ""
        yield f"  {names[0]}{others} is {does}:"
        yield from stack
    if len(found) > _MOST_PLACES:
        yield f"  ... and tasks at {len(found) - _MOST_PLACES} other places"
    if in_threads:
        yield from _threads(threads_before)


def thread_frames() -> dict[int, FrameType]:
    """Where each thread is, by its number."""
    return sys._current_frames()  # noqa: SLF001 # documented, with this name


def _threads(before: Collection[threading.Thread]) -> Iterator[str]:
    """The worker threads that run code of the program."""
    frames = thread_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread not in before and frame is not None:
            stack = list(traceback.walk_stack(frame))[::-1]
            if _own(stack):
                yield f"  its thread {thread.name!r}:"
                yield from _shown(stack)


def _in_step(frame: FrameType) -> _Frames:
    """The frames of the step that a task takes: those that trio's loop has called."""
    stack = list(traceback.walk_stack(frame))[::-1]
    begin = (n for n, (one, _) in enumerate(stack, 1) if one.f_code.co_name == "unrolled_run")
    return stack[max(begin, default=0) :]


def _current() -> str:
    """The task that takes a step now."""
    with suppress(RuntimeError):
        return _name(trio.lowlevel.current_task())
    return "a program"


def _name(task: trio.lowlevel.Task) -> str:
    return f"{owner_of(task) or 'the simulator'}: the task {task.name}"


def _stack(task: trio.lowlevel.Task) -> _Frames:
    return list(task.iter_await_frames())


def _own(stack: _Frames) -> _Frames:
    return [
        (frame, line)
        for frame, line in stack
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES
    ]


def _shown(stack: _Frames) -> Iterable[str]:
    """The program's own frames, or all if there is none."""
    frames = (_own(stack) or stack)[-_MOST_FRAMES:]
    text = "".join(traceback.StackSummary.extract(iter(frames)).format())
    return (f"  {line}" for line in text.splitlines())
