"""What a fetcher and a ``BufferedSource`` say to each other.

A fetcher gets records from somewhere: ``ConsumerThread`` from librdkafka, the one of
``MemorySource`` from a log in memory. The source calls the methods of ``Fetcher`` to say what to
fetch. The fetcher delivers lists of items: runs of records, what lies behind them, and faults.

Every fetch of a partition has a *fetch id*, a number that is never used twice. The source starts
a new fetch whenever a partition's position jumps. An item whose fetch id is not the partition's
current one was fetched for a position that no longer counts, and the source drops it. So the two
sides can work in different threads without ever waiting for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, final

import attrs

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import AuthorizationError, FetchError, KgroupError, OffsetOutOfRangeError
from kgroup.interfaces import Message
from kgroup.types import TopicPartition

NO_EPOCH: Final = -1
"""A leader epoch that is not known."""


@final
@attrs.frozen
class FetchStart:
    """The id of a partition's fetch, and where it begins.

    Attributes:
        fetch_id: the id.
        offset: the offset.
        leader_epoch: the leader epoch of the record before it; `NO_EPOCH` if it is not known.
    """

    fetch_id: int
    offset: int
    leader_epoch: int = NO_EPOCH


@final
@attrs.frozen
class FetchedRun:
    """Records of one partition with rising offsets; at least one.

    Attributes:
        partition: the partition.
        fetch_id: the fetch that returned them.
        messages: the records.
        size: their bytes.
        leader_epoch: the leader epoch of the last one; `NO_EPOCH` if it is not known.
    """

    partition: TopicPartition
    fetch_id: int
    messages: Sequence[Message] = attrs.field(repr=lambda messages: f"<{len(messages)} messages>")
    size: int
    leader_epoch: int = NO_EPOCH


@final
@attrs.frozen
class PassedTo:
    """All records before an offset have been delivered; the log goes on with it.

    A transaction ends with a marker, which has an offset and is no record, and records of aborted
    transactions may not be for the reader. So the offset may be further on than the last record's.

    Attributes:
        partition: the partition.
        fetch_id: the fetch.
        offset: the offset that it wants next.
        leader_epoch: the leader epoch of what is before that; `NO_EPOCH` if it is not known.
    """

    partition: TopicPartition
    fetch_id: int
    offset: int
    leader_epoch: int = NO_EPOCH


@final
@attrs.frozen
class OutOfRange:
    """The position is not in the partition's log; the fetch has stopped.

    Attributes:
        partition: the partition.
        fetch_id: the fetch.
        offset: the offset that it wanted next.
        reason: what happened.
        divergent_offset: if the log was truncated, the offset from which on it does not have what
            was fetched; None if it was not, or if that is not known.
    """

    partition: TopicPartition
    fetch_id: int
    offset: int
    reason: str
    divergent_offset: int | None = None

    @property
    def for_all(self) -> bool:
        """Whether it concerns who reads further on, too."""
        return self.divergent_offset is not None

    def error(self) -> KgroupError:
        """Make the error that ``receive`` raises."""
        if self.divergent_offset is not None:
            return OffsetOutOfRangeError(
                f"{self.partition}: the log was truncated to offset {self.divergent_offset}; what"
                f" was read from there up to {self.offset} is no longer in it ({self.reason}). The"
                " partition is paused until seek() names an offset",
                self.partition,
                self.offset,
                self.divergent_offset,
            )
        return OffsetOutOfRangeError(
            f"{self.partition}: offset {self.offset} is outside of the log ({self.reason});"
            " the partition is paused until seek() names another offset",
            self.partition,
            self.offset,
        )


@final
@attrs.frozen
class Unreadable:
    """The partition cannot be read.

    Attributes:
        partition: the partition.
        fetch_id: the fetch.
        offset: the offset that it wanted next.
        reason: what happened.
        refused: whether the principal may not read it. The fetch continues then, and its records
            follow if the permission is granted. Otherwise it has stopped: waiting does not help.
    """

    partition: TopicPartition
    fetch_id: int
    offset: int
    reason: str
    refused: bool = False

    @property
    def for_all(self) -> bool:
        """Whether it concerns who reads further on, too."""
        return self.refused

    def error(self) -> KgroupError:
        """Make the error that ``receive`` raises."""
        if self.refused:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return AuthorizationError(
                code,
                code_name(code),
                "Fetch",
                f"{self.partition} cannot be read: {self.reason}. Once it is granted, reading goes"
                " on where it was, also in a worker that is started again",
            )
        return FetchError(
            f"{self.partition} cannot be read at offset {self.offset}: {self.reason}; no more of"
            " its records are handed out until seek() or the next generation, which fails again"
            " if it starts there",
            self.partition,
        )


@final
@attrs.frozen
class FetchFailure:
    """A fault that passes, or may, and that the fetcher retries; it is reported as an event.

    Attributes:
        partition: the partition, or None for the connection as a whole.
        kind: the fault's name; one kind is reported again only after reading has resumed.
        reason: what happened, for the event.
    """

    partition: TopicPartition | None
    kind: str
    reason: str


@final
@attrs.frozen
class FetcherBroken:
    """The fetcher cannot continue; every ``receive`` fails until the next generation."""

    reason: str
    cause: BaseException | None = None


FetchedItem = FetchedRun | PassedTo | OutOfRange | Unreadable | FetchFailure | FetcherBroken


def epoch_of(message: Message) -> int:
    """The leader epoch of a record; `NO_EPOCH` if its source does not know it."""
    read: Any = getattr(message, "leader_epoch", None)
    epoch = None if read is None else read()
    return NO_EPOCH if epoch is None else int(epoch)


def count_records(items: Iterable[FetchedItem]) -> tuple[int, int]:
    """The number of all records in these items, and of their bytes."""
    records = size = 0
    for item in items:
        if isinstance(item, FetchedRun):
            records += len(item.messages)
            size += item.size
    return records, size


class Fetcher(Protocol):
    """What a source calls; each call returns at once, and calls take effect in their order."""

    @property
    def serves_threads(self) -> bool:
        """Whether all methods may be called in any thread, under the source's lock."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether ``take_into`` would probably take something, and nothing is delivered by then."""
        ...

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The high watermark of a partition that is fetched, as last known; None if it is not.

        Any thread may call it, and it waits for nothing.
        """
        ...

    def take_into(
        self, take_in: Callable[[Sequence[FetchedItem]], None], *, in_loop: bool = True
    ) -> bool:
        """Fetch in the caller's thread what is there, in place of a later delivery.

        Called without the source's lock. No one else takes before ``take_in`` has returned, so that
        nothing is overtaken.

        Args:
            take_in: called with what was fetched.
            in_loop: whether the caller is the event loop. If not, faults are delivered there, and
                what was fetched together with them.

        Returns:
            whether anything was done; false if ``has_more`` is, or was wrong.
        """
        ...

    def activate(self) -> None:
        """Fetch what ``start`` names, because a generation begins."""
        ...

    def deactivate(self) -> None:
        """Deliver nothing until ``activate``, because a generation has ended.

        What was fetched may be kept: the next generation may own the same partitions.
        """
        ...

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Fetch these partitions from these offsets, in place of any earlier fetch of them."""
        ...

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        ...

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver nothing of these until ``release``; they then continue where they were."""
        ...

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Resume partitions that were held."""
        ...

    def resume_fetching(self) -> None:
        """Clear ``BufferLimits.stopped`` and deliver at least once more."""
        ...
