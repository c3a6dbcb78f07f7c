"""Groups whose members are suspended in the middle of a batch, in virtual time."""

from __future__ import annotations

from contextlib import nullcontext

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import LeaseExpiredError, StaleGenerationError
from kgroup.events import GenerationEnded
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, TopicPartition
from tests.group.harness import P0, Harness, harness, values
from tests.watchers.test_heartbeat import Jumping

WOKEN = 1000.0
"""Seconds by which the clock of a suspended member is ahead when it wakes."""


def jumping_group(here: Harness, clock: Jumping) -> ConsumerGroup:
    """A member whose clock the test can jump."""
    runtime = attrs.evolve(memory_runtime(here.broker), clock=clock)
    return ConsumerGroup(here.config(), runtime=runtime, on_event=here.events.append)


async def test_each_handler_processes_one_record_after_a_suspension(
    autojump_clock: MockClock,
) -> None:
    """Each processes the record that it had taken; the next generation begins at the commits."""
    async with harness(3) as here:
        for number in range(3):
            await here.append(50, number)
        clock, processed = Jumping(), list[tuple[int, int, int]]()

        async def handle(generation: Generation, partition: TopicPartition) -> None:
            async for batch in generation.records(partition, max_records=20):
                for message in batch:
                    await trio.sleep(0.1)
                    processed.append((generation.epoch, partition.partition, message.offset()))
                await generation.commit({partition: batch.next_offset})

        async with jumping_group(here, clock) as group:
            first = await group.next()
            for partition in first.assignment:
                first.start_soon(handle, first, partition)
            await trio.sleep(3.05)
            before = len(processed)
            assert before == 90  # 20 are committed, 10 are processed of the next 20
            here.broker.slow(3.0, "heartbeat", times=1)  # none confirms the membership meanwhile
            clock.jumped = WOKEN
            second = await group.next()
            assert len(processed) - before <= 3
            assert {epoch for epoch, _, _ in processed} == {first.epoch}
            assert second.start_offsets == dict.fromkeys(first.assignment, 20)
        ends = [event.end for event in here.events_of(GenerationEnded)]
        assert ends[0].cause is Cause.COORDINATOR_LOST


@pytest.mark.parametrize("in_scope", [True, False])
async def test_a_body_continues_with_the_next_generation(
    autojump_clock: MockClock, in_scope: bool
) -> None:
    """The next generation comes even if the coordinator did not notice the suspension."""
    async with harness() as here:
        await here.append(5)
        clock, processed, epochs = Jumping(), list[int](), list[int]()

        async def read(generation: Generation) -> None:
            with generation.scope() if in_scope else nullcontext():
                async for batch in generation.records():
                    for message in batch:
                        processed.append(message.offset())
                        if len(processed) == 2:
                            clock.jumped = WOKEN
                    await generation.commit({P0: batch.next_offset})
                    group.shutdown()

        async with jumping_group(here, clock) as group:
            async for generation in group:
                epochs.append(generation.epoch)
                try:
                    await read(generation)
                except StaleGenerationError:
                    assert not in_scope
        assert processed == [0, 1, 0, 1, 2, 3, 4]
        assert epochs == [1, 2]
        assert await here.committed() == {P0: 5}


async def test_a_batch_in_hand_is_finished_in_a_drain(autojump_clock: MockClock) -> None:
    """A planned end does not stop the iteration, and what it hands out can be committed."""
    async with harness() as here:
        await here.append(5)
        async with here.group() as group:
            generation = await group.next()

            async def handle() -> None:
                async for batch in generation.records():
                    for number, message in enumerate(batch):
                        if number == 1:
                            group.shutdown()
                        await trio.sleep(1)
                        assert int(message.value() or b"") == number
                    await generation.commit({P0: batch.next_offset})

            generation.start_soon(handle)
            await generation.ending.wait()
        assert await here.committed() == {P0: 5}


async def test_the_program_may_keep_what_it_was_given(autojump_clock: MockClock) -> None:
    """The messages of a batch can be read after the generation and its group."""
    async with harness() as here:
        await here.append(3)
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(generation.records())
        assert values(batch.messages) == [0, 1, 2]
        with pytest.raises(StaleGenerationError) as caught:
            next(iter(batch))
        assert not isinstance(caught.value, LeaseExpiredError)
        assert caught.value.end == generation.end
