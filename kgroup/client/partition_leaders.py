"""The cache of partition leaders, and requests to several leaders at the same time.

A cached leader may be wrong: a leader moves, and its error code, or the missing response, shows it.
Therefore `PartitionLeaders.forget_failed` gets the results of requests to cached leaders, and the
leaders that it forgets are looked up again.

The cache has what the last response about each topic said, and no topic that nobody asks for any
more: a response about all topics replaces everything, and a member that joins forgets the topics to
which it does not subscribe (`PartitionLeaders.forget_others`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, final

import trio

from kgroup.client.error_policy import Request, reaction_to
from kgroup.errors import BrokerError, KgroupError, TransportError
from kgroup.types import TopicPartition

T = TypeVar("T")


@final
class PartitionLeaders:
    """The node ids of partitions' leaders, and their leader epochs."""

    def __init__(self) -> None:
        self._nodes: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._counts: Counter[str] = Counter()

    def replace(
        self,
        topics: Collection[str] | None,
        leaders: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Replace the cached leaders of these topics, and their epochs as far as they are known.

        Args:
            topics: the topics of the response; None if it was about all of the cluster.
            leaders: their leaders.
            epochs: the leader epochs of their partitions.
        """
        if topics is None:
            self.forget_others(())
            topics = ()
        for known, new in ((self._nodes, leaders), (self._epochs, epochs)):
            for name in [name for name in known if name.topic in topics]:
                del known[name]
            known.update(new)
        for topic in topics:
            self._counts.pop(topic, None)
        self._counts.update(Counter(name.topic for name in leaders))

    def forget_others(self, topics: Collection[str]) -> None:
        """Forget all topics but these."""
        self._nodes = {name: node for name, node in self._nodes.items() if name.topic in topics}
        self._epochs = {name: epoch for name, epoch in self._epochs.items() if name.topic in topics}
        self._counts = Counter({name: n for name, n in self._counts.items() if name in topics})

    def of(self, partition: TopicPartition) -> int | None:
        """The leader's node id, or None if it is not known."""
        return self._nodes.get(partition)

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """The partition's leader epoch, or None if it is not known."""
        return self._epochs.get(partition)

    def count(self, topic: str) -> int:
        """How many leaders the last metadata of a topic had."""
        return self._counts[topic]

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the leaders of these, and how many their topics had."""
        for name in partitions:
            self._nodes.pop(name, None)
            self._counts.pop(name.topic, None)

    def forget_failed(
        self, request: Request, results: Mapping[TopicPartition, object | KgroupError]
    ) -> None:
        """Forget the leaders of partitions whose result, by the error policy, asks for a lookup.

        A broker that did not respond is forgotten as the leader of all its partitions.
        """
        for name, result in results.items():
            if not isinstance(result, BrokerError | TransportError):
                continue
            if not reaction_to(request, result).find:
                continue
            node = self._nodes.pop(name, None)
            if isinstance(result, TransportError):
                self._nodes = {own: led for own, led in self._nodes.items() if led != node}


async def request_all(
    requests: Sequence[Callable[[], Awaitable[T]]],
) -> Sequence[T | TransportError | BrokerError]:
    """Send all requests at the same time; a TransportError or BrokerError of one is its result.

    Raises:
        KgroupError: another error; the first in the order of `requests`, after all have ended.

    Cancellation: that of the requests.
    """
    results: dict[int, T | KgroupError] = {}

    @trio.lowlevel.enable_ki_protection
    async def send(number: int) -> None:
        try:
            results[number] = await requests[number]()
        except KgroupError as error:
            results[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(requests)):
            nursery.start_soon(send, number)
    in_order: list[T | TransportError | BrokerError] = []
    for number in range(len(requests)):
        result = results[number]
        if isinstance(result, KgroupError) and not isinstance(result, TransportError | BrokerError):
            raise result
        in_order.append(result)
    return in_order


def each_kind(
    failures: Iterable[BrokerError | TransportError],
) -> Collection[BrokerError | TransportError]:
    """Of the failures of several partitions, the first of each kind, for reports.

    A connection fails once for all partitions of its leader.
    """
    kinds: dict[object, BrokerError | TransportError] = {}
    for error in failures:
        kinds.setdefault(error.code if isinstance(error, BrokerError) else error, error)
    return kinds.values()
