"""A member that comes back after a generation of the group in which it took no part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio
from trio.testing import MockClock

from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.group.harness import P0, harness
from tests.recovery.connections import Trouble
from tests.recovery.observed_member import ObservedMember


class AssignedTo:
    """An assignor that gives everything to one member, which the test chooses."""

    name = "assigned-to"

    def __init__(self) -> None:
        self.member_id = ""

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """See `Assignor`."""
        del topics
        names = sorted(one.member_id for one in members)
        return {self.member_id if self.member_id in names else names[0]: [P0]}


async def follow(group: ConsumerGroup, given: list[Generation]) -> None:
    """Wait through the generations of a group."""
    async for generation in group:
        given.append(generation)
        await generation.wait_ended()


async def test_what_another_had_in_a_missed_generation_is_not_kept(
    autojump_clock: MockClock,
) -> None:
    """What a member gets back counts as added if another had it while JoinGroup got no answer."""
    assignor = AssignedTo()
    missing = False
    async with harness() as here, trio.open_nursery() as nursery:
        observed = ObservedMember(here, assignors=[assignor])
        observed.connections.trouble(Trouble.CUT_AFTER, "join_group", lambda: missing)
        others: list[Generation] = []
        mine: list[Generation] = []
        async with here.group(assignors=[assignor]) as leader, observed.group() as group:
            nursery.start_soon(follow, leader, others)
            await trio.sleep(2)
            nursery.start_soon(follow, group, mine)
            await trio.sleep(2)
            async with here.group(assignors=[assignor]) as another:
                nursery.start_soon(follow, another, [])
                assignor.member_id = mine[-1].member_id
                await trio.sleep(2)
                before = mine[-1]
                assert set(before.assignment) == {P0}
                # The coordinator counts the member in, and it does not learn of the generation.
                missing, assignor.member_id = True, others[-1].member_id
            await trio.sleep(2)
            assert set(others[-1].assignment) == {P0}
            assert others[-1].generation_id == before.generation_id + 1
            assert mine[-1] is before
            missing, assignor.member_id = False, before.member_id
            async with here.group(assignors=[assignor]) as another:
                nursery.start_soon(follow, another, [])
                await trio.sleep(5)
                after = mine[-1]
                assert after.member_id == before.member_id
                assert after.generation_id == before.generation_id + 2
                assert after.assignment.previous == {P0}
                assert after.assignment.added == {P0}
                assert not after.assignment.kept
