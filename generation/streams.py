"""The streams by which a program reads partitions: of records, and of offsets.

A stream holds its partitions while it is open: no other stream of the generation can read them. It
ends when its generation does, whatever the cause. A record stream never hands out a record without
a valid lease: `RecordStream` checks the lease last, just before the hand-over, and the batches that
it returns check it again before each record (``kgroup.generation.leased_batches``). At an offset
that the log does not have, ``auto_offset_reset`` decides. An offset stream is for programs that
read records by other means, as Spark's executors do.

A handler thread of ``kgroup.threaded`` takes batches itself, without the event loop, as long as
nothing else has to be done (`RecordStream.next_in_thread`). The lease, the state and the epoch are
checked under the record source's lock, just before a batch leaves the source. Nothing is fetched
ahead for a thread, so that a seek, a pause and the end of the generation find nothing to take back.

INVARIANT: what has left the record source reaches the program, or is given back to the source,
unless the program has sought or the generation has ended meanwhile. What is given back does not
count as handed out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, final
from uuid import UUID

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.cluster import EARLIEST, LATEST
from kgroup.config import GroupConfig
from kgroup.errors import OffsetOutOfRangeError, StaleGenerationError, UsageError
from kgroup.generation.commits import Committer
from kgroup.generation.leased_batches import LeasedBatches
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.pauses import Pauses
from kgroup.generation.positions import BatchInHand, Positions
from kgroup.generation.start_finder import StartFinder
from kgroup.generation.states import State
from kgroup.interfaces import Batch
from kgroup.records.buffered_source import BufferedSource, inside_source
from kgroup.records.waiters import ThreadRead, WaitingThread
from kgroup.tracebacks import handed_out
from kgroup.types import IsolationLevel, TopicPartition
from kgroup.worker_thread import post_to


@final
@attrs.frozen(kw_only=True, eq=False)
class GenerationParts:
    """The live parts of one generation, which the generation and its streams share.

    Attributes:
        member: the parts of the member that outlive this generation.
        lifecycle: the generation's state, lease and tasks.
        positions: where its partitions start, and what may be committed.
        starts: finds positions that are not known, or that do not exist.
        committer: sends its commits.
        pauses: the partitions of which nothing is handed out.
    """

    member: MemberContext
    lifecycle: Lifecycle
    positions: Positions
    starts: StartFinder
    committer: Committer
    pauses: Pauses


class PartitionStream:
    """The partitions that a stream of one generation holds. Made by the class that is a stream.

    Args:
        parts: the generation's.
        partitions: those of this stream.
        open_streams: the generation's open streams, which this one joins until it is closed.

    Attributes:
        partitions: those of this stream.
    """

    def __init__(
        self,
        parts: GenerationParts,
        partitions: frozenset[TopicPartition],
        open_streams: set[Any],
    ) -> None:
        self._member = parts.member
        self._lifecycle = parts.lifecycle
        self._positions = parts.positions
        self._starts = parts.starts
        self._open_streams = open_streams
        self._closed = False
        self._held_since: dict[TopicPartition | None, float] = {}
        """By partition since when the program has had a batch; None for what has no partition."""
        self.partitions = partitions
        open_streams.add(self)

    @property
    def held_for(self) -> float:
        """The longest time in seconds for which the program has held a batch; 0 if it has none."""
        since = list(self._held_since.values())  # a copy: threads may change it meanwhile
        return self._member.clock.now() - min(since) if since else 0.0

    def _hold(self, partition: TopicPartition | None) -> None:
        """The program is given a batch."""
        self._release(partition)
        self._held_since[partition] = self._member.clock.now()

    def _release(self, partition: TopicPartition | None) -> float:
        """It has processed that batch; the seconds that this took, 0 if it had none."""
        since = self._held_since.pop(partition, None)
        if since is None:
            return 0.0
        seconds = self._member.clock.now() - since
        self._lifecycle.batch_took(seconds)
        return seconds

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them."""
        self._closed = True
        self._open_streams.discard(self)

    def __repr__(self) -> str:
        names = ", ".join(map(str, sorted(self.partitions)))
        return f"<{type(self).__name__} of {names}{', closed' if self._closed else ''}>"

    def _is_running(self) -> bool:
        return self._lifecycle.state is State.RUNNING and not self._closed


@final
@attrs.frozen
class _WaitingForReset:
    """A partition that is not read until its position is reset again.

    Attributes:
        until: when it is reset, by trio's clock.
        error: why the position has to be reset.
        moves: `Positions.moves` when the wait began; a seek raises it.
    """

    until: float
    error: OffsetOutOfRangeError
    moves: int


