"""ConsumerGroup: yields generations, one at a time.

Two tasks meet here. The program's task waits in `next()`. The manager task (`_run`) is the loop of
a member's life: it waits until `next()` is called, joins, runs the generation until its last task
has ended, recovers, and waits again. The steps from JoinGroup to the last task are in
``kgroup.generation.runner``; what happens between two generations is in ``kgroup.member``; which
exception `next()` and the block raise, in ``kgroup.group_errors``.

Closing has one deadline, `GroupConfig.longest_close` after it began, whatever has failed. It has
four parts, one after the other. The wait: tasks continue until just before the group's next
heartbeats, from which the other members learn that this one has left. The drain: the generation
ends by its own deadline, and commits that were sent are not awaited for longer. The leave, within
``close_timeout``: LeaveGroup, and the search for the coordinator that it may need. The rest:
connections and the record source are closed by force. Closing waits for nothing else that a member
may be doing (entering the source, finding the coordinator, a parked JoinGroup, a backoff): such
steps run in a scope of `_until_closing`, which closing cancels. If the group is already closing,
the scope is cancelled from the start.

INVARIANTS: there is never more than one generation; no JoinGroup is sent unless `next()` waits and
every task of the last generation has ended; `next()` returns no generation of a subscription that
was replaced before; `next()` never returns a generation that is over;
closing is idempotent, works at any moment, and has a deadline; the manager awaits nothing outside
a scope that closing cancels or that has a deadline.
"""

from __future__ import annotations

import math
import random
import re
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, Self, final

import trio

from kgroup import arguments, functions
from kgroup.block_syntax import AsyncBlocks
from kgroup.client.coordinator import UserDataError
from kgroup.client.subscription import Subscription, Topics
from kgroup.clocks import SuspendAwareClock, WallClock, time_jumps
from kgroup.config import GroupConfig, checked_topics
from kgroup.errors import (
    ConfigError,
    GroupClosedError,
    KgroupError,
    UsageError,
    block_left,
    entered_again,
    in_one_line,
    short_list,
)
from kgroup.event_emitter import EventEmitter
from kgroup.event_file import EventFile
from kgroup.events import BodyStillRunning, EventHandler, GenerationStarted, LoginDelayed
from kgroup.extension_checks import check_source
from kgroup.generation.generation import Generation
from kgroup.generation.lifecycle import Lifecycle, inside_of
from kgroup.generation.runner import GenerationRunner
from kgroup.generation.states import State
from kgroup.group_errors import GroupErrors, is_cancellation, raise_cancellation
from kgroup.health import BLOCKED_AFTER, STUCK_AFTER, Health, judge, limits_of
from kgroup.interfaces import RecordSource
from kgroup.logs import EventLog
from kgroup.loop_probe import LoopProbe
from kgroup.loop_thread import LoopThread
from kgroup.member import Member
from kgroup.notifier import Notifier
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.running_loop import group_for, replaced_modules, running_library
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.status import ENDED, GroupStatus, Phase, StatusRecorder
from kgroup.types import Cause, End, TopicPartition
from kgroup.uncopied import MAKE_ANOTHER, Uncopied
from kgroup.watchers.heartbeat import LATE_PART
from kgroup.wire.byte_streams import open_tcp
from kgroup.wire.logins import Logins, logins_of
from kgroup.worker_thread import WorkerThread

_UNSUBSCRIBED: Final = "the program unsubscribed"
CANCELLED: Final = "the program cancels the group"
_LOOP_ENDED: Final = "its event loop has ended"
FORKED: Final = (
    "this is a fork of process {}, to which it belongs; make a ConsumerGroup in each process, after"
    " the fork"
)
_FORCE: Final = 1.0
"""Seconds for the record source to end, after the member has left and closed its connections."""


def default_runtime() -> Runtime:
    """TCP, the system's clock that counts suspended time, and librdkafka."""
    return Runtime(
        open_stream=open_tcp,
        clock=SuspendAwareClock(),
        random=random.Random(),  # jitter, no secrets
        record_source=lambda config, on_fault: LibrdkafkaSource(config, on_fault=on_fault),
        compute=WorkerThread,
        wall_clock=WallClock(),
    )


