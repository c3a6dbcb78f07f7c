"""A subscription that the program replaces while the group runs: subscribe() and unsubscribe()."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup import member
from kgroup.client.cluster import Cluster
from kgroup.errors import ArgumentError, GroupClosedError
from kgroup.events import Event, GenerationEnded, GenerationStarted, Joined, Left
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.status import Phase
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, TopicPartition
from tests.group.harness import P0, P1, Harness, harness, values

OTHER = TopicPartition("other", 0)


async def read(generation: Generation, partition: TopicPartition) -> None:
    """Process a partition: commit each batch."""
    async for batch in generation.records(partition):
        await generation.commit({partition: batch.next_offset})


def topics(generation: Generation) -> set[str]:
    """The topics of a generation's partitions."""
    return {partition.topic for partition in generation.assignment}


async def other_topic(here: Harness, count: int = 1) -> None:
    """Create the topic ``other``."""
    await here.broker.create_topic("other", 1)
    await here.append(count, topic="other")


async def hold(group: ConsumerGroup, taken: list[Generation]) -> None:
    """Take each generation, and wait until it ends."""
    async for generation in group:
        taken.append(generation)
        generation.start_soon(generation.ending.wait)


async def test_new_topics_are_read_in_the_next_generation(autojump_clock: MockClock) -> None:
    """The generation drains, its commits succeed, and the member joins again without leaving."""
    async with harness() as here:
        await other_topic(here, 3)
        await here.append(2)
        async with here.group() as group:
            first = await group.next()
            first.start_soon(read, first, P0)
            await trio.sleep(1.0)
            group.subscribe(["other"])
            assert group.subscription == ("other",)
            second = await group.next()
            assert first.end is not None
            assert first.end.cause is Cause.SUBSCRIPTION_CHANGED
            assert first.end.detail == "the program subscribed to 'other'"
            assert list(second.assignment) == [OTHER]
            assert list(second.assignment.removed) == [P0]
            assert values((await anext(second.records(OTHER))).messages) == [0, 1, 2]
            assert here.requests_for("leave_group") == []
        assert await here.committed() == {P0: 2}


async def test_topics_that_are_not_wanted_any_more_are_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that has subscribed to many topics, one after the other, knows those of now."""
    clusters: list[Cluster] = []

    def made(*arguments: Any) -> Cluster:
        clusters.append(Cluster(*arguments))
        return clusters[-1]

    monkeypatch.setattr(member, "Cluster", made)
    async with harness() as here, here.group(topics=["topic"]) as group:
        await other_topic(here)
        for number in range(10):
            await here.broker.create_topic(f"tenant-{number}", 1)
            group.subscribe([f"tenant-{number}", "absent"])
            generation = await group.next()
            generation.start_soon(generation.ending.wait)
            assert list(generation.assignment) == [TopicPartition(f"tenant-{number}", 0)]
        (cluster,) = clusters
        assert {name.topic for name in cluster._leaders._nodes} == {"tenant-9"}


async def test_a_follower_forgets_which_topics_it_has_asked_about(
    autojump_clock: MockClock,
) -> None:
    """Of many names, one after the other, it knows those of its subscription."""
    async with harness() as here, trio.open_nursery() as nursery:
        leader = await nursery.start(lead, here)
        async with here.group(topics=["topic"]) as group:
            for number in range(10):
                group.subscribe([f"absent-{number}", "absent"])
                generation = await group.next()
                generation.start_soon(generation.ending.wait)
                assert not generation.leader
            assert group._subscription.described == {"absent-9", "absent"}
        leader.shutdown()


async def lead(
    here: Harness, *, task_status: trio.TaskStatus[ConsumerGroup] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a member that leads the group."""
    async with here.group(topics=["topic"]) as group:
        first = await group.next()
        task_status.started(group)
        await first.wait_ended()
        async for generation in group:
            await generation.wait_ended()


async def test_a_task_of_the_generation_may_subscribe(autojump_clock: MockClock) -> None:
    """It goes on until the group's next heartbeats; only the last of its calls counts."""
    async with harness() as here:
        await other_topic(here)
        async with here.group() as group:

            async def change(generation: Generation) -> None:
                group.subscribe(["nothing"])
                group.subscribe(["other"])
                await generation.ending.wait()

            first = await group.next()
            first.start_soon(change, first)
            second = await group.next()
            assert first.end is not None
            assert first.end.detail == "the program subscribed to 'other'"
            assert topics(second) == {"other"}
        assert len(here.events_of(Joined)) == 2


