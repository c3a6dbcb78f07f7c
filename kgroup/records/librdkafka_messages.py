"""What librdkafka's Consumer returns: errors, with the action for each, and runs of records.

Errors. One table names the action for each code: ``WAIT`` (librdkafka retries by itself; the
error is reported as an event), ``RESET`` (the position is not in the log; the reader has to
``seek``) and ``FAIL`` (waiting will not help). A code that is not in the table is waited out: a
newer broker's transient error must not end a group, and the event names the error. An error
arrives in one of two ways: as a message without a record, which has its partition, or through the
error callback, where only the text names a partition. That a log was truncated arrives under the
code of an offset that is out of range; only the text says so, and where (``truncation_in``).

Runs. confluent-kafka has no queues per partition, so its caller has to split what it consumed,
and that must cost little for each record. ``runs`` reads the partition numbers in one pass at the
speed of C. It then finds the end of each run by galloping over the numbers, and proves every
stretch that it skips by counting. (Offsets alone would be no proof: "as far apart in the log as in
the list" is also true where a transaction's marker leaves a gap that is exactly as long as another
partition's records in between.)

Source: librdkafka's ``rd_kafka_fetch_reply_handle_partition_error``, ``rd_kafka_offset_reset``,
``rd_kafka_toppar_handle_OffsetForLeaderEpoch``, ``rdkafka_msgset_reader.c``; Kafka's
``FetchCollector.handleInitializeErrors`` and ``SubscriptionState.maybeCompleteValidation``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, final

import attrs
from confluent_kafka import Consumer, KafkaError, Message

from kgroup.permissions import to_grant
from kgroup.types import TopicPartition
from kgroup.wire.librdkafka_texts import escaped, explained, text_of


# ruff: noqa: SLF001 - librdkafka's own codes are public names that begin with _
@final
class ErrorAction(enum.Enum):
    """What is done about an error."""

    WAIT = "wait"
    RESET = "reset"
    FAIL = "fail"


ERROR_ACTIONS: Final = {
    # The position is not in the log.
    # With auto.offset.reset=error, this is how "out of range" arrives.
    KafkaError._AUTO_OFFSET_RESET: ErrorAction.RESET,
    KafkaError.OFFSET_OUT_OF_RANGE: ErrorAction.RESET,
    KafkaError._LOG_TRUNCATION: ErrorAction.RESET,  # see `truncation_in`
    # Waiting will not help.
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    KafkaError._BAD_MSG: ErrorAction.FAIL,  # a batch with a wrong CRC; librdkafka would skip it
    KafkaError.INVALID_MSG: ErrorAction.FAIL,  # the broker's code for it (CORRUPT_MESSAGE)
    KafkaError._BAD_COMPRESSION: ErrorAction.FAIL,
    KafkaError._NOT_IMPLEMENTED: ErrorAction.FAIL,  # a codec or message format it cannot read
    KafkaError._UNSUPPORTED_FEATURE: ErrorAction.FAIL,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: ErrorAction.FAIL,
    KafkaError.MSG_SIZE_TOO_LARGE: ErrorAction.FAIL,  # larger than receive.message.max.bytes
    KafkaError.TOPIC_EXCEPTION: ErrorAction.FAIL,
    KafkaError._FATAL: ErrorAction.FAIL,
    # Waiting helps, or may help.
    KafkaError.GROUP_AUTHORIZATION_FAILED: ErrorAction.WAIT,  # fetching needs no group
    KafkaError.UNKNOWN_TOPIC_OR_PART: ErrorAction.WAIT,  # deleted, or not yet known everywhere
    KafkaError._UNKNOWN_TOPIC: ErrorAction.WAIT,
    KafkaError._UNKNOWN_PARTITION: ErrorAction.WAIT,
    KafkaError.UNKNOWN_TOPIC_ID: ErrorAction.WAIT,  # deleted and created again; metadata follows
    KafkaError.INCONSISTENT_TOPIC_ID: ErrorAction.WAIT,
    KafkaError.LEADER_NOT_AVAILABLE: ErrorAction.WAIT,
    KafkaError.NOT_LEADER_FOR_PARTITION: ErrorAction.WAIT,
    KafkaError.REPLICA_NOT_AVAILABLE: ErrorAction.WAIT,
    KafkaError.BROKER_NOT_AVAILABLE: ErrorAction.WAIT,
    KafkaError.OFFSET_NOT_AVAILABLE: ErrorAction.WAIT,
    KafkaError.KAFKA_STORAGE_ERROR: ErrorAction.WAIT,
    KafkaError.FENCED_LEADER_EPOCH: ErrorAction.WAIT,
    KafkaError.UNKNOWN_LEADER_EPOCH: ErrorAction.WAIT,
    KafkaError.UNKNOWN: ErrorAction.WAIT,
    KafkaError._TRANSPORT: ErrorAction.WAIT,
    KafkaError._ALL_BROKERS_DOWN: ErrorAction.WAIT,
    KafkaError._RESOLVE: ErrorAction.WAIT,
    KafkaError._TIMED_OUT: ErrorAction.WAIT,
    # The control plane connects with the same credentials and decides whether these are fatal.
    KafkaError._SSL: ErrorAction.WAIT,
    KafkaError._AUTHENTICATION: ErrorAction.WAIT,
}
"""The action for each of librdkafka's and Kafka's codes that a fetch can meet."""

_REMEDIES: Final = {
    KafkaError._SSL: (
        "check Security.ca, certificate and key, and dates and names of the broker's certificate"
    ),
    KafkaError._AUTHENTICATION: "check the login in Security, and whether the user still exists",
}
"""What to do about an error that librdkafka's text does not say."""
_SUBJECT: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+) \[(?P<partition>\d+)\]: ")
_TRUNCATED: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()
_DIVERGENCE: Final = re.compile(
    r"offset (?P<position>\d+) \(leader epoch -?\d+\): broker end offset is (?P<end>-?\d+)"
    r" \(offset leader epoch (?P<epoch>-?\d+)\)"
)


