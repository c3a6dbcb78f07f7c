"""``LibrdkafkaSource``: records of a real broker, fetched by librdkafka.

It connects a ``ConsumerThread`` with the queues that all sources share
(``kgroup.records.buffered_source``) and manages the thread's life: the thread starts at entry and
is joined at exit, or is reported with its stack if it does not end in time. A thread that died, or
whose Consumer failed, is replaced when the next generation begins.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Collection, Sequence
from typing import final

import confluent_kafka
import trio

from kgroup.config import GroupConfig
from kgroup.errors import FetchError
from kgroup.records.buffer import BufferLimits
from kgroup.records.buffered_source import BufferedSource, OnFault
from kgroup.records.consumer_thread import ConsumerThread, OpenConsumer
from kgroup.records.fetcher import FetchedItem
from kgroup.records.librdkafka_settings import consumer_settings
from kgroup.types import name_fault


@final
class LibrdkafkaSource(BufferedSource):
    """Reads partitions with confluent-kafka; a ``RecordSource`` for one member.

    Messages are ``confluent_kafka.Message``. A batch's ``next_offset`` is its last record's
    offset + 1, also where a transaction's marker follows, so a group that has read everything
    can lag by the markers at the end of its partitions.

    If a topic is deleted, its partitions are fetched again and again, and ``on_fault`` reports it.
    If it is created again, reading continues at the position if the new log has that offset;
    otherwise the position is out of range.

    Args:
        config: the member's settings.
        on_fault: reports faults that are retried.
        open_consumer: makes the Consumer; tests pass their own.
    """

    def __init__(
        self,
        config: GroupConfig,
        on_fault: OnFault,
        *,
        open_consumer: OpenConsumer = confluent_kafka.Consumer,
    ) -> None:
        self._config = config
        self._open_consumer = open_consumer
        self._close_timeout = config.close_timeout
        self._started = trio.Event()
        self._ended: dict[ConsumerThread, trio.Event] = {}
        thread, limits = self._new_thread()
        self._thread = thread
        super().__init__(thread, limits, on_fault)

    async def __aenter__(self) -> LibrdkafkaSource:
        """Start the Consumer's thread; no partition is read yet.

        Raises:
            FetchError: librdkafka could not be started with these settings.

        Cancellation: the thread is closed first, which takes up to ``close_timeout``.
        """
        self._launch(self._thread)
        try:
            await self._started.wait()
        except trio.Cancelled:
            await self._close()
            raise
        if self._broken is not None:
            await self._close()
            raise FetchError(
                f"librdkafka could not be started: {self._broken.reason}"
            ) from self._broken.cause
        return self

    async def __aexit__(self, *details: object) -> None:
        """Stop fetching and join the thread, within ``close_timeout``.

        If a scope around it has an earlier deadline, that deadline counts. A thread that still
        runs then is reported to ``on_fault`` with its stack; it no longer affects the group.

        Cancellation: it waits all the same, up to the same deadline.
        """
        await self._close()

    def prepare(self, topics: Collection[str]) -> None:
        """Request the leaders of these topics while the member joins; see ``RecordSource``."""
        # librdkafka ends the whole process on some impossible names.
        self._thread.prepare([topic for topic in topics if name_fault(topic) is None])

    async def _close(self) -> None:
        self.close_queues()
        for thread in self._ended:
            thread.end()
        began = trio.current_time()
        deadline, around = began + self._close_timeout, trio.current_effective_deadline()
        if began < around < deadline:  # it is minus infinity in a scope that was cancelled
            deadline = around
        with trio.CancelScope(shield=True, deadline=deadline):
            for ended in self._ended.values():
                await ended.wait()
        self._join_ended()
        for thread in self._ended:
            self._report_left_behind(thread.thread, deadline - began)

    def _report_left_behind(self, thread: threading.Thread, seconds: float) -> None:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to it
        stack = "".join(traceback.format_stack(frame)) if frame else "(nowhere)"
        self._on_fault(
            None,
            f"thread {thread.name} did not end within {seconds:.3g} s and is left behind;"
            f" it is at:\n{stack}",
        )

    def _new_thread(self) -> tuple[ConsumerThread, BufferLimits]:
        """Make a thread, which is not started yet, and its limits."""
        config = self._config
        limits = BufferLimits(config.max_buffered_records, config.max_buffered_bytes)
        name = f"kgroup-records-{config.group_id}"
        return ConsumerThread(name, consumer_settings(config), limits, self._open_consumer), limits

    def _launch(self, thread: ConsumerThread) -> None:
        ended = self._ended[thread] = trio.Event()

        def on_ended() -> None:
            self._started.set()
            ended.set()

        def deliver(items: Sequence[FetchedItem]) -> None:
            # INVARIANT: nothing is taken from a thread that was replaced. Its records are counted
            # in limits of its own.
            if thread is self._thread:
                self.deliver(items)

        thread.launch(deliver, self._started.set, on_ended)

    def _replace_fetcher(self) -> None:
        """End the thread if it still runs, and start another one."""
        self._thread.end()
        self._join_ended()
        self._thread, self._limits = self._new_thread()
        self._fetcher = self._thread
        self._launch(self._thread)

    def _join_ended(self) -> None:
        """Join the threads that have reported their end, which is their last step."""
        for thread in [thread for thread, ended in self._ended.items() if ended.is_set()]:
            thread.thread.join()
            del self._ended[thread]
