"""What follows an error of librdkafka's, code by code."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kgroup.records.librdkafka_errors import OUTCOMES, ErrorAction, action_for, subject_of
from kgroup.types import TopicPartition


@pytest.mark.parametrize(("code", "expected"), OUTCOMES.items())
def test_the_table_is_followed(code: int, expected: ErrorAction) -> None:
    """Every code of the table has its outcome."""
    assert action_for(KafkaError(code)) is expected


def test_an_unknown_code_is_waited_out() -> None:
    """A newer broker's error ends nothing."""
    assert action_for(KafkaError(31_999)) is ErrorAction.WAIT


def test_a_fatal_error_fails_whatever_its_code() -> None:
    """Where librdkafka says that it is over, it is."""
    assert action_for(KafkaError(KafkaError._TRANSPORT, fatal=True)) is ErrorAction.FAIL


def test_the_partition_is_read_from_the_words() -> None:
    """The error callback tells a partition in words only."""
    named = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "my.topic-1 [12]: topic does not exist")
    assert subject_of(named) == TopicPartition("my.topic-1", 12)
    assert subject_of(KafkaError(KafkaError._TRANSPORT, "localhost:1/bootstrap: refused")) is None
