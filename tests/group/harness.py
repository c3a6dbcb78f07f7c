"""A broker in memory, groups on it, and the requests they sent: for tests in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, final

import trio

from kgroup.broker import EmbeddedBroker, in_memory
from kgroup.config import GroupConfig
from kgroup.events import Event
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import TopicPartition

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}


@final
class Harness:
    """A broker with a topic ``topic``, groups on it, and the requests that it received."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.requests: list[tuple[float, str, Any]] = []
        self.events: list[Event] = []
        self._began = trio.current_time()
        broker.slow(0.0, match=self._note)
        self._seeds = 0

    @property
    def now(self) -> float:
        """Seconds since the test made this."""
        return trio.current_time() - self._began

    def config(self, **settings: object) -> GroupConfig:
        """A configuration for this broker."""
        return config_for(self.broker, **settings)

    def group(self, **settings: object) -> ConsumerGroup:
        """A group whose events are recorded."""
        self._seeds += 1
        return ConsumerGroup(
            self.config(**settings),
            runtime=memory_runtime(self.broker, seed=self._seeds),
            on_event=self.events.append,
        )

    def events_of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def requests_for(self, *apis: str, since: float = 0.0) -> list[tuple[str, Any]]:
        """The requests of these APIs, in their order."""
        return [(api, it) for at, api, it in self.requests if api in apis and at >= since]

    async def append(self, count: int, partition: int = 0, topic: str = "topic") -> None:
        """Append records ``0``, ``1``, ... to a partition."""
        await self.broker.append(topic, partition, [str(n).encode() for n in range(count)])

    async def committed(self, group_id: str = "group") -> dict[TopicPartition, int]:
        """The committed offset of each partition."""
        offsets = await self.broker.committed(group_id)
        return {name: at.offset for name, at in offsets.items()}

    def _note(self, request: Any) -> bool:
        self.requests.append((self.now, api_of(request), request))
        return False


def api_of(request: Any) -> str:
    """The API's name, as kio spells it, of one of kio's requests."""
    return str(type(request).__module__.split(".")[2])


@asynccontextmanager
async def harness(partitions: int = 1, **settings: str) -> AsyncIterator[Harness]:
    """Start a broker whose ``topic`` has this many partitions; 0 means that there is no topic."""
    async with in_memory({**SETTINGS, **settings}) as broker:
        if partitions:
            await broker.create_topic("topic", partitions)
        yield Harness(broker)


def values(messages: Sequence[Any]) -> list[int]:
    """The numbers that `Harness.append` wrote."""
    return [int(message.value()) for message in messages]


P0, P1, P2 = (TopicPartition("topic", number) for number in range(3))
