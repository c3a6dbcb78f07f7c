"""The threads of one generation: those of its handlers, and the one that runs the loop's body."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import final

import trio

from kgroup.background.flag import Flag
from kgroup.events import HandlerStillRunning
from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.generation.task_errors import without_stale_errors
from kgroup.threaded.handlers import GRACE, Handler
from kgroup.worker_thread import stack_of


@final
class GenerationThreads:
    """What the group of ``kgroup.threaded`` has to know of a generation's threads.

    Args:
        generation: the trio generation.
        emit: reports an event.

    Attributes:
        generation: the trio generation.
        ending: set in the threads' sight when the generation begins to end.
        body: the thread to which `next` has returned the generation.
        stragglers_reported: set when threads that outlast the generation were reported.
        ended: for the group to set when all have ended, and it has taken their exceptions.
    """

    def __init__(
        self, generation: TrioGeneration, emit: Callable[[HandlerStillRunning], None]
    ) -> None:
        self.generation = generation
        self.ending = Flag()
        self.body: threading.Thread | None = None
        self.stragglers_reported = trio.Event()
        self.ended = trio.Event()
        self._emit = emit
        self._handlers: dict[Handler, None] = {}
        self._names: Counter[str] = Counter()

    # In the loop.

    def start(self, handler: Handler) -> None:
        """Start the thread of a handler; if others have its name, it also gets a number."""
        self._names[handler.thread.name] += 1
        if (number := self._names[handler.thread.name]) > 1:
            handler.thread.name += f"-{number}"
        self._handlers[handler] = None
        handler.start()

    async def watch(self) -> None:
        """Tell the threads of the end by setting `ending`, and wait until they have ended."""
        await self.generation.ending.wait()
        self.ending.set()
        await self.generation.wait_ended()
        with trio.move_on_after(GRACE):
            await self._wait()
        for handler in self._handlers:
            if not handler.call.ended:
                self._emit(self._straggler(handler))
        self.stragglers_reported.set()
        await self._wait()

    # In any thread.

    def late_errors(self) -> list[BaseException]:
        """The exceptions of threads that outlasted the generation, without its stale errors."""
        raised = [
            handler.unraised_error
            for handler in self._handlers
            if handler.unraised_error is not None
        ]
        left = (without_stale_errors(error, self.generation.end) for error in raised)
        return [error for error in left if error is not None]

    def running(self) -> list[str]:
        """The names of the handler threads that have not ended."""
        return [one.thread.name for one in list(self._handlers) if not one.call.ended]

    def join(self) -> None:
        """Join the threads whose functions have returned."""
        for handler in list(self._handlers):
            if handler.call.ended and handler.thread.ident is not None:
                handler.thread.join()

    def stack_of_body(self) -> str:
        """Where the body of the loop is."""
        return (None if self.body is None else stack_of(self.body)) or "(the thread has ended)"

    async def _wait(self) -> None:
        for handler in self._handlers:
            await handler.call.wait()

    def _straggler(self, handler: Handler) -> HandlerStillRunning:
        generation = self.generation
        return HandlerStillRunning(
            group_id=generation.group_id,
            member_id=generation.member_id,
            generation_id=generation.generation_id,
            epoch=generation.epoch,
            thread=handler.thread.name,
            stack=handler.stack,
        )
