"""A topic for records that a worker cannot process: what is written there, and when it is safe.

A record keeps its key, value and headers. Further headers say where it came from and why it is
there; their names begin with ``dead_letter.``, so that they do not replace headers of its own.

A broker that is away for a minute is no reason to end a worker. So an attempt to write a record may
be followed by others, unless its failure is one that would come again. ``kgroup.retries`` makes the
pauses between them, which end with the generation.

INVARIANT: a record that the producer still has, and may yet deliver, is not given to it again in
the same generation. The next one reads the record again, and knows nothing of it.
INVARIANT: a record counts as written only if a broker has said at which offset. librdkafka's
idempotent producer also reports success for a record whose own request failed, if a later request
to its partition succeeded. Mostly the broker has the record then. But where the partition has
moved, and its new leader has seen nothing of this producer, the later request is accepted without
the earlier one, and the record is nowhere.
"""

from __future__ import annotations

import difflib
import inspect
import re
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, final

from kgroup import arguments
from kgroup.addresses import join_address
from kgroup.client.subscription import Topics
from kgroup.errors import (
    ArgumentError,
    DeadLetterError,
    UsageError,
    creation,
    in_one_line,
    short_repr,
)
from kgroup.events import DeadLetterTopicMissing
from kgroup.interfaces import Message
from kgroup.permissions import to_grant
from kgroup.record_headers import headers_of
from kgroup.retry_policy import DELIVERIES
from kgroup.types import topic_fault
from kgroup.wire.librdkafka_texts import text_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer
else:  # so that typing.get_type_hints finds the names without the imports
    KafkaError = Producer = Any

_LONGEST_REASON: Final = 2000
"""Bytes of an error's text in a header; brokers limit the bytes of a record."""
_POLL: Final = 0.1
_CHECKED_WITHIN: Final = 5.0
"""Seconds that the first batch may wait until the brokers say which topics there are."""
_MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
"""librdkafka's names of the errors of a topic that does not exist."""
_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_HEADER: Final = "dead_letter."
_GROUP: Final = f"{_HEADER}group_id"
_RETRIABLE: Final = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_MSG_TIMED_OUT",
        "_QUEUE_FULL",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "THROTTLING_QUOTA_EXCEEDED",
    }
)
"""librdkafka's names of the errors after which another attempt can help. Kafka retries after an
unknown topic too. librdkafka has waited for the topic by then (topic.metadata.propagation.max.ms),
and more often than not its name is wrong."""


