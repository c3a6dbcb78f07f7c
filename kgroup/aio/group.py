"""ConsumerGroup for asyncio programs: it runs the trio group on a background thread.

INVARIANTS: every call is answered, even if the background thread dies; that thread has ended when
the block has been left, and it ends by itself if asyncio's loop is closed before; no decision about
the group is made here.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, final

import trio

from kgroup import arguments, functions
from kgroup.aio.body import Body, BodyCall
from kgroup.aio.bridge import Bridge, deliver_again
from kgroup.aio.callbacks import in_asyncio
from kgroup.aio.generation import Generation
from kgroup.aio.one_call import OneCall
from kgroup.aio.tasks import GRACE, Tasks, stack_of_task
from kgroup.background.event_loop import Call, LoopEndedError
from kgroup.background.group import CLOSED, BackgroundGroup, GroupTwin
from kgroup.block_syntax import AsyncBlocks
from kgroup.config import GroupConfig
from kgroup.errors import GroupClosedError, UsageError, block_left
from kgroup.events import Event, EventHandler
from kgroup.generation.lifecycle import inside_of
from kgroup.generation.states import State
from kgroup.monitors import Monitor, Monitors
from kgroup.running_loop import group_for, running_library
from kgroup.runtime import Runtime
from kgroup.status import GroupStatus

_POLL: Final = 1.0
"""Seconds between two checks of whether asyncio's loop was closed without leaving the block."""


