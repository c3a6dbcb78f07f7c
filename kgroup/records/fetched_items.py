"""``ItemConverter``: makes the items that a Consumer's thread delivers from librdkafka's messages.

Items are runs of records of one partition, faults, and how far a partition has been read beyond its
last record (``kgroup.records.fetcher``). Each message and each error is compared with the fetch of
its partition: the converter keeps up to date how far each fetch is.

INVARIANT: only who holds the lock of the ``ConsumerThread`` uses it, because it calls the Consumer.

**What librdkafka does that one would not expect.**

- confluent-kafka has no queue for each partition: one ``consume`` returns messages of all of them,
  and ``kgroup.records.librdkafka_messages`` splits these into runs.
- It does not check that offsets rise, and a batch with a right CRC may be malformed: records came
  twice, or out of order, and then none. INVARIANT: what is delivered is at or past the fetch's
  next offset. ``_runs`` compares the first and the last offset of a run with that and with the
  number of records, since a look at each would cost too much; if they do not fit, what follows the
  first record that came too late is unreadable.
- It numbers the fetches of a partition and drops messages of an outdated one by itself. The error
  "out of range", however, has no such number: it may belong to an earlier fetch, or to a moment
  long past. ``_out_of_range`` therefore fetches once more from the wanted offset, and believes the
  second such error.
- It finds out that a log was truncated when the leader changes, and only if it knows the leader
  epoch of the record before its position: by the records of the fetch, or because the fetch began
  with it. If the leader had changed before the fetch began, it does not compare the log by itself.
  So if what comes first has a later epoch or cannot be read, or the offset is out of range, the
  fetch begins again with a comparison (``ConsumerFetches.begin_again``).
- INVARIANT: an error is verified only by a request that can fail in the same way. Not every fetch
  compares, so that a log was truncated is believed at once. What librdkafka names with it shows
  whether it belongs to an earlier fetch.
- Errors arrive as messages, but some only in the error callback, with the partition named in the
  text.
- Its own position is past what was handed out, so no fetch starts there: the source says where each
  one does. The position only says how far the markers of transactions reach that follow what has
  arrived, since they are no messages. It is not known from each ``assign`` to what arrives next.

Source: confluent-kafka 2.16's ``Consumer.c``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import randrange
from typing import Final, cast, final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kgroup.interfaces import Message
from kgroup.records.consumer_fetches import ConsumerFetches, PartitionFetch, to_confluent
from kgroup.records.fetcher import (
    NO_EPOCH,
    FetchedItem,
    FetchedRun,
    FetcherBroken,
    FetchFailure,
    OutOfRange,
    PassedTo,
    Unreadable,
)
from kgroup.records.librdkafka_messages import (
    ErrorAction,
    action_for,
    count_rising,
    describe_error,
    has_errors,
    partition_in_text,
    runs,
    truncation_in,
)
from kgroup.types import TopicPartition

MEASURED: Final = 100
"""Of a run of more messages, about so many are measured to estimate its bytes."""
WATERMARKS: Final = 1.0
"""Seconds between two readings of all high watermarks from librdkafka's memory. A partition of
which records arrive is read with each of its runs, too."""
WATERMARKS_PER_SECOND: Final = 1000
"""The most partitions that are read in a second: one costs a few microseconds."""
NEAR_END: Final = 1000
"""With each run that ends at most so many offsets before the high watermark, the position is read.
In a backlog that is not worth its cost: the next batch passes what lies before it."""
STANDSTILL: Final = 30
"""So many readings in a row with nothing to read, although the log goes on, are reported."""


@final
class ItemConverter:
    """Makes items from a Consumer's messages and errors.

    Args:
        fetches: the Consumer's fetches.
        post: lets the thread run a command.
        committed_only: whether records of open transactions are withheld.
    """

    def __init__(
        self,
        fetches: ConsumerFetches,
        post: Callable[[Callable[[], None]], None],
        *,
        committed_only: bool,
    ) -> None:
        self._fetches = fetches
        self._post = post
        self._committed_only = committed_only
        self._watermarks_due = 0.0
        self._callback_errors: dict[tuple[int, TopicPartition | None], KafkaError] = {}
        """The last error of each code and partition that no delivery has taken along yet."""

    def add_error(self, error: KafkaError) -> None:
        """Keep an error of librdkafka's callback until the next chunk is converted."""
        self._callback_errors[error.code(), partition_in_text(error)] = error

    def items_of(self, chunk: list[confluent_kafka.Message]) -> list[FetchedItem]:
        """The items of a chunk, and what the error callback has left since the last one."""
        items = self._items(chunk) if chunk else []
        items += self._passed(items)
        # Behind the records that came with them, so that they carry the offset after those.
        errors, self._callback_errors = self._callback_errors, {}
        for (_, partition), error in errors.items():
            fetch = self._fetches.by_partition.get(partition) if partition else None
            if partition is None or fetch is not None:  # else the partition was stopped
                items.append(_item_for_error(error, partition, fetch))
        return items

    def read_watermarks_if_due(self, now: float, *, drained: bool) -> list[FetchedItem]:
        """Read those of all partitions, so that they are known of partitions without records too.

        librdkafka keeps what the last Fetch response said; nothing is requested.

        Args:
            now: the time by the monotonic clock.
            drained: whether the last poll has found nothing in librdkafka's queue.

        Returns:
            how far partitions have been read that have only markers up to there, and a fault of
            each that stands still.
        """
        if now < self._watermarks_due:
            return []
        fetches = self._fetches.by_partition
        for name, fetch in fetches.items():
            self._read_watermark(name, fetch)
        items = self._passed_of([name for name, fetch in fetches.items() if fetch.left > 0])
        if drained:
            items += self._standing_still()
        self._watermarks_due = now + max(WATERMARKS, len(fetches) / WATERMARKS_PER_SECOND)
        return items

    def _items(self, chunk: list[confluent_kafka.Message]) -> list[FetchedItem]:
        if not has_errors(chunk):
            return self._runs(chunk)
        items: list[FetchedItem] = []
        records: list[confluent_kafka.Message] = []
        for message in chunk:
            error = message.error()
            if error is None:
                records.append(message)
                continue
            if records:
                items += self._runs(records)
                records = []
            items += self._fault(message, error)
        if records:
            items += self._runs(records)
        return items

    def _runs(self, chunk: list[confluent_kafka.Message]) -> list[FetchedItem]:
        items: list[FetchedItem] = []
        for start, end in runs(chunk, topics=self._fetches.topics):
            messages = chunk[start:end]
            partition = _partition_of(messages[0])
            fetch = self._fetches.by_partition.get(partition) if partition else None
            if partition is None or fetch is None:
                continue  # the partition was stopped
            if self._must_compare(partition, fetch, _known(messages[0].leader_epoch())):
                continue
            first, last = messages[0].offset() or 0, messages[-1].offset() or 0
            if first < fetch.next_offset or last - first < len(messages) - 1:
                items += self._out_of_order(partition, fetch, messages)
                continue
            fetch.next_offset = last + 1
            fetch.leader_epoch = _known(messages[-1].leader_epoch())
            fetch.verifying = False
            self._read_watermark(partition, fetch)
            # confluent-kafka's stubs allow None where only a message to be produced has None.
            records = cast("Sequence[Message]", messages)
            size, epoch = _size_of(messages), fetch.leader_epoch
            items.append(FetchedRun(partition, fetch.fetch_id, records, size, epoch))
        return items

    def _out_of_order(
        self,
        partition: TopicPartition,
        fetch: PartitionFetch,
        messages: list[confluent_kafka.Message],
    ) -> list[FetchedItem]:
        """The records up to the first one that is not past all before it, and a fault."""
        sound = count_rising(messages, fetch.next_offset)
        items = self._runs(messages[:sound])
        reason = (
            f"a record with offset {messages[sound].offset()} came where {fetch.next_offset} was"
            " next; a batch of the log is malformed"
        )
        return [*items, Unreadable(partition, fetch.fetch_id, fetch.next_offset, reason)]

    # How far a partition was read beyond its last record.

    def _passed(self, items: Sequence[FetchedItem]) -> list[FetchedItem]:
        """How far partitions of which these are the last records have been read beyond them."""
        fetches = self._fetches.by_partition
        read = {
            item.partition
            for item in items
            if isinstance(item, FetchedRun) and 0 < fetches[item.partition].left <= NEAR_END
        }
        failed = {item.partition for item in items if isinstance(item, OutOfRange | Unreadable)}
        return self._passed_of(read - failed)

    def _passed_of(self, partitions: Collection[TopicPartition]) -> list[FetchedItem]:
        passed: list[FetchedItem] = []
        for name, (offset, epoch) in self._positions(partitions).items():
            fetch = self._fetches.by_partition[name]
            if offset > fetch.next_offset and not self._must_compare(name, fetch, epoch):
                fetch.next_offset, fetch.leader_epoch = offset, epoch
                passed.append(PassedTo(name, fetch.fetch_id, offset, epoch))
        return passed

    def _positions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The offsets after what librdkafka has returned of these, and after markers behind it.

        Each has the leader epoch of what is before it.
        """
        if not partitions:
            return {}
        try:
            found = self._fetches.consumer.position([to_confluent(name) for name in partitions])
        except KafkaException:
            return {}  # as with watermarks
        return {
            TopicPartition(one.topic, one.partition): (one.offset, _known(one.leader_epoch))
            for one in found
        }

    def _read_watermark(self, partition: TopicPartition, fetch: PartitionFetch) -> None:
        try:
            _, high = self._fetches.consumer.get_watermark_offsets(
                to_confluent(partition), cached=True
            )
        except KafkaException:
            return  # reading must not end for want of a number that is only reported
        if high >= 0:  # negative before the first Fetch response
            fetch.high_watermark = high

    def _must_compare(self, partition: TopicPartition, fetch: PartitionFetch, epoch: int) -> bool:
        """Whether the log has to be compared first, because the next thing in it has this epoch."""
        if not fetch.compared:
            fetch.compared = True
            if NO_EPOCH < fetch.leader_epoch < epoch:
                self._compare(partition, fetch)
        return fetch.comparing

    def _compare(self, partition: TopicPartition, fetch: PartitionFetch) -> None:
        """Begin the fetch again soon, and drop what arrives of it before."""
        fetch.comparing = True
        self._post(partial(self._fetches.begin_again, partition, fetch))

    # Faults.

    def _standing_still(self) -> list[FetchedItem]:
        """A fault of each partition of which nothing arrives; nothing waits in librdkafka's queue.

        A transaction that is never ended does that, and so do some malformed batches, which
        librdkafka fetches again and again without an error. It is silent as well while a leader
        refuses each Fetch because of a leader epoch, a topic's id or a disk, or answers none. That
        shows if there was no answer yet: the first one has the high watermark.
        """
        faults: list[FetchedItem] = []
        for partition, fetch in self._fetches.by_partition.items():
            unanswered = fetch.high_watermark is None
            if fetch.left <= 0 and not unanswered:
                continue
            if partition in self._fetches.held or fetch.waits_at != fetch.next_offset:
                fetch.waits_at, fetch.waits = fetch.next_offset, 0
                continue
            fetch.waits += 1
            if fetch.waits == STANDSTILL and unanswered:
                fetch.waits = 0  # once there is an answer, it may stand still
                reason = (
                    f"no broker has answered a Fetch from offset {fetch.next_offset} on for some"
                    " time: the leader refuses each one or does not answer, or there is none."
                    " kgroup goes on waiting; check the partition's leader and the brokers' logs"
                )
                faults.append(FetchFailure(partition, "UNANSWERED", reason))
            elif fetch.waits == STANDSTILL:
                open_or = "a transaction is open there, or " if self._committed_only else ""
                reason = (
                    f"nothing has arrived from offset {fetch.next_offset} on for some time, and"
                    f" the log goes on to {fetch.high_watermark}: {open_or}librdkafka cannot"
                    " read a batch there, without an error. kgroup goes on waiting;"
                    " generation.seek() passes such a batch"
                )
                faults.append(FetchFailure(partition, "STANDSTILL", reason))
        return faults

    def _fault(self, message: confluent_kafka.Message, error: KafkaError) -> list[FetchedItem]:
        partition = _partition_of(message)
        fetch = self._fetches.by_partition.get(partition) if partition else None
        if partition is not None and fetch is None:
            return []  # the partition was stopped
        if partition is not None and fetch is not None and action_for(error) is ErrorAction.RESET:
            return self._out_of_range(partition, fetch, error)
        item = _item_for_error(error, partition, fetch)
        if isinstance(item, Unreadable) and fetch is not None and not item.refused:
            return self._unreadable(item, fetch)
        return [item]

    def _unreadable(self, item: Unreadable, fetch: PartitionFetch) -> list[FetchedItem]:
        """The fault, unless the log has to be compared first: what is there may be of another log.

        The program would pass it, and the records of that log before it.
        """
        if not fetch.compared and fetch.leader_epoch != NO_EPOCH:
            self._compare(item.partition, fetch)
        return [] if fetch.comparing else [item]

    def _out_of_range(
        self, partition: TopicPartition, fetch: PartitionFetch, error: KafkaError
    ) -> list[FetchedItem]:
        if fetch.comparing:
            return []
        truncation = truncation_in(error)
        if truncation is None:
            # The error may belong to an earlier fetch, or be outdated: fetch once more from the
            # wanted offset, and believe the result of that.
            believed, fetch.verifying = fetch.verifying, True
        else:
            believed = truncation.concerns(fetch.start_offset, fetch.next_offset)
        if not believed:
            self._compare(partition, fetch)
            return []
        divergent = truncation.end if truncation else None
        reason = describe_error(error)
        return [OutOfRange(partition, fetch.fetch_id, fetch.next_offset, reason, divergent)]


def _item_for_error(
    error: KafkaError, partition: TopicPartition | None, fetch: PartitionFetch | None
) -> FetchedItem:
    reason = describe_error(error, partition.topic if partition else "")
    match action_for(error):
        case ErrorAction.FAIL if partition is not None and fetch is not None:
            refused = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            return Unreadable(partition, fetch.fetch_id, fetch.next_offset, reason, refused)
        case ErrorAction.FAIL if partition is None:
            return FetcherBroken(reason, KafkaException(error))
        case _:
            return FetchFailure(partition, error.name(), reason)


def _known(leader_epoch: int | None) -> int:
    return NO_EPOCH if leader_epoch is None else leader_epoch


def _partition_of(message: confluent_kafka.Message) -> TopicPartition | None:
    topic, number = message.topic(), message.partition()
    if topic is None or number is None or number < 0:
        return None
    return TopicPartition(topic, number)


def _size_of(messages: Sequence[confluent_kafka.Message]) -> int:
    """The bytes of the values, and of the keys as if all were as long as the first.

    Of many messages a part is measured, at places that no regularity of the records can follow.
    """
    some = messages
    if len(messages) > MEASURED:
        step = len(messages) // MEASURED + 1
        some = messages[randrange(step) :: step]
    values = sum(map(len, some)) * len(messages) // len(some)
    key = messages[0].key()
    return values + (len(key) * len(messages) if key else 0)
