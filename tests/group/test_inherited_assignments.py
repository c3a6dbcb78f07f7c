"""Assignments that a static member takes over after a restart, and changes during its absence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker.apis import APIS
from kgroup.error_codes import ErrorCode
from kgroup.events import Assigned, BackingOff, GenerationEnded, Joined
from kgroup.types import Cause, MemberSubscription, TopicInfo, TopicPartition
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.group.harness import P0, P1, P2, Harness, harness

ONE = {"group_instance_id": "one"}


async def lead_and_go(here: Harness, **settings: object) -> int:
    """Let a static member lead alone and go away; return its generation."""
    async with here.group(**{**ONE, **settings}) as group:
        return (await group.next()).generation_id


def described(here: Harness) -> int:
    """How many DescribeGroups were sent."""
    return len(here.requests_for("describe_groups"))


async def test_partitions_added_while_the_leader_was_away_are_read(
    autojump_clock: MockClock,
) -> None:
    """The restarted leader finds that its old assignment lacks them, and rebalances."""
    async with harness(2) as here:
        before = await lead_and_go(here)
        await here.broker.add_partitions("topic", 3)
        began = here.now
        async with here.group(**ONE) as group:
            after = await group.next()
            assert list(after.assignment) == [P0, P1, P2]
            assert after.generation_id == before + 1
            assert here.now - began < 1
            assert described(here) == 1
    (misfit, _) = here.events_of(GenerationEnded)[-2:]
    assert misfit.end.cause is Cause.PARTITIONS_CHANGED
    assert misfit.end.detail == "topic topic has 3 partitions, 2 assigned"


async def test_an_assignment_that_still_fits_is_kept(autojump_clock: MockClock) -> None:
    """It costs one DescribeGroups and no rebalance; a dynamic member sends none."""
    async with harness(2) as here:
        before = await lead_and_go(here)
        async with here.group(**ONE) as group:
            assert (await group.next()).generation_id == before
        assert described(here) == 1
        async with here.group(group_id="other") as group:
            first = await group.next()
            first.start_soon(trio.sleep, 1)
            await group.next()
        assert described(here) == 1


@pytest.mark.parametrize("version", range(SUPPORTED_REQUESTS["describe_groups"].highest + 1))
async def test_in_every_version_of_the_request(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The leader reads the assignment from the response in each version."""
    held = attrs.evolve(APIS["describe_groups"], highest=version)
    monkeypatch.setitem(APIS, "describe_groups", held)
    async with harness(2) as here:
        before = await lead_and_go(here)
        async with here.group(**ONE) as group:
            assert (await group.next()).generation_id == before
        await here.broker.add_partitions("topic", 3)
        async with here.group(**ONE) as group:
            assert len((await group.next()).assignment) == 3
        sent = here.requests_for("describe_groups")
        assert [request.__version__ for _, request in sent] == [version] * 2


