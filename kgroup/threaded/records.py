"""Records of a generation as a plain iterator: one hop into the event loop for each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import trio

from kgroup import arguments
from kgroup.generation.generation import Generation
from kgroup.generation.lifecycle import State
from kgroup.generation.record_stream import RecordStream
from kgroup.interfaces import Batch
from kgroup.threaded.event_loop import BackgroundLoop, LoopOverError
from kgroup.threaded.handover_slot import Slot
from kgroup.types import TopicPartition

_LOOK: Final = 0.02
"""Seconds between looks at a lease that is over."""


@final
class Records:
    """Batches of some partitions of one generation; an iterator, for one thread at a time.

    It ends when the generation does, also for a thread that waits in it. What is fetched ahead
    waits in the group's bounded buffers; a batch leaves them when a thread asks for it.

    Args:
        loop: where the stream lives.
        generation: whose records they are.
        stream: gives them.
        seeks: counts the seeks of each partition.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        generation: Generation,
        stream: RecordStream,
        seeks: Mapping[TopicPartition, int],
    ) -> None:
        self._loop = loop
        self._generation = generation
        self._stream = stream
        self._seeks = seeks
        self._seeks_before: dict[TopicPartition, int] = {}
        self._over = False
        self._slot = Slot(
            loop,
            self._next_batch,
            self._still_good,
            "two threads iterate over one record stream; open one for each partition instead",
        )

    def __iter__(self) -> Records:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            StopIteration: the generation is over, or the stream was closed.
            OffsetOutOfRangeError: a position does not exist and ``auto_offset_reset`` is
                ``error``.
            NoOffsetError: there is no position and ``auto_offset_reset`` is ``error``.
            FetchError: a partition cannot be read.
            UsageError: another thread waits on this stream.

        What a signal handler raises loses no batch: the next call goes on.
        """
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: float | None = None) -> Batch | None:
        """As ``next()``, within a time: the next batch, or None at the end.

        Raises:
            ArgumentError: ``timeout`` is no number of seconds.
            TimeoutError: no batch came in so many seconds; nothing is lost.
            OffsetOutOfRangeError, NoOffsetError, FetchError, UsageError: as ``next()``.
        """
        limit = arguments.seconds("timeout", timeout)
        if self._over:
            return None
        try:
            batch = self._slot.take(limit)
        except LoopOverError:
            batch = None
        self._over = batch is None
        return batch

    def close(self) -> None:
        """Give the partitions up, so that another stream of this generation can have them."""
        if not self._over:
            self._over = True
            self._loop.post(self._stream.close)

    def __repr__(self) -> str:
        return repr(self._stream)

    async def _next_batch(self) -> Batch | None:
        try:
            batch = await anext(self._stream)
        except StopAsyncIteration:
            return None
        self._seeks_before = dict(self._seeks)
        return batch

    async def _still_good(self, batch: Batch | None) -> bool:
        """Whether a batch that its thread did not wait for can be handed out later."""
        running = self._generation
        while running.state is State.RUNNING and running.lease <= 0:  # noqa: ASYNC110 # rare
            await trio.sleep(_LOOK)
        if batch is None or running.state is not State.RUNNING:
            return False
        sought, before = self._seeks, self._seeks_before
        return sought.get(batch.partition, 0) == before.get(batch.partition, 0)
