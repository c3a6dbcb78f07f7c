"""Several groups on one broker and one topic do not affect each other."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kgroup.broker.groups.responses import DescribedGroup
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from tests.group.harness import P0, P1, harness, values

NAMES = ("a", "b", "c")
RECORDS = 10


async def test_offsets_of_groups_stay_apart(autojump_clock: MockClock) -> None:
    """Each group reads every record, commits its own offset, and continues from that one."""
    stops = {name: number + 3 for number, name in enumerate(NAMES)}
    read: dict[str, list[int]] = {name: [] for name in NAMES}

    async def reads(name: str, upto: int) -> None:
        async with here.group(group_id=name) as group:
            generation = await group.next()
            left = upto - generation.start_offsets[P0]
            batch = await anext(generation.records(max_records=left))
            read[name] += values(batch.messages)
            await generation.commit({P0: batch.next_offset})

    async with harness() as here:
        await here.append(RECORDS)
        async with trio.open_nursery() as nursery:
            for name, stop in stops.items():
                nursery.start_soon(reads, name, stop)
        assert {name: await here.committed(name) for name in NAMES} == {
            name: {P0: stop} for name, stop in stops.items()
        }
        async with trio.open_nursery() as nursery:
            for name in NAMES:
                nursery.start_soon(reads, name, RECORDS)
        assert read == {name: list(range(RECORDS)) for name in NAMES}


async def test_generations_and_members_of_groups_stay_apart(autojump_clock: MockClock) -> None:
    """A rebalance or a leave in one group does not affect the other."""
    async with (
        harness(2) as here,
        trio.open_nursery() as nursery,
        here.group(group_id="still") as still,
    ):
        kept = await still.next()
        restless = here.group(group_id="restless")
        seen: list[Generation] = []
        nursery.start_soon(_stay, restless, seen)
        await trio.sleep(1)
        async with here.group(group_id="restless") as second:
            other = await second.next()
            await trio.sleep(1)
            assert set(other.assignment) | set(seen[-1].assignment) == {P0, P1}
            assert len(other.assignment) == len(seen[-1].assignment) == 1
            described = {group.group_id: group for group in await here.broker.groups()}
            assert {name: _members(group) for name, group in described.items()} == {
                "still": {kept.member_id},
                "restless": {other.member_id, seen[-1].member_id},
            }
        await trio.sleep(10)
        assert set(seen[-1].assignment) == {P0, P1}
        assert seen[-1].generation_id > 2
        assert kept.state is State.RUNNING
        assert kept.generation_id == 1
        assert set(kept.assignment) == {P0, P1}
        await kept.commit({P0: 1}, beyond_read=True)
        await restless.aclose()
        described = {group.group_id: group for group in await here.broker.groups()}
        assert _members(described["still"]) == {kept.member_id}
        assert not _members(described["restless"])
        assert await here.committed("restless") == {}
        assert await here.committed("still") == {P0: 1}


async def _stay(group: ConsumerGroup, seen: list[Generation]) -> None:
    async with group:
        async for generation in group:
            seen.append(generation)  # noqa: PERF401 # read while the loop runs


def _members(group: DescribedGroup) -> set[str]:
    return {member.member_id for member in group.members}
