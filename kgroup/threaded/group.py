"""ConsumerGroup for programs without an event loop: it runs the trio group on a background thread.

INVARIANTS: the member joins no new generation while a handler thread of an old one still runs;
every call from another thread is answered, even if the background thread dies; no decision about
the group is made here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Self, final

import trio

from kgroup import arguments, functions
from kgroup.background.event_loop import LoopEndedError
from kgroup.background.group import CLOSED, BackgroundGroup, GroupTwin
from kgroup.block_syntax import PlainBlocks
from kgroup.config import GroupConfig
from kgroup.errors import GroupClosedError, UsageError, block_left, without_text
from kgroup.events import Event, EventHandler
from kgroup.generation.lifecycle import inside_of
from kgroup.logs import EventLog
from kgroup.monitors import Monitors
from kgroup.runtime import Runtime
from kgroup.status import GroupStatus
from kgroup.threaded.generation import Generation
from kgroup.threaded.generation_threads import GenerationThreads
from kgroup.threaded.slot import Slot

_EXIT: Final = "the interpreter exits"
"""Why a group closes whose block was not left."""


@final
class ConsumerGroup(PlainBlocks, GroupTwin):
    """A member of a consumer group, for programs without an event loop.

    Use it as ``with``, and iterate over it::

        with ConsumerGroup(config) as group:
            for generation in group:
                for partition in generation.assignment:
                    generation.start(handle, generation, partition)

    It runs ``kgroup.ConsumerGroup`` on a background thread, which sends the heartbeats; groups
    in whose event loop no code of the program runs, such as ``on_event``, share one. A handler that
    holds Python's interpreter lock for long, in a C extension that does not release it, stops the
    heartbeats, and many handlers that only compute delay them; a ``LoopBlocked`` event reports it.

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
        UsageError: from the constructor; the program is being simulated, or gevent or eventlet has
            replaced threads or sockets.
        ExceptionGroup: from ``with``; handlers raised. It has their exceptions, and the body's if
            that raised too, without further nesting. Catch them with ``except*``. If the background
            event loop has failed, and the body raised too, it has the error of the loop first; if a
            fatal error closed the group, and a handler raised after that, it has the fatal error
            first.
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
        if on_event is not None:
            functions.check_event_handler("on_event", on_event)
        super().__init__(config)
        self._background = BackgroundGroup(
            config,
            runtime,
            on_event,
            self,
            package="kgroup.threaded",
            # Functions for a start or a login may return awaitables, for trio to await.
            calls_program=on_event is not None
            or config.starts is not None
            or config.security.dynamic,
        )
        self._group, self._loop = self._background.trio, self._background.loop
        others = [one for one in (self._group.event_file, on_event) if one is not None]
        self._event_handlers = Monitors(EventLog(), *others)
        self._slot = Slot(
            self._loop,
            self._next_generation,
            self._keep,
            f"group {config.group_id!r}: another thread already waits in next(); a member has one"
            " generation at a time",
        )
        self._owner: int | None = None
        self._threads: GenerationThreads | None = None
        """Those of the last generation."""
        self._kept: Generation | None = None
        """A generation that arrived when `next` had stopped waiting."""

    def __enter__(self) -> Self:
        self._background.begin_entry()
        # A signal handler may raise after each call here, and then nothing else ends the thread.
        try:
            self._background.start()
            self._owner = threading.get_ident()
            self._entered()
            return self  # Python runs no handler before the block begins
        except BaseException:
            self._background.abandon()
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._loop.forked:
            return  # only the parent process may leave the group
        self._check_entered()
        self._wait_until_left(block_left(error), promptly=error is not None)
        self._background.raise_errors(error)

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
            StartupTimeoutError: no coordinator was reached within ``startup_timeout``; likewise.
            InvalidAssignmentError, AssignorTimeoutError: the program's assignor is wrong, or too
                slow; likewise.
            Exception: what that assignor, or the function of ``GroupConfig.starts``, raised;
                likewise.
            TimeoutError: there was no generation within the timeout; the next call continues the
                wait.
            ArgumentError: ``timeout`` is not a number of seconds.
            UsageError: another thread already waits in `next()`, the caller is a handler of one of
                this group's generations, or the group was not entered.
        """
        timeout = arguments.seconds("timeout", timeout)
        self._check_entered()
        if self._group in inside_of.get():
            raise UsageError(
                f"group {self._config.group_id!r}: next() was called by a handler of one of its"
                " generations, which has to end first; return from the handler instead"
            )
        before = self._threads

        def taken(_: Generation) -> None:
            if before is not None:
                before.join()
            if self._threads is not None:
                self._threads.body = threading.current_thread()

        try:
            return self._slot.take(timeout, lambda: self._late(timeout), taken)
        except LoopEndedError:
            raise GroupClosedError(f"group {self._config.group_id!r} is closed") from None

    def shutdown(self, reason: str = CLOSED, *, promptly: bool = False) -> None:
        """Begin to close the group, without waiting: the generation drains, then the member leaves.

        It may be called any number of times, from any thread and from signal handlers. After it,
        `next()` raises GroupClosedError, and a ``for`` over the group ends, both when the handlers
        have returned or the drain is over. Handlers continue for up to one
        ``heartbeat_interval`` before the drain begins, unless ``promptly`` is True
        (`kgroup.ConsumerGroup.shutdown` says why).
        """
        arguments.instance("reason", reason, str)
        arguments.instance("promptly", promptly, bool)
        self._background.shutdown(reason, promptly=promptly)

    def close(self, reason: str = CLOSED, *, promptly: bool = False) -> None:
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
        self._background.cancel()

    def status(self) -> GroupStatus:
        """What the member is doing now. Any thread may call it, and it waits for nothing.

        If the background thread is blocked, the second call says so.
        """
        return self._background.status()

    def __repr__(self) -> str:
        text = repr(self._group)
        if self._owner is not None:  # the background thread enters the group a moment later
            text = text.replace(", not entered>", ", joining>")
        return f"<threaded {text[1:]}"

    def _check_entered(self) -> None:
        if self._owner is None:
            raise UsageError(
                f"group {self._config.group_id!r} is not open; write `with ConsumerGroup(...)"
                " as group:`"
            )

    def _late(self, timeout: float | None) -> str:
        status = self.status()
        detail = f" ({status.detail})" if status.detail else ""
        return (
            f"group {self._config.group_id!r}: next() got no generation within {timeout:g} s; the"
            f" member is {status.phase.value}{detail}, and the next call goes on waiting"
        )

    # In the loop.

    async def _before_loop_ends(self) -> None:
        if self._threads is not None:
            await self._threads.stragglers_reported.wait()

    def _keep(self, generation: Generation) -> None:
        # No thread runs the loop's body in it, so its drain does not wait for one.
        self._kept = generation
        self._group.release()

    async def _next_generation(self) -> Generation:
        await trio.lowlevel.checkpoint()
        kept, self._kept = self._kept, None
        if kept is not None and kept._hold_again(self._group):  # noqa: SLF001
            return kept
        if self._threads is not None:
            self._group.release()
            await self._wait_for_threads(self._threads)
        threads = GenerationThreads(await self._group.next(), self._emit)
        self._background.start_service(self._watch, threads)
        self._threads = threads
        return Generation(threads, self._loop, self._group)

    async def _wait_for_threads(self, threads: GenerationThreads) -> None:
        """Wait until all threads of a generation have ended, or the group is closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_closed, nursery.cancel_scope)
            await threads.ended.wait()
            nursery.cancel_scope.cancel()

    async def _cancel_when_closed(self, scope: trio.CancelScope) -> None:
        await self._group.wait_closed()
        scope.cancel()

    async def _watch(self, threads: GenerationThreads) -> None:
        await threads.watch()
        if late := threads.late_errors():
            self._background.late_errors += late
            self._group.shutdown(f"a handler raised {without_text(late[0])}", promptly=True)
        threads.ended.set()

    def _on_group_failed(self) -> None:
        """Do nothing: the body is not interrupted, and its next call raises."""

    def _on_loop_end(self) -> None:
        """Set `ending` when the loop has ended: if it died, nothing else notifies the threads."""
        if self._threads is not None:
            self._threads.ending.set()

    def _outlasting(self) -> Sequence[str]:
        return () if self._threads is None else self._threads.running()

    def _body_stack(self) -> str:
        return "(no thread)" if self._threads is None else self._threads.stack_of_body()

    def _emit(self, event: Event) -> None:
        self._event_handlers(event)

    # In the thread that leaves the block.

    def _wait_until_left(self, reason: str, *, promptly: bool) -> None:
        """Close the group; wait until the member has left and the background thread has ended."""
        try:
            self.shutdown(reason, promptly=promptly)
            self._background.leave()
            self._loop.join()
        except BaseException:
            # Interrupted, possibly before anything was done: end the drain now, and still leave.
            self._background.cancel()
            self._background.leave()
            self._loop.join()
            raise
        finally:
            self._has_left()
            if self._threads is not None:
                self._threads.join()
                if not self._threads.ended.is_set():
                    self._background.late_errors += self._threads.late_errors()

    def _begin_to_exit(self) -> None:
        self.shutdown(_EXIT, promptly=True)

    def _wait_at_exit(self) -> None:
        self._wait_until_left(_EXIT, promptly=True)