@final
class DeadLetters:
    """A topic for records that keep failing, as ``kgroup.retrying`` takes it for ``park``.

    Args:
        producer: writes the records. With ``enable.idempotence`` its own attempts repeat none. With
            ``acks=0`` it hears of no record that is written, so that none can be parked.
        topic: the topic's name. Each record keeps its key, which decides on its partition.
        timeout: the seconds within which a record must be delivered, in one attempt.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """

    def __init__(self, producer: Producer, topic: str, *, timeout: float = 30.0) -> None:
        wanted = "it must be a confluent_kafka.Producer"
        arguments.with_method("producer", producer, "produce", wanted)
        if inspect.iscoroutinefunction(producer.produce):
            raise ArgumentError(
                "producer", producer, f"{wanted}, and not one for asyncio: it is called in a thread"
            )
        self._producer = producer
        if (fault := topic_fault(topic)) is not None:
            raise ArgumentError("topic", topic, f"this name {fault}")
        self._topic = topic
        self._timeout = arguments.seconds("timeout", timeout)
        self._checked = threading.Lock()
        """Taken, and never released, by the one call that looks for the topic."""
        self._unread_by: Topics = ()
        """The last subscription that was checked, and does not have the topic."""
        self._brokers: frozenset[str] = frozenset()
        """The addresses of the producer's brokers, as `missing` heard of them."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    def check_unread(self, subscription: Topics, addresses: frozenset[str], group_id: str) -> None:
        """Check that a group does not read the topic; call it before each batch, after `missing`.

        Such a group would read each record that it parks, fail again, and park it again. A topic of
        this name in another cluster is no fault; where it is not known whether it is another, the
        group ends at the first of its own dead letters that it is to park (see `letter`).

        Args:
            subscription: the names and patterns to which its member subscribes.
            addresses: those of the group's brokers.
            group_id: the group.

        Raises:
            UsageError: it reads the topic.
        """
        if subscription is self._unread_by or self._brokers.isdisjoint(addresses):
            return
        for topic in subscription:
            if (how := self._read_by(topic)) is not None:
                raise UsageError(
                    f"group {group_id!r} would read its own dead letters, and park them"
                    f" again and again: topic {self._topic!r} of DeadLetters {how}"
                )
        self._unread_by = subscription

    def _read_by(self, topic: str | re.Pattern[str]) -> str | None:
        """How a name or pattern subscribes to the topic, and what to do; None if it does not."""
        if not _reads(topic, self._topic):
            return None
        if isinstance(topic, str):
            return "is one to which it subscribes. Give DeadLetters a topic of its own"
        return (
            f"matches the pattern {topic.pattern!r} to which it subscribes. Give DeadLetters a"
            " topic that the pattern does not match, or let the pattern leave it out, by"
            f" (?!{re.escape(self._topic)}$) before the rest"
        )

    @property
    def unchecked(self) -> bool:
        """Whether `missing` has not been called."""
        return not self._checked.locked()

    def missing(self, subscription: Topics = ()) -> Callable[..., DeadLetterTopicMissing] | None:
        """Look for the topic among those that there are; blocks the thread for some seconds.

        A name that is misspelt would be noticed only at the first record that is parked, weeks
        after the worker was deployed. It is no error, because brokers may create the topic then.

        Args:
            subscription: what the group reads, which is never what was meant.

        Returns:
            the event, as an argument of ``Generation.emit``, if the topic is not among them; None
            if it is, at a second call, and if the brokers do not say: a check ends no worker.
        """
        if not self._checked.acquire(blocking=False):
            return None
        try:
            # All topics: brokers would create the one that a producer asks for.
            cluster = self._producer.list_topics(timeout=_CHECKED_WITHIN)
            names = set(cluster.topics)
            self._brokers = frozenset(
                join_address(one.host, one.port) for one in cluster.brokers.values()
            )
        except Exception:  # noqa: BLE001 # whatever a program's own kind of producer raises
            return None
        if self._topic in names:
            return None
        unread = [name for name in names if not any(_reads(one, name) for one in subscription)]
        near = difflib.get_close_matches(self._topic, unread, n=1)
        return partial(DeadLetterTopicMissing, topic=self._topic, nearest=near[0] if near else "")

    def letter(
        self, message: Message, error: BaseException, attempts: int, group_id: str
    ) -> DeadLetter:
        """A record that is to be written.

        Args:
            message: the record.
            error: why it cannot be processed.
            attempts: how often it was tried.
            group_id: the group that could not process it.

        Raises:
            UsageError: this group has parked the record in this topic before, and reads it there.
                It would be parked and read again without end.
        """
        own = headers_of(message)
        if message.topic() == self._topic and (_GROUP, group_id.encode()) in (own or ()):
            raise UsageError(
                f"the record at {message.topic()}-{message.partition()} offset {message.offset()}"
                f" is a dead letter of group {group_id!r} itself, which reads its own topic of dead"
                f" letters and would park each record for ever. Leave {self._topic!r} out of the"
                " subscription, which may have a pattern that matches it"
            )
        headers = headers_for(message, error, attempts, group_id)
        return DeadLetter(self._producer, self._topic, self._timeout, message, headers, error)

    def __repr__(self) -> str:
        return f"<DeadLetters {self._topic!r}>"


@final
class DeadLetter:
    """One record on its way into the topic, which may take several attempts. Made by `DeadLetters`.

    Attributes:
        attempts: how many attempts were made.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        timeout: float | None,
        message: Message,
        headers: list[tuple[str, str | bytes | None]],
        error: BaseException,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout = timeout
        self._message = message
        self._headers = headers
        self._error = error
        self._delivery: _Delivery | None = None
        """What the producer has not reported yet; None if there is none."""
        self.attempts = 0

    def send(self) -> str | None:
        """Write the record, and wait until the brokers have it; blocks the thread.

        Returns:
            None if they have it; otherwise why not, and the program should call this again.

        Raises:
            DeadLetterError: it was not delivered, or it is not known whether it was, and another
                attempt would not help, or there were `DELIVERIES` of them.
        """
        self.attempts += 1
        failure = self._attempt()
        if failure is None:
            return None
        reason = _reason(failure, self._topic)
        if self.attempts < DELIVERIES and _is_retriable(failure):
            return f"topic {self._topic!r}: {reason}"
        message = self._message
        times = f" in {self.attempts} attempts" if self.attempts > 1 else ""
        raise DeadLetterError(
            f"the record at {message.topic()}-{message.partition()} offset {message.offset()}"
            f" could not be written to topic {self._topic!r}{times}: {reason}. It is not"
            " committed, so it will be read again"
        ) from self._error

    def _attempt(self) -> object:
        """Make an attempt; return the failure, None if there is none."""
        try:
            if self._delivery is None:
                self._poll(0)  # reports make room in a queue that is full
                self._delivery = self._produced()
            self._wait(self._delivery)
        except _failures() as error:
            # What was produced, the producer still has: a callback of the program may have raised.
            return error
        failure, self._delivery = self._delivery.failure, None
        return failure

    def _produced(self) -> _Delivery:
        delivery, message = _Delivery(), self._message
        self._producer.produce(
            self._topic,
            value=message.value(),
            key=message.key(),
            headers=self._headers,
            on_delivery=delivery.report,
        )
        return delivery

    def _wait(self, delivery: _Delivery) -> None:
        deadline = None if self._timeout is None else monotonic() + self._timeout
        while not delivery.reported.is_set():
            if deadline is not None and monotonic() > deadline:
                raise TimeoutError(f"it was not confirmed within {self._timeout:g} s")
            # Another thread's poll may serve the callback, too.
            self._poll(_POLL)

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except UnicodeDecodeError as error:
            # librdkafka's line for the producer's logger is not UTF-8; reports come afterwards.
            if _is_of_a_callback(error):
                raise


