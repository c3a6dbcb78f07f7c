"""aiokafka against the embedded broker: a producer, a group of three, a transaction."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kgroup.broker import serve
from tests.broker.interop.clients import AT_ONCE, PATIENCE, beside

VALUES = [b"%d" % number for number in range(200)]


async def _produce(servers: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number, value in enumerate(VALUES):
            await producer.send("t", value, partition=number % 3)


async def _share(servers: str) -> list[set[int]]:
    """Let three members read until they share the partitions and have read all records.

    Returns:
        the partitions of each.
    """
    seen: list[bytes] = []
    consumers = [
        AIOKafkaConsumer(
            "t",
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
        )
        for _ in range(3)
    ]

    def shared() -> bool:
        return all(len(consumer.assignment()) == 1 for consumer in consumers)

    async def read(consumer: AIOKafkaConsumer) -> None:
        while len(set(seen)) < len(VALUES) or not shared():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                seen.extend(record.value for record in records if record.value is not None)

    await asyncio.gather(*(consumer.start() for consumer in consumers))
    try:
        await asyncio.gather(*map(read, consumers))
        assert set(seen) == set(VALUES)
        return [{one.partition for one in consumer.assignment()} for consumer in consumers]
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))


async def _transact(servers: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"yes", partition=0)
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 7}, "g")
        await producer.begin_transaction()
        await producer.send("t", b"no", partition=0)
        await producer.abort_transaction()


def _run(work: object) -> object:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))  # type: ignore[arg-type]


async def test_a_group_of_three_reads_everything() -> None:
    """Every record of an idempotent producer is read by a group whose members share."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t", 3)
        await beside(_run, _produce(broker.bootstrap_servers))
        shares = await beside(_run, _share(broker.bootstrap_servers))
        assert sorted(shares, key=min) == [{0}, {1}, {2}]  # type: ignore[call-overload]
        assert {one.state for one in await broker.groups()} == {"Empty"}


async def test_a_transaction_with_offsets() -> None:
    """Records and offsets of a committed transaction can be read, those of an aborted one not."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t")
        await beside(_run, _transact(broker.bootstrap_servers))
        log = broker.cluster.topics.log("t", 0)
        assert [one.value for one in log.records(0, 9, committed=True)[0]] == [b"yes"]
        assert [one.offset for one in (await broker.committed("g")).values()] == [7]
