"""`commit_in_transaction` on both brokers: records and offsets together, or neither."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kgroup.errors import StaleGenerationError
from kgroup.events import CommitRefused, Event, RequestFailed
from kgroup.generation.states import State
from kgroup.group import default_runtime
from kgroup.testing import admin
from tests.behaviour.faults import Heartbeats
from tests.behaviour.harness import EXPIRING, SOON, Harness, harness, in_thread, numbers
from tests.behaviour.worker import BackwardClock
from tests.brokers import Kafka


async def producer_for(here: Harness) -> Producer:
    """A transactional producer that is initialized."""
    producer = Producer(
        {
            "bootstrap.servers": here.bootstrap_servers,
            "transactional.id": here.group_id,
            **admin.RELIABLE_PRODUCER,
            "log_level": 0,
        }
    )
    await in_thread(producer.init_transactions, SOON)
    return producer


async def test_records_and_offsets_are_committed_together(kafka: Kafka) -> None:
    """Records of an aborted transaction are read again, those of a committed one are not."""
    async with harness(kafka) as here:
        target = Harness(kafka, here.nursery)
        await here.create()
        await target.create()
        await here.produce([str(number) for number in range(10)])
        partition = here.partition(0)
        producer = await producer_for(here)
        async with here.group() as group:
            generation = await group.next()
            stream = generation.records(max_records=4)
            for end in (producer.abort_transaction, producer.commit_transaction):
                batch = await anext(stream)
                assert numbers(batch.messages) == [0, 1, 2, 3]
                producer.begin_transaction()
                for message in batch.messages:
                    producer.produce(target.topic, message.value(), partition=0)
                await generation.commit_in_transaction(producer, {partition: batch.next_offset})
                # An abort drops what was sent and not answered yet. If the partition's leader was
                # not ready for it, a broker refuses what follows: it is out of order.
                assert await in_thread(producer.flush, SOON) == 0
                await in_thread(end, SOON)
                if end == producer.abort_transaction:
                    assert await here.committed() == [None]
                    generation.seek(partition, 0)
        assert await here.committed() == [4]
        async with target.group(isolation_level="read_committed") as group:
            stream = (await group.next()).records()
            assert numbers((await anext(stream)).messages) == [0, 1, 2, 3]
        async with here.group() as group:
            assert (await group.next()).start_offsets == {partition: 4}


async def test_a_new_member_waits_for_an_open_transaction(kafka: Kafka) -> None:
    """Offsets of an open transaction are waited for and never count as missing."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce([str(number) for number in range(10)])
        partition = here.partition(0)
        producer = await producer_for(here)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({partition: 2}, beyond_read=True)
            producer.begin_transaction()
            producer.produce(here.topic, "10", partition=0)
            await generation.commit_in_transaction(producer, {partition: 5}, beyond_read=True)
        member = here.start("next")
        await here.processed.until(
            lambda: member.events_of(RequestFailed), "it does not fetch offsets"
        )
        assert "UNSTABLE_OFFSET_COMMIT" in member.events_of(RequestFailed)[0].reason
        assert not member.generations
        await in_thread(producer.commit_transaction, SOON)
        await here.processed.until(lambda: len(here.processed.entries) == 6, "not read")
        assert here.processed.offsets(partition)[0] == 5


async def test_an_old_generation_is_refused(kafka: Kafka) -> None:
    """Offsets of an old generation make their transaction abort."""
    async with harness(kafka) as here:
        target = Harness(kafka, here.nursery)
        await here.create()
        await target.create()
        await here.produce([str(number) for number in range(10)])
        partition = here.partition(0)
        producer = await producer_for(here)
        heartbeats = Heartbeats()
        runtime = attrs.evolve(
            default_runtime(), open_stream=heartbeats.open_stream, clock=BackwardClock()
        )
        events: list[Event] = []
        async with here.group(runtime, events.append, session_timeout=EXPIRING) as group:
            generation = await group.next()
            heartbeats.hold()
            owner = here.start("owner")
            await here.processed.until(lambda: len(here.processed.entries) == 10, "not taken over")
            await here.processed.until(lambda: owner.owned() == 1, "not taken over")
            producer.begin_transaction()
            producer.produce(target.topic, "never", partition=0)
            assert not generation.ending.is_set()
            with pytest.raises(StaleGenerationError):
                await generation.commit_in_transaction(producer, {partition: 3}, beyond_read=True)
            assert generation.state is State.ENDED
            await in_thread(producer.abort_transaction, SOON)
            (refused,) = [event for event in events if isinstance(event, CommitRefused)]
            assert refused.reason in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
            assert await here.committed() == [10]
            heartbeats.release()


async def failure_of(call: Callable[[float], object]) -> KafkaError:
    """The error with which a call of the producer fails."""
    with pytest.raises(KafkaException) as caught:
        await in_thread(call, SOON)
    error: KafkaError = caught.value.args[0]
    return error


async def test_what_the_producer_says_of_its_errors(kafka: Kafka) -> None:
    """They are those in the table of docs/transactions.md."""
    async with harness(kafka) as here:
        await here.create()
        producer = await producer_for(here)
        producer.begin_transaction()
        producer.produce(f"{here.topic}-missing", "lost")
        error = await failure_of(producer.commit_transaction)
        assert error.code() == KafkaError._INCONSISTENT
        assert error.txn_requires_abort()
        await in_thread(producer.abort_transaction, SOON)
        error = await failure_of(producer.abort_transaction)
        assert error.code() == KafkaError._STATE
        assert (error.retriable(), error.txn_requires_abort(), error.fatal()) == (False,) * 3
        producer.begin_transaction()
        producer.produce(here.topic, "never")
        await producer_for(here)
        for end in (producer.commit_transaction, producer.abort_transaction):
            error = await failure_of(end)
            assert error.code() == KafkaError._FENCED
            assert error.fatal()
