"""The log of one partition: record batches as bytes, in memory, by offset.

It assigns offsets, checks idempotent producers, keeps track of transactions (the last stable
offset, aborted ones), searches by time and deletes from the front. Batches are not decoded when
they are appended or fetched. Handlers decide whether a client may write, and wait for a Fetch.

INVARIANTS: batches are sorted and without gaps between ``start_offset``'s and ``end_offset``;
a batch's bytes never change once stored; only ``wait_beyond`` waits, and the searches by time yield
to other tasks.

Source: Kafka's ``UnifiedLog``, ``TransactionIndex``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, final

import attrs
import trio

from kgroup.broker import batches
from kgroup.broker.batches import BatchHeader
from kgroup.broker.leader_epochs import LeaderEpochs
from kgroup.broker.producer_state import ProducerState, ProducerSummary
from kgroup.broker.records import (
    RecordRules,
    UnreadableBatchError,
    records_in_steps,
    records_of,
)
from kgroup.broker.request_error import RequestError
from kgroup.broker.time_slices import Work
from kgroup.error_codes import ErrorCode
from kgroup.records.memory import StoredRecord
from kgroup.types import INT64_MAX, INT64_MIN


@final
@attrs.frozen
class StoredBatch:
    """A batch in a log.

    Attributes:
        header: its header.
        last_offset: its last offset there.
        data: its bytes.
        position: how many bytes were written to the log before it.
        newest: the greatest timestamp of it and of those before it.
    """

    header: BatchHeader
    last_offset: int
    data: bytes = attrs.field(repr=False)
    position: int
    newest: int


@final
@attrs.frozen
class AbortedTransaction:
    """An aborted transaction, which read_committed skips, from its first to its last offset."""

    producer_id: int
    first_offset: int
    last_offset: int


@final
@attrs.frozen
class ActiveProducer:
    """A producer that has written here; ``transaction_start`` is -1 outside of a transaction."""

    summary: ProducerSummary
    transaction_start: int


@final
@attrs.frozen
class AppendResult:
    """The result of an append.

    Attributes:
        base_offset: of the batch.
        timestamp: the broker's time if the log sets it; of a repeated batch its largest one, as in
            Kafka's ``UnifiedLog``; else -1.
        duplicate: whether the batch was there already.
    """

    base_offset: int
    timestamp: int
    duplicate: bool = False


@final
@attrs.frozen(kw_only=True)
class Slice:
    """The result of a read: whole batches, and the offsets of the log at that time."""

    data: Sequence[bytes]
    size: int
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None


@final
@attrs.frozen
class LogSettings:
    """The settings of one topic's logs.

    Attributes:
        max_message_bytes: the largest batch that is accepted.
        append_time: whether records get the broker's time.
        retention_bytes: the size past which the oldest batches are deleted, or None.
        needs_keys: whether a record without a key is refused, because the topic is compacted.
        deletes: whether records may be deleted; not those of a topic that is only compacted.
        timestamp_before_max: how far behind the broker's time a timestamp may be, in milliseconds.
        timestamp_after_max: how far ahead of it.
    """

    max_message_bytes: int = 1_048_588
    append_time: bool = False
    retention_bytes: int | None = None
    needs_keys: bool = False
    deletes: bool = True
    timestamp_before_max: int = INT64_MAX
    timestamp_after_max: int = 3_600_000


@final
class PartitionLog:
    """One partition's records. Not for use by threads.

    Attributes:
        epochs: its leader epochs.
    """

    def __init__(self, settings: LogSettings) -> None:
        self.epochs: Final = LeaderEpochs()
        self._settings = settings
        self._batches: list[StoredBatch] = []
        self._size = 0
        self._start = 0
        self._end = 0
        self._producer_state = ProducerState()
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []
        """In the order in which they ended."""
        self._stable_after: list[int] = []
        """For each of these, the last stable offset when it had ended: none that ended later begins
        before that."""
        self._watchers: dict[trio.Event, None] = {}

    def __repr__(self) -> str:
        return f"<PartitionLog {self._start}..{self._end}, {self._size} bytes>"

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The offset that the next record will have; also the high watermark."""
        return self._end

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction that is still open, or the end.

        If the start has moved into such a transaction, it is the base offset of the start's batch,
        as in Kafka: whole batches are read, and this one may be the transaction's.
        """
        first = min(self._open.values(), default=self._end)
        if first >= self._start:
            return first
        containing = self._index(self._start)
        if containing == len(self._batches):
            return self._start
        return self._batches[containing].header.base_offset

    @property
    def size(self) -> int:
        """The bytes of its batches."""
        return self._size

    def limit(self, *, committed: bool) -> int:
        """The offset up to which records are visible."""
        return self.last_stable_offset if committed else self._end

    # Writing.

    def append(self, data: bytes, header: BatchHeader, now: int) -> AppendResult:
        """Store a producer's batch.

        Args:
            data: one record batch.
            header: its header, from ``batches.check``.
            now: milliseconds since 1970.

        Raises:
            RequestError: MESSAGE_TOO_LARGE; the errors of ``ProducerState.duplicate``;
                INVALID_TXN_STATE for a batch without a transaction while its producer has one open
                here.
        """
        self.check_size(len(data))
        stamps = self._settings.append_time
        if header.producer_id >= 0 and header.base_sequence >= 0:
            written = self._producer_state.duplicate(header)
            if written is not None:
                return AppendResult(written.base_offset, written.timestamp, duplicate=True)
            self._refuse_plain(header)
            largest = now if stamps else header.max_timestamp
            self._producer_state.written(header, self._end, largest)
        base = self._end
        self._store(batches.stamped(data, now) if stamps else data)
        if header.is_transactional:
            self._open.setdefault(header.producer_id, base)
        self._retain()
        self._wake()
        return AppendResult(base, now if stamps else batches.NO_TIMESTAMP)

    def _refuse_plain(self, header: BatchHeader) -> None:
        if header.producer_id in self._open and not header.is_transactional:
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction here, but the batch is in"
                " none",
            )

    def refused_outside(self, header: BatchHeader) -> None:
        """Note a batch that was refused because it is outside of a transaction."""
        self._producer_state.refused_outside(header)

    def check_size(self, size: int) -> None:
        """Check that a batch of so many bytes may be stored.

        Raises:
            RequestError: MESSAGE_TOO_LARGE.
        """
        if size > self._settings.max_message_bytes:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {size} bytes, more than {self._settings.max_message_bytes}",
            )

    def record_rules(self, now: int) -> RecordRules:
        """What is required of each record of a producer, at this time (milliseconds since 1970)."""
        own = self._settings
        if own.append_time:
            return RecordRules(needs_keys=own.needs_keys)
        return RecordRules(
            needs_keys=own.needs_keys,
            oldest=max(now - own.timestamp_before_max, INT64_MIN),
            newest=now + own.timestamp_after_max,
        )

    def configure(self, settings: LogSettings) -> None:
        """Use other settings from the next batch on."""
        self._settings = settings

    def end_transaction(
        self, producer_id: int, epoch: int, data: bytes, *, committed: bool
    ) -> None:
        """Write the marker that ends a producer's transaction here.

        Args:
            producer_id: the producer's.
            epoch: from now on the lowest that is accepted.
            data: from ``records.marker``.
            committed: whether the transaction's records become visible.
        """
        written_at = batches.header_of(data).max_timestamp
        self._producer_state.transaction_ended(producer_id, epoch, written_at)
        self._store(data)
        first = self._open.pop(producer_id, None)
        if first is not None and not committed:
            self._aborted.append(AbortedTransaction(producer_id, first, self._end - 1))
            self._stable_after.append(min(self._open.values(), default=self._end))
        self._wake()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has written here in an open transaction of this epoch."""
        return producer_id in self._open and self._producer_state.epoch_of(producer_id) == epoch

    @property
    def producer_count(self) -> int:
        """How many idempotent producers have written here."""
        return self._producer_state.count

    def producers(self) -> Iterator[ActiveProducer]:
        """The idempotent producers that have written here, in the order of their first batch.

        The log may change while the iterator is used.
        """
        for summary in self._producer_state.producers():
            yield ActiveProducer(summary, self._open.get(summary.producer_id, -1))

    def delete_before(self, offset: int) -> int:
        """Move the start to an offset, -1 for the end, and return the new start.

        Raises:
            RequestError: POLICY_VIOLATION if the topic is only compacted;
                OFFSET_OUT_OF_RANGE for an offset past the end, or below -1.
        """
        if not self._settings.deletes:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                "the topic is only compacted: cleanup.policy does not include delete",
            )
        if offset == -1:
            offset = self._end
        if not 0 <= offset <= self._end:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in 0..{self._end}"
            )
        self._start = max(self._start, offset)
        self._drop_front()
        return self._start

    def _store(self, data: bytes) -> None:
        data = batches.placed(data, self._end, self.epochs.latest)
        header = batches.header_of(data)
        newest = header.max_timestamp
        if self._batches:
            newest = max(newest, self._batches[-1].newest)
        stored = StoredBatch(header, header.last_offset, data, self._position(), newest)
        self._batches.append(stored)
        self._size += len(data)
        self._end = header.last_offset + 1

    def _retain(self) -> None:
        most = self._settings.retention_bytes
        if most is None or self._size <= most:
            return
        excess, following = self._size - most, 0
        while len(self._batches[following].data) <= excess and following < len(self._batches) - 1:
            excess -= len(self._batches[following].data)
            following += 1
        self._start = max(self._start, self._batches[following].header.base_offset)
        self._drop_front()

    def _drop_front(self) -> None:
        gone = self._index(self._start)
        self._size -= sum(len(batch.data) for batch in self._batches[:gone])
        del self._batches[:gone]
        ended = self._ended_before(self._start)
        del self._aborted[:ended], self._stable_after[:ended]

    # Reading.

    def check_offset(self, offset: int) -> None:
        """Check that an offset is in the log, its end included.

        Raises:
            RequestError: OFFSET_OUT_OF_RANGE.
        """
        if not self._start <= offset <= self._end:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self._start}..{self._end}",
            )

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> Slice:
        """Read whole batches, from the one that contains ``offset`` on.

        Args:
            offset: where to begin.
            max_bytes: the most bytes to return.
            committed: return nothing past the last stable offset, and list aborted transactions.
            at_least_one: return the first batch even if it has more than ``max_bytes``.

        Raises:
            RequestError: OFFSET_OUT_OF_RANGE.
        """
        self.check_offset(offset)
        limit = self.limit(committed=committed)
        data: list[bytes] = []
        size, upper = 0, offset
        for position in range(self._index(offset), len(self._batches)):
            batch = self._batches[position]
            if batch.header.base_offset >= limit:
                break
            if size + len(batch.data) > max_bytes and (data or not at_least_one):
                break
            data.append(batch.data)
            size += len(batch.data)
            upper = batch.last_offset + 1
        return Slice(
            data=data,
            size=size,
            high_watermark=self._end,
            last_stable_offset=self.last_stable_offset,
            start_offset=self._start,
            aborted=self._aborted_within(offset, upper) if committed else None,
        )

    def available(self, offset: int, enough: int, *, committed: bool) -> int:
        """How many bytes can be read from an offset on; counts no further than ``enough``."""
        limit, base_offset = self.limit(committed=committed), attrgetter("header.base_offset")
        first, end = self._index(offset), bisect_left(self._batches, limit, key=base_offset)
        return max(0, min(self._position(end) - self._position(first), enough))

    def records(
        self, offset: int, max_records: int, *, committed: bool
    ) -> tuple[list[StoredRecord], int]:
        """Decoded records from an offset on, and the offset to continue at.

        Control batches are skipped, and with ``committed`` aborted records too, so that the
        next offset can be past the last record's.

        Raises:
            RequestError: OFFSET_OUT_OF_RANGE.
            UnreadableBatchError: a batch cannot be decoded.
        """
        self.check_offset(offset)
        limit, following = self.limit(committed=committed), offset
        found: list[StoredRecord] = []
        for position in range(self._index(offset), len(self._batches)):
            batch = self._batches[position]
            if batch.header.base_offset >= limit:
                break
            if not batch.header.is_control and not (committed and self._is_aborted(batch)):
                for record in records_of(batch.data, batch.header):
                    if record.offset < offset:
                        continue
                    if len(found) == max_records:
                        return found, following
                    found.append(record)
                    following = record.offset + 1
            following = batch.last_offset + 1
        return found, following

    async def offset_for_time(self, timestamp: int, work: Work) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not older, or None.

        If a batch cannot be read, its first offset is taken for the record.

        Args:
            timestamp: milliseconds since 1970.
            work: counts the records and batches that are searched; there can be many of both.
        """
        first = bisect_left(self._batches, timestamp, key=attrgetter("newest"))
        async for batch in work.each(tuple(self._batches[first:])):
            if batch.header.max_timestamp < timestamp or batch.last_offset < self._start:
                continue
            try:
                async for record in work.each(records_in_steps(batch.data, batch.header)):
                    if record is None:
                        continue
                    if record.timestamp >= timestamp and record.offset >= self._start:
                        return record.offset, record.timestamp
            except UnreadableBatchError:
                return max(batch.header.base_offset, self._start), batch.header.max_timestamp
        return None

    async def offset_of_max_time(self, work: Work) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the greatest timestamp, or None."""
        newest = None
        async for batch in work.each(tuple(self._batches)):
            if newest is None or batch.header.max_timestamp > newest:
                newest = batch.header.max_timestamp
        return None if newest is None else await self.offset_for_time(newest, work)

    def _position(self, index: int | None = None) -> int:
        """How many bytes were written before the batch with this index; by default, at all."""
        if index is not None and index < len(self._batches):
            return self._batches[index].position
        return self._batches[-1].position + len(self._batches[-1].data) if self._batches else 0

    def _index(self, offset: int) -> int:
        return bisect_left(self._batches, offset, key=attrgetter("last_offset"))

    def _ended_before(self, offset: int) -> int:
        """How many aborted transactions ended before an offset."""
        return bisect_left(self._aborted, offset, key=attrgetter("last_offset"))

    def _aborted_within(self, start: int, upper: int) -> tuple[AbortedTransaction, ...]:
        found = []
        for at in range(self._ended_before(start), len(self._aborted)):
            if self._aborted[at].first_offset < upper:
                found.append(self._aborted[at])
            if self._stable_after[at] >= upper:
                break
        return tuple(found)

    def _is_aborted(self, batch: StoredBatch) -> bool:
        base = batch.header.base_offset
        return batch.header.is_transactional and any(
            txn.producer_id == batch.header.producer_id
            for txn in self._aborted_within(base, base + 1)
        )

    # Waiting.

    def leader_changed(self, epoch: int) -> None:
        """Begin the epoch of another leader, or of none, and wake all tasks that wait here."""
        self.epochs.begin(epoch, self._end)
        self._producer_state.forget_outside()  # only the old leader knew of them
        self._wake()

    def watch(self, event: trio.Event) -> None:
        """Set an event at the next change of the log, or at ``close``."""
        self._watchers[event] = None

    def unwatch(self, event: trio.Event) -> None:
        """Do not set an event any more."""
        self._watchers.pop(event, None)

    def close(self) -> None:
        """Wake all tasks that wait here: the partition has been deleted."""
        self._wake()

    async def wait_beyond(self, offset: int, *, committed: bool) -> None:
        """Wait until a record at ``offset`` can be read, or the log changes in another way.

        Cancellation: nothing is left behind.
        """
        # No checkpoint before `watch`: a log that is deleted meanwhile never changes again.
        if self.limit(committed=committed) > offset or self._start > offset:
            await trio.lowlevel.checkpoint()
            return
        changed = trio.Event()
        self.watch(changed)
        try:
            await changed.wait()
        finally:
            self.unwatch(changed)

    def _wake(self) -> None:
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for event in watchers:
                event.set()
