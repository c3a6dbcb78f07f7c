"""Static membership (KIP-345) on both brokers: a restart without a rebalance, and fencing."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest
import trio

from kgroup.errors import FencedInstanceError, StaleGenerationError
from kgroup.events import CommitRefused, Event, Left
from kgroup.group import default_runtime
from kgroup.testing import admin
from kgroup.types import Cause
from tests.behaviour.faults import Heartbeats
from tests.behaviour.harness import SOON, harness, in_thread, numbers
from tests.behaviour.worker import BackwardClock
from tests.brokers import Kafka

SESSION: Final = 60.0
"""Static members come back within it, on a busy machine too; no test waits for its end."""


async def test_a_restart_causes_no_rebalance(kafka: Kafka) -> None:
    """A static member that comes back gets its partitions again without a rebalance."""
    async with harness(kafka) as here:
        await here.create(2)
        other = here.start("other", session_timeout=SESSION)
        await here.processed.until(lambda: other.owned() == 2, "not joined")
        events: list[Event] = []
        settings: dict[str, Any] = {"group_instance_id": "one", "session_timeout": SESSION}
        async with here.group(None, events.append, **settings) as group:
            before = await group.next()
            (mine,) = before.assignment
            await here.produce(["0", "1", "2"], mine.partition)
            batch = await anext(before.records(max_records=2))
            await before.commit({mine: batch.next_offset})
        assert [event.notified for event in events if isinstance(event, Left)] == [False]
        epoch = other.generation.epoch
        async with here.group(**settings) as group:
            with trio.fail_after(SOON):
                after = await group.next()
            assert after.generation_id == before.generation_id
            assert after.member_id != before.member_id
            assert list(after.assignment) == [mine]
            assert after.start_offsets == {mine: batch.next_offset}
            rest = await anext(after.records())
            assert numbers(rest.messages) == [0, 1, 2][batch.next_offset :]
            await after.commit({mine: rest.next_offset})
            assert other.generation.epoch == epoch
            assert not other.generation.ending.is_set()


async def test_a_static_leader_that_comes_back_still_watches(kafka: Kafka) -> None:
    """A restarted leader still finds new partitions."""
    async with harness(kafka) as here:
        await here.create(1)
        settings: dict[str, Any] = {"group_instance_id": "one", "session_timeout": SESSION}
        async with here.group(**settings) as group:
            before = await group.next()
            assert before.leader
        async with here.group(**settings) as group:
            after = await group.next()
            assert after.generation_id == before.generation_id
            assert list(after.assignment) == here.partitions(1)
            await in_thread(admin.add_partitions, here.bootstrap_servers, here.topic, 3)
            grown = await group.next()
            assert list(grown.assignment) == here.partitions(3)


async def test_partitions_added_while_the_leader_was_away_are_read(kafka: Kafka) -> None:
    """The restarted leader notices that its old assignment lacks new partitions."""
    async with harness(kafka) as here:
        await here.create(1)
        settings: dict[str, Any] = {"group_instance_id": "one", "session_timeout": SESSION}
        async with here.group(**settings) as group:
            before = await group.next()
            assert before.leader
        await in_thread(admin.add_partitions, here.bootstrap_servers, here.topic, 3)
        await here.produce(["0"], 2)
        async with here.group(**settings) as group:
            after = await group.next()
            assert list(after.assignment) == here.partitions(3)
            assert after.generation_id == before.generation_id + 1
            assert numbers((await anext(after.records())).messages) == [0]


async def test_a_topic_that_a_returning_follower_adds_is_read(kafka: Kafka) -> None:
    """A new subscription causes no rebalance by itself; the member leaves and joins."""
    async with harness(kafka) as here:
        await here.create(2)
        other = here.start("other", session_timeout=SESSION)
        await here.processed.until(lambda: other.owned() == 2, "not joined")
        more = f"{here.topic}-more"
        await in_thread(admin.create_topic, here.bootstrap_servers, more, 1)
        settings: dict[str, Any] = {"group_instance_id": "one", "session_timeout": SESSION}
        async with here.group(**settings) as group:
            before = await group.next()
            assert not before.leader
        async with here.group(topics=[here.topic, more], **settings) as group:
            after = await group.next()
            assert after.assignment.topics() == (here.topic, more)
            # If the other member has joined in between, it had a generation of its own.
            assert after.generation_id - before.generation_id in {1, 2}


async def test_a_twin_fences_the_member_before(kafka: Kafka) -> None:
    """Of two members with one instance id, the later stays; the earlier is fenced and ends."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(["0", "1"])
        partition = here.partition(0)
        events: list[Event] = []
        first = here.group(None, events.append, group_instance_id="one")
        async with first:
            fenced = await first.next()
            await fenced.commit({partition: 1}, beyond_read=True)
            async with here.group(group_instance_id="one") as second:
                owner = await second.next()
                assert list(owner.assignment) == [partition]
                with trio.fail_after(SOON):
                    await fenced.ending.wait()
                assert fenced.end is not None
                assert fenced.end.cause is Cause.FENCED
                with pytest.raises(StaleGenerationError):
                    await fenced.commit({partition: 2}, beyond_read=True)
                for _ in range(2):
                    with pytest.raises(FencedInstanceError):
                        await first.next()
                assert (await anext(owner.records())).next_offset == 2
                await owner.commit({partition: 2}, beyond_read=True)
        assert await here.committed() == [2]


async def test_a_commit_finds_the_fence_first(kafka: Kafka) -> None:
    """A fenced member may learn of it from a commit before a heartbeat.

    Its heartbeats do not arrive, and its clock does not let the lease end.
    """
    async with harness(kafka) as here:
        await here.create()
        partition = here.partition(0)
        events: list[Event] = []
        heartbeats = Heartbeats()
        runtime = attrs.evolve(
            default_runtime(), open_stream=heartbeats.open_stream, clock=BackwardClock()
        )
        settings: dict[str, Any] = {"group_instance_id": "one", "session_timeout": SESSION}
        async with here.group(runtime, events.append, **settings) as first:
            fenced = await first.next()
            heartbeats.hold()
            async with here.group(**settings) as second:
                owner = await second.next()
                await owner.commit({partition: 0})
                assert not fenced.ending.is_set()
                with pytest.raises(StaleGenerationError):
                    await fenced.commit({partition: 1}, beyond_read=True)
                refused = [event for event in events if isinstance(event, CommitRefused)]
                assert [event.reason for event in refused] == ["FENCED_INSTANCE_ID"]
                with pytest.raises(FencedInstanceError):
                    await first.next()
            heartbeats.release()
        assert await here.committed() == [0]
