"""Generation, for threads: the trio one behind calls into its event loop."""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import trio

from kgroup import arguments
from kgroup.errors import StaleGenerationError
from kgroup.events import HandlerOutstayed
from kgroup.generation.generation import MAX_RECORDS, MembershipView
from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.generation.lifecycle import State, inside_of, without_stale_errors
from kgroup.threaded.event_loop import BackgroundLoop, LoopOverError
from kgroup.threaded.flag import Flag
from kgroup.threaded.handlers import GRACE, Handler
from kgroup.threaded.records import Records
from kgroup.types import Assignment, End, Offsets, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Producer

T = TypeVar("T")


@final
class Generation(MembershipView):
    """One generation of a consumer group, as one member has it. Made by `ConsumerGroup`.

    Its methods may be called from any thread. What they mean, and what they raise, is said by
    the trio ``Generation``, to which they hand on; here is what threads make different.

    Attributes:
        assignment: the partitions; iterates over them.
        positions: for each partition the offset at which it starts, as far as it is known.
        ending: set when the end begins; a handler of long batches looks at it and commits part
            of its batch.
    """

    def __init__(
        self,
        generation: TrioGeneration,
        loop: BackgroundLoop,
        owner: object,
        emit: Callable[[HandlerOutstayed], None],
    ) -> None:
        super().__init__(generation._membership)  # noqa: SLF001
        self.assignment: Assignment = generation.assignment
        self.positions: Mapping[TopicPartition, int] = generation.positions
        self.ending = Flag()
        self._generation = generation
        self._loop = loop
        self._owner = owner
        self._emit = emit
        self._handlers: dict[Handler, None] = {}
        self._seeks: Counter[TopicPartition] = Counter()
        self.taken_by: int | None = None
        self.named = trio.Event()
        self.over = trio.Event()

    @property
    def state(self) -> State:
        """Running, draining or ended."""
        return self._generation.state

    @property
    def end(self) -> End | None:
        """Why it ended, or None while it runs."""
        return self._generation.end

    @property
    def lease(self) -> float:
        """Seconds for which the coordinator cannot have given the partitions away; 0 if over.

        A handler looks at it before a side effect that must not happen twice.
        """
        return self._generation.lease

    def start(self, fn: Callable[..., object], *args: Any) -> bool:
        """Run a function in a thread of its own; its return or exception ends the generation.

        The thread runs in a copy of the caller's context. It cannot be cancelled: it has until
        the drain's deadline to return, and is named in a ``HandlerOutstayed`` event if it is
        still there a second after its generation ended.

        Returns:
            False if the generation drains or has ended: nothing was started, which is no error;
            the next generation comes.

        Raises:
            ArgumentError: this is no function.
        """
        arguments.function("fn", fn)
        context = contextvars.copy_context()
        context.run(inside_of.set, inside_of.get() | {self._owner})
        handler = Handler(self._loop, self.group_id, context, fn)
        try:
            return self._loop.run_sync(partial(self._start, handler, args))
        except LoopOverError:
            return False

    def wait_ended(self, timeout: float | None = None) -> End:
        """Wait until the generation has ended; returns why. A thread may outstay it.

        In the loop's body it says that the body has nothing more to do than that. A handler of
        the generation's own would wait for itself, until the drain's deadline.

        Raises:
            ArgumentError: ``timeout`` is no number of seconds.
            TimeoutError: it has not ended in so many seconds.
            StaleGenerationError: the group's thread has died, and nobody knows why it ended.
        """
        in_body = threading.get_ident() == self.taken_by
        wait = self._wait_ended_in_body if in_body else self._generation.wait_ended
        return self._ask(wait, arguments.seconds("timeout", timeout))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block for work in the loop's body: ``with generation.scope(): ...``.

        A `StaleGenerationError` of this very generation ends the block quietly. After it the
        program asks for the next generation. Nothing is cancelled: this is a thread.
        """
        try:
            yield
        except BaseException as error:
            rest = without_stale_errors(error, self.end)
            if rest is error:
                raise
            if rest is not None:
                raise rest from None

    def records(
        self,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
        *,
        max_records: int = MAX_RECORDS,
    ) -> Records:
        """Batches of one owned partition, of several, or of all of them (the default).

        Args:
            partitions: which.
            max_records: how many records a batch has at most, 1 or more.

        Raises:
            ArgumentError: an argument is of the wrong type, or max_records is less than 1.
            NotOwnedError: a partition is not of this generation.
            UsageError: another open stream has one of them.
            StaleGenerationError: the group was closed.
        """
        stream = self._do(
            partial(self._generation.records, _listed(partitions), max_records=max_records)
        )
        return Records(self._loop, self._generation, stream, self._seeks)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`. Nothing is lost.

        Raises:
            NotOwnedError: a partition is not of this generation.
            StaleGenerationError: the group was closed.
        """
        self._do(partial(self._generation.pause, _listed(partitions)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Hand out records of these partitions, or of all, again.

        Raises:
            NotOwnedError: a partition is not of this generation.
            StaleGenerationError: the group was closed.
        """
        self._do(partial(self._generation.resume, _listed(partitions)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading at this offset, and allow commits from there on.

        Raises:
            ArgumentError: the offset is no int from 0 to 2**63-1, or the partition is none.
            NotOwnedError: the partition is not of this generation.
            StaleGenerationError: the group was closed.
        """
        self._do(partial(self._seek, partition, offset))

    def commit(self, offsets: Offsets, *, beyond_read: bool = False) -> None:
        """Commit the next offsets to read, under this generation's id; waits for the outcome.

        Commits that threads make at the same time go out as one request, and each thread gets
        its own answer.

        Args:
            offsets: for each partition the offset of the next record to read.
            beyond_read: allow offsets past what this member was given to read.

        Raises:
            ArgumentError: this is no mapping of partitions to offsets; nothing was sent.
            StaleGenerationError: the generation has ended, or the coordinator has moved on;
                nothing was committed. `LeaseExpiredError` where membership could not be
                confirmed in time.
            NotOwnedError: a partition is not of this generation; nothing was sent.
            OffsetBehindFloorError: an offset is behind the start position or the last commit;
                nothing was sent.
            OffsetBeyondReadError: an offset is past the records that were handed out, and the
                program did not seek there; nothing was sent.
            CommitFailedError: some partitions were refused; ``.partitions`` says which and why.
            CommitUnknownError: it was sent and not answered in time.

        What a signal handler raises out of the waiting leaves the outcome unknown.
        """
        given = arguments.offsets(offsets)
        self._ask(partial(self._generation.commit, given, beyond_read=beyond_read))

    def ask(self, fn: Callable[[TrioGeneration], Awaitable[T]]) -> T:
        """Await something of the trio generation in the group's thread, for parts of kgroup.

        Raises:
            StaleGenerationError: the group was closed.
            Exception: what it raised.
        """
        return self._ask(partial(fn, self._generation))

    def transaction_metadata(self) -> bytes:
        """What ``Producer.send_offsets_to_transaction`` takes as this generation's identity.

        Raises:
            UsageError: the installed librdkafka writes it in another format.
        """
        return self._generation.transaction_metadata()

    def commit_in_transaction(
        self, producer: Producer, offsets: Offsets, *, beyond_read: bool = False
    ) -> None:
        """Add these offsets to the producer's open transaction, under this generation's id.

        Raises:
            StaleGenerationError: the generation has ended or the coordinator refused it; abort
                the transaction.
            ArgumentError, NotOwnedError, OffsetBehindFloorError, OffsetBeyondReadError: as in
                `commit`; nothing was sent.
            CommitUnknownError: the producer did not answer in time; abort the transaction.
            confluent_kafka.KafkaException: the producer's own failure; its error says whether
                to retry or to abort.

        Source: KIP-447.
        """
        given = arguments.offsets(offsets)
        commit = partial(
            self._generation.commit_in_transaction, producer, given, beyond_read=beyond_read
        )
        self._ask(commit)

    def __repr__(self) -> str:
        return repr(self._generation)

    # For the group.

    async def watch(self) -> None:
        """Pass the end on to the threads, and wait until they are gone."""
        await self._generation.ending.wait()
        self.ending.set()
        await self._generation.wait_ended()
        with trio.move_on_after(GRACE):
            await self._all_gone()
        for handler in self._handlers:
            if not handler.gone.is_set():
                self._emit(self._outstayed(handler))
        self.named.set()
        await self._all_gone()

    def late(self) -> list[BaseException]:
        """What threads raised after the generation had ended without them."""
        raised = [handler.untold for handler in self._handlers if handler.untold is not None]
        left = (without_stale_errors(error, self.end) for error in raised)
        return [error for error in left if error is not None]

    def join_threads(self) -> None:
        """Join the threads that are gone; in the caller's thread."""
        for handler in list(self._handlers):
            if handler.gone.is_set() and handler.thread.ident is not None:
                handler.thread.join()

    # In the loop.

    def _start(self, handler: Handler, args: tuple[Any, ...]) -> bool:
        async def attend() -> None:
            await handler.attend()

        attend.__qualname__ = handler.name
        if not self._generation.start_soon(attend):
            return False
        self._handlers[handler] = None
        handler.start(args)
        return True

    async def _wait_ended_in_body(self) -> End:
        # As the trio one does for the task that is the body; here that is a thread.
        life = self._generation._lifecycle  # noqa: SLF001
        life.release_body()
        try:
            return await self._generation.wait_ended()
        finally:
            life.hold_body()

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._generation.seek(partition, offset)
        self._seeks[partition] += 1

    async def _all_gone(self) -> None:
        for handler in self._handlers:
            await handler.gone.wait()

    def _outstayed(self, handler: Handler) -> HandlerOutstayed:
        return HandlerOutstayed(
            group_id=self.group_id,
            member_id=self.member_id,
            generation_id=self.generation_id,
            epoch=self.epoch,
            thread=handler.thread.name,
            stack=handler.stack,
        )

    # In the thread that asks.

    def _ask(self, fn: Callable[[], Awaitable[T]], timeout: float | None = None) -> T:
        with self._said_as_stale():
            return self._loop.run(fn, timeout)

    def _do(self, fn: Callable[[], T]) -> T:
        with self._said_as_stale():
            return self._loop.run_sync(fn)

    @contextmanager
    def _said_as_stale(self) -> Iterator[None]:
        try:
            yield
        except LoopOverError:
            why = f" ({self.end})" if self.end is not None else ""
            raise StaleGenerationError(
                f"generation {self.generation_id} of group {self.group_id!r} has ended{why}, and"
                " its group is closed; nothing was done",
                self.end,
            ) from None


def _listed(
    partitions: TopicPartition | Iterable[TopicPartition] | None,
) -> frozenset[TopicPartition] | None:
    """What the caller named, read in the caller's thread: an iterable may be its own code."""
    return arguments.partitions("partitions", partitions)
