"""``BufferedSource``: the part that every ``RecordSource`` of kgroup shares.

It sits between a fetcher (``kgroup.records.fetcher``), which gets records from librdkafka or from a
log in memory, and ``receive``, which hands them out. Both sources behave the same because every
decision is made here.

**Threads.** All calls come from the event loop's thread, except ``receive_in_thread``, by which a
handler thread of ``kgroup.threaded`` takes records itself: a call into the event loop for each
batch would cost more than the batch. ``_lock`` protects everything here. Nothing waits while it
holds the lock, and a fetcher's lock may be held when it is acquired, never the other way round. The
lock is reentrant, because ``on_fault`` may end the generation. A thread does not have it while
Python code of the program could run in it: the main thread, which runs signal handlers, does not
call ``receive_in_thread`` at all, and a call of a finalizer into the event loop is refused there
(``inside_source``). Otherwise such code could wait for the event loop, and the loop for the lock.

**Epochs.** A generation is known by its epoch, a number that rises with every ``assign``. Each
call carries the epoch of the generation that makes it. A call of an old generation changes
nothing, and ``receive`` raises ``StaleGenerationError`` for it; so a task that was not yet
cancelled cannot take records that belong to the next generation.

**Positions.** The position of a partition is ``PartitionQueue.position`` and nothing else: the
offset of the next record to hand out. A fetch reads ahead, so its own offset is further on.
The two meet in ``continues_at``: in a new generation, a partition that the member has kept stays
with its queue and its fetch if a reader at its start position would continue with exactly what is
queued; otherwise it begins a new fetch there. A position that jumps (``seek``, a new start
position) always gets a new fetch id, so that records of the old fetch, which may still be on their
way from the fetcher's thread, are recognised and dropped.

**Fairness.** ``_ready`` holds the partitions that have something to hand out, in the order in
which they wait for their turn. A partition that had its turn goes to the end, so one with a long
queue does not starve the others. The same holds one step earlier: if a reader waits while the
buffer is full of other partitions' records, those that hold more than their equal part are held
back (``_hold_over_share``) and fetching continues for the rest.

**Faults.** What was fetched before a fault is handed out first. A fault of one partition is then
raised by every ``receive`` that names it, until ``seek``; a refusal for lack of permission is
raised once, and reading resumes when the permission is granted. A fault that passes is reported to
``on_fault``, once until reading has resumed. If the fetcher itself breaks, every ``receive`` fails,
and the next ``assign`` replaces it.

**Truncations.** If a log was truncated, what is queued is not handed out, because it may not be in
the log any more. If the position is not past the point where the log was cut, the program was given
nothing that is lost, and the partition is fetched again from there. Otherwise it is a fault. The
next fetch has a leader epoch in both cases, because without one it would not find that the log was
cut once more before a record has arrived. That of the last fetched record will do: it may be later
than that of the record before the position, but what follows the cut is of a later one still.

INVARIANTS
    Records are handed out in the order of their offsets, each once, unless ``seek`` or a start
    position goes back, or they are put back.
    No record leaves after ``revoke``; records leave only as ``receive`` returns.
    A record with an old fetch id is dropped and counted as removed, wherever it arrives.
    A delivery costs one step for each partition that got something, however many tasks wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from itertools import count
from threading import RLock, get_ident
from time import monotonic
from types import MappingProxyType
from typing import Concatenate, Final, ParamSpec, TypeVar

import attrs
import trio

from kgroup.errors import FetchError, NotOwnedError, StaleGenerationError, UsageError
from kgroup.interfaces import Batch
from kgroup.records.buffer import BufferLimits, PartitionQueue
from kgroup.records.fetcher import (
    NO_EPOCH,
    FetchedItem,
    FetchedRun,
    Fetcher,
    FetcherBroken,
    FetchFailure,
    FetchStart,
    OutOfRange,
    PassedTo,
    Unreadable,
)
from kgroup.records.waiters import ThreadRead, Waiter, WaitingTask
from kgroup.types import TopicPartition, partition_fault
from kgroup.worker_thread import threads_with_locks

P = ParamSpec("P")
R = TypeVar("R")
Source = TypeVar("Source", bound="BufferedSource")

FAULT_REPEAT_INTERVAL: Final = 60.0
"""Seconds for which a fault is not reported again, even if reading resumed meanwhile."""
OnFault = Callable[[TopicPartition | None, str], None]
"""Reports a fault that is retried: of which partition, and what happened."""


def _locked(
    method: Callable[Concatenate[Source, P], R],
) -> Callable[Concatenate[Source, P], R]:
    """Hold the lock during the call."""

    @wraps(method)
    def call(source: Source, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with source._lock:  # noqa: SLF001 # a method
            return method(source, *args, **kwargs)

    return call


class BufferedSource:
    """The part of a ``RecordSource`` between its fetcher and ``receive``.

    Args:
        fetcher: gets the records.
        limits: the counts that it shares with the fetcher.
        on_fault: reports faults that are retried, in the event loop's thread.
    """

    def __init__(self, fetcher: Fetcher, limits: BufferLimits, on_fault: OnFault) -> None:
        self._lock = RLock()
        self._fetcher = fetcher
        self._limits = limits
        self._on_fault = on_fault
        self._epoch: int | None = None
        self._latest_epoch: int | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready: dict[TopicPartition, PartitionQueue] = {}
        self._fetched_partitions = 1
        self._waiting: dict[Waiter, None] = {}
        self._fetch_ids = count(1)
        self._reported_at: dict[tuple[TopicPartition | None, str], float] = {}
        self._broken: FetcherBroken | None = None
        self._closed = False

    def __repr__(self) -> str:
        epoch = "closed" if self._closed else f"epoch {self._epoch}"
        return f"<{type(self).__name__} {epoch}: {len(self._queues)} partitions, {self._limits!r}>"

    # For the generation.

    @_locked
    def assign(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        added: Collection[TopicPartition] = (),
    ) -> None:
        """Begin a generation; see ``RecordSource``.

        The queued records of a partition that is not ``added`` are kept if a reader at the given
        offset would continue with exactly them; transaction markers and compacted records in
        between do not matter.
        If the fetcher broke, another one takes its place, which is reported as a fault.

        Raises:
            UsageError: the epoch is not past the one before, a position is negative or not an int,
                or the source is closed; nothing has changed.
        """
        if self._closed:
            raise UsageError(f"this record source is closed; epoch {epoch} cannot be assigned")
        if self._latest_epoch is not None and epoch <= self._latest_epoch:
            raise UsageError(
                f"assign() needs a higher epoch than the last, {self._latest_epoch}, not {epoch};"
                " nothing has changed"
            )
        for partition, offset in positions.items():
            # The group checks what it assigns. This is for other callers: librdkafka ends the whole
            # process on some invalid partitions.
            if fault := partition_fault(partition):
                raise UsageError(f"a partition cannot be read, {fault}; nothing has changed")
            if type(offset) is not int or offset < 0:
                raise UsageError(f"{partition} cannot start at {offset!r}; nothing has changed")
        if self._epoch is not None:
            self.revoke(self._epoch)
        if self._broken is not None:
            self._renew(self._broken, epoch)
        before, self._queues = self._queues, {}
        for partition, offset in positions.items():
            queue = before.get(partition)
            if queue is None or partition in added or not queue.continues_at(offset):
                start_epoch = leader_epochs.get(partition, NO_EPOCH)
                # Another fetch would not find that the log was cut, unless it has the epoch of what
                # another member has committed since.
                finds_out = partition in added and start_epoch != NO_EPOCH
                cut = queue is not None and not finds_out and queue.truncated_below(offset)
                kept = queue.fault if queue is not None and cut else None
                queue = PartitionQueue(partition, offset, start_epoch=start_epoch, fault=kept)
            else:
                del before[partition]
                queue.position = offset
                queue.opened = queue.paused = False
            self._queues[partition] = queue
        self._drop(before.values())
        self._epoch = self._latest_epoch = epoch
        self._reported_at.clear()
        self._fetcher.activate()
        self._resume_if_possible()

    @_locked
    def revoke(self, epoch: int) -> None:
        """End a generation; see ``RecordSource``. Another epoch than the current one is ignored."""
        if epoch != self._epoch:
            return
        self._epoch = None
        self._ready.clear()
        self._fetcher.deactivate()
        for queue in self._queues.values():
            # A thread may be slow to wake, and the next generation keeps queues.
            queue.waiter = None
        for waiter in self._waiting:
            waiter.set()

    @_locked
    def open(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Begin to fetch these partitions; see ``RecordSource``. Another epoch is ignored.

        Raises:
            NotOwnedError: a partition was not assigned; none was opened.
        """
        if epoch != self._epoch:
            return
        starts = {}
        for queue in self._owned(partitions):
            if queue.opened:
                continue
            queue.opened = True
            if not queue.fetch_id and queue.fault is None:
                starts[queue.partition] = self._new_fetch(queue)
            self._refresh(queue)
        if starts:
            self._fetcher.start(starts)

    def lag(self, epoch: int) -> Mapping[TopicPartition, int | None]:
        """How many offsets each partition has left to hand out; see ``RecordSource``.

        It takes no lock, so that any thread can call it, whatever the others are doing: what it
        reads of a partition is its own, but not of one moment with what it reads of the others.
        """
        if epoch != self._epoch:
            return {}
        return {partition: self._lag_of(queue) for partition, queue in list(self._queues.items())}

    @property
    def buffered(self) -> tuple[int, int]:
        """The records that were fetched and not handed out, and their bytes; see ``lag``.

        What librdkafka itself has fetched ahead is not counted.
        """
        limits = self._limits
        return max(0, limits.records), max(0, limits.bytes)

    # For readers.

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """Wait for the next batch of any of these opened partitions; see ``RecordSource``.

        Records that were fetched before a fault come first. Then every call that names the
        partition raises the fault, in turn with the other partitions' records, until ``seek``; only
        an ``AuthorizationError`` is raised once, and later calls wait.

        Raises:
            OffsetOutOfRangeError: a position is outside of its log.
            FetchError: a partition, or the source, cannot be read.
            AuthorizationError: the principal may not read a partition.
            StaleGenerationError: the epoch is not the current one, or ended meanwhile.
            NotOwnedError: a partition was not assigned.
            UsageError: a partition is not open, another ``receive`` waits for it already, or
                ``limit`` is not positive.

        Cancellation: nothing has left the source.
        """
        if type(limit) is not int or limit < 1:
            raise UsageError(f"limit={limit!r}: it must be a whole number of at least 1")
        await trio.lowlevel.checkpoint()
        may_take = True
        try:
            while True:
                with self._lock:
                    self._check(epoch)
                    queue = self._next_ready(partitions)
                    if queue is not None:
                        return self._hand_out(queue, epoch, limit)
                    queues: Sequence[PartitionQueue] = ()
                    waiter: WaitingTask | None = None
                    if not (may_take and self._can_take()):
                        queues = self._without_reader(partitions)
                        waiter = WaitingTask()
                        self._begin_wait(waiter, queues)
                if waiter is None:
                    may_take = self._fetcher.take_into(self._take_in)
                    if may_take and not self._ready:
                        await trio.lowlevel.checkpoint()
                    continue
                try:
                    await waiter.wait()
                finally:
                    self._end_wait(waiter, queues)
                may_take = True
        except BaseException:
            self._let_another_take()
            raise

    def receive_in_thread(self, read: ThreadRead, timeout: float | None) -> Batch | None:
        """As ``receive``, in another thread than the event loop's, as long as all goes well.

        Returns:
            the batch; None if ``receive`` has to be called, which knows what to do or to raise.

        Raises:
            TimeoutError: there was no batch in time.
            Exception: what the waiter raises.
        """
        deadline = None if timeout is None else monotonic() + timeout
        may_take = True
        while True:
            with inside_source, self._lock:
                if not self._serves(read):
                    return None
                queue = self._next_ready(read.partitions)
                if queue is not None:
                    if not queue.records:
                        return None
                    return read.hand_out(self._hand_out(queue, read.epoch, read.limit))
                queues: Sequence[PartitionQueue] = ()
                takes = may_take and self._can_take() and not self._reported_at
                if not takes:
                    queues = self._owned(read.partitions)
                    if any(not queue.opened or queue.waiter is not None for queue in queues):
                        return None
                    self._begin_wait(read.waiter, queues)
            if takes:
                with inside_source:
                    may_take = self._take_in_thread()
                continue
            try:
                read.waiter.wait(None if deadline is None else deadline - monotonic())
            finally:
                with inside_source:
                    self._end_wait(read.waiter, queues)
            may_take = True

    @_locked
    def wake(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Let a thread that waits for records of these look again whether it may read them."""
        if epoch != self._epoch:
            return
        for queue in self._owned(partitions):
            if queue.waiter is not None:
                queue.waiter.set()

    @_locked
    def pause(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Hand out no records of these until ``resume``; see ``RecordSource``.

        Raises:
            NotOwnedError: a partition was not assigned; none was paused.
        """
        if epoch == self._epoch:
            for queue in self._owned(partitions):
                queue.paused = True
                self._ready.pop(queue.partition, None)

    @_locked
    def resume(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Hand out records of these again; see ``RecordSource``.

        Raises:
            NotOwnedError: a partition was not assigned; none was resumed.
        """
        if epoch == self._epoch:
            for queue in self._owned(partitions):
                queue.paused = False
                self._refresh(queue)

    def undisturbed(self) -> AbstractContextManager[object]:
        """A block in which no thread is given a batch."""
        return self._lock

    @_locked
    def seek(self, epoch: int, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset; see ``RecordSource``. Another epoch is ignored.

        Raises:
            NotOwnedError: the partition was not assigned.
            UsageError: the offset is negative or not an int; nothing has changed.
        """
        if epoch != self._epoch:
            return
        (queue,) = self._owned((partition,))
        if type(offset) is not int or offset < 0:
            raise UsageError(f"{partition} cannot continue at {offset!r}; nothing has changed")
        queue.position = offset
        queue.start_epoch = queue.fetched_epoch if queue.cut_at(offset) else NO_EPOCH
        self._restart_fetch(queue)
        self._resume_if_possible()

    @_locked
    def put_back(self, epoch: int, batch: Batch) -> None:
        """Take back the last batch of a partition, as if it had not left. Another epoch is ignored.

        It is handed out again when its partition is read: nothing is fetched for that. The caller
        makes sure that there was no seek in the partition since the batch left.

        Raises:
            NotOwnedError: the partition was not assigned.
        """
        if epoch != self._epoch:
            return
        (queue,) = self._owned((batch.partition,))
        if queue.truncated_below(batch.start_offset):
            queue.position = batch.start_offset
            return  # the fault stays, because only who resets the position knows that it was cut
        # It was not the last one, or may not be in the log any more: fetch it again.
        if queue.truncated_below(batch.next_offset) or queue.position != batch.next_offset:
            self.seek(epoch, batch.partition, batch.start_offset)
            return
        size = queue.put_back(batch.messages, batch.start_offset)
        self._limits.count_removed(-len(batch), -size)
        self._refresh(queue)

    # For the fetcher, and for subclasses.

    @_locked
    def deliver(self, items: Iterable[FetchedItem]) -> None:
        """Take fetched items in their order. Called in the event loop's thread."""
        self._take_in(items)
        self._let_another_take()

    @_locked
    def close_queues(self) -> None:
        """End the generation and drop all records; ``assign`` is refused from now on."""
        if self._epoch is not None:
            self.revoke(self._epoch)
        self._closed = True
        self._drop(self._queues.values())
        self._queues = {}

    @_locked
    def _take_in(self, items: Iterable[FetchedItem], *, in_loop: bool = True) -> None:
        for item in items:
            match item:
                case FetchedRun():
                    self._queue_run(item, in_loop=in_loop)
                case PassedTo():
                    self._pass(item)
                case OutOfRange() | Unreadable():
                    self._fail(item)
                case FetchFailure():
                    self._report(item)
                case FetcherBroken():
                    self._broken = item
                    for waiter in self._waiting:
                        waiter.set()
        self._resume_if_possible()

    def _replace_fetcher(self) -> None:
        """Replace a fetcher that broke, and its limits; nothing is being fetched.

        This one keeps both: only a fetcher with a thread of its own can really break.
        """

    def _renew(self, broken: FetcherBroken, epoch: int) -> None:
        # Queued records are dropped: the fetcher may have broken in the middle of a delivery.
        self._drop(self._queues.values())
        self._queues = {}
        self._broken = None
        self._replace_fetcher()
        self._on_fault(
            None,
            f"the record source broke ({broken.reason}); another one takes its place in the"
            f" generation of epoch {epoch}",
        )

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            now = "none" if self._epoch is None else f"epoch {self._epoch}"
            raise StaleGenerationError(
                f"the generation of epoch {epoch} has ended (current: {now});"
                " no more of its records are handed out; continue with the next generation"
            )
        if self._broken is not None:
            raise FetchError(
                f"no more records can be fetched: {self._broken.reason}; the next generation"
                " begins with another record source"
            ) from self._broken.cause

    def _owned(self, partitions: Collection[TopicPartition]) -> list[PartitionQueue]:
        try:
            return [self._queues[partition] for partition in partitions]
        except KeyError:
            missing = [str(partition) for partition in partitions if partition not in self._queues]
            raise NotOwnedError(
                f"not assigned in epoch {self._epoch}: {', '.join(missing)}; nothing has changed"
            ) from None

    def _next_ready(self, partitions: Collection[TopicPartition]) -> PartitionQueue | None:
        """The queue that has something to hand out and has waited longest for its turn, or None."""
        if len(partitions) == 1:
            (only,) = partitions
            return self._ready.get(only)
        if not self._ready:
            return None
        wanted = frozenset(partitions) if isinstance(partitions, list | tuple) else partitions
        for partition, queue in self._ready.items():
            if partition in wanted:
                return queue
        return None

    def _hand_out(self, queue: PartitionQueue, epoch: int, limit: int) -> Batch:
        if not queue.records and queue.fault is not None:
            fault = queue.fault
            if isinstance(fault, Unreadable) and fault.refused:
                queue.fault = None
            self._end_turn(queue)
            raise fault.error()
        start_offset = queue.position
        messages, size = queue.take(limit)
        self._end_turn(queue)
        if queue.held and self._limits.far_below_share(
            queue.records, queue.size, self._fetched_partitions
        ):
            queue.held = False
            self._fetcher.release((queue.partition,))
        self._limits.count_removed(len(messages), size)
        self._resume_if_possible()
        return Batch(
            partition=queue.partition,
            messages=messages,
            next_offset=queue.position,
            start_offset=start_offset,
            epoch=epoch,
            high_watermark=self._high_watermark(queue),
            next_epoch=queue.passed_epoch,
        )

    def _high_watermark(self, queue: PartitionQueue) -> int | None:
        """As last known, but not behind a record that is handed out."""
        known = self._fetcher.high_watermark(queue.partition)
        return None if known is None else max(known, queue.position)

    def _lag_of(self, queue: PartitionQueue) -> int | None:
        known = self._fetcher.high_watermark(queue.partition)
        return None if known is None else max(0, known - queue.next_offset)

    def _end_turn(self, queue: PartitionQueue) -> None:
        """Put a partition that had its turn behind all others that are ready."""
        self._ready.pop(queue.partition, None)
        self._refresh(queue)

    def _without_reader(self, partitions: Collection[TopicPartition]) -> list[PartitionQueue]:
        queues = self._owned(partitions)
        for queue in queues:
            if not queue.opened:
                raise UsageError(f"{queue.partition} is not open; call open() before receive()")
            if queue.waiter is not None:
                raise UsageError(
                    f"another receive() already waits for {queue.partition};"
                    " a partition has one reader"
                )
        return queues

    def _serves(self, read: ThreadRead) -> bool:
        """Whether a thread may be given these records, and may use the fetcher."""
        return (
            read.epoch == self._epoch
            and self._broken is None
            and self._fetcher.serves_threads
            and read.may_read()
        )

    def _can_take(self) -> bool:
        """Whether a reader without records should take: no records of other readers wait.

        If more were taken while some are ready, they would have left the processor's cache before
        their reader gets them. If that one is slow, the fetcher goes on by itself.
        """
        return not self._ready and self._fetcher.has_more

    def _take_in_thread(self) -> bool:
        fetcher = self._fetcher

        def take_in(items: Sequence[FetchedItem]) -> None:
            with self._lock:
                # What a fetcher that was replaced has fetched is counted in limits of its own.
                if fetcher is self._fetcher:
                    self._take_in(items, in_loop=False)

        return fetcher.take_into(take_in, in_loop=False)

    def _begin_wait(self, waiter: Waiter, queues: Sequence[PartitionQueue]) -> None:
        for queue in queues:
            queue.waiter = waiter
        self._waiting[waiter] = None
        self._limits.waiting = len(self._waiting)
        self._resume_if_possible()

    @_locked
    def _end_wait(self, waiter: Waiter, queues: Sequence[PartitionQueue]) -> None:
        del self._waiting[waiter]
        self._limits.waiting = len(self._waiting)
        for queue in queues:
            if queue.waiter is waiter:
                queue.waiter = None

    @_locked
    def _let_another_take(self) -> None:
        """Let a reader that waits take the fetcher's next records, if nothing is ready."""
        if self._waiting and self._can_take():
            next(iter(self._waiting)).set()

    def _refresh(self, queue: PartitionQueue) -> None:
        """Bring ``_ready`` in line with the queue, and wake its reader if it has something."""
        if self._epoch is None or not queue.ready:
            self._ready.pop(queue.partition, None)
            return
        self._ready.setdefault(queue.partition, queue)
        if queue.waiter is not None:
            queue.waiter.set()

    def _new_fetch(self, queue: PartitionQueue) -> FetchStart:
        queue.fetch_id = next(self._fetch_ids)
        queue.held = False
        epoch, queue.start_epoch = queue.start_epoch, NO_EPOCH
        queue.fetched_epoch = epoch
        return FetchStart(queue.fetch_id, queue.position, epoch)

    def _restart_fetch(self, queue: PartitionQueue) -> None:
        """Drop what is queued or under way, and fetch from the position as it is now."""
        self._limits.count_removed(*queue.clear())
        if queue.opened:
            self._fetcher.start({queue.partition: self._new_fetch(queue)})
        elif queue.fetch_id:
            queue.fetch_id = 0
            self._fetcher.stop((queue.partition,))
        self._refresh(queue)

    def _queue_of(
        self, item: FetchedRun | PassedTo | OutOfRange | Unreadable
    ) -> PartitionQueue | None:
        """The queue that an item is for; None if what it was fetched for has ended."""
        queue = self._queues.get(item.partition)
        return None if queue is None or queue.fetch_id != item.fetch_id else queue

    def _queue_run(self, run: FetchedRun, *, in_loop: bool) -> None:
        queue = self._queue_of(run)
        if queue is None:
            self._limits.count_removed(len(run.messages), run.size)
            return
        queue.put(run)
        self._refresh(queue)
        # Other threads cannot read trio's clock. As long as there are reports, they take nothing
        # more, so that the next records come in the loop.
        if in_loop and self._reported_at:
            self._forget_reports(run.partition)

    def _pass(self, item: PassedTo) -> None:
        queue = self._queue_of(item)
        if queue is not None:
            queue.passed_to, queue.passed_epoch = item.offset, item.leader_epoch
            queue.fetched_epoch = item.leader_epoch

    def _fail(self, fault: OutOfRange | Unreadable) -> None:
        queue = self._queue_of(fault)
        if queue is None:
            return
        if isinstance(fault, OutOfRange) and fault.divergent_offset is not None:
            if queue.position <= fault.divergent_offset:
                queue.start_epoch = queue.fetched_epoch
                self._restart_fetch(queue)
                return
            self._limits.count_removed(*queue.clear())
            fault = attrs.evolve(fault, offset=queue.position)
        queue.fault = fault
        if not (isinstance(fault, Unreadable) and fault.refused):
            queue.fetch_id, queue.held = 0, False
            self._fetcher.stop((fault.partition,))
        self._refresh(queue)

    def _report(self, failure: FetchFailure) -> None:
        key = (failure.partition, failure.kind)
        if key not in self._reported_at:
            self._reported_at[key] = trio.current_time()
            self._on_fault(failure.partition, failure.reason)

    def _forget_reports(self, partition: TopicPartition) -> None:
        """Let faults of this partition and of the connection be reported again: it is being read.

        A fault is forgotten no sooner than ``FAULT_REPEAT_INTERVAL`` after its report, because
        records of other brokers prove nothing about the broker that is unavailable.
        """
        old = trio.current_time() - FAULT_REPEAT_INTERVAL
        for key, reported_at in list(self._reported_at.items()):
            if key[0] in (None, partition) and reported_at <= old:
                del self._reported_at[key]

    def _drop(self, queues: Iterable[PartitionQueue]) -> None:
        stopped = []
        for queue in queues:
            self._limits.count_removed(*queue.clear())
            if queue.fetch_id:
                stopped.append(queue.partition)
                queue.fetch_id, queue.held = 0, False
        if stopped:
            self._fetcher.stop(stopped)

    def _resume_if_possible(self) -> None:
        """Let a stopped fetcher continue if there is room, or if a reader would get nothing."""
        if not self._limits.stopped or self._epoch is None:
            return
        if self._limits.is_low():
            self._fetcher.resume_fetching()
        elif self._starves():
            if self._limits.is_full():
                self._hold_over_share()
            self._fetcher.resume_fetching()

    def _starves(self) -> bool:
        """Whether a reader waits, and neither its queues have records nor does a delivery.

        A delivery that is on its way may be for that reader; that is checked after it.
        """
        served = {queue.waiter for queue in self._ready.values()}
        if all(waiter in served for waiter in self._waiting):
            return False
        return self._limits.records <= sum(queue.records for queue in self._queues.values())

    def _hold_over_share(self) -> None:
        fetched = [queue for queue in self._queues.values() if queue.fetch_id]
        self._fetched_partitions = max(1, len(fetched))
        over_share = [
            queue
            for queue in fetched
            if not queue.held
            and self._limits.over_share(queue.records, queue.size, self._fetched_partitions)
        ]
        for queue in over_share:
            queue.held = True
        if over_share:
            self._fetcher.hold([queue.partition for queue in over_share])


class _InsideSource:
    """Marks a thread that may hold the lock of a source, for which the event loop may wait."""

    def __enter__(self) -> None:
        threads_with_locks.append(get_ident())

    def __exit__(self, *details: object) -> None:
        threads_with_locks.remove(get_ident())


inside_source: Final = _InsideSource()