async def test_a_broker_that_describes_no_groups(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no version of DescribeGroups is shared, the group rebalances, and nothing else fails."""
    monkeypatch.setitem(
        SUPPORTED_REQUESTS,
        "describe_groups",
        attrs.evolve(SUPPORTED_REQUESTS["leave_group"], lowest=99),
    )
    async with harness(2) as here:
        before = await lead_and_go(here)
        async with here.group(**ONE) as group:
            assert (await group.next()).generation_id == before + 1
        assert described(here) == 0


@pytest.mark.parametrize("highest", [8, 9])
async def test_a_returning_leader_watches(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, highest: int
) -> None:
    """It watches topics even if an old broker does not say that it leads."""
    monkeypatch.setitem(APIS, "join_group", attrs.evolve(APIS["join_group"], highest=highest))
    async with harness(2) as here:
        before = await lead_and_go(here)
        async with here.group(**ONE) as group:
            after = await group.next()
            assert after.generation_id == before
            await here.broker.add_partitions("topic", 3)
            again = await group.next()
            assert list(again.assignment) == [P0, P1, P2]
            assert again.leader
        before = again.generation_id
        await here.broker.add_partitions("topic", 4)
        async with here.group(**ONE) as group:
            assert len((await group.next()).assignment) == 4


@pytest.mark.parametrize("highest", [8, 9])
async def test_a_returning_leader_watches_the_topics_of_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, highest: int
) -> None:
    """It finds a later topic that only another member subscribes to."""
    monkeypatch.setitem(APIS, "join_group", attrs.evolve(APIS["join_group"], highest=highest))
    async with harness(2) as here, trio.open_nursery() as nursery:
        async with here.group(**ONE) as group:
            await group.next()
            nursery.start_soon(partial(stay, here, topics=["topic", "later"]))
            before = await group.next()
            assert before.leader
        async with here.group(**ONE) as group:
            after = await group.next()
            assert after.generation_id == before.generation_id
            await here.broker.create_topic("later", 1)
            with trio.fail_after(60):
                await after.ending.wait()
            assert after.end is not None
            assert after.end.cause is Cause.PARTITIONS_CHANGED
        nursery.cancel_scope.cancel()


async def test_a_topic_that_is_gone_and_one_that_shrank(autojump_clock: MockClock) -> None:
    """A topic with fewer partitions is assigned again at once, a deleted one soon."""
    async with harness(2) as here:
        await here.broker.create_topic("other", 2)
        both = {"topics": ["topic", "other"]}
        await lead_and_go(here, **both)
        await here.broker.delete_topic("other")
        async with here.group(**ONE, **both) as group:
            kept = await group.next()
            assert len(kept.assignment) == 4
            assert list((await group.next()).assignment) == [P0, P1]
            assert kept.end is not None
            assert kept.end.detail == "topic other was deleted"
        await here.broker.delete_topic("topic")
        await here.broker.create_topic("topic", 1)
        async with here.group(**ONE) as group:
            assert list((await group.next()).assignment) == [P0]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
@pytest.mark.parametrize("leads", [True, False])
async def test_without_describe_groups_the_group_rebalances_once(
    autojump_clock: MockClock, code: ErrorCode, leads: bool
) -> None:
    """Each restart costs one rebalance if a broker does not describe groups."""
    async with harness(1 if leads else 2) as here, trio.open_nursery() as nursery:
        if not leads:
            nursery.start_soon(stay, here)
            await trio.sleep(3)
        before = await lead_and_go(here)
        here.broker.inject("describe_groups", code, times=1000)
        joins = len(here.events_of(Joined))
        if not leads:
            await here.broker.create_topic("new", 1)
        topics = ["topic"] if leads else ["topic", "new"]
        async with here.group(**ONE, topics=topics) as group:
            after = await group.next()
            assert after.generation_id == before + 1
            await trio.sleep(60)
            assert after.end is None
        assert described(here) == 1
        mine = [
            event for event in here.events_of(Joined)[joins:] if event.member_id.startswith("one")
        ]
        assert len(mine) == 2
        nursery.cancel_scope.cancel()


async def stay(here: Harness, **settings: object) -> None:
    """Be a member for as long as the test."""
    async with here.group(**{"group_instance_id": "stays", **settings}) as group:
        async for generation in group:
            await generation.ending.wait()


@pytest.mark.parametrize("pattern", [True, False])
async def test_a_follower_that_comes_back_with_another_subscription(
    autojump_clock: MockClock, pattern: bool
) -> None:
    """New topics are read and dropped ones are not, although the leader does not learn of it."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        nursery.start_soon(stay, here)
        await trio.sleep(3)
        topics = [re.compile("topic|new")] if pattern else ["topic"]
        async with here.group(**ONE, topics=topics) as group:
            before = await group.next()
            assert not before.leader
        await here.broker.create_topic("new", 1)
        topics = topics if pattern else ["topic", "new"]
        async with here.group(**ONE, topics=topics) as group:
            after = await group.next()
            assert "new" in after.assignment.topics()
            assert after.generation_id == before.generation_id + 1
        described_so_far = described(here)
        async with here.group(**ONE, topics=topics) as group:
            assert (await group.next()).generation_id == after.generation_id
        assert described(here) == described_so_far
        async with here.group(**ONE, topics=["topic"]) as group:
            narrowed = await group.next()
            assert narrowed.assignment.topics() == ("topic",)
            assert described(here) == described_so_far
        nursery.cancel_scope.cancel()


async def test_a_follower_that_drops_a_topic_gives_its_partitions_to_others(
    autojump_clock: MockClock,
) -> None:
    """After a rebalance, other members read the partitions that it does not read any more."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        await here.broker.create_topic("new", 2)
        nursery.start_soon(partial(stay, here, topics=["topic", "new"]))
        await trio.sleep(3)
        async with here.group(**ONE, topics=["topic", "new"]) as group:
            before = await group.next()
            assert not before.leader
            assert before.assignment.topics() == ("new", "topic")
        async with here.group(**ONE, topics=["topic"]) as group:
            after = await group.next()
            assert after.generation_id == before.generation_id + 1
            assert after.assignment.topics() == ("topic",)
            (others,) = [
                event.assignment
                for event in here.events_of(Assigned)
                if (event.generation_id, event.member_id == after.member_id)
                == (after.generation_id, False)
            ]
            assert {TopicPartition("new", 0), TopicPartition("new", 1)} <= set(others)
        nursery.cancel_scope.cancel()


async def test_a_leave_that_fails_is_tried_again(autojump_clock: MockClock) -> None:
    """The follower takes its place again, waits, compares the assignment, and leaves again."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        nursery.start_soon(stay, here)
        await trio.sleep(3)
        async with here.group(**ONE) as group:
            before = await group.next()
        await here.broker.create_topic("new", 1)
        here.broker.inject("leave_group", ErrorCode.UNKNOWN_SERVER_ERROR, times=2)
        async with here.group(**ONE, topics=["topic", "new"]) as group:
            after = await group.next()
            assert "new" in after.assignment.topics()
            assert after.generation_id == before.generation_id + 1
        assert len(here.requests_for("leave_group")) == 3
        assert len(here.events_of(BackingOff)) == 2
        nursery.cancel_scope.cancel()


async def test_an_assignor_that_leaves_topics_out_causes_one_rebalance(
    autojump_clock: MockClock,
) -> None:
    """After one rebalance for the restart, the assignment is accepted as it is."""

    class Some:
        name = "some"

        def assign(
            self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
        ) -> dict[str, list[TopicPartition]]:
            assert topics
            return {member.member_id: [P0] if not n else [] for n, member in enumerate(members)}

    async with harness(2) as here, trio.open_nursery() as nursery:
        await here.broker.create_topic("new", 1)
        some = {"assignors": [Some()], "topics": ["topic", "new"]}
        for leads in (True, False):
            if not leads:
                nursery.start_soon(partial(stay, here, group_id="group-False", **some))
                await trio.sleep(3)
            async with here.group(**ONE, **some, group_id=f"group-{leads}") as group:
                before = await group.next()
                assert before.leader is leads
            async with here.group(**ONE, **some, group_id=f"group-{leads}") as group:
                after = await group.next()
                assert after.generation_id == before.generation_id + 1
                await trio.sleep(1000)
                assert after.end is None
        nursery.cancel_scope.cancel()


async def test_a_sync_that_is_answered_with_an_earlier_assignment(
    autojump_clock: MockClock,
) -> None:
    """The leader's first SyncGroup arrived, its response did not: the assignment is compared."""
    async with harness(2) as here:
        here.broker.slow(5.0, "sync_group", times=1)
        here.broker.slow(2.0, "sync_group", times=1)
        async with here.group(request_timeout=4.0) as group, trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                await trio.sleep(2)
                await here.broker.add_partitions("topic", 3)

            generation = await group.next()
            assert list(generation.assignment) == [P0, P1, P2]
            assert described(here) == 1
