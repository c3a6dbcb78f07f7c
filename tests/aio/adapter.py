"""A group of ``kgroup.aio`` as a trio program sees it, for tests that were written for trio's.

Each group has a thread of its own, in which asyncio runs. The trio task that enters the group has a
counterpart there, the body: what that task awaits, the body awaits. What other trio tasks await is
awaited by asyncio tasks of their own. A function that a test starts in a generation runs in trio;
an asyncio task waits for it, as for async functions of the settings. Cancellations and exceptions
go both ways.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, final

import attrs
import trio

from kgroup import aio
from kgroup.config import GroupConfig
from kgroup.errors import GroupClosedError
from kgroup.events import Event
from kgroup.interfaces import Batch
from kgroup.runtime import Runtime
from kgroup.types import End

_JOIN: Final = 60.0
"""Seconds after which a thread that does not end fails its test."""


@final
class Loop:
    """The asyncio loop of one group, and calls between it and the test's trio loop."""

    def __init__(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self.loop = asyncio.new_event_loop()
        self.body_calls: asyncio.Queue[Call | None] = asyncio.Queue()
        self.owner = trio.lowlevel.current_task()
        self.tasks: set[asyncio.Task[None]] = set()

    def sync(self, fn: Callable[[], Any]) -> Any:
        """Call a function in asyncio's loop, and wait for it without a checkpoint."""
        result: Future[Any] = Future()

        def call() -> None:
            try:
                result.set_result(fn())
            except Exception as error:  # noqa: BLE001 # raised in the test
                result.set_exception(error)

        self.loop.call_soon_threadsafe(call)
        return result.result(_JOIN)

    async def wait(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        """Await a coroutine function in asyncio's loop."""
        call = Call(self.token, fn)
        in_body = trio.lowlevel.current_task() is self.owner
        begin = partial(self.body_calls.put_nowait, call) if in_body else partial(self._run, call)
        self.loop.call_soon_threadsafe(begin)
        return await call.wait(self.loop)

    def in_test(self, fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A trio function as a function of asyncio."""

        async def run(*args: Any) -> Any:
            ended: asyncio.Future[None] = self.loop.create_future()
            scope, raised, returned = trio.CancelScope(), list[BaseException](), list[Any]()

            async def in_trio() -> None:
                try:
                    with scope:
                        returned.append(await fn(*args))
                except BaseException as error:  # noqa: BLE001 # raised in asyncio's task
                    raised.append(error)
                self.loop.call_soon_threadsafe(ended.set_result, None)

            self.token.run_sync_soon(partial(trio.lowlevel.spawn_system_task, in_trio))
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                self.token.run_sync_soon(scope.cancel)
                await ended
                if not raised:
                    raise
            if raised:
                raise raised[0]
            return returned[0]

        run.__qualname__ = getattr(fn, "__qualname__", repr(fn))
        return run

    def _run(self, call: Call) -> None:
        task = self.loop.create_task(call.run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


@final
class Call:
    """A call of a trio task, which a task of asyncio makes."""

    def __init__(self, token: trio.lowlevel.TrioToken, fn: Callable[[], Awaitable[Any]]) -> None:
        self._token = token
        self._fn = fn
        self._done = trio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._value: Any = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        """In asyncio."""
        self._task = asyncio.current_task()
        assert self._task is not None
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            self._value = await self._fn()
        except asyncio.CancelledError as error:
            self._error = error
            if not self._cancelled:
                raise
        except BaseException as error:  # noqa: BLE001 # raised in the test
            self._error = error
        finally:
            task, self._task = self._task, None
            if self._cancelled:
                task.uncancel()
            self._token.run_sync_soon(self._done.set)

    async def wait(self, loop: asyncio.AbstractEventLoop) -> Any:
        """In trio."""
        try:
            await self._done.wait()
        except trio.Cancelled:
            loop.call_soon_threadsafe(self._cancel)
            with trio.CancelScope(shield=True):
                await self._done.wait()
            if isinstance(self._error, asyncio.CancelledError):
                raise
        if isinstance(self._error, asyncio.CancelledError):
            await trio.sleep_forever()  # the body is being cancelled
        if self._error is not None:
            raise self._error
        return self._value

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


@final
class Ending:
    """``generation.ending``."""

    def __init__(self, loop: Loop, ending: asyncio.Event) -> None:
        self._loop = loop
        self._ending = ending

    def is_set(self) -> bool:
        """As a ``trio.Event``'s."""
        return self._ending.is_set()

    async def wait(self) -> None:
        """As a ``trio.Event``'s."""
        await self._loop.wait(self._ending.wait)


@final
class Records:
    """A record stream."""

    def __init__(self, loop: Loop, records: aio.Records) -> None:
        self._loop = loop
        self._records = records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        batch: Batch | None = await self._loop.wait(self._next)
        if batch is None:
            raise StopAsyncIteration
        return batch

    def close(self) -> None:
        """As a trio stream's."""
        self._loop.sync(self._records.close)

    async def _next(self) -> Batch | None:
        return await anext(self._records, None)


@final
class Generation:
    """A generation."""

    def __init__(self, loop: Loop, generation: aio.Generation) -> None:
        self._loop = loop
        self._generation = generation
        self.ending = Ending(loop, generation.ending)

    def __getattr__(self, name: str) -> Any:
        """What is a value, such as the assignment and the ids."""
        return getattr(self._generation, name)

    def start_soon(self, fn: Callable[..., Awaitable[object]], *args: Any) -> bool:
        """Start a trio function."""
        started = self._loop.sync(
            lambda: self._generation.start_soon(self._loop.in_test(fn), *args)
        )
        return bool(started)

    async def run(self, fn: Callable[[], Awaitable[object]]) -> Any:
        """Run a trio function."""
        return await self._loop.wait(lambda: self._generation.run(self._loop.in_test(fn)))

    async def wait_ended(self) -> End:
        """As the trio generation's."""
        end: End = await self._loop.wait(self._generation.wait_ended)
        return end

    def records(self, *args: Any, **named: Any) -> Records:
        """As the trio generation's."""
        records = self._loop.sync(partial(self._generation.records, *args, **named))
        return Records(self._loop, records)

    def pause(self, *args: Any) -> None:
        """As the trio generation's."""
        self._loop.sync(partial(self._generation.pause, *args))

    def resume(self, *args: Any) -> None:
        """As the trio generation's."""
        self._loop.sync(partial(self._generation.resume, *args))

    def seek(self, *args: Any) -> None:
        """As the trio generation's."""
        self._loop.sync(partial(self._generation.seek, *args))

    async def commit(self, *args: Any, **named: Any) -> None:
        """As the trio generation's."""
        await self._loop.wait(partial(self._generation.commit, *args, **named))

    async def commit_in_transaction(self, *args: Any, **named: Any) -> None:
        """As the trio generation's."""
        await self._loop.wait(partial(self._generation.commit_in_transaction, *args, **named))


@final
class ConsumerGroup:
    """A group."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        runtime: Runtime | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if inspect.iscoroutinefunction(config.starts):
            config = attrs.evolve(config, starts=self._in_test(config.starts))
        self._group = aio.ConsumerGroup(
            config, runtime=runtime, on_event=None if on_event is None else self._pass_on
        )
        self._on_event = on_event
        self._loop: Loop | None = None
        self._entered, self._left = trio.Event(), trio.Event()
        self._body = trio.CancelScope()
        self._leaving: BaseException | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_asyncio, daemon=True)

    @property
    def config(self) -> GroupConfig:
        """As the trio group's."""
        return self._group.config

    def subscribe(self, topics: Iterable[str | re.Pattern[str]]) -> None:
        """As the trio group's."""
        self._asyncio().sync(partial(self._group.subscribe, topics))

    def unsubscribe(self) -> None:
        """As the trio group's."""
        self._asyncio().sync(self._group.unsubscribe)

    async def __aenter__(self) -> Self:
        self._loop = Loop()
        self._thread.start()
        await self._entered.wait()
        self._body.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        loop = self._asyncio()
        self._leaving = error
        with trio.CancelScope(shield=True):
            with suppress(RuntimeError):  # asyncio's loop has ended before
                loop.loop.call_soon_threadsafe(loop.body_calls.put_nowait, None)
            await self._left.wait()
        self._thread.join(_JOIN)
        absorbed = bool(self._body.__exit__(kind, error, trace))
        if isinstance(self._error, asyncio.CancelledError):
            return absorbed  # by trio's own cancellation of the body
        if self._error is not None and self._error is not error:
            raise self._error
        return absorbed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Generation:
        try:
            return await self.next()
        except GroupClosedError:
            raise StopAsyncIteration from None

    async def next(self) -> Generation:
        """As the trio group's."""
        loop = self._asyncio()
        return Generation(loop, await loop.wait(self._group.next))

    def shutdown(self, *args: Any, **named: Any) -> None:
        """As the trio group's."""
        self._group.shutdown(*args, **named)

    async def aclose(self, *args: Any, **named: Any) -> None:
        """As the trio group's."""
        await self._asyncio().wait(partial(self._group.aclose, *args, **named))

    async def wait_closed(self) -> None:
        """As the trio group's."""
        await self._asyncio().wait(self._group.wait_closed)

    async def serve(self, handle: Callable[..., Awaitable[Any]], **named: Any) -> None:
        """Call a trio function for each batch."""
        loop = self._asyncio()
        await loop.wait(partial(aio.serve, self._group, loop.in_test(handle), **named))

    def _in_test(self, fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(*args: Any) -> Any:
            return await self._asyncio().in_test(fn)(*args)

        return run

    def _asyncio(self) -> Loop:
        assert self._loop is not None, "the group was not entered"
        return self._loop

    def _pass_on(self, event: Event) -> None:
        assert self._on_event is not None
        self._token.run_sync_soon(self._on_event, event)

    def _run_asyncio(self) -> None:
        loop = self._asyncio().loop
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 # raised in the test
            self._error = error
        finally:
            self._token.run_sync_soon(self._left.set)

    async def _main(self) -> None:
        async with self._group:
            self._token.run_sync_soon(self._entered.set)
            try:
                while (call := await self._asyncio().body_calls.get()) is not None:
                    await call.run()
            except asyncio.CancelledError:
                # By the group, which cancels the task of a trio program, too.
                self._token.run_sync_soon(self._body.cancel)
                raise
            if isinstance(self._leaving, trio.Cancelled):
                raise asyncio.CancelledError
            if self._leaving is not None:
                raise self._leaving


async def serve(group: ConsumerGroup, handle: Callable[..., Awaitable[Any]], **named: Any) -> None:
    """``kgroup.aio.serve``."""
    await group.serve(handle, **named)
