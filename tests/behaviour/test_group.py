"""Groups on both brokers: hand-overs under steady load, and every way in which a group ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from confluent_kafka.admin import AdminClient

from kgroup.errors import GroupClosedError
from kgroup.events import CommitRefused, Event, Joined, Joining
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.types import Cause
from tests.behaviour.harness import (
    SOON,
    Harness,
    Member,
    SteadyProducer,
    harness,
    in_thread,
    numbers,
)
from tests.brokers import Kafka

PARTITIONS = 6


def shared_by(*members: Member) -> bool:
    """Whether these members own all partitions in one generation, each of them some."""
    owned = [member.owned() for member in members]
    return (
        min(owned) > 0
        and sum(owned) == PARTITIONS
        and len({member.generation.generation_id for member in members}) == 1
    )


async def test_hand_over_loses_and_repeats_nothing(kafka: Kafka) -> None:
    """While members come and go every record is processed once and in order."""
    async with harness(kafka) as here:
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS)
        producer.start()
        processed = here.processed

        async def until_shared_by(*members: Member) -> None:
            await processed.until(
                lambda: shared_by(*members), f"not shared by {[it.name for it in members]}"
            )
            now = {(member.name, member.generation.epoch) for member in members}
            await processed.until(
                lambda: now.issubset((entry.member, entry.epoch) for entry in processed.entries),
                f"not all of {now} process",
            )

        one = here.start("one")
        await until_shared_by(one)
        two = here.start("two")
        await until_shared_by(one, two)
        three = here.start("three")
        await until_shared_by(one, two, three)
        await two.leave()
        await until_shared_by(one, three)

        produced = await producer.stop()
        await processed.until(
            lambda: len(processed.entries) >= produced, "not everything is processed"
        )
        await one.leave()
        await three.leave()

        assert sorted(map(int, processed.values())) == list(range(produced))
        for partition in here.partitions(PARTITIONS):
            offsets = processed.offsets(partition)
            assert all(later == before + 1 for before, later in pairwise(offsets))
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
        assert not any(member.events_of(CommitRefused) for member in (one, two, three))
        for member in (one, two, three):
            epochs = [generation.epoch for generation in member.generations]
            assert epochs == sorted(set(epochs))


async def test_closing_a_member_whose_join_waits(kafka: Kafka) -> None:
    """A member whose JoinGroup is parked leaves at once when it closes."""
    async with harness(kafka) as here:
        await here.create(2)
        async with here.group() as keeper:
            kept = await keeper.next()
            async with here.group() as group, trio.open_nursery() as nursery:
                nursery.start_soon(closed_in_next, group)
                # The keeper never calls next() again, so the other's JoinGroup waits for it.
                await kept.ending.wait()
                assert kept.end is not None
                assert kept.end.cause is Cause.REBALANCE
                with trio.fail_after(keeper.config.rebalance_timeout / 2):
                    await group.aclose()
            assert len(await members(here)) == 1
        assert await members(here) == []


async def test_a_next_that_is_given_up_loses_nothing(kafka: Kafka) -> None:
    """A generation joined during a cancelled next() is returned by the following one."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(["0", "1"])
        given_up, joined = trio.CancelScope(), trio.Event()
        events: list[Event] = []

        def note(event: Event) -> None:
            events.append(event)
            if isinstance(event, Joining):
                given_up.cancel()
            if isinstance(event, Joined):
                joined.set()

        async with here.group(None, note) as group:
            with given_up:
                await group.next()
            assert given_up.cancelled_caught
            await joined.wait()
            generation = await group.next()
            assert len([event for event in events if isinstance(event, Joined)]) == 1
            batch = await anext(generation.records())
            assert numbers(batch.messages)[0] == 0
            await generation.commit({here.partition(0): batch.next_offset})
        assert await here.committed() == [2]


async def test_another_task_shuts_down(kafka: Kafka) -> None:
    """After shutdown() the loop ends after the handlers, without an error; the member leaves."""
    async with harness(kafka) as here:
        await here.create()
        await here.produce(["0", "1", "2"])
        partition = here.partition(0)
        received = trio.Event()

        async def handle(generation: Generation) -> None:
            async for batch in generation.records():
                received.set()
                await generation.ending.wait()
                await generation.commit({partition: batch.next_offset})

        async def shuts_down(group: ConsumerGroup) -> None:
            await received.wait()
            group.shutdown()

        generations = []
        async with trio.open_nursery() as nursery, here.group() as group:
            nursery.start_soon(shuts_down, group)
            async for generation in group:
                generations.append(generation)
                generation.start_soon(handle, generation)
            (only,) = generations
            assert only.state is State.ENDED
        assert only.end is not None
        assert only.end.cause is Cause.CLOSED
        assert (await here.committed())[0] in {1, 2, 3}
        assert await members(here) == []


async def test_a_raising_task_lets_the_others_finish_and_leaves(kafka: Kafka) -> None:
    """Siblings commit, the member leaves, and one exception group holds the errors."""
    async with harness(kafka) as here:
        await here.create()
        present: list[int] = []

        async def sibling(generation: Generation) -> None:
            await generation.ending.wait()
            present.append(len(await members(here)))
            await generation.commit({here.partition(0): 7}, beyond_read=True)

        async def raises() -> None:
            await trio.lowlevel.checkpoint()
            raise LookupError("broken handler")

        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                async for generation in group:
                    generation.start_soon(sibling, generation)
                    generation.start_soon(raises)
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert present == [1]
        assert await here.committed() == [7]
        assert await members(here) == []


async def closed_in_next(group: ConsumerGroup) -> None:
    """Wait for a generation that never comes."""
    with pytest.raises(GroupClosedError):
        await group.next()


async def members(here: Harness) -> list[str]:
    """The ids of the members that the coordinator has in the harness's group."""

    def describe() -> list[str]:
        client = AdminClient({"bootstrap.servers": here.bootstrap_servers, "log_level": 0})
        described = client.describe_consumer_groups([here.group_id], request_timeout=SOON)
        return [member.member_id for member in described[here.group_id].result(SOON).members]

    return await in_thread(describe)
