"""Handler threads of one generation: how they start, end, and are reported if they do not end.

For the trio generation, each thread is a task that ends when the thread does. The task can be
cancelled, the thread cannot: it then runs on after its generation.

INVARIANTS: a thread is joined, or named in an event; its exception is never lost.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

import trio

from kgroup.background.event_loop import BackgroundLoop
from kgroup.tracebacks import StartedCall
from kgroup.types import Membership, TopicPartition
from kgroup.worker_thread import ThreadCall, stack_of

GRACE: Final = 1.0
"""Seconds after the end of its generation in which a thread may notice the end and return."""


@final
class Handler:
    """One function of the program, in a thread of its own."""

    def __init__(
        self,
        loop: BackgroundLoop,
        membership: Membership,
        context: contextvars.Context,
        fn: Callable[..., object],
        *args: Any,
    ) -> None:
        self.name = getattr(fn, "__qualname__", repr(fn))
        partitions = ", ".join(str(arg) for arg in args if isinstance(arg, TopicPartition))
        started = StartedCall(fn, args, membership)
        self.call = ThreadCall(partial(_run, started, fn, *args), context, loop.post)
        self.thread = threading.Thread(
            target=self.call.run,
            name=f"kgroup-{membership.group_id}-{self.name}({partitions})",
            daemon=True,
        )
        self._raised = False

    @property
    def unraised_error(self) -> BaseException | None:
        """The exception of the thread, if its task was cancelled before and could not raise it."""
        return None if self._raised else self.call.error

    @property
    def stack(self) -> str:
        """The stack of the thread."""
        return stack_of(self.thread) or "(the thread has ended)"

    def start(self) -> None:
        """Start the thread."""
        try:
            self.thread.start()
        except RuntimeError as error:  # the system has no more threads
            self.call.fail(error)

    async def wait_as_task(self) -> None:
        """Be the thread's task: return when the thread does, or raise its exception."""
        try:
            await self.call.wait()
        except trio.Cancelled:
            if self.call.error is None:
                raise
        self._raised = True
        self.call.result()


def _run(started: StartedCall, fn: Callable[..., object], *args: Any) -> None:
    with started:
        fn(*args)
