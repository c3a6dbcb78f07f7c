"""What both brokers accept into a transaction, and how they refuse the rest (KIP-890)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import pytest

from tests.behaviour.scripted import ScriptedProducer, scripted_producer
from tests.brokers import REAL, Kafka

UNKNOWN_TOPIC: Final = 3
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
AUTHORIZATION_FAILED: Final = 53
INVALID_RECORD: Final = 87
ABORTABLE: Final = 120
STRANGER: Final = 10**9
OF_ANOTHER_VERSION: Final = {INVALID_TXN_STATE: ABORTABLE, ABORTABLE: INVALID_TXN_STATE}
"""What a refusal is in versions of the other age.

A broker of Kafka verifies the transactions of all its producers with one request at a time, and
words every refusal of such a request for the version of the producer that came first (Kafka:
AddPartitionsToTxnManager.addTxnData). So a producer that shares the broker with other tests is
sometimes answered in the words of another one.
"""
ATTEMPTS: Final = 30
"""Of a request whose answer is to be in its own words. With a second producer that sends nothing
but refused requests, up to three answers in ten are in the words of the other."""


async def refusal(kafka: Kafka, expected: int, send: Callable[[], Awaitable[int]]) -> int:
    """The error of a refused request; it is sent again if Kafka used the words of another."""
    code = await send()
    attempts = 1
    while kafka.kind == REAL and code == OF_ANOTHER_VERSION[expected] and attempts < ATTEMPTS:
        code = await send()
        attempts += 1
    return code


async def check_outside(kafka: Kafka, producer: ScriptedProducer, sequence: int) -> None:
    """Check that nothing of this producer is accepted, in each version with its own error."""
    for version, code in ((3, INVALID_TXN_STATE), (10, INVALID_TXN_STATE), (11, ABORTABLE)):
        write = partial(producer.write, sequence, version)
        assert await refusal(kafka, code, write) == code, f"Produce v{version}"
    for version, code in ((0, INVALID_TXN_STATE), (3, INVALID_TXN_STATE), (4, ABORTABLE)):
        commit = partial(producer.commit, version)
        assert await refusal(kafka, code, commit) == code, f"TxnOffsetCommit v{version}"


async def test_what_was_never_added_is_refused(kafka: Kafka) -> None:
    """Records and offsets that were not added to the transaction are refused."""
    async with scripted_producer(kafka) as producer:
        await check_outside(kafka, producer, 0)
        assert await producer.add(1) == 0
        assert await producer.write(0, partition=1) == 0
        await check_outside(kafka, producer, 0)
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
        await check_outside(kafka, producer, 1)
        await check_outside(kafka, producer, 0)
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
        write = partial(producer.write, 1, partition=1)
        assert await refusal(kafka, ABORTABLE, write) == ABORTABLE
        assert await producer.write(1) == 0
        assert await producer.ends() == (1, 0)
        assert await producer.end(committed=True) == 0
        assert await producer.ends() == (2, 2)
        await check_outside(kafka, producer, 2)


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
