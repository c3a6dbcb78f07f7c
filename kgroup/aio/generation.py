"""Generation for asyncio: each method calls the trio Generation in the background thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack, final

from kgroup import arguments
from kgroup.aio.blocks import CancellableBlock
from kgroup.aio.body import BodyCall
from kgroup.aio.bridge import Bridge
from kgroup.aio.ending import Ending
from kgroup.aio.records import Records
from kgroup.aio.tasks import ProgramTask, Tasks
from kgroup.background.event_loop import LoopEndedError
from kgroup.background.generation import GenerationTwin, listed
from kgroup.config import GroupConfig
from kgroup.events import Event
from kgroup.functions import check_task
from kgroup.generation.generation import MAX_RECORDS
from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.generation.lifecycle import inside_of
from kgroup.generation.scopes import may_end_early
from kgroup.generation.states import State
from kgroup.generation.task_errors import not_raising_stale_errors
from kgroup.group import ConsumerGroup as TrioGroup
from kgroup.tracebacks import StartedCall
from kgroup.types import End, Offsets, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Producer
else:  # so that typing.get_type_hints finds the names without the imports
    Producer = Any

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PLAIN: Final = "make it one, or call it in a thread by asyncio.to_thread"


@final
class Generation(GenerationTwin):
    """One generation of a consumer group, for one member. `ConsumerGroup` makes it.

    Its methods call those of the trio ``Generation``, whose docstrings say more; here is what is
    different for asyncio. They may be called in the event loop in which the group was entered.

    Attributes:
        assignment: the partitions, a sorted collection.
        start_offsets: for each partition its start offset, if it was found before the hand-over.
        ending: an ``asyncio.Event`` that is set when the generation begins to end; a handler of
            long batches can check it, and commit a part of its batch.
    """

    def __init__(
        self,
        generation: TrioGeneration,
        tasks: Tasks,
        owner: TrioGroup,
        config: GroupConfig,
    ) -> None:
        super().__init__(generation)
        self.ending = Ending(lambda: generation.ending.is_set() or tasks.background.ended.is_set())
        self._tasks = tasks
        self._bridge: Bridge = tasks.bridge
        self._background = tasks.background
        self._owner = owner
        self._config = config
        self._blocks: set[CancellableBlock] = set()
        self._work_cancelled = False
        self._body_task: asyncio.Task[Any] | None = None

    @property
    def config(self) -> GroupConfig:
        """The member's settings."""
        return self._config

    def start_soon(self, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: Unpack[Ts]) -> bool:
        """Start a task of asyncio in this generation; its return or exception ends the generation.

        The task runs in a copy of the caller's context. At the drain's deadline, or at once if the
        membership is lost, it is cancelled. If it catches that and continues for a second, a
        ``TaskStillRunning`` event names it; it is cancelled again every second, and the member
        joins no new generation until it has ended. A ``ProgramLoopBlocked`` event says that
        something blocks asyncio's loop meanwhile. If others cancel the task, or it does
        so itself, that ends the group with a UsageError, unless the task of the block's body
        is cancelled as well. A CancelledError of something that it awaits is an error
        like any other.

        Returns:
            False if the generation drains or has ended. Nothing was started, which is no error:
            the program asks for the next generation.

        Raises:
            ArgumentError: ``fn`` is not a function, but a coroutine, for example. Call
                ``start_soon(handle, batch)``, not ``start_soon(handle(batch))``. Or it is not
                async, or takes other arguments.
            UsageError: another event loop runs here.
        """
        check_task("fn", fn, args, instead=_PLAIN)
        self._called(BodyCall.START_SOON)
        started_call = StartedCall(fn, args, self._membership)
        task = self._task(fn, *args, around=started_call, alone=True)

        async def wait_for_task() -> None:
            await task.wait(self._generation.emit)

        wait_for_task.__qualname__ = task.name  # the name in the end that it causes
        try:
            started = self._bridge.call_sync(partial(self._generation.start_soon, wait_for_task))
            if started:
                task.start()
            return started
        except LoopEndedError:
            return False
        except BaseException:
            task.drop()  # a signal handler has raised, and the trio task may be there
            raise

    async def run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run a function as work of this generation, and wait for it; any task may call this.

        Unlike a task of `start_soon`, the function does not end the generation when it returns or
        raises, and it may begin during the drain. It runs in a task of its own. The generation does
        not end before the function does, even if the caller has been cancelled.

        Raises:
            StaleGenerationError: the generation has ended, or ended while the function ran. The
                function is cancelled at the drain's deadline, or at once if membership is lost.
            ArgumentError: ``fn`` is not an async function without arguments.
            Exception: the function's own exception.

        Cancellation: the function is cancelled, and the call ends when it has. If it returns or
            raises all the same, so does the call.
        """
        check_task("fn", fn, (), instead=_PLAIN)
        task: ProgramTask[T] = self._task(fn)

        async def wait_for_task() -> T | None:
            self._bridge.post(task.start)
            return await task.wait(self._generation.emit)

        value = await self._call(partial(self._generation.run, wait_for_task))
        if task.cancelled:
            raise asyncio.CancelledError
        return value  # type: ignore[return-value] # it is None only if the task was cancelled

    async def wait_ended(self) -> End:
        """Wait until every task of the generation has ended, and return why.

        In the body of the loop, it says that the body has no other work in the generation. A task
        of this generation must not call it: it would wait for itself until the drain's deadline.

        Raises:
            StaleGenerationError: the group's background thread has died, so that the reason is
                not known.
        """
        return await self._call(
            self._wait_ended_in_body if self._in_body() else self._generation.wait_ended
        )

    def scope(self) -> AbstractContextManager[None, bool]:
        """A block for work in the body of the loop: ``with generation.scope(): ...``.

        The work is cancelled when the generation's tasks are: at the drain's deadline, or at once
        if membership is lost. This cancellation, and a `StaleGenerationError` of this generation,
        end the block and are not raised, so that the loop continues with the next generation.
        """
        self._called(BodyCall.SCOPE)
        return may_end_early(self._scope())

    def records(
        self,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
        *,
        max_records: int = MAX_RECORDS,
    ) -> Records:
        """Batches of one owned partition, of several, or by default of all of them.

        Args:
            partitions: the partitions.
            max_records: the most records of a batch, 1 or more.

        Raises:
            ArgumentError: an argument has a wrong type, or max_records is less than 1.
            NotOwnedError: the generation does not own a partition.
            UsageError: another open stream reads one of the partitions, or another event loop runs
                here.
            StaleGenerationError: the group has closed, or the program asks for another stream of a
                partition after one that it opened when the generation had ended already.
        """
        stream = self._call_sync(
            partial(self._generation.records, listed(partitions), max_records=max_records)
        )
        return Records(self._bridge, self._background, self._generation, stream)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Return no batch of these partitions, or of any, until `resume`. No record is lost.

        Raises:
            NotOwnedError: the generation does not own a partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._call_sync(partial(self._generation.pause, listed(partitions)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Return batches of these partitions, or of all, again.

        Raises:
            NotOwnedError: the generation does not own a partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._call_sync(partial(self._generation.resume, listed(partitions)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading at this offset, and allow commits from there on.

        Raises:
            ArgumentError: the offset is not an int from 0 to 2**63-1, or ``partition`` is not a
                partition.
            NotOwnedError: the generation does not own the partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._call_sync(partial(self._generation.seek, partition, offset))

    async def commit(self, offsets: Offsets, *, beyond_read: bool = False) -> None:
        """Commit the next offsets to read, under this generation's id.

        A generation sends one commit request at a time. Commits that wait for it are sent together
        in the next request, and each caller gets its own result.

        Args:
            offsets: for each partition, the offset of the next record to read (the last processed
                offset + 1), as an int or an `OffsetAndMetadata`.
            beyond_read: whether to allow offsets past the records that the program was given.

        Raises:
            ArgumentError: ``offsets`` is not a mapping of partitions to offsets, or ``beyond_read``
                is not a bool; nothing was sent.
            StaleGenerationError: the generation has ended, or the coordinator has moved on;
                nothing was committed, or only the partitions that the error names. It is a
                `LeaseExpiredError` if the coordinator did not confirm the membership in time.
            NotOwnedError: the generation does not own a partition; nothing was sent.
            OffsetBehindCommitError: an offset is less than the start position or the last commit;
                nothing was sent.
            OffsetBeyondReadError: an offset is past the records that the program was given, and
                the program did not seek there; nothing was sent.
            CommitFailedError: the coordinator refused some partitions; ``.partitions`` says which
                and why.
            CommitUnknownError: the commit was sent, and not confirmed in time.

        Cancellation: raises CancelledError only if nothing was sent. A commit that was sent is
            awaited, up to ``commit_timeout`` and never past the drain's deadline; its outcome is
            returned or raised, and the task is cancelled at its next wait.
        """
        given = arguments.offsets(offsets)
        await self._call(partial(self._generation.commit, given, beyond_read=beyond_read))

    async def commit_in_transaction(
        self, producer: Producer, offsets: Offsets, *, beyond_read: bool = False
    ) -> None:
        """Add these offsets to the producer's open transaction, under this generation's id.

        A thread makes the producer's call, so that it does not block the event loop.

        Raises:
            StaleGenerationError: the generation has ended, or the coordinator refused it; abort
                the transaction.
            ArgumentError, NotOwnedError, OffsetBehindCommitError, OffsetBeyondReadError: as for
                `commit`; nothing was sent.
            CommitUnknownError: the producer did not finish in time; abort the transaction. Until
                the producer's call has ended, ``abort_transaction`` raises a retriable error.
            UsageError: an earlier call with this producer in this generation got no answer; nothing
                was sent. What it has sent may still arrive, in a later transaction of the producer.
            confluent_kafka.KafkaException: the producer failed; its error says whether to retry
                or to abort.

        Cancellation: as for `commit`.

        Source: KIP-447.
        """
        given = arguments.offsets(offsets)
        commit = self._generation.commit_in_transaction
        await self._call(partial(commit, producer, given, beyond_read=beyond_read))

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:
        """Report an event about this generation to the group's event handlers.

        Raises:
            TypeError: the class has other fields; nothing was reported.
        """
        emitter = self._generation._member.emitter  # noqa: SLF001
        # Made here: in the background thread, an error would end the group.
        event = emitter.make(kind, **fields)
        context = contextvars.copy_context()
        self._background.post(partial(context.run, emitter.pass_on, event))

    # For ConsumerGroup.

    def _body(self) -> asyncio.Task[Any] | None:
        """The task that runs the body of the loop, as far as kgroup knows.

        ``asyncio.wait_for`` of Python 3.11, and ``create_task``, call `next` in a task of its own,
        which has ended. The body is then taken to be where the group was entered.
        """
        task = self._body_task
        return self._tasks.body.entered if task is None or task.done() else task

    def _in_body(self) -> bool:
        """Whether the caller is the body of the loop."""
        body = self._body()
        if body is None or body.done():
            return self._owner not in inside_of.get()
        return asyncio.current_task() is body

    # For ConsumerGroup, in the background loop.

    async def _watch(self) -> None:
        """Pass on to asyncio when the end begins, and when the generation's tasks are cancelled."""
        await self._generation.ending.wait()
        self._bridge.post(self.ending.set)
        life = self._generation._lifecycle  # noqa: SLF001
        while life.state is not State.ENDED:
            with life.until_ended():
                await life.ended.wait()
        self._bridge.post(self._cancel_blocks)

    # In asyncio's loop.

    @contextmanager
    def _scope(self) -> Iterator[None]:
        block = CancellableBlock()
        self._blocks.add(block)
        if self._work_cancelled:
            asyncio.get_running_loop().call_soon(block.cancel)
        try:
            with not_raising_stale_errors(lambda: self.end), block:
                yield
        finally:
            self._blocks.discard(block)

    def _called(self, call: BodyCall) -> None:
        """Note that the caller may be the body, if it is no task of a generation."""
        if self._bridge.is_here and self._owner not in inside_of.get():
            self._tasks.body.called(call)

    def _cancel_blocks(self) -> None:
        self._work_cancelled = True
        for block in self._blocks:
            block.cancel()

    def _task(
        self,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        around: AbstractContextManager[None] | None = None,
        alone: bool = False,
    ) -> ProgramTask[T]:
        context = contextvars.copy_context()
        context.run(inside_of.set, inside_of.get() | {self._owner})
        return ProgramTask(self._tasks, context, fn, *args, around=around, alone=alone)

    async def _call(self, fn: Callable[[], Awaitable[T]]) -> T:
        with self._loop_end_as_stale():
            return await self._bridge.call(fn)

    def _call_sync(self, fn: Callable[[], T]) -> T:
        with self._loop_end_as_stale():
            return self._bridge.call_sync(fn)


async def run_in_loop(generation: Generation, fn: Callable[[TrioGeneration], Awaitable[T]]) -> T:
    """Call an async function with the trio generation in the event loop, for kgroup's modules.

    Raises:
        StaleGenerationError: the group was closed.
        Exception: the function's own exception.

    Cancellation: as for `Bridge.call`.
    """
    return await generation._call(partial(fn, generation._generation))  # noqa: SLF001
