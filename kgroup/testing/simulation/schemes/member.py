"""What members of both earlier protocols share: a session, a registration, streams and offsets.

Offsets are znodes that any client may set: ZooKeeper does not know who owns a partition. Consumed
offsets are stored every minute and whenever the streams are stopped, as in Kafka 0.8.

Source: Kafka 0.8's ``ZookeeperConsumerConnector`` and ``ZkUtils``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from kgroup.notifier import Notifier
from kgroup.testing.simulation.process import Process
from kgroup.testing.simulation.schemes.streams import GROUP, Streams
from kgroup.testing.simulation.zookeeper.client import ZooKeeperClient, ZooKeeperRefusedError
from kgroup.testing.simulation.zookeeper.servers import address_of
from kgroup.testing.simulation.zookeeper.tree import ZooKeeperError
from kgroup.types import TopicPartition

COMMIT_INTERVAL: Final = 60.0
"""Kafka 0.8's ``auto.commit.interval.ms``, in seconds."""

GROUP_PATH: Final = f"/consumers/{GROUP}"
COORDINATOR: Final = "/consumers/coordinator"
"""The znode of the elected coordinator: its number, and which start of its broker it is."""
IDS: Final = f"{GROUP_PATH}/ids"
BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"


def owner_path(partition: TopicPartition) -> str:
    """The znode of a partition's owner."""
    return f"{GROUP_PATH}/owners/{partition.topic}/{partition.partition}"


def offset_path(partition: TopicPartition) -> str:
    """The znode of a partition's offset."""
    return f"{GROUP_PATH}/offsets/{partition.topic}/{partition.partition}"


def partition_of(path: str) -> TopicPartition:
    """The partition of an `offset_path` or `owner_path`."""
    _, topic, number = path.rsplit("/", 2)
    return TopicPartition(topic, int(number))


class RegisteredMember(ABC):
    """A member of a group that is registered in ZooKeeper.

    Args:
        process: its program.
        nursery: runs its streams; they end what they have in hand.
        background: runs everything else; cancelled when the member has closed.
    """

    def __init__(self, process: Process, nursery: trio.Nursery, background: trio.Nursery) -> None:
        config = process.config()
        self.member_id: Final = f"{GROUP}_{process.name}-{process.life}"
        self.topics: Final = sorted(map(str, config.topics))
        self.session_timeout: Final = config.session_timeout
        self.streams: Final = Streams(process, nursery)
        self.process: Final = process
        self.changed: Final = Notifier()
        self.closing = False
        servers = [address_of(n) for n in range(len(process.bootstrap_servers.split(",")))]
        self.zookeeper: Final = ZooKeeperClient(
            process.open_stream,
            servers,
            self.session_timeout,
            process.random,
            self.watch_fired,
            self._new_session,
        )
        self._background = background
        self._stored: dict[TopicPartition, int] = {}
        self._registrations = 0
        process.observer.opened(lambda _: self.close())

    @abstractmethod
    def watch_fired(self, path: str) -> None:
        """A watch has fired."""

    @abstractmethod
    async def session_replaced(self) -> None:
        """The session has expired, and another one has begun."""

    @abstractmethod
    async def run(self) -> None:
        """Be a member until `closing`."""

    async def serve(self) -> None:
        """Be a member until the program is to end, then close.

        Cancellation: the member ends at once; its session expires.
        """
        self._background.start_soon(self.zookeeper.run)
        await self.register()
        self._background.start_soon(self._store_regularly)
        await self.run()
        self.streams.stop()
        await self.store_offsets()
        self.streams.give_up()
        await self.zookeeper.close()
        self._background.cancel_scope.cancel()

    async def register(self) -> None:
        """Create the member's znode, which ends with the session."""
        self._registrations += 1
        data = f"{','.join(self.topics)} {self._registrations}"
        while not await self.create_own(f"{IDS}/{self.member_id}", data):  # noqa: ASYNC110
            await trio.sleep(self.session_timeout)  # until the znode of the old session is gone

    async def create_own(self, path: str, data: str) -> bool:
        """Create an ephemeral znode; False if another member's is there.

        One with the same data counts as the member's own, because a lost attempt may have made it.
        """
        while True:
            try:
                await self.zookeeper.create(path, data, ephemeral=True)
            except ZooKeeperRefusedError as error:
                if error.refusal is not ZooKeeperError.NODE_EXISTS:
                    raise
                found = await self.zookeeper.get(path)
                if found is None:
                    continue  # it was deleted meanwhile
                return found == data
            return True

    async def fetch_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The stored offsets of some partitions, 0 where there is none."""
        found = await self.zookeeper.get_many([offset_path(one) for one in partitions])
        offsets = {one: int(data or 0) for one, data in zip(partitions, found, strict=True)}
        self._stored.update(offsets)
        return offsets

    async def store_offsets(self) -> None:
        """Store what the streams have consumed, one offset after the other."""
        for partition, offset in self.streams.consumed.items():
            if self._stored.get(partition) != offset:
                await self.zookeeper.set(offset_path(partition), str(offset))
                self._stored[partition] = offset

    async def _store_regularly(self) -> None:
        while True:
            await trio.sleep(COMMIT_INTERVAL)
            await self.store_offsets()

    def _new_session(self) -> None:
        self._background.start_soon(self.session_replaced)

    def close(self) -> None:
        """Let `run` end."""
        self.closing = True
        self.changed.notify()


def cut_ranges(
    members: Sequence[str], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Cut each topic into one range a member, in the members' order; the first get one more."""
    found: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic, number in sorted(partitions.items()):
        each, more = divmod(number, len(members))
        start = 0
        for place, member in enumerate(sorted(members)):
            end = start + each + (place < more)
            found[member] += [TopicPartition(topic, one) for one in range(start, end)]
            start = end
    return found
