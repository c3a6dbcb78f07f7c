"""Generation for threads: each method calls the trio Generation in the group's event loop."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, final

from kgroup import arguments
from kgroup.background.event_loop import BackgroundLoop, LoopEndedError
from kgroup.background.generation import GenerationTwin, listed
from kgroup.functions import check_arguments, check_plain
from kgroup.generation.generation import MAX_RECORDS
from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.generation.lifecycle import inside_of
from kgroup.generation.record_stream import RecordStream
from kgroup.generation.scopes import may_end_early
from kgroup.generation.task_errors import not_raising_stale_errors
from kgroup.threaded.generation_threads import GenerationThreads
from kgroup.threaded.handlers import Handler
from kgroup.threaded.records import Records
from kgroup.threaded.slot import Slot
from kgroup.types import End, Offsets, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Producer
else:  # so that typing.get_type_hints finds the names without the imports
    Producer = Any

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@final
class Generation(GenerationTwin):
    """One generation of a consumer group, for one member. `ConsumerGroup` makes it.

    Its methods may be called from any thread. They call those of the trio ``Generation``, whose
    docstrings say more; here is what is different for threads.

    Attributes:
        assignment: the partitions, a sorted collection.
        start_offsets: for each partition its start offset, if it was found before the hand-over.
        ending: set when the generation begins to end; a handler of long batches can check it, and
            commit a part of its batch.
    """

    _instead = MappingProxyType(
        {"start_soon": "start(fn, *args), which runs a plain function in a thread"}
    )

    def __init__(self, threads: GenerationThreads, loop: BackgroundLoop, owner: object) -> None:
        super().__init__(threads.generation)
        self.ending = threads.ending
        self._loop = loop
        self._owner = owner
        self._threads = threads

    def start(self, fn: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> bool:
        """Run a function in a thread of its own; its return or exception ends the generation.

        The thread runs in a copy of the caller's context. It cannot be cancelled: it should return
        before the drain's deadline. If it still runs a second after the generation has ended, a
        ``HandlerStillRunning`` event names it.

        Returns:
            False if the generation drains or has ended. Nothing was started, which is no error:
            the program asks for the next generation.

        Raises:
            ArgumentError: ``fn`` is not a plain function, or takes other arguments.
        """
        check_plain("fn", fn, None, instead="kgroup.ConsumerGroup runs those, and kgroup.aio")
        check_arguments("fn", fn, args)
        context = contextvars.copy_context()
        context.run(inside_of.set, inside_of.get() | {self._owner})
        handler = Handler(self._loop, self._membership, context, fn, *args)
        try:
            return self._loop.run_sync(partial(self._start, handler))
        except LoopEndedError:
            return False

    def wait_ended(self, timeout: float | None = None) -> End:
        """Wait until the generation has ended, and return why. Handler threads may still run then.

        In the body of the ``for`` loop, it says that the body has no other work in the generation.
        A handler of this generation must not call it: it would wait for itself until the drain's
        deadline.

        Raises:
            ArgumentError: ``timeout`` is not a number of seconds.
            TimeoutError: the generation has not ended within the timeout.
            StaleGenerationError: the group's background thread has died, so that the reason is
                not known.
        """
        in_body = threading.current_thread() is self._threads.body
        wait = self._wait_ended_in_body if in_body else self._generation.wait_ended
        limit = arguments.seconds("timeout", timeout)
        return self._run(wait, limit, lambda: self._late(limit))

    def scope(self) -> AbstractContextManager[None, bool]:
        """A block for work in the body of the ``for`` loop: ``with generation.scope(): ...``.

        A `StaleGenerationError` of this generation ends the block and is not raised, so that the
        loop continues with the next generation. Nothing is cancelled, because threads cannot be.
        """
        return may_end_early(not_raising_stale_errors(lambda: self.end))

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
            UsageError: another open stream reads one of the partitions.
            StaleGenerationError: the group has closed, or the program asks for another stream of a
                partition after one that it opened when the generation had ended already.
        """
        names = listed(partitions)
        opened: list[RecordStream] = []
        interrupted = False

        def close() -> None:
            for stream in opened:
                stream.close()

        def open_stream() -> RecordStream:
            stream = self._generation.records(names, max_records=max_records)
            opened.append(stream)
            if interrupted:
                close()
            return stream

        try:
            return Records(self._loop, self._generation, self._run_sync(open_stream))
        except BaseException:
            # A signal handler may have raised: the program has no stream that it could close.
            interrupted = True
            self._loop.post(close)
            raise

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Return no batch of these partitions, or of any, until `resume`. No record is lost.

        Raises:
            NotOwnedError: the generation does not own a partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._run_sync(partial(self._generation.pause, listed(partitions)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Return batches of these partitions, or of all, again.

        Raises:
            NotOwnedError: the generation does not own a partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._run_sync(partial(self._generation.resume, listed(partitions)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading at this offset, and allow commits from there on.

        Raises:
            ArgumentError: the offset is not an int from 0 to 2**63-1, or ``partition`` is not a
                partition.
            NotOwnedError: the generation does not own the partition.
            StaleGenerationError: the generation has ended; nothing was done.
        """
        self._run_sync(partial(self._generation.seek, partition, offset))

    def commit(self, offsets: Offsets, *, beyond_read: bool = False) -> None:
        """Commit the next offsets to read, with this generation's id, and wait for the outcome.

        Commits that threads make at the same time are sent as one request, and each thread gets its
        own result. If a signal handler raises out of the wait, the outcome is unknown.

        Args:
            offsets: for each partition, the offset of the next record to read.
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
        """
        given = arguments.offsets(offsets)
        self._run(partial(self._generation.commit, given, beyond_read=beyond_read))

    def commit_in_transaction(
        self, producer: Producer, offsets: Offsets, *, beyond_read: bool = False
    ) -> None:
        """Add these offsets to the producer's open transaction, with this generation's id.

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

        Source: KIP-447.
        """
        given = arguments.offsets(offsets)
        commit = partial(
            self._generation.commit_in_transaction, producer, given, beyond_read=beyond_read
        )
        self._run(commit)

    # In the loop.

    def _start(self, handler: Handler) -> bool:
        async def wait_for_thread() -> None:
            await handler.wait_as_task()

        wait_for_thread.__qualname__ = handler.name  # the name in the end that it causes
        if not self._generation.start_soon(wait_for_thread):
            return False
        self._threads.start(handler)
        return True

    # In the caller's thread.

    def _run(
        self,
        fn: Callable[[], Awaitable[T]],
        timeout: float | None = None,
        late: Callable[[], str] = str,
    ) -> T:
        with self._loop_end_as_stale():
            return self._loop.run(fn, timeout, late)

    def _late(self, timeout: float | None) -> str:
        why = f" ({self.end})" if self.end is not None else ""
        return (
            f"generation {self.generation_id} of group {self.group_id!r} has not ended within"
            f" {timeout:g} s; it is {self.state.value}{why}"
        )

    def _run_sync(self, fn: Callable[[], T]) -> T:
        with self._loop_end_as_stale():
            return self._loop.run_sync(fn)


def take_in_loop(generation: Generation, slot: Slot[T]) -> T:
    """Take a value from a slot of `slot_of`, for kgroup's modules; raises as `run_in_loop` does."""
    with generation._loop_end_as_stale():  # noqa: SLF001 # this module's own
        return slot.take()


def slot_of(
    generation: Generation,
    fetch: Callable[[], Awaitable[T]],
    put_back: Callable[[T], object],
    busy: str,
) -> Slot[T]:
    """A slot whose values come from the generation's event loop, for kgroup's modules."""
    return Slot(generation._loop, fetch, put_back, busy)  # noqa: SLF001 # this module's own


def run_in_loop(generation: Generation, fn: Callable[[TrioGeneration], Awaitable[T]]) -> T:
    """Call an async function with the trio generation in the event loop, for kgroup's modules.

    Raises:
        StaleGenerationError: the group was closed.
        Exception: the function's own exception.
    """
    return generation._run(partial(fn, generation._generation))  # noqa: SLF001 # this module's own
