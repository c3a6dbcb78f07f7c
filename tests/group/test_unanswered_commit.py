"""A commit that was never answered cannot be applied after later commits of the same generation."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import CommitUnknownError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from tests.group.harness import Harness, harness


async def commit_and_return(here: Harness, generation: Generation, *, answered: bool) -> None:
    """Commit once; the coordinator answers in time or too late."""
    (mine,) = generation.assignment
    if answered:
        await generation.commit({mine: 1}, beyond_read=True)
        return
    here.broker.slow(60.0, "offset_commit", times=1)
    with pytest.raises(CommitUnknownError):
        await generation.commit({mine: 1}, beyond_read=True)


async def join_as_follower(
    here: Harness, nursery: trio.Nursery, group: ConsumerGroup
) -> Generation:
    """Join ``group`` as a follower: another member leads and continues."""

    async def lead() -> None:
        async with here.group() as other:
            async for generation in other:
                await generation.wait_ended()

    nursery.start_soon(lead)
    await trio.sleep(5)
    generation = await group.next()
    while generation.leader or len(generation.assignment) != 1:
        generation = await group.next()
    return generation


@pytest.mark.parametrize("instance_id", [None, "instance"])
@pytest.mark.parametrize("answered", [True, False])
async def test_only_an_unanswered_commit_costs_the_member_id(
    autojump_clock: MockClock, answered: bool, instance_id: str | None
) -> None:
    """The member joins with a new member id, under which it commits; otherwise it keeps its id."""
    settings: dict[str, object] = {"commit_timeout": 3.0, "request_timeout": 2.0}
    async with harness(2) as here, trio.open_nursery() as nursery:
        async with here.group(group_instance_id=instance_id, **settings) as group:
            first = await join_as_follower(here, nursery, group)
            await commit_and_return(here, first, answered=answered)
            first.start_soon(trio.lowlevel.checkpoint)  # whose return ends the generation
            second = await group.next()
            same = second.member_id == first.member_id
            assert same is answered
            if answered:
                assert second.generation_id == first.generation_id
        nursery.cancel_scope.cancel()
