"""Cooperative members: the owner gives a partition up and joins again before it moves."""

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
from tests.group.harness import Harness, harness

COOPERATIVE = {"assignors": ["cooperative-sticky"]}


class Program:
    """A member that records its generations."""

    def __init__(self, here: Harness, **settings: Any) -> None:
        self.group = here.group(**settings)
        self.generations: list[Generation] = []

    @property
    def owned(self) -> set[int]:
        """The member's partitions, while its generation runs."""
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


def claims(here: Harness) -> list[tuple[set[int], int]]:
    """The partitions, and their generation, that each JoinGroup with a member id claimed."""
    events = []
    for _, join in here.requests_for("join_group"):
        if join.member_id:
            subscription = decode_subscription(join.protocols[0].metadata)
            owned = {one.partition for one in subscription.owned}
            events.append((owned, subscription.generation_id))
    return events


async def test_a_partition_that_moves_is_given_up_first(autojump_clock: MockClock) -> None:
    """In a first step no member has it, in a second the new one; other partitions stay."""
    async with harness(4) as here, trio.open_nursery() as nursery:
        one, other = Program(here, **COOPERATIVE), Program(here, **COOPERATIVE)
        await nursery.start(one.run)
        await trio.sleep(20)
        assert one.owned == {0, 1, 2, 3}
        await nursery.start(other.run)
        await trio.sleep(20)
        assert len(one.owned) == len(other.owned) == 2
        assert one.owned | other.owned == {0, 1, 2, 3}
        assert one.generations[-1].assignment.kept == one.generations[-1].assignment._owned
        # The program gets no generation for the step that gave partitions up.
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


async def test_an_evicted_member_claims_no_partition(autojump_clock: MockClock) -> None:
    """After an eviction, JoinGroup claims none of the partitions owned before."""
    from tests.group.test_stale import evict

    async with harness(2) as here, trio.open_nursery() as nursery:
        one = Program(here, **COOPERATIVE)
        await nursery.start(one.run)
        await trio.sleep(20)
        await evict(here, one.generations[-1].member_id)
        await trio.sleep(20)
        assert one.owned == {0, 1}
        assert claims(here)[-1] == (set(), -1)
        one.group.shutdown()


async def test_one_eager_assignor_makes_a_member_eager(autojump_clock: MockClock) -> None:
    """During an upgrade from range to cooperative-sticky no member claims a partition (KIP-429)."""
    async with harness(2) as here, trio.open_nursery() as nursery:
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
    """An eager member sends its partitions in its user data; few move when a third one joins."""
    async with harness(6) as here, trio.open_nursery() as nursery:
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
    """A custom assignor with every optional method."""

    name: str = "listening"
    events: list[tuple[Sequence[TopicPartition], int]] = attrs.field(factory=list)
    seen: list[bytes | None] = attrs.field(factory=list)

    def assign(self, topics: Any, members: Any) -> Any:
        """Assign as sticky does, and record the members' user data."""
        self.seen = [member.user_data for member in members]
        return StickyAssignor().assign(topics, [attrs.evolve(m, user_data=None) for m in members])

    def user_data(self, owned: Sequence[TopicPartition] | None, generation_id: int) -> bytes:
        """The number of partitions that the member has."""
        return f"{-1 if owned is None else len(owned)} in {generation_id}".encode()

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        """Record the assignment."""
        self.events.append((partitions, generation_id))


async def test_a_custom_assignor_sends_user_data_and_gets_the_assignment(
    autojump_clock: MockClock,
) -> None:
    """JoinGroup has its user data, and its hook is called before the hand-over."""
    async with harness(2) as here:
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


async def test_invalid_attributes_of_an_assignor_are_refused(autojump_clock: MockClock) -> None:
    """The attributes beside its method are checked when the group is made."""
    async with harness() as here:
        for name, value in (("user_data", b""), ("on_assignment", 1), ("cooperative", "yes")):
            assignor = type("Odd", (Listening,), {name: value})()
            with pytest.raises(ConfigError, match=name):
                here.group(assignors=[assignor])
