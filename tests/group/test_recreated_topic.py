"""A topic that is deleted and created again, for which the group has committed nothing."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kgroup.generation.generation import Generation
from tests.group.harness import P0, harness, values


async def test_records_of_the_deleted_topic_are_not_handed_out(autojump_clock: MockClock) -> None:
    """A kept partition without a commit is fetched again, because its records may be gone."""
    async with harness() as here:
        await here.append(3)

        async def fetch_and_drain(generation: Generation) -> None:
            generation.pause()
            with trio.move_on_after(0.5):  # fetches all and is given nothing
                await anext(generation.records(P0))
            await generation.ending.wait()
            await here.broker.delete_topic("topic")
            await here.broker.create_topic("topic", 1)
            await here.broker.append("topic", 0, [b"%d" % n for n in range(10, 15)])

        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(fetch_and_drain, generation)
            generation.start_soon(trio.sleep, 1.0)  # its return ends the generation
            generation = await group.next()
            batch = await anext(generation.records(P0))
            assert values(batch.messages) == [10, 11, 12, 13, 14]
            assert batch.next_offset == 5