@pytest.mark.parametrize("alone", [True, False])
async def test_the_end_waits_for_the_beat(alone: bool, autojump_clock: MockClock) -> None:
    """Work continues until just before the heartbeats that tell the others; alone it ends now."""
    async with harness() as here, trio.open_nursery() as nursery:
        await other_topic(here)
        mine: list[Generation] = []
        async with here.group(heartbeat_interval=3.0) as group:
            other: list[Generation] = [] if alone else await nursery.start(member_of, here)
            nursery.start_soon(hold, group, mine)
            await trio.sleep(20.0)
            asked = trio.current_time()
            group.subscribe(["other"])
            await mine[-1].ending.wait()
            waited = trio.current_time() - asked
            assert waited == 0.0 if alone else 0.0 < waited < 3.0
            await trio.sleep(10.0)
            assert topics(mine[-1]) == {"other"}
            if not alone:
                assert topics(other[-1]) == {"topic"}
        nursery.cancel_scope.cancel()


async def member_of(here: Harness, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    """Be another member, which reads ``topic``."""
    taken: list[Generation] = []
    async with here.group(heartbeat_interval=3.0) as group:
        task_status.started(taken)
        await hold(group, taken)


async def test_the_same_topics_change_nothing(autojump_clock: MockClock) -> None:
    """In another order they are the same."""
    async with harness() as here:
        await other_topic(here)
        async with here.group(topics=["topic", "other"]) as group:
            generation = await group.next()
            group.subscribe(("other", "topic"))
            await trio.sleep(10.0)
            assert not generation.ending.is_set()
        assert len(here.events_of(Joined)) == 1


async def test_patterns_may_be_subscribed_to(autojump_clock: MockClock) -> None:
    """Their topics are read, also those that are created later."""
    async with harness() as here:
        async with here.group() as group:
            await group.next()
            group.subscribe([re.compile("o.*"), "topic"])
            generation = await group.next()
            assert topics(generation) == {"topic"}
            await other_topic(here)
            generation = await group.next()
            assert topics(generation) == {"topic", "other"}
            group.subscribe([re.compile("t.*")])
            generation = await group.next()
            assert topics(generation) == {"topic"}
        ends = [str(event.end) for event in here.events_of(GenerationEnded)]
        assert ends[0].endswith("subscribed to the pattern 'o.*', 'topic'")


@pytest.mark.parametrize("instance", [None, "one"])
async def test_a_member_that_unsubscribes_leaves(
    instance: str | None, autojump_clock: MockClock
) -> None:
    """Others have its partitions at once, also a static one's; it can come back."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        async with here.group(group_instance_id=instance) as group:
            mine: list[Generation] = []
            other = await nursery.start(member_of, here)
            nursery.start_soon(hold, group, mine)
            await trio.sleep(20.0)
            assert len(mine[-1].assignment) == 1
            group.unsubscribe()
            group.unsubscribe()
            assert group.subscription == ()
            await trio.sleep(4.0)
            assert mine[-1].end is not None
            assert str(mine[-1].end) == "subscription changed: the program unsubscribed"
            assert list(other[-1].assignment) == [P0, P1]
            (left,) = here.events_of(Left)
            assert left.notified
            assert left.reason == "the program unsubscribed"
            status = group.status()
            assert status.phase is Phase.UNSUBSCRIBED
            assert status.without_generation == 0.0
            await trio.sleep(3600.0)
            assert group.health().ready
            assert len(here.requests_for("leave_group")) == 1
            had = len(mine)
            group.subscribe(["topic"])
            assert group.status().phase is Phase.JOINING
            assert group.status().without_generation == 0.0
            await trio.sleep(10.0)
            assert len(mine) == had + 1
            assert len(mine[-1].assignment) == 1
        nursery.cancel_scope.cancel()


async def test_what_was_processed_is_not_read_again(autojump_clock: MockClock) -> None:
    """A member that comes back starts at the offsets that it committed while it drained."""
    async with harness() as here:
        await here.append(5)
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(read, generation, P0)
            await trio.sleep(1.0)
            group.unsubscribe()
            with trio.move_on_after(60.0):
                await group.next()
            await here.append(2)
            group.subscribe(["topic"])
            generation = await group.next()
            batch = await anext(generation.records(P0))
            assert (batch.start_offset, batch.next_offset) == (5, 7)


async def test_a_program_that_does_not_wait_leaves_too(autojump_clock: MockClock) -> None:
    """A member without a generation, whose program does something else, leaves when it says so."""
    async with harness() as here, here.group() as group:
        await group.next()
        group.release()
        group.unsubscribe()
        await trio.sleep(2.0)
        assert len(here.events_of(Left)) == 1


async def test_the_subscription_may_be_replaced_before_the_first_join(
    autojump_clock: MockClock,
) -> None:
    """Before it is entered, and before the first next(), the program may choose."""
    async with harness() as here:
        await other_topic(here)
        group = here.group()
        group.unsubscribe()
        async with group:
            with trio.move_on_after(30.0):
                await group.next()
            assert here.events == []
            group.subscribe(["other"])
            assert topics(await group.next()) == {"other"}
        assert len(here.events_of(Joined)) == 1


async def test_a_join_under_way_is_given_up(autojump_clock: MockClock) -> None:
    """While JoinGroup is not answered, new topics are joined with at once."""
    settings = {"group.initial.rebalance.delay.ms": "20000"}
    async with harness(1, **settings) as here, trio.open_nursery() as nursery:
        await other_topic(here)
        async with here.group() as group:
            taken: list[Generation] = []
            nursery.start_soon(hold, group, taken)
            await trio.sleep(5.0)
            assert here.events_of(Joined) == []
            group.subscribe(["other"])
            await trio.sleep(30.0)
            assert [topics(one) for one in taken] == [{"other"}]
            group.subscribe(["topic"])
            await trio.sleep(30.0)
            assert [topics(one) for one in taken] == [{"other"}, {"topic"}]
        assert {one.member_id for one in here.events_of(Joined)} == {taken[0].member_id}


async def test_a_generation_of_the_old_topics_is_never_returned(autojump_clock: MockClock) -> None:
    """Whenever subscribe() is called before next() returns, the generation has the new topics."""
    async with harness() as here:
        await other_topic(here)
        for ticks in range(0, 240, 4):
            async with here.group(group_id=f"group-{ticks}") as group, trio.open_nursery() as tasks:
                wanted = {"topic"}

                async def change(
                    group: ConsumerGroup = group, ticks: int = ticks, wanted: set[str] = wanted
                ) -> None:
                    for _ in range(ticks):
                        await trio.lowlevel.checkpoint()
                    group.subscribe(["other"])
                    wanted.clear()
                    wanted.add("other")

                tasks.start_soon(change)
                generation = await group.next()
                assert topics(generation) == wanted
                if wanted == {"topic"}:
                    assert topics(await group.next()) == {"other"}
        started = here.events_of(GenerationStarted)
        assert 60 < len(started) < 120  # both cases were seen


async def test_a_handler_of_the_start_may_subscribe(autojump_clock: MockClock) -> None:
    """next() does not return a generation if a handler of its start replaced the subscription."""
    async with harness() as here:
        await other_topic(here)

        def on_event(event: Event) -> None:
            if isinstance(event, GenerationStarted) and event.epoch == 1:
                group.subscribe(["other"])

        runtime = memory_runtime(here.broker)
        group = ConsumerGroup(here.config(), runtime=runtime, on_event=on_event)
        async with group:
            assert topics(await group.next()) == {"other"}


async def test_cooperative_members_join_once(autojump_clock: MockClock) -> None:
    """The JoinGroup gives up the old topics' partitions, so no second rebalance has to."""
    async with harness(2) as here:
        await other_topic(here)
        async with here.group(assignors=["cooperative-sticky"]) as group:
            await group.next()
            group.subscribe(["other"])
            assert topics(await group.next()) == {"other"}
            group.subscribe(["other", "topic"])
            assert topics(await group.next()) == {"other", "topic"}
        assert len(here.events_of(Joined)) == 3


@pytest.mark.parametrize("bad", [[], ["bad name"], "other", [1], ["a", "a"], 5])
async def test_bad_topics_are_refused(bad: Any, autojump_clock: MockClock) -> None:
    """The subscription stays as it was."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        with pytest.raises(ArgumentError, match="topics="):
            group.subscribe(bad)
        await trio.sleep(5.0)
        assert group.subscription == ("topic",)
        assert not generation.ending.is_set()


async def test_a_closed_group_cannot_subscribe(autojump_clock: MockClock) -> None:
    """The error says that it is closed, and why."""
    async with harness() as here, here.group() as group:
        await group.next()
        group.shutdown("the program has enough")
        with pytest.raises(GroupClosedError, match="the program has enough"):
            group.subscribe(["other"])
        with pytest.raises(GroupClosedError, match="the program has enough"):
            group.unsubscribe()


@pytest.mark.parametrize("instance", [None, "one"])
@pytest.mark.parametrize("close", [True, False])
async def test_unsubscribing_without_a_coordinator_has_a_deadline(
    instance: str | None, close: bool, autojump_clock: MockClock
) -> None:
    """The leave is given up after close_timeout, the group can be closed, and can come back."""
    async with (
        harness() as here,
        here.group(group_instance_id=instance, close_timeout=3.0) as group,
    ):
        await group.next()
        here.broker.set_reachable(reachable=False)
        group.unsubscribe()
        with trio.move_on_after(1.0 if close else 20.0):
            await group.next()
        if close:
            began = trio.current_time()
            await group.aclose()
            assert trio.current_time() - began <= group.config.longest_close
            return
        (left,) = here.events_of(Left)
        assert not left.notified
        here.broker.set_reachable(reachable=True)
        group.subscribe(["topic"])
        assert list((await group.next()).assignment) == [P0]
