"""``LibrdkafkaSource``: records of a real broker, fetched by librdkafka.

It joins a thread (``kgroup.records.owner``) to the queues that both sources share
(``kgroup.records.queued``), and is responsible for the thread's life: it is started at entry and
joined at exit, or named where it does not end in time.
"""

from __future__ import annotations

import sys
import traceback
from typing import final

import confluent_kafka
import trio

from kgroup.config import GroupConfig
from kgroup.errors import FetchError
from kgroup.records.ledger import Ledger
from kgroup.records.owner import OpenConsumer, Owner
from kgroup.records.queued import OnFault, QueuedSource
from kgroup.records.settings import settings


@final
class LibrdkafkaSource(QueuedSource):
    """Reads partitions with confluent-kafka; a ``RecordSource`` for one member.

    Messages are ``confluent_kafka.Message``. A batch's ``next_offset`` is its last record's
    offset + 1, also where a transaction's marker follows, so a group that has read everything
    can lag by the markers at the end of its partitions.

    A deleted topic is waited for, and told to ``on_fault``. Created again, it is read from the
    position on if its new log has that, else the position is out of range.

    Args:
        config: the member's settings.
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
        ledger = Ledger(config.max_buffered_records, config.max_buffered_bytes)
        self._owner = Owner(
            f"kgroup-records-{config.group_id}", settings(config), ledger, open_consumer
        )
        super().__init__(self._owner, ledger, on_fault)
        self._close_timeout = config.close_timeout
        self._started = trio.Event()
        self._ended = trio.Event()

    async def __aenter__(self) -> LibrdkafkaSource:
        """Start the owner thread; no partition is read yet.

        Raises:
            FetchError: librdkafka could not be started with these settings.

        Cancellation: the thread has been told to end, and was waited for up to
            ``close_timeout``.
        """
        self._owner.launch(self.deliver, self._started.set, self._on_ended)
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
        self._owner.end()
        began = trio.current_time()
        deadline, around = began + self._close_timeout, trio.current_effective_deadline()
        if began < around < deadline:  # it is minus infinity in a scope that was cancelled
            deadline = around
        with trio.CancelScope(shield=True, deadline=deadline):
            await self._ended.wait()
        thread = self._owner.thread
        if self._ended.is_set():
            thread.join()  # what told us was its last step
            return
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to it
        stack = "".join(traceback.format_stack(frame)) if frame else "(nowhere)"
        self._on_fault(
            None,
            f"thread {thread.name} did not end within {deadline - began:.3g} s;"
            f" it is left behind, at:\n{stack}",
        )

    def _on_ended(self) -> None:
        self._started.set()
        self._ended.set()
