"""The consumers of one Python worker process, kept between the tasks that it runs.

Creating a Consumer costs connections, metadata requests and threads, and a worker runs thousands of
tasks. So a task borrows a consumer that was created with the same settings and for ranges of about
the same size, and returns it. A timer closes consumers that stay idle.

INVARIANTS
- A consumer is borrowed by one task at a time.
- An idle consumer fetches nothing; a consumer whose task failed is closed and never reused.
- A forked process uses none of its parent's consumers: librdkafka's threads do not exist in it.
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
from kgroup.records.librdkafka_messages import (
    ErrorAction,
    action_for,
    close_consumer,
    describe_error,
    describe_undecoded,
)
from kgroup.records.librdkafka_settings import LOG
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import MIN_UNKNOWN_BYTES, ReadCounts, SizeEstimates
from kgroup.types import TopicPartition, by_topic

IDLE_TIMEOUT: Final = 30.0
"""Seconds after which an idle consumer is closed."""
MAX_QUEUED_RECORDS: Final = 100_000
"""The most records that are fetched ahead (``queued.min.messages``)."""
FETCH_SIZES: Final = tuple(1 << bits for bits in range(16, 23))
"""The sizes of a fetch of one partition for ranges that are no larger: 64 KiB to 4 MiB."""
MAX_TASK_BYTES: Final = 1 << 25
"""The most bytes of all ranges of a task for which fetches are limited; a broker's response has
room for half as much again (``fetch.max.bytes``)."""
RECORD_OVERHEAD: Final = 16
"""About how many bytes of a record the log stores in addition to its key and value."""

OpenConsumer = Callable[[dict[str, Any]], Any]
"""Creates a ``confluent_kafka.Consumer`` from its settings."""


def fetch_bytes_for(size: int) -> int | None:
    """The size of a fetch for a range of about so many bytes; None if it is larger than all."""
    return next((fetch_bytes for fetch_bytes in FETCH_SIZES if size * 5 <= fetch_bytes * 4), None)


def consumer_settings(settings: ReaderSettings, fetch_bytes: int | None = None) -> dict[str, Any]:
    """The librdkafka settings of a Consumer, with resolved secrets; they must not be logged.

    Args:
        settings: the reader's settings.
        fetch_bytes: how many bytes of a partition one fetch may return; the next fetch is sent
            only when they were consumed. None to fetch as far ahead as the settings allow.

    Raises:
        ConfigError: a reference to a secret cannot be resolved.
    """
    ahead = {"queued.min.messages": MAX_QUEUED_RECORDS}
    if fetch_bytes is not None:
        # By default librdkafka fetches on past a range's end until the task ends: brokers would
        # send many times the size of a small range for nothing.
        ahead = {"queued.min.messages": 1, "fetch.message.max.bytes": fetch_bytes}
    kilobytes = max(1, min(2_097_151, settings.max_buffered_bytes // 1024))
    return {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "group.id": settings.group_id,
        "client.id": settings.client_id,
        "isolation.level": settings.isolation_level.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Out of range is an error: deleted records must not be skipped without notice.
        "auto.offset.reset": "error",
        # The last offsets of a range may have no record (control records, aborted transactions,
        # compaction). Then only the end of the log shows that nothing more comes.
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "check.crcs": True,
        # By default librdkafka does not fetch from a partition for a second after its queue was
        # full.
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 100,
        # A broker handles one Fetch of a connection at a time: a Fetch that waits at a log's end
        # would delay the next range. Ranges end within the log, so waiting is the exception.
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": kilobytes,
        **ahead,
        "topic.metadata.propagation.max.ms": 1000,
        "max.poll.interval.ms": 86_400_000,
        # The statistics show the position where no record comes; see PooledConsumer.positions.
        "statistics.interval.ms": max(100, min(5000, int(settings.no_progress_timeout * 250))),
        "log.connection.close": False,
        **dict(settings.client),
        **settings.resolve(),
    }


@final
class PooledConsumer:
    """A Consumer in ``assign()`` mode, with the latest reports of its callbacks.

    Attributes:
        last_error: the last error that librdkafka reported, as text; empty if there was none.

    Args:
        settings: the reader's settings.
        fetch_bytes: how much one fetch may return; see `consumer_settings`.
        open_consumer: creates the Consumer.

    Raises:
        ConfigError: a reference to a secret cannot be resolved.
        FetchError: librdkafka refuses the settings.
    """

    def __init__(
        self, settings: ReaderSettings, fetch_bytes: int | None, open_consumer: OpenConsumer
    ) -> None:
        self.settings = settings
        self.fetch_bytes = fetch_bytes
        self.idle_since = 0.0
        self.last_error = ""
        self._fatal: KafkaError | None = None
        self._statistics = "{}"
        self._assigned: set[TopicPartition] = set()
        callbacks = {"error_cb": self._on_error, "stats_cb": self._on_statistics, "logger": LOG}
        try:
            self._consumer = open_consumer(
                {**consumer_settings(settings, fetch_bytes), **callbacks}
            )
        except KafkaException as error:
            raise FetchError(
                f"librdkafka refused the consumer's settings: {describe_error(error.args[0])}"
            ) from error

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these offsets; an assigned one restarts there."""
        self.unassign(positions.keys() & self._assigned)
        self._consumer.incremental_assign(
            [
                confluent_kafka.TopicPartition(name.topic, name.partition, offset)
                for name, offset in positions.items()
            ]
        )
        self._assigned.update(positions)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        names = [confluent_kafka.TopicPartition(name.topic, name.partition) for name in partitions]
        if names:
            self._consumer.incremental_unassign(names)
            self._assigned.difference_update(
                TopicPartition(name.topic, name.partition) for name in names
            )

    def poll(self, most: int, timeout: float) -> list[Message]:
        """Return up to so many messages and errors: those in the queue, or the first to come.

        Args:
            most: the most messages.
            timeout: seconds to wait for the first one.

        Raises:
            FetchError: librdkafka reported a fatal error, or a text that is no UTF-8.
        """
        try:
            # consume() alone would wait for the whole timeout if the list does not become full.
            first = self._consumer.poll(timeout)
            chunk = [] if first is None else [first]
            if chunk and most > 1:
                chunk += self._consumer.consume(most - 1, 0)
        except KafkaException as error:
            raise FetchError(f"librdkafka failed: {describe_error(error.args[0])}") from error
        except UnicodeDecodeError as error:  # the messages that it had taken are lost
            raise FetchError(describe_undecoded(error)) from error
        if self._fatal is not None:
            raise FetchError(f"librdkafka failed: {describe_error(self._fatal)}")
        return chunk

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to fetch of each partition, from librdkafka's latest statistics.

        It also advances where there are no records, for example over aborted transactions.
        """
        topics = json.loads(self._statistics).get("topics", {})
        return {
            name: topics[name.topic]["partitions"][str(name.partition)]["next_offset"]
            for name in self._assigned
            if str(name.partition) in topics.get(name.topic, {}).get("partitions", {})
        }

    def watermarks(self, partition: TopicPartition, timeout: float) -> tuple[int, int] | None:
        """The low and high watermarks of a partition; None if no broker answers."""
        name = confluent_kafka.TopicPartition(partition.topic, partition.partition)
        try:
            found: tuple[int, int] | None = self._consumer.get_watermark_offsets(
                name, timeout=timeout
            )
        except KafkaException:
            return None
        return found

    def missing(
        self, partitions: Iterable[TopicPartition], timeout: float
    ) -> TopicPartition | None:
        """The first of these partitions that the cluster does not have.

        None if it has all, or if no broker answers: the search ends there, so that many topics do
        not take many times as long.

        Args:
            partitions: those to look for.
            timeout: seconds that all requests, one for each topic, may take together.
        """
        until = time.monotonic() + timeout
        for topic, numbers in by_topic(partitions).items():
            left = until - time.monotonic()
            if left <= 0:
                return None
            try:
                found = self._consumer.list_topics(topic, timeout=left).topics.get(topic)
            except KafkaException:
                return None
            if found is None or (found.error and found.error.code() in _UNKNOWN):
                return TopicPartition(topic, min(numbers))
            gone = set() if found.error else set(numbers) - found.partitions.keys()
            if gone:
                return TopicPartition(topic, min(gone))
        return None

    def reset(self) -> None:
        """Stop fetching, and forget the callbacks' reports."""
        self._consumer.unassign()
        self._assigned.clear()
        self.last_error = ""
        self._statistics = "{}"

    def close(self) -> None:
        """Close the Consumer."""
        close_consumer(self._consumer)

    def _on_error(self, error: KafkaError) -> None:
        if action_for(error) is ErrorAction.FAIL and error.fatal():
            self._fatal = error
        self.last_error = describe_error(error)

    def _on_statistics(self, statistics: str) -> None:
        self._statistics = statistics