@final
class ConsumerGroup(AsyncBlocks, GroupTwin):
    """A member of a consumer group, for asyncio programs.

    Use it as ``async with``, and iterate over it::

        async with ConsumerGroup(config) as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, generation, partition)

    It runs ``kgroup.ConsumerGroup`` on a background thread, which sends the heartbeats, so that a
    handler that blocks asyncio's loop does not stop them. A handler that holds Python's interpreter
    lock for long does; a ``LoopBlocked`` event reports it.

    Leaving the block, by its end, by ``break``, by `aclose` or by an exception, lets the tasks of
    the generation finish their current work (the drain), leaves the group, and joins the background
    thread. A cancellation of the task that has the block skips the drain and still leaves the
    group; so does a second one while the block is being left, and Ctrl-C under ``asyncio.run``,
    which cancels that task. In every case the group closes within ``config.longest_close`` seconds,
    whatever has failed, unless a task of the program continues after it was cancelled. If the event
    loop is closed, or the program ends, without leaving the block, the member leaves too.

    Args:
        config: all settings. Async functions in it (``starts``, and those of ``security``) run in
            asyncio's loop.
        runtime: the network, clock and record source; by default TCP, the system's clock and
            librdkafka.
        on_event: called with each event, in asyncio's loop; it must not block. Its exceptions end
            nothing: the first one is logged with its traceback. A ``kgroup.monitors.Monitor`` is
            called in the background thread, and so are the functions in ``Monitors``.

    Raises:
        ArgumentError: from the constructor; an argument has a wrong type, or ``on_event`` cannot be
            called with an event, or is async.
        UsageError: from the constructor; the program is being simulated, or gevent or eventlet has
            replaced threads or sockets. From ``async with``; no event loop of asyncio runs here, or
            the group was entered before.
        ExceptionGroup: from ``async with``; tasks of a generation raised. It has their exceptions,
            and the body's if that raised too, without further nesting. Catch them with ``except*``.
            The body is cancelled then. If the background event loop has failed, and the body raised
            too, it has the error of the loop first.
        FatalGroupError: from ``async with``; a fatal error closed the group, and no `next()` has
            raised it yet.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        runtime: Runtime | None = None,
        on_event: EventHandler | None = None,
    ) -> None:
        arguments.instance("config", config, GroupConfig)
        if on_event is not None:
            functions.check_event_handler("on_event", on_event)
        super().__init__(config)
        # A monitor measures times, which a busy event loop would falsify.
        monitored = isinstance(on_event, Monitor)
        passed_on = [] if on_event is None or monitored else [on_event]
        self._handlers = Monitors(*passed_on)
        self._background = BackgroundGroup(
            in_asyncio(config, self._program_tasks),
            runtime,
            self._pass_on if passed_on else on_event,
            self,
            package="kgroup.aio",
            calls_program=monitored,  # other functions run in asyncio's loop
        )
        self._group, self._loop = self._background.trio, self._background.loop
        self._tasks: Tasks | None = None
        self._body = Body()
        self._current: Generation | None = None
        self._next_calls: OneCall[Generation] | None = None
        self._kept: Generation | None = None
        """The generation that came when the task that waited for it was cancelled."""
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        if (library := running_library()) != "asyncio":
            raise UsageError(
                f"group {self._config.group_id!r}: no event loop of asyncio runs here;"
                f" {group_for(library)}"
            )
        # INVARIANT: nothing waits once the thread has started, because a cancellation would raise
        # here then, and `__aexit__` would not be called to end the thread.
        await asyncio.sleep(0)
        self._background.begin_entry()
        bridge = Bridge(self._loop, self._config.group_id)
        self._body.enter()
        self._tasks = Tasks(bridge, self._loop, self._body)
        self._next_calls = OneCall(bridge, self._keep, self._group._two_tasks_wait)  # noqa: SLF001
        # A signal handler may raise after each call here, and then nothing else ends the thread.
        try:
            self._background.start()
            self._entered()
            return self  # Python runs no handler before the block begins
        except BaseException:
            self._background.abandon()
            if not self._background.started:  # the group is not open
                self._tasks = None
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        if self._loop.forked:
            return  # only the parent process may leave the group
        bridge = self._program_tasks().bridge
        if not bridge.is_here and not isinstance(error, GeneratorExit):
            # What would wake this loop at the end is posted to the other one.
            self._background.cancel()
            self._background.leave()
            raise UsageError(
                f"group {self._config.group_id!r} was entered in another event loop of asyncio;"
                " the member leaves, without a drain, and nothing waits for that. Enter and leave"
                " the block in the same loop"
            )
        # If the group has cancelled the body, its errors are raised in place of that.
        absorbed = self._body.leave(error)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._background.cancel()
        else:
            self.shutdown(block_left(error), promptly=error is not None)
        self._background.leave()
        if isinstance(error, GeneratorExit):
            return  # a coroutine that is closed cannot wait; the thread ends by itself
        cancelled = await self._until_left()
        if isinstance(error, asyncio.CancelledError):
            cancelled, error = (cancelled if absorbed else error), None
        try:
            self._background.raise_errors(error)
            if error is None and cancelled is not None:
                again, cancelled = cancelled, None
                raise again
        finally:
            if cancelled is not None:
                # An exception is raised in its place.
                deliver_again(cancelled)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Generation:
        """Like `next`, but a closed group ends the iteration."""
        try:
            return await self.next()
        except GroupClosedError:
            raise StopAsyncIteration from None

    async def next(self) -> Generation:
        """Wait for the next generation; this call makes the member join.

        Work between two calls, in the body of the loop, counts as work of the generation.

        Once the group closes, this waits until the last generation has ended, so that what its
        tasks use may be released after a loop over the group.

        Raises:
            GroupClosedError: the group was closed and its last generation has ended, or a task
                raised; leaving the block then raises the task's exception.
            FatalGroupError: the member cannot stay in the group: it was fenced, is not authorized,
                the group is full, or its members have no common assignor. Every later call raises
                it again.
            StartupTimeoutError: no coordinator was reached within ``startup_timeout``; likewise.
            InvalidAssignmentError, AssignorTimeoutError: the program's assignor is wrong, or too
                slow; likewise.
            Exception: what that assignor, or the function of ``GroupConfig.starts``, raised;
                likewise.
            UsageError: another task already waits in `next()`, the caller is a task of one of this
                group's generations, the group was not entered, or another event loop runs here.

        Cancellation: nothing is lost; the next call continues the wait, or returns the generation
            that came just then.
        """
        self._program_tasks()
        if self._group in inside_of.get():
            raise UsageError(
                f"group {self._config.group_id!r}: next() was called by a task of one of its own"
                " generations, which has to end first; return from the task instead"
            )
        calls = self._next_calls
        assert calls is not None  # it is made when the group is entered
        while True:
            # INVARIANT: nothing is kept while a call waits in the background.
            await calls.wait_for_cancelled()
            try:
                if self._kept is None:
                    generation = await calls(self._next_generation)
                else:
                    generation = await self._take_kept()
            except LoopEndedError:
                raise GroupClosedError(f"group {self._config.group_id!r} is closed") from None
            # Other tasks may have kept asyncio's loop busy since the generation was handed over.
            if generation is not None and generation.state is State.RUNNING:
                generation._body_task = asyncio.current_task()  # noqa: SLF001
                self._body.called(BodyCall.NEXT)
                return generation

    def release(self) -> None:
        """Say that the body of the loop has no more work in its generation, as `next` does.

        The drain then does not wait for the body. The member joins again only when the program
        calls `next`. This is for programs that do something else first.

        Raises:
            UsageError: another event loop runs here, or none, as in another thread.
        """
        if self._tasks is not None:
            self._tasks.bridge.check_loop()
        # Its drain waits for no body any more, so the next call returns a later generation.
        self._kept = None
        self._loop.post(self._group.release)

    def shutdown(self, reason: str = CLOSED, *, promptly: bool = False) -> None:
        """Begin to close the group, without waiting: the generation drains, then the member leaves.

        It may be called any number of times, from any thread and from signal handlers. After it,
        `next()` raises GroupClosedError, and an ``async for`` over the group ends, both after the
        drain. Tasks continue for up to one ``heartbeat_interval`` before it begins, unless
        ``promptly`` is True (`kgroup.ConsumerGroup.shutdown` says why).

        Raises:
            ArgumentError: ``reason`` is not a str, or ``promptly`` is not a bool.
        """
        arguments.instance("reason", reason, str)
        arguments.instance("promptly", promptly, bool)
        self._background.shutdown(reason, promptly=promptly)

    async def aclose(self, reason: str = CLOSED, *, promptly: bool = False) -> None:
        """Drain the generation, leave the group, and wait until that is done. Idempotent.

        In a task of the generation it does not wait, because the generation waits for its tasks:
        there it does what `shutdown` does. The background thread ends when the block is left.

        Args:
            reason: as for `shutdown`.
            promptly: as for `shutdown`.

        Raises:
            ArgumentError: ``reason`` is not a str, or ``promptly`` is not a bool.
            UsageError: another event loop runs here.

        Cancellation: the group continues to close; only the wait ends.
        """
        if self._tasks is not None:
            self._tasks.bridge.check_loop()
        self.shutdown(reason, promptly=promptly)
        if self._tasks is None or self._group in inside_of.get():
            await asyncio.sleep(0)
            return
        if self._current is not None and self._current._in_body():  # noqa: SLF001
            self.release()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the group has closed, for any reason, and the member has left.

        Raises:
            UsageError: the group was not entered, or another event loop runs here.

        Cancellation: only the wait ends; the group is not closed by it.
        """
        try:
            await self._program_tasks().bridge.call(self._group.wait_closed)
        except LoopEndedError:
            return  # it is closed already

    def status(self) -> GroupStatus:
        """What the member is doing now. Any thread may call it, and it waits for nothing.

        If the background thread is blocked, the second call says so.
        """
        return self._background.status()

    def __repr__(self) -> str:
        text = repr(self._group)
        if self._tasks is not None:  # the background thread enters the group a moment later
            text = text.replace(", not entered>", ", joining>")
        return f"<aio {text[1:]}"

    def _keep(self, generation: Generation) -> None:
        # No body of the loop works in it, so its drain does not wait for one.
        self._kept = generation
        self._loop.post(self._group.release)

    # In the background loop.

    async def _next_generation(self) -> Generation:
        generation = await self._group.next()
        self._current = Generation(generation, self._program_tasks(), self._group, self._config)
        self._background.start_service(self._current._watch)  # noqa: SLF001
        return self._current

    async def _watch_program(self) -> None:
        """Leave the group if asyncio's loop was closed, so that nothing else will do so."""
        tasks = self._program_tasks()
        while not tasks.bridge.broken:  # noqa: ASYNC110 # a loop does not say that it is closed
            await trio.sleep(_POLL)
        self._background.cancel()
        self._background.leave()
        self._loop.post(tasks.abandon)

    async def _before_loop_ends(self) -> None:
        """Wait for functions of the settings that were cancelled, too."""
        await self._program_tasks().until_ended()

    async def _abandon_tasks(self) -> None:
        """At exit, wait for tasks only where asyncio's loop runs on, in a daemon thread."""
        tasks = self._program_tasks()
        await trio.sleep(GRACE if tasks.bridge.runs else 0)
        tasks.abandon()

    def _outlasting(self) -> Sequence[str]:
        return () if self._tasks is None else self._tasks.names()

    def _body_stack(self) -> str:
        return stack_of_task(self._body_task(), self._program_tasks().thread)

    def _body_task(self) -> asyncio.Task[Any] | None:
        """The task that runs the body of the loop."""
        return None if self._current is None else self._current._body()  # noqa: SLF001

    def _pass_on(self, event: Event) -> None:
        # The context of the program's call that has caused the event, if one has.
        context = contextvars.copy_context()
        self._program_tasks().bridge.post(partial(self._handlers, event), context)

    def _on_group_failed(self) -> None:
        self._program_tasks().bridge.post(self._body.cancel)

    def _on_loop_end(self) -> None:
        """Wake what waits for the end; if the loop died, nothing else does."""
        self._has_left()  # also if the block never is, because its coroutine or loop was closed
        bridge = self._program_tasks().bridge
        if self._loop.error is not None:
            bridge.post(self._body.cancel)
        if self._current is not None:
            bridge.post(self._current.ending.set)
        bridge.post(self._ended.set)

    # In asyncio's loop.

    def _program_tasks(self) -> Tasks:
        if self._tasks is None:
            raise UsageError(
                f"group {self._config.group_id!r} is not open; write `async with ConsumerGroup(...)"
                " as group:`"
            )
        return self._tasks

    async def _take_kept(self) -> Generation | None:
        """The generation that a cancelled task did not get; None if it does not run any more.

        Cancellation: it stays for the next call.
        """
        await asyncio.sleep(0)
        generation, self._kept = self._kept, None
        if generation is None:  # released meanwhile
            return None
        hold = partial(generation._hold_again, self._group)  # noqa: SLF001
        runs = self._program_tasks().bridge.call_sync(hold)
        return generation if runs else None

    async def _until_left(self) -> asyncio.CancelledError | None:
        """Wait until the member has left and the background thread has ended.

        Returns:
            the cancellation that came meanwhile, which ended the drain; or None.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self._ended.is_set():
            try:
                await self._ended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self._background.cancel()
        self._loop.join()
        return cancelled

    def _begin_to_exit(self) -> None:
        self._background.cancel()
        self._background.leave()
        with suppress(LoopEndedError):
            self._loop.begin(Call[None](lambda: None), self._abandon_tasks)

    def _wait_at_exit(self) -> None:
        self._loop.join()
