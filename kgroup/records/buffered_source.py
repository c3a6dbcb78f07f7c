"""What every ``RecordSource`` of kgroup shares: epochs, positions, pausing, fairness, waiting.

``BufferedSource`` keeps one queue for each partition of the generation, gives out of them, and
tells a fetcher what to fetch. Where records come from is the fetcher's affair; both sources
behave the same because all of it is decided here, in the event loop's thread.

INVARIANTS
    Records are handed out in the order of their offsets, each once, unless ``seek`` or a start
    position goes back.
    Nothing leaves after ``revoke``; records leave only as ``receive`` returns.
    A record under an old fetch_id is dropped, and counted as gone, wherever it turns up.
    Waking costs one step for each partition that got something, however many tasks wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import Final

import trio

from kgroup.errors import FetchError, NotOwnedError, StaleGenerationError, UsageError
from kgroup.interfaces import Batch
from kgroup.records.buffer import BufferLimits, PartitionQueue
from kgroup.records.fetcher import (
    FetchedItem,
    FetchedRun,
    Fetcher,
    FetcherBroken,
    FetchFailure,
    FetchStart,
    OutOfRange,
    Unreadable,
)
from kgroup.types import TopicPartition, partition_fault

FAULT_REPEAT_INTERVAL: Final = 60.0
"""Seconds for which a fault is not told again, even if reading went on meanwhile."""
OnFault = Callable[[TopicPartition | None, str], None]
"""Is told, in the event loop's thread, of a fault that is waited out: whose, and in words."""


