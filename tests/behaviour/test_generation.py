"""Generations on both brokers: why they end, commits in a drain, stale commits."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio

from kgroup.errors import NotOwnedError, OffsetBehindCommitError, StaleGenerationError
from kgroup.events import CommitRefused, Event
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import default_runtime
from kgroup.testing import admin
from kgroup.types import Cause
from tests.behaviour.faults import Heartbeats
from tests.behaviour.harness import EXPIRING, harness, in_thread, numbers
from tests.behaviour.worker import BackwardClock
from tests.brokers import Kafka


async def test_a_returning_task_ends_the_generation(kafka: Kafka) -> None:
    """After a task returns, the next generation has the same member."""
    async with harness(kafka) as here:
        await here.create()
        async with here.group() as group:
            first = await group.next()
            first.start_soon(trio.lowlevel.checkpoint)
            second = await group.next()
            assert first.end is not None
            assert first.end.cause is Cause.TASK_RETURNED
            assert first.state is State.ENDED
            assert second.member_id == first.member_id
            assert second.epoch == first.epoch + 1
            assert second.generation_id == first.generation_id + 1
            with pytest.raises(StaleGenerationError) as caught:
                await first.commit({here.partition(0): 0})
            assert caught.value.end is first.end
        assert second.end is not None
        assert second.end.cause is Cause.CLOSED
    assert await here.committed() == [None]


async def test_a_raising_task_ends_the_generation_and_surfaces(kafka: Kafka) -> None:
    """When a task raises, its siblings finish and commit before the error surfaces."""
    async with harness(kafka) as here:
        await here.create(2)
        await here.produce(["0", "1", "2"])

        async def sibling(generation: Generation) -> None:
            async for batch in generation.records(here.partition(0)):
                generation.start_soon(raises)
                await generation.ending.wait()
                await generation.commit({here.partition(0): batch.next_offset})

        async def raises() -> None:
            await trio.lowlevel.checkpoint()
            raise LookupError("broken handler")

        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                async for generation in group:
                    generation.start_soon(sibling, generation)
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert await here.committed() == [3]


async def test_a_drain_commits_under_the_old_id(kafka: Kafka) -> None:
    """Work that is finished and committed in a drain is not repeated."""
    async with harness(kafka) as here:
        await here.create(2)
        await here.produce([str(number) for number in range(10)], 0)
        await here.produce([str(number) for number in range(10)], 1)
        states: dict[int, State] = {}
        received = {0: trio.Event(), 1: trio.Event()}

        async def handle(generation: Generation, number: int) -> None:
            partition = here.partition(number)
            async for batch in generation.records(partition, max_records=4):
                received[number].set()
                await generation.ending.wait()
                await trio.sleep(0.5)
                await generation.commit({partition: batch.next_offset})
                states[number] = generation.state

        async with here.group() as group:
            first = await group.next()
            for number in (0, 1):
                first.start_soon(handle, first, number)
            for event in received.values():
                await event.wait()
            other = here.start("other")
            second = await group.next()
            assert first.end is not None
            assert first.end.cause is Cause.REBALANCE
            assert states == {0: State.DRAINING, 1: State.DRAINING}
            (kept,) = second.assignment
            batch = await anext(second.records(kept))
            assert numbers(batch.messages) == [4, 5, 6, 7, 8, 9]
            await second.commit({kept: batch.next_offset})
            (given,) = second.assignment.removed
            await here.processed.until(lambda: len(here.processed.entries) == 6, "not taken over")
            assert here.processed.offsets(given) == [4, 5, 6, 7, 8, 9]
            assert not second.assignment.added
            assert second.assignment.kept == {kept}
            assert other.owned() == 1


async def test_the_coordinator_refuses_a_stale_commit(kafka: Kafka) -> None:
    """A commit of an old generation is refused and changes nothing.

    The member's heartbeats do not arrive, and its clock does not let the lease end.
    """
    async with harness(kafka) as here:
        await here.create()
        await here.produce([str(number) for number in range(10)])
        heartbeats = Heartbeats()
        runtime = attrs.evolve(
            default_runtime(), open_stream=heartbeats.open_stream, clock=BackwardClock()
        )
        events: list[Event] = []
        group = here.group(runtime, events.append, session_timeout=EXPIRING)
        async with group:
            generation = await group.next()
            batch = await anext(generation.records(here.partition(0), max_records=5))
            heartbeats.hold()
            owner = here.start("owner")
            await here.processed.until(lambda: len(here.processed.entries) == 10, "not taken over")
            await here.processed.until(lambda: owner.settled(here.partition(0)), "not taken over")
            await owner.leave()
            assert not generation.ending.is_set()
            with pytest.raises(StaleGenerationError) as caught:
                await generation.commit({here.partition(0): batch.next_offset})
            assert generation.state is State.ENDED
            assert caught.value.end is generation.end
            assert generation.end is not None
            assert generation.end.cause is Cause.MEMBERSHIP_LOST
            (refused,) = [event for event in events if isinstance(event, CommitRefused)]
            assert refused.stale
            assert refused.reason == "UNKNOWN_MEMBER_ID"
            assert await here.committed() == [10]
            heartbeats.release()
            again = await group.next()
            assert again.member_id != generation.member_id
            assert again.start_offsets == {here.partition(0): 10}


async def test_the_lease_stops_what_the_coordinator_cannot_reach(kafka: Kafka) -> None:
    """After the lease has ended without heartbeats, nothing is handed out or committed."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce([str(number) for number in range(10)])
        heartbeats = Heartbeats()
        runtime = attrs.evolve(default_runtime(), open_stream=heartbeats.open_stream)
        events: list[Event] = []
        async with here.group(runtime, events.append, session_timeout=EXPIRING) as group:
            generation = await group.next()
            stream = generation.records(here.partition(0), max_records=5)
            await anext(stream)
            heartbeats.hold()
            assert generation.lease > 0
            await generation.ending.wait()
            assert generation.lease == 0
            assert generation.end is not None
            assert generation.end.cause is Cause.COORDINATOR_LOST
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            with pytest.raises(StaleGenerationError):
                await generation.commit({here.partition(0): 5}, beyond_read=True)
            heartbeats.release()
            again = await group.next()
            assert again.start_offsets == {here.partition(0): 0}
        assert await here.committed() == [None]


