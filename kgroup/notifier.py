"""Wakes tasks that wait until something has changed."""

from __future__ import annotations

from typing import final

import trio


@final
class Notifier:
    """Wakes every task that waits when `notify` is called; a task that waits later is not woken.

    A waiting task checks its condition in a loop::

        while not condition():
            await notifier.wait()

    Nothing runs between the check and the wait, so that no change is missed.
    """

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        """Wake all tasks that are waiting now."""
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        """Wait for the next `notify`.

        Cancellation: the wait ends; nothing else changes.
        """
        await self._event.wait()
