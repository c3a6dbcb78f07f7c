"""Cooperative members: a partition that moves is first given up, and its owner joins again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.assignors.sticky import StickyAssignor
from kgroup.errors import ConfigError
from kgroup.events import Assigned, Joining, PartitionsUnassigned
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.types import TopicPartition
from kgroup.wire.consumer_protocol import decode_subscription
from tests.group.world import World, world

COOPERATIVE = {"assignors": ["cooperative-sticky"]}


class Program:
    """A member that notes its generations."""

    def __init__(self, here: World, **settings: Any) -> None:
        self.group = here.group(**settings)
        self.generations: list[Generation] = []

    @property
    def owned(self) -> set[int]:
        """Its partitions, while its generation runs."""
        if not self.generations or self.generations[-1].end is not None:
            return set()
        return {one.partition for one in self.generations[-1].assignment}

    async def run(self, task_status: trio.TaskStatus[ConsumerGroup]) -> None:
        """Be a member until it is shut down."""
        async with self.group as group:
            task_status.started(group)
            async for generation in group:
                self.generations.append(generation)
                await generation.wait_ended()


def claims(here: World) -> list[tuple[set[int], int]]:
    """What each Join with a member id claimed: partitions and their generation."""
    events = []
    for _, join in here.requests_for("join_group"):
        if join.member_id:
            subscription = decode_subscription(join.protocols[0].metadata)
            owned = {one.partition for one in subscription.owned}
            events.append((owned, subscription.generation_id))
    return events


async def test_what_changes_owners_is_given_up_first(autojump_clock: MockClock) -> None:
    """Two steps: no member has what moves, then the newcomer has it; the other partitions stay."""
    async with world(4) as here, trio.open_nursery() as nursery:
        one, other = Program(here, **COOPERATIVE), Program(here, **COOPERATIVE)
        await nursery.start(one.run)
        await trio.sleep(20)
        assert one.owned == {0, 1, 2, 3}
        await nursery.start(other.run)
        await trio.sleep(20)
        assert len(one.owned) == len(other.owned) == 2
        assert one.owned | other.owned == {0, 1, 2, 3}
        assert one.generations[-1].assignment.kept == one.generations[-1].assignment._owned
        # The step in which it gave up is no generation of its program.
        assert len(one.generations) == 2
        assert [event.reason for event in here.events_of(Joining)].count(
            "rebalance: gave up topic-2, topic-3"
        ) == 1
        given_up = next(i for i, (owned, _) in enumerate(claims(here)) if len(owned) == 2)
        assert claims(here)[given_up - 1][0] in ({0, 1, 2, 3}, set())
        # A partition that waits for its owner is not reported as unassigned.
        assert not here.events_of(PartitionsUnassigned)
        one.group.shutdown()
        other.group.shutdown()


async def test_what_was_lost_is_not_claimed(autojump_clock: MockClock) -> None:
    """A member that was thrown out may not say that it owns anything."""
    from tests.group.test_stale import evict

    async with world(2) as here, trio.open_nursery() as nursery:
        one = Program(here, **COOPERATIVE)
        await nursery.start(one.run)
        await trio.sleep(20)
        await evict(here, one.generations[-1].member_id)
        await trio.sleep(20)
        assert one.owned == {0, 1}
        assert claims(here)[-1] == (set(), -1)
        one.group.shutdown()


async def test_one_eager_assignor_makes_a_member_eager(autojump_clock: MockClock) -> None:
    """On the way from range to cooperative-sticky no member claims anything (KIP-429)."""
    async with world(2) as here, trio.open_nursery() as nursery:
        both = {"assignors": ["cooperative-sticky", "range"]}
        one, other = Program(here, **both), Program(here, assignors=["range"])
        await nursery.start(one.run)
        await trio.sleep(20)
        assert one.generations[-1].assignor == "cooperative-sticky"
        await nursery.start(other.run)
        await trio.sleep(20)
        assert one.generations[-1].assignor == other.generations[-1].assignor == "range"
        assert all(claim == (set(), -1) for claim in claims(here))
        one.group.shutdown()
        other.group.shutdown()


async def test_sticky_members_keep_what_they_had(autojump_clock: MockClock) -> None:
    """What an eager member had travels in its user data; a third moves as little as it can."""
    async with world(6) as here, trio.open_nursery() as nursery:
        programs = [Program(here, assignors=["sticky"]) for _ in range(3)]
        for program in programs[:2]:
            await nursery.start(program.run)
            await trio.sleep(20)
        before = [program.owned for program in programs[:2]]
        assert sorted(map(len, before)) == [3, 3]
        await nursery.start(programs[2].run)
        await trio.sleep(20)
        after = [program.owned for program in programs]
        assert [len(owned) for owned in after] == [2, 2, 2]
        assert all(now < then for now, then in zip(after, before, strict=False))
        for program in programs:
            program.group.shutdown()


@attrs.define
class Listening:
    """An assignor of a program's own that has all that one can have."""

    name: str = "listening"
    events: list[tuple[Sequence[TopicPartition], int]] = attrs.field(factory=list)
    seen: list[bytes | None] = attrs.field(factory=list)

    def assign(self, topics: Any, members: Any) -> Any:
        """As sticky does, and note what members sent along."""
        self.seen = [member.user_data for member in members]
        return StickyAssignor().assign(topics, [attrs.evolve(m, user_data=None) for m in members])

    def user_data(self, owned: Sequence[TopicPartition] | None, generation_id: int) -> bytes:
        """How much it has."""
        return f"{-1 if owned is None else len(owned)} in {generation_id}".encode()

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        """Note it."""
        self.events.append((partitions, generation_id))


async def test_a_custom_assignor_sends_and_hears(autojump_clock: MockClock) -> None:
    """Its user data travels in the Join, and its hook is called before the hand-over."""
    async with world(2) as here:
        assignor = Listening()
        async with here.group(assignors=[assignor]) as group:
            generation = await group.next()
            assert assignor.seen == [b"-1 in -1"]
            assert assignor.events == [(generation.assignment.partitions, 1)]
            generation.start_soon(trio.lowlevel.checkpoint)
            await generation.wait_ended()
            await group.next()
            assert assignor.seen == [b"2 in 1"]
            assert [given for _, given in assignor.events] == [1, 2]
        assert len(here.events_of(Assigned)) == 2


async def test_what_an_assignor_may_not_be(autojump_clock: MockClock) -> None:
    """What it has beside its method is looked at when the group is made."""
    async with world() as here:
        for name, value in (("user_data", b""), ("on_assignment", 1), ("cooperative", "yes")):
            assignor = type("Odd", (Listening,), {name: value})()
            with pytest.raises(ConfigError, match=name):
                here.group(assignors=[assignor])
