"""Records of a generation as an async iterator, with at most one call for each batch."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import final

from kgroup.aio.bridge import Bridge
from kgroup.aio.one_call import OneCall
from kgroup.background.event_loop import BackgroundLoop, LoopEndedError
from kgroup.generation.generation import Generation, sought_since
from kgroup.generation.record_stream import RecordStream, two_tasks_iterate
from kgroup.generation.states import State
from kgroup.interfaces import Batch
from kgroup.tracebacks import handed_out
from kgroup.uncopied import SEND_MESSAGES, Uncopied


@final
class Records(Uncopied):
    """An async iterator over batches of one generation's partitions, for one task at a time.

    It ends when the generation does, even while a task waits in it. If an iteration is cancelled,
    no record is lost.

    Args:
        bridge: the way to the background thread.
        background: that thread's loop.
        generation: the generation.
        stream: the stream of the batches.
    """

    _in_its_place = SEND_MESSAGES

    def __init__(
        self,
        bridge: Bridge,
        background: BackgroundLoop,
        generation: Generation,
        stream: RecordStream,
    ) -> None:
        self._bridge = bridge
        self._background = background
        self._generation = generation
        self._stream = stream
        self._calls = OneCall(bridge, self._take_back, two_tasks_iterate)
        self._ended = False
        stream.may_turn_back()

    def __aiter__(self) -> Records:
        return self

    async def __anext__(self) -> Batch:
        """The next batch.

        Raises:
            StopAsyncIteration: the generation is over, or the stream was closed.
            OffsetOutOfRangeError: a position is outside the log, and ``auto_offset_reset`` is
                ``error``.
            NoOffsetError: a partition has no committed offset, and ``auto_offset_reset`` is
                ``error``.
            FetchError: a partition cannot be read.
            UsageError: another task waits for a batch of this stream.

        Cancellation: a batch that arrives just then is the next one.
        """
        while not self._ended:
            try:
                batch = await self._calls(self._next)
            except LoopEndedError:
                batch = None
            if batch is None or self._ended:  # another thread may have closed it
                self._take_back(batch)
                break
            # INVARIANT: nothing runs between these checks and the hand-over. Since the batch left
            # the background thread, other tasks may have kept asyncio's loop busy for long.
            sought = sought_since(self._generation, batch) is not None
            paused = self._stream.is_paused(batch.partition)
            if not sought and not paused and self._may_hand_out():
                handed_out(self._stream.partitions, batch)
                self._stream.reached(batch)
                return batch
            self._take_back(batch)
        self._ended = True
        raise StopAsyncIteration

    def processing(self, batch: Batch) -> AbstractContextManager[None]:
        """A block in which a task processes a batch; metrics count what leaves it as failed."""
        return self._stream.processing(batch)

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them.

        A task that waits for a batch gets none any more, and its iteration ends.
        """
        if self._ended:
            return
        self._ended = True
        if self._calls.outstanding and self._bridge.is_here:
            # Until the stream is closed, a batch may come for the task that waits.
            with suppress(LoopEndedError):
                self._bridge.call_sync(self._stream.close)
            self._calls.take_back_now()
        else:
            self._background.post(self._stream.close)

    async def aclose(self) -> None:
        """Like `close`, for ``contextlib.aclosing``."""
        self.close()
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        return repr(self._stream)

    def _take_back(self, batch: Batch | None) -> None:
        if batch is not None:
            self._background.post(partial(self._stream.undo_hand_out, batch))

    def _may_hand_out(self) -> bool:
        return self._generation.state is State.RUNNING and self._generation.lease > 0

    # In the background loop.

    async def _next(self) -> Batch | None:
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            return None