@final
@attrs.define(eq=False)
class _PositionSearch:
    """A search for the positions that a stream begins with, or for one that the log has.

    It goes on if the program gives up its call, and the next call waits for it: a program whose
    calls are shorter than the brokers' answers would otherwise never get a record.

    Attributes:
        error: why a position has to be reset; None at the beginning of the stream.
        over: set when the search has ended, whatever the cause.
        scope: cancels it.
        found: whether the positions are known now.
        raised: what the search raised instead.
    """

    error: OffsetOutOfRangeError | None
    over: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    found: bool = False
    raised: Exception | None = None


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
        self._located = False
        self._search: _PositionSearch | None = None
        self._busy = False
        self._emitter = self._member.emitter
        self._pauses = parts.pauses
        self._shared = self._in_turn = False
        self._token = trio.lowlevel.current_trio_token()
        self._given: dict[TopicPartition, int] = {}
        """The number of records of the batch that the program has, by partition, if a monitor wants
        to know."""
        self._in_hand: dict[TopicPartition, BatchInHand] = {}
        self._resets: dict[TopicPartition, Backoff] = {}
        """The waits of partitions whose position was reset and that have given no record since."""
        self._waiting_for_reset: dict[TopicPartition, _WaitingForReset] = {}
        """Those of them that are not read until their position is reset again."""

    def __aiter__(self) -> RecordStream:
        return self

    async def __anext__(self) -> Batch:
        """The next batch.

        Raises:
            StopAsyncIteration: the generation is over, or the stream was closed.
            OffsetOutOfRangeError: a position is outside the log, and ``auto_offset_reset`` is
                ``error``.
            NoOffsetError: no offset is committed, and ``auto_offset_reset`` is ``error``.
            FetchError: a partition cannot be read.
            UsageError: another task waits for a batch of this stream.
        """
        if self._busy:
            raise UsageError(
                "two tasks iterate over one record stream; open one for each partition instead"
            )
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
        self._resets.pop(batch.partition, None)
        self._give(batch)
        return batch

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
    def processing(self, batch: Batch) -> Iterator[None]:
        """A block in which the program processes a batch; metrics count what leaves it as failed.

        Of a shared stream, the block is the time for which the batch is processed. Of others, that
        time goes on until the program asks for the next batch, unless the block raises.
        """
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
            self._begin(batch)

    def _take_back(self) -> None:
        """The program asks for another batch; in the thread that reads it."""
        if not self._shared:
            for partition in [one for one in self._held_since if one is not None]:
                self._finish(partition)

    def _begin(self, batch: Batch) -> None:
        self._hold(batch.partition)
        self._in_hand[batch.partition] = self._positions.batch_of(batch)
        if self._emitter.monitored:
            self._given[batch.partition] = records = len(batch.messages)
            self._emitter.handed_out(batch.partition, records)

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
            self._located
            and self._search is None
            and not self._waiting_for_reset
            and self._is_running()
            and self._lifecycle.lease.left > 0
        )

    def _hand_out(self, batch: Batch) -> Batch:
        """The batch as the program gets it; no seek is made meanwhile."""
        if self._in_turn:
            self._pauses.take_in_hand(batch.partition)
        self._positions.handed_out(batch.partition, batch.next_offset)
        return self._leased.bind(batch, self._positions.seeks[batch.partition])

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them."""
        super().close()
        if self._search is not None:
            self._search.scope.cancel()

    async def aclose(self) -> None:
        """Like `close`, as a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    async def _next(self) -> Batch | None:
        """The next batch, or None at the end."""
        while self._is_running():
            try:
                if not self._located and self._search is None:
                    self._begin_search(None)
                if self._search is not None:
                    await self._end_search(self._search)
                    continue
                await self._lifecycle.wait_to_read()
                batch = await self._receive()
            except StaleGenerationError:
                return None
            if batch is None:
                continue
            self._resets.pop(batch.partition, None)
            # INVARIANT: no checkpoint between this check and the hand-over, nor before the return.
            if self._is_running() and self._lifecycle.lease.left > 0:
                return batch
            self._give_back(batch)
        await trio.lowlevel.checkpoint()
        return None

    async def _receive(self) -> Batch | None:
        """The source's next batch; None where a position has to be reset before there is one."""
        if self._waiting_for_reset:
            self._forget_sought()
        try:
            if self._waiting_for_reset:
                return await self._receive_of_others()
            return await self._member.source.receive(self._epoch, self.partitions, self._limit)
        except OffsetOutOfRangeError as error:
            self._reset(error)
            return None

    async def _receive_of_others(self) -> Batch | None:
        """The next batch of partitions that do not wait for a reset; None after such a wait."""
        batch: Batch | None = None
        with trio.move_on_at(min(waiting.until for waiting in self._waiting_for_reset.values())):
            if ready := self.partitions.difference(self._waiting_for_reset):
                batch = await self._member.source.receive(self._epoch, ready, self._limit)
            else:
                await self._lifecycle.ending.wait()
        if batch is None and self._is_running():
            self._forget_sought()
            now = trio.current_time()
            over = (one for one in self._waiting_for_reset.values() if one.until <= now)
            if (first := next(over, None)) is not None:
                del self._waiting_for_reset[first.error.partition]
                self._begin_search(first.error)
        return batch

    def _forget_sought(self) -> None:
        """A partition that the program sought meanwhile is read from there, and not reset."""
        for name, waiting in list(self._waiting_for_reset.items()):
            if self._positions.moves([name])[name] != waiting.moves:
                del self._waiting_for_reset[name]
                self._resets.pop(name, None)

    def _reset(self, error: OffsetOutOfRangeError) -> None:
        """Reset a position that does not exist: at once, and after a wait if it happens again.

        A faulty leader may keep naming an end that its log does not have. Each reset costs a
        Metadata, a ListOffsets and perhaps an OffsetCommit; other partitions are read meanwhile.
        """
        name = error.partition
        if name not in self._resets:
            self._resets[name] = self._member.new_backoff()
            self._begin_search(error)
        else:
            until = trio.current_time() + self._resets[name].next()
            self._waiting_for_reset[name] = _WaitingForReset(
                until, error, self._positions.moves([name])[name]
            )

    def _begin_search(self, error: OffsetOutOfRangeError | None) -> None:
        self._search = search = _PositionSearch(error)
        if error is None and self._positions.unlocated.isdisjoint(self.partitions):
            search.found = True
            search.over.set()
        else:
            self._lifecycle.start_service(self._find, search)

    async def _find(self, search: _PositionSearch) -> None:
        partitions = self.partitions if search.error is None else [search.error.partition]
        try:
            with search.scope:
                await self._starts.locate(partitions, search.error)
                search.found = True
        except Exception as error:  # noqa: BLE001  # the program's next call raises it
            search.raised = error
        finally:
            search.over.set()

    async def _end_search(self, search: _PositionSearch) -> None:
        """Wait for the search that this call has begun, or an earlier one that was given up.

        Raises:
            StaleGenerationError: the generation's end began before it found anything.
            OffsetOutOfRangeError, NoOffsetError, BrokerError: as `StartFinder.locate`.
        """
        await search.over.wait()
        self._search = None
        if search.raised is not None:
            if search.error is not None:  # each further call tries at once
                self._resets.pop(search.error.partition, None)
            raise search.raised
        if search.found and search.error is None:
            self._located = True
            self._member.source.open(self._epoch, self.partitions)


