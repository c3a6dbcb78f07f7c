"""``ConsumerThread``: the thread that owns a ``confluent_kafka.Consumer`` and lends it to readers.

**Who calls the Consumer.** INVARIANT: only who holds ``_lock`` calls it. A Consumer serialises the
calls of all threads, so a call from the event loop's thread could block the loop for as long as
this thread polls. Everything that can wait is therefore done by this thread: it creates, polls,
assigns and closes. Each method of ``Fetcher`` puts a command (a function without arguments) into a
queue and returns at once; the thread runs commands between two polls. In the other direction the
thread delivers lists of items through the loop's token: one call for each chunk that it consumed,
since one call for each record would cost two hundred times the throughput.

**The loan.** While a backlog is read, records that one thread makes and another one frees cross
from one processor's cache to another's, and both threads want the GIL. Both cost much of the
throughput (``benchmarks/records``). So a thread that got a full chunk waits in its command
queue, without the lock, and the readers take what follows themselves, by calls that never wait: the
Consumer's queue has it already. A reader is a task in the event loop or a handler thread
of ``kgroup.threaded``. The loan ends with the first command and with a take that is
not full; the thread then polls as before. It also ends if a reader waits for records, which are
further back in the Consumer's queue, while the others take more slowly than ``PACE``, because they
wait for something else. The thread then delivers some full chunks, up to the buffer's limits, so
that all readers work at the same time, before it lends again; more and more of them, up to
``MOST_FULL_CHUNKS``, if the next loan ends in the same way.

INVARIANT: a reader takes nothing while a delivery of the thread is on its way, nor before every
command has taken effect; otherwise records could overtake others. ``_posted`` and ``_taken`` count
deliveries, and ``_unapplied`` counts commands: that their queue is empty says too little, because
the thread has taken a command out of it before it has the lock again. A thread that has taken
records holds ``_lock`` until they are in the source's queues.

**What the thread does.** ``_serve`` is its loop: run the commands that are there, then poll once.
If there is nothing to poll for (no generation, no partition open, or the buffer is full), the
thread waits in the command queue and not in a poll, so that the next ``assign`` takes effect at
once. Every ``IDLE_POLL`` it then takes what librdkafka has to say (``_poll_idle``). Otherwise a
command waits for at most one poll, which is why polls are short (``POLL``).
Starts and stops are collected while commands run, and are then applied by one call each
(``_apply_assignment``), because a rebalance of a thousand partitions is a thousand commands at
worst. While the member joins, and as soon as partitions are assigned, the thread requests the
leaders that librdkafka may not know (``kgroup.records.topic_requests``); it waits for no response.

**Back-pressure.** When the buffer is full the thread stops polling, and librdkafka's own queue
then fills up and stops it from fetching. Nothing is lost by that. ``pause`` would throw away what
librdkafka has fetched ahead of that partition, so it is used only for a partition that holds far
more than its share while another one starves. ``stopped`` is set before the items are delivered:
the loop reads it after it has taken them in, and could otherwise miss that it must resume.

**What librdkafka does that one would not expect.**

- ``consume(n, timeout)`` waits for the whole time-out if fewer than ``n`` messages are there.
  Hence ``poll`` for the first message, then ``consume`` with a time-out of 0 for what is behind
  it. This is safe only under ``assign``: under ``subscribe`` the second call could serve the
  revocation of the partition whose record the first one returned.
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
  with it. INVARIANT: an error is verified only by a request that can fail in the same way. Another
  fetch would begin under the new leader and not ask again, so this error is believed at once. What
  librdkafka names with it shows whether it belongs to an earlier fetch.
- What this thread has delivered can be outdated when the event loop takes it in, because a command
  was on its way in the other direction. The source drops that by its fetch id.
- Its log lines and errors can quote a broker's bytes. confluent-kafka raises where they are no
  UTF-8, and loses what it was about to return, so that all is fetched again (`_fetch_all_again`).
- Errors arrive as messages, but some only in the error callback, with the partition named in the
  text. librdkafka calls it within ``poll`` and ``consume``, so in this thread. Until then errors
  and log lines wait in the Consumer's queue, which has no limit: without a broker, eighty of each
  in a second. So a Consumer is polled now and then also while there is nothing to poll for.
- It takes a token by a callback, and other credentials and certificates only in part
  (``kgroup.records.consumer_login``): once files of certificates have changed, the thread makes
  another Consumer.
- It never forgets a topic that it has fetched: it requests all of them once a second, also if they
  were deleted long ago. So the thread replaces a Consumer with many former topics
  (`_former_topics`).
- It can lose all its brokers for good, while they are there. The thread then replaces the Consumer
  (``kgroup.records.lost_brokers``).
- Its own position is past what was handed out, so no fetch starts there: the source says where each
  one does. The position only says how far the markers of transactions reach that follow what has
  arrived, since they are no messages. It is not known from each ``assign`` to what arrives next.

Source: confluent-kafka 2.16's ``Consumer.c``. The group protocol of librdkafka is not used.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from random import randrange
from time import monotonic, perf_counter
from typing import Any, Final, cast, final

import attrs
import confluent_kafka
import trio
from confluent_kafka import KafkaError, KafkaException

from kgroup.interfaces import Message
from kgroup.records.buffer import BufferLimits
from kgroup.records.consumer_login import ConsumerLogin
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
)
from kgroup.records.librdkafka_messages import (
    ErrorAction,
    action_for,
    close_consumer,
    count_rising,
    describe_error,
    describe_undecoded,
    has_errors,
    partition_in_text,
    runs,
    truncation_in,
)
from kgroup.records.librdkafka_settings import LOGGER
from kgroup.records.lost_brokers import LostBrokers
from kgroup.records.topic_requests import has_broker, request_leaders
from kgroup.security.settings import Security
from kgroup.types import TopicPartition
from kgroup.worker_thread import post_to

POLL: Final = 0.02
"""Seconds of one poll: the longest that a command waits while no records arrive."""
IDLE_POLL: Final = 1.0
"""Seconds between two polls of a Consumer of which nothing is wanted."""
CHUNK: Final = 2000
"""The largest number of records in one delivery. With fewer there are more deliveries. With more
the GIL is held for longer (about half a microsecond a record) before the event loop gets its turn,
and the records no longer fit into a processor's cache while they are split."""
TAKE: Final = 500
"""The largest number of records that a reader takes at once: so few that they are still in its
processor's cache when they are handed out, freed, and made again for the next ones."""
TAKE_BYTES: Final = 4_000_000
"""About as many bytes as a reader takes at once, so that large records do not block the loop."""
MEASURED: Final = 100
"""Of a run of more messages, about so many are measured to estimate its bytes."""
LOAN: Final = 0.02
"""Seconds after which the thread checks whether the readers make use of the loan."""
PACE: Final = 1000.0
"""How often in a second they have to take if another reader waits. Readers that do next to nothing
with a record take four times as often. If slower ones cannot go on by themselves for some time,
that costs them little: taking is a small part of what they do."""
WATERMARKS: Final = 1.0
"""Seconds between two readings of all high watermarks from librdkafka's memory. A partition of
which records arrive is read with each of its runs, too."""
NEAR_END: Final = 1000
"""With each run that ends at most so many offsets before the high watermark, the position is read.
In a backlog that is not worth its cost: the next batch passes what lies before it."""
STANDSTILL: Final = 30
"""So many readings in a row with nothing to read, although the log goes on, are reported."""
WATERMARKS_PER_SECOND: Final = 1000
"""The most partitions that are read in a second: one costs a few microseconds."""
MOST_FULL_CHUNKS: Final = 64
"""The most full chunks that the thread delivers after loans of which readers made too little use.
"""
FIRST_FULL_CHUNKS: Final = 4
"""The full chunks that it delivers after the first of them."""
MOST_FORMER_TOPICS: Final = 200
"""A Consumer that has fetched more topics that are not wanted any more is replaced."""

