"""Record streams of one generation: what `records()` gives.

A stream ends when its generation does, whatever the cause; it never hands out a record without a
valid lease. What happens at an offset that does not exist is `auto_offset_reset`'s to say.
"""

from __future__ import annotations

from typing import Any, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.errors import OffsetOutOfRangeError, StaleGenerationError, UsageError
from kgroup.generation.lifecycle import Lifecycle, State
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.generation.start_offsets import StartOffsets
from kgroup.interfaces import Batch
from kgroup.types import TopicPartition


@final
@attrs.frozen
class _Waiting:
    """A partition that is not read until its position is reset again.

    Attributes:
        until: when that is, by trio's clock.
        error: what the reset is told.
        moves: how often the floor had been moved when the wait began; a seek moves it again.
    """

    until: float
    error: OffsetOutOfRangeError
    moves: int


@final
class RecordStream:
    """Batches of some partitions of one generation; an async iterator.

    It ends when the generation does. Iterating is a checkpoint; cancelled, it loses nothing.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        starts: StartOffsets,
        partitions: frozenset[TopicPartition],
        max_records: int,
        open_streams: set[Any],
    ) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._epoch = lifecycle.membership.epoch
        self._positions = positions
        self._starts = starts
        self._limit = max_records
        self._open_streams = open_streams
        self._located = False
        self._busy = False
        self._closed = False
        self._held_since: float | None = None
        self._resets: dict[TopicPartition, Backoff] = {}
        """Of partitions whose position was reset and which have given no record since."""
        self._away: dict[TopicPartition, _Waiting] = {}
        """Those of them that are not read now."""
        self.partitions = partitions

    def __aiter__(self) -> RecordStream:
        return self

    async def __anext__(self) -> Batch:
        """The next batch.

        Raises:
            StopAsyncIteration: the generation is over, or the stream was closed.
            OffsetOutOfRangeError: a position does not exist and ``auto_offset_reset`` is
                ``error``.
            NoOffsetError: there is no position and ``auto_offset_reset`` is ``error``.
            FetchError: a partition cannot be read.
            UsageError: another task waits on this stream.
        """
        if self._busy:
            raise UsageError(
                "two tasks iterate over one record stream; open one for each partition instead"
            )
        self._busy, self._held_since = True, None
        try:
            batch = await self._next()
        finally:
            self._busy = False
        if batch is None:
            self.close()
            raise StopAsyncIteration
        self._held_since = self._member.clock.now()
        self._positions.handed_out(batch.partition, batch.next_offset)
        if (observer := self._member.runtime.observer) is not None:
            observer.handed_out(self._lifecycle.membership, batch)
        return batch

    def close(self) -> None:
        """Give the partitions up, so that another stream of this generation can have them."""
        if not self._closed:
            self._closed = True
            self._open_streams.discard(self)

    async def aclose(self) -> None:
        """As `close`; a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    @property
    def held_for(self) -> float:
        """Seconds for which the handler has had the last batch; 0 while the stream waits."""
        return 0.0 if self._held_since is None else self._member.clock.now() - self._held_since

    def __repr__(self) -> str:
        names = ", ".join(map(str, sorted(self.partitions)))
        return f"<RecordStream of {names}{', closed' if self._closed else ''}>"

    async def _next(self) -> Batch | None:
        """The next batch, or None at the end."""
        source, epoch = self._member.source, self._epoch
        await trio.lowlevel.checkpoint()
        while self._goes_on():
            try:
                if not self._located:
                    await self._starts.locate(self.partitions, None)
                    self._located = True
                    source.open(epoch, self.partitions)
                    continue
                await self._lifecycle.wait_to_read()
                batch = await self._receive()
            except OffsetOutOfRangeError as error:
                await self._locate_again(error)
                continue
            except StaleGenerationError:
                return None
            if batch is None:
                continue
            self._resets.pop(batch.partition, None)
            # INVARIANT: no checkpoint between this look and the hand-over, nor to the return:
            # what has left the source is handed out, or given back to it.
            if self._goes_on() and self._lifecycle.lease.left > 0:
                return batch
            source.seek(epoch, batch.partition, batch.messages[0].offset())
        return None

    async def _receive(self) -> Batch | None:
        """The source's next batch; None where a partition's wait is over before there is one."""
        source, epoch = self._member.source, self._epoch
        if self._away:
            self._forget_sought()
        if not self._away:
            return await source.receive(epoch, self.partitions, self._limit)
        batch: Batch | None = None
        with trio.move_on_at(min(waiting.until for waiting in self._away.values())):
            if ready := self.partitions.difference(self._away):
                batch = await source.receive(epoch, ready, self._limit)
            else:
                await self._lifecycle.ending.wait()
        if batch is None and self._goes_on():
            self._forget_sought()
            now = trio.current_time()
            for name, waiting in list(self._away.items()):
                if waiting.until <= now:
                    del self._away[name]
                    await self._reset(waiting.error)
        return batch

    def _forget_sought(self) -> None:
        """A partition that the program sought meanwhile is read from there, and not reset."""
        for name, waiting in list(self._away.items()):
            if self._positions.moves([name])[name] != waiting.moves:
                del self._away[name]
                self._resets.pop(name, None)

    async def _locate_again(self, error: OffsetOutOfRangeError) -> None:
        """Reset a position that does not exist: at once, and after a wait where it happens again.

        A leader may name an end that its log does not have, for ever. Each reset is a Metadata, a
        ListOffsets and perhaps an OffsetCommit; the other partitions are read meanwhile.
        """
        name = error.partition
        if name not in self._resets:
            self._resets[name] = self._member.new_backoff()
            await self._reset(error)
        else:
            until = trio.current_time() + self._resets[name].next()
            self._away[name] = _Waiting(until, error, self._positions.moves([name])[name])

    async def _reset(self, error: OffsetOutOfRangeError) -> None:
        try:
            await self._starts.locate([error.partition], error)
        except StaleGenerationError:
            return  # the generation's end has begun, and so the stream is at its end
        except Exception:
            # The handler's to see, each time that it asks.
            self._resets.pop(error.partition, None)
            raise

    def _goes_on(self) -> bool:
        return self._lifecycle.state is State.RUNNING and not self._closed
