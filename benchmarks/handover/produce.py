"""The producer's process: records at a steady rate, each with the time at which it was produced.

    python -m benchmarks.handover.produce SERVERS TOPIC PARTITIONS RATE [BURST]

It ends at SIGTERM; with a burst, it first produces so many records at once, and ends after them.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from confluent_kafka import Producer

PAUSE = 0.01
"""Seconds between two bursts of records. With 2 ms the broker spent more than a processor on small
requests, which left the clients waiting for it."""


def main() -> None:
    """Produce, and spread the records evenly over the partitions."""
    servers, topic, *numbers = sys.argv[1:]
    partitions, rate, burst = map(int, (*numbers, "0")[:3])
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    for number in range(burst):
        producer.produce(topic, str(time.monotonic()), partition=number % partitions)
    sent, began = 0, time.monotonic()
    while not burst and not ended.is_set():
        for _ in range(int((time.monotonic() - began) * rate) - sent):
            producer.produce(topic, str(time.monotonic()), partition=sent % partitions)
            sent += 1
        producer.poll(0)
        time.sleep(PAUSE)
    producer.flush()


if __name__ == "__main__":
    main()
