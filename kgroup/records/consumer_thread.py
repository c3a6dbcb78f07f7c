"""The one thread that owns a ``confluent_kafka.Consumer``, and the commands it obeys.

A Consumer serialises all calls across threads, so a call from the event loop would stand still
for as long as this thread polls. Therefore nothing but this thread ever touches it: the loop puts
commands into a queue, the thread hands over lists of items through the loop's token, once for
each chunk that it consumed and not once for each record.

The thread waits in its command queue while nothing is to be read (no generation, no partition
open, or the limits is full), and in short polls otherwise; a command then waits for at most one
poll (``POLL``).

Source: confluent-kafka 2.16's ``Consumer.c``; KIP-345 and the group protocol are not used here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, cast, final

import attrs
import confluent_kafka
import trio
from confluent_kafka import KafkaError, KafkaException, Message

from kgroup.interfaces import Message as Record
from kgroup.records.buffer import BufferLimits
from kgroup.records.fetcher import (
    FetchedItem,
    FetchedRun,
    FetcherBroken,
    FetchFailure,
    FetchStart,
    OutOfRange,
    Unreadable,
)
from kgroup.records.librdkafka_messages import (
    ErrorAction,
    action_for,
    describe_error,
    has_errors,
    partition_in_text,
    runs,
)
from kgroup.records.librdkafka_settings import LOGGER
from kgroup.types import TopicPartition

POLL: Final = 0.02
"""Seconds of one poll: how long a command can wait while nothing arrives."""
CHUNK: Final = 2000
"""The most records of one hand-over. Fewer cost more hand-overs; more hold the GIL for longer
(about half a microsecond a record) before the event loop gets its turn, and no longer fit into a
processor's cache while they are looked through."""


