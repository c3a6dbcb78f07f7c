"""Consumers of one Python worker process, kept between the tasks that it runs.

Making a Consumer costs connections, metadata and threads; a worker runs thousands of tasks. So a
task borrows one that was made with the same settings, and for ranges as large as its own, and gives
it back. One that nobody borrowed for a while is closed by a timer.

INVARIANTS
- A consumer is borrowed by one task at a time.
- One that is given back fetches nothing; one whose task failed is closed and not given again.
- A process that was forked uses none of its parent's: librdkafka's threads are not in it.

Left to others: what is read (``kgroup.spark.range_reader``).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from kgroup.errors import FetchError
from kgroup.records.librdkafka_messages import ErrorAction, action_for, describe_error
from kgroup.records.librdkafka_settings import LOGGER
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import LEAST_UNKNOWN, Seen, Sizes
from kgroup.types import TopicPartition

IDLE_TIMEOUT: Final = 30.0
"""Seconds; a worker that gets no task for so long keeps no connection."""
MOST_RECORDS: Final = 100_000
"""The most records that are fetched ahead."""
PORTIONS: Final = tuple(1 << bits for bits in range(16, 23))
"""Bytes of a partition that one fetch brings where the ranges are no larger: 64 KiB to 4 MiB."""
AT_ONCE: Final = 1 << 25
"""Bytes that all ranges of a task may have together to be fetched so; an answer of a broker has
room for half as much again (``fetch.max.bytes``)."""
FRAME: Final = 16
"""Bytes of a record in the log beside its key and value, about."""

OpenConsumer = Callable[[dict[str, Any]], Any]
"""Makes a ``confluent_kafka.Consumer`` of its settings."""


def portion_of(size: int) -> int | None:
    """The portion in which a range of about so many bytes is fetched; None for ever more ahead."""
    return next((portion for portion in PORTIONS if size * 5 <= portion * 4), None)


def consumer_settings(settings: ReaderSettings, portion: int | None = None) -> dict[str, Any]:
    """What a Consumer is made with, secrets included: for librdkafka only.

    Args:
        settings: of the reader.
        portion: bytes of a partition that one fetch brings, and then no further one before all of
            it was taken; None for as much ahead as the settings allow.

    Raises:
        ConfigError: a reference to a secret leads nowhere.
    """
    ahead = {"queued.min.messages": MOST_RECORDS}
    if portion is not None:
        # Left alone, librdkafka would go on behind a range's end until the task ends: brokers
        # would send many times what a small range has, for nothing.
        ahead = {"queued.min.messages": 1, "fetch.message.max.bytes": portion}
    kilobytes = max(1, min(2_097_151, settings.max_buffered_bytes // 1024))
    return {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "group.id": settings.group_id,
        "client.id": settings.client_id,
        "isolation.level": settings.isolation_level.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Out of range is an error: what is gone must not be skipped in silence.
        "auto.offset.reset": "error",
        # The end of a log says that nothing more comes of a range whose last offsets hold no
        # record (control records, aborted transactions, what compaction removed).
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "check.crcs": True,
        # By default a partition whose queue was full is left alone for a second.
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 100,
        # A broker answers one Fetch at a time: one that waits at a log's end would delay the
        # next range. A range is planned from what is there, so waiting is the exception.
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": kilobytes,
        **ahead,
        "topic.metadata.propagation.max.ms": 1000,
        "max.poll.interval.ms": 86_400_000,
        # How the position moves over what brings no record; see PooledConsumer.positions.
        "statistics.interval.ms": max(100, min(5000, int(settings.no_progress_timeout * 250))),
        "log.connection.close": False,
        **dict(settings.client),
        **settings.resolve(),
    }


@final
class PooledConsumer:
    """A Consumer in ``assign()`` mode, with what its callbacks told last.

    Args:
        settings: what it is for.
        portion: of what ranges; see ``consumer_settings``.
        open_consumer: makes the Consumer.

    Raises:
        ConfigError: a reference to a secret leads nowhere.
        FetchError: librdkafka refuses the settings.
    """

    def __init__(
        self, settings: ReaderSettings, portion: int | None, open_consumer: OpenConsumer
    ) -> None:
        self.settings = settings
        self.portion = portion
        self.idle_since = 0.0
        self.trouble = ""
        self._fatal: KafkaError | None = None
        self._statistics = "{}"
        self._assigned: set[TopicPartition] = set()
        callbacks = {"error_cb": self._on_error, "stats_cb": self._on_statistics, "logger": LOGGER}
        try:
            self._consumer = open_consumer({**consumer_settings(settings, portion), **callbacks})
        except KafkaException as error:
            raise FetchError(
                f"librdkafka could not be started: {describe_error(error.args[0])}"
            ) from error

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these from their offsets on; one that is fetched already, from there anew."""
        self.stop(positions.keys() & self._assigned)
        self._consumer.incremental_assign(
            [
                confluent_kafka.TopicPartition(name.topic, name.partition, offset)
                for name, offset in positions.items()
            ]
        )
        self._assigned.update(positions)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more."""
        names = [confluent_kafka.TopicPartition(name.topic, name.partition) for name in partitions]
        if names:
            self._consumer.incremental_unassign(names)
            self._assigned.difference_update(
                TopicPartition(name.topic, name.partition) for name in names
            )

    def take(self, most: int, timeout: float) -> list[Message]:
        """Up to so many messages and errors that are there, or the first within the time.

        Raises:
            FetchError: librdkafka has failed for good.
        """
        try:
            # consume() alone would wait the whole time for a list that is not full.
            first = self._consumer.poll(timeout)
            chunk = [] if first is None else [first]
            if chunk and most > 1:
                chunk += self._consumer.consume(most - 1, 0)
        except KafkaException as error:
            raise FetchError(f"librdkafka failed: {describe_error(error.args[0])}") from error
        if self._fatal is not None:
            raise FetchError(f"librdkafka failed: {describe_error(self._fatal)}")
        return chunk

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset that is fetched of each partition, as of librdkafka's last statistics.

        It moves also where no record comes, over aborted transactions for example.
        """
        topics = json.loads(self._statistics).get("topics", {})
        return {
            name: topics[name.topic]["partitions"][str(name.partition)]["next_offset"]
            for name in self._assigned
            if str(name.partition) in topics.get(name.topic, {}).get("partitions", {})
        }

    def bounds(self, partition: TopicPartition, timeout: float) -> tuple[int, int] | None:
        """The first offset of a partition's log and the one after its last, or None."""
        name = confluent_kafka.TopicPartition(partition.topic, partition.partition)
        try:
            found: tuple[int, int] | None = self._consumer.get_watermark_offsets(
                name, timeout=timeout
            )
        except KafkaException:
            return None
        return found

    def exists(self, partition: TopicPartition, timeout: float) -> bool | None:
        """Whether the brokers know a partition; None where none of them can be asked."""
        try:
            topics = self._consumer.list_topics(partition.topic, timeout=timeout).topics
        except KafkaException:
            return None
        topic = topics.get(partition.topic)
        if topic is None or (topic.error and topic.error.code() in _UNKNOWN):
            return False
        return None if topic.error else partition.partition in topic.partitions

    def rest(self) -> None:
        """Fetch nothing, and forget what was told."""
        self._consumer.unassign()
        self._assigned.clear()
        self.trouble = ""
        self._statistics = "{}"

    def close(self) -> None:
        """End it."""
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if action_for(error) is ErrorAction.FAIL and error.fatal():
            self._fatal = error
        self.trouble = describe_error(error)

    def _on_statistics(self, told: str) -> None:
        self._statistics = told