class BufferedSource:
    """The part of a ``RecordSource`` between its fetcher and ``receive``.

    Args:
        fetcher: what is told to fetch.
        limits: what it counts in.
        on_fault: is told of faults that are waited out, each once until reading has gone on.
    """

    def __init__(self, fetcher: Fetcher, limits: BufferLimits, on_fault: OnFault) -> None:
        self._fetcher = fetcher
        self._limits = limits
        self._on_fault = on_fault
        self._epoch: int | None = None
        self._latest_epoch: int | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready: dict[TopicPartition, PartitionQueue] = {}
        self._fetched_partitions = 1
        self._waiting: dict[trio.Event, None] = {}
        self._fetch_ids = count(1)
        self._reported_at: dict[tuple[TopicPartition | None, str], float] = {}
        self._broken: FetcherBroken | None = None
        self._closed = False

    def __repr__(self) -> str:
        epoch = "closed" if self._closed else f"epoch {self._epoch}"
        return f"<{type(self).__name__} {epoch}: {len(self._queues)} partitions, {self._limits!r}>"

    # The generation.

    def assign(self, epoch: int, positions: Mapping[TopicPartition, int]) -> None:
        """Begin a generation; see ``RecordSource``.

        Records of a kept partition stay if a reader at the given offset would go on with
        exactly them; markers of transactions and compacted records between make no difference.
        If the fetcher broke, another one takes its place, which is reported as a fault.

        Raises:
            UsageError: the epoch is not past the one before, a position is no int or negative,
                or the source is closed; nothing has changed.
        """
        if self._closed:
            raise UsageError(f"this record source is closed; epoch {epoch} cannot be assigned")
        if self._latest_epoch is not None and epoch <= self._latest_epoch:
            raise UsageError(
                f"epochs rise: {epoch} was assigned after {self._latest_epoch}; nothing has changed"
            )
        for partition, offset in positions.items():
            # What was assigned has been checked; librdkafka ends the process on some of the rest.
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
            if queue is None or not queue.continues_at(offset):
                queue = PartitionQueue(partition, offset)
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

    def revoke(self, epoch: int) -> None:
        """End a generation; see ``RecordSource``. One that is not current: nothing."""
        if epoch != self._epoch:
            return
        self._epoch = None
        self._ready.clear()
        self._fetcher.deactivate()
        for event in self._waiting:
            event.set()

    def open(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Begin to fetch these partitions; see ``RecordSource``.

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

    # What a reader does.

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """Wait for the next batch of any of these opened partitions; see ``RecordSource``.

        What was fetched before a fault is handed out first. Then every call that names the
        partition raises it, in turn with the other partitions' records, until ``seek``.

        Raises:
            OffsetOutOfRangeError: a position is outside of its log.
            FetchError: a partition, or the source, cannot be read.
            StaleGenerationError: the epoch is not the current one, or ended meanwhile.
            NotOwnedError: a partition was not assigned.
            UsageError: a partition is not open, another ``receive`` waits for it already, or
                ``limit`` is not positive.

        Cancellation: nothing has left the source.
        """
        if type(limit) is not int or limit < 1:
            raise UsageError(f"limit={limit!r}: a batch has at least one record")
        await trio.lowlevel.checkpoint()
        while True:
            self._check(epoch)
            queue = self._next_ready(partitions)
            if queue is not None:
                return self._hand_out(queue, epoch, limit)
            await self._wait(partitions)

    def pause(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these until ``resume``; see ``RecordSource``.

        Raises:
            NotOwnedError: a partition was not assigned; none was paused.
        """
        self._switch(epoch, partitions, paused=True)

    def resume(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Hand out records of these again; see ``RecordSource``.

        Raises:
            NotOwnedError: a partition was not assigned; none was resumed.
        """
        self._switch(epoch, partitions, paused=False)

    def seek(self, epoch: int, partition: TopicPartition, offset: int) -> None:
        """Go on at this offset; see ``RecordSource``. Of another epoch: nothing.

        Raises:
            NotOwnedError: the partition was not assigned.
            UsageError: the offset is no int or negative; nothing has changed.
        """
        if epoch != self._epoch:
            return
        (queue,) = self._owned((partition,))
        if type(offset) is not int or offset < 0:
            raise UsageError(f"{partition} cannot go on at {offset!r}; nothing has changed")
        self._limits.count_removed(*queue.clear())
        queue.position = offset
        if queue.opened:
            self._fetcher.start({partition: self._new_fetch(queue)})
        elif queue.fetch_id:
            queue.fetch_id = 0
            self._fetcher.stop((partition,))
        self._refresh(queue)
        self._resume_if_possible()

    # What a fetcher does.

    def deliver(self, items: Iterable[FetchedItem]) -> None:
        """Take what was fetched, in the order in which it was. In the event loop's thread."""
        for item in items:
            match item:
                case FetchedRun():
                    self._queue_run(item)
                case OutOfRange() | Unreadable():
                    self._fail(item)
                case FetchFailure():
                    self._report(item)
                case FetcherBroken():
                    self._broken = item
                    for event in self._waiting:
                        event.set()
        self._resume_if_possible()

    def close_queues(self) -> None:
        """End the generation and drop everything; nothing can be assigned any more."""
        if self._epoch is not None:
            self.revoke(self._epoch)
        self._closed = True
        self._drop(self._queues.values())
        self._queues = {}

    # Within.

    def _replace_fetcher(self) -> None:
        """Put another fetcher and limits in the place of the ones that broke; nothing is fetched.

        One that tests break, and that has no thread that could have died, goes on as it is.
        """

    def _renew(self, broken: FetcherBroken, epoch: int) -> None:
        # What was fetched is dropped: the fetcher may have broken in the middle of a hand-over.
        self._drop(self._queues.values())
        self._queues = {}
        self._broken = None
        self._replace_fetcher()
        self._on_fault(
            None,
            f"the record source broke ({broken.reason}); another one takes its place with the"
            f" generation of epoch {epoch}",
        )

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            now = "none" if self._epoch is None else f"epoch {self._epoch}"
            raise StaleGenerationError(
                f"the generation of epoch {epoch} has ended (current: {now});"
                " no further record of it is handed out"
            )
        if self._broken is not None:
            raise FetchError(
                f"records cannot be fetched any more: {self._broken.reason}; the next generation"
                " begins with another source"
            ) from self._broken.cause

    def _owned(self, partitions: Collection[TopicPartition]) -> list[PartitionQueue]:
        missing = [partition for partition in partitions if partition not in self._queues]
        if missing:
            raise NotOwnedError(
                f"not assigned in epoch {self._epoch}: {', '.join(map(str, missing))};"
                " nothing has changed"
            )
        return [self._queues[partition] for partition in partitions]

    def _next_ready(self, partitions: Collection[TopicPartition]) -> PartitionQueue | None:
        """One that can be handed out, and that has waited longest for its turn."""
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
            self._end_turn(queue)
            raise queue.fault.error()
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
            epoch=epoch,
        )

    def _end_turn(self, queue: PartitionQueue) -> None:
        """The partition had its turn: it goes behind all others that are ready."""
        self._ready.pop(queue.partition, None)
        self._refresh(queue)

    async def _wait(self, partitions: Collection[TopicPartition]) -> None:
        queues = self._owned(partitions)
        for queue in queues:
            if not queue.opened:
                raise UsageError(f"{queue.partition} is not open; open() comes before receive()")
            if queue.waiter is not None:
                raise UsageError(
                    f"{queue.partition} is waited for by another receive() already;"
                    " a partition has one reader"
                )
        event = trio.Event()
        for queue in queues:
            queue.waiter = event
        self._waiting[event] = None
        self._resume_if_possible()
        try:
            await event.wait()
        finally:
            del self._waiting[event]
            for queue in queues:
                queue.waiter = None

    def _switch(self, epoch: int, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        if epoch != self._epoch:
            return
        for queue in self._owned(partitions):
            queue.paused = paused
            self._refresh(queue)

    def _refresh(self, queue: PartitionQueue) -> None:
        """Keep ``_ready`` true to the queue, and wake its reader if there is something."""
        if self._epoch is None or not queue.ready:
            self._ready.pop(queue.partition, None)
            return
        self._ready.setdefault(queue.partition, queue)
        if queue.waiter is not None:
            queue.waiter.set()

    def _new_fetch(self, queue: PartitionQueue) -> FetchStart:
        queue.fetch_id = next(self._fetch_ids)
        queue.held = False
        return FetchStart(queue.fetch_id, queue.position)

    def _queue_run(self, run: FetchedRun) -> None:
        queue = self._queues.get(run.partition)
        if queue is None or queue.fetch_id != run.fetch_id:
            self._limits.count_removed(len(run.messages), run.size)
            return
        queue.put(run)
        self._refresh(queue)
        if self._reported_at:
            self._forget_reports(run.partition)

    def _fail(self, fault: OutOfRange | Unreadable) -> None:
        queue = self._queues.get(fault.partition)
        if queue is not None and queue.fetch_id == fault.fetch_id:
            queue.fetch_id = 0
            queue.fault = fault
            self._fetcher.stop((fault.partition,))
            self._refresh(queue)

    def _report(self, trouble: FetchFailure) -> None:
        key = (trouble.partition, trouble.kind)
        if key not in self._reported_at:
            self._reported_at[key] = trio.current_time()
            self._on_fault(trouble.partition, trouble.reason)

    def _forget_reports(self, reader: TopicPartition) -> None:
        """Let faults of this partition and of the connection be reported again: it is being read.

        A fault is forgotten no sooner than ``FAULT_REPEAT_INTERVAL`` after its report, because
        records of other brokers prove nothing about the broker that is unavailable.
        """
        old = trio.current_time() - FAULT_REPEAT_INTERVAL
        for key, told in list(self._reported_at.items()):
            if key[0] in (None, reader) and told <= old:
                del self._reported_at[key]

    def _drop(self, queues: Iterable[PartitionQueue]) -> None:
        stopped = []
        for queue in queues:
            self._limits.count_removed(*queue.clear())
            if queue.fetch_id:
                stopped.append(queue.partition)
                queue.fetch_id = 0
        if stopped:
            self._fetcher.stop(stopped)

    def _resume_if_possible(self) -> None:
        """Let a stopped fetcher go on if there is room again, or somebody starves."""
        if not self._limits.stopped or self._epoch is None:
            return
        if self._limits.is_low():
            self._fetcher.resume_fetching()
        elif self._waiting:
            if self._limits.is_full():
                self._hold_over_share()
            self._fetcher.resume_fetching()

    def _hold_over_share(self) -> None:
        fetched = [queue for queue in self._queues.values() if queue.fetch_id]
        self._fetched_partitions = max(1, len(fetched))
        greedy = [
            queue
            for queue in fetched
            if not queue.held
            and self._limits.over_share(queue.records, queue.size, self._fetched_partitions)
        ]
        for queue in greedy:
            queue.held = True
        if greedy:
            self._fetcher.hold([queue.partition for queue in greedy])
