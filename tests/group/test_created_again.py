"""A topic that is deleted and created again soon, over librdkafka and brokers in sockets."""

from __future__ import annotations

import confluent_kafka
import pytest
import trio

from kgroup.broker import serve_cluster
from kgroup.group import ConsumerGroup
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
