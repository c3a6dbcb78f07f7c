"""confluent-kafka against the embedded broker: producers, groups, transactions, admin."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kgroup.broker import serve
from tests.broker.interop.clients import (
    AT_ONCE,
    PATIENCE,
    Member,
    beside,
    members,
    produced,
    until,
)

VALUES = [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_what_is_produced_is_consumed(codec: str, idempotent: bool) -> None:
    """Every record arrives once, in every compression, from either kind of producer."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t", 3)

        def work() -> None:
            produced(
                broker.bootstrap_servers,
                "t",
                VALUES,
                compression_type=codec,
                enable_idempotence=idempotent,
            )
            with members(broker.bootstrap_servers, "g", "t", 1) as (member,):
                until(lambda: len(member.values) >= len(VALUES), member.poll, "all records")
                assert sorted(member.values) == sorted(VALUES)  # type: ignore[type-var]

        await beside(work)


async def test_a_consumer_lives_through_a_restart_of_the_broker() -> None:
    """After a restart of the broker on the same port, producing and consuming continue."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t")
        servers = broker.bootstrap_servers
        quick = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}
        member = Member(servers, "g", "t", **quick)
        try:
            await beside(produced, servers, "t", VALUES[:10])
            await beside(until, lambda: len(member.values) >= 10, member.poll, "the first records")
            await broker.disconnect()
            await broker.restart_coordinator()
            await broker.start()
            await beside(produced, servers, "t", VALUES[10:20])
            await beside(until, lambda: len(member.values) >= 20, member.poll, "the later records")
            assert member.values == VALUES[:20]
        finally:
            await beside(member.consumer.close)


async def test_transactions() -> None:
    """Only committed records and offsets can be read; an old producer is fenced."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t")
        servers = broker.bootstrap_servers

        def producer() -> Producer:
            made = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
            made.init_transactions(PATIENCE)
            return made

        def work() -> None:
            first = producer()
            for value, end in (
                (b"no", first.abort_transaction),
                (b"yes", first.commit_transaction),
            ):
                first.begin_transaction()
                first.produce("t", value)
                first.flush(PATIENCE)
                end(PATIENCE)
            first.begin_transaction()
            first.produce("t", b"never")
            first.flush(PATIENCE)
            second = producer()
            with pytest.raises(KafkaException) as fenced:
                first.commit_transaction(PATIENCE)
            assert fenced.value.args[0].code() == KafkaError._FENCED
            consumer = Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": "g",
                    "isolation.level": "read_committed",
                }
            )
            try:
                second.begin_transaction()
                second.produce("t", b"last")
                second.send_offsets_to_transaction(
                    [TopicPartition("t", 0, 7)], consumer.consumer_group_metadata(), PATIENCE
                )
                second.commit_transaction(PATIENCE)
                (committed,) = consumer.committed([TopicPartition("t", 0)], PATIENCE)
                assert committed.offset == 7
                consumer.assign([TopicPartition("t", 0, 0)])
                values: list[Any] = []

                def step() -> None:
                    values.extend(one.value() for one in consumer.consume(10, 0.1))

                until(lambda: b"last" in values, step, "the last record")
                assert values == [b"yes", b"last"]
            finally:
                consumer.close()

        await beside(work)


async def test_the_admin_client() -> None:
    """Topics, configs, offsets, records and groups can be described and changed."""
    async with serve(settings=AT_ONCE) as broker:
        servers = broker.bootstrap_servers

        def work() -> None:
            admin = AdminClient({"bootstrap.servers": servers})

            def one(futures: dict[Any, Any]) -> Any:
                (future,) = futures.values()
                return future.result(PATIENCE)

            one(admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "5000"})]))
            with pytest.raises(KafkaException, match="already exists"):
                one(admin.create_topics([NewTopic("t", 2, 1)]))
            one(admin.create_partitions([NewPartitions("t", 3)]))
            assert len(admin.list_topics(timeout=PATIENCE).topics["t"].partitions) == 3
            configs = one(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]))
            assert configs["retention.ms"].value == "5000"
            assert admin.describe_cluster().result(PATIENCE).controller.id == 1
            produced(servers, "t", VALUES[:20], partitioner="consistent")
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            assert latest is not None
            ends = admin.list_offsets({TopicPartition("t", n): latest for n in range(3)})
            assert sum(future.result(PATIENCE).offset for future in ends.values()) == 20
            with members(servers, "g", "t", 1) as (member,):
                until(lambda: len(member.values) >= 20, member.poll, "all records")
                group = one(admin.describe_consumer_groups(["g"]))
                assert group.state.name == "STABLE"
                (described,) = group.members
                assert len(described.assignment.topic_partitions) == 3
            listed = admin.list_consumer_groups().result(PATIENCE).valid
            assert [group.group_id for group in listed] == ["g"]
            moved = [TopicPartition("t", 0, 1)]
            one(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", moved)]))
            offsets = one(
                admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])
            ).topic_partitions
            assert {tp.partition: tp.offset for tp in offsets}[0] == 1
            one(admin.delete_consumer_groups(["g"]))
            one(admin.delete_records([TopicPartition("t", 0, 1)]))
            one(admin.delete_topics(["t"]))
            assert "t" not in admin.list_topics(timeout=PATIENCE).topics

        await beside(work)