_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001


@final
class ConsumerPool:
    """The consumers of this process that no task has borrowed.

    Attributes:
        created: how many consumers were created in this process.

    Args:
        open_consumer: creates a Consumer; tests give their own.
        idle_timeout: seconds after which an idle consumer is closed.
    """

    def __init__(
        self,
        open_consumer: OpenConsumer = confluent_kafka.Consumer,
        *,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.created = 0
        self._open_consumer = open_consumer
        self._idle_timeout = idle_timeout
        self._idle: list[PooledConsumer] = []
        self._before_fork: list[PooledConsumer] = []
        self._sizes = SizeEstimates(unknown=MIN_UNKNOWN_BYTES)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    @contextmanager
    def borrow(
        self, settings: ReaderSettings, ranges: Collection[OffsetRange]
    ) -> Iterator[PooledConsumer]:
        """Borrow a consumer with these settings that suits these ranges; it fetches nothing yet.

        It is returned at the end, also if the reader stops early (its generator is closed); after
        any other exception it is closed.

        Raises:
            ConfigError: a reference to a secret cannot be resolved.
            FetchError: librdkafka refuses the settings.
        """
        consumer = self._borrowed_or_new(settings, self._fetch_bytes(ranges))
        try:
            yield consumer
        except GeneratorExit:
            self._give_back(consumer)
            raise
        except BaseException:
            consumer.close()
            raise
        self._give_back(consumer)

    def record_sizes(
        self, ranges: Iterable[OffsetRange], counts: Mapping[TopicPartition, ReadCounts]
    ) -> None:
        """Record how large the records of ranges were, to estimate the next ones."""
        with self._lock:
            self._sizes = self._sizes.after(ranges, counts)

    def close(self) -> None:
        """Close the idle consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._stop_timer()
        for consumer in idle:
            consumer.close()

    def _fetch_bytes(self, ranges: Iterable[OffsetRange]) -> int | None:
        sizes = [
            self._sizes.estimated_bytes([part]) + RECORD_OVERHEAD * (part.end - part.start)
            for part in ranges
        ]
        return None if sum(sizes) > MAX_TASK_BYTES else fetch_bytes_for(max(sizes, default=0))

    def _borrowed_or_new(self, settings: ReaderSettings, fetch_bytes: int | None) -> PooledConsumer:
        # A consumer whose fetches are twice as large suits the ranges as well.
        suits = {fetch_bytes} if fetch_bytes is None else {fetch_bytes, 2 * fetch_bytes}
        with self._lock:
            for consumer in self._idle:
                if consumer.settings == settings and consumer.fetch_bytes in suits:
                    self._idle.remove(consumer)
                    return consumer
            self.created += 1
        return PooledConsumer(settings, fetch_bytes, self._open_consumer)

    def _give_back(self, consumer: PooledConsumer) -> None:
        consumer.reset()
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
        """Close the consumers that were idle for too long; start the timer again for the others."""
        limit = time.monotonic() - self._idle_timeout
        with self._lock:
            expired = [consumer for consumer in self._idle if consumer.idle_since <= limit]
            self._idle = [consumer for consumer in self._idle if consumer.idle_since > limit]
            self._timer = None
            if self._idle:
                self._start_timer()
        for consumer in expired:
            consumer.close()

    def _after_fork(self) -> None:
        # The parent's consumers are never freed: that would wait for librdkafka's threads, which
        # do not exist in this process.
        self._before_fork += self._idle
        self._idle = []
        self._timer = None
        self._lock = threading.Lock()
        self.created = 0


POOL: Final = ConsumerPool()
"""The pool of this process."""
