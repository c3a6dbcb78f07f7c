"""The life of one generation: its tasks, its end, its drain.

Work is what the program started, and the body of its loop; services are what kgroup started
(heartbeats, watchers). The first of them to end ends the generation. Work is then waited for
until the drain's deadline; services go on until the very end, so that heartbeats do.

INVARIANTS: no task outlives `run`; nothing is started once the end has begun; the first end is
the recorded one, except that a loss replaces a planned end; the drain has one deadline.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar, final

import attrs
import trio

from kgroup.errors import CommitUnknownError, LeaseExpiredError, StaleGenerationError
from kgroup.interfaces import Task
from kgroup.types import Cause, End


@final
class State(enum.Enum):
    """Where a generation stands."""

    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"


@final
class Signal(enum.Enum):
    """What moves a generation on."""

    REVOKED = "an end after which commits still succeed"
    LOST = "an end after which commits can only fail"
    FINISHED = "all tasks have ended"


#: From each state, what each signal leads to. A signal that a state does not name changes nothing:
#: the first end is the recorded one.
TRANSITIONS: Final[Mapping[tuple[State, Signal], State]] = {
    (State.RUNNING, Signal.REVOKED): State.DRAINING,
    (State.RUNNING, Signal.LOST): State.ENDED,
    (State.DRAINING, Signal.LOST): State.ENDED,
    (State.DRAINING, Signal.FINISHED): State.ENDED,
}


@final
class StateMachine:
    """The state of one generation and the end that was recorded. Without I/O."""

    def __init__(self) -> None:
        self.state = State.RUNNING
        self.end: End | None = None

    def signal(self, end: End) -> bool:
        """Take note of an end; True if the state changed by it.

        The first end is kept, except that a loss while draining takes its place: from then on
        it is why commits fail.
        """
        kind = Signal.REVOKED if end.can_commit else Signal.LOST
        following = TRANSITIONS.get((self.state, kind))
        if following is None:
            return False
        self.state = following
        self.end = end
        return True

    def finish(self) -> None:
        """All tasks have ended."""
        self.state = TRANSITIONS.get((self.state, Signal.FINISHED), self.state)


E = TypeVar("E", bound=BaseException)


def without_stale_errors(error: E, end: End | None) -> E | None:
    """What work of a generation raised, without that generation's own passing.

    Args:
        error: what it raised; a group is looked through.
        end: the generation's recorded end, if it has one.

    Returns:
        the rest, or None if it was nothing else.
    """

    def is_own_passing(one: BaseException) -> bool:
        return isinstance(one, LeaseExpiredError) or (
            isinstance(one, StaleGenerationError | CommitUnknownError)
            and end is not None
            and one.end is end
        )

    if isinstance(error, BaseExceptionGroup):
        return error.split(is_own_passing)[1]  # type: ignore[return-value] # a group of its kind
    return None if is_own_passing(error) else error


T = TypeVar("T")

_PATIENCE: Final = 10.0
"""Seconds between looks at what was cancelled and still runs."""

inside_of: Final[ContextVar[frozenset[object]]] = ContextVar("kgroup_inside", default=frozenset())
"""The groups of whose generations the current task is work."""

Service = Callable[..., Awaitable[End | None]]
"""A task of kgroup's own; what it returns, if anything, ends the generation."""


@final
@attrs.frozen(kw_only=True)
class Hooks:
    """Whom a generation tells of its passing.

    Attributes:
        drain_limit: seconds that a drain that begins now may take.
        draining: the drain has begun: the end, and its seconds.
        revoked: records must not be handed out any more.
        lost: commits can only fail.
        bound: no commit may outlast this time of trio's clock.
    """

    drain_limit: Callable[[], float]
    draining: Callable[[End, float], None]
    revoked: Callable[[], None]
    lost: Callable[[End], None]
    bound: Callable[[float], None]


@final
@attrs.frozen
class Finished(Generic[T]):
    """What a function returned."""

    value: T


@final
@attrs.define(eq=False)
class _Inner(Generic[T]):
    """One run of `Lifecycle.run_within`."""

    fn: Callable[[], Awaitable[T]]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)
    finished: Finished[T] | None = None
    error: Exception | None = None


