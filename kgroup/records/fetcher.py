"""What passes between a fetcher and the queues, and what the queues ask of a fetcher.

A fetcher (librdkafka's owner thread, or the reader of a log in memory) hands over lists of
items; it is told by method calls what to fetch. Each fetch of a partition has a *ticket*, a
number that is never used twice: what arrives under a ticket that is not the partition's current
one was fetched for a position that no longer counts, and is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, final

import attrs

from kgroup.errors import FetchError, KgroupError, OffsetOutOfRangeError
from kgroup.interfaces import Message
from kgroup.types import TopicPartition


@final
@attrs.frozen
class FetchedRun:
    """Records of one partition with rising offsets; at least one.

    Attributes:
        partition: whose they are.
        ticket: the fetch that they belong to.
        messages: the records.
        size: their bytes.
    """

    partition: TopicPartition
    ticket: int
    messages: Sequence[Message] = attrs.field(repr=lambda messages: f"<{len(messages)} messages>")
    size: int


@final
@attrs.frozen
class OutOfRange:
    """The position is outside of the partition's log; its fetch has stopped.

    Attributes:
        offset: the position, or -1 where the fetcher cannot tell.
    """

    partition: TopicPartition
    ticket: int
    offset: int
    reason: str

    def error(self) -> KgroupError:
        """What ``receive`` raises."""
        return OffsetOutOfRangeError(
            f"{self.partition}: offset {_known(self.offset)} is outside of the log ({self.reason});"
            " reading it is paused until seek() names another offset",
            self.partition,
            self.offset,
        )


@final
@attrs.frozen
class Unreadable:
    """The partition cannot be read, and waiting will not help; its fetch has stopped."""

    partition: TopicPartition
    ticket: int
    reason: str

    def error(self) -> KgroupError:
        """What ``receive`` raises."""
        return FetchError(
            f"{self.partition} cannot be read: {self.reason}; nothing more of it is handed out"
            " until seek() or the next generation",
            self.partition,
        )


@final
@attrs.frozen
class FetchFailure:
    """Something that is waited out, to be told as an event.

    Attributes:
        partition: what it is about, or None for the connection as a whole.
        kind: what it is; the same kind is told again only after reading has gone on.
    """

    partition: TopicPartition | None
    kind: str
    reason: str


@final
@attrs.frozen
class Broken:
    """The fetcher itself cannot go on; every ``receive`` fails until the next generation."""

    reason: str
    cause: BaseException | None = None


Item = FetchedRun | OutOfRange | Unreadable | FetchFailure | Broken


@final
@attrs.frozen
class FetchStart:
    """Where a partition's fetch begins, and its ticket."""

    ticket: int
    offset: int


class Fetcher(Protocol):
    """What the queues ask for; every call returns at once and is carried out in order."""

    def work(self) -> None:
        """A generation begins: fetch what ``start`` names."""
        ...

    def rest(self) -> None:
        """A generation ended: hand over nothing until ``work``; what is fetched may be kept."""
        ...

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Fetch these partitions from these offsets, instead of any earlier fetch of them."""
        ...

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions no more."""
        ...

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Hand over nothing of these until ``release``; they go on where they were."""
        ...

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Go on with these."""
        ...

    def go(self) -> None:
        """Hand over at least once more, though the ledger was full (``ledger.stopped``)."""
        ...


def _known(offset: int) -> str:
    return str(offset) if offset >= 0 else "(not told)"
