"""ConsumerGroup for programs without an event loop: the trio one on a background thread.

INVARIANTS: no new generation is asked for while a handler thread of an old one is there; every
call from another thread is answered, also if the background thread dies; nothing here decides
anything about the group.
"""

from __future__ import annotations

import atexit
import threading
from typing import Self, final

import trio

from kgroup import arguments
from kgroup.config import GroupConfig
from kgroup.errors import GroupClosedError, UsageError
from kgroup.event_emitter import EventHandlers
from kgroup.events import Event, EventHandler
from kgroup.generation.lifecycle import State, inside_of
from kgroup.group import ConsumerGroup as TrioGroup
from kgroup.logs import log
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.threaded.event_loop import BackgroundLoop, LoopOverError
from kgroup.threaded.generation import Generation
from kgroup.threaded.handover_slot import Slot

_REASON = "the program closes the group"


@final
class ConsumerGroup:
    """A member of a consumer group, for programs without an event loop.

    Use it as ``with``, and iterate over it::

        with ConsumerGroup(config) as group:
            for generation in group:
                for partition in generation.assignment:
                    generation.start(handle, generation, partition)

    It drives ``kgroup.ConsumerGroup`` on a background thread, which sends the heartbeats: a
    handler that holds Python's interpreter lock for long (a C extension that does not release
    it) stops them, and many that only compute slow them down; a ``LoopBlocked`` event tells.

    Leaving the block, by its end, by ``break`` or by an exception, ``KeyboardInterrupt``
    included, lets the threads of the generation finish what they hold (the drain), leaves the
    group, and joins the background thread. A second ``KeyboardInterrupt`` meanwhile cuts the
    drain off and still leaves the group. Handler threads cannot be cancelled: one that is still
    there is named in an event and left behind as a daemon thread. A program that ends without
    leaving the block is closed at interpreter exit in the same way.

    Args:
        config: all settings.
        runtime: the network, clock and source of records; TCP, the system's and librdkafka
            by default.
        on_event: is called with each event, in the background thread; it must not block. What it
            raises ends nothing: the first exception is logged with its traceback.

    Raises (from ``with``):
        ExceptionGroup: handlers raised; it holds their exceptions (and the body's, if that
            raised too), one level deep. Catch them with ``except*``.
        FatalGroupError: bare, if the group is over and no `next()` has raised it.
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
                f"group {config.group_id!r}: kgroup.threaded runs on threads in real time and"
                " cannot be simulated; simulate the same work on kgroup.ConsumerGroup"
            )
        self._config = config
        self._hand_on = EventHandlers(
            config.group_id, log, *([] if on_event is None else [on_event])
        )
        self._group = TrioGroup(config, runtime=runtime, on_event=on_event)
        self._loop = BackgroundLoop(f"kgroup-{config.group_id}", self._main, self._over)
        self._slot = Slot(
            self._loop,
            self._next_generation,
            _is_running,
            f"group {config.group_id!r}: another thread waits in next() already; a member has"
            " one generation at a time",
        )
        self._owner: int | None = None
        self._asked_to_close: str | None = None
        self._current: Generation | None = None
        self._watched: trio.Nursery | None = None
        self._leaving = trio.Event()
        self._cut = trio.CancelScope()
        self._error: BaseException | None = None
        self._late: list[BaseException] = []

    @property
    def config(self) -> GroupConfig:
        """Its settings."""
        return self._config

    def __enter__(self) -> Self:
        if self._owner is not None:
            raise UsageError(
                f"group {self._config.group_id!r}: a ConsumerGroup is entered once; make another"
            )
        self._loop.start()
        self._owner = threading.get_ident()
        atexit.register(self._close_at_exit)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._loop.forked:
            return  # the parent's group is the parent's to leave
        self.shutdown("the block was left" if error is None else f"{error!r}")
        self._finish()
        self._raise_with(error)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Generation:
        """As `next`, but a closed group ends the iteration."""
        try:
            return self.next()
        except GroupClosedError:
            raise StopIteration from None

    def next(self, timeout: float | None = None) -> Generation:
        """Wait for the next generation; asking for it is what makes the member join.

        The work done between two calls, in the loop's body, counts as work of the generation.
        The member joins again only when every handler thread of the generation before is gone.

        Raises:
            GroupClosedError: the group was closed, or a handler has raised; then leaving the
                block raises what it was.
            FatalGroupError: the group is over: fenced, not authorised, full, or its members
                have no assignor in common. Every later call raises it again.
            TimeoutError: there was none in so many seconds; nothing is lost, the next call goes
                on where this one was.
            ArgumentError: ``timeout`` is no number of seconds.
            UsageError: another thread waits in `next()` already, the call comes from a handler
                of one of this group's own generations, or the group was not entered.
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
                " own generations, which has to end first; return from the handler instead"
            )
        before = self._current
        try:
            generation = self._slot.take(timeout)
        except LoopOverError:
            raise GroupClosedError(f"group {self._config.group_id!r} is closed") from None
        if before is not None:
            before.join_threads()
        generation.taken_by = threading.get_ident()
        return generation

    def shutdown(self, reason: str = _REASON) -> None:
        """Begin to close, without waiting: the generation drains, then the member leaves.

        May be called any number of times, from any thread and from signal handlers. Then
        `next()` raises GroupClosedError, a ``for`` over the group ends.
        """
        arguments.instance("reason", reason, str)
        self._asked_to_close = self._asked_to_close or reason
        self._loop.post(lambda: self._group.shutdown(reason))

    def close(self, reason: str = _REASON) -> None:
        """Close: drain the generation, leave the group, and wait until that is done. Idempotent.

        Only signals, as `shutdown` does, where waiting would be waiting for the caller itself:
        in a handler of the generation, in an event handler, and in the thread that is inside
        the ``with`` block, signal handlers that interrupt it included; leaving the block waits.
        """
        self.shutdown(reason)
        inside = self._group in inside_of.get() or self._loop.here or self._loop.forked
        if self._owner in (None, threading.get_ident()) or inside:
            return
        try:
            self._loop.run(lambda: self._group.aclose(reason))
        except LoopOverError:
            return  # it is closed

    def __repr__(self) -> str:
        return f"<threaded {repr(self._group)[1:]}"

    # In the loop.

    async def _main(self) -> None:
        if self._asked_to_close is not None:  # before there was a loop
            self._group.shutdown(self._asked_to_close)
        async with trio.open_nursery() as self._watched:
            try:
                with self._cut:
                    async with self._group:
                        await self._leaving.wait()
            except BaseException as error:  # noqa: BLE001 # raised where the block is left
                self._error = error
            # Until then calls get the generation's own answers.
            await self._leaving.wait()
            if self._current is not None:
                await self._current.named.wait()
            self._watched.cancel_scope.cancel()

    async def _next_generation(self) -> Generation:
        if self._current is not None:
            self._group.release()
            await self._until_gone(self._current)
        self._current = Generation(await self._group.next(), self._loop, self._group, self._emit)
        assert self._watched is not None  # calls are answered only while _main runs
        self._watched.start_soon(self._watch, self._current)
        return self._current

    async def _until_gone(self, generation: Generation) -> None:
        """Wait for the last thread of a generation, unless the group is closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._or_closed, nursery.cancel_scope)
            await generation.over.wait()
            nursery.cancel_scope.cancel()

    async def _or_closed(self, scope: trio.CancelScope) -> None:
        await self._group.wait_closed()
        scope.cancel()

    async def _watch(self, generation: Generation) -> None:
        await generation.watch()
        if late := generation.late():
            self._late += late
            self._group.shutdown(f"a handler raised {late[0]!r}")
        generation.over.set()

    def _over(self) -> None:
        """The loop has ended; where it died, nobody has told the threads."""
        if self._current is not None:
            self._current.ending.set()

    def _emit(self, event: Event) -> None:
        self._hand_on(event)

    # In the thread that leaves.

    def _finish(self) -> None:
        """Wait until the member has left and the background thread has ended."""
        try:
            self._loop.post(self._leaving.set)
            self._loop.join()
        except BaseException:
            # Interrupted while it drains: without a drain then, but with a farewell.
            self._loop.post(self._cut.cancel)
            self._loop.join()
            raise
        finally:
            atexit.unregister(self._close_at_exit)
            if self._current is not None:
                self._current.join_threads()
                if not self._current.over.is_set():
                    self._late += self._current.late()

    def _raise_with(self, error: BaseException | None) -> None:
        """Raise what handlers, the group and the body raised, or nothing for the body's alone."""
        own = self._loop.error or self._error
        told = list(own.exceptions) if isinstance(own, BaseExceptionGroup) else []
        told += self._late
        if told:
            both = told if error is None else [*told, error]
            raise BaseExceptionGroup(
                f"handlers of group {self._config.group_id!r} failed", both
            ) from None
        if own is not None and error is None:
            raise own

    def _close_at_exit(self) -> None:
        if not self._loop.forked:
            self.shutdown("the interpreter exits")
            self._finish()


async def _is_running(generation: Generation) -> bool:
    await trio.lowlevel.checkpoint()
    return generation.state is State.RUNNING