_REPLACED: Final = (
    "librdkafka has had no broker for some seconds and may have lost them for good; another"
    " Consumer takes its place and continues where it was"
)

_RENEWED: Final = (
    "the files of the certificates have changed; a Consumer that has read them continues where the"
    " last one was"
)
_WITHOUT_FORMER: Final = (
    f"librdkafka goes on requesting topics that are not read any more, by now more than"
    f" {MOST_FORMER_TOPICS}; another Consumer without them continues where the last one was"
)

OpenConsumer = Callable[[dict[str, Any]], confluent_kafka.Consumer]
"""Makes a Consumer from its settings."""


@final
@attrs.define
class _Fetch:
    """A partition that is being fetched.

    Attributes:
        fetch_id: the fetch.
        start_offset: where it began.
        next_offset: the offset after the last record that arrived.
        leader_epoch: the leader epoch of that record, or of the one before the start.
        verifying: whether it was restarted to verify that the offset is out of range.
        waits_at: the offset at which it waited at the last reading of its watermark, though the log
            goes on.
        waits: for how many readings in a row.
    """

    fetch_id: int
    start_offset: int
    next_offset: int
    leader_epoch: int
    verifying: bool = False
    waits_at: int = -1
    waits: int = 0


@final
class ConsumerThread:
    """A ``Fetcher`` over a Consumer in a thread of its own.

    Args:
        name: the thread's name.
        settings: the settings of the Consumer; the thread adds its callbacks.
        limits: the counts that it shares with the source.
        open_consumer: makes the Consumer.
        lends: whether the event loop may take. If several members share the Consumer, it does not.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        limits: BufferLimits,
        open_consumer: OpenConsumer,
        *,
        lends: bool = True,
    ) -> None:
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._settings = dict(settings)
        self._limits = limits
        self._open_consumer = open_consumer
        self._lending = lends
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._unapplied: deque[Callable[[], None]] = deque()
        """The commands that have not taken effect yet; for their number only."""
        self._posted = 0
        """How many deliveries the thread has sent; only the thread writes it."""
        self._taken = 0
        """How many of them the event loop has taken in; only the loop writes it."""
        self._lock = threading.Lock()
        # Only who holds the lock writes what follows, or uses the Consumer.
        self._takes = 0
        """How often readers have used the loan."""
        self._lent = False
        self._full_chunks = 0
        """How many the thread delivers before it lends again."""
        self._next_full_chunks = FIRST_FULL_CHUNKS
        """How many it delivers after the next loan of which readers make too little use."""
        self._most_to_take = TAKE
        self._fetches: dict[TopicPartition, _Fetch] = {}
        self._held: set[TopicPartition] = set()
        self._stops: dict[TopicPartition, None] = {}
        self._starts: dict[TopicPartition, FetchStart] = {}
        self._topics = 0
        self._assigned_topics: set[str] = set()
        """All topics of which this Consumer has fetched a partition."""
        self._subscribed: frozenset[str] = frozenset()
        """The topics that its members prepared last."""
        self._watermarks: dict[TopicPartition, int] = {}
        """The high watermarks, as far as they are known. Any thread may look one up."""
        self._watermarks_due = 0.0
        self._drained = False
        """Whether the last poll has found nothing in librdkafka's queue."""
        self._active = False
        self._closing = False
        self._idle_poll_due = 0.0
        self._callback_errors: dict[tuple[int, TopicPartition | None], KafkaError] = {}
        """The last error of each code and partition that no delivery has taken along yet."""
        self._login: ConsumerLogin | None = None

    # Called in the event loop's thread.

    def launch(
        self,
        deliver: Callable[[Sequence[FetchedItem]], None],
        started: Callable[[], None],
        ended: Callable[[], None],
        security: Security | None = None,
    ) -> None:
        """Start the thread; it calls these callbacks in the event loop's thread.

        Args:
            deliver: takes in what was fetched.
            started: the Consumer has been made.
            ended: the thread has ended, or is about to.
            security: what the Consumer logs in with, if that changes.
        """

        def deliver_and_count(items: Sequence[FetchedItem]) -> None:
            try:
                deliver(items)
            finally:
                self._taken += 1  # not before: another thread could take what follows

        self._token = trio.lowlevel.current_trio_token()
        self._deliver = deliver_and_count
        self._started = started
        self._ended = ended
        if security is not None:
            self._login = ConsumerLogin(security, partial(self._post, self._apply_login))
        self.thread.start()

    def end(self) -> None:
        """Close the Consumer and end the thread."""
        if self._login is not None:
            self._login.end()
        self._post(self._close)

    def prepare(self, topics: Collection[str], subscribed: Collection[str]) -> None:
        """Request the leaders of these topics, because partitions of them may be started soon.

        Args:
            topics: the topics.
            subscribed: all topics that the members that use the thread may still want.
        """
        self._post(lambda: self._prepare(topics, frozenset(subscribed)))

    def activate(self) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._set_active(active=True))

    def deactivate(self) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._set_active(active=False))

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._queue_starts(starts))

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._queue_stops(partitions))

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._hold(partitions))

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._release(partitions))

    def resume_fetching(self) -> None:
        """See ``Fetcher``."""
        self._limits.stopped = False
        self._post(_only_wake)

    def _post(self, command: Callable[[], None]) -> None:
        """Let the thread run a command; from any thread."""
        self._unapplied.append(command)
        self._commands.put(command)

    @property
    def has_more(self) -> bool:
        """See ``Fetcher``."""
        return self._lent and not self._limits.stopped

    @property
    def serves_threads(self) -> bool:
        """See ``Fetcher``: its methods only put commands into a queue."""
        return True

    # Called in any thread.

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """See ``Fetcher``. A broker sends it with each Fetch response, also with an empty one."""
        return self._watermarks.get(partition)

    # Called in the thread of a reader.

    def take_into(
        self, take_in: Callable[[Sequence[FetchedItem]], None], *, in_loop: bool = True
    ) -> bool:
        """See ``Fetcher``. It takes about a millisecond, and waits for nothing."""
        if not self._borrow():
            return False
        try:
            items = self._take()
            if in_loop or all(isinstance(item, FetchedRun | PassedTo) for item in items):
                take_in(items)
            else:
                self._deliver_items(items)
        finally:
            self._lock.release()
        return True

    def _borrow(self) -> bool:
        """Acquire the lock if the Consumer is lent, and nothing would be overtaken."""
        if not self.has_more or not self._lock.acquire(blocking=False):
            return False
        if self._posted == self._taken and not self._unapplied and self.has_more:
            return True
        self._lock.release()
        return False

    def _take(self) -> Sequence[FetchedItem]:
        """Take what is there, in the thread of a reader that holds the lock."""
        self._takes += 1
        try:
            most = self._most_to_take
            try:
                chunk = self._consumer.consume(most, 0)
            except UnicodeDecodeError as invalid:
                # Nothing else is taken before the command has been run.
                self._post(partial(self._fetch_all_again, invalid))
                return []
            if len(chunk) < most:
                self._post(_only_wake)  # the thread waits for what follows
            items = self._items_of(chunk)
            self._count(items)
            items += self._read_watermarks_if_due()
        except Exception as error:  # noqa: BLE001 - as in the thread, every receive() raises it
            return [FetcherBroken(f"reading for {self.thread.name} failed: {error!r}", error)]
        else:
            return items

    # Called in the Consumer's thread.

    def _run(self) -> None:
        try:
            with self._lock:
                self._serve()
        except BaseException as error:  # noqa: BLE001 - every receive() raises it
            self._deliver_items([FetcherBroken(f"{self.thread.name} failed: {error!r}", error)])
        finally:
            self._call(self._ended)

    def _serve(self) -> None:
        early = self._await_login()
        if early is None:
            return
        self._consumer = self._new_consumer()
        try:
            self._call(self._started)
            for each in early:
                each()
            self._post(_only_wake)  # what they have started is applied at once
            command, run_before = None, len(early)
            while True:
                self._run_commands(command, run_before)
                run_before = 0
                if self._closing:
                    return
                self._drained = False
                if self._may_poll():
                    command = self._fetch()
                else:
                    command = None
                    self._poll_idle()
                if passed := self._read_watermarks_if_due():
                    self._deliver_items(passed)
                if self._lost_brokers.must_check(monotonic()) and self._may_poll():
                    self._check_brokers()
                if self._login is not None and self._login.files_renewed(monotonic()):
                    self._replace_consumer("CERTIFICATES_RENEWED", _RENEWED)
        finally:
            close_consumer(self._consumer)

    def _await_login(self) -> list[Callable[[], None]] | None:
        """Wait until there is something to log in with.

        Returns:
            the commands that came meanwhile; None if one of them ends the thread.
        """
        early: list[Callable[[], None]] = []
        while self._login is not None and not self._login.ready:
            command = self._commands.get()
            if command == self._close:
                return None
            if command == self._apply_login:
                self._unapplied.popleft()
            else:
                early.append(command)
        return early

    def _new_consumer(self) -> confluent_kafka.Consumer:
        self._lost_brokers = LostBrokers(monotonic())
        self._assigned_topics = set()
        self._idle_poll_due = monotonic() + IDLE_POLL
        login = {} if self._login is None else self._login.settings()
        callbacks = {"error_cb": self._on_error, "logger": LOGGER}
        return self._open_consumer({**self._settings, **login, **callbacks})

    def _apply_login(self) -> None:
        if self._login is not None:
            self._login.apply(self._consumer)

    def _check_brokers(self) -> None:
        """Replace the Consumer if it has lost its brokers (``kgroup.records.lost_brokers``)."""
        now = monotonic()
        if has_broker(self._consumer, next(iter(self._fetches)).topic):
            self._lost_brokers.connected(now)
        elif self._lost_brokers.must_replace(now):
            self._replace_consumer("NO_BROKER", _REPLACED)

    def _replace_consumer(self, error: str, reason: str) -> None:
        """Continue every fetch in another Consumer, after the last record that arrived."""
        old, self._consumer = self._consumer, self._new_consumer()
        close_consumer(old)
        self._assign_fetches(self._fetches)
        self._deliver_items([FetchFailure(None, error, reason)])

    def _fetch_all_again(self, error: UnicodeDecodeError) -> None:
        """Begin every fetch again after the last record that arrived, because messages are lost.

        confluent-kafka decodes librdkafka's log lines within ``poll`` and ``consume``. A line may
        quote what a broker has sent, such as the host name of another one. If that is no UTF-8, the
        call raises, and drops the messages that it had taken.
        """
        self._fetch_again(self._fetches)
        self._deliver_items([FetchFailure(None, "INVALID_TEXT", describe_undecoded(error))])

    def _fetch_again(self, fetches: Mapping[TopicPartition, _Fetch]) -> None:
        if fetches:
            self._consumer.incremental_unassign([_to_confluent(name) for name in fetches])
        self._assign_fetches(fetches)

    def _assign_fetches(self, fetches: Mapping[TopicPartition, _Fetch]) -> None:
        """Let the Consumer, which has none of them, fetch from where each fetch is."""
        if fetches:
            self._assigned_topics.update(name.topic for name in fetches)
            self._consumer.incremental_assign(
                [
                    _to_confluent(name, fetch.next_offset, fetch.leader_epoch)
                    for name, fetch in fetches.items()
                ]
            )
        if held := [name for name in self._held if name in fetches]:
            self._consumer.pause([_to_confluent(name) for name in held])

    def _may_poll(self) -> bool:
        return self._active and bool(self._fetches) and not self._limits.stopped

    def _run_commands(self, first: Callable[[], None] | None, run_before: int = 0) -> None:
        """Run all commands that are there; wait for one if there is nothing to poll for.

        Args:
            first: a command that has left the queue.
            run_before: how many have been run and not been applied.
        """
        count = run_before
        try:
            command = first or self._next_command()
            while True:
                command()
                count += 1
                command = self._commands.get(block=False)
        except Empty:
            self._apply_assignment()
        for _ in range(count):
            self._unapplied.popleft()

    def _next_command(self) -> Callable[[], None]:
        if self._may_poll():
            return self._commands.get(block=False)
        return self._commands.get(timeout=max(0.0, self._idle_poll_due - monotonic()))

    def _prepare(self, topics: Collection[str], subscribed: frozenset[str]) -> None:
        # librdkafka keeps what it knows of a topic up to date as long as it fetches the topic.
        self._subscribed = subscribed
        fetched = {partition.topic for partition in self._fetches}
        request_leaders(self._consumer, (topic for topic in topics if topic not in fetched))

    def _set_active(self, *, active: bool) -> None:
        self._active = active

    def _close(self) -> None:
        self._closing = True

    def _queue_starts(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        for partition, start in starts.items():
            self._forget(partition)
            self._starts[partition] = start

    def _queue_stops(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._forget(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self._starts.pop(partition, None)
        if self._fetches.pop(partition, None) is not None:
            self._stops[partition] = None
            self._watermarks.pop(partition, None)

    def _apply_assignment(self) -> None:
        """Apply all stops by one call, and all starts by another."""
        stops, self._stops = self._stops, {}
        if stops:
            self._release(stops)
            self._consumer.incremental_unassign([_to_confluent(partition) for partition in stops])
        if self._starts:
            starts, self._starts = self._starts, {}
            self._consumer.incremental_assign(
                [
                    _to_confluent(partition, start.offset, start.leader_epoch)
                    for partition, start in starts.items()
                ]
            )
            for partition, start in starts.items():
                self._fetches[partition] = _Fetch(
                    start.fetch_id, start.offset, start.offset, start.leader_epoch
                )
            new = {partition.topic: None for partition in starts if partition not in stops}
            request_leaders(self._consumer, new)
            self._assigned_topics.update(new)
            if self._former_topics() > MOST_FORMER_TOPICS:
                self._replace_consumer("FORMER_TOPICS", _WITHOUT_FORMER)
        self._topics = len({partition.topic for partition in self._fetches})

    def _former_topics(self) -> int:
        """How many topics librdkafka requests for ever although nothing wants them any more.

        Those of the subscription do not count: a member whose partitions change from one generation
        to the next may get their partitions again.
        """
        fetched = {partition.topic for partition in self._fetches}
        return len(self._assigned_topics - fetched - self._subscribed)

    def _hold(self, partitions: Collection[TopicPartition]) -> None:
        fetched = [partition for partition in partitions if partition in self._fetches]
        if fetched:
            self._held.update(fetched)
            self._consumer.pause([_to_confluent(partition) for partition in fetched])

    def _release(self, partitions: Collection[TopicPartition]) -> None:
        held = [partition for partition in partitions if partition in self._held]
        if held:
            self._held.difference_update(held)
            self._consumer.resume([_to_confluent(partition) for partition in held])

    def _fetch(self) -> Callable[[], None] | None:
        """Poll for a first message, take what is there behind it, and deliver all of it.

        Returns:
            the command that ended a loan.
        """
        chunk = self._poll(POLL)
        if chunk is None:
            return None
        now = monotonic()
        self._idle_poll_due = now + IDLE_POLL
        self._drained = not chunk
        if chunk:
            self._lost_brokers.connected(now)
        if items := self._items_of(chunk):
            self._count(items)
            if len(chunk) == CHUNK and not self._limits.stopped and self._may_lend():
                return self._lend(items)
            self._deliver_items(items)
        return None

    def _poll(self, timeout: float) -> list[confluent_kafka.Message] | None:
        """Wait for a first message, and take what is there behind it.

        Returns:
            the messages; None if they were lost, and are fetched again.
        """
        try:
            first = self._consumer.poll(timeout)
            return [] if first is None else [first, *self._consumer.consume(CHUNK - 1, 0)]
        except UnicodeDecodeError as error:
            self._fetch_all_again(error)
            return None

    def _poll_idle(self) -> None:
        """Take errors and log lines, which would pile up, while there is nothing to poll for.

        Without a fetch nothing else is in the Consumer's queue. With fetches they lie among records
        for which there may be no room: these are dropped, and fetched again. So that is done only
        while no broker is connected. As long as one is, librdkafka rarely has an error to say.

        INVARIANT: what is delivered from here has no record, so that the buffer does not grow.
        """
        now = monotonic()
        if now < self._idle_poll_due:
            return
        self._idle_poll_due = now + IDLE_POLL
        if self._fetches:
            if not self._lost_brokers.must_check(now):
                return
            if has_broker(self._consumer, next(iter(self._fetches)).topic):
                self._lost_brokers.connected(now)
                return
        chunk = self._poll(0)
        if chunk and self._fetches:
            # What it says of a partition it says again; other errors have come by the callback, and
            # stay for the next delivery.
            self._fetch_again(self._fetches)
        elif chunk:
            self._deliver_items(self._items_of(chunk))

    def _may_lend(self) -> bool:
        """Whether the last loan was made use of, or is long enough ago to try another one."""
        if self._full_chunks:
            self._full_chunks -= 1
        return self._lending and not self._full_chunks

    def _lend(self, items: Sequence[FetchedItem]) -> Callable[[], None] | None:
        """Deliver, and let readers take what follows, until a command ends the loan.

        The lock is released before the delivery, because a reader takes as soon as it has that. It
        takes nothing before, because the delivery is counted.

        Returns:
            the command; None if readers made too little use of the loan.
        """
        self._posted += 1
        self._lent = True
        before = self._takes
        self._lock.release()
        command = None
        try:
            self._call(self._deliver, items)
            while True:
                began = perf_counter()
                with suppress(Empty):
                    command = self._commands.get(timeout=LOAN)
                    break
                takes, before = self._takes - before, self._takes
                if not takes or (self._limits.waiting and takes < PACE * (perf_counter() - began)):
                    break
                self._next_full_chunks = FIRST_FULL_CHUNKS
        finally:
            self._lock.acquire()
            self._lent = False
        if command is None:
            self._full_chunks, self._next_full_chunks = (
                self._next_full_chunks,
                min(2 * self._next_full_chunks, MOST_FULL_CHUNKS),
            )
        return command

    def _deliver_items(self, items: Sequence[FetchedItem]) -> None:
        self._posted += 1
        self._call(self._deliver, items)

    def _count(self, items: Sequence[FetchedItem]) -> None:
        """Count what is about to be delivered, and stop if the buffer is full."""
        records, size = count_records(items)
        self._limits.count_delivered(records, size)
        if records:
            self._most_to_take = max(1, min(TAKE, TAKE_BYTES * records // max(1, size)))
        if self._limits.is_full():
            # Before the delivery: the loop checks it after it has taken in the items, so it
            # cannot miss it.
            self._limits.stopped = True

    def _call(self, function: Callable[..., None], *args: object) -> None:
        if not post_to(self._token, partial(function, *args)):
            self._closing = True

    # Messages become items.

    def _items_of(self, chunk: list[confluent_kafka.Message]) -> list[FetchedItem]:
        """The items of a chunk, and what the error callback has left since the last one."""
        items = self._items(chunk) if chunk else []
        items += self._passed(items)
        # Behind the records that came with them, so that they carry the offset after those.
        errors, self._callback_errors = self._callback_errors, {}
        for (_, partition), error in errors.items():
            fetch = self._fetches.get(partition) if partition else None
            items.append(self._item_for_error(error, partition, fetch))
        return items

    def _passed(self, items: Sequence[FetchedItem]) -> list[FetchedItem]:
        """How far partitions of which these are the last records have been read beyond them."""
        read = {
            item.partition
            for item in items
            if isinstance(item, FetchedRun) and 0 < self._left(item.partition) <= NEAR_END
        }
        failed = {item.partition for item in items if isinstance(item, OutOfRange | Unreadable)}
        return self._passed_of(read - failed)

    def _passed_of(self, partitions: Collection[TopicPartition]) -> list[FetchedItem]:
        passed: list[FetchedItem] = []
        for name, (offset, epoch) in self._positions(partitions).items():
            fetch = self._fetches[name]
            if offset > fetch.next_offset:
                fetch.next_offset, fetch.leader_epoch = offset, epoch
                passed.append(PassedTo(name, fetch.fetch_id, offset, epoch))
        return passed

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
        for start, end in runs(chunk, topics=self._topics):
            messages = chunk[start:end]
            partition = _partition_of(messages[0])
            fetch = self._fetches.get(partition) if partition else None
            if partition is None or fetch is None:
                continue  # the partition was stopped
            first, last = messages[0].offset() or 0, messages[-1].offset() or 0
            if first < fetch.next_offset or last - first < len(messages) - 1:
                items += self._out_of_order(partition, fetch, messages)
                continue
            fetch.next_offset = last + 1
            fetch.leader_epoch = _known(messages[-1].leader_epoch())
            fetch.verifying = False
            self._read_watermark(partition)
            # confluent-kafka's stubs allow None where only a message to be produced has None.
            records = cast("Sequence[Message]", messages)
            size, epoch = _size_of(messages), fetch.leader_epoch
            items.append(FetchedRun(partition, fetch.fetch_id, records, size, epoch))
        return items

    def _out_of_order(
        self, partition: TopicPartition, fetch: _Fetch, messages: list[confluent_kafka.Message]
    ) -> list[FetchedItem]:
        """The records up to the first one that is not past all before it, and a fault."""
        sound = count_rising(messages, fetch.next_offset)
        items = self._runs(messages[:sound])
        reason = (
            f"a record with offset {messages[sound].offset()} came where {fetch.next_offset} was"
            " next; a batch of the log is malformed"
        )
        return [*items, Unreadable(partition, fetch.fetch_id, fetch.next_offset, reason)]

    def _read_watermarks_if_due(self) -> list[FetchedItem]:
        """Read those of all partitions, so that they are known of partitions without records too.

        librdkafka keeps what the last Fetch response said; nothing is requested.

        Returns:
            how far partitions have been read that have only markers up to there, and a fault of
            each that stands still.
        """
        now = monotonic()
        if now < self._watermarks_due:
            return []
        for partition in self._fetches:
            self._read_watermark(partition)
        items = self._passed_of(self._unread())
        if self._drained:
            items += self._standing_still()
        self._watermarks_due = now + max(WATERMARKS, len(self._fetches) / WATERMARKS_PER_SECOND)
        return items

    def _unread(self) -> list[TopicPartition]:
        """The partitions whose logs go on after what has arrived."""
        return [partition for partition in self._fetches if self._left(partition) > 0]

    def _left(self, partition: TopicPartition) -> int:
        """How many offsets the log has after what has arrived, as far as that is known."""
        return self._watermarks.get(partition, 0) - self._fetches[partition].next_offset

    def _standing_still(self) -> list[FetchedItem]:
        """A fault of each partition of which nothing arrives; nothing waits in librdkafka's queue.

        A transaction that is never ended does that, and so do some malformed batches, which
        librdkafka fetches again and again without an error.
        """
        faults: list[FetchedItem] = []
        for partition in self._unread():
            fetch = self._fetches[partition]
            if partition in self._held or fetch.waits_at != fetch.next_offset:
                fetch.waits_at, fetch.waits = fetch.next_offset, 0
                continue
            fetch.waits += 1
            if fetch.waits == STANDSTILL:
                committed_only = self._settings.get("isolation.level") == "read_committed"
                open_or = "a transaction is open there, or " if committed_only else ""
                reason = (
                    f"nothing has arrived from offset {fetch.next_offset} on for some time, and"
                    f" the log goes on to {self._watermarks[partition]}: {open_or}librdkafka cannot"
                    " read a batch there, without an error. kgroup goes on waiting;"
                    " generation.seek() passes such a batch"
                )
                faults.append(FetchFailure(partition, "STANDSTILL", reason))
        return faults

    def _read_watermark(self, partition: TopicPartition) -> None:
        try:
            _, high = self._consumer.get_watermark_offsets(_to_confluent(partition), cached=True)
        except KafkaException:
            return  # reading must not end for want of a number that is only reported
        if high >= 0:  # negative before the first Fetch response
            self._watermarks[partition] = high

    def _positions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The offsets after what librdkafka has returned of these, and after markers behind it.

        Each has the leader epoch of what is before it.
        """
        if not partitions:
            return {}
        try:
            found = self._consumer.position([_to_confluent(name) for name in partitions])
        except KafkaException:
            return {}  # as with watermarks
        return {
            TopicPartition(one.topic, one.partition): (one.offset, _known(one.leader_epoch))
            for one in found
        }

    def _fault(self, message: confluent_kafka.Message, error: KafkaError) -> list[FetchedItem]:
        partition = _partition_of(message)
        fetch = self._fetches.get(partition) if partition else None
        if partition is not None and fetch is None:
            return []  # the partition was stopped
        if partition is not None and fetch is not None and action_for(error) is ErrorAction.RESET:
            return self._out_of_range(partition, fetch, error)
        return [self._item_for_error(error, partition, fetch)]

    def _out_of_range(
        self, partition: TopicPartition, fetch: _Fetch, error: KafkaError
    ) -> list[FetchedItem]:
        truncation = truncation_in(error)
        if truncation is None:
            # The error may belong to an earlier fetch, or be outdated: fetch once more from the
            # wanted offset, and believe the result of that.
            believed, fetch.verifying = fetch.verifying, True
        else:
            believed = truncation.concerns(fetch.start_offset, fetch.next_offset)
        if not believed:
            self._post(lambda: self._verify(partition, fetch))
            return []
        divergent = truncation.end if truncation else None
        reason = describe_error(error)
        return [OutOfRange(partition, fetch.fetch_id, fetch.next_offset, reason, divergent)]

    def _verify(self, partition: TopicPartition, fetch: _Fetch) -> None:
        if self._fetches.get(partition) is fetch:
            self._fetch_again({partition: fetch})

    def _on_error(self, error: KafkaError) -> None:
        """Take an error from librdkafka's callback, which runs within ``poll`` and ``consume``."""
        self._lost_brokers.suspect(monotonic())
        if self._login is not None and error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001
            self._login.refused()
        self._callback_errors[error.code(), partition_in_text(error)] = error

    def _item_for_error(
        self,
        error: KafkaError,
        partition: TopicPartition | None,
        fetch: _Fetch | None,
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


def _only_wake() -> None:
    """A command that only wakes the thread."""


def _to_confluent(
    partition: TopicPartition,
    offset: int = confluent_kafka.OFFSET_INVALID,
    leader_epoch: int = NO_EPOCH,
) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(
        partition.topic, partition.partition, offset, leader_epoch=leader_epoch
    )


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
