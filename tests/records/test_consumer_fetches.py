"""Which fetches begin and end in a Consumer, by a thread with a scripted Consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException

from kgroup.errors import FetchError
from kgroup.records import consumer_thread
from kgroup.records.topic_requests import MOST
from kgroup.types import TopicPartition
from tests.records.scripted import failure, record
from tests.records.test_consumer_thread import A, B, ScriptedConsumer, obeyed, running


async def test_a_kept_partition_is_not_fetched_again_and_another_one_is() -> None:
    """At the same position librdkafka gets no call; at another one a new fetch starts."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        consumer.feed(*(record(A, at) for at in range(4)), *(record(B, at) for at in range(4)))
        for partition in (A, B):
            assert (await source.receive(1, [partition], 2)).next_offset == 2
        source.revoke(1)
        source.assign(2, {A: 2, B: 0})
        source.open(2, [A, B])
        await consumer.until(lambda: ("assign", [(1, 0)]) in consumer.calls)
        batch = await source.receive(2, [A], 10)
        assert [message.offset() for message in batch.messages] == [2, 3]
        assert batch.epoch == 2
    assert consumer.calls == [
        ("assign", [(0, 0), (1, 0)]),
        ("unassign", [1]),
        ("assign", [(1, 0)]),
        ("unassign", [0, 1]),
        ("close", None),
    ]


async def test_a_fetch_begins_with_the_leader_epoch_of_the_record_before_it() -> None:
    """So librdkafka verifies it at the next change of the leader; after a seek it is not known."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 5, B: 7}, {A: 3})
        source.open(1, [A, B])
        await consumer.until(lambda: len(consumer.epochs) == 2)
        source.seek(1, A, 9)
        await consumer.until(lambda: len(consumer.epochs) == 3)
        assert consumer.epochs == [3, None, None]
        source.assign(2, {A: 9, B: 6}, {A: 3, B: 2})
        source.open(2, [A, B])
        await consumer.until(lambda: len(consumer.epochs) == 4)
        assert consumer.epochs[3] == 2  # t-0 goes on


@pytest.mark.parametrize("subscribed", [False, True])
async def test_a_consumer_with_many_former_topics_is_replaced(
    *, subscribed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka requests each topic that it has fetched for ever; nothing is lost or repeated.

    A topic of the subscription is none that it should forget.
    """
    monkeypatch.setattr(consumer_thread, "MOST_FORMER_TOPICS", 20)
    opened: list[ScriptedConsumer] = []

    def open_consumer(settings: dict[str, Any]) -> Any:
        opened.append(ScriptedConsumer())
        return opened[-1].open(settings)

    consumer: Any = SimpleNamespace(open=open_consumer)
    faults: list[tuple[TopicPartition | None, str]] = []
    kept = TopicPartition("kept", 1)
    names = [f"tenant-{number}" for number in range(consumer_thread.MOST_FORMER_TOPICS + 2)]
    async with running(consumer, faults) as source:
        source.prepare(["kept", *names] if subscribed else ["kept"])
        source.assign(1, {kept: 0})
        source.open(1, [kept])
        for epoch, name in enumerate(names, 2):
            tenant = TopicPartition(name, 0)
            source.assign(epoch, {kept: 0, tenant: 5})
            source.open(epoch, [kept, tenant])
            await obeyed(source)
            assert len(opened) == (2 if name == names[-1] and not subscribed else 1)
            if name == names[-2]:
                opened[0].feed(record(kept, 0), record(kept, 1))
                await opened[0].until(lambda: not opened[0].messages)
        opened[-1].feed(record(kept, 2))
        offsets: list[int | None] = []
        while len(offsets) < 3:
            batch = await source.receive(len(names) + 1, [kept], 10)
            offsets += [message.offset() for message in batch.messages]
        assert offsets == [0, 1, 2]
        if not subscribed:
            assert opened[0].calls[-1] == ("close", None)
            assert opened[1].calls == [("assign", [(1, 2), (0, 5)])]
    reasons = [reason for _, reason in faults]
    assert reasons == ([] if subscribed else [consumer_thread._WITHOUT_FORMER])


async def test_topics_are_requested_while_the_member_joins() -> None:
    """Those of ``prepare`` are requested once, before anything is assigned and without a poll."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.prepare(["u", "t"])
        await consumer.until(lambda: len(consumer.requested) == 2)
        await obeyed(source)
        assert sorted(consumer.requested) == [("t", 0), ("u", 0)]
        assert (consumer.polls, consumer.calls) == (0, [])


async def test_a_topic_that_is_being_fetched_is_not_requested_again() -> None:
    """From one generation to the next, only the topics that are not fetched are requested."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        await consumer.until(lambda: bool(consumer.calls))
        source.revoke(1)
        source.prepare(["t", "u"])
        await consumer.until(lambda: len(consumer.requested) == 2)
        await obeyed(source)
        assert consumer.requested == [("t", 1), ("u", 1)]


