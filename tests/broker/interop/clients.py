"""Foreign clients against an embedded broker: in threads, and with deadlines.

The broker runs in the test's event loop; a client's calls run in threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

PATIENCE: Final = 120.0
"""Seconds after which a test stops waiting and fails."""
AT_ONCE: Final = {"group.initial.rebalance.delay.ms": 0}
"""Broker settings for groups that begin at once."""

Result = TypeVar("Result")


async def beside(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run a client's calls in a thread; fail the test if they take too long."""
    with trio.fail_after(2 * PATIENCE):
        return await trio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True)


def until(reached: Callable[[], bool], step: Callable[[], object], what: str) -> None:
    """Repeat a step until a condition holds.

    Raises:
        TimeoutError: the condition did not hold within ``PATIENCE``.
    """
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE} s: {what}")
        step()


def produced(servers: str, topic: str, values: list[bytes], **config: Any) -> None:
    """Produce values with confluent-kafka, spread by key, and wait for all acknowledgements."""
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": servers, **dotted(config)})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=str(number),
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(PATIENCE) == 0
    assert errors == []


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    """librdkafka's names, from keyword arguments."""
    return {name.replace("_", "."): value for name, value in config.items()}


class Member:
    """A confluent-kafka consumer in a group, driven by ``poll`` from the test."""

    def __init__(self, servers: str, group: str, topic: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                # A member that loses the connection while it waits for the topic's metadata asks
                # no more before this interval ends, by default 5 minutes.
                "topic.metadata.refresh.interval.ms": 1000,
                **dotted(config),
            }
        )
        self.values: list[bytes | str | None] = []
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        """Poll for records, and commit them."""
        for message in self.consumer.consume(1000, 0.05):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            self.values.append(message.value())
            self.consumer.commit(message=message, asynchronous=True)


@contextmanager
def members(
    servers: str, group: str, topic: str, count: int, **config: Any
) -> Iterator[list[Member]]:
    """The members of a group, as many as requested."""
    made = [Member(servers, group, topic, **config) for _ in range(count)]
    try:
        yield made
    finally:
        for member in made:
            member.consumer.close()