@final
@attrs.frozen
class Truncation:
    """A log was cut below what librdkafka had fetched (KIP-320).

    Attributes:
        position: the offset up to which librdkafka had fetched, or None.
        end: where the log diverges from what was fetched; None if its leader does not know.
    """

    position: int | None = None
    end: int | None = None

    def concerns(self, start_offset: int, next_offset: int) -> bool:
        """Whether it is about this fetch, and something that arrived is cut off.

        An error has no number of its fetch: it belongs to an earlier one if this one began past its
        position, or has brought nothing and began elsewhere.

        Args:
            start_offset: where the fetch began.
            next_offset: the offset after the last record that arrived.
        """
        if self.position is not None and self.position != start_offset:
            arrived = next_offset > start_offset
            if self.position < start_offset or not arrived:
                return False
        return self.end is None or self.end < next_offset


def action_for(error: KafkaError) -> ErrorAction:
    """What is done about an error."""
    if error.fatal():
        return ErrorAction.FAIL
    return ERROR_ACTIONS.get(error.code(), ErrorAction.WAIT)


def truncation_in(error: KafkaError) -> Truncation | None:
    """What an error says of a log that was truncated; None if it is another error.

    Another fetch cannot verify it: librdkafka compares logs when the leader changes and when it is
    made to (``ConsumerFetches.begin_again``), and not when a fetch begins.
    """
    text = text_of(error)
    if error.code() != KafkaError._LOG_TRUNCATION and _TRUNCATED not in text:
        return None
    found = _DIVERGENCE.search(text)
    if found is None:
        return Truncation()
    end, epoch = int(found["end"]), int(found["epoch"])
    return Truncation(int(found["position"]), end if end >= 0 and epoch >= 0 else None)


def partition_in_text(error: KafkaError) -> TopicPartition | None:
    """Find the partition that the text of an error from the callback names, or None."""
    match = _SUBJECT.match(text_of(error))
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def describe_undecoded(error: UnicodeDecodeError) -> str:
    """What a call of a Consumer says by this error: it could not decode a log line."""
    return f"a log line of librdkafka is not UTF-8: {escaped(error)}"


def close_consumer(consumer: Consumer) -> None:
    """Close a Consumer, also if confluent-kafka cannot decode one of the last log lines."""
    with suppress(UnicodeDecodeError):  # by then it is closed
        consumer.close()


def describe_error(error: KafkaError, topic: str = "") -> str:
    """Return the error's name, what librdkafka's text means, and what to do about it.

    Args:
        error: the error.
        topic: the topic that was read, if the error is about one.
    """
    code = error.code()
    remedy = _REMEDIES.get(code) or to_grant(code, "READ" if topic else "", topic=topic)
    return f"{error.name()}: {explained(text_of(error))}{f'; {remedy}' if remedy else ''}"


def has_errors(chunk: Sequence[Message]) -> bool:
    """Whether any of these is an error and no record."""
    return any(map(Message.error, chunk))


def count_rising(messages: Sequence[Message], offset: int) -> int:
    """How many of the first messages are at or past the offset, each past the one before."""
    for number, message in enumerate(messages):
        at = message.offset() or 0
        if at < offset:
            return number
        offset = at + 1
    return len(messages)


def runs(chunk: Sequence[Message], *, topics: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each run of one partition in a chunk without errors, in order.

    Args:
        chunk: the messages that were consumed.
        topics: how many topics are being fetched; names are compared only if there are several.
    """
    numbers = list(map(Message.partition, chunk))
    names = list(map(Message.topic, chunk)) if topics > 1 else None
    start = 0
    while start < len(numbers):
        end = run_end(numbers, start, len(numbers))
        if names is not None:
            end = run_end(names, start, end)
        yield start, end
        start = end


def run_end(keys: Sequence[Any], start: int, stop: int) -> int:
    """Find the end of the run of equal keys that begins at ``start``, at most ``stop``."""
    key, end, step = keys[start], start + 1, 1
    growing = True
    while end < stop and step:
        step = min(step, stop - end)
        if keys[end : end + step].count(key) == step:
            end += step
            step = step * 2 if growing else step
        else:
            growing = False
            step //= 2
    return end