@final
class ConsumerGroup(AsyncBlocks, Uncopied):
    """A member of a consumer group.

    Use it as ``async with``, and iterate over it::

        async with ConsumerGroup(config) as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, generation, partition)

    Leaving the block, by its end, by ``break``, by `aclose` or by an exception, lets the tasks of
    the generation finish their current work (the drain), and leaves the group. Three ends skip the
    drain and still leave the group: a cancellation from outside, a ``KeyboardInterrupt`` that is
    raised in a task, and a second ``KeyboardInterrupt``. The argument
    ``restrict_keyboard_interrupt_to_checkpoints`` of ``trio.run`` keeps it out of tasks. In every
    case the group closes within ``config.longest_close`` seconds, whatever has failed, unless a
    task of the program continues after it was cancelled.

    Args:
        config: all settings.
        runtime: the network, clock and record source; by default TCP, the system's clock and
            librdkafka.
        on_event: called with each event, in this thread; it must not block. Its exceptions end
            nothing, ``sys.exit()`` included: the first one is logged with its traceback. A
            ``kgroup.monitors.Monitor``, such as those of ``kgroup.metrics``, learns more.

    Raises:
        ArgumentError: from the constructor; an argument has a wrong type, or ``on_event`` cannot be
            called with an event, or is async.
        UsageError: from the constructor; gevent or eventlet has replaced threads or sockets.
        ExceptionGroup: from ``async with``; tasks of a generation raised. It has their exceptions,
            and the body's if that raised too, without further nesting. Catch them with ``except*``.
        FatalGroupError: from ``async with``; a fatal error closed the group, and no `next()` has
            raised it yet.
    """

    _in_its_place = MAKE_ANOTHER

    def __init__(
        self,
        config: GroupConfig,
        *,
        runtime: Runtime | None = None,
        on_event: EventHandler | None = None,
    ) -> None:
        _check(config, runtime, on_event)
        self._config = config
        self._runtime = runtime or (default_runtime_factory.get() or default_runtime)()
        observer = self._runtime.observer
        handlers: list[EventHandler] = [EventLog() if observer is None else observer.event]
        self.event_file: EventFile | None = None
        if config.events_to is not None:
            clock = self._runtime.wall_clock or WallClock()
            self.event_file = EventFile(
                config.events_to,
                config.group_id,
                config.client_id,
                config.session_timeout,
                config.group_instance_id,
                clock,
            )
            handlers.append(self.event_file)
        if on_event is not None:
            handlers.append(on_event)
        self._recorder = StatusRecorder(self._runtime.clock.now)
        self._emitter = EventEmitter(config.group_id, self._recorder, *handlers)
        self._entry = threading.Lock()
        """Held from the first entry on. It is only tried, never waited for: of several threads that
        enter at the same time, one gets it."""
        self._opened: AbstractAsyncContextManager[None] | None = None
        self._loop_thread: LoopThread | None = None
        self._waiting = False
        self._ready: GenerationRunner | None = None
        self._held: Lifecycle | None = None
        self._holder: trio.lowlevel.Task | None = None
        self._lifecycle: Lifecycle | None = None
        self._runner: GenerationRunner | None = None
        self._source: RecordSource | None = None
        self._member: Member | None = None
        self._probe: LoopProbe | None = None
        self._subscription = Subscription(config.topics)
        self._joining: trio.CancelScope | None = None
        self._cancelled_by_closing: trio.CancelScope | None = None
        self._leave_by = -math.inf
        self._body = trio.CancelScope()
        self._logins = trio.CancelScope()
        self._watching = trio.CancelScope()
        self._closing: str | None = None
        self._errors = GroupErrors(config.group_id)
        self._body_runs = True
        self._done = trio.Event()
        # What has ended the manager, if no error of the group and nothing of the program's has.
        self._crash = ""
        self._changed = Notifier()
        self._outlasted: GenerationRunner | None = None
        """The last generation, until the next one begins or the group closes."""
        self._outlasting: Callable[[], Sequence[str]] = tuple
        """The names of the program's threads, or tasks of asyncio, that the last generation has
        left to run, or still runs; trio's own are not among them."""
        self._body_stack: Callable[[], str] = self._stack_of_holder
        """The stack of the loop's body; kgroup.threaded and kgroup.aio, where it is in another
        thread, have their own."""

    @property
    def config(self) -> GroupConfig:
        """The group's settings."""
        return self._config

    @property
    def subscription(self) -> tuple[str | re.Pattern[str], ...]:
        """The topics to which the member subscribes: names and patterns; empty if to none.

        At first they are ``config.topics``.
        """
        return self._subscription.topics

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        if (library := running_library()) != "trio":
            raise UsageError(
                f"group {self._config.group_id!r}: kgroup.ConsumerGroup needs trio's event loop,"
                f" which does not run here; {group_for(library)}"
            )
        # Time-outs would pass while a socket is awaited, and each attempt fail for ever.
        if isinstance(self._runtime.clock, SuspendAwareClock) and time_jumps():
            raise UsageError(
                f"group {self._config.group_id!r} has real connections, and trio's MockClock does"
                " not wait for them: its time jumps ahead; pass"
                " runtime=kgroup.testing.memory.memory_runtime(broker), or run without MockClock"
            )
        if not self._entry.acquire(blocking=False):
            raise entered_again(self._config.group_id)
        # INVARIANT: nothing can fail once the nursery in `_open` is open, because `__aexit__` would
        # not be called to close it.
        try:
            if self.event_file is not None:
                self.event_file.open()
        except ConfigError:
            self._entry.release()  # the program may enter the block later
            raise
        if self._runtime.observer is not None:
            self._runtime.observer.opened(self.shutdown)
        self._errors.outside = sys.exception()
        self._loop_thread = LoopThread()
        self._opened = self._open()
        self._probe = LoopProbe(self._runtime.clock.now)
        self._recorder.entered()
        self._emitter.attach(self)
        await self._opened.__aenter__()
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, *details: object) -> bool | None:
        opened = self._check_entered()
        try:
            return await opened.__aexit__(*details)  # type: ignore[arg-type]
        finally:
            self._errors.outside = None  # its traceback may have this object
            if self.event_file is not None:
                self.event_file.close()

    def __aiter__(self) -> Self:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Generation:
        """Like `next`, but a closed group ends the iteration."""
        try:
            return await self.next()
        except GroupClosedError:
            raise StopAsyncIteration from None

    @trio.lowlevel.enable_ki_protection
    async def next(self) -> Generation:
        """Wait for the next generation; this call makes the member join.

        Work between two calls, in the body of the loop, counts as work of the generation.

        Once the group closes, this waits until the last generation has ended, so that what its
        tasks use may be released after a loop over the group.

        Raises:
            GroupClosedError: the group was closed, and its last generation has ended.
            FatalGroupError: the member cannot stay in the group: it was fenced, is not authorized,
                the group is full, or its members have no common assignor. Every later call raises
                it again.
            StartupTimeoutError: no coordinator was reached within ``startup_timeout``; likewise.
            InvalidAssignmentError, AssignorTimeoutError: the program's assignor is wrong, or too
                slow; likewise.
            Exception: what that assignor, or the function of ``GroupConfig.starts``, raised;
                likewise.
            UsageError: another task already waits in `next()`, the caller is a task of one of this
                group's generations or another thread, or the group was not entered.

        Cancellation: nothing is lost; the next call continues the wait.
        """
        self._check_entered()
        self._check_thread("next", waits=True)
        if self in inside_of.get():
            raise UsageError(
                f"group {self._config.group_id!r}: next() was called by a task of one of its own"
                " generations, which has to end first; return from the task instead"
            )
        if self._waiting:
            raise self._two_tasks_wait()
        self._waiting = True
        self.release()
        self._changed.notify()
        try:
            await trio.lowlevel.checkpoint()
            while True:
                # INVARIANT: no checkpoint between this check and the return.
                if (generation := self._take()) is not None:
                    return generation
                await self._changed.wait()
        finally:
            self._waiting = False

    def release(self) -> None:
        """Say that the body of the loop has no more work in its generation, as `next` does.

        The drain then does not wait for the body. The member joins again only when the program
        calls `next`. This is for programs that do something else first.
        """
        self._check_thread("release")
        if self._held is not None:
            self._held.release_body()
            self._held = self._holder = None

    def subscribe(self, topics: Iterable[str | re.Pattern[str]]) -> None:
        """Subscribe to these topics in place of the present ones; this does not wait.

        A generation that runs drains and ends, with `Cause.SUBSCRIPTION_CHANGED`, and the member
        joins again with the new topics. As other members learn of it from their next heartbeats,
        its tasks continue for up to one ``heartbeat_interval`` first. After this call, `next`
        returns no generation of the old topics. If the topics are those that the member has,
        nothing happens.

        Any task of this event loop may call it, any number of times, tasks of the generation
        included, and the program before it enters the group.

        Args:
            topics: names and compiled patterns, as for ``GroupConfig.topics``; at least one.

        Raises:
            ArgumentError: the topics are not allowed; nothing has changed.
            GroupClosedError: the group was closed.
            UsageError: another thread calls it.

        Source: ``subscribe`` of Kafka's ``Consumer``, which replaces the subscription too.
        """
        self._replace_subscription(checked_topics(topics))

    def unsubscribe(self) -> None:
        """Leave the group until `subscribe` is called again; this does not wait.

        A generation that runs drains and ends, as for `subscribe`. Then the member leaves, also a
        static one, so that others get its partitions at once. `next` waits meanwhile; the group
        stays open. A member that has unsubscribed before does nothing.

        Any task of this event loop may call it, and the program before it enters the group.

        Raises:
            GroupClosedError: the group was closed.
            UsageError: another thread calls it.

        Source: ``unsubscribe`` of Kafka's ``Consumer``, where a static member does not leave.
        """
        self._replace_subscription(())

    def shutdown(
        self, reason: str = "the program closes the group", *, promptly: bool = False
    ) -> None:
        """Begin to close the group, without waiting: the generation drains, then the member leaves.

        Other members learn from their next heartbeats that this one has left, and no member
        reads its partitions until then. So its tasks continue for up to one ``heartbeat_interval``
        first, and the drain begins just before those heartbeats. An ``async for`` over the group
        ends after the drain.

        Any task of this event loop and any thread may call it, any number of times. A signal
        handler calls it through ``trio.lowlevel.TrioToken.run_sync_soon``. The group closes within
        ``config.longest_close`` seconds; see `aclose`.

        Args:
            reason: why, for events, for the error of later calls and for the broker's log.
            promptly: begin the drain at once, also where a call without it waits for the
                heartbeats.

        Raises:
            ArgumentError: ``reason`` is not a str, or ``promptly`` is not a bool.
        """
        arguments.instance("reason", reason, str)
        arguments.instance("promptly", promptly, bool)
        if self._loop_thread is not None and not self._loop_thread.is_here:
            self._loop_thread.post(partial(self.shutdown, reason, promptly=promptly))
            return
        if self._lifecycle is not None and (promptly or self._closing is None):
            close = self._lifecycle.close if promptly else self._lifecycle.close_on_beat
            close(End(Cause.CLOSED, self._closing or reason))
        if self._closing is not None:
            return
        self._closing = reason
        if self._cancelled_by_closing is not None:
            self._cancelled_by_closing.cancel()
        self._changed.notify()

    @trio.lowlevel.enable_ki_protection
    async def aclose(
        self, reason: str = "the program closes the group", *, promptly: bool = False
    ) -> None:
        """Drain the generation, leave the group, and wait until that is done. Idempotent.

        In a task of the generation it does not wait, because the generation waits for its tasks:
        there it does what `shutdown` does.

        It takes at most ``config.longest_close`` seconds, whatever has failed: the coordinator, all
        brokers, the network. If a task continues after it was cancelled, because it shields itself
        or waits for a thread, kgroup waits for it beyond that time: nothing can end it.

        Args:
            reason: as for `shutdown`.
            promptly: as for `shutdown`.

        Raises:
            ArgumentError: ``reason`` is not a str, or ``promptly`` is not a bool.
            UsageError: another thread calls it.

        Cancellation: the group continues to close; only the wait ends.
        """
        self._check_thread("aclose", waits=True)
        self.shutdown(reason, promptly=promptly)
        if self._opened is None or self in inside_of.get():
            await trio.lowlevel.checkpoint()
            return
        if self._holder is trio.lowlevel.current_task():
            self.release()
        await self._done.wait()

    @trio.lowlevel.enable_ki_protection
    async def wait_closed(self) -> None:
        """Wait until the group has closed, for any reason, and the member has left.

        Raises:
            UsageError: another thread calls it.

        Cancellation: only the wait ends; the group is not closed by it.
        """
        self._check_thread("wait_closed", waits=True)
        await self._done.wait()

    def status(self) -> GroupStatus:
        """What the member is doing now. Any thread may call it, and it waits for nothing.

        If the event loop is blocked, the second call from another thread says so: the first one
        schedules a call in the loop to find out.
        """
        recorder = self._recorder
        # Before the phase, which may change at any moment: a member that still joins its first
        # generation has not been assigned anything.
        was_assigned = recorder.started_at is not None
        runner = self._runner
        blocked = None if self._probe is None else self._probe.blocked()
        phase, detail = self._phase(runner, loop_ended=self._probe is not None and blocked is None)
        known: dict[str, Any] = {}
        if phase in (Phase.IDLE, Phase.DRAINING) and (names := self._outlasting()):
            phase, detail = Phase.DRAINING, f"still running: {short_list(names)}"
            if (outlasted := self._outlasted) is not None:
                known["batch_age"] = outlasted.batch_age
        now = self._runtime.clock.now()
        # What it was in when it was cancelled, or its loop failed, is no generation any more.
        if runner is not None and phase not in ENDED:
            known = runner.status
            if phase is Phase.RUNNING and recorder.started_at is not None:
                known["age"] = max(0.0, now - recorder.started_at)
            if phase is Phase.RUNNING and recorder.failed_at < now - known["heartbeat_age"]:
                detail = ""  # a heartbeat that was sent later has been answered
        since = None if phase is Phase.UNSUBSCRIBED else recorder.without_generation_since
        if runner is not None and runner.lifecycle.was_held:
            # A loss is no event before all work has ended, which may take for ever.
            since = runner.lifecycle.ends_since
        source = None if phase in ENDED else self._source
        buffered = getattr(source, "buffered", (0, 0))  # a source need not have it
        return GroupStatus(
            group_id=self._config.group_id,
            phase=phase,
            detail=detail,
            without_generation=0.0 if since is None else max(0.0, now - since),
            was_assigned=was_assigned,
            cut_short=recorder.cut_short,
            lost=recorder.lost,
            leave_unconfirmed=recorder.leave_unconfirmed,
            loop_blocked=blocked or 0.0,
            buffered_records=buffered[0],
            buffered_bytes=buffered[1],
            **known,
        )

    def health(
        self,
        *,
        blocked_after: float | None = BLOCKED_AFTER,
        hanging_after: float | None = None,
        unconfirmed_after: float | None = None,
        stuck_after: float | None = STUCK_AFTER,
    ) -> Health:
        """Whether the member is live and ready, and why not; for an orchestrator's probes.

        Any thread may call it, and it waits for nothing. A blocked event loop is noticed by the
        second call from another thread (see `status`). ``kgroup.health`` says what the words mean;
        docs/metrics.md shows how to serve it.

        Args:
            blocked_after: the member is not live if its event loop has not run for so many seconds;
                None means that this is not judged.
            hanging_after: it is not ready if it has been without a generation for so long, after
                its first one; by default ``GroupConfig.rebalance_timeout``.
            unconfirmed_after: nor if no heartbeat has been confirmed for so long; by default a
                third of ``GroupConfig.session_timeout``, or twice its ``heartbeat_interval`` if
                that is longer.
            stuck_after: nor if a handler has had a batch for so long; None means that this is not
                judged. It is not interrupted: ``GroupConfig.max_processing_time`` would do that.
                If one runs on after its generation for longer than this and ``hanging_after``, the
                member is not live, because only a restart brings it back.

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
        if self._opened is None:
            state = "not entered"
        elif self._done.is_set():
            state = "closed"
        elif self._closing is not None:
            state = "closing"
        else:
            state = "joining" if self._lifecycle is None else repr(self._lifecycle.state.value)
        return f"<ConsumerGroup {self._config.group_id!r}, {state}>"

    def _phase(self, runner: GenerationRunner | None, *, loop_ended: bool) -> tuple[Phase, str]:
        """What the member is doing, and why, or what fails; from any thread."""
        error = self._errors.first
        phase, detail = Phase.IDLE, self._recorder.failure
        parent = None if self._probe is None else self._probe.forked_from
        if self._opened is None:
            phase = Phase.NOT_ENTERED
        elif error is not None:
            phase, detail = Phase.FAILED, in_one_line(error)
        elif self._crash:
            phase, detail = Phase.FAILED, self._crash
        elif self._closing is not None:
            over = self._done.is_set() or loop_ended
            phase, detail = (Phase.CLOSED if over else Phase.CLOSING), self._closing
        elif self._done.is_set():  # before the loop has ended, as it does some time after any group
            phase, detail = Phase.CLOSED, CANCELLED
        elif loop_ended or parent is not None:
            phase, detail = _out_of_reach(parent)
        elif runner is None and not self._subscription.topics:
            phase, detail = Phase.UNSUBSCRIBED, ""
        elif runner is None:
            # No failure explains why a program has no generation that does not wait for one.
            phase, detail = (Phase.JOINING, detail) if self._waiting else (Phase.IDLE, "")
        elif runner.lifecycle.state is not State.RUNNING:
            phase = Phase.DRAINING
        else:
            phase, detail = self._phase_of_running(runner, detail)
        return phase, detail

    def _phase_of_running(self, runner: GenerationRunner, detail: str) -> tuple[Phase, str]:
        """What a member is doing whose generation runs, whether the program has it yet or not."""
        if runner.lifecycle.was_held:
            return Phase.RUNNING, detail
        if self._waiting or not runner.handed_over:
            return Phase.STARTING, detail
        return Phase.IDLE, ""  # it is ready, and only the program is missing

    def _check_entered(self) -> AbstractAsyncContextManager[None]:
        if self._opened is None:
            raise UsageError(
                f"group {self._config.group_id!r} is not open; write `async with ConsumerGroup(...)"
                " as group:`"
            )
        return self._opened

    def _check_thread(self, method: str, *, waits: bool = False) -> None:
        """Check that the group was not entered yet, or that its event loop's thread calls."""
        if self._loop_thread is not None:
            group = f"group {self._config.group_id!r}"
            self._loop_thread.check(group, f"group.{method}", waits=waits)

    @property
    def _forked(self) -> bool:
        """Whether this process is a fork of the member's."""
        return self._loop_thread is not None and self._loop_thread.forked

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def _open(self) -> AsyncIterator[None]:
        body_error: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                if self._config.security.dynamic:
                    logins = logins_of(self._config.security, self._runtime.compute)
                    nursery.start_soon(self._keep_fresh, logins)
                nursery.start_soon(self._manage, nursery)
                try:
                    with self._body:
                        yield
                except BaseException as error:  # noqa: BLE001 # it is raised, now or later
                    raise_cancellation(error)
                    # Kept until the generation has drained and the member has left.
                    body_error = error
                self._body_runs = False
                if self._forked:
                    # Its parent is the member, and goes on.
                    nursery.cancel_scope.cancel()
                else:
                    self.release()
                    self.shutdown(block_left(body_error), promptly=body_error is not None)
        except BaseException as error:  # noqa: BLE001 # it is raised, or what it has cut short
            self._errors.raise_cut_short(error, body_error)
        self._errors.raise_closed(body_error)

    @trio.lowlevel.enable_ki_protection
    async def _manage(self, nursery: trio.Nursery) -> None:
        """Run the member until it is closed, fails, or is cancelled."""
        try:
            if self._closing is None:
                with self._until_closing() as around:
                    await self._run_member(around, nursery)
        except BaseException as error:
            if not is_cancellation(error):
                self._crash = in_one_line(error)
            elif _trio_fails():
                self._crash = _LOOP_ENDED
            raise
        finally:
            if self._errors.tasks:
                self._body.cancel()
            self._logins.cancel()
            self._outlasted = None
            self._done.set()
            self._changed.notify()

    @trio.lowlevel.enable_ki_protection
    async def _keep_fresh(self, logins: Logins) -> None:
        """Look up tokens and passwords ahead of time, until the group has closed."""
        with self._logins:
            await logins.keep_fresh(lambda reason: self._emitter.emit(LoginDelayed, reason=reason))

    @trio.lowlevel.enable_ki_protection
    async def _watch_brokers(self, member: Member) -> None:
        """Keep the brokers' addresses up to date, until the member is about to leave."""
        with self._watching:
            await member.watch_brokers()

    async def _run_member(self, around: trio.CancelScope, nursery: trio.Nursery) -> None:
        """Enter the record source, run the member, leave; `around` is the scope of all this."""
        source = self._runtime.record_source(self._config, self._source_failed)
        check_source(source)
        self._source = source
        async with source:
            # From here on closing cancels parts of it only, each in a scope of its own.
            self._cancelled_by_closing = None
            member = self._member = Member(
                self._config, self._runtime, self._emitter, source, self._subscription, self
            )
            nursery.start_soon(self._watch_brokers, member)
            try:
                await self._run(member)
            finally:
                self._watching.cancel()  # before the connections are closed
                if self._runner is not None:  # cancelled from outside, in a generation
                    self._keep_program_errors(self._runner)
                try:
                    await self._leave(member)
                finally:
                    try:
                        await member.aclose()
                    finally:  # a cancellation from outside arrives as `aclose` returns
                        # A source may hold a nursery open, so no scope can be put around its exit
                        # alone. The scope around all of this gets the deadline instead.
                        around.shield = True
                        around.deadline = max(self._leave_by, trio.current_time()) + _FORCE

    def _source_failed(self, partition: TopicPartition | None, reason: str) -> None:
        """Report a fault from which the record source recovers; it may have lost a broker."""
        self._emitter.fault(partition, reason)
        if partition is None and self._member is not None:
            self._member.suspect_brokers()

    async def _run(self, member: Member) -> None:
        """The life of a member: one generation after the other, as often as `next()` is called."""
        try:
            while await self._wait_for_next(member):
                self._recorder.joins()
                with self._until_closing() as closing, self._until_replaced() as joining:
                    runner = await member.join()
                if closing.cancelled_caught or joining.cancelled_caught:
                    continue
                # From here on the generation ends by its own drain and not by these scopes.
                self._lifecycle, self._runner = runner.lifecycle, runner
                self._outlasted = None
                if self._closing is not None:  # either may come too late for the JoinGroup
                    self._lifecycle.close(End(Cause.CLOSED, self._closing))
                elif joining.cancel_called:
                    self._lifecycle.end(self._subscription_end())
                await member.run(runner, self._offer)
                self._outlasted = runner
                self._lifecycle = self._ready = self._runner = None
                if self._closing is not None:
                    self._changed.notify()  # `next()` waits for this end
                self._keep_program_errors(runner)
                if self._errors.first is not None:
                    return
                with self._until_closing():
                    await member.recover(runner)
        except KgroupError as error:
            self._errors.keep_fatal(error)
        except UserDataError as raised:
            self._errors.keep_fatal(raised.error)

    def _keep_program_errors(self, runner: GenerationRunner) -> None:
        self._errors.keep(runner.lifecycle.errors, runner.fatal)

    @contextmanager
    def _until_closing(self) -> Iterator[trio.CancelScope]:
        """A scope for steps that need not be finished once the group closes.

        INVARIANT: closing may begin before the scope is entered as well as within it. In either
        case the scope is cancelled, so that a step that begins late is cancelled too.
        """
        with trio.CancelScope() as scope:
            self._cancelled_by_closing = scope
            if self._closing is not None:
                scope.cancel()
            try:
                yield scope
            finally:
                self._cancelled_by_closing = None

    @contextmanager
    def _until_replaced(self) -> Iterator[trio.CancelScope]:
        """A scope for joining, which is of no use once the subscription was replaced."""
        with trio.CancelScope() as scope:
            self._joining = scope
            try:
                yield scope
            finally:
                self._joining = None

    async def _wait_for_next(self, member: Member) -> bool:
        """Wait until the program waits in `next()` and has subscribed; False if the group closes.

        A member that has unsubscribed leaves meanwhile, whether or not the program waits. A body
        of the loop that does not come back from its last generation is reported.
        """
        unsubscribed = False
        began = trio.current_time()
        report_at = began + self._config.session_timeout * LATE_PART
        while self._closing is None:
            if self._subscription.topics:
                if self._waiting:
                    return True
                unsubscribed = False
            elif not unsubscribed:
                unsubscribed = True
                with self._until_closing():
                    await member.unsubscribe(_UNSUBSCRIBED)
                continue
            with trio.move_on_at(report_at) as patience:
                await self._changed.wait()
            if patience.cancelled_caught:
                report_at = math.inf
                if self._held is not None and self._subscription.topics:
                    seconds = trio.current_time() - began
                    self._emitter.emit(BodyStillRunning, seconds=seconds, stack=self._body_stack())
        return False

    def _stack_of_holder(self) -> str:
        """Where the task is that has the last generation."""
        holder = self._holder
        if holder is None or holder.coro.cr_frame is None:
            return "(the task that called next() has ended)"
        return "".join(traceback.StackSummary.extract(holder.iter_await_frames()).format())

    def _replace_subscription(self, topics: Topics) -> None:
        """Take new topics, and end what was begun with others."""
        self._check_thread("subscribe" if topics else "unsubscribe")
        if self._closing is not None or self._done.is_set():
            raise GroupClosedError(
                f"group {self._config.group_id!r} is closed, so its subscription cannot change:"
                f" {self._closing or 'it has ended'}"
            )
        before, self._subscription.topics = self._subscription.topics, topics
        if set(topics) == set(before):
            return
        if not before:
            self._recorder.subscribed_again()
        if self._joining is not None:
            self._joining.cancel()
        if self._lifecycle is not None:
            self._lifecycle.end_on_beat(self._subscription_end)
        self._changed.notify()

    def _subscription_end(self) -> End:
        """The end of a generation whose subscription the program has replaced."""
        subscription = self._subscription
        now = f"the program subscribed to {subscription}" if subscription.topics else _UNSUBSCRIBED
        return End(Cause.SUBSCRIPTION_CHANGED, now)

    async def _leave(self, member: Member) -> None:
        self._leave_by = trio.current_time()
        if self._forked:  # it would take its parent out of the group
            return
        reason = self._errors.reason_to_leave
        if not self._errors.tasks and self._closing is not None:
            reason = self._closing
        elif not reason:
            reason = "the program was cancelled"
        self._leave_by += self._config.close_timeout
        with trio.CancelScope(shield=True, deadline=self._leave_by):
            await member.leave(reason)

    def _offer(self, ready: GenerationRunner) -> None:
        self._ready = ready
        self._changed.notify()

    def _take(self) -> Generation | None:
        """The generation that is ready, if it still runs."""
        ready = self._ready
        if ready is not None and ready.lifecycle.state is State.RUNNING and self._closing is None:
            self._ready = None
            self._hold(ready.lifecycle)
            self._emitter.emit(GenerationStarted)
            # A handler of that event may have closed the group, or replaced its subscription.
            if not ready.lifecycle.ends_soon:
                assert ready.generation is not None  # it was offered
                return ready.generation
            self.release()
        self._errors.raise_fatal()
        if self._errors.tasks and self._body_runs and not self._done.is_set():
            return None  # the block is about to be cancelled, and then raises these errors
        ended = self._lifecycle is None
        if (self._closing is not None and ended) or self._done.is_set():
            raise GroupClosedError(
                f"group {self._config.group_id!r} is closed: {self._closing or 'it has ended'};"
                " make another ConsumerGroup to join again"
            )
        return None

    def _hold(self, life: Lifecycle) -> None:
        """Count the body of the loop as work of this generation, until `release`."""
        self._held, self._holder = life, trio.lowlevel.current_task()
        life.hold_body()

    def _two_tasks_wait(self) -> UsageError:
        return UsageError(
            f"group {self._config.group_id!r}: another task waits in next() already; a"
            " member has one generation at a time"
        )


def _out_of_reach(parent: int | None) -> tuple[Phase, str]:
    """The phase of a group whose event loop has ended, or is in the parent of this process."""
    if parent is None:
        return Phase.FAILED, _LOOP_ENDED
    return Phase.FORKED, FORKED.format(parent)


def _trio_fails() -> bool:
    """Whether trio cancels, or has forgotten, all tasks because of an error of its own.

    What cancels the program's tasks only is no failure, and looks the same in a task.
    """
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:  # the loop is gone: Python closes the coroutines of its tasks
        return True
    return root is None or any(one.cancel_scope.cancel_called for one in root.child_nurseries)


def _check(config: GroupConfig, runtime: Runtime | None, on_event: EventHandler | None) -> None:
    arguments.instance("config", config, GroupConfig)
    if on_event is not None:
        functions.check_event_handler("on_event", on_event)
    if runtime is not None:
        arguments.instance("runtime", runtime, Runtime)
    if replaced := replaced_modules():
        raise UsageError(
            f"group {config.group_id!r}: {replaced}, and kgroup's event loop and threads cannot run"
            " on that; run the group in a process of its own, in which nothing is replaced"
        )
