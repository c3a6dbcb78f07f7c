"""The watchers: partitions and topics that come and go, patterns, stuck and idle handlers."""

from __future__ import annotations

import re

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.broker import in_memory_cluster
from kgroup.error_codes import ErrorCode
from kgroup.errors import UsageError
from kgroup.events import (
    GenerationEnded,
    PartitionsLeaderless,
    PartitionsNotRead,
    PatternsUnmatched,
    RequestFailed,
    TopicsMissing,
)
from kgroup.generation.generation import Generation
from kgroup.generation.missing_topics import REPEATED_AFTER
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import Cause, End, TopicPartition
from kgroup.watchers.leaderless import LEADERLESS_AFTER
from tests.group.harness import P0, P1, P2, Harness, harness, values


async def ended(group: ConsumerGroup, generation: Generation) -> tuple[End, Generation]:
    """Wait for the end of a generation, and take the next."""
    with trio.fail_after(60):
        await generation.ending.wait()
        following = await group.next()
    assert generation.end is not None
    return generation.end, following


async def test_partitions_that_are_added(autojump_clock: MockClock) -> None:
    """The leader finds them within the interval, commits its current work, and gets them."""
    async with harness() as here, here.group(partition_watch_interval=5.0) as group:
        first = await group.next()
        await trio.sleep(6)
        await here.broker.add_partitions("topic", 3)
        since = here.now
        end, second = await ended(group, first)
        assert here.now - since <= 5
        assert end.cause is Cause.PARTITIONS_CHANGED
        assert end.can_commit
        assert "topic topic has 3 partitions, not 1" in str(end)
        assert list(second.assignment) == [P0, P1, P2]
        assert second.assignment.added == {P1, P2}
        assert second.assignment.kept == {P0}


async def test_partitions_added_between_the_assignment_and_the_first_poll(
    autojump_clock: MockClock,
) -> None:
    """The baseline is the metadata of the assignment, so that no change is missed."""
    async with harness() as here, trio.open_nursery() as nursery:
        here.broker.slow(2.0, "sync_group", times=1)

        async def grows() -> None:
            await trio.sleep(1)
            await here.broker.add_partitions("topic", 2)

        nursery.start_soon(grows)
        async with here.group(partition_watch_interval=5.0) as group:
            first = await group.next()
            assert list(first.assignment) == [P0]
            end, second = await ended(group, first)
            assert end.cause is Cause.PARTITIONS_CHANGED
            assert list(second.assignment) == [P0, P1]


async def test_partitions_whose_only_broker_is_down(autojump_clock: MockClock) -> None:
    """They are reported, the others are read on, and once it is back they are read too."""
    heard: list[PartitionsLeaderless] = []

    def note(event: object) -> None:
        if isinstance(event, PartitionsLeaderless):
            heard.append(event)

    async with in_memory_cluster(2, {"group.initial.rebalance.delay.ms": 0}) as cluster:
        await cluster.create_topic("topic", 2)
        coordinator = cluster.coordinator_of("group")
        (other,) = cluster.nodes.keys() - {coordinator}
        (lost,) = (part for part in (P0, P1) if cluster.leader_of(part) == other)
        await cluster.nodes[other].stop()
        config = config_for(cluster, topics=["topic"])
        async with ConsumerGroup(config, runtime=memory_runtime(cluster), on_event=note) as group:
            generation = await group.next()
            assert list(generation.assignment) == [P0, P1]
            await trio.sleep(LEADERLESS_AFTER + 5)
            assert [event.partitions for event in heard] == [(lost,)]
            await cluster.nodes[other].start()
            await trio.sleep(REPEATED_AFTER + LEADERLESS_AFTER)
            assert len(heard) == 1
            assert generation.state is State.RUNNING


async def test_a_topic_that_is_created_later(autojump_clock: MockClock) -> None:
    """It is reported as missing, the others are read, and it is read once it exists."""
    async with harness() as here, here.group(topics=["topic", "later"]) as group:
        first = await group.next()
        assert list(first.assignment) == [P0]
        await trio.sleep(20)
        assert [event.topics for event in here.events_of(TopicsMissing)] == [("later",)]
        assert first.state is State.RUNNING
        await here.broker.create_topic("later", 1)
        end, second = await ended(group, first)
        assert "topic later appeared with 1 partitions" in str(end)
        assert list(second.assignment) == [TopicPartition("later", 0), P0]


