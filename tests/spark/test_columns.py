"""Columns of records whose writers gave them extreme values."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from kgroup.spark.columns import TABLE, MessageRun

LAST = (2**63 - 1) // 1000


@pytest.mark.parametrize(
    ("given", "shown"),
    [(5, 5), (LAST, LAST), (LAST + 1, LAST), (2**63 - 1, LAST), (-(2**63), -LAST), (2**62, LAST)],
)
def test_a_timestamp_beyond_sparks_is_the_nearest_one(given: int, shown: int) -> None:
    """Kafka counts milliseconds in 64 bits, Spark microseconds; no record ends the read."""
    messages = [
        Message(topic="t", partition=0, offset=0, timestamp=(TIMESTAMP_CREATE_TIME, stamp))
        for stamp in (given, 7)
    ]
    run = MessageRun("t", 0, messages, numpy.array([0, 1]))
    column = TABLE["timestamp"].of_run(run)
    assert column.cast("int64").to_pylist() == [shown * 1000, 7000]
    assert column[1].as_py() == datetime.fromtimestamp(0.007, UTC)
