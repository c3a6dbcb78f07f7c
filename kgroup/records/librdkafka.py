"""``LibrdkafkaSource``: records of a real broker, fetched by librdkafka.

It connects a ``ConsumerThread`` with the queues that all sources share
(``kgroup.records.buffered_source``) and manages the thread's life: the thread starts at entry and
is joined at exit, or is reported with its stack if it does not end in time. A thread that died, or
whose Consumer failed, is replaced when the next generation begins.

With TLS or a login, librdkafka is started only when the group's own connection has been accepted:
it would repeat what was refused many times a second.

The first members of an event loop have threads of their own. Further ones share one while they read
little (``kgroup.records.shared_consumer``); the one that leaves last ends and joins it.

INVARIANT: each thread that a source has started, or was the last to use, is in ``_ended`` until it
is joined.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, final
from uuid import UUID

import attrs
import confluent_kafka
import trio

from kgroup.config import GroupConfig
from kgroup.errors import FetchError
from kgroup.loop_local import loop_local
from kgroup.records.buffer import BufferLimits
from kgroup.records.buffered_source import BufferedSource, OnFault
from kgroup.records.consumer_thread import ConsumerThread, OpenConsumer
from kgroup.records.fetcher import FetchedItem, FetchStart
from kgroup.records.librdkafka_settings import consumer_settings
from kgroup.records.shared_consumer import (
    MOST_OWN,
    SharedConsumer,
    SharedFetcher,
)
from kgroup.security.secret import without_locals
from kgroup.security.settings import Security, SecurityProtocol
from kgroup.types import TopicPartition, name_fault

_GROUP: Final = "group.id"


@final
@attrs.define(eq=False)
class _Shared:
    """A shared Consumer, its thread, its members, and what is known of the thread's life."""

    consumer: SharedConsumer
    thread: ConsumerThread
    members: set[LibrdkafkaSource]
    started: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)


@final
@attrs.define(eq=False)
class Consumers:
    """The Consumers of an event loop's members.

    Attributes:
        most_own: how many members get one of their own when they start.
        own: the members that have one.
        shared: those that are shared, by all that members must have in common for that.
    """

    most_own: int = MOST_OWN
    own: set[LibrdkafkaSource] = attrs.field(factory=set)
    shared: dict[Hashable, _Shared] = attrs.field(factory=dict)

    def forget(self, shared: _Shared) -> None:
        """Let no further member use it."""
        for key, value in list(self.shared.items()):
            if value is shared:
                del self.shared[key]


