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
Two objects do the rest, and only who holds the lock uses them: ``kgroup.records.consumer_fetches``
knows the partitions that are fetched, and ``kgroup.records.fetched_items`` makes what is delivered
from librdkafka's messages.

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
- What this thread has delivered can be outdated when the event loop takes it in, because a command
  was on its way in the other direction. The source drops that by its fetch id.
- Its log lines and errors can quote a broker's bytes. confluent-kafka raises where they are no
  UTF-8, and loses what it was about to return, so that all is fetched again (`_fetch_all_again`).
- It calls the error callback within ``poll`` and ``consume``, so in this thread. Until then errors
  and log lines wait in the Consumer's queue, which has no limit: without a broker, eighty of each
  in a second. So a Consumer is polled now and then also while there is nothing to poll for.
- It takes a token by a callback, and other credentials and certificates only in part
  (``kgroup.records.consumer_login``): once files of certificates have changed, the thread makes
  another Consumer.
- It can lose all its brokers for good, while they are there. The thread then replaces the Consumer
  (``kgroup.records.lost_brokers``).
- It never forgets the leader epochs of partitions (``replace_consumer``).
- A Consumer begins with ``bootstrap.servers``. All brokers may have got new addresses since the
  program started, so a Consumer that is made later gets those that are known by then, too.

Source: confluent-kafka 2.16's ``Consumer.c``. The group protocol of librdkafka is not used.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any, Final, final

import confluent_kafka
import trio
from confluent_kafka import KafkaError

from kgroup.records.buffer import BufferLimits
from kgroup.records.consumer_fetches import ConsumerFetches
from kgroup.records.consumer_login import ConsumerLogin
from kgroup.records.fetched_items import ItemConverter
from kgroup.records.fetcher import (
    FetchedItem,
    FetchedRun,
    FetcherBroken,
    FetchFailure,
    FetchStart,
    PassedTo,
    count_records,
)
from kgroup.records.librdkafka_messages import close_consumer, describe_undecoded
from kgroup.records.librdkafka_settings import LOG, with_known
from kgroup.records.lost_brokers import LostBrokers
from kgroup.records.topic_requests import has_broker
from kgroup.security.secret import without_locals
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
LOAN: Final = 0.02
"""Seconds after which the thread checks whether the readers make use of the loan."""
PACE: Final = 1000.0
"""How often in a second they have to take if another reader waits. Readers that do next to nothing
with a record take four times as often. If slower ones cannot go on by themselves for some time,
that costs them little: taking is a small part of what they do."""
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

_CREATED_AGAIN: Final = (
    "a topic was deleted and created again; another Consumer, without what librdkafka knows of the"
    " old topic, continues where the last one was"
)

OpenConsumer = Callable[[dict[str, Any]], confluent_kafka.Consumer]
"""Makes a Consumer from its settings."""


