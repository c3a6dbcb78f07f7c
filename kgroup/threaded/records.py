"""Records of a generation as a plain iterator, with one call into the event loop for each batch."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import final

from kgroup import arguments
from kgroup.background.event_loop import BackgroundLoop, LoopEndedError
from kgroup.errors import short_list
from kgroup.generation.generation import Generation
from kgroup.generation.record_stream import RecordStream
from kgroup.interfaces import Batch
from kgroup.threaded.slot import Slot, ThreadWakeup
from kgroup.tracebacks import handed_out
from kgroup.uncopied import SEND_MESSAGES, Uncopied


@final
class Records(Uncopied):
    """An iterator over batches of one generation's partitions, for one thread at a time.

    It ends when the generation does, even while a thread waits in it. Records that were fetched
    ahead stay in the group's bounded buffers until a thread asks for the next batch.

    Args:
        loop: the event loop of the stream.
        generation: the generation.
        stream: the stream of the batches.
    """

    _in_its_place = SEND_MESSAGES

    def __init__(self, loop: BackgroundLoop, generation: Generation, stream: RecordStream) -> None:
        self._loop = loop
        self._generation = generation
        self._stream = stream
        self._ended = False
        stream.may_turn_back()
        self._read = stream.thread_read(ThreadWakeup(loop))
        self._slot = Slot(
            loop,
            self._next_batch,
            self._put_back,
            "two threads iterate over one record stream; open a stream for each partition instead",
            self._take,
        )

    def __iter__(self) -> Records:
        return self

    def __next__(self) -> Batch:
        """The next batch. An exception that a signal handler raises out of the call loses no batch.

        In ``batch = next(stream)``, Python may run a signal handler between the return of this
        call and the assignment; the batch is lost then. A ``for`` loop and the method `next` have
        no such gap.

        Raises:
            StopIteration: the generation has ended, or the stream was closed.
            OffsetOutOfRangeError: a position is outside the log, and ``auto_offset_reset`` is
                ``error``.
            NoOffsetError: a partition has no committed offset, and ``auto_offset_reset`` is
                ``error``.
            FetchError: a partition cannot be read.
            UsageError: another thread waits for a batch of this stream.
        """
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: float | None = None) -> Batch | None:
        """The next batch within a timeout, or None if the stream has ended.

        With a timeout of less than 10 ms, also 0, a call still waits for so long where it needs the
        background thread's answer, as in the main thread.

        Raises:
            ArgumentError: ``timeout`` is not a number of seconds.
            TimeoutError: no batch arrived within the timeout; none is lost.
            OffsetOutOfRangeError, NoOffsetError, FetchError, UsageError: as for ``next()``.
        """
        limit = arguments.seconds("timeout", timeout)
        if self._ended:
            return None
        try:
            batch = self._slot.take(limit, lambda: self._late(limit), self._taken)
        except LoopEndedError:
            batch = None
        self._ended = batch is None
        return batch

    def share(self) -> None:
        """Let several threads process batches at the same time; each uses `processing`.

        It has to be called before the first batch is taken.
        """
        self._stream.share()

    def share_in_turn(self) -> None:
        """For kgroup's own pool; see `RecordStream.share_in_turn`."""
        self._stream.share_in_turn()

    def processing(self, batch: Batch) -> AbstractContextManager[None]:
        """A block in which a thread processes a batch; metrics count what leaves it as failed.

        After `share`, ``max_processing_time``, health and metrics look at the time that each such
        block takes. Otherwise they look at the time until the next batch is taken, or the block
        raises.
        """
        return self._stream.processing(batch)

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them."""
        if not self._ended:
            self._loop.post(self._close)
            self._ended = True  # not before: a signal handler may raise, and the call be made again

    def __repr__(self) -> str:
        return repr(self._stream)

    def _taken(self, batch: Batch | None) -> None:
        if batch is not None:
            handed_out(self._stream.partitions, batch)
            self._stream.reached(batch)

    def _late(self, timeout: float | None) -> str:
        generation = self._generation
        names = short_list(sorted(self._stream.partitions))
        return (
            f"next() got no batch of {names} within {timeout:g} s, in generation"
            f" {generation.generation_id} of group {generation.group_id!r}; no record is lost, and"
            " the next call goes on waiting"
        )

    def _take(self, timeout: float | None) -> Batch | None:
        """Take the next batch in this thread; None if only the event loop can."""
        loop = self._loop
        # A signal handler interrupts the main thread anywhere, and may wait for the event loop.
        main = threading.get_ident() == threading.main_thread().ident
        if main or self._read is None or loop.is_current_thread or loop.forked:
            return None
        if loop.ended.is_set():
            return None
        return self._stream.next_in_thread(self._read, timeout)

    async def _next_batch(self) -> Batch | None:
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            return None

    def _put_back(self, batch: Batch | None) -> None:
        if batch is not None:
            self._stream.undo_hand_out(batch)

    def _close(self) -> None:
        # A batch on its way to a thread is first in the source again when others may read it.
        self._slot.empty()
        self._stream.close()