CONSUMERS: Final = trio.lowlevel.RunVar[Consumers]("kgroup_consumers")
"""Those of the event loop that runs in this thread."""


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
        self._addresses: Callable[[], Collection[str]] = tuple
        self._topic_ids: Callable[[], Mapping[str, UUID]] = dict
        self._fetched_ids: dict[str, UUID] = {}
        """The ids of the topics that the Consumer has fetched."""
        self._begun = True  # before the entry there is nothing to begin
        self._started = trio.Event()
        self._ended: dict[ConsumerThread, trio.Event] = {}
        self._process = os.getpid()
        self._shared: _Shared | None = None
        limits = self._new_limits()
        self._thread = self._new_thread(limits)
        super().__init__(self._thread, limits, on_fault)

    async def __aenter__(self) -> LibrdkafkaSource:
        """Start a Consumer's thread, or share one, at once or in `prepare`; nothing is read yet.

        Raises:
            FetchError: librdkafka could not be started with these settings. If it is started
                later, each ``receive`` raises it.

        Cancellation: the thread is closed first, which takes up to ``close_timeout``.
        """
        self._consumers = loop_local(CONSUMERS, Consumers)
        self._begun = False
        if self._config.security.protocol is not SecurityProtocol.PLAINTEXT:
            await trio.lowlevel.checkpoint()
            return self
        self._begin()
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

    def use_addresses(self, known: Callable[[], Collection[str]]) -> None:
        """Let each further Consumer connect to these addresses too; see ``RecordSource``."""
        self._addresses = known

    def use_topic_ids(self, known: Callable[[], Mapping[str, UUID]]) -> None:
        """Compare the ids of topics in each generation; see ``RecordSource``."""
        self._topic_ids = known

    def prepare(self, topics: Collection[str]) -> None:
        """Request the leaders of these topics while the member joins; see ``RecordSource``."""
        self._begin()
        # librdkafka ends the whole process on some impossible names.
        possible = [topic for topic in topics if name_fault(topic) is None]
        if isinstance(self._fetcher, SharedFetcher):
            self._fetcher.prepare(possible)
        else:
            self._thread.prepare(possible, possible)

    def assign(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        added: Collection[TopicPartition] = (),
    ) -> None:
        """Begin a generation; see `BufferedSource.assign`."""
        self._begin()
        if self._update_ids({partition.topic for partition in positions}):
            if isinstance(self._fetcher, SharedFetcher):
                self._move_out({})
            else:
                self._thread.replace_consumer()
        super().assign(epoch, positions, leader_epochs, added)

    def _update_ids(self, topics: Collection[str]) -> bool:
        """Keep the ids of these topics; return whether one has another than at its last fetch."""
        known = self._topic_ids()
        ids = {topic: known[topic] for topic in topics if topic in known}
        again = any(self._fetched_ids.get(topic, one) != one for topic, one in ids.items())
        self._fetched_ids = {**({} if again else self._fetched_ids), **ids}
        return again

    def _begin(self) -> None:
        """Start the thread, or share one, if that was not done yet."""
        if not self._begun and not self._closed:
            self._begun = True
            self._own_or_share()

    async def _close(self) -> None:
        self.close_queues()
        if os.getpid() != self._process:  # its threads are not in a forked process
            await trio.lowlevel.checkpoint()
            return
        self._leave_shared()
        self._consumers.own.discard(self)
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

    def _own_or_share(self) -> None:
        if len(self._consumers.own) < self._consumers.most_own:
            self._launch_own()
        else:
            self._share()

    def _watched_security(self) -> Security | None:
        security = self._config.security
        return security if security.protocol.tls or security.dynamic else None

    def _new_limits(self) -> BufferLimits:
        return BufferLimits(self._config.max_buffered_records, self._config.max_buffered_bytes)

    def _new_thread(self, limits: BufferLimits) -> ConsumerThread:
        """Make a thread of this member's own, which is not started yet."""
        config = self._config
        name = f"kgroup-records-{config.group_id}"
        return ConsumerThread(
            name,
            consumer_settings(config),
            limits,
            self._open_consumer,
            addresses=partial(_addresses_of, [self]),
        )

    def _launch_own(self) -> None:
        thread, ended = self._thread, trio.Event()
        self._ended[thread] = ended
        self._consumers.own.add(self)

        def on_ended() -> None:
            self._started.set()
            ended.set()

        def deliver(items: Sequence[FetchedItem]) -> None:
            # INVARIANT: nothing is taken from a thread that was replaced. Its records are counted
            # in limits of its own.
            if thread is self._thread:
                self.deliver(items)

        thread.launch(deliver, self._started.set, on_ended, self._watched_security())

    def _replace_fetcher(self) -> None:
        """End the thread if it still runs, and start another one, or share one."""
        self._thread.end()
        self._leave_shared()
        self._consumers.own.discard(self)
        self._join_ended()
        self._limits = self._new_limits()
        self._fetcher = self._thread = self._new_thread(self._limits)
        self._own_or_share()

    # While a Consumer is shared, `_thread` is what replaces it, and has not started.

    @without_locals()
    def _share(self) -> None:
        wanted = consumer_settings(self._config)
        group = wanted.pop(_GROUP)
        # The security too: functions that look up a login are not among librdkafka's settings.
        key = (frozenset(wanted.items()), self._config.security, self._open_consumer)
        shared = self._consumers.shared.get(key)
        if shared is None or shared.consumer.broken is not None or shared.ended.is_set():
            limits = self._new_limits()
            members = {self}
            thread = ConsumerThread(
                "kgroup-records-shared",
                {**wanted, _GROUP: group},
                limits,
                self._open_consumer,
                lends=False,
                addresses=partial(_addresses_of, members),
            )
            shared = _Shared(SharedConsumer(thread, limits), thread, members)
            self._consumers.shared[key] = shared
            thread.launch(
                shared.consumer.deliver,
                shared.started.set,
                _both(shared),
                self._watched_security(),
            )
            thread.activate()
        shared.members.add(self)
        self._shared, self._started = shared, shared.started
        self._fetcher = SharedFetcher(shared.consumer, self._limits, self.deliver, self._move_out)

    def _leave_shared(self) -> Mapping[TopicPartition, FetchStart]:
        """End the use of a shared Consumer, and the Consumer itself if no other member uses it."""
        shared, self._shared = self._shared, None
        if shared is None:
            return {}
        assert isinstance(self._fetcher, SharedFetcher)  # `_share` made it
        starts = self._fetcher.leave()
        shared.members.discard(self)
        if shared.consumer.empty:
            self._consumers.forget(shared)
            self._ended[shared.thread] = shared.ended
            shared.thread.end()
        return starts

    def _move_out(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Continue with a Consumer of this member's own; the thread counts in the same limits."""
        fetcher, thread = self._fetcher, self._thread
        assert isinstance(fetcher, SharedFetcher)  # which calls this
        starts = {**self._leave_shared(), **starts}
        self._fetcher = thread
        self._launch_own()
        if starts:
            thread.start(starts)
        if fetcher.active:
            thread.activate()

    def _join_ended(self) -> None:
        """Join the threads that have reported their end, which is their last step."""
        for thread in [thread for thread, ended in self._ended.items() if ended.is_set()]:
            if thread.thread.ident is not None:  # otherwise it could not be started
                thread.thread.join()
            del self._ended[thread]


def _addresses_of(members: Collection[LibrdkafkaSource]) -> frozenset[str]:
    """The addresses that any of these members knows; any thread may call it."""
    # A copy, because the event loop adds and removes members meanwhile.
    return frozenset[str]().union(*(member._addresses() for member in tuple(members)))  # noqa: SLF001


def _both(shared: _Shared) -> Callable[[], None]:
    """What the thread calls when it ends, which may be before it has started."""

    def on_ended() -> None:
        shared.started.set()
        shared.ended.set()

    return on_ended
