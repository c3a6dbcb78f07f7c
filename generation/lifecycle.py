"""The life of one generation: its lease, its tasks, how it ends and how it drains.

Theory of operation
===================

**Two kinds of tasks.** *Work* is what the program started with `Generation.start_soon` or
`Generation.run`, and the body of the program's ``async for`` loop while it holds the generation.
*Services* are what kgroup started: heartbeats, watchers, the steps before the hand-over. Both run
in one nursery, so that nothing outlives the generation. The generation ends with the first task of
`Generation.start_soon` that returns or raises, and with the first service that raises or returns an
`End`.

**An end revokes the partitions or loses them**, as Kafka's ``onPartitionsRevoked`` and
``onPartitionsLost`` say. `TRANSITIONS` in ``states.py`` is the whole table. After a *revocation* (a
rebalance, a task that returned or raised, the group that closes) the coordinator still accepts
commits under this generation's id, until the member joins again. So the generation drains. After a
*loss* (the coordinator refused the generation, or the session has expired) a commit could only
fail, and other members may already read the partitions. So everything is cancelled at once. A
cancellation from outside the group counts as a loss: it cancels everything too. A loss during a
drain replaces the revocation as the recorded end, because from then on the loss is why commits
fail. In all other cases the first end is the recorded one.

**What happens at an end**, in this order, in one call of `end` without a checkpoint:

1. The record source revokes the epoch: streams hand out nothing more, and finish. After a loss the
   lease is revoked too: no iteration over a batch hands out another record.
2. Tasks that wait for the lease wake up, and notice the end.
3. `ending` is set, and requests that only a running generation needs (`until_ending`) are
   cancelled.
4. After a loss, the nursery and all scopes of `until_ended` are cancelled.

**The drain** waits until no work is left, or for its deadline: ``drain_timeout``, or less if the
rebalance would time out earlier. The rebalance time-out is counted from the sending of the last
heartbeat that was answered without an error, because the rebalance cannot have begun before that.
Once no work is left, the drain makes a last check of late commits (``late_commits``).
Heartbeats continue through the whole drain: without them a long drain would cost the membership.
The body of the loop counts as work, because a program may process and commit there without any
task. Work that still runs at the deadline is cancelled, and `cut_short` is set. So it is if a loss
ends the drain while work still runs.

**Commits are shielded, and still have a deadline.** A commit that was sent is awaited in a
`commit_scope`, which no cancellation reaches: otherwise a task that is cancelled could not know
whether its offsets were committed. The beginning of a drain brings the deadlines of all those
scopes forward to its own; without that, a shielded commit would keep the generation alive for
``commit_timeout`` after the drain. Closing the group does the same whatever ended the generation
before; but a group that is closed by a cancellation of the scope around it does not notice that
while it waits for such a commit. So a loss, which has no drain, gives the commits under way the
time of the longest one, and of the wait before it. Once the state is ENDED no commit is sent, not
even a repeated attempt: the next JoinGroup may be on its way.

**Traps.**

- Between an end and the end of the nursery other tasks run. Each step that hands something to the
  program checks `state` and hands it over without a checkpoint in between.
- The drain does not wait for services; they are cancelled after it. What a service must finish
  (such as the first commit of a start position) it does within `working`, which counts as work.
- `run_within` waits for its function even if the caller was cancelled, because the function may
  run in a thread, which cannot be cancelled.
- Not every exception of a task is a failure of the program: ``task_errors.py`` judges them.
- ``sys.exit()`` in a task is an exception like any other (`is_program_error`): trio would cancel
  the other tasks. What cancels must pass, also in a group that a nursery of the program has made.

INVARIANTS: no task outlives `open`; nothing is started once the end has begun; the first end is the
recorded one, except that a loss replaces a revocation; the drain has one deadline.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Generic, TypeVar, final

import attrs
import trio

from kgroup.client.lease import Lease
from kgroup.config import DRAIN_MARGIN
from kgroup.events import GenerationDraining
from kgroup.functions import name_of, program_errors
from kgroup.generation.member_context import MemberContext
from kgroup.generation.states import State, StateMachine
from kgroup.generation.task_errors import (
    not_raising_stale_errors,
    refusing_stray_cancellations,
    says_lease_expired,
    without_stale_errors,
)
from kgroup.interfaces import Task
from kgroup.notifier import Notifier
from kgroup.tracebacks import StartedCall, raise_outside, what_raised
from kgroup.types import Cause, End, Membership

T = TypeVar("T")

_LEAVING: Final = 0.03
"""Seconds from the end of a drain until the LeaveGroup is sent, with some reserve."""
_LONGEST_ROUND_TRIP: Final = 0.25
"""The longest round trip that is expected again, in seconds. After a longer one the coordinator was
busy, or frozen for a moment."""
_YIELDS_TO_CLOSING: Final = frozenset(
    {Cause.TASK_RETURNED, Cause.REBALANCE, Cause.PARTITIONS_CHANGED, Cause.SUBSCRIPTION_CHANGED}
)
"""Ends that are recorded as the closing of the group if that was requested before they came."""
_PATIENCE: Final = 10.0
"""Seconds between two checks of a cancelled function that still runs."""

inside_of: Final[ContextVar[frozenset[object]]] = ContextVar("kgroup_inside", default=frozenset())
"""The groups in whose generations the current task counts as work."""

Service = Callable[..., Awaitable[End | None]]
"""A task of kgroup's own; what it returns, if anything, ends the generation."""


