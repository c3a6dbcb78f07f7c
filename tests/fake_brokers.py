"""Fake brokers, by address: each answers the requests of an API as a test says."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs
import trio
import trio.testing

from kgroup.addresses import split_address
from kgroup.client.cluster import Cluster
from kgroup.config import GroupConfig
from kgroup.errors import AuthenticationError, ConnectionLostError
from kgroup.wire.codec import RequestFrame
from tests.wire.scripted import NO_TIME, RANGES, Peer

Answer = Mapping[str, Any] | Callable[[RequestFrame], Mapping[str, Any] | None]
"""An answer's fields, or a function that makes them of the request; None disconnects."""
SILENCE: Final[Mapping[str, Any]] = {"nothing": "is answered"}
"""An answer that never comes."""


@final
@attrs.define
class FakeBroker:
    """One broker: how it answers each API, in which versions, and why it refuses connections."""

    answers: dict[str, Answer]
    ranges: dict[str, tuple[int, int]] = attrs.field(factory=lambda: dict(RANGES))
    up: bool = True
    refusal: AuthenticationError | None = None


@final
class FakeBrokers:
    """All brokers of a test, and the requests that they received."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._nodes: dict[str, FakeBroker] = {}
        self.received: list[tuple[str, RequestFrame]] = []
        self.refused: list[str] = []
        """The addresses that refused a connection by a ``refusal``."""
        self.open_now = 0
        self.opened = 0

    def add(self, address: str, **answers: Answer) -> FakeBroker:
        """Begin to listen on an address."""
        self._nodes[address] = FakeBroker(answers)
        return self._nodes[address]

    def requests(self, api: str) -> list[Any]:
        """The requests of an API."""
        return [frame.entity for _, frame in self.received if frame.api == api]

    def versions(self, api: str) -> list[int]:
        """The versions of the requests of an API."""
        return [frame.version for _, frame in self.received if frame.api == api]

    def addresses(self, api: str) -> list[str]:
        """The addresses of the brokers that received requests of an API."""
        return [address for address, frame in self.received if frame.api == api]

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        """A ``StreamOpener``."""
        await trio.lowlevel.checkpoint()
        node = self._nodes.get(f"{host}:{port}")
        if node is None or not node.up:
            raise ConnectionRefusedError(f"no broker listens on {host}:{port}")
        if node.refusal is not None:
            self.refused.append(f"{host}:{port}")
            raise node.refusal
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, f"{host}:{port}", node, theirs)
        return ours

    def config(self, **settings: Any) -> GroupConfig:
        """A configuration that knows ``a:1``."""
        given = {"group_id": "g", "bootstrap_servers": "a:1", "topics": ["t"], **settings}
        return GroupConfig(**given)

    def cluster(self, **settings: Any) -> Cluster:
        """A client's view of the brokers."""
        return Cluster(self.config(**settings), self.open, random.Random(1))

    async def _serve(self, address: str, node: FakeBroker, stream: trio.abc.Stream) -> None:
        self.open_now += 1
        self.opened += 1
        async with stream:
            try:
                peer = Peer(stream)
                await peer.negotiate(node.ranges)
                while True:
                    request = await peer.request()
                    self.received.append((address, request))
                    answer = node.answers[request.api]
                    fields = answer(request) if callable(answer) else answer
                    if fields is None:
                        return
                    if fields is SILENCE:
                        await peer.rest()
                        return
                    await peer.answer(request, **{**NO_TIME, **fields})
            except ConnectionLostError:
                return  # the client hung up
            finally:
                self.open_now -= 1


def metadata(
    brokers: Mapping[int, str],
    topics: Mapping[str, int | list[int]] | None = None,
    *,
    leader_epoch: int = -1,
    **fields: Any,
) -> Mapping[str, Any]:
    """A Metadata answer.

    Args:
        brokers: addresses by node id.
        topics: the leaders of each topic's partitions, or the error of the topic.
        leader_epoch: that of all partitions.
        fields: others of the answer.
    """
    return {
        "brokers": [
            {
                "node_id": number,
                "host": split_address(name)[0],
                "port": split_address(name)[1],
                "rack": None,
            }
            for number, name in brokers.items()
        ],
        "cluster_id": None,
        "controller_id": -1,
        "topics": [
            {
                "error_code": leaders if isinstance(leaders, int) else 0,
                "name": name,
                "topic_id": None,
                "is_internal": name.startswith("__"),
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": number,
                        "leader_id": leader,
                        "leader_epoch": leader_epoch,
                        "replica_nodes": [max(leader, 0)],
                        "isr_nodes": [],
                    }
                    for number, leader in enumerate(leaders if isinstance(leaders, list) else [])
                ],
            }
            for name, leaders in (topics or {}).items()
        ],
        "error_code": 0,
        **fields,
    }
