"""A topic for records that a worker cannot process: what is written there, and when it is safe.

A record keeps its key, value and headers. Further headers say where it came from and why it is
there; their names begin with ``dead_letter.``, so that they do not replace headers of its own.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, final

from kgroup import arguments
from kgroup.errors import ArgumentError, DeadLetterError, in_one_line
from kgroup.interfaces import Message

if TYPE_CHECKING:
    from confluent_kafka import Producer

_LONGEST_REASON: Final = 2000
"""Characters of an error's text in a header."""
_POLL: Final = 0.1


@final
class DeadLetters:
    """A topic for records that keep failing, as ``kgroup.retrying`` takes it for ``park``.

    Args:
        producer: writes the records. With ``enable.idempotence`` its own attempts repeat none.
        topic: the topic's name. Each record keeps its key, which decides on its partition.
        timeout: the seconds within which a record must be delivered.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """

    def __init__(self, producer: Producer, topic: str, *, timeout: float = 30.0) -> None:
        if not callable(getattr(producer, "produce", None)):
            raise ArgumentError("producer", producer, "it must be a confluent_kafka.Producer")
        self._producer = producer
        self._topic = arguments.instance("topic", topic, str)
        self._timeout = arguments.seconds("timeout", timeout)

    def send(self, message: Message, error: BaseException, attempts: int, group_id: str) -> None:
        """Write a record, and wait until the brokers have it; blocks the thread.

        Args:
            message: the record.
            error: why it cannot be processed.
            attempts: how often it was tried.
            group_id: the group that could not process it.

        Raises:
            DeadLetterError: it was not delivered, or it is not known whether it was.
        """
        delivered = threading.Event()
        failures: list[object] = []

        def on_delivery(failure: object, _: object) -> None:
            if failure is not None:
                failures.append(failure)
            delivered.set()

        try:
            self._producer.produce(
                self._topic,
                value=message.value(),
                key=message.key(),
                headers=headers_for(message, error, attempts, group_id),
                on_delivery=on_delivery,
            )
            self._wait(delivered)
        except _failures() as failure:
            failures.append(failure)
        if failures:
            raise DeadLetterError(
                f"record {message.offset()} of {message.topic()}-{message.partition()} could not be"
                f" written to topic {self._topic!r}: {failures[0]}. It is not committed, so it will"
                " be read again"
            ) from error

    def _wait(self, delivered: threading.Event) -> None:
        deadline = None if self._timeout is None else monotonic() + self._timeout
        while not delivered.is_set():
            if deadline is not None and monotonic() > deadline:
                raise TimeoutError(f"it was not confirmed within {self._timeout:g} s")
            # Another thread's poll may serve the callback, too.
            self._producer.poll(_POLL)

    def __repr__(self) -> str:
        return f"<DeadLetters {self._topic!r}>"


def headers_for(
    message: Message, error: BaseException, attempts: int, group_id: str
) -> list[tuple[str, str | bytes | None]]:
    """The headers of a dead letter: the record's own, then where it came from and why."""
    own: Any = message.headers()
    _, timestamp = message.timestamp()
    added = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "group_id": group_id,
        "attempts": attempts,
        "error": in_one_line(error)[:_LONGEST_REASON],
    }
    return [
        *(own or ()),
        *(
            (f"dead_letter.{name}", str(value).encode(errors="replace"))
            for name, value in added.items()
        ),
    ]


def _failures() -> tuple[type[Exception], ...]:
    # A program that has a Producer has imported it; kgroup itself imports it on first use only.
    from confluent_kafka import KafkaException

    return BufferError, TimeoutError, KafkaException
