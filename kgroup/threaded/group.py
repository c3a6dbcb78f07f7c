"""ConsumerGroup for programs without an event loop: it runs the trio group on a background thread.

INVARIANTS: the member joins no new generation while a handler thread of an old one still runs;
every call from another thread is answered, even if the background thread dies; no decision about
the group is made here.
"""

from __future__ import annotations

import atexit
import threading
from typing import Self, final

import attrs
import trio

from kgroup import arguments
from kgroup.config import GroupConfig
from kgroup.errors import GroupClosedError, UsageError, some
from kgroup.event_emitter import EventHandlers
from kgroup.events import Event, EventHandler
from kgroup.generation.lifecycle import inside_of
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup as TrioGroup
from kgroup.health import BLOCKED_AFTER, STUCK_AFTER, Health, judge, limits_of
from kgroup.logs import EventLog
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.status import GroupStatus, Phase
from kgroup.threaded.event_loop import BackgroundLoop, LoopEndedError, Slot
from kgroup.threaded.generation import Generation

_REASON = "the program closes the group"
_CANCELLED = "the program cancels the group"


@final
class ConsumerGroup:
    """A member of a consumer group, for programs without an event loop.

    Use it as ``with``, and iterate over it::

        with ConsumerGroup(config) as group:
            for generation in group:
                for partition in generation.assignment:
                    generation.start(handle, generation, partition)

    It runs ``kgroup.ConsumerGroup`` on a background thread, which sends the heartbeats. A handler
    that holds Python's interpreter lock for long, in a C extension that does not release it, stops
    the heartbeats, and many handlers that only compute delay them; a ``LoopBlocked`` event reports
    it.

    Leaving the block, by its end, by ``break`` or by an exception such as ``KeyboardInterrupt``,
    lets the threads of the generation finish their current work (the drain), leaves the group, and
    joins the background thread. A second ``KeyboardInterrupt`` meanwhile ends the drain at once,
    and the member still leaves the group. Handler threads cannot be cancelled: an event names those
    that still run, and they stay behind as daemon threads. If a program ends without leaving the
    block, the same happens when the interpreter exits.

    Args:
        config: all settings.
        runtime: the network, clock and record source; by default TCP, the system's clock and
            librdkafka.
        on_event: called with each event, in the background thread; it must not block. Its
            exceptions end nothing: the first one is logged with its traceback.

    Raises:
        ExceptionGroup: from ``with``; handlers raised. It has their exceptions, and the body's if
            that raised too, without further nesting. Catch them with ``except*``.
        FatalGroupError: from ``with``; a fatal error closed the group, and no `next()` has raised
            it yet.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        runtime: Runtime | None = None,
        on_event: EventHandler | None = None,
    ) -> None:
        arguments.instance("config", config, GroupConfig)
        arguments.callback("on_event", on_event)
        if default_runtime_factory.get() is not None:
            raise UsageError(
                f"group {config.group_id!r}: kgroup.threaded uses threads in real time, so it"
                " cannot be simulated; simulate the same work with kgroup.ConsumerGroup"
            )
        self._config = config
        self._group = TrioGroup(config, runtime=runtime, on_event=on_event)
        others = [one for one in (self._group.event_file, on_event) if one is not None]
        self._event_handlers = EventHandlers(config.group_id, EventLog(), *others)
        self._loop = BackgroundLoop(f"kgroup-{config.group_id}", self._main, self._on_loop_end)
        self._slot = Slot(
            self._loop,
            self._next_generation,
            _is_running,
            f"group {config.group_id!r}: another thread already waits in next(); a member has one"
            " generation at a time",
        )
        self._owner: int | None = None
        self._close_reason: str | None = None
        self._current: Generation | None = None
        self._watchers: trio.Nursery | None = None
        self._leaving = trio.Event()
        self._group_scope = trio.CancelScope()
        self._error: BaseException | None = None
        self._late_errors: list[BaseException] = []

    @property
    def config(self) -> GroupConfig:
        """The group's settings."""
        return self._config

    def __enter__(self) -> Self:
        if self._owner is not None:
            raise UsageError(
                f"group {self._config.group_id!r}: a ConsumerGroup can be entered only once; make"
                " another one"
            )
        self._loop.start()
        self._owner = threading.get_ident()
        atexit.register(self._close_at_exit)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._loop.forked:
            return  # only the parent process may leave the group
        self.shutdown(
            "the block was left" if error is None else f"{error!r}", promptly=error is not None
        )
        self._wait_until_left()
        self._raise_errors(error)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Generation:
        """Like `next`, but a closed group ends the iteration."""
        try:
            return self.next()
        except GroupClosedError:
            raise StopIteration from None

    def next(self, timeout: float | None = None) -> Generation:
        """Wait for the next generation; this call makes the member join.

        Work between two calls, in the body of the ``for`` loop, counts as work of the generation.
        The member joins again only when every handler thread of the last generation has ended.

        Raises:
            GroupClosedError: the group was closed, or a handler raised; leaving the block then
                raises the handler's exception.
            FatalGroupError: the member cannot stay in the group: it was fenced, is not authorized,
                the group is full, or its members have no common assignor. Every later call raises
                it again.
            TimeoutError: there was no generation within the timeout; the next call continues the
                wait.
            ArgumentError: ``timeout`` is not a number of seconds.
            UsageError: another thread already waits in `next()`, the caller is a handler of one of
                this group's generations, or the group was not entered.
        """
        timeout = arguments.seconds("timeout", timeout)
        if self._owner is None:
            raise UsageError(
                f"group {self._config.group_id!r} is not open; write `with ConsumerGroup(...)"
                " as group:`"
            )
        if self._group in inside_of.get():
            raise UsageError(
                f"group {self._config.group_id!r}: next() was called by a handler of one of its"
                " generations, which has to end first; return from the handler instead"
            )
        before = self._current
        try:
            generation = self._slot.take(timeout)
        except LoopEndedError:
            raise GroupClosedError(f"group {self._config.group_id!r} is closed") from None
        if before is not None:
            before.join_threads()
        generation.body_thread = threading.get_ident()
        return generation

    def shutdown(self, reason: str = _REASON, *, promptly: bool = False) -> None:
        """Begin to close the group, without waiting: the generation drains, then the member leaves.

        It may be called any number of times, from any thread and from signal handlers. After it,
        `next()` raises GroupClosedError, and a ``for`` over the group ends. Handlers continue for
        up to one ``heartbeat_interval`` before the drain begins, unless ``promptly`` is True
        (`kgroup.ConsumerGroup.shutdown` says why).
        """
        arguments.instance("reason", reason, str)
        arguments.instance("promptly", promptly, bool)
        self._close_reason = self._close_reason or reason
        self._loop.post(lambda: self._group.shutdown(reason, promptly=promptly))

    def close(self, reason: str = _REASON, *, promptly: bool = False) -> None:
        """Drain the generation, leave the group, and wait until that is done. Idempotent.

        It does not wait where it would wait for its own caller: in a handler of the generation, in
        an event handler, and in the thread that runs the ``with`` block, including signal handlers
        that interrupt that thread. There it does what `shutdown` does; leaving the block waits.
        """
        self.shutdown(reason, promptly=promptly)
        inside = self._group in inside_of.get() or self._loop.is_current_thread or self._loop.forked
        if self._owner in (None, threading.get_ident()) or inside:
            return
        try:
            self._loop.run(lambda: self._group.aclose(reason))
        except LoopEndedError:
            return  # it is closed already

    def cancel(self) -> None:
        """Close the group without waiting for the handlers, and leave it; this does not wait.

        It is what a second Ctrl-C does: the handlers' threads stay behind, and what they have not
        committed is read again. It may be called from any thread and from signal handlers.
        """
        self._close_reason = self._close_reason or _CANCELLED
        self._loop.post(self._group_scope.cancel)

    def status(self) -> GroupStatus:
        """What the member is doing now. Any thread may call it, and it waits for nothing.

        If the background thread is blocked, the second call says so.
        """
        status = self._group.status()
        if status.phase is Phase.FAILED and self._loop.error is None and self._error is None:
            # `cancel` does not close the trio group, but cancels it, and the loop ends.
            detail = self._close_reason or status.detail
            return attrs.evolve(status, phase=Phase.CLOSED, detail=detail)
        threads = [] if self._current is None else self._current.running_threads()
        if status.phase is Phase.IDLE and threads:
            detail = f"handler threads still run: {some(threads)}"
            return attrs.evolve(status, phase=Phase.DRAINING, detail=detail)
        return status

    def health(
        self,
        *,
        blocked_after: float | None = BLOCKED_AFTER,
        hanging_after: float | None = None,
        unconfirmed_after: float | None = None,
        stuck_after: float | None = STUCK_AFTER,
    ) -> Health:
        """Whether the member is live and ready, and why not; for an orchestrator's probes.

        Any thread may call it, and it waits for nothing. A blocked background thread is noticed by
        the second call. See `kgroup.ConsumerGroup.health`.

        Raises:
            ArgumentError: an argument is not a number of seconds.
        """
        limits = limits_of(
            self._config,
            blocked_after=blocked_after,
            hanging_after=hanging_after,
            unconfirmed_after=unconfirmed_after,
            stuck_after=stuck_after,
        )
        return judge(self.status(), limits)

    def __repr__(self) -> str:
        text = repr(self._group)
        if self._owner is not None:  # the background thread enters the group a moment later
            text = text.replace(", not entered>", ", joining>")
        return f"<threaded {text[1:]}"

    # In the loop.

    async def _main(self) -> None:
        if self._close_reason is not None:  # `shutdown` was called before the loop started
            self._group.shutdown(self._close_reason)
        async with trio.open_nursery() as self._watchers:
            try:
                with self._group_scope:
                    async with self._group:
                        await self._leaving.wait()
            except BaseException as error:  # noqa: BLE001 # raised when the block is left
                self._error = error
            # Until the block is left, calls still get their answers from the generation.
            await self._leaving.wait()
            if self._current is not None:
                await self._current.stragglers_reported.wait()
            self._watchers.cancel_scope.cancel()

    async def _next_generation(self) -> Generation:
        if self._current is not None:
            self._group.release()
            await self._wait_for_threads(self._current)
        self._current = Generation(await self._group.next(), self._loop, self._group, self._emit)
        assert self._watchers is not None  # calls are answered only while _main runs
        self._watchers.start_soon(self._watch, self._current)
        return self._current

    async def _wait_for_threads(self, generation: Generation) -> None:
        """Wait until all threads of a generation have ended, or the group is closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_closed, nursery.cancel_scope)
            await generation.threads_ended.wait()
            nursery.cancel_scope.cancel()

    async def _cancel_when_closed(self, scope: trio.CancelScope) -> None:
        await self._group.wait_closed()
        scope.cancel()

    async def _watch(self, generation: Generation) -> None:
        await generation.watch()
        if late := generation.late_errors():
            self._late_errors += late
            self._group.shutdown(f"a handler raised {late[0]!r}", promptly=True)
        generation.threads_ended.set()

    def _on_loop_end(self) -> None:
        """Set `ending` when the loop has ended: if it died, nothing else notifies the threads."""
        if self._current is not None:
            self._current.ending.set()

    def _emit(self, event: Event) -> None:
        self._event_handlers(event)

    # In the thread that leaves the block.

    def _wait_until_left(self) -> None:
        """Wait until the member has left and the background thread has ended."""
        try:
            self._loop.post(self._leaving.set)
            self._loop.join()
        except BaseException:
            # Interrupted during the drain: end the drain now, and still leave the group.
            self._loop.post(self._group_scope.cancel)
            self._loop.join()
            raise
        finally:
            atexit.unregister(self._close_at_exit)
            if self._current is not None:
                self._current.join_threads()
                if not self._current.threads_ended.is_set():
                    self._late_errors += self._current.late_errors()

    def _raise_errors(self, error: BaseException | None) -> None:
        """Raise the exceptions of the handlers and the group; the body's own is raised anyway."""
        own = self._loop.error or self._error
        raised = list(own.exceptions) if isinstance(own, BaseExceptionGroup) else []
        raised += self._late_errors
        if raised:
            both = raised if error is None else [*raised, error]
            raise BaseExceptionGroup(
                f"handlers of group {self._config.group_id!r} failed", both
            ) from None
        if own is not None and error is None:
            raise own

    def _close_at_exit(self) -> None:
        if not self._loop.forked:
            self.shutdown("the interpreter exits", promptly=True)
            self._wait_until_left()


async def _is_running(generation: Generation) -> bool:
    await trio.lowlevel.checkpoint()
    return generation.state is State.RUNNING