_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001


@final
class Pool:
    """The consumers of this process that no task holds.

    Attributes:
        made: how many consumers were made in this process.

    Args:
        open_consumer: makes a Consumer; for tests.
        idle_timeout: seconds after which one that nobody borrowed is closed.
    """

    def __init__(
        self,
        open_consumer: OpenConsumer = confluent_kafka.Consumer,
        *,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.made = 0
        self._open_consumer = open_consumer
        self._idle_timeout = idle_timeout
        self._idle: list[PooledConsumer] = []
        self._lost: list[PooledConsumer] = []
        self._sizes = Sizes(unknown=LEAST_UNKNOWN)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    @contextmanager
    def borrow(
        self, settings: ReaderSettings, ranges: Collection[OffsetRange]
    ) -> Iterator[PooledConsumer]:
        """A consumer of these settings that suits these ranges; it fetches nothing yet.

        It is given back at the end, also when the reader was ended midway (its generator
        closed); after any other exception it is closed.

        Raises:
            ConfigError: a reference to a secret leads nowhere.
            FetchError: librdkafka refuses the settings.
        """
        consumer = self._take(settings, self._portion(ranges))
        try:
            yield consumer
        except GeneratorExit:
            self._give_back(consumer)
            raise
        except BaseException:
            consumer.close()
            raise
        self._give_back(consumer)

    def learn(self, ranges: Iterable[OffsetRange], seen: Mapping[TopicPartition, Seen]) -> None:
        """What ranges have brought: how much the next ones will bring is estimated from it."""
        with self._lock:
            self._sizes = self._sizes.after(ranges, seen)

    def close(self) -> None:
        """Close those that nobody holds."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._stop_timer()
        for consumer in idle:
            consumer.close()

    def _portion(self, ranges: Iterable[OffsetRange]) -> int | None:
        sizes = [self._sizes.bytes_of([part]) + FRAME * (part.end - part.start) for part in ranges]
        return None if sum(sizes) > AT_ONCE else portion_of(max(sizes, default=0))

    def _take(self, settings: ReaderSettings, portion: int | None) -> PooledConsumer:
        # One that brings up to twice as much is there already, and does it as well.
        suits = {portion} if portion is None else {portion, 2 * portion}
        with self._lock:
            for consumer in self._idle:
                if consumer.settings == settings and consumer.portion in suits:
                    self._idle.remove(consumer)
                    return consumer
            self.made += 1
        return PooledConsumer(settings, portion, self._open_consumer)

    def _give_back(self, consumer: PooledConsumer) -> None:
        consumer.rest()
        with self._lock:
            consumer.idle_since = time.monotonic()
            self._idle.append(consumer)
            if self._timer is None:
                self._start_timer()

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self._idle_timeout, self._close_idle)
        self._timer.name = "kgroup-spark-pool"
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _close_idle(self) -> None:
        """Close what was idle for long enough; look again later if anything is left."""
        before = time.monotonic() - self._idle_timeout
        with self._lock:
            over = [consumer for consumer in self._idle if consumer.idle_since <= before]
            self._idle = [consumer for consumer in self._idle if consumer.idle_since > before]
            self._timer = None
            if self._idle:
                self._start_timer()
        for consumer in over:
            consumer.close()

    def _after_fork(self) -> None:
        # Kept for ever: freeing one would wait for threads that this process does not have.
        self._lost += self._idle
        self._idle = []
        self._timer = None
        self._lock = threading.Lock()
        self.made = 0


POOL: Final = Pool()
"""The pool of this process."""
