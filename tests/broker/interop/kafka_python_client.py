"""A producer and a consumer group of kafka-python's, as a program of its own.

In the test's process it would leave sockets and threads behind, for which other tests would fail.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import RebalanceInProgressError

VALUES = [b"%d" % number for number in range(100)]
PATIENCE = 45.0  # the test runs again with another consumer


def main(servers: str, security: Mapping[str, Any]) -> None:
    """Produce records, consume all of them, and commit."""
    producer = KafkaProducer(bootstrap_servers=servers, **security)
    for value in VALUES:
        producer.send("t", value)
    producer.flush(PATIENCE)
    producer.close(PATIENCE)
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **security
    )
    # One that learns of the topic only while it joins, and so joins again, sometimes hangs (seen
    # with kafka-python 3.0.12 on Apache Kafka as well).
    consumer.partitions_for_topic("t")
    consumer.subscribe(["t"])
    seen: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(seen) < len(VALUES):
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(seen)} records of {len(VALUES)} within {PATIENCE} s")
        for records in consumer.poll(timeout_ms=100).values():
            seen.extend(record.value for record in records)
    if sorted(seen) != sorted(VALUES):
        raise SystemExit(f"other records than were produced: {sorted(seen)}")
    while True:
        try:
            consumer.commit()
        except RebalanceInProgressError:
            # It joins again if its heartbeats were late, because the machine was busy; as its
            # error says, poll() completes the rebalance.
            if time.monotonic() > deadline:
                raise SystemExit("its rebalance does not end") from None
            consumer.poll(timeout_ms=100)
        else:
            break
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]) if sys.argv[2:] else {})