async def test_a_wrong_name_is_reported_again_with_the_name_that_was_meant(
    autojump_clock: MockClock,
) -> None:
    """It is a warning every five minutes until the topic exists, and names the nearest topic."""
    async with harness() as here, here.group(topics=["topics", "other"]) as group:
        first = await group.next()
        await trio.sleep(2 * REPEATED_AFTER - 1)
        near = {"topics": "topic"}
        missing = [(event.topics, event.nearest) for event in here.events_of(TopicsMissing)]
        assert missing == [(("other", "topics"), near)] * 2
        assert "topics (did you mean topic?)" in str(here.events_of(TopicsMissing)[0])
        await here.broker.create_topic("other", 1)
        _, second = await ended(group, first)
        await trio.sleep(1)
        assert here.events_of(TopicsMissing)[2].topics == ("topics",)
        assert second.state is State.RUNNING


async def test_a_missing_topic_is_reported_while_no_broker_answers(
    autojump_clock: MockClock,
) -> None:
    """Then no name is near; the requests of the generation say what is wrong with the brokers."""
    async with harness() as here:
        here.broker.inject(
            "metadata", ErrorCode.UNKNOWN_SERVER_ERROR, match=lambda request: not request.topics
        )
        async with here.group(topics=["topics"], watch_partition_changes=False) as group:
            await group.next()
            await trio.sleep(1)
        (missing,) = here.events_of(TopicsMissing)
        assert (missing.topics, missing.nearest) == (("topics",), {})


async def test_a_group_without_any_topic_waits_for_one(autojump_clock: MockClock) -> None:
    """A generation may be empty; no request creates the topic."""
    async with harness(0) as here, here.group() as group:
        first = await group.next()
        assert list(first.assignment) == []
        await trio.sleep(30)
        assert first.state is State.RUNNING
        assert all(not it.allow_auto_topic_creation for _, it in here.requests_for("metadata"))
        await here.broker.create_topic("topic", 1)
        _, second = await ended(group, first)
        assert list(second.assignment) == [P0]


async def test_a_topic_that_is_deleted(autojump_clock: MockClock) -> None:
    """After some seconds of polls without it, it counts as deleted, and is assigned no more."""
    async with harness() as here, here.group(topics=["topic", "other"]) as group:
        await here.broker.create_topic("other", 1)
        first = await group.next()
        assert len(first.assignment) == 2
        await here.broker.delete_topic("other")
        since = here.now
        end, second = await ended(group, first)
        assert 5 <= here.now - since <= 10
        assert "topic other was deleted" in str(end)
        assert list(second.assignment) == [P0]


