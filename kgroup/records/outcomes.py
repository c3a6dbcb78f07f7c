"""What follows an error that librdkafka reports: one table, code by code.

Three outcomes: ``WAIT`` (librdkafka goes on trying; it is told as an event), ``RESET`` (the
position is not in the log; whoever reads has to ``seek``) and ``FAIL`` (waiting will not help).
A code that is not in the table is waited out: a newer broker's transient error must not end a
group, and the event names it.

Errors arrive in two ways: as a message without a record, with its partition, or through the
error callback, where a partition is told in words only.

Source: librdkafka's ``rd_kafka_fetch_reply_handle_partition_error``, ``rd_kafka_offset_reset``,
``rdkafka_msgset_reader.c``; Kafka's ``FetchCollector.handleInitializeErrors``.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - librdkafka's own codes are public names that begin with _
import enum
import re
from typing import Final, final

from confluent_kafka import KafkaError

from kgroup.model import TopicPartition


@final
class Outcome(enum.Enum):
    """What is done about an error."""

    WAIT = "wait"
    RESET = "reset"
    FAIL = "fail"


OUTCOMES: Final = {
    # Not in the log.
    KafkaError._AUTO_OFFSET_RESET: Outcome.RESET,  # how out of range arrives under "error"
    KafkaError.OFFSET_OUT_OF_RANGE: Outcome.RESET,
    KafkaError._LOG_TRUNCATION: Outcome.RESET,  # KIP-320: the log was cut below the position
    # Waiting does not help.
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Outcome.FAIL,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Outcome.FAIL,
    KafkaError._BAD_MSG: Outcome.FAIL,  # a batch whose CRC is wrong; librdkafka would skip it
    KafkaError.INVALID_MSG: Outcome.FAIL,  # the broker's word for the same (CORRUPT_MESSAGE)
    KafkaError._BAD_COMPRESSION: Outcome.FAIL,
    KafkaError._NOT_IMPLEMENTED: Outcome.FAIL,  # a codec or message format it cannot read
    KafkaError._UNSUPPORTED_FEATURE: Outcome.FAIL,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: Outcome.FAIL,
    KafkaError.MSG_SIZE_TOO_LARGE: Outcome.FAIL,  # larger than receive.message.max.bytes
    KafkaError.TOPIC_EXCEPTION: Outcome.FAIL,
    KafkaError._FATAL: Outcome.FAIL,
    # Passes, or may.
    KafkaError.GROUP_AUTHORIZATION_FAILED: Outcome.WAIT,  # fetching needs no group
    KafkaError.UNKNOWN_TOPIC_OR_PART: Outcome.WAIT,  # deleted, or not yet known everywhere
    KafkaError._UNKNOWN_TOPIC: Outcome.WAIT,
    KafkaError._UNKNOWN_PARTITION: Outcome.WAIT,
    KafkaError.UNKNOWN_TOPIC_ID: Outcome.WAIT,  # deleted and created again; metadata follows
    KafkaError.INCONSISTENT_TOPIC_ID: Outcome.WAIT,
    KafkaError.LEADER_NOT_AVAILABLE: Outcome.WAIT,
    KafkaError.NOT_LEADER_FOR_PARTITION: Outcome.WAIT,
    KafkaError.REPLICA_NOT_AVAILABLE: Outcome.WAIT,
    KafkaError.BROKER_NOT_AVAILABLE: Outcome.WAIT,
    KafkaError.OFFSET_NOT_AVAILABLE: Outcome.WAIT,
    KafkaError.KAFKA_STORAGE_ERROR: Outcome.WAIT,
    KafkaError.FENCED_LEADER_EPOCH: Outcome.WAIT,
    KafkaError.UNKNOWN_LEADER_EPOCH: Outcome.WAIT,
    KafkaError.UNKNOWN: Outcome.WAIT,
    KafkaError._TRANSPORT: Outcome.WAIT,
    KafkaError._ALL_BROKERS_DOWN: Outcome.WAIT,
    KafkaError._RESOLVE: Outcome.WAIT,
    KafkaError._TIMED_OUT: Outcome.WAIT,
    KafkaError._SSL: Outcome.WAIT,  # whether the client may connect at all is found
    KafkaError._AUTHENTICATION: Outcome.WAIT,  # out, and decided on, by the control plane
}
"""For each of librdkafka's and Kafka's codes that a fetch can meet, what is done about it."""

_SUBJECT: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+) \[(?P<partition>\d+)\]: ")


def outcome_of(error: KafkaError) -> Outcome:
    """What is done about an error."""
    if error.fatal():
        return Outcome.FAIL
    return OUTCOMES.get(error.code(), Outcome.WAIT)


def subject_of(error: KafkaError) -> TopicPartition | None:
    """The partition that an error from the callback names in its words, or None."""
    match = _SUBJECT.match(error.str())
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def in_words(error: KafkaError) -> str:
    """The error's name and what librdkafka says about it."""
    return f"{error.name()}: {error.str()}"