@final
class _Delivery:
    """What the producer reports of a record that it was given.

    Attributes:
        reported: set when it has reported.
        failure: why the brokers do not have the record; None if they do.
    """

    def __init__(self) -> None:
        self.reported = threading.Event()
        self.failure: object = None

    def report(self, failure: object, written: Any) -> None:
        """Take the report, in the thread that polls the producer."""
        if failure is None and written is not None and written.offset() is None:
            failure = _UnconfirmedError()
        self.failure = failure
        self.reported.set()


class _UnconfirmedError(Exception):
    """The producer reports a record as written, and no broker has said so."""

    def __str__(self) -> str:
        return (
            "the producer reports it as written, but no broker has said at which offset (a later"
            " record was written, and the request with this one failed; or the producer has acks=0)"
        )


_PASSING: Final = (BufferError, TimeoutError, _UnconfirmedError)
"""A full queue, no report in time, or no broker's word: another attempt can help."""


def headers_for(
    message: Message, error: BaseException, attempts: int, group_id: str
) -> list[tuple[str, str | bytes | None]]:
    """The headers of a dead letter: the record's own, then where it came from and why."""
    own = headers_of(message)
    _, timestamp = message.timestamp()
    added = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "group_id": group_id,
        "attempts": attempts,
        "error": _cut(in_one_line(error)),
    }
    return [
        *(own or ()),
        *(
            (f"{_HEADER}{name}", str(value).encode(errors="replace"))
            for name, value in added.items()
        ),
    ]


def _cut(text: str) -> str:
    """The beginning of a text, with at most `_LONGEST_REASON` bytes of whole characters."""
    return text.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")


def _reads(topic: str | re.Pattern[str], name: str) -> bool:
    """Whether a name or pattern subscribes to this topic."""
    return topic == name if isinstance(topic, str) else topic.fullmatch(name) is not None


def _is_of_a_callback(error: UnicodeDecodeError) -> bool:
    """Whether Python code that a call of librdkafka has called has raised it."""
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_name in ("_poll", "poll"):
        here = here.tb_next  # also a program's own kind of producer has a method of this name
    return here is not None


def _is_retriable(failure: object) -> bool:
    error = _kafka_error(failure)
    if error is None:
        return isinstance(failure, _PASSING)
    return not error.fatal() and error.name() in _RETRIABLE


def _reason(failure: object, topic: str) -> str:
    """Why a record was not written, and what to do about it."""
    error = _kafka_error(failure)
    if error is None:
        return str(failure) if isinstance(failure, _PASSING) else _in_words(failure)
    reason = f"{text_of(error)} ({error.name()})"
    if error.name() in _MISSING:
        reason += f"; create topic {topic!r}, if its name is right: {creation(topic)}"
    if error.name() in _TOO_LARGE:
        reason += (
            "; a dead letter is larger than its record, by the headers that say why it is there:"
            f" raise message.max.bytes of the producer, and max.message.bytes of topic {topic!r}"
        )
    grant = to_grant(error.code(), "WRITE", topic=topic, may_be_missing=True)
    return f"{reason}; {grant}" if grant else reason


def _kafka_error(failure: object) -> KafkaError | None:
    """The error of librdkafka in a report or in an exception; None if there is none.

    A program may raise KafkaException with whatever it likes.
    """
    found: Any = failure.args[0] if isinstance(failure, Exception) and failure.args else failure
    error: KafkaError | None = found if callable(getattr(found, "fatal", None)) else None
    return error


def _in_words(failure: object) -> str:
    """What a callback of the program, or its own kind of producer, has raised or reported."""
    return in_one_line(failure) if isinstance(failure, BaseException) else short_repr(failure)


def _failures() -> tuple[type[Exception], ...]:
    # A program that has a Producer has imported it; kgroup itself imports it on first use only.
    from confluent_kafka import KafkaException

    return BufferError, TimeoutError, KafkaException
