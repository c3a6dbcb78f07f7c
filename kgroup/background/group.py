"""The trio ConsumerGroup on a background thread, for ``kgroup.threaded`` and ``kgroup.aio``.

Both wrap it, and neither makes a decision about the group. The thread's main function enters the
trio group and waits there until the program's block is left. Calls from outside are answered until
then, even if the group has closed before, so that a handler learns why its commit is refused.

The groups of a process share one thread, and with it what the members of an event loop share:
Consumers, polls of topics, logins. A group has a thread of its own if code of the program runs in
its loop (an event handler, an assignor, ...), or if it writes a file: what blocks that loop costs
this group its heartbeats, and no other one.
"""

# ruff: noqa: SLF001 - the two classes are parts of one object, of which programs see the twin

from __future__ import annotations

import atexit
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, final

import attrs
import trio

from kgroup.background.event_loop import BackgroundLoop
from kgroup.config import GroupConfig, checked_topics
from kgroup.errors import GroupClosedError, UsageError, entered_again
from kgroup.events import EventHandler
from kgroup.group import CANCELLED, FORKED, ConsumerGroup
from kgroup.health import BLOCKED_AFTER, STUCK_AFTER, Health, judge, limits_of
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.status import GroupStatus, Phase
from kgroup.tracebacks import raise_outside
from kgroup.uncopied import MAKE_ANOTHER, Uncopied

CLOSED: str = "the program closes the group"
"""Why a group closes, if the program gives no other reason."""
_OPEN: Final[dict[GroupTwin, None]] = {}
"""The groups whose blocks are open, which close when the interpreter exits."""
_OVER: Final = frozenset({Phase.CLOSING, Phase.CLOSED, Phase.FAILED})


class GroupTwin(Uncopied, ABC):
    """The part of such a group that any thread may use, and what its `BackgroundGroup` asks it for.

    Args:
        config: all settings.
    """

    _in_its_place = MAKE_ANOTHER
    _background: BackgroundGroup

    def __init__(self, config: GroupConfig) -> None:
        self._config = config

    @abstractmethod
    def _on_group_failed(self) -> None:
        """The trio group has closed because of an exception; in the loop."""

    async def _watch_program(self) -> None:
        """Run beside the group, until it returns or the loop ends; in the loop."""
        await trio.lowlevel.checkpoint()

    async def _before_loop_ends(self) -> None:
        """Wait for what must not be cut off: the group has closed, and the block was left."""
        await trio.lowlevel.checkpoint()

    @abstractmethod
    def _on_loop_end(self) -> None:
        """The loop has ended; in the thread."""

    @abstractmethod
    def _body_stack(self) -> str:
        """The stack of the loop's body in the program; any thread calls it."""

    @abstractmethod
    def _outlasting(self) -> Sequence[str]:
        """Name the program's threads or tasks that run in the last generation or outlast it.

        Any thread calls it.
        """

    @abstractmethod
    def _begin_to_exit(self) -> None:
        """Begin to close, without waiting, because the interpreter exits."""

    @abstractmethod
    def _wait_at_exit(self) -> None:
        """Wait until the member has left, and the loop has ended."""

    def _entered(self) -> None:
        """The block was entered: close the group if the interpreter exits within it."""
        _OPEN[self] = None
        atexit.register(self._close_at_exit)

    def _has_left(self) -> None:
        """The block was left, or the loop has ended without that; any thread calls it."""
        try:
            del _OPEN[self]
        except KeyError:
            return  # it has left before, or the interpreter exits and waits for it
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        # Together: one after the other, many groups would take long where no broker answers.
        while True:
            try:
                group, _ = _OPEN.popitem()
            except KeyError:  # a thread may leave the last block at any moment
                break
            if not group._background.loop.forked:
                group._begin_to_exit()
        # Not for the others: what the program does at exit between two entries, it does before the
        # end of those that it had entered before.
        if not self._background.loop.forked:
            self._wait_at_exit()

    @property
    def config(self) -> GroupConfig:
        """The group's settings."""
        return self._config

    @property
    def subscription(self) -> tuple[str | re.Pattern[str], ...]:
        """The topics to which the member subscribes: names and patterns; empty if to none.

        At first they are ``config.topics``. A change is seen here once the background thread has
        made it.
        """
        return self._background.trio.subscription

    def subscribe(self, topics: Iterable[str | re.Pattern[str]]) -> None:
        """Subscribe to these topics in place of the present ones; this does not wait.

        A generation that runs drains and ends, with `Cause.SUBSCRIPTION_CHANGED`, and the member
        joins again with the new topics. As other members learn of it from their next heartbeats,
        handlers continue for up to one ``heartbeat_interval`` first. A generation of the old topics
        that is ready may still be returned by `next`, and ends in the same way. If the topics are
        those that the member has, nothing happens.

        It may be called any number of times, from any thread, handlers of the generation included,
        from signal handlers, and before the program enters the group.

        Args:
            topics: names and compiled patterns, as for ``GroupConfig.topics``; at least one.

        Raises:
            ArgumentError: the topics are not allowed; nothing has changed.
            GroupClosedError: the group was closed.
        """
        checked = checked_topics(topics)
        self._background.change_subscription(lambda group: group.subscribe(checked))

    def unsubscribe(self) -> None:
        """Leave the group until `subscribe` is called again; this does not wait.

        A generation that runs drains and ends, as for `subscribe`. Then the member leaves, also a
        static one, so that others get its partitions at once. `next` waits meanwhile; the group
        stays open. It may be called where `subscribe` may be.

        Raises:
            GroupClosedError: the group was closed.
        """
        self._background.change_subscription(lambda group: group.unsubscribe())

    @abstractmethod
    def status(self) -> GroupStatus:
        """What the member is doing now. Any thread may call it, and it waits for nothing.

        If the background thread is blocked, the second call says so.
        """

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


