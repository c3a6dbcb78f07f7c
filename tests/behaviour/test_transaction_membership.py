"""What both brokers accept into a transaction, and how they refuse the rest (KIP-890)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.behaviour.scripted import ScriptedProducer, scripted_producer
from tests.brokers import Kafka

UNKNOWN_TOPIC: Final = 3
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
AUTHORIZATION_FAILED: Final = 53
INVALID_RECORD: Final = 87
ABORTABLE: Final = 120
STRANGER: Final = 10**9


async def check_outside(producer: ScriptedProducer, sequence: int) -> None:
    """Check that nothing of this producer is accepted, in each version with its own error."""
    assert [await producer.write(sequence, version) for version in (3, 10, 11)] == [
        INVALID_TXN_STATE,
        INVALID_TXN_STATE,
        ABORTABLE,
    ]
    assert [await producer.commit(version) for version in (0, 3, 4)] == [
        INVALID_TXN_STATE,
        INVALID_TXN_STATE,
        ABORTABLE,
    ]


async def test_what_was_never_added_is_refused(kafka: Kafka) -> None:
    """Records and offsets that were not added to the transaction are refused."""
    async with scripted_producer(kafka) as producer:
        await check_outside(producer, 0)
        assert await producer.add(1) == 0
        assert await producer.write(0, partition=1) == 0
        await check_outside(producer, 0)
        assert await producer.ends() == (0, 0)


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_that_has_ended_takes_nothing(kafka: Kafka, committed: bool) -> None:
    """After EndTxn even a repeated batch of the transaction is refused."""
    async with scripted_producer(kafka) as producer:
        assert await producer.add() == 0
        assert await producer.write(0) == 0
        assert await producer.write(0) == 0
        assert await producer.add_group() == 0
        assert await producer.commit() == 0
        assert await producer.end(committed=committed) == 0
        await check_outside(producer, 1)
        await check_outside(producer, 0)
        assert await producer.ends() == (2, 2)


async def test_another_epoch_is_fenced(kafka: Kafka) -> None:
    """An epoch that is older or newer than the current one is refused."""
    async with scripted_producer(kafka) as producer:
        assert await producer.add() == 0
        assert await producer.write(0) == 0
        assert await producer.add_group() == 0
        assert await producer.commit() == 0
        old = producer.epoch
        assert await producer.write(0, producer_epoch=old + 1) == INVALID_PRODUCER_EPOCH
        assert await producer.commit(epoch=old + 1) == INVALID_PRODUCER_EPOCH
        assert await producer.write(0) == 0
        assert await producer.init() == 0
        assert producer.epoch > old
        for version in (10, 11):
            code = await producer.write(1, version, producer_epoch=old)
            assert code == INVALID_PRODUCER_EPOCH
        for version in (3, 4):
            assert await producer.commit(version, epoch=old) == INVALID_PRODUCER_EPOCH
        assert await producer.ends() == (2, 2)


async def test_a_batch_names_its_transaction(kafka: Kafka) -> None:
    """A batch without transactional id or sequence, or of another producer, is refused."""
    async with scripted_producer(kafka) as producer:
        assert await producer.add() == 0
        assert await producer.write(0, named=False) == AUTHORIZATION_FAILED
        assert await producer.write(0, producer_id=STRANGER) == INVALID_PRODUCER_ID_MAPPING
        assert await producer.write(0) == 0
        assert await producer.write(1, named=False) == AUTHORIZATION_FAILED
        assert await producer.write(1, transactional=False) == INVALID_TXN_STATE
        assert await producer.write(1) == 0
        assert await producer.ends() == (2, 0)
        assert await producer.add(1) == 0
        assert await producer.write(-1, partition=1) == INVALID_RECORD


async def test_a_topic_that_is_created_again_is_in_the_transaction(kafka: Kafka) -> None:
    """Partitions are known by name: a late record is accepted, and the marker ends it."""
    async with scripted_producer(kafka) as producer:
        assert await producer.add() == 0
        assert await producer.write(0) == 0
        await producer.delete()
        assert await producer.write(1) == UNKNOWN_TOPIC
        await producer.create()
        assert await producer.write(1, partition=1) == ABORTABLE
        assert await producer.write(1) == 0
        assert await producer.ends() == (1, 0)
        assert await producer.end(committed=True) == 0
        assert await producer.ends() == (2, 2)
        await check_outside(producer, 2)


async def test_a_deleted_topic_holds_no_transaction_up(kafka: Kafka) -> None:
    """EndTxn skips deleted partitions, and marks one that has their name by then."""
    async with scripted_producer(kafka) as producer:
        assert await producer.add() == 0
        assert await producer.write(0) == 0
        await producer.delete()
        assert await producer.add() == UNKNOWN_TOPIC
        assert await producer.end(committed=False) == 0
        await producer.create()
        assert await producer.add() == 0
        await producer.delete()
        await producer.create()
        assert await producer.end(committed=True) == 0
        assert await producer.ends() == (1, 1)
