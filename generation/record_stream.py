"""``RecordStream``: batches of records, each handed out within the lease.

A record stream never hands out a record without a valid lease: it checks the lease last, just
before the hand-over, and the batches that it returns check it again before each record
(``kgroup.generation.leased_batches``). At an offset that the log does not have,
``auto_offset_reset`` decides (``kgroup.generation.stream_positions``).

A handler thread of ``kgroup.threaded`` takes batches itself, without the event loop, as long as
nothing else has to be done (`RecordStream.next_in_thread`). The lease, the state and the epoch are
checked under the record source's lock, just before a batch leaves the source. Nothing is fetched
ahead for a thread, so that a seek, a pause and the end of the generation find nothing to take back.

INVARIANT: what has left the record source reaches the program, or is given back to the source,
unless the program has sought or the generation has ended meanwhile. What is given back does not
count as handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import trio

from kgroup.errors import ArgumentError, OffsetOutOfRangeError, StaleGenerationError, UsageError
from kgroup.generation.leased_batches import LeasedBatches
from kgroup.generation.positions import BatchInHand
from kgroup.generation.states import State
from kgroup.generation.stream_positions import StreamPositions
from kgroup.generation.streams import GenerationParts, PartitionStream
from kgroup.interfaces import Batch
from kgroup.records.buffered_source import BufferedSource, inside_source
from kgroup.records.waiters import ThreadRead, WaitingThread
from kgroup.tracebacks import handed_out
from kgroup.types import TopicPartition
from kgroup.worker_thread import post_to


def two_tasks_iterate() -> UsageError:
    """The error of an iteration while another task waits for a batch of the stream."""
    return UsageError(
        "two tasks iterate over one record stream; open one for each partition instead"
    )


@final
class RecordStream(PartitionStream):
    """Batches of some partitions of one generation; an async iterator.

    It ends when the generation does. Each iteration is a checkpoint; if it is cancelled, no record
    is lost.
    """

    def __init__(
        self,
        parts: GenerationParts,
        partitions: frozenset[TopicPartition],
        open_streams: set[Any],
        max_records: int,
    ) -> None:
        super().__init__(parts, partitions, open_streams)
        self._epoch = self._lifecycle.membership.epoch
        self._limit = max_records
        self._leased = LeasedBatches(self._lifecycle, self._member.clock)
        self._stream_positions = StreamPositions(parts, partitions, fetched=True)
        self._busy = False
        self._emitter = self._member.emitter
        self._pauses = parts.pauses
        self._shared = self._in_turn = self._may_turn_back = False
        self._token = trio.lowlevel.current_trio_token()
        self._given: dict[TopicPartition, int] = {}
        """The number of records of the batch that the program has, by partition, if a monitor wants
        to know."""
        self._in_hand: dict[TopicPartition, BatchInHand] = {}

    def __aiter__(self) -> RecordStream:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Batch:
        """The next batch.

        Raises:
            StopAsyncIteration: the generation is over, or the stream was closed.
            OffsetOutOfRangeError: a position is outside the log, and ``auto_offset_reset`` is
                ``error``.
            NoOffsetError: no offset is committed, and ``auto_offset_reset`` is ``error``.
            FetchError: a partition cannot be read.
            UsageError: another task waits for a batch of this stream, or another thread or a forked
                process calls it.
        """
        self._check_thread("__anext__", waits=True)
        if self._busy:
            raise two_tasks_iterate()
        self._take_back()
        self._busy = True
        try:
            batch = await self._next()
        finally:
            self._busy = False
        if batch is None:
            self.close()
            raise StopAsyncIteration
        batch = self._hand_out(batch)
        self._give(batch)
        handed_out(self.partitions, batch)
        if (observer := self._member.runtime.observer) is not None:
            observer.handed_out(self._lifecycle.membership, batch)
        return batch

    def thread_read(self, waiter: WaitingThread) -> ThreadRead | None:
        """What a thread needs for `next_in_thread`; None if the record source serves no threads."""
        if not isinstance(self._member.source, BufferedSource):
            return None  # the program's own; its methods belong to the event loop
        if self._member.runtime.observer is not None:
            return None
        return ThreadRead(
            epoch=self._epoch,
            partitions=self.partitions,
            limit=self._limit,
            may_read=self._may_read_in_thread,
            hand_out=self._hand_out,
            waiter=waiter,
        )

    def next_in_thread(self, read: ThreadRead, timeout: float | None) -> Batch | None:
        """The next batch, taken by a thread that is not the event loop's.

        The caller makes sure that no other thread, and no task, waits for a batch of this stream.

        Returns:
            the batch; None if the stream itself has to be called, which knows what to do or to
            raise: at the beginning and the end, without a lease, and after a fault.

        Raises:
            TimeoutError: there was no batch in time.
        """
        source = self._member.source
        assert isinstance(source, BufferedSource)  # `read` exists
        if not self._may_read_in_thread():
            return None
        self._take_back()
        batch = source.receive_in_thread(read, timeout)
        if batch is None:
            return None
        self._stream_positions.arrived(batch.partition)
        self._give(batch)
        return batch

    def may_turn_back(self) -> None:
        """For the streams of threads and of asyncio, which may give batches back unseen.

        A monitor learns of a batch only by `reached`.
        """
        self._may_turn_back = True

    def reached(self, batch: Batch) -> None:
        """The program has a batch of such a stream; in the thread that reads it."""
        if not self._shared:
            self._report(batch)

    def share(self) -> None:
        """Let several threads process batches of this stream at the same time.

        Asking for the next batch then does not mean that another one is processed: each thread
        says so by `processing`.
        """
        self._shared = True

    def share_in_turn(self) -> None:
        """As `share`, with a partition's next batch only after the `processing` of the one before.

        For kgroup's own pool of threads, none of which is the main thread.
        """
        self._shared = self._in_turn = True

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def processing(self, batch: Batch) -> Iterator[None]:
        """A block in which the program processes a batch; metrics count what leaves it as failed.

        Of a shared stream, the block is the time for which the batch is processed. Of others, that
        time goes on until the program asks for the next batch, unless the block raises.

        Raises:
            ArgumentError: it is no batch.
        """
        if not isinstance(batch, Batch):
            raise ArgumentError("batch", batch, "it must be a kgroup.Batch")
        if self._shared:
            self._begin(batch)
        try:
            yield
        except BaseException as error:
            self._finish(batch.partition, error)
            raise
        if self._shared:
            self._finish(batch.partition)
        if self._in_turn:
            self._end_turn(batch.partition)

    def _give(self, batch: Batch) -> None:
        """The program is given a batch; in the thread that reads it."""
        if not self._shared:
            self._begin(batch, reached=not self._may_turn_back)

    def _take_back(self) -> None:
        """The program asks for another batch; in the thread that reads it."""
        if not self._shared:
            for partition in [one for one in self._held_since if isinstance(one, TopicPartition)]:
                self._finish(partition)

    def _begin(self, batch: Batch, *, reached: bool = True) -> None:
        self._hold(batch.partition)
        self._in_hand[batch.partition] = self._positions.batch_of(batch)
        if self._emitter.monitored:
            self._given[batch.partition] = len(batch.messages)
        if reached:
            self._report(batch)

    def _report(self, batch: Batch) -> None:
        if self._emitter.monitored:
            self._emitter.handed_out(batch.partition, len(batch.messages))

    def _finish(self, partition: TopicPartition, error: BaseException | None = None) -> None:
        in_hand = self._in_hand.pop(partition, None)
        # What a program leaves because the generation ends need not be finished.
        if in_hand is not None and error is None and self._lifecycle.state is State.RUNNING:
            self._positions.finished(in_hand)
        records, seconds = self._given.pop(partition, None), self._release(partition)
        if records is not None:
            self._emitter.processed(partition, records, seconds, error)

    def _end_turn(self, partition: TopicPartition) -> None:
        if isinstance(self._member.source, BufferedSource):
            with inside_source:
                self._pauses.finished(partition)
        else:
            post_to(self._token, partial(self._finish_in_loop, partition))

    def _finish_in_loop(self, partition: TopicPartition) -> None:
        if self._lifecycle.state is State.RUNNING:  # a program's source was revoked at the end
            self._pauses.finished(partition)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether the program has paused a partition; any thread may ask."""
        return self._pauses.is_paused(partition)

    def undo_hand_out(self, batch: Batch) -> None:
        """Give back the batch that this stream returned last, and that the program did not get.

        Another thread that gets batches by calls into the event loop may have stopped waiting for
        this one, or may find that it cannot hand it out any more, because the lease has ended or
        the partition was paused meanwhile. It is the next batch of the partition again, unless the
        program has sought there. The stream may be closed.
        """
        partition = batch.partition
        if not self._shared:
            self._given.pop(partition, None)
            self._in_hand.pop(partition, None)
            self._held_since.pop(partition, None)
        self._positions.given_back(batch)
        if self._positions.seeks[partition] == batch._seeks:  # noqa: SLF001
            self._give_back(batch)
        if self._in_turn:
            self._finish_in_loop(partition)

    def _give_back(self, batch: Batch) -> None:
        source = self._member.source
        if isinstance(source, BufferedSource):
            source.put_back(self._epoch, batch)
        elif self._lifecycle.state is State.RUNNING:
            source.seek(self._epoch, batch.partition, batch.start_offset)

    def _may_read_in_thread(self) -> bool:
        return (
            self._stream_positions.settled and self._is_running() and self._lifecycle.lease.left > 0
        )

    def _hand_out(self, batch: Batch) -> Batch:
        """The batch as the program gets it; no seek is made meanwhile."""
        if self._in_turn:
            self._pauses.take_in_hand(batch.partition)
        self._positions.handed_out(batch)
        return self._leased.bind(batch, self._positions.seeks[batch.partition])

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them.

        Raises:
            UsageError: another thread calls it.
        """
        if self._closed:
            return
        super().close()
        self._stream_positions.close()
        if isinstance(self._member.source, BufferedSource):
            self._member.source.wake(self._epoch, self.partitions)

    async def aclose(self) -> None:
        """Like `close`, as a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    async def _next(self) -> Batch | None:
        """The next batch, or None at the end."""
        while self._is_running():
            try:
                await self._lifecycle.wait_to_read()
                await self._stream_positions.open()
                batch = await self._receive() if self._is_running() else None
            except StaleGenerationError:
                return None
            if batch is None:
                continue
            self._stream_positions.arrived(batch.partition)
            # INVARIANT: no checkpoint between this check and the hand-over, nor before the return.
            if self._is_running() and self._lifecycle.lease.left > 0:
                return batch
            self._give_back(batch)
        await trio.lowlevel.checkpoint()
        return None

    async def _receive(self) -> Batch | None:
        """The source's next batch; None if it has to be called again."""
        readable = self._stream_positions.readable()
        try:
            with self._stream_positions.until_changed():
                if readable:
                    return await self._member.source.receive(self._epoch, readable, self._limit)
                await self._lifecycle.ending.wait()
        except OffsetOutOfRangeError as error:
            self._stream_positions.reset(error)
        return None
