"""Async functions in the settings, which run in asyncio's loop though trio calls them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, final

import attrs

from kgroup.aio.tasks import ProgramTask, Tasks
from kgroup.config import GroupConfig
from kgroup.errors import GroupClosedError
from kgroup.functions import name_of

Function = Callable[..., Any]


def in_asyncio(config: GroupConfig, tasks: Callable[[], Tasks]) -> GroupConfig:
    """The same settings for the trio group, with async functions that run in asyncio's loop.

    Functions that are not async are called in threads, as for the trio group.
    """
    security = config.security
    if config.starts is None and not security.dynamic:
        return config
    if security.dynamic:
        token, credentials = security.token, security.credentials
        security = attrs.evolve(
            security,
            token=None if token is None else _wrapped(token, tasks),
            credentials=_wrapped(credentials, tasks) if callable(credentials) else credentials,
        )
    starts = None if config.starts is None else _wrapped(config.starts, tasks)
    return attrs.evolve(config, starts=starts, security=security)


def _wrapped(fn: Function, tasks: Callable[[], Tasks]) -> Function:
    async def call_async(*args: Any) -> Any:
        return await _run(fn, partial(fn, *args), tasks())

    def call_in_thread(*args: Any) -> Any:
        returned = fn(*args)
        return _InAsyncio(fn, returned, tasks()) if inspect.isawaitable(returned) else returned

    call: Function = call_async if inspect.iscoroutinefunction(fn) else call_in_thread
    call.__qualname__ = name_of(fn)
    return call


@final
class _InAsyncio:
    """An awaitable of asyncio, for trio to await; trio's threads return no coroutines."""

    def __init__(self, fn: Function, awaitable: Awaitable[Any], tasks: Tasks) -> None:
        self._fn = fn
        self._awaitable = awaitable
        self._tasks = tasks
        self._awaited = False

    def __await__(self) -> Generator[Any, Any, Any]:
        return _run(self._fn, self._begin, self._tasks, self._close).__await__()

    def _begin(self) -> Awaitable[Any]:
        self._awaited = True
        return self._awaitable

    def _close(self) -> None:
        # Python warns of a coroutine that was never awaited, as if the program had forgotten to.
        if not self._awaited and inspect.iscoroutine(self._awaitable):
            self._awaitable.close()

    __del__ = _close  # trio was cancelled before the thread had returned it


async def _run(
    fn: Function,
    call: Callable[[], Awaitable[Any]],
    tasks: Tasks,
    unused: Callable[[], object] | None = None,
) -> Any:
    """Run a function in asyncio's loop, and wait for it in trio's."""
    context = tasks.bridge.context.copy()
    task: ProgramTask[Any] = ProgramTask(tasks, context, call, unused=unused)
    task.name = name_of(fn)
    tasks.bridge.post(task.start)
    # A shield would outlast the deadlines of those who call it, and cost the membership: heartbeats
    # may need a login while something blocks asyncio's loop.
    value = await task.wait(shielded=False)
    if task.cancelled:
        raise GroupClosedError(f"{task.name} was cancelled, or asyncio's loop was closed")
    return value
