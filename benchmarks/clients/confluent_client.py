"""confluent-kafka, as its documentation recommends: consume a batch, process it, commit it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.clients.job import Ended, Job, Note, in_threads

POLL = 1.0
"""Seconds for which ``poll`` waits for a record."""


def eager(job: Job, note: Note, ended: Ended) -> None:
    """The classic protocol with an eager assignor."""
    classic = {"partition.assignment.strategy": "range,roundrobin"}
    _subscribed(job, note, ended, {**classic, **timeouts(job)})


def cooperative(job: Job, note: Note, ended: Ended) -> None:
    """The classic protocol, incrementally (KIP-429)."""
    incremental = {"partition.assignment.strategy": "cooperative-sticky"}
    _subscribed(job, note, ended, {**incremental, **timeouts(job)})


def kip848(job: Job, note: Note, ended: Ended) -> None:
    """The new protocol, in which the broker sets timeout and interval."""
    _subscribed(job, note, ended, {"group.protocol": "consumer"})


def raw(job: Job, note: Note, ended: Ended) -> None:
    """No group at all: all partitions are assigned by hand."""
    _assigned(job, note, ended, {})


def checked(job: Job, note: Note, ended: Ended) -> None:
    """The same, and corrupt records are noticed."""
    _assigned(job, note, ended, {"check.crcs": True})


def settings(job: Job, group: str) -> dict[str, Any]:
    """What all of them share."""
    refresh = {"topic.metadata.refresh.interval.ms": int(job.refresh * 1000)}
    return {
        **(refresh if job.refresh else {}),
        "bootstrap.servers": job.servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # Its default of a second delays a consumer whose queue was full once.
        "fetch.queue.backoff.ms": 1,
        **_properties(job.properties),
    }


def _properties(file: str) -> dict[str, str]:
    """The properties of a file, one a line."""
    lines = Path(file).read_text().splitlines() if file else []
    return dict(line.split("=", 1) for line in lines)


def timeouts(job: Job) -> dict[str, int]:
    """Timeout and interval of the classic protocol."""
    if not job.heartbeat:
        return {}
    return {
        "session.timeout.ms": int(job.session * 1000),
        "heartbeat.interval.ms": int(job.heartbeat * 1000),
    }


def _assigned(job: Job, note: Note, ended: Ended, more: Mapping[str, Any]) -> None:
    consumer = Consumer({**settings(job, job.group), **more})
    consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
    _consume(consumer, job, note, ended)


def _subscribed(job: Job, note: Note, ended: Ended, more: Mapping[str, Any]) -> None:
    def member(group: str) -> None:
        consumer = Consumer({**settings(job, group), **more})
        consumer.subscribe([job.topic])
        _consume(consumer, job, note, ended)

    in_threads(member, job.groups())


def _consume(consumer: Consumer, job: Job, note: Note, ended: Ended) -> None:
    # One poll waits for the first record, so that a short batch is not held back.
    while not ended:
        first = consumer.poll(POLL)
        if first is None:
            continue
        messages = [first, *consumer.consume(job.batch - 1, 0)] if job.batch > 1 else [first]
        good = [message for message in messages if message.error() is None]
        if not good:
            continue
        if job.work:
            time.sleep(job.work)
        note(len(good), ((one.partition(), one.offset(), one.value()) for one in good))
        if job.commit:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print(f"commit refused: {error}", file=sys.stderr)
    consumer.close()