@final
class ConsumerThread:
    """A ``Fetcher`` over a Consumer in a thread of its own.

    Args:
        name: the thread's name.
        settings: the settings of the Consumer; the thread adds its callbacks.
        limits: the counts that it shares with the source.
        open_consumer: makes the Consumer.
        lends: whether the event loop may take. If several members share the Consumer, it does not.
        addresses: returns the brokers' addresses as the control plane knows them by now; it is
            called in the thread, for each Consumer that it makes.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        limits: BufferLimits,
        open_consumer: OpenConsumer,
        *,
        lends: bool = True,
        addresses: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._settings = dict(settings)
        self._limits = limits
        self._open_consumer = open_consumer
        self._lending = lends
        self._addresses = addresses
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
        self._fetches = ConsumerFetches()
        committed_only = settings.get("isolation.level") == "read_committed"
        self._items = ItemConverter(self._fetches, self._post, committed_only=committed_only)
        self._drained = False
        """Whether the last poll has found nothing in librdkafka's queue."""
        self._active = False
        self._outdated = False
        self._closing = False
        self._idle_poll_due = 0.0
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

        If the system has no thread left, the fetcher is broken. It raises nothing, because it is
        also called while records are delivered, where an exception would end the event loop.

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
        try:
            self.thread.start()
        except RuntimeError as error:
            reason = f"the thread {self.thread.name} could not be started: {error}"
            self._deliver_items([FetcherBroken(reason, error)])
            self._call(ended)

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
        self._post(partial(self._fetches.prepare, topics, frozenset(subscribed)))

    def replace_consumer(self) -> None:
        """Continue in another Consumer, because a topic was deleted and created again.

        librdkafka keeps the leader epochs of partitions that it has fetched. Those of the new topic
        begin at 0: it would take them for outdated, and fetch with the old one, without an error,
        until a leader has changed as often as those of the old topic had.
        """
        self._post(self._outdate)

    def activate(self) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._set_active(active=True))

    def deactivate(self) -> None:
        """See ``Fetcher``."""
        self._post(lambda: self._set_active(active=False))

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        self._post(partial(self._fetches.add_starts, starts))

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._post(partial(self._fetches.add_stops, partitions))

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._post(partial(self._fetches.hold, partitions))

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._post(partial(self._fetches.release, partitions))

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
        return self._fetches.high_watermark(partition)

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
            items = self._items.items_of(chunk)
            self._count(items)
            items += self._items.read_watermarks_if_due(monotonic(), drained=False)
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
        self._fetches.use(self._consumer)
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
                passed = self._items.read_watermarks_if_due(monotonic(), drained=self._drained)
                if passed:
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

    @without_locals()
    def _new_consumer(self) -> confluent_kafka.Consumer:
        self._lost_brokers = LostBrokers(monotonic())
        self._idle_poll_due = monotonic() + IDLE_POLL
        login = {} if self._login is None else self._login.settings()
        callbacks = {"error_cb": self._on_error, "logger": LOG}
        servers = with_known(self._settings, self._addresses())
        return self._open_consumer({**self._settings, **servers, **login, **callbacks})

    def _apply_login(self) -> None:
        if self._login is not None:
            self._login.apply(self._consumer)

    def _check_brokers(self) -> None:
        """Replace the Consumer if it has lost its brokers (``kgroup.records.lost_brokers``)."""
        now = monotonic()
        if has_broker(self._consumer, next(iter(self._fetches.by_partition)).topic):
            self._lost_brokers.connected(now)
        elif self._lost_brokers.must_replace(now) and self._can_log_in():
            self._replace_consumer("NO_BROKER", _REPLACED)

    def _can_log_in(self) -> bool:
        """Whether another Consumer can be made now; while there is no token, the last one stays.

        ``Consumer(...)`` would wait 10 s for the token and then raise, which would end the thread.
        """
        return self._login is None or self._login.ready

    def _replace_consumer(self, error: str, reason: str) -> None:
        """Continue every fetch in another Consumer, after the last record that arrived.

        Only if ``_can_log_in``.
        """
        self._outdated = False
        old, self._consumer = self._consumer, self._new_consumer()
        close_consumer(old)
        self._fetches.use(self._consumer)
        self._deliver_items([FetchFailure(None, error, reason)])

    def _fetch_all_again(self, error: UnicodeDecodeError) -> None:
        """Begin every fetch again after the last record that arrived, because messages are lost.

        confluent-kafka decodes librdkafka's log lines within ``poll`` and ``consume``. A line may
        quote what a broker has sent, such as the host name of another one. If that is no UTF-8, the
        call raises, and drops the messages that it had taken.
        """
        self._fetches.begin_all_again()
        self._deliver_items([FetchFailure(None, "INVALID_TEXT", describe_undecoded(error))])

    def _may_poll(self) -> bool:
        return self._active and bool(self._fetches.by_partition) and not self._limits.stopped

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
            changed = self._fetches.apply()
            many = changed and self._fetches.former_topics() > MOST_FORMER_TOPICS
            if self._outdated and self._can_log_in():
                self._replace_consumer("TOPIC_CREATED_AGAIN", _CREATED_AGAIN)
            elif many and self._can_log_in():
                self._replace_consumer("FORMER_TOPICS", _WITHOUT_FORMER)
        for _ in range(count):
            self._unapplied.popleft()

    def _next_command(self) -> Callable[[], None]:
        if self._may_poll():
            return self._commands.get(block=False)
        return self._commands.get(timeout=max(0.0, self._idle_poll_due - monotonic()))

    def _outdate(self) -> None:
        self._outdated = True

    def _set_active(self, *, active: bool) -> None:
        self._active = active

    def _close(self) -> None:
        self._closing = True

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
        if items := self._items.items_of(chunk):
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
        if self._fetches.by_partition:
            if not self._lost_brokers.must_check(now):
                return
            if has_broker(self._consumer, next(iter(self._fetches.by_partition)).topic):
                self._lost_brokers.connected(now)
                return
        chunk = self._poll(0)
        if chunk and self._fetches.by_partition:
            # What it says of a partition it says again; other errors have come by the callback, and
            # stay for the next delivery.
            self._fetches.begin_all_again()
        elif chunk:
            self._deliver_items(self._items.items_of(chunk))

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

    def _on_error(self, error: KafkaError) -> None:
        """Take an error from librdkafka's callback, which runs within ``poll`` and ``consume``."""
        self._lost_brokers.suspect(monotonic())
        if self._login is not None and error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001
            self._login.refused()
        self._items.add_error(error)


def _only_wake() -> None:
    """A command that only wakes the thread."""
