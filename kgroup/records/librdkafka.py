"""``LibrdkafkaSource``: records of a real broker, fetched by librdkafka.

It joins a thread (``kgroup.records.consumer_thread``) to the queues that both sources share
(``kgroup.records.buffered_source``), and is responsible for the thread's life: it is started at
entry and joined at exit, or named where it does not end in time. A thread that died, or whose
Consumer failed for good, is replaced when the next generation begins.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
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


@final
class LibrdkafkaSource(BufferedSource):
    """Reads partitions with confluent-kafka; a ``RecordSource`` for one member.

    Messages are ``confluent_kafka.Message``. A batch's ``next_offset`` is its last record's
    offset + 1, also where a transaction's marker follows, so a group that has read everything
    can lag by the markers at the end of its partitions.

    A deleted topic is waited for, and told to ``on_fault``. Created again, it is read from the
    position on if its new log has that, else the position is out of range.

    Args:
        config: the member's consumer_settings.
        on_fault: is told of faults that are waited out.
        open_consumer: makes the Consumer; for tests.
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
        """Start the thread thread; no partition is read yet.

        Raises:
            FetchError: librdkafka could not be started with these consumer_settings.

        Cancellation: the thread has been told to end, and was waited for up to
            ``close_timeout``.
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

        If a scope around it has an earlier deadline, that one counts. A thread that is still
        there then is named to ``on_fault`` with its stack; it touches nothing of the group any
        more.

        Cancellation: waits all the same, up to the same deadline.
        """
        await self._close()

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
            f"thread {thread.name} did not end within {seconds:.3g} s;"
            f" it is left behind, at:\n{stack}",
        )

    def _new_thread(self) -> tuple[ConsumerThread, BufferLimits]:
        """A thread that is yet to be started, and its limits."""
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
            # INVARIANT: of a thread that was replaced nothing is taken. Its records are counted
            # in a limits of its own.
            if thread is self._thread:
                self.deliver(items)

        thread.launch(deliver, self._started.set, on_ended)

    def _replace_fetcher(self) -> None:
        """Let the thread end, if it lives, and start another one."""
        self._thread.end()
        self._join_ended()
        self._thread, self._limits = self._new_thread()
        self._fetcher = self._thread
        self._launch(self._thread)

    def _join_ended(self) -> None:
        """Join and forget the threads that have ended: what said so was their last step."""
        for thread in [thread for thread, ended in self._ended.items() if ended.is_set()]:
            thread.thread.join()
            del self._ended[thread]
