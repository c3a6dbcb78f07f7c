"""Produces the lines, paced so that they last through all the events of the demo.

A few lines in a row go to each partition in turn, new ones included. Where each line came to lie is
kept: it is what workers' journals are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import trio
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kgroup.cli.demo.errors import DemoError

BEAT: Final = 1.0
"""Seconds between two portions: workers get batches, and something to do between two."""
RUN: Final = 10
"""Lines in a row that go to one partition."""
FLUSH: Final = 20.0
"""Seconds that a cluster gets to acknowledge what was sent."""
_PAUSE: Final = 0.2
_MOST_QUEUED: Final = 50_000
"""librdkafka's queue takes twice as many."""


@final
class LineProducer:
    """The lines, and where each of them is.

    Attributes:
        placed: partition and offset of each acknowledged line -> the line's number.
        sent: how many were given to the producer.
    """

    def __init__(self, bootstrap_servers: str, topic: str, lines: Sequence[str]) -> None:
        self._lines = lines
        self._topic = topic
        self._refused: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self.partitions = 0
        self.sent = 0
        self.placed: dict[tuple[int, int], int] = {}

    @property
    def left(self) -> int:
        """How many lines are still to be sent."""
        return len(self._lines) - self.sent

    async def spread_over(self, partitions: int) -> None:
        """From now on lines go to so many partitions.

        Raises:
            DemoError: the producer does not learn of them.
        """
        deadline = trio.current_time() + FLUSH
        while trio.current_time() < deadline:
            if await trio.to_thread.run_sync(self._known_partitions) >= partitions:
                self.partitions = partitions
                return
            await trio.sleep(_PAUSE)
        raise DemoError(f"the producer knows no {partitions} partitions of topic {self._topic}")

    def send(self, number: int) -> None:
        """Send the next lines, at most as many as are left and the producer has room for.

        Raises:
            DemoError: the cluster refused a line.
        """
        self._producer.poll(0)
        room = _MOST_QUEUED - len(self._producer)
        for line in range(self.sent, self.sent + max(0, min(number, self.left, room))):
            self._send_one(line)
        self._raise_refusal()

    async def flush(self) -> None:
        """Wait until every line that was sent is acknowledged.

        Raises:
            DemoError: the cluster refused one, or does not answer.
        """
        waiting = await trio.to_thread.run_sync(
            lambda: self._producer.flush(FLUSH), abandon_on_cancel=True
        )
        self._raise_refusal()
        if waiting:
            raise DemoError(f"{waiting} lines were not acknowledged within {FLUSH:g} s")

    def _send_one(self, line: int) -> None:
        def placed(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None or partition is None or offset is None:
                self._refused = error
            else:
                self.placed[partition, offset] = line

        self._producer.produce(
            self._topic,
            self._lines[line].encode(),
            partition=line // RUN % self.partitions,
            on_delivery=placed,
        )
        self.sent += 1

    def _raise_refusal(self) -> None:
        if self._refused is not None:
            raise DemoError(f"the cluster refused a line: {self._refused.str()}")

    def _known_partitions(self) -> int:
        try:
            topics = self._producer.list_topics(self._topic, timeout=FLUSH).topics
        except KafkaException:
            return 0
        return len(topics[self._topic].partitions)