async def test_partitions_that_are_not_owned_and_offsets_that_go_back_are_refused(
    kafka: Kafka,
) -> None:
    """Both are refused before anything is sent, after a restart too."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce([str(number) for number in range(10)])
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({here.partition(0): 5}, beyond_read=True)
            with pytest.raises(NotOwnedError):
                await generation.commit(
                    {here.partition(0): 7, here.partition(1): 1}, beyond_read=True
                )
            with pytest.raises(OffsetBehindCommitError):
                await generation.commit({here.partition(0): 4}, beyond_read=True)
        assert await here.committed() == [5]
        async with here.group() as group:
            generation = await group.next()
            assert generation.start_offsets == {here.partition(0): 5}
            with pytest.raises(OffsetBehindCommitError):
                await generation.commit({here.partition(0): 4}, beyond_read=True)


async def test_concurrent_commits_each_get_a_response(kafka: Kafka) -> None:
    """Concurrent commits each get a response, and the last offset of each is kept."""
    async with harness(kafka) as here:
        await here.create(20)
        async with here.group() as group:
            generation = await group.next()
            async with trio.open_nursery() as nursery:
                for partition in generation.assignment:
                    for offset in (1, 2, 3):
                        position = {partition: offset + partition.partition}
                        nursery.start_soon(partial(generation.commit, position, beyond_read=True))
                        await trio.lowlevel.checkpoint()
        assert await here.committed(20) == [3 + number for number in range(20)]


async def test_a_closed_member_gives_its_partitions_at_once(kafka: Kafka) -> None:
    """When a member closes, the other gets everything long before a session expires."""
    async with harness(kafka) as here:
        await here.create(2)
        one = here.start("one", session_timeout=60.0, rebalance_timeout=60.0)
        two = here.start("two", session_timeout=60.0, rebalance_timeout=60.0)
        await here.processed.until(lambda: (one.owned(), two.owned()) == (1, 1), "not shared")
        await two.leave()
        await here.processed.until(lambda: one.owned() == 2, "not handed over")
        await in_thread(admin.produce, here.bootstrap_servers, here.topic, ["x"], partition=1)
        await here.processed.until(lambda: here.processed.entries, "not processed")
