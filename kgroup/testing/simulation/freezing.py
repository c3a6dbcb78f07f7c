"""Freezes all tasks of one program, as SIGSTOP freezes a process: none of them takes a step.

Every task that a program starts carries the program's name in a context variable, which trio
copies to child tasks. To freeze a program is to take its tasks out of trio's queue of runnable
tasks; tasks that are waiting stay where they are. When a deadline, a cancellation or a byte makes
one of those runnable later, trio announces it to its instruments (``task_scheduled``), and the
`Freezer` takes it out of the queue at once and keeps it. What woke it takes effect at the thaw.

Traps: trio takes all tasks of a round out of its queue before it runs the first, so a task that
is in the current round still takes one step; `Freezer.freeze` therefore waits for the end of the
round. And a program is never thawed by its own cancellation: the code that cancels it must thaw it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, final

import trio

from kgroup.testing.simulation import trio_internals

_owner: Final[ContextVar[str | None]] = ContextVar("kgroup_simulated_owner", default=None)


@contextmanager
def owned_by(owner: str) -> Iterator[None]:
    """Let tasks that are started inside, and this one meanwhile, belong to this owner."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def owner_of(task: trio.lowlevel.Task) -> str | None:
    """The owner of a task; None for a task of the simulator itself."""
    return task.context.get(_owner)


@final
class Freezer(trio.abc.Instrument):
    """Freezes and thaws owners within one run of trio."""

    def __init__(self) -> None:
        self._frozen: dict[str, list[trio.lowlevel.Task]] = {}

    def is_frozen(self, owner: str) -> bool:
        """Whether an owner is frozen."""
        return owner in self._frozen

    async def freeze(self, owner: str) -> None:
        """Freeze an owner, unless it is frozen already; none of its tasks takes a step after."""
        if owner not in self._frozen:
            if not self._frozen:
                trio.lowlevel.add_instrument(self)
            self._frozen[owner] = []
            queue = trio_internals.runnable_tasks()
            for task in [one for one in queue if owner_of(one) == owner]:
                queue.remove(task)
                self._frozen[owner].append(task)
        # Tasks of the current round still take one step: wait until the round is over.
        await trio.lowlevel.cancel_shielded_checkpoint()

    def thaw(self, owner: str) -> None:
        """Let an owner continue where it was; does nothing if it is not frozen."""
        tasks = self._frozen.pop(owner, None)
        if tasks is None:
            return
        if not self._frozen:
            trio.lowlevel.remove_instrument(self)
        trio_internals.runnable_tasks().extend(tasks)

    def thaw_all(self) -> None:
        """Let every frozen owner continue."""
        for owner in list(self._frozen):
            self.thaw(owner)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See ``trio.abc.Instrument``: trio has just appended the task to its queue."""
        owner = owner_of(task)
        if owner is None or owner not in self._frozen:
            return
        last = trio_internals.runnable_tasks().pop()
        assert last is task, "trio calls task_scheduled right after it has queued the task"
        self._frozen[owner].append(task)
