"""Who leads which partition, as last told; and asking several leaders at the same time.

A memory only: it is right until a leader moves, which its answer (or its silence) tells. Whoever
asks a remembered leader says what came of it, and what is forgotten is looked up again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar, final

import trio

from kgroup.client.error_policy import Request, decide
from kgroup.errors import BrokerError, KgroupError, TransportError
from kgroup.types import TopicPartition

T = TypeVar("T")


@final
class PartitionLeaders:
    """The node ids of partitions' leaders."""

    def __init__(self) -> None:
        self._nodes: dict[TopicPartition, int] = {}

    def learn(self, topics: Collection[str], leaders: Mapping[TopicPartition, int]) -> None:
        """Know all that was told of topics, and no more what was known of them before."""
        others = {name: node for name, node in self._nodes.items() if name.topic not in topics}
        self._nodes = {**others, **leaders}

    def of(self, partition: TopicPartition) -> int | None:
        """The node id, or None where none is known."""
        return self._nodes.get(partition)

    def heed(
        self, request: Request, answers: Mapping[TopicPartition, object | KgroupError]
    ) -> None:
        """Forget the leaders of partitions whose answer says to look for them again.

        One that did not answer is forgotten for all of its partitions, asked for or not.
        """
        for name, answer in answers.items():
            if not isinstance(answer, BrokerError | TransportError):
                continue
            if not decide(request, answer).find:
                continue
            node = self._nodes.pop(name, None)
            if isinstance(answer, TransportError):
                self._nodes = {own: led for own, led in self._nodes.items() if led != node}


async def request_all(asks: Sequence[Callable[[], Awaitable[T]]]) -> Sequence[T | TransportError]:
    """The answers of all, asked at the same time; what failed on the way is the answer.

    Raises:
        KgroupError: another failure, the first in the order of `asks`, after all have ended.

    Cancellation: as theirs.
    """
    answers: dict[int, T | KgroupError] = {}

    async def ask(number: int) -> None:
        try:
            answers[number] = await asks[number]()
        except KgroupError as error:
            answers[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(asks)):
            nursery.start_soon(ask, number)
    told: list[T | TransportError] = []
    for number in range(len(asks)):
        answer = answers[number]
        if isinstance(answer, KgroupError) and not isinstance(answer, TransportError):
            raise answer
        told.append(answer)
    return told
