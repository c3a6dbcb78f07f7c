"""Handler threads of one generation: started, waited for, and named where they outstay it.

To the generation each of them is a task that ends when the thread does. The task can be
cancelled, the thread cannot: it is then a straggler.

INVARIANTS: a thread is joined, or named in an event; what it raises is never lost.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final, final

import trio

from kgroup.threaded.event_loop import BackgroundLoop
from kgroup.types import TopicPartition

GRACE: Final = 1.0
"""Seconds after the end of its generation in which a thread may notice it and return."""


@final
class Handler:
    """One function of the program's in a thread of its own."""

    def __init__(
        self,
        loop: BackgroundLoop,
        group_id: str,
        context: contextvars.Context,
        fn: Callable[..., object],
    ) -> None:
        self._loop = loop
        self._context = context
        self._fn = fn
        self._args: tuple[Any, ...] = ()
        self._attended = False
        self.error: BaseException | None = None
        self.gone = trio.Event()
        self.name = getattr(fn, "__qualname__", repr(fn))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._group_id = group_id

    @property
    def untold(self) -> BaseException | None:
        """What the thread raised after its task had been cancelled."""
        return None if self._attended else self.error

    @property
    def stack(self) -> str:
        """Where the thread is."""
        frame = sys._current_frames().get(self.thread.ident or 0)  # noqa: SLF001 # the only way
        return "".join(traceback.format_stack(frame)) if frame else "(nowhere any more)"

    def start(self, args: tuple[Any, ...]) -> None:
        """Start the thread."""
        named = ", ".join(str(arg) for arg in args if isinstance(arg, TopicPartition))
        self._args = args
        self.thread.name = f"kgroup-{self._group_id}-{self.name}({named})"
        try:
            self.thread.start()
        except RuntimeError as error:  # the system gives no further thread
            self.error = error
            self.gone.set()

    async def attend(self) -> None:
        """Be the thread's task: end when it ends, and as it ends."""
        try:
            await self.gone.wait()
        except trio.Cancelled:
            if self.error is None:
                raise
        self._attended = True
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._context.run(self._fn, *self._args)
        except BaseException as error:  # noqa: BLE001 # raised by the task, or by `with`
            self.error = error
        self._args = ()
        if not self._loop.post(self.gone.set) and self.error is not None:
            # Nobody is left to be told: threading.excepthook is.
            raise self.error
