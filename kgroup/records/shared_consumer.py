"""``SharedConsumer``: one Consumer, in one thread, that fetches for the quiet members of a process.

Theory of operation
===================

A Consumer costs four threads of librdkafka's and one of kgroup's, two connections, about 0.7 MB,
and some twenty wake-ups a second while it has nothing to do. A process of fifty members that read
little would pay that fifty times. So only the first ``MOST_OWN`` members of an event loop get a
Consumer of their own when they start. Further ones share one, if the settings of their Consumers
differ in nothing but the group: the same brokers, security, client id, isolation level and buffers.

**Members that read much do not share.** Behind one Consumer, a member with a backlog would delay
all others, and a member whose handlers are slow would fill the queue for all. So a member moves out
if it gets more than ``BUSY_RECORDS`` or ``BUSY_BYTES`` within a second, or if its buffer is full:
``SharedFetcher`` calls ``move_out``, and its source continues each fetch, under its fetch id and at
its next offset, with a Consumer of its own. It stays there until the source ends or breaks, because
a member that has read much once will do so again, and each move costs some milliseconds.

**One fetch, several readers.** A Consumer holds a partition only once, and members of several
groups may read the same one. Quiet members wait at the end of the log, so they want about the same
records. A member that starts a few records behind moves the fetch back to its own offset; each
reader gets only what follows its own last record. A member that starts far behind has much to read,
and moves out. So does one that starts ahead of the fetch: only a fetch from its own offset can find
that the log does not have that offset. A fault of the fetch is for the readers that have not read
past it; the others' fetch begins again at their own offsets. All get one that is true wherever they
read: the permission is missing, or the log was truncated after they had read it.

**Truncations.** librdkafka compares the log with the leader epoch of the one offset at which the
fetch is. A member that is ahead of it may have read records that were cut off further on. It moves
out as soon as that shows: something before its offset has a later epoch than what it has read last.
The Consumer of its own then compares the log at its own offset. So does that of a member whose
epoch, as it starts, does not fit those of the other readers.

**Back-pressure.** The shared thread is never stopped for a member, because that would stop it for
all; its limits only count deliveries that the event loop has not taken in yet. A member's own
buffer is bounded because it moves out when that is full.

**Generations.** The thread is always active. What arrives for a member whose generation has ended
is queued, as what a thread of its own had fetched before: the next ``assign`` keeps or drops it.

**How long a new fetch waits.** librdkafka has one Fetch request under way for each broker, and adds
a partition only to the next one. While nothing arrives, the broker holds a request back for
``fetch.wait.max.ms``, so another member's partition may wait for it. It is short for every Consumer
(``librdkafka_settings``).

INVARIANTS
    Everything here runs in the event loop's thread.
    A fetch id of the thread is never used twice, and what arrives under an old one reaches no
    reader, so that records never reach a member that starts at another offset.
    A member that has left, or moved out, gets nothing more from here, except what was its share
    before it moved out: its fetches continue after that.
    Readers of one fetch get each record once, in the order of the offsets.
    A fetch continues at or before the next offset of each of its readers, and at the next offset of
    one of them, unless records up to there are on their way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Final, Protocol, final

import attrs
import trio

from kgroup.records.buffer import BufferLimits
from kgroup.records.fetcher import (
    NO_EPOCH,
    FetchedItem,
    FetchedRun,
    FetcherBroken,
    FetchFailure,
    FetchStart,
    OutOfRange,
    PassedTo,
    Unreadable,
    count_records,
    epoch_of,
)
from kgroup.types import TopicPartition

MOST_OWN: Final = 2
"""So many members of an event loop get a Consumer of their own when they start."""
BUSY_RECORDS: Final = 500
"""A member that gets more records within a second moves out."""
BUSY_BYTES: Final = 500_000
"""A member that gets more bytes within a second moves out."""
_WINDOW: Final = 1.0


class SharedThread(Protocol):
    """What is used of a ``ConsumerThread``."""

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        ...

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        ...

    def prepare(self, topics: Collection[str], subscribed: Collection[str]) -> None:
        """See ``ConsumerThread``."""
        ...

    def resume_fetching(self) -> None:
        """See ``Fetcher``."""
        ...

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """See ``Fetcher``."""
        ...


@final
@attrs.define
class _Reader:
    """A member's part in a fetch.

    Attributes:
        fetch_id: the fetch id that its source gave.
        next_offset: the offset that it wants next.
        leader_epoch: the leader epoch of what is before that; `NO_EPOCH` if it is not known.
    """

    fetch_id: int
    next_offset: int
    leader_epoch: int

    def continued(self, fetch_id: int) -> FetchStart:
        """A fetch that goes on where this one is."""
        return FetchStart(fetch_id, self.next_offset, self.leader_epoch)


@final
@attrs.define
class _SharedFetch:
    """A fetch of the shared thread.

    Attributes:
        fetch_id: its id in the thread.
        next_offset: the offset after the last record that it has brought.
        leader_epoch: the leader epoch of what is before that; `NO_EPOCH` if it is not known.
        readers: the members that read it.
    """

    fetch_id: int
    next_offset: int
    leader_epoch: int
    readers: dict[SharedFetcher, _Reader]

    def admits(self, member: SharedFetcher, start: FetchStart) -> bool:
        """Whether a member that starts there can be a reader, or the only one."""
        others = [reader for one, reader in self.readers.items() if one is not member]
        return not others or (
            0 <= self.next_offset - start.offset <= BUSY_RECORDS
            and all(_same_log(start, reader) for reader in others)
        )

    def disproves(self, item: FetchedRun | PassedTo, reader: _Reader) -> bool:
        """Whether what this has brought shows that a reader has read another log."""
        if isinstance(item, PassedTo):
            epoch = item.leader_epoch if item.offset <= reader.next_offset else NO_EPOCH
        else:
            before = _count_before(item, reader.next_offset)
            epoch = epoch_of(item.messages[before - 1]) if before else NO_EPOCH
        return NO_EPOCH < reader.leader_epoch < epoch


@final
class SharedConsumer:
    """The members that share one thread, and what it fetches for each of them.

    Args:
        thread: the thread; who made it starts and ends it.
        limits: the thread's own counts.

    Attributes:
        broken: why the thread cannot continue, or None.
    """

    def __init__(self, thread: SharedThread, limits: BufferLimits) -> None:
        self.thread = thread
        self.broken: FetcherBroken | None = None
        self._limits = limits
        self._fetch_ids = count(1)
        self._fetches: dict[TopicPartition, _SharedFetch] = {}
        self._members: dict[SharedFetcher, Collection[str]] = {}
        """With the topics that each of them prepared last."""

    @property
    def empty(self) -> bool:
        """Whether no member uses it."""
        return not self._members

    def __repr__(self) -> str:
        return f"<SharedConsumer: {len(self._members)} members, {len(self._fetches)} fetches>"

    def add(self, member: SharedFetcher) -> None:
        """Let a member use it."""
        self._members[member] = ()

    def prepare(self, member: SharedFetcher, topics: Collection[str]) -> None:
        """Request the leaders of topics for a member; see ``ConsumerThread``."""
        self._members[member] = topics
        self.thread.prepare(topics, frozenset().union(*self._members.values()))

    def has(self, member: SharedFetcher) -> bool:
        """Whether a member uses it."""
        return member in self._members

    def remove(self, member: SharedFetcher) -> Mapping[TopicPartition, FetchStart]:
        """End a member's use; return what it was fetching, each with its next offset."""
        self._members.pop(member, None)
        starts = {
            partition: reader.continued(reader.fetch_id)
            for partition, fetch in self._fetches.items()
            if (reader := fetch.readers.get(member)) is not None
        }
        self.stop(member, starts)
        return starts

    def start(self, member: SharedFetcher, starts: Mapping[TopicPartition, FetchStart]) -> bool:
        """Fetch for a member; False if it has to move out, and then nothing is started."""
        for partition, start in starts.items():
            fetch = self._fetches.get(partition)
            if fetch is not None and not fetch.admits(member, start):
                return False
        new = {}
        for partition, start in starts.items():
            fetch = self._fetches.get(partition)
            alone = fetch is None or fetch.readers.keys() <= {member}
            if fetch is None or alone or start.offset < fetch.next_offset:
                readers = {} if fetch is None else fetch.readers
                fetch = self._begin(partition, start, readers)
                new[partition] = attrs.evolve(start, fetch_id=fetch.fetch_id)
            fetch.readers[member] = _Reader(start.fetch_id, start.offset, start.leader_epoch)
        if new:
            self.thread.start(new)
        return True

    def stop(self, member: SharedFetcher, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching for a member, and altogether what no other member reads."""
        unread = []
        again = {}
        for partition in partitions:
            fetch = self._fetches.get(partition)
            if fetch is None or fetch.readers.pop(member, None) is None:
                continue
            if not fetch.readers:
                del self._fetches[partition]
                unread.append(partition)
                continue
            # Of several there, one whose leader epoch is known.
            lowest = min(
                fetch.readers.values(), key=lambda one: (one.next_offset, -one.leader_epoch)
            )
            # Only the one that leaves wanted what lies between.
            if fetch.next_offset < lowest.next_offset:
                start = lowest.continued(lowest.fetch_id)
                fetch = self._begin(partition, start, fetch.readers)
                again[partition] = attrs.evolve(start, fetch_id=fetch.fetch_id)
        if unread:
            self.thread.stop(unread)
        if again:
            self.thread.start(again)

    def _begin(
        self, partition: TopicPartition, start: FetchStart, readers: dict[SharedFetcher, _Reader]
    ) -> _SharedFetch:
        fetch = self._fetches[partition] = _SharedFetch(
            next(self._fetch_ids), start.offset, start.leader_epoch, readers
        )
        return fetch

    def deliver(self, items: Sequence[FetchedItem]) -> None:
        """Give each member what is for it. Called in the event loop's thread."""
        shares: dict[SharedFetcher, list[FetchedItem]] = {}
        for item in items:
            if isinstance(item, FetchedRun):
                self._limits.count_removed(len(item.messages), item.size)
            if isinstance(item, FetchedRun | PassedTo):
                self._move_disproved(item)
            for member, share in self._share_out(item):
                shares.setdefault(member, []).append(share)
        if self._limits.stopped and self._limits.is_low():
            self.thread.resume_fetching()
        for member, share_of_all in shares.items():
            if member in self._members:
                member.take_in(share_of_all)
            elif member.moved:
                member.take_in_late(share_of_all)

    def _move_disproved(self, item: FetchedRun | PassedTo) -> None:
        """Move out the readers whose log was truncated, before they get any of the other log."""
        fetch = self._fetches.get(item.partition)
        if fetch is None or fetch.fetch_id != item.fetch_id:
            return
        for member, reader in list(fetch.readers.items()):
            if fetch.disproves(item, reader):
                member.move_out()

    def _share_out(self, item: FetchedItem) -> list[tuple[SharedFetcher, FetchedItem]]:
        """The members that get an item, each with its own version of it."""
        match item:
            case FetcherBroken():
                self.broken = item
                return [(member, item) for member in self._members]
            case FetchFailure():
                if item.partition is None:
                    return [(member, item) for member in self._members]
                fetch = self._fetches.get(item.partition)
                return [] if fetch is None else [(member, item) for member in fetch.readers]
            case FetchedRun() | PassedTo() | OutOfRange() | Unreadable():
                fetch = self._fetches.get(item.partition)
                if fetch is None or fetch.fetch_id != item.fetch_id:
                    return []  # what it was fetched for has ended
        if isinstance(item, FetchedRun):
            return _divide(item, fetch)
        return _pass(item, fetch) if isinstance(item, PassedTo) else _fail(item, fetch)


def _divide(run: FetchedRun, fetch: _SharedFetch) -> list[tuple[SharedFetcher, FetchedItem]]:
    """For each reader what it does not have yet, in a list of its own: the program gets that."""
    shares: list[tuple[SharedFetcher, FetchedItem]] = []
    fetch.next_offset = (run.messages[-1].offset() or 0) + 1
    fetch.leader_epoch = run.leader_epoch
    for member, reader in fetch.readers.items():
        if messages := run.messages[_count_before(run, reader.next_offset) :]:
            reader.next_offset, reader.leader_epoch = fetch.next_offset, run.leader_epoch
            size = run.size * len(messages) // len(run.messages)
            share = attrs.evolve(run, fetch_id=reader.fetch_id, messages=messages, size=size)
            shares.append((member, share))
    return shares


def _pass(item: PassedTo, fetch: _SharedFetch) -> list[tuple[SharedFetcher, FetchedItem]]:
    """The same for all readers that are not further on."""
    shares: list[tuple[SharedFetcher, FetchedItem]] = []
    fetch.next_offset, fetch.leader_epoch = item.offset, item.leader_epoch
    for member, reader in fetch.readers.items():
        if reader.next_offset < item.offset:
            reader.next_offset, reader.leader_epoch = item.offset, item.leader_epoch
            shares.append((member, attrs.evolve(item, fetch_id=reader.fetch_id)))
    return shares


def _fail(
    fault: OutOfRange | Unreadable, fetch: _SharedFetch
) -> list[tuple[SharedFetcher, FetchedItem]]:
    """The same for all readers that it concerns."""
    return [
        (member, attrs.evolve(fault, fetch_id=reader.fetch_id))
        for member, reader in fetch.readers.items()
        # What lies ahead of the offset may be in the log, and sound.
        if reader.next_offset <= fault.offset
        # A refusal has no epoch. What was read after a truncation was read in the new log.
        or (fault.for_all and not NO_EPOCH < _compared(fault, fetch) < reader.leader_epoch)
    ]


def _compared(fault: OutOfRange | Unreadable, fetch: _SharedFetch) -> int:
    """The leader epoch with which the log was compared; `NO_EPOCH` if it was not, or not known."""
    return fetch.leader_epoch if isinstance(fault, OutOfRange) else NO_EPOCH


def _same_log(start: FetchStart, reader: _Reader) -> bool:
    """Whether the leader epoch of a start fits that of a reader that is not behind it."""
    if NO_EPOCH in (start.leader_epoch, reader.leader_epoch):
        return True
    if start.offset == reader.next_offset:
        return start.leader_epoch == reader.leader_epoch
    return start.leader_epoch <= reader.leader_epoch


def _count_before(run: FetchedRun, offset: int) -> int:
    """How many records of a run are before an offset."""
    return bisect_left(run.messages, offset, key=lambda message: message.offset())


@final
class SharedFetcher:
    """The ``Fetcher`` of one member that shares a Consumer.

    Args:
        consumer: what it shares.
        limits: the counts of the member's source. Who shares counts in the event loop what is
            delivered; the thread to which the member moves does so from then on.
        deliver: gives items to the source.
        move_out: makes the source continue with a Consumer of its own. It calls `leave`, and starts
            these fetches too.

    Attributes:
        active: whether the member has a generation.
        moved: whether it has moved out.
    """

    def __init__(
        self,
        consumer: SharedConsumer,
        limits: BufferLimits,
        deliver: Callable[[Sequence[FetchedItem]], None],
        move_out: Callable[[Mapping[TopicPartition, FetchStart]], None],
    ) -> None:
        self.active = self.moved = False
        self._consumer = consumer
        self._limits = limits
        self._deliver = deliver
        self._move_out = move_out
        self._since = trio.current_time()
        self._records = self._bytes = 0
        consumer.add(self)

    @property
    def has_more(self) -> bool:
        """Nothing is taken from a shared Consumer: it might be for others."""
        return False

    @property
    def serves_threads(self) -> bool:
        """See ``Fetcher``: all members of the loop call it, without a lock."""
        return False

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """See ``Fetcher``."""
        return self._consumer.thread.high_watermark(partition)

    def take_into(
        self, take_in: Callable[[Sequence[FetchedItem]], None], *, in_loop: bool = True
    ) -> bool:
        """See ``Fetcher``; nothing."""
        del take_in, in_loop
        return False

    def prepare(self, topics: Collection[str]) -> None:
        """Request the leaders of topics while the member joins."""
        self._consumer.prepare(self, topics)

    def activate(self) -> None:
        """See ``Fetcher``."""
        self.active = True

    def deactivate(self) -> None:
        """See ``Fetcher``. What still arrives waits for the next generation."""
        self.active = False

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        if not self._consumer.start(self, starts):
            self._consumer.stop(self, starts)
            self._leave_for(starts)

    def move_out(self) -> None:
        """Move out, and continue every fetch where it is."""
        self._leave_for({})

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._consumer.stop(self, partitions)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``. Never called, because ``BufferLimits.stopped`` is never set here."""

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See ``hold``."""

    def resume_fetching(self) -> None:
        """See ``hold``."""

    def leave(self) -> Mapping[TopicPartition, FetchStart]:
        """End the member's use of the Consumer; return the fetches with which it continues."""
        return self._consumer.remove(self)

    def take_in(self, items: Sequence[FetchedItem]) -> None:
        """Take what has arrived, and move out if that is too much for one of many."""
        records, size = count_records(items)
        self._limits.count_delivered(records, size)
        self._deliver(items)
        # It has left already if a fault made the source fetch from an offset far behind.
        if records and self._is_busy(records, size) and self._consumer.has(self):
            self._leave_for({})

    def take_in_late(self, items: Sequence[FetchedItem]) -> None:
        """Take what arrived before the member moved out, because another one was given its share.

        An event handler that is called for a fault of one member may seek in another one.
        """
        records, size = count_records(items)
        # As what is put back: deliveries are counted in the member's own thread by now.
        self._limits.count_removed(-records, -size)
        self._deliver(items)

    def _leave_for(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        self.moved = True
        self._move_out(starts)

    def _is_busy(self, records: int, size: int) -> bool:
        now = trio.current_time()
        if now - self._since > _WINDOW:
            self._since = now
            self._records = self._bytes = 0
        self._records += records
        self._bytes += size
        return self._records > BUSY_RECORDS or self._bytes > BUSY_BYTES or self._limits.is_full()
