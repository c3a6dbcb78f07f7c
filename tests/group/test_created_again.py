"""A topic that is deleted and created again soon, over librdkafka and brokers in sockets."""

from __future__ import annotations

import confluent_kafka
import pytest
import trio

from kgroup.broker import serve_cluster
from kgroup.group import ConsumerGroup
from kgroup.notifier import Notifier
from kgroup.testing.memory import config_for
from kgroup.types import TopicPartition

PARTITION = TopicPartition("topic", 0)
SETTINGS = {"default.replication.factor": "2", "group.initial.rebalance.delay.ms": "0"}


@pytest.mark.parametrize("moves", [0, 2])
async def test_the_new_topic_is_read(moves: int) -> None:
    """Its leader epochs begin at 0, below those of the old topic if that had other leaders."""
    async with serve_cluster(2, settings=SETTINGS) as brokers:

        def produce(value: bytes) -> None:
            producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap_servers})
            producer.produce("topic", value, partition=0)
            assert producer.flush(30) == 0

        async def receive(group: ConsumerGroup) -> bytes | None:
            async for generation in group:
                async for batch in generation.records():
                    return bytes(batch.messages[0].value() or b"")
            return None

        await brokers.create_topic("topic", 1, replication_factor=2)
        for _ in range(moves):
            leader = brokers.leader_of(PARTITION)
            await brokers.move_leader(PARTITION, next(n for n in brokers.nodes if n != leader))
        await trio.to_thread.run_sync(produce, b"old")
        with trio.fail_after(60):
            async with ConsumerGroup(config_for(brokers, auto_offset_reset="earliest")) as group:
                assert await receive(group) == b"old"
                await brokers.delete_topic("topic")
                await brokers.create_topic("topic", 1, replication_factor=2)
                await trio.to_thread.run_sync(produce, b"new")
                assert await receive(group) == b"new"


async def test_a_follower_reads_the_new_topic_too() -> None:
    """Also with starts of its own: it requests no offset by which it would find out."""
    seen: set[bytes] = set()
    owned: dict[ConsumerGroup, int] = {}
    changed = Notifier()
    async with serve_cluster(2, settings=SETTINGS) as brokers, trio.open_nursery() as nursery:

        async def create() -> None:
            await brokers.create_topic("topic", 2, replication_factor=2)

        async def read(group: ConsumerGroup) -> None:
            async for generation in group:
                owned[group] = len(generation.assignment)
                changed.notify()
                async for batch in generation.records():
                    seen.update(bytes(message.value() or b"") for message in batch.messages)
                    changed.notify()

        async def until_seen(value: bytes) -> None:
            for number in range(2):
                await brokers.append("topic", number, [value + b"%d" % number])
            while not seen >= {value + b"0", value + b"1"}:
                await changed.wait()

        await create()
        config = config_for(brokers, starts=lambda names: dict.fromkeys(names, 0))
        with trio.fail_after(60):
            async with ConsumerGroup(config) as first, ConsumerGroup(config) as second:
                nursery.start_soon(read, first)
                nursery.start_soon(read, second)
                while list(owned.values()) != [1, 1]:
                    await changed.wait()
                await until_seen(b"old")
                for number in range(2):
                    name = TopicPartition("topic", number)
                    await brokers.move_leader(name, 3 - (brokers.leader_of(name) or 0))
                await until_seen(b"moved")
                await brokers.delete_topic("topic")
                await create()
                await until_seen(b"new")
                nursery.cancel_scope.cancel()