@final
class OffsetStream(PartitionStream):
    """The offsets from which, and up to which, partitions of one generation can be read."""

    @property
    def config(self) -> GroupConfig:
        """The member's settings."""
        return self._member.config

    @property
    def running(self) -> bool:
        """Whether new work may begin: the generation runs and the stream is open."""
        return self._is_running()

    def hold(self, *, working: bool) -> None:
        """Report that the program processes the offsets that it took, or has processed them.

        ``max_processing_time`` counts the time in between.
        """
        if working:
            self._hold(None)
        else:
            self._release(None)

    async def begin(self) -> Mapping[TopicPartition, int]:
        """Where each partition starts, as `StartFinder` found it.

        Raises:
            NoOffsetError: no offset is committed, and ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refused the request, and would refuse it again.
            StaleGenerationError: the generation began to end before a leader answered.

        Cancellation: nothing changes.
        """
        await self._starts.locate(self.partitions, None)
        return {name: self._positions.lower_bound(name) for name in sorted(self.partitions)}

    async def reset(self, partition: TopicPartition, offset: int) -> int:
        """Where to continue after an offset that is not in the log, by ``auto_offset_reset``.

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refused the request, and would refuse it again.
            StaleGenerationError: the generation began to end before the leader answered.
        """
        error = OffsetOutOfRangeError(
            f"{self._lifecycle.membership}: offset {offset} of {partition} is not in the log, and"
            " auto_offset_reset is 'error'; seek to an offset in the log, or set it to 'earliest'"
            " or 'latest'",
            partition,
            offset,
        )
        await self._starts.locate([partition], error)
        return self._positions.lower_bound(partition)

    async def first(self) -> Mapping[TopicPartition, int]:
        """The first offset of each partition's log.

        A partition whose leader does not answer now is left out.

        Raises:
            BrokerError: a leader refused the request, and would refuse it again.
        """
        return await self._starts.list_offsets(self.partitions, EARLIEST)

    async def end(
        self, isolation_level: IsolationLevel | None = None
    ) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition that can be read now.

        Under ``read_committed`` that is the last stable offset. A partition whose leader does not
        answer now is left out.

        Args:
            isolation_level: the group's by default.

        Raises:
            BrokerError: a leader refused the request, and would refuse it again.
        """
        return await self._starts.list_offsets(self.partitions, LATEST, isolation_level)

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        """The ids of topics: a topic that is deleted and created again has another one.

        A topic that does not exist now is left out, and all are where the brokers have no ids. A
        failed request is sent again.

        Raises:
            BrokerError: a broker refused the request, and would refuse it again.
        """
        return await self._starts.topic_ids(topics)

    async def confirmed(self) -> bool:
        """Wait until the lease is valid; return False if no new work may begin any more."""
        await self._lifecycle.wait_to_read()
        await trio.lowlevel.checkpoint()
        return self.running and self._lifecycle.lease.left > 0

    def serve(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Start a task that is cancelled with the generation, unless the generation is ending."""
        self._lifecycle.start_service(fn)