@final
@attrs.frozen
class Finished(Generic[T]):
    """The result of a function that has returned."""

    value: T


@final
@attrs.frozen
class UntilEnded:
    """What the user of a scope of `Lifecycle.until_ended` may change.

    Attributes:
        shield: is called so that the end does not cancel the scope.
        unshield: is called so that it does so again, at once if it has come meanwhile.
    """

    shield: Callable[[], None]
    unshield: Callable[[], None]


@final
@attrs.define(eq=False)
class _Inner(Generic[T]):
    """One run of `Lifecycle.run_within`."""

    fn: Callable[[], Awaitable[T]]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)
    finished: Finished[T] | None = None
    error: BaseException | None = None


@final
class Lifecycle:
    """The state, the lease and the tasks of one generation.

    Args:
        member: the parts of the member that outlive this generation.
        membership: the membership that the generation is of.
        joined_at: when the JoinGroup was sent, by the runtime's clock.
        has_others: whether the group may have other members.

    Attributes:
        membership: the membership that the generation is of.
        lease: until when the coordinator cannot have given the partitions away.
        ending: set when the end begins.
        ending_for_program: the same for the program, which might set it itself.
        ended: set when every task has ended.
        errors: what tasks raised, in the order in which they raised it.
        cut_short: whether work was still running when the drain ended, by its deadline or a loss.
        ended_within: seconds from the beginning of the end until every task had ended.
        ends_since: when the end began, by the member's clock, which any thread can read; None
            before.
        was_held: whether the program was given the generation.
    """

    def __init__(
        self,
        member: MemberContext,
        membership: Membership,
        joined_at: float,
        *,
        has_others: bool = True,
    ) -> None:
        self._member = member
        self._has_others = has_others
        self._closing: End | None = None
        self._batch_time = 0.0
        self._batch_time_at = member.clock.now()
        self._machine = StateMachine()
        self._nursery: trio.Nursery | None = None
        self._working = 0
        self._body: trio.lowlevel.Task | None = None
        self._body_waits = False
        self._work_changed = Notifier()
        self._lease_changed = Notifier()
        self._until_ending: dict[trio.CancelScope, None] = {}
        self._until_ended: set[trio.CancelScope] = set()
        self._commit_scopes: set[trio.CancelScope] = set()
        self._last_commit_by = float("inf")
        self._ends_on_beat = False
        self._end_began: float | None = None
        """By trio's clock; a loss that replaces a revocation does not change it."""
        self.membership = membership
        self.lease = Lease(
            member.clock,
            session_timeout=member.config.session_timeout,
            rebalance_timeout=member.config.rebalance_timeout,
            joined_at=joined_at,
            on_confirm=self._lease_changed.notify,
        )
        self.ending = trio.Event()
        self.ending_for_program = trio.Event()
        self.ended = trio.Event()
        self.errors: list[BaseException] = []
        self.cut_short = False
        self.ended_within = 0.0
        self.ends_since: float | None = None
        self.was_held = False

    @property
    def state(self) -> State:
        """Running, draining or ended."""
        return self._machine.state

    @property
    def recorded_end(self) -> End | None:
        """The recorded end, or None while there is none."""
        return self._machine.end

    @property
    def final_end(self) -> End | None:
        """The recorded end, once the state is ENDED and no commit may be sent; None before."""
        return self._machine.end if self.state is State.ENDED else None

    @property
    def ends_soon(self) -> bool:
        """Whether it has ended, or waits for the beat to do so because the program wishes it."""
        return self.ending.is_set() or self._ends_on_beat or self._closing is not None

    # The life, from the first task to the end of the last one.

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold the tasks of the whole life: leaving the block cancels them and waits for them.

        Cancellation: all tasks are cancelled without a drain.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    yield
                except BaseException:
                    # At once: a shielded task may still wait for the response to a commit.
                    self.close(End(Cause.CANCELLED, "the scope around the group was cancelled"))
                    raise
                nursery.cancel_scope.cancel()
        finally:
            self._finish()
            if self._end_began is not None:
                self.ended_within = trio.current_time() - self._end_began
            self.ended.set()
            self._work_changed.notify()

    def end(self, end: End) -> End:
        """Begin the end, or replace a revocation by a loss; otherwise change nothing.

        Returns:
            the end that is recorded now; this may be an earlier one.
        """
        if self._closing is not None and end.cause in _YIELDS_TO_CLOSING:
            end = self._closing
        drained = self.state is State.DRAINING
        if not self._machine.signal(end):
            return self.recorded_end or end
        if self._end_began is None:
            self._end_began = trio.current_time()
            self.ends_since = self._member.clock.now()
        if self.state is State.ENDED:
            self.lease.revoke()
            # Who cancels the group wishes that its work does not finish.
            unwished = end.cause is not Cause.CANCELLED
            self.cut_short = drained and unwished and self._is_working
        self._member.source.revoke(self.membership.epoch)
        self._lease_changed.notify()
        self.ending.set()
        self.ending_for_program.set()
        for scope in self._until_ending:
            scope.cancel()
        if self.state is State.ENDED:
            config = self._member.config
            self._bound_commits(
                trio.current_time() + config.heartbeat_interval + config.longest_drain
            )
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()
            self._cancel_until_ended()
        self._work_changed.notify()
        return end

    def close(self, end: End) -> None:
        """Begin the end because the group closes; an end that was recorded before stays.

        Whatever ended the generation, and however long ago, from now on the response to a commit is
        awaited for no longer than a drain that begins now may take.
        """
        self.end(end)
        self._bound_commits(trio.current_time() + self._drain_limit())

    def close_on_beat(self, end: End) -> None:
        """As `close`, but so that the drain is over just before the group's next heartbeats.

        From those the other members learn that this one has left; until they do, no member reads
        its partitions. So its tasks continue meanwhile. It waits for less than the heartbeat
        interval, and not at all without tasks, or if no other member takes over.
        """
        # No member takes over the partitions of a static member before its session expires.
        successors = self._has_others and self.membership.group_instance_id is None
        if successors and self._is_working and self.state is State.RUNNING:
            self._closing = end
            self.start_service(self._close_on_beat, end)
        else:
            self.close(end)

    def end_on_beat(self, end: Callable[[], End]) -> None:
        """Begin the end because the program wishes it, just before the group's next heartbeats.

        From those the other members learn that they have to join again. A generation that the
        program has not been given ends at once, so that the program never gets it.

        Args:
            end: makes the end when it begins. A second call meanwhile changes nothing.
        """
        if not self.was_held:
            self.end(end())
        elif not self._ends_on_beat:
            self._ends_on_beat = True
            self.start_service(self._end_on_beat, end)

    async def drain(self, when_done: Service) -> None:
        """Wait after a revocation until no work is left, or for a loss or the deadline.

        Args:
            when_done: is called once no work is left, unless a loss or the deadline comes before;
                they cancel it. Commits can still be sent in it.
        """
        limit = self._drain_limit()
        deadline = trio.current_time() + limit
        self._bound_commits(deadline)
        self._member.emitter.emit(GenerationDraining, end=self.recorded_end, seconds=limit)
        with trio.move_on_at(deadline):
            await self._until_no_work()
            with self.until_ended():
                await self._serve(when_done, ())
            await self._until_no_work()  # some may have begun meanwhile
        if self.state is State.DRAINING:  # no loss has ended it, of which `end` takes note
            self.cut_short = self._is_working
        self._finish()

    async def _until_no_work(self) -> None:
        while self._is_working and self.state is State.DRAINING:
            await self._work_changed.wait()

    async def wait_ended(self) -> End:
        """Wait until every task has ended. The drain does not wait for a body that only does this.

        Returns:
            the recorded end.
        """
        in_body = self._body is trio.lowlevel.current_task()
        with self.body_waits() if in_body else nullcontext():
            await self.ended.wait()
        assert self.recorded_end is not None  # nothing ends without a cause
        return self.recorded_end

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def body_waits(self) -> Iterator[None]:
        """Do not count the body as work in this block, in which it only waits for the end."""
        self._body_waits = True
        self._work_changed.notify()
        try:
            yield
        finally:
            self._body_waits = False

    # Work and services.

    def start_work(self, fn: Task, args: tuple[Any, ...]) -> bool:
        """Start a task of the program; return False if the end has begun."""
        if self.state is not State.RUNNING or self._nursery is None:
            return False
        self._working += 1
        self._nursery.start_soon(self._work, fn, args, name=fn)
        return True

    def start_service(self, fn: Service, *args: Any) -> bool:
        """Start a task of kgroup's own, unless the end has begun; return whether it was started."""
        if self.state is not State.RUNNING or self._nursery is None:
            return False
        self._nursery.start_soon(self._serve, fn, args, name=fn)
        return True

    async def run_within(self, fn: Callable[[], Awaitable[T]]) -> Finished[T] | None:
        """Run a function as work that the caller waits for; the caller may be in any task.

        The generation's end waits for the function even if the caller was cancelled. The function
        may begin in a drain too, and neither its return nor its exception ends the generation.

        Returns:
            what the function returned; None if the generation ended, before or meanwhile.

        Raises:
            Exception: what the function raised.

        Cancellation: the function is cancelled, and waited for. What it returns or raises all the
            same counts.
        """
        if self.state is State.ENDED or self._nursery is None:
            await trio.lowlevel.checkpoint()
            return None
        inner: _Inner[T] = _Inner(fn)
        self._working += 1
        self._nursery.start_soon(self._attend, inner, name=fn)
        try:
            await inner.done.wait()
        except trio.Cancelled:
            inner.scope.cancel()
            # However long it takes: the function may run in a thread, which trio waits for too.
            while not inner.done.is_set():
                with trio.move_on_after(_PATIENCE, shield=True):
                    await inner.done.wait()
            if inner.error is None and inner.finished is None:
                raise
        if inner.error is not None:
            raise inner.error
        return inner.finished

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def working(self) -> Iterator[None]:
        """Let what a service does in the block count as work, so that the drain waits for it.

        Heartbeats continue meanwhile. If a service only shielded itself, the generation would wait
        for it too, but without heartbeats, because the other services are cancelled before.
        """
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            self._work_changed.notify()

    def batch_took(self, seconds: float) -> None:
        """A handler has processed a batch; drains are expected to take about as long.

        Any thread may call it.
        """
        if seconds >= self._recent_batch_time():
            self._batch_time, self._batch_time_at = seconds, self._member.clock.now()

    def hold_body(self) -> None:
        """Count this task as work, because the body of the program's loop holds the generation."""
        self._body = trio.lowlevel.current_task()
        self.was_held = True

    def release_body(self) -> None:
        """Stop counting the body's task as work, because the body is done with the generation."""
        self._body = None
        self._work_changed.notify()

    # What waits, and until when.

    async def wait_for_beat(self) -> None:
        """Wait until a drain that begins now is over just before the group's next heartbeats.

        It waits for less than the heartbeat interval, and no longer than there is work. Without
        other members it does not wait.
        """
        await trio.lowlevel.checkpoint()
        if not self._has_others:
            return
        # The LeaveGroup travels as long as the heartbeats of the others, but logins, encryption and
        # a busy machine delay it as they have delayed the last heartbeat.
        round_trip = min(self.lease.round_trip, _LONGEST_ROUND_TRIP)
        lead = self._recent_batch_time() + _LEAVING + round_trip
        interval = self._member.config.heartbeat_interval
        with trio.move_on_after(self._member.beat.delay_before(interval, lead)):
            while self._is_working:
                await self._work_changed.wait()

    async def wait_to_read(self) -> None:
        """Wait until the lease is valid, or until the end has begun and no record is handed out."""
        while self.lease.left <= 0 and self.state is State.RUNNING:
            await self._lease_changed.wait()

    async def wait_to_commit(self) -> None:
        """Wait until the lease is valid, or until the state is ENDED and no commit is sent."""
        while self.lease.left <= 0 and self.state is not State.ENDED:
            await self._lease_changed.wait()

    async def until_ending(self, fn: Callable[[], Awaitable[T]]) -> Finished[T] | None:
        """Call a function that is cancelled when the end begins.

        Returns:
            what it returned; None if the end had begun before or began meanwhile.
        """
        with trio.CancelScope() as scope:
            self._until_ending[scope] = None
            if self.ending.is_set():
                scope.cancel()
            try:
                return Finished(await fn())
            finally:
                del self._until_ending[scope]
        return None

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def until_ended(self) -> Iterator[UntilEnded]:
        """A scope that is cancelled when the generation's tasks are, unless it is shielded."""
        with trio.CancelScope() as scope:
            until_ended = UntilEnded(
                shield=partial(self._until_ended.discard, scope),
                unshield=partial(self._cancel_when_ended, scope),
            )
            until_ended.unshield()
            try:
                yield until_ended
            finally:
                until_ended.shield()

    def _cancel_when_ended(self, scope: trio.CancelScope) -> None:
        self._until_ended.add(scope)
        if self.state is State.ENDED:
            scope.cancel()

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def scope(self) -> Iterator[None]:
        """A scope like `until_ended`, in which a stale error of this generation is not raised."""
        with self.until_ended(), not_raising_stale_errors(lambda: self.recorded_end):
            yield

    @contextmanager
    def commit_scope(self, until: float = math.inf) -> Iterator[trio.CancelScope]:
        """A shielded scope that only its deadline cancels, which the end may bring forward.

        Args:
            until: the deadline of the scope that this one continues, by trio's clock.
        """
        deadline = min(self.commit_deadline(), until)
        with trio.CancelScope(shield=True, deadline=deadline) as scope:
            self._commit_scopes.add(scope)
            try:
                yield scope
            finally:
                self._commit_scopes.remove(scope)

    def commit_deadline(self) -> float:
        """The time, by trio's clock, until which a commit that begins now may take."""
        return min(trio.current_time() + self._member.config.commit_timeout, self._last_commit_by)

    def end_if_commits_are_over(self) -> End | None:
        """The recorded end, once no commit of this generation is awaited; None before."""
        if self.final_end is None and trio.current_time() >= self._last_commit_by:
            return self.recorded_end
        return self.final_end

    @property
    def _is_working(self) -> bool:
        return self._working > 0 or (self._body is not None and not self._body_waits)

    async def _end_on_beat(self, end: Callable[[], End]) -> End:
        await self.wait_for_beat()
        return end()

    async def _close_on_beat(self, end: End) -> None:
        try:
            await self.wait_for_beat()
        finally:  # also if the generation was lost meanwhile, to bound its commits
            self.close(end)

    def _recent_batch_time(self) -> float:
        """The longest time for which a handler had a batch; older ones count less and less."""
        # A program's own clock may go back.
        passed = max(0.0, self._member.clock.now() - self._batch_time_at)
        return self._batch_time * math.exp2(-passed / self._member.config.heartbeat_interval)

    # How tasks end.

    async def _work(self, fn: Task, args: tuple[Any, ...]) -> None:
        inside_of.set(inside_of.get() | {self._member.group})
        try:
            with StartedCall(fn, args, self.membership), refusing_stray_cancellations(fn):
                await fn(*args)
        # Kept, and raised when the others have drained.
        except BaseException as error:  # noqa: BLE001 # what cancels is raised
            raised, others = program_errors(error)
            if raised is not None:
                self._failed(fn, raised)
            if others is not None:
                raise_outside(others, others.__context__)
        else:
            self.end(End(Cause.TASK_RETURNED, f"{name_of(fn)} returned"))
        finally:
            self._working -= 1
            self._work_changed.notify()

    async def _attend(self, inner: _Inner[Any]) -> None:
        inside_of.set(inside_of.get() | {self._member.group})
        try:
            with inner.scope, refusing_stray_cancellations(inner.fn):
                inner.finished = Finished(await inner.fn())
        except BaseException as error:  # noqa: BLE001 # what cancels is raised
            inner.error, others = program_errors(error)  # the caller raises them
            if others is not None:
                raise_outside(others, others.__context__)
        finally:
            self._working -= 1
            inner.done.set()
            self._work_changed.notify()

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, fn: Service, args: tuple[Any, ...]) -> None:
        try:
            end = await fn(*args)
        # The error policy has no row for this error, so it surfaces as a task's exception does.
        except Exception as error:  # noqa: BLE001
            self._raised(fn, error)
        else:
            if end is not None:
                self.end(end)

    def _failed(self, fn: Task, error: BaseException) -> None:
        """A task of the program has raised this, which may only say that the end has come."""
        rest = without_stale_errors(error, self.recorded_end)
        if rest is not None:
            self._raised(fn, rest)
        # Other stale errors name the end that is recorded. To replace that would be false, and the
        # stale errors of other tasks, which name it too, would pass for failures.
        elif says_lease_expired(error):
            self.end(End(Cause.MEMBERSHIP_LOST, str(error), error))

    def _raised(self, fn: Task, error: BaseException) -> None:
        self.errors.append(error)
        self.end(End(Cause.TASK_RAISED, what_raised(error, fn), error))

    def _finish(self) -> None:
        """Refuse commits and records from now on: the next JoinGroup may be on its way."""
        self._machine.finish()
        if self.state is State.ENDED:
            self.lease.revoke()
        self._lease_changed.notify()
        self._cancel_until_ended()

    def _cancel_until_ended(self) -> None:
        for scope in self._until_ended:
            scope.cancel()

    def _bound_commits(self, deadline: float) -> None:
        """Let no commit last beyond this time of trio's clock."""
        self._last_commit_by = min(self._last_commit_by, deadline)
        for scope in self._commit_scopes:
            scope.deadline = min(scope.deadline, self._last_commit_by)

    def _drain_limit(self) -> float:
        """Seconds that a drain which begins now may take."""
        config = self._member.config
        rebalance = config.rebalance_timeout - self.lease.unconfirmed_for - DRAIN_MARGIN
        return max(0.0, min(config.drain_timeout, rebalance))
