"""kafka-python against the embedded broker: a producer and a consumer group."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.broker import serve
from tests.broker.interop.clients import AT_ONCE, PATIENCE, beside, until

VALUES = [b"%d" % number for number in range(100)]


def _work(servers: str) -> None:
    # Importing it warns; only in the test itself can that be allowed.
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    for value in VALUES:
        producer.send("t", value)
    producer.flush(PATIENCE)
    producer.close(PATIENCE)
    consumer = KafkaConsumer(
        "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
    )
    seen: list[Any] = []

    def step() -> None:
        for records in consumer.poll(timeout_ms=100).values():
            seen.extend(record.value for record in records)

    until(lambda: len(seen) >= len(VALUES), step, "all records")
    assert sorted(seen) == sorted(VALUES)
    consumer.commit()
    consumer.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_what_is_produced_is_consumed() -> None:
    """Every record arrives once, and the offsets are committed."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t", 2)
        await beside(_work, broker.bootstrap_servers)
        assert sum(one.offset for one in (await broker.committed("g")).values()) == len(VALUES)