@final
class BackgroundGroup:
    """Runs a trio group, from `start` until `leave`.

    Args:
        config: all settings.
        runtime: as for the trio group.
        on_event: as for the trio group.
        twin: the group that the program has.
        package: the package that uses it, for errors.
        calls_program: whether the loop runs functions that the program has given.

    Attributes:
        trio: the trio group.
        loop: the background thread's event loop.
        scope: the scope around the group.
        late_errors: what handlers raised too late for the trio group to raise it.
        started: whether the entry has begun to start the thread; a refused one does not count.
    """

    def __init__(
        self,
        config: GroupConfig,
        runtime: Runtime | None,
        on_event: EventHandler | None,
        twin: GroupTwin,
        *,
        package: str,
        calls_program: bool,
    ) -> None:
        if default_runtime_factory.get() is not None:
            raise UsageError(
                f"group {config.group_id!r}: {package} uses threads in real time, so it"
                " cannot be simulated; simulate the same work with kgroup.ConsumerGroup"
            )
        self.trio = ConsumerGroup(config, runtime=runtime, on_event=on_event)
        self.trio._body_stack = twin._body_stack
        self.trio._outlasting = twin._outlasting
        self.loop = BackgroundLoop(
            f"kgroup-{config.group_id}",
            self._main,
            self._on_loop_end,
            shares=not calls_program and runtime is None and _is_all_kgroups(config),
        )
        self.scope = trio.CancelScope()
        self.late_errors: list[BaseException] = []
        self._group_id = config.group_id
        self._twin = twin
        self._close_reason: str | None = None
        self._entry = threading.Lock()
        """Held from the first entry on. It is only tried, never waited for: of several threads that
        enter at the same time, one gets it."""
        self.started = False
        self._left = trio.Event()
        self._services: trio.Nursery | None = None
        self._error: BaseException | None = None
        self._outside: BaseException | None = None
        """What the program was handling when it entered the block."""

    def begin_entry(self) -> None:
        """Check that the program may enter the block here, and refuse every other entry.

        Raises:
            UsageError: it has done so before, or does so in another thread, or would wait for the
                thread of this call. The entry that there is goes on: do not call `abandon`.
        """
        self.loop.check_start()  # before anything that would make another entry impossible
        if not self._entry.acquire(blocking=False):
            raise entered_again(self._group_id)

    def start(self) -> None:
        """Start the thread, after `begin_entry`; wait until calls are possible.

        If a signal handler raises out of the wait, the thread ends by itself.

        Raises:
            ConfigError: the file of events cannot be written.
        """
        try:
            if self.trio.event_file is not None:
                self.trio.event_file.open()
            self._outside = sys.exception()
            self.started = True
            self.loop.start()
        except BaseException:
            self._outside = None
            if self.trio.event_file is not None:
                self.trio.event_file.close()
            raise

    def abandon(self) -> None:
        """Let the thread end by itself, because the entry has failed or was interrupted."""
        if not self.started:
            self._entry.release()  # the program may enter the block later
        else:
            self.loop.abandon()
            self._twin._has_left()

    def shutdown(self, reason: str, *, promptly: bool) -> None:
        """Begin to close the group, without waiting; from any thread and from signal handlers."""
        self._close_reason = self._close_reason or reason
        self.loop.post(lambda: self.trio.shutdown(reason, promptly=promptly))

    def cancel(self) -> None:
        """Close the group without a drain; from any thread and from signal handlers."""
        self._close_reason = self._close_reason or CANCELLED
        self.loop.post(self.scope.cancel)

    def change_subscription(self, change: Callable[[ConsumerGroup], object]) -> None:
        """Call `subscribe` or `unsubscribe` of the trio group, without waiting; from any thread.

        Raises:
            GroupClosedError: the group was closed.
            UsageError: this is a forked process.
        """
        if self.loop.forked:
            raise UsageError(
                f"group {self._group_id!r} belongs to the process that entered it, not to this"
                " forked one"
            )
        if self._close_reason is not None or self.status().phase in _OVER:
            raise GroupClosedError(
                f"group {self._group_id!r} is closed, so its subscription cannot change:"
                f" {self._close_reason or self.status().detail}"
            )

        def changed() -> None:
            with suppress(GroupClosedError):  # it was closed meanwhile
                change(self.trio)

        if not self.loop.post(changed):
            change(self.trio)  # the loop has not started, or has just ended

    def leave(self) -> None:
        """The block was left: the loop ends once the group has closed."""
        self.loop.post(self._left.set)

    def status(self) -> GroupStatus:
        """What the member is doing now; any thread may call it."""
        status = self.trio.status()
        if self.loop.forked and status.phase is Phase.NOT_ENTERED:
            # Unlike a trio group it cannot be entered here, and may be entered there by now.
            detail = FORKED.format(self.loop.pid)
            return attrs.evolve(status, phase=Phase.FORKED, detail=detail)
        return status

    def start_service(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Start a task that is cancelled when the loop ends; in the loop."""
        assert self._services is not None  # calls are answered only while _main runs
        self._services.start_soon(fn, *args)

    def raise_errors(self, error: BaseException | None) -> None:
        """Raise the exceptions of handlers and group, in the thread that leaves the block.

        Args:
            error: the block's own exception, which is raised anyway.

        Raises:
            BaseExceptionGroup: there are those of handlers, or the event loop has failed and the
                block has raised too. The group's own is the first one.
            BaseException: the group's own, and no other.
        """
        # The exception's traceback may have this object: nothing keeps it for longer.
        outside, self._outside = self._outside, None
        crash = self.loop.error
        own = crash or self._error
        raised = list(own.exceptions) if isinstance(own, BaseExceptionGroup) else []
        raised += self.late_errors
        # What the block raises follows from the loop's end, and does not say why that came. A fatal
        # error of the group is not what handlers have raised late.
        several = bool(raised) or (crash is not None and error is not None)
        if own is not None and several and not isinstance(own, BaseExceptionGroup):
            raised.insert(0, own)
        if raised:
            both = raised if error is None else [*raised, error]
            failing = "handlers" if crash is None else "the event loop"
            failed = BaseExceptionGroup(f"{failing} of group {self._group_id!r} failed", both)
            raise_outside(failed, outside)
        if own is not None and error is None:
            raise_outside(own, outside)

    def _on_loop_end(self) -> None:
        if self.trio.event_file is not None:  # open, if trio could not begin
            self.trio.event_file.close()
        self._twin._on_loop_end()

    async def _main(self) -> None:
        if self._close_reason is not None:  # `shutdown` was called before the loop started
            self.trio.shutdown(self._close_reason)
        async with trio.open_nursery() as self._services:
            self._services.start_soon(self._twin._watch_program)
            try:
                with self.scope:
                    async with self.trio:
                        await self._left.wait()
            except BaseException as error:  # noqa: BLE001 # raised when the block is left
                self._error = error
                self._twin._on_group_failed()
            # Until the block is left, calls still get their answers from the generation.
            await self._left.wait()
            await self._twin._before_loop_ends()
            self._services.cancel_scope.cancel()


def _is_all_kgroups(config: GroupConfig) -> bool:
    """Whether the loop neither calls assignors of the program nor waits for a file."""
    return config.events_to is None and all(isinstance(one, str) for one in config.assignors)