async def test_one_poll_that_misses_a_topic_ends_nothing(autojump_clock: MockClock) -> None:
    """A broker that has just started may not know a topic yet."""
    async with harness() as here, here.group() as group:
        first = await group.next()
        await trio.sleep(1)
        here.broker.inject("metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=1)
        await trio.sleep(30)
        assert first.state is State.RUNNING


async def test_a_poll_that_is_not_authorized_ends_nothing(autojump_clock: MockClock) -> None:
    """An authorization error of polls is reported once, and the watcher polls again."""
    async with harness() as here, here.group() as group:
        first = await group.next()
        await trio.sleep(1)
        here.broker.inject("metadata", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=2)
        await trio.sleep(30)
        assert first.state is State.RUNNING
        actions = [event.next_action for event in here.events_of(RequestFailed)]
        assert actions == ["send the request again, after a backoff"]
        await here.broker.add_partitions("topic", 2)
        end, _ = await ended(group, first)
        assert end.cause is Cause.PARTITIONS_CHANGED


async def test_a_poll_with_an_error_is_no_empty_list(
    autojump_clock: MockClock,
) -> None:
    """KIP-1102: the response's error is reported and the poll repeated; no topic is deleted."""
    async with harness() as here, here.group(topics=[re.compile("top.*")]) as group:
        first = await group.next()
        assert list(first.assignment) == [P0]
        await trio.sleep(1)
        here.broker.inject("metadata", ErrorCode.REBOOTSTRAP_REQUIRED, times=6)
        await trio.sleep(30)
        assert first.state is State.RUNNING
        assert 1 <= len(here.events_of(RequestFailed)) <= 2  # each of the two watchers, once


async def test_a_topic_that_is_deleted_and_created_again(autojump_clock: MockClock) -> None:
    """Another topic with the same name is detected by its id, and read from its beginning."""
    async with harness() as here:
        await here.append(5)
        async with here.group() as group:
            first = await group.next()
            batch = await anext(first.records(P0))
            await first.commit({P0: batch.next_offset})
            await here.broker.delete_topic("topic")
            await here.broker.create_topic("topic", 1)
            await here.append(2)
            end, second = await ended(group, first)
            assert "deleted and created again" in str(end)
            batch = await anext(second.records(P0))
            assert values(batch.messages) == [0, 1]


async def test_only_the_leader_watches_and_for_the_whole_group(
    autojump_clock: MockClock,
) -> None:
    """The follower requests no metadata; the leader also watches the follower's topics."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.broker.create_topic("other", 1)
        leaders: list[Generation] = []

        async def lead() -> None:
            async with here.group(client_id="leader", partition_watch_interval=5.0) as group:
                async for generation in group:
                    leaders.append(generation)  # noqa: PERF401 # seen as they come

        nursery.start_soon(lead)
        await trio.sleep(5)
        async with here.group(topics=["other"], client_id="follower") as group:
            first = await group.next()
            assert not first.leader
            assert [str(partition) for partition in first.assignment] == ["other-0"]
            since = here.now
            await trio.sleep(22)
            asked = [
                set(map(str, (topic.name for topic in it.topics)))
                for _, it in here.requests_for("metadata", since=since + 0.01)
            ]
            assert len(asked) == 4  # the leader's, every 5 s
            assert all(topics == {"topic", "other"} for topics in asked)
            await here.broker.add_partitions("other", 2)
            end, second = await ended(group, first)
            assert end.cause is Cause.REBALANCE
            assert len(second.assignment) == 2
            assert leaders[-2].end is not None
            assert leaders[-2].end.cause is Cause.PARTITIONS_CHANGED
        nursery.cancel_scope.cancel()


async def test_watching_can_be_switched_off(autojump_clock: MockClock) -> None:
    """Without watch_partition_changes, a running generation requests no metadata."""
    async with harness() as here, here.group(watch_partition_changes=False) as group:
        first = await group.next()
        asked = len(here.requests_for("metadata"))
        await here.broker.add_partitions("topic", 2)
        await trio.sleep(30)
        assert first.state is State.RUNNING
        assert len(here.requests_for("metadata")) == asked


async def test_a_pattern_takes_what_it_matches(autojump_clock: MockClock) -> None:
    """Whole names match; a new match ends the generation, and so does a lost one."""
    async with harness(0) as here:
        await here.broker.create_topic("orders-eu", 1)
        await here.broker.create_topic("my-orders-eu", 1)
        async with here.group(topics=[re.compile(r"orders-\w+"), "fixed"]) as group:
            first = await group.next()
            assert [str(partition) for partition in first.assignment] == ["orders-eu-0"]
            await here.broker.create_topic("orders-us", 1)
            end, second = await ended(group, first)
            assert end.cause is Cause.SUBSCRIPTION_CHANGED
            assert "the patterns now match orders-us" in str(end)
            assert second.assignment.topics() == ("orders-eu", "orders-us")
            await here.broker.delete_topic("orders-eu")
            end, third = await ended(group, second)
            assert end.cause in (Cause.SUBSCRIPTION_CHANGED, Cause.PARTITIONS_CHANGED)
            assert third.assignment.topics() == ("orders-us",)


async def test_patterns_that_match_no_topic(autojump_clock: MockClock) -> None:
    """It is a warning every five minutes, with the topics that were meant, while none matches."""
    async with harness(0) as here:
        for name in ("orders-eu", "payments"):
            await here.broker.create_topic(name, 1)
        patterns = ["orders", "paymets.*", "x.*", "__consumer_offsets", "pay.*"]
        async with here.group(topics=[re.compile(one) for one in patterns]) as group:
            first = await group.next()
            await trio.sleep(2 * REPEATED_AFTER - 1)
            unmatched = ("__consumer_offsets", "orders", "paymets.*", "x.*")
            near = {"orders": "orders-eu", "paymets.*": "payments"}
            reported = [(one.patterns, one.nearest) for one in here.events_of(PatternsUnmatched)]
            assert reported == [(unmatched, near)] * 2
            assert "'orders' (did you mean topic orders-eu?)" in str(
                here.events_of(PatternsUnmatched)[0]
            )
            await here.broker.create_topic("x-1", 1)
            _, second = await ended(group, first)
            await trio.sleep(1)
            assert here.events_of(PatternsUnmatched)[-1].patterns == unmatched[:3]
            assert second.state is State.RUNNING


async def test_patterns_of_which_each_matches(autojump_clock: MockClock) -> None:
    """Nothing is reported."""
    async with harness() as here, here.group(topics=[re.compile("to.*")]) as group:
        await group.next()
        await trio.sleep(1)
        assert here.events_of(PatternsUnmatched) == []


async def test_followers_watch_their_patterns(autojump_clock: MockClock) -> None:
    """A follower whose pattern matches another topic joins again, and the group rebalances."""
    async with harness() as here, trio.open_nursery() as nursery:

        async def lead() -> None:
            async with here.group() as group:
                async for _ in group:
                    pass

        nursery.start_soon(lead)
        await trio.sleep(5)
        async with here.group(topics=[re.compile("x-.*")]) as group:
            first = await group.next()
            assert not first.leader
            assert list(first.assignment) == []
            await here.broker.create_topic("x-1", 1)
            end, second = await ended(group, first)
            assert end.cause is Cause.SUBSCRIPTION_CHANGED
            assert [str(partition) for partition in second.assignment] == ["x-1-0"]
        nursery.cancel_scope.cancel()


async def test_two_streams_of_one_partition_are_refused(autojump_clock: MockClock) -> None:
    """A partition has one stream at a time, or a new one after the old was closed."""
    async with harness(2) as here, here.group() as group:
        await here.append(1)
        generation = await group.next()
        everything = generation.records()
        with pytest.raises(UsageError, match="topic-0: another stream"):
            generation.records(P0)
        everything.close()
        one = generation.records(P0)
        with pytest.raises(UsageError, match="another stream"):
            generation.records()
        assert values((await anext(one)).messages) == [0]
        generation.records(P1)
        with pytest.raises(UsageError, match="max_records=0"):
            generation.records(P1, max_records=0)


async def test_a_stream_is_for_one_task(autojump_clock: MockClock) -> None:
    """The error of the second task on one stream says to open another stream."""
    async with harness() as here, here.group() as group, trio.open_nursery() as nursery:
        generation = await group.next()
        stream = generation.records(P0)
        nursery.start_soon(anext, stream, None)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="one for each partition"):
            await anext(stream)
        nursery.cancel_scope.cancel()


async def test_partitions_without_a_stream_are_reported(autojump_clock: MockClock) -> None:
    """The event comes once, some seconds after the hand-over, and names them."""
    async with harness(3) as here, here.group() as group:
        generation = await group.next()
        generation.records(P1)
        await trio.sleep(60)
        assert [event.partitions for event in here.events_of(PartitionsNotRead)] == [(P0, P2)]


async def test_partitions_with_streams_are_not_reported(autojump_clock: MockClock) -> None:
    """Open streams are enough; whether there are records does not matter."""
    async with harness(3) as here, here.group() as group:
        generation = await group.next()
        generation.records()
        await trio.sleep(60)
        assert here.events_of(PartitionsNotRead) == []


async def test_a_drain_closes_streams_and_nothing_is_reported(autojump_clock: MockClock) -> None:
    """While one handler finishes its batch, the partitions of the others are no longer read."""

    async def handle(generation: Generation, partition: TopicPartition, held: float) -> None:
        async for _ in generation.records(partition, max_records=1):
            await trio.sleep(held)

    async with harness(2) as here:
        await here.append(1, 0)
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(handle, generation, P0, 7.0)
            generation.start_soon(handle, generation, P1, 0.0)
            await trio.sleep(4.9)
            await group.aclose()
        assert here.events_of(PartitionsNotRead) == []


async def stuck_after(here: Harness, held: float) -> list[Cause]:
    """Hold each of three batches for so long, with a max_processing_time of 5 s; the ends."""
    await here.append(3)

    async def handle(generation: Generation) -> None:
        async for batch in generation.records(P0, max_records=1):
            await trio.sleep(held)
            await generation.commit({P0: batch.next_offset})
        await trio.sleep_forever()

    async with here.group(max_processing_time=5.0, drain_timeout=1.0) as group:
        generation = await group.next()
        generation.start_soon(handle, generation)
        with trio.move_on_after(30):
            await generation.ending.wait()
    return [event.end.cause for event in here.events_of(GenerationEnded)]


async def test_a_stuck_handler_gives_its_partitions_up(autojump_clock: MockClock) -> None:
    """A batch held for longer than max_processing_time ends the generation with that cause."""
    async with harness() as here:
        assert await stuck_after(here, 100.0) == [Cause.PROCESSING_STUCK]
        assert here.now < 10


async def test_a_slow_handler_is_not_stuck(autojump_clock: MockClock) -> None:
    """Batches that each take less do not end it, however long all of them take."""
    async with harness() as here:
        assert await stuck_after(here, 4.0) == [Cause.CLOSED]
        assert await here.committed() == {P0: 3}