async def test_a_topic_is_requested_as_soon_as_partitions_of_it_are_assigned() -> None:
    """Also if another partition is fetched already; a fetch that only restarts asks for nothing."""
    consumer = ScriptedConsumer()
    other = TopicPartition("u", 0)
    async with running(consumer) as source:
        source.assign(1, {A: 0, other: 0})
        source.open(1, [A, other])
        await consumer.until(lambda: len(consumer.requested) == 2)
        source.seek(1, A, 5)
        await consumer.until(lambda: len(consumer.calls) == 3)
        source.assign(2, {A: 5, B: 0, other: 0})
        source.open(2, [A, B, other])
        await consumer.until(lambda: len(consumer.requested) == 3)
        assert consumer.requested == [("t", 1), ("u", 1), ("t", 4)]
        assert consumer.calls[3] == ("assign", [(1, 0)])


@pytest.mark.parametrize(
    "failure", [KafkaException(KafkaError(KafkaError._TRANSPORT)), RuntimeError("as scripted")]
)
async def test_a_request_that_fails_changes_nothing(failure: Exception) -> None:
    """Partitions are assigned and read all the same, and no fault is reported."""
    consumer = ScriptedConsumer()
    consumer.request_error = failure
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults) as source:
        source.prepare(["t", "u"])
        source.assign(1, {A: 0})
        source.open(1, [A])
        consumer.feed(record(A, 0))
        assert (await source.receive(1, [A], 1)).next_offset == 1
    assert sorted(consumer.requested) == [("t", 0), ("t", 1), ("u", 0)]
    assert faults == []


async def test_a_bounded_number_of_topics_is_requested() -> None:
    """Of very many topics ``MOST`` are requested when a member joins, and of an assignment too."""
    consumer = ScriptedConsumer()
    topics = [f"t{number}" for number in range(MOST + 5)]
    positions = {TopicPartition(topic, 0): 0 for topic in topics}
    async with running(consumer) as source:
        source.prepare(topics)
        await obeyed(source)
        assert len(consumer.requested) == MOST
        source.assign(1, positions)
        source.open(1, list(positions))
        await consumer.until(lambda: len(consumer.requested) == 2 * MOST)
        await obeyed(source)
        assert len(consumer.requested) == 2 * MOST


async def test_no_impossible_name_is_requested() -> None:
    """librdkafka aborts the process on some names, so it never gets a name that no topic has."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.prepare(["", "a b", "t\0", "x" * 250, "\ud800", "t"])
        await consumer.until(lambda: bool(consumer.requested))
        await obeyed(source)
    assert consumer.requested == [("t", 0)]


async def test_a_consumer_that_took_another_s_place_requests_for_itself() -> None:
    """A replaced Consumer knows nothing of what the first one has requested."""
    first, second = ScriptedConsumer(), ScriptedConsumer()
    opened = [first, second]
    consumer: Any = SimpleNamespace(open=lambda settings: opened.pop(0).open(settings))
    async with running(consumer) as source:
        source.prepare(["t"])
        source.assign(1, {A: 0})
        source.open(1, [A])
        first.feed(failure(None, KafkaError._FATAL))
        with pytest.raises(FetchError):
            await source.receive(1, [A], 1)
        source.assign(2, {A: 0})
        source.open(2, [A])
        await second.until(lambda: bool(second.requested))
    assert second.requested == [("t", 1)]


@pytest.mark.parametrize("again", [False, True])
async def test_a_topic_that_was_created_again_has_another_consumer(*, again: bool) -> None:
    """librdkafka would fetch with the old topic's leader epoch, without an error, and get nothing.

    Other topics go on where they were.
    """
    opened: list[ScriptedConsumer] = []

    def open_consumer(settings: dict[str, Any]) -> Any:
        opened.append(ScriptedConsumer())
        return opened[-1].open(settings)

    consumer: Any = SimpleNamespace(open=open_consumer)
    other = TopicPartition("other", 1)
    ids = {"t": UUID(int=1), "other": UUID(int=2), "unread": UUID(int=3)}
    async with running(consumer) as source:
        source.use_topic_ids(lambda: ids)
        for epoch in (1, 2):
            source.assign(epoch, {A: 0, other: 5})
            source.open(epoch, [A, other])
            await obeyed(source)
        assert len(opened) == 1
        ids = {"t": UUID(int=9)} if again else {"other": UUID(int=2), "unread": UUID(int=8)}
        for epoch in (3, 4):
            source.assign(epoch, {A: 0, other: 5})
            source.open(epoch, [A, other])
            await obeyed(source)
        assert len(opened) == 1 + again
        opened[-1].feed(record(other, 5), record(A, 0))
        assert (await source.receive(4, [other], 1)).next_offset == 6
        assert (await source.receive(4, [A], 1)).next_offset == 1
