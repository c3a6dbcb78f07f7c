"""Several brokers on ports: librdkafka and kgroup find leaders and coordinators that move."""

from __future__ import annotations

import trio
from confluent_kafka import KafkaError, Producer

from kgroup.broker import EmbeddedCluster, serve_cluster
from kgroup.config import GroupConfig
from kgroup.group import ConsumerGroup
from kgroup.testing import admin
from kgroup.types import TopicPartition
from tests.broker.interop.clients import PATIENCE, Member, beside, until

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": False,
    "default.replication.factor": 3,
}
QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "coordinator.query.interval.ms": 1000,
}


class Feed:
    """Produces numbered values with an idempotent producer, and records the outcome of each."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, **admin.RELIABLE_PRODUCER, **QUICK, "linger.ms": 0}
        )
        self._topic = topic
        self.errors: list[KafkaError] = []
        self.sent = 0

    def send(self, count: int) -> None:
        """Produce some values, spread over the partitions, without waiting for them."""
        for _ in range(count):
            self._producer.produce(
                self._topic,
                str(self.sent),
                key=str(self.sent),
                on_delivery=lambda error, _: self.errors.append(error) if error else None,
            )
            self.sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all are acknowledged."""
        assert self._producer.flush(PATIENCE) == 0
        assert self.errors == []


async def upheaval(cluster: EmbeddedCluster, feed: Feed, group: str) -> None:
    """Move leaders and the coordinator, stop one broker, kill another; restart both."""
    await beside(feed.send, 50)
    for number in range(3):
        partition = TopicPartition("t", number)
        await cluster.move_leader(partition, (cluster.leader_of(partition) or 0) % 3 + 1)
    await beside(feed.send, 50)
    at = cluster.coordinator_of(group)
    assert at is not None
    await cluster.nodes[at].stop(loading=0.1)
    await beside(feed.send, 50)
    await beside(feed.finish)
    await cluster.nodes[at].start()
    await cluster.rebalance_leaders()
    await beside(feed.send, 50)
    cluster.nodes[at].kill()
    await beside(feed.send, 50)
    await beside(feed.finish)
    await cluster.nodes[at].start()


def kept(cluster: EmbeddedCluster) -> list[int]:
    """The numbers that the log has."""
    partitions = [TopicPartition("t", number) for number in range(3)]
    return sorted(
        int(record.value or b"-1")
        for partition in partitions
        for record in cluster.log.read(partition, 0, 10_000).records
    )


async def test_librdkafka_follows_leaders_and_coordinators() -> None:
    """During all moves, an idempotent producer writes each value once, and a group reads all."""
    async with serve_cluster(3, settings=SETTINGS) as cluster:
        await cluster.create_topic("t", 3)
        servers = cluster.bootstrap_servers
        feed = Feed(servers, "t")
        member = Member(
            servers, "g", "t", **{name.replace(".", "_"): v for name, v in QUICK.items()}
        )
        try:
            await upheaval(cluster, feed, "g")

            def everything() -> bool:
                return len(set(member.values)) == feed.sent

            await beside(until, everything, member.poll, "everything is read")
        finally:
            await beside(member.consumer.close)
        assert kept(cluster) == list(range(feed.sent))


async def test_a_group_of_kgroup_follows_leaders_and_coordinators() -> None:
    """A generation reads and commits during all of it, and skips nothing."""
    async with serve_cluster(3, settings=SETTINGS) as cluster:
        await cluster.create_topic("t", 3)
        feed = Feed(cluster.bootstrap_servers, "t")
        config = GroupConfig(
            bootstrap_servers=cluster.bootstrap_servers, group_id="g", topics=["t"]
        )
        seen: set[int] = set()
        done = trio.Event()

        async def read(group: ConsumerGroup) -> None:
            async for generation in group:
                async for got in generation.records():
                    seen.update(int(message.value() or b"-1") for message in got.messages)
                    await generation.commit({got.partition: got.next_offset})
                    if len(seen) == 250:
                        done.set()

        with trio.fail_after(PATIENCE):
            async with ConsumerGroup(config) as group, trio.open_nursery() as nursery:
                nursery.start_soon(read, group)
                await upheaval(cluster, feed, "g")
                await done.wait()
                nursery.cancel_scope.cancel()
        assert seen == set(range(feed.sent))
        committed = await cluster.committed("g")
        assert sum(one.offset for one in committed.values()) == feed.sent
