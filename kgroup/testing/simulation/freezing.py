"""Freezes all tasks of one owner, as SIGSTOP freezes a process: not one of them takes a step.

A task belongs to the owner that was entered where it was started, and so do its children. What
wakes a frozen task (a deadline, a cancellation, a byte) is kept, and takes effect as it thaws.
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
    """Tasks that are started inside belong to this owner, and so does this one meanwhile."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def current_owner() -> str | None:
    """Whose task this is, or None."""
    return _owner.get()


@final
class Freezer(trio.abc.Instrument):
    """Freezes and thaws owners within one run of trio."""

    def __init__(self) -> None:
        self._held: dict[str, list[trio.lowlevel.Task]] = {}

    def is_frozen(self, owner: str) -> bool:
        """Whether an owner is frozen."""
        return owner in self._held

    async def freeze(self, owner: str) -> None:
        """Freeze; when it returns no task of the owner takes another step. Again is nothing."""
        if owner not in self._held:
            if not self._held:
                trio.lowlevel.add_instrument(self)
            self._held[owner] = []
            queue = trio_internals.runnable_tasks()
            for task in [one for one in queue if one.context.get(_owner) == owner]:
                queue.remove(task)
                self._held[owner].append(task)
        # Tasks that trio has taken up in this very round take their step yet.
        await trio.lowlevel.cancel_shielded_checkpoint()

    def thaw(self, owner: str) -> None:
        """Let it go on where it was. One that is not frozen: nothing."""
        held = self._held.pop(owner, None)
        if held is None:
            return
        if not self._held:
            trio.lowlevel.remove_instrument(self)
        trio_internals.runnable_tasks().extend(held)

    def thaw_all(self) -> None:
        """Let everything go on that is frozen."""
        for owner in list(self._held):
            self.thaw(owner)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See ``trio.abc.Instrument``: the task is the last of those that are to go on."""
        owner = task.context.get(_owner)
        if owner is None or owner not in self._held:
            return
        last = trio_internals.runnable_tasks().pop()
        assert last is task, "trio tells of a task as soon as it is to go on"
        self._held[owner].append(task)
