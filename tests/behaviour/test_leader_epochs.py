"""Leader epochs of commits (KIP-320): what a member commits, and what the next one verifies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from confluent_kafka import Producer

from kgroup.events import Event, OffsetReset, RequestFailed
from kgroup.generation.generation import Generation
from kgroup.testing import admin
from kgroup.types import OffsetAndMetadata, TopicPartition
from tests.behaviour.harness import SOON, Harness, harness, in_thread
from tests.behaviour.test_records import read, texts
from tests.brokers import REAL, Kafka

FUTURE = 1_000_000
"""A leader epoch that no partition has in a test."""


async def committed(here: Harness) -> OffsetAndMetadata | None:
    """What is committed for the first partition."""
    name = here.partition(0)
    found = await in_thread(admin.committed_offsets, here.bootstrap_servers, here.group_id, [name])
    return found[name]


def starts_of(generation: Generation) -> list[int]:
    """Where its partitions start."""
    return list(generation.start_offsets.values())


async def test_a_commit_has_the_leader_epoch_of_its_last_record(kafka: Kafka) -> None:
    """Of a bare number as well, in a transaction too; what the program gives is kept."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(20))
        name = here.partition(0)
        async with here.group() as group:
            generation = await group.next()
            stream = generation.records(max_records=10)
            batch = await anext(stream)
            first = batch.messages[0]
            epoch = first.leader_epoch()  # type: ignore[attr-defined]
            await generation.commit({name: 5})
            assert await committed(here) == OffsetAndMetadata(5, epoch)
            await generation.commit({name: OffsetAndMetadata(6, FUTURE, "note")})
            assert await committed(here) == OffsetAndMetadata(6, FUTURE)
            settings = {"bootstrap.servers": here.bootstrap_servers, "log_level": 0}
            producer = Producer({**settings, "transactional.id": here.group_id})
            await in_thread(producer.init_transactions, SOON)
            producer.begin_transaction()
            await generation.commit_in_transaction(producer, {name: 10})
            await in_thread(producer.commit_transaction, SOON)
            assert await committed(here) == OffsetAndMetadata(10, epoch)


async def test_a_commit_of_a_later_epoch_than_the_leaders_is_accepted(kafka: Kafka) -> None:
    """The broker that answers may not know yet that it is not the leader any more."""
    events: list[Event] = []
    async with harness(kafka) as here:
        await here.create()
        await here.produce(texts(20))
        async with here.group() as group:
            generation = await group.next()
            await read(generation.records(), 20)
            await generation.commit({here.partition(0): OffsetAndMetadata(10, FUTURE)})
        async with here.group(on_event=events.append) as group:
            generation = await group.next()
            assert starts_of(generation) == [10]
            assert await read(generation.records(), 10) == list(range(10, 20))
    failures = [event for event in events if isinstance(event, RequestFailed)]
    assert {event.request for event in failures} == {"OffsetForLeaderEpoch"}
    assert "UNKNOWN_LEADER_EPOCH" in failures[0].reason
    assert [event for event in events if isinstance(event, OffsetReset)] == []


@pytest.mark.real_kafka
async def test_kafka_knows_where_earlier_epochs_end(own_kafka: Callable[..., Any]) -> None:
    """A commit of an earlier epoch is accepted up to that epoch's end, and not past it.

    Kafka has a new leader epoch after a restart. A commit past the end of the epoch before stands
    for a log that was truncated and has grown past the commit since.
    """
    events: list[Event] = []
    running = await in_thread(own_kafka)
    async with harness(Kafka(REAL, running.bootstrap_servers)) as here:
        await here.create()
        await here.produce(texts(10))
        name = here.partition(0)
        async with here.group() as group:
            generation = await group.next()
            await read(generation.records(), 10)
            await generation.commit({name: 10})
        before = await committed(here)
        assert before is not None
        await in_thread(running.restart)
        await here.produce(texts(10, 10))
        async with here.group(on_event=events.append) as group:
            generation = await group.next()
            assert starts_of(generation) == [10]
            assert await read(generation.records(), 10) == list(range(10, 20))
            await generation.commit({name: 20})
            after = await committed(here)
            assert after is not None
            assert after.leader_epoch > before.leader_epoch
            assert [event for event in events if isinstance(event, OffsetReset)] == []
        await in_thread(running.restart)
        await commit_for(here, name, OffsetAndMetadata(15, before.leader_epoch))
        async with here.group(on_event=events.append) as group:
            generation = await group.next()
            assert starts_of(generation) == [10]
            assert await read(generation.records(), 10) == list(range(10, 20))
        (reset,) = [event for event in events if isinstance(event, OffsetReset)]
        assert (reset.partition, reset.offset, reset.skipped) == (name, 10, True)
        await here.produce(texts(5, 20))
        async with here.group() as group:
            generation = await group.next()
            assert starts_of(generation) == [10]  # it was committed at once


async def commit_for(here: Harness, name: TopicPartition, at: OffsetAndMetadata) -> None:
    """Commit this for the group, wherever it was."""
    async with here.group() as group:
        with trio.fail_after(SOON):
            generation = await group.next()
            generation.seek(name, at.offset)
            await generation.commit({name: at})
