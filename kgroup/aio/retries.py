"""``kgroup.retrying`` on asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeVar, final

from kgroup.aio.generation import Generation, run_in_loop
from kgroup.aio.tasks import refusing_stray_cancellations
from kgroup.dead_letters import DeadLetters
from kgroup.functions import name_of
from kgroup.generation.generation import pause_retries
from kgroup.interfaces import Batch, Message
from kgroup.retries import Park, retrying_with
from kgroup.retry_policy import ATTEMPTS, BACKOFF, LONGEST_BACKOFF, RetryPolicy

T = TypeVar("T")

RecordHandler = Callable[[Generation, Message], Awaitable[object]]
"""Processes a record, or raises."""


def retrying(
    handle: RecordHandler,
    *,
    attempts: int = ATTEMPTS,
    backoff: float = BACKOFF,
    backoff_max: float = LONGEST_BACKOFF,
    not_retried: type[Exception] | tuple[type[Exception], ...] = (),
    park: Park | DeadLetters | None = None,
) -> Callable[[Generation, Batch], Awaitable[int | None]]:
    """A function for ``run`` and ``serve`` that tries each record several times.

    The arguments and the rules are those of ``kgroup.retrying``, with async functions of asyncio.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """
    policy = RetryPolicy.checked(attempts, backoff, backoff_max, not_retried)
    return retrying_with(_Asyncio(), handle, policy, park)


@final
class _Asyncio:
    """See ``kgroup.retries.Loop``."""

    package = "kgroup.aio"
    kind: type = Generation

    async def pause(self, generation: Any, batch: Batch, seconds: float) -> None:
        if isinstance(generation, Generation):
            await run_in_loop(generation, lambda one: pause_retries(one, batch, seconds))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await generation.ending.wait()

    async def in_thread(self, fn: Callable[[], T]) -> T:
        # Not in a thread of the loop's executor: the program's own calls may fill that, and the
        # end of the loop waits for each of them.
        result: Future[T] = Future()
        call = partial(contextvars.copy_context().run, _call, fn, result)
        threading.Thread(target=call, name="kgroup-park", daemon=True).start()
        return await asyncio.wrap_future(result)

    def refusing_stray_cancellations(
        self, fn: Callable[..., object]
    ) -> AbstractContextManager[None]:
        return refusing_stray_cancellations(name_of(fn))


def _call(fn: Callable[[], T], result: Future[T]) -> None:
    if not result.set_running_or_notify_cancel():  # from now on it cannot be cancelled
        return
    try:
        value = fn()
    except BaseException as error:  # noqa: BLE001 # raised where it is awaited
        result.set_exception(error)
    else:
        result.set_result(value)
