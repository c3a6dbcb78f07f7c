"""Scheme 1, Kafka 0.8: every member watches ZooKeeper, computes its own share, and claims it.

A member that learns of a change stops its streams, stores its offsets, deletes its claims, reads
who is there and how many partitions there are, computes its range, and creates a znode for each of
its partitions. If another member still has one of them, it gives back what it got, waits, and tries
again, a few times. Nothing makes two members act on the same lists: each reads when it comes to it,
from a server that may be behind.

What the original does and one would not expect: a member that is disconnected from ZooKeeper goes
on reading, since its library connects again by itself; and a member that has tried in vain owns
nothing until something else changes.

Source: Kafka 0.8.2's ``ZookeeperConsumerConnector`` (``ZKRebalancerListener``), ``RangeAssignor``
and ``ConsumerConfig``.
"""

from __future__ import annotations

from typing import Final, final

import trio

from kgroup.testing.simulation.process import Process
from kgroup.testing.simulation.schemes.member import (
    BROKERS,
    IDS,
    TOPICS,
    RegisteredMember,
    cut_ranges,
    owner_path,
)
from kgroup.testing.simulation.zookeeper.client import ZooKeeperRefusedError
from kgroup.types import TopicPartition

MAX_RETRIES: Final = 4
"""Kafka 0.8's ``rebalance.max.retries``."""
BACKOFF: Final = 2.0
"""Kafka 0.8's ``rebalance.backoff.ms``, in seconds. All attempts together have to take longer than
a session time-out, as Kafka's FAQ says, so with a long one it is half of that."""


@final
class RebalanceFailedError(Exception):
    """A member has tried as often as it may, and owns nothing."""


async def self_balancing_member(process: Process) -> None:
    """The program of a member of scheme 1.

    Raises:
        RebalanceFailedError: it did not get its first partitions; a service manager starts it
            again.
    """
    async with trio.open_nursery() as nursery, trio.open_nursery() as background:
        await SelfBalancingMember(process, nursery, background).serve()


@final
class SelfBalancingMember(RegisteredMember):
    """A member of scheme 1."""

    def __init__(self, process: Process, nursery: trio.Nursery, background: trio.Nursery) -> None:
        super().__init__(process, nursery, background)
        self._rebalancing = trio.Lock()
        self._claimed: tuple[TopicPartition, ...] = ()
        self._fired: dict[str, None] = {}
        self._triggered = False

    def watch_fired(self, path: str) -> None:
        """See ``RegisteredMember``."""
        self._fired[path] = None
        self.changed.notify()

    async def session_replaced(self) -> None:
        """See ``RegisteredMember``: the claims are gone with the old session."""
        self._claimed = ()
        await self.register()
        await self._watch()
        try:
            await self._rebalance()
        except RebalanceFailedError:
            return  # it owns nothing until something changes

    async def run(self) -> None:
        """See ``RegisteredMember``."""
        await self._watch()
        await self._rebalance()
        while not self.closing:
            if self._fired:
                await self._watch_again()
            elif self._triggered:
                self._triggered = False
                try:
                    await self._rebalance()
                except RebalanceFailedError:
                    continue  # it owns nothing until something changes
            else:
                await self.changed.wait()

    async def _watch(self) -> None:
        await self.zookeeper.children(IDS, watch=True)
        for topic in self.topics:
            await self.zookeeper.get(f"{TOPICS}/{topic}", watch=True)

    async def _watch_again(self) -> None:
        """Read what has changed, which sets the watch again, and note that a rebalance is due."""
        path = next(iter(self._fired))
        del self._fired[path]
        if path == IDS:
            await self.zookeeper.children(IDS, watch=True)
        else:
            await self.zookeeper.get(path, watch=True)
        self._triggered = True

    async def _rebalance(self) -> None:
        async with self._rebalancing:
            for _ in range(MAX_RETRIES):
                if self.closing:
                    return
                try:
                    done = await self._try()
                except ZooKeeperRefusedError:
                    done = False  # the tree has changed between two reads
                if done:
                    return
                self.streams.stop()
                await trio.sleep(max(BACKOFF, self.session_timeout / 2))
        raise RebalanceFailedError(
            f"{self.member_id} could not get its partitions in {MAX_RETRIES} attempts"
        )

    async def _try(self) -> bool:
        """One attempt; False if another member still has one of the partitions."""
        brokers = await self.zookeeper.children(BROKERS)
        await self.zookeeper.get_many([f"{BROKERS}/{one}" for one in brokers])
        await self._release()
        members = await self.zookeeper.children(IDS)
        await self.zookeeper.get_many([f"{IDS}/{one}" for one in members])
        counts = await self.zookeeper.get_many([f"{TOPICS}/{one}" for one in self.topics])
        partitions = {
            topic: int(data or 0) for topic, data in zip(self.topics, counts, strict=True)
        }
        if self.member_id not in members:
            return False  # this server does not know of its registration yet
        share = cut_ranges(members, partitions)[self.member_id]
        starts = await self.fetch_offsets(share)
        if not await self._claim(share):
            return False
        self._claimed = tuple(share)
        self.streams.start(starts)
        return True

    async def _release(self) -> None:
        """Stop reading, store the offsets, and delete the claims."""
        self.streams.stop()
        await self.store_offsets()
        self.streams.give_up()
        claimed, self._claimed = self._claimed, ()
        for partition in claimed:
            await self.zookeeper.delete(owner_path(partition))

    async def _claim(self, share: list[TopicPartition]) -> bool:
        """Create the znodes of all partitions, or of none."""
        got = [
            partition
            for partition in share
            if await self.create_own(owner_path(partition), self.member_id)
        ]
        if len(got) == len(share):
            return True
        for partition in got:
            await self.zookeeper.delete(owner_path(partition))
        return False
