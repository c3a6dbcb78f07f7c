"""``Reading``: one consumer of librdkafka, with a group or with positions of its own.

kgroup's own group is not used here: a command that ends at the end of its partitions needs
librdkafka's report of that end, and needs no generations, because it does no work but print.

librdkafka waits for 45 s where no coordinator is reached, and for longer where a broker hangs, and
no signal ends such a call. So a thread makes the calls of the consumer, and a signal ends the wait
for it. The end of the command waits for the thread as long as for each other answer; then the
process ends without it.

INVARIANT: in a group, only offsets of records that were printed are committed, before another
member can own their partition. Once records are read, one thread makes all calls of the consumer:
in confluent-kafka, a call of one thread waits for the end of another thread's call, so a commit by
another thread would wait for the call that revokes the partitions, which waits for the commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self, TypeVar, final

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as Position

from kgroup.cli.admin_client import ClusterError, ConnectionErrors, Refusal, client_settings
from kgroup.cli.consume.formats import Record
from kgroup.errors import short_list
from kgroup.permissions import to_grant
from kgroup.record_headers import headers_of
from kgroup.security.settings import Security
from kgroup.types import IsolationLevel, TopicPartition

__all__ = ["BEGINNING", "END", "ConsumeOptions", "Reading"]

BEGINNING: Final = OFFSET_BEGINNING
END: Final = OFFSET_END
"""Positions that librdkafka finds by itself."""
_NO_GROUP: Final = "kgroup-consume"
"""librdkafka makes no consumer without a group id; this group is never joined."""
_CHUNK: Final = 500
_POLL: Final = 0.2
"""Seconds; so long may a record that came alone wait to be printed."""
_COMMIT_INTERVAL: Final = 1.0
_EXPLANATION_TIMEOUT: Final = 3.0
"""Seconds to find out why a broker's certificate is not accepted."""
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 # the names of librdkafka's own codes
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Errors after which librdkafka goes on by itself."""

T = TypeVar("T")


@final
@attrs.frozen(kw_only=True)
class ConsumeOptions:
    """What is read.

    Attributes:
        bootstrap_servers: the cluster.
        security: how connections are encrypted, and how the client logs in.
        isolation: whether records of open and aborted transactions are read.
        topics: in a group, the topics to subscribe to.
        group_id: the group to join; None to read without one.
        from_beginning: where partitions without a committed offset begin.
        positions: without a group, where each partition begins.
        timeout: seconds within which the end of the command has its last answer, and within which
            a member has its first partition.
    """

    bootstrap_servers: str
    security: Security
    isolation: IsolationLevel
    topics: tuple[str, ...]
    group_id: str | None
    from_beginning: bool
    positions: Mapping[TopicPartition, int]
    timeout: float

    def settings(self) -> dict[str, Any]:
        """The settings of the consumer.

        Raises:
            ClusterError: there is nothing to log in with.
        """
        return {
            **client_settings(self.bootstrap_servers, self.security),
            "group.id": _NO_GROUP if self.group_id is None else self.group_id,
            "isolation.level": self.isolation.value,
            "auto.offset.reset": "earliest" if self.from_beginning else "latest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "check.crcs": True,
        }


@final
class Reading:
    """Reads records; a context manager, which commits and leaves the group at its end.

    Args:
        source: what to read.
        warn: is called with each failure that may pass.

    Raises:
        ClusterError: the settings are refused.
    """

    def __init__(self, source: ConsumeOptions, warn: Callable[[str], None]) -> None:
        self._source = source
        self._warn = warn
        self._errors = ConnectionErrors(
            source.bootstrap_servers, source.security, _EXPLANATION_TIMEOUT
        )
        self._warned = set[str]()
        self._assigned: set[TopicPartition] | None = None
        self._assigned_at = time.monotonic()
        self._at_end = set[TopicPartition]()
        self._begun = set[TopicPartition]()
        """The partitions of which a record has come."""
        self._warned_of = set[TopicPartition]()
        """Those of which it was said that nothing comes."""
        self._printed: dict[TopicPartition, int] = {}
        self._uncommitted = False
        self._failure: ClusterError | None = None
        self._committed_at = time.monotonic()
        self._thread = _CallingThread()
        try:
            self._consumer = Consumer({**source.settings(), "error_cb": self._note})
        except KafkaException as error:
            raise ClusterError(Refusal.of(error.args[0]).text) from error

    def __enter__(self) -> Self:
        if self._source.group_id is None:
            positions = self._source.positions
            self._assigned, self._assigned_at = set(positions), time.monotonic()
            self._consumer.assign(
                [Position(one.topic, one.partition, at) for one, at in positions.items()]
            )
        else:
            self._consumer.subscribe(
                list(self._source.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._note_uncommitted()
        try:
            self._thread.call(self._leave, self._source.timeout)
        except TimeoutError:
            uncommitted = "the last offsets may not be committed, and " * self._uncommitted
            what = (
                "the consumer was not closed"
                if self._source.group_id is None
                else f"{uncommitted}the group gives the partitions to others when the session has"
                " ended"
            )
            self._warn(f"no answer within {self._source.timeout:g} s: {what}")
        finally:
            self._thread.end()

    @property
    def finished(self) -> bool:
        """Whether the end of every assigned partition was reached, and nothing has failed.

        A member without partitions may get some once others have revoked them, as in a group of the
        new protocol. So it is at the end only if none has come within the time-out.
        """
        if self._failure is not None:
            return False  # the next call of `next` raises it
        if self._assigned:
            return self._assigned <= self._at_end
        waited = time.monotonic() - self._assigned_at
        return self._assigned is not None and waited >= self._source.timeout

    @property
    def uncommitted(self) -> bool:
        """Whether, at the end, offsets of what was printed may not have been committed."""
        return self._uncommitted

    def next(self, check: Callable[[], object] = lambda: None) -> list[Record]:
        """The next records; none if none came within a moment.

        Args:
            check: is called again and again while this waits; it may raise.

        Raises:
            ClusterError: the records cannot be read.
        """
        if self._failure is not None:
            raise self._failure
        found: list[Record] = []
        try:
            messages = self._thread.call_checked(self._consume, check)
            for message in messages:
                error = message.error()
                if error is None:
                    found.append(record := _record(message))
                    self._begun.add(TopicPartition(record.topic, record.partition))
                else:
                    self._handle(error, message)
            self._errors.raise_refusal()
            if not messages:
                self._warn_of_unanswered()
        except ClusterError as failure:
            if not found:
                raise
            self._failure = failure  # the next call raises it: what came before is printed first
        return found

    def printed(self, records: Iterable[Record]) -> None:
        """Remember that records were printed."""
        for one in records:
            self._printed[TopicPartition(one.topic, one.partition)] = one.offset + 1

    def _handle(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        topic, partition = message.topic(), message.partition()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
            assert topic is not None
            assert partition is not None
            self._at_end.add(TopicPartition(topic, partition))
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED and self._source.group_id is None:
            pass  # librdkafka requests the coordinator of the group that it was made with
        elif code in _PASSING:
            self._note(error)
        else:
            raise ClusterError(self._refusal(Refusal.of(error), message))

    def _refusal(self, refusal: Refusal, message: Message) -> str:
        topic, offset = message.topic(), message.offset()
        group = self._source.group_id or ""
        grant = to_grant(refusal.code, "READ", topic=topic or "", group=group)
        what = f"topic {topic!r}" if topic else "the topics"
        if topic and offset is not None and offset >= 0:
            what = f"{topic}-{message.partition()} at offset {offset}"
        if refusal.code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            what = f"group {group!r}"
        return f"{what} cannot be read: {f'{refusal.name}: {grant}' if grant else refusal.text}"

    def _note(self, error: KafkaError) -> None:
        """Report a failure that may pass, each one once; also the ``error_cb``."""
        self._errors.note(error)
        self._warn_once(Refusal.of(error).text)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def _warn_of_unanswered(self) -> None:
        """Say of which partitions nothing comes: librdkafka waits for a leader without an error."""
        assigned, timeout = self._assigned, self._source.timeout
        if not assigned or time.monotonic() - self._assigned_at < timeout:
            return
        unanswered = sorted(assigned - self._begun - self._at_end - self._warned_of)
        if unanswered:
            self._warned_of.update(unanswered)
            self._warn(
                f"nothing has come from {short_list(unanswered)} within {timeout:g} s: there is no"
                " leader, or it does not answer"
            )

    # In the thread.

    def _consume(self) -> list[Message]:
        if time.monotonic() - self._committed_at >= _COMMIT_INTERVAL:
            self._commit()
        return self._consumer.consume(_CHUNK, _POLL)

    def _on_assign(self, consumer: Consumer, partitions: Iterable[Position]) -> None:
        del consumer
        self._assigned = {TopicPartition(one.topic, one.partition) for one in partitions}
        self._assigned_at = time.monotonic()
        self._at_end &= self._assigned
        self._begun &= self._assigned
        if not self._assigned:
            self._warn_once("no partition is assigned yet: the group's other members have them all")

    def _on_revoke(self, consumer: Consumer, partitions: Iterable[Position]) -> None:
        del consumer, partitions
        self._commit()
        # What was not committed by now, another member may have read already.
        self._printed.clear()
        self._assigned = None

    def _on_lost(self, consumer: Consumer, partitions: Iterable[Position]) -> None:
        del consumer, partitions
        self._printed.clear()
        self._assigned = None

    def _leave(self) -> None:
        self._commit()
        self._note_uncommitted()
        self._printed.clear()
        self._consumer.close()

    def _note_uncommitted(self) -> None:
        self._uncommitted = self._source.group_id is not None and bool(self._printed)

    def _commit(self) -> None:
        self._committed_at = time.monotonic()
        if self._source.group_id is None or not self._printed:
            return
        offsets = [Position(one.topic, one.partition, at) for one, at in self._printed.items()]
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # They are committed with the next ones, unless the member loses the partitions before.
            self._warn_once(f"the offsets were not committed: {Refusal.of(error.args[0]).text}")
            return
        for one in committed:
            if one.error is not None:
                why = Refusal.of(one.error).text
                self._warn_once(f"{one.topic}-{one.partition} was not committed: {why}")
            else:
                self._printed.pop(TopicPartition(one.topic, one.partition), None)


@final
class _CallingThread:
    """Makes calls that no signal ends, one after the other, in a thread that can be left behind."""

    def __init__(self) -> None:
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._thread = threading.Thread(target=self._run, name="kgroup-consume", daemon=True)

    def call(self, fn: Callable[[], T], timeout: float) -> T:
        """Call a function after those before it.

        Raises:
            TimeoutError: it has not returned in time.
            Exception: what the function raised.
        """
        return self._begin(fn).result(timeout)

    def call_checked(self, fn: Callable[[], T], check: Callable[[], object]) -> T:
        """Call a function after those before it; a check that raises ends the wait for it.

        Raises:
            Exception: what the function or the check raised.
        """
        result = self._begin(fn)
        while not wait([result], _POLL).done:
            check()
        return result.result()

    def end(self) -> None:
        """Let the thread end after the calls before."""
        self._calls.put(None)

    def _begin(self, fn: Callable[[], T]) -> Future[T]:
        if self._thread.ident is None:
            self._thread.start()
        result = Future[T]()

        def call() -> None:
            try:
                result.set_result(fn())
            except BaseException as error:  # noqa: BLE001 # raised where it is waited for
                result.set_exception(error)

        self._calls.put(call)
        return result

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = headers_of(message)
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=message.key(),
        value=message.value(),
        headers=tuple(headers or ()),
    )