@final
class Lifecycle:
    """Runs the tasks of one generation."""

    def __init__(self, owner: object, hooks: Hooks) -> None:
        self._owner = owner
        self._hooks = hooks
        self._life = StateMachine()
        self._nursery: trio.Nursery | None = None
        self._working = 0
        self._body: trio.lowlevel.Task | None = None
        self._changed = trio.Event()
        self._bodies: set[trio.CancelScope] = set()
        self._until_ending: dict[trio.CancelScope, None] = {}
        self.ending = trio.Event()
        self.ended = trio.Event()
        self.errors: list[Exception] = []
        self.cut_short = False
        self.was_held = False

    @property
    def state(self) -> State:
        """Where it stands."""
        return self._life.state

    @property
    def why(self) -> End | None:
        """The recorded end, or None while there is none."""
        return self._life.end

    async def run(self, opening: Service, *args: Any) -> None:
        """Run from the first service to the end of the last task.

        Cancellation: without a drain; all tasks are cancelled.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._serve, opening, args)
                try:
                    await self.ending.wait()
                    if self.state is State.DRAINING:
                        await self._drain()
                except BaseException:
                    # At once: a task may yet wait for the answer of a commit, behind a shield.
                    self.close(End(Cause.CANCELLED, "the scope around the group was cancelled"))
                    raise
                nursery.cancel_scope.cancel()
        finally:
            self._finish()

    def start_work(self, fn: Task, args: tuple[Any, ...]) -> bool:
        """Start a task of the program's; False if the end has begun."""
        if self.state is not State.RUNNING or self._nursery is None:
            return False
        self._working += 1
        self._nursery.start_soon(self._work, fn, args, name=fn)
        return True

    async def run_within(self, fn: Callable[[], Awaitable[T]]) -> Finished[T] | None:
        """Run a function as work that the caller waits for, in whatever task the caller is.

        The generation's end waits for it even if nobody does any more; it may begin in a drain
        too, and neither its return nor what it raises ends the generation.

        Returns:
            what it returned; None if the generation ended, before or meanwhile.

        Raises:
            Exception: what it raised.

        Cancellation: the function is cancelled, and waited for.
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
            # However long it takes: what it runs may be a thread, which trio waits for as well.
            while not inner.done.is_set():
                with trio.move_on_after(_PATIENCE, shield=True):
                    await inner.done.wait()
            raise
        if inner.error is not None:
            raise inner.error
        return inner.finished

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let what a service does in the block count as work: the drain waits for it.

        Heartbeats then go on beside it. What merely shields itself is waited for as well, but
        only after all services were cancelled.
        """
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            self._wake()

    def start_service(self, fn: Service, *args: Any) -> None:
        """Start a task of kgroup's own, unless the end has begun."""
        if self.state is State.RUNNING and self._nursery is not None:
            self._nursery.start_soon(self._serve, fn, args, name=fn)

    def end(self, end: End) -> End:
        """Begin the end, or turn a planned one into a loss; otherwise nothing.

        Returns:
            the end that is recorded now, which is another one where that came before.
        """
        if not self._life.signal(end):
            return self.why or end
        self._hooks.revoked()
        self.ending.set()
        for scope in self._until_ending:
            scope.cancel()
        if self.state is State.ENDED:
            self._hooks.lost(end)
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()
            self._cancel_bodies()
        self._wake()
        return end

    def close(self, end: End) -> None:
        """Begin the end because the group closes; what ended the generation before stays.

        Whatever ended it, and however long ago: the answer of a commit that was sent is awaited
        for no longer than a drain that begins now may take.
        """
        self.end(end)
        self._hooks.bound(trio.current_time() + max(0.0, self._hooks.drain_limit()))

    def hold_body(self) -> None:
        """The loop's body, this task, has the generation: what it does is work of it."""
        self._body = trio.lowlevel.current_task()
        self.was_held = True

    def release_body(self) -> None:
        """The loop's body is done with the generation."""
        self._body = None
        self._wake()

    async def wait_ended(self) -> End:
        """Wait until all is over. The drain does not wait for a body that does nothing but that."""
        body = self._body
        if body is trio.lowlevel.current_task():
            self.release_body()
        else:
            body = None
        try:
            await self.ended.wait()
        finally:
            self._body = self._body or body
        assert self.why is not None  # nothing ends without a cause
        return self.why

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Cancel what is inside when the generation's tasks are cancelled."""
        with trio.CancelScope() as scope:
            self._bodies.add(scope)
            if self.ended.is_set() or self.state is State.ENDED:
                scope.cancel()
            try:
                yield
            except BaseException as error:
                rest = without_stale_errors(error, self.why)
                if rest is error:
                    raise
                if rest is not None:
                    raise rest from None
            finally:
                self._bodies.discard(scope)

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

    async def _work(self, fn: Task, args: tuple[Any, ...]) -> None:
        inside_of.set(inside_of.get() | {self._owner})
        try:
            await fn(*args)
        except Exception as error:  # noqa: BLE001 # kept, and raised when the others have drained
            self._ended_by(fn, error)
        else:
            self.end(End(Cause.TASK_RETURNED, f"{_name_of(fn)} returned"))
        finally:
            self._working -= 1
            self._wake()

    async def _attend(self, inner: _Inner[Any]) -> None:
        inside_of.set(inside_of.get() | {self._owner})
        try:
            with inner.scope:
                inner.finished = Finished(await inner.fn())
        except Exception as error:  # noqa: BLE001 # it is the caller's
            inner.error = error
        finally:
            self._working -= 1
            inner.done.set()
            self._wake()

    async def _serve(self, fn: Service, args: tuple[Any, ...]) -> None:
        try:
            end = await fn(*args)
        # Nothing that the recovery table knows: it surfaces as a task's exception does.
        except Exception as error:  # noqa: BLE001
            self._raised(fn, error)
        else:
            if end is not None:
                self.end(end)

    async def _drain(self) -> None:
        limit = max(0.0, self._hooks.drain_limit())
        deadline = trio.current_time() + limit
        self._hooks.bound(deadline)
        assert self.why is not None  # DRAINING is only reached by an end
        self._hooks.draining(self.why, limit)
        with trio.move_on_at(deadline):
            while (self._working or self._body is not None) and self.state is State.DRAINING:
                await self._changed.wait()
        self.cut_short = self.state is State.DRAINING and self._working > 0
        # From here on a commit is refused as stale: the Join may be on its way.
        self._finish_life()

    def _ended_by(self, fn: Task, error: Exception) -> None:
        rest = without_stale_errors(error, self.why)
        if rest is None:
            self.end(End(Cause.MEMBERSHIP_LOST, str(error), error))
        else:
            self._raised(fn, rest)

    def _raised(self, fn: Task, error: Exception) -> None:
        self.errors.append(error)
        self.end(End(Cause.TASK_RAISED, f"{_name_of(fn)} raised {error!r}", error))

    def _finish_life(self) -> None:
        self._life.finish()
        assert self.why is not None  # nothing ends without a cause
        self._hooks.lost(self.why)
        self._cancel_bodies()

    def _finish(self) -> None:
        self._finish_life()
        self.ended.set()
        self._wake()

    def _cancel_bodies(self) -> None:
        for scope in self._bodies:
            scope.cancel()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _name_of(fn: Task) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