class ConsumerLike(Protocol):
    """What the thread uses of ``confluent_kafka.Consumer``."""

    def poll(self, timeout: float) -> Message | None:
        """One message or error, or None when the time is over."""
        ...

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Up to so many messages and errors."""
        ...

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Fetch these too, from their offsets."""
        ...

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Fetch these no more."""
        ...

    def pause(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Return nothing of these."""
        ...

    def resume(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Go on with these after what was returned last."""
        ...

    def close(self) -> None:
        """End it."""
        ...


OpenConsumer = Callable[[dict[str, Any]], ConsumerLike]
"""Makes a Consumer of its settings."""


@final
@attrs.define
class _Fetch:
    """A partition that is being fetched: its fetch_id and the next offset to arrive."""

    fetch_id: int
    next_offset: int
    verifying: bool = False


@final
class ConsumerThread:
    """A ``Fetcher`` over a Consumer in a thread of its own.

    Args:
        name: the thread's name.
        settings: what the Consumer is made with; the thread adds its callbacks.
        limits: counts what is on its way.
        open_consumer: makes the Consumer.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        limits: BufferLimits,
        open_consumer: OpenConsumer,
    ) -> None:
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._settings = dict(settings)
        self._limits = limits
        self._open_consumer = open_consumer
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # Of the thread alone, from here on:
        self._fetches: dict[TopicPartition, _Fetch] = {}
        self._held: set[TopicPartition] = set()
        self._stops: dict[TopicPartition, None] = {}
        self._starts: dict[TopicPartition, FetchStart] = {}
        self._topics = 0
        self._active = False
        self._closing = False
        self._callback_items: list[FetchedItem] = []

    # From the event loop's thread.

    def launch(
        self,
        deliver: Callable[[Sequence[FetchedItem]], None],
        started: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        """Start the thread; the callbacks are called in this trio loop."""
        self._token = trio.lowlevel.current_trio_token()
        self._deliver = deliver
        self._started = started
        self._ended = ended
        self.thread.start()

    def end(self) -> None:
        """Close the Consumer and end the thread."""
        self._commands.put(self._close)

    def activate(self) -> None:
        """See ``Fetcher``."""
        self._commands.put(lambda: self._set_active(active=True))

    def deactivate(self) -> None:
        """See ``Fetcher``."""
        self._commands.put(lambda: self._set_active(active=False))

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        self._commands.put(lambda: self._queue_starts(starts))

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._commands.put(lambda: self._queue_stops(partitions))

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._commands.put(lambda: self._hold(partitions))

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._commands.put(lambda: self._release(partitions))

    def resume_fetching(self) -> None:
        """See ``Fetcher``."""
        self._limits.stopped = False
        self._commands.put(_only_wake)

    # The thread.

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - told to every receive()
            self._deliver_items([FetcherBroken(f"{self.thread.name} failed: {error!r}", error)])
        finally:
            self._call(self._ended)

    def _serve(self) -> None:
        consumer = self._open_consumer(
            {**self._settings, "error_cb": self._on_error, "logger": LOGGER}
        )
        try:
            self._consumer = consumer
            self._call(self._started)
            while True:
                self._run_commands()
                if self._closing:
                    return
                if self._may_poll():
                    self._fetch()
        finally:
            consumer.close()

    def _may_poll(self) -> bool:
        return self._active and bool(self._fetches) and not self._limits.stopped

    def _run_commands(self) -> None:
        """Carry out all commands that are there; wait for one if there is nothing else to do."""
        try:
            command = self._commands.get(block=not self._may_poll())
            while True:
                command()
                command = self._commands.get(block=False)
        except Empty:
            self._apply_assignment()

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

    def _apply_assignment(self) -> None:
        """One call each for all stops and starts that were asked for."""
        if self._stops:
            stops, self._stops = list(self._stops), {}
            self._release(stops)
            self._consumer.incremental_unassign([_to_confluent(partition) for partition in stops])
        if self._starts:
            starts, self._starts = self._starts, {}
            self._consumer.incremental_assign(
                [
                    confluent_kafka.TopicPartition(partition.topic, partition.partition, at.offset)
                    for partition, at in starts.items()
                ]
            )
            for partition, at in starts.items():
                self._fetches[partition] = _Fetch(at.fetch_id, at.offset)
        self._topics = len({partition.topic for partition in self._fetches})

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

    def _fetch(self) -> None:
        """Poll for a first message, take what is there behind it, and hand all of it over."""
        first = self._consumer.poll(POLL)
        items: list[FetchedItem] = []
        if first is not None:
            chunk = [first]
            chunk += self._consumer.consume(CHUNK - 1, 0)
            items = self._items(chunk)
        if self._callback_items:
            items += self._callback_items
            self._callback_items.clear()
        if items:
            self._deliver_items(items)

    def _deliver_items(self, items: Sequence[FetchedItem]) -> None:
        records = size = 0
        for item in items:
            if isinstance(item, FetchedRun):
                records += len(item.messages)
                size += item.size
        self._limits.count_delivered(records, size)
        if self._limits.is_full():
            # Before the items go: the loop looks at it when it has taken them in, so a change
            # of its mind cannot be missed.
            self._limits.stopped = True
        self._call(self._deliver, items)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            self._closing = True

    # From messages to items.

    def _items(self, chunk: list[Message]) -> list[FetchedItem]:
        if not has_errors(chunk):
            return self._runs(chunk)
        items: list[FetchedItem] = []
        records: list[Message] = []
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

    def _runs(self, chunk: list[Message]) -> list[FetchedItem]:
        items: list[FetchedItem] = []
        for start, end in runs(chunk, topics=self._topics):
            messages = chunk[start:end]
            partition = _partition_of(messages[0])
            fetch = self._fetches.get(partition) if partition else None
            if partition is None or fetch is None:
                continue  # of a partition that was stopped
            fetch.next_offset = (messages[-1].offset() or 0) + 1
            fetch.verifying = False
            # The stubs say None for what only a message that is yet to be sent lacks.
            records = cast("Sequence[Record]", messages)
            items.append(FetchedRun(partition, fetch.fetch_id, records, _size_of(messages)))
        return items

    def _fault(self, message: Message, error: KafkaError) -> list[FetchedItem]:
        partition = _partition_of(message)
        fetch = self._fetches.get(partition) if partition else None
        if partition is not None and fetch is None:
            return []  # of a partition that was stopped
        if partition is not None and fetch is not None and action_for(error) is ErrorAction.RESET:
            if not fetch.verifying:
                # librdkafka gives this error no version, so it may be of an earlier fetch, or of
                # a moment long ago. Asked once more for the offset that is wanted, it answers
                # for that and for now.
                fetch.verifying = True
                named = _to_confluent(partition)
                self._consumer.incremental_unassign([named])
                named.offset = fetch.next_offset
                self._consumer.incremental_assign([named])
                return []
            return [OutOfRange(partition, fetch.fetch_id, fetch.next_offset, describe_error(error))]
        return [self._item_for_error(error, partition, fetch)]

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka's error callback; called within ``poll`` and ``consume``."""
        partition = partition_in_text(error)
        fetch = self._fetches.get(partition) if partition else None
        self._callback_items.append(self._item_for_error(error, partition, fetch))

    def _item_for_error(
        self,
        error: KafkaError,
        partition: TopicPartition | None,
        fetch: _Fetch | None,
    ) -> FetchedItem:
        reason = describe_error(error)
        match action_for(error):
            case ErrorAction.FAIL if partition is not None and fetch is not None:
                return Unreadable(partition, fetch.fetch_id, reason)
            case ErrorAction.FAIL if partition is None:
                return FetcherBroken(reason, KafkaException(error))
            case _:
                return FetchFailure(partition, error.name(), reason)


def _only_wake() -> None:
    """The command that only wakes the thread."""


def _to_confluent(partition: TopicPartition) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition)


def _partition_of(message: Message) -> TopicPartition | None:
    topic, number = message.topic(), message.partition()
    if topic is None or number is None or number < 0:
        return None
    return TopicPartition(topic, number)


def _size_of(messages: Sequence[Message]) -> int:
    """Bytes of the values, and of the keys as if all were like the first one."""
    key = messages[0].key()
    return sum(map(len, messages)) + (len(key) * len(messages) if key else 0)
