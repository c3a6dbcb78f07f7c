"""A commit that was never answered does not undo later commits, whenever it arrives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException
from trio.testing import MockClock

from kgroup.errors import CommitUnknownError, GroupClosedError
from kgroup.events import CommitsRestored, Left
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from tests.group.harness import P0, Harness, harness

PROMPT: dict[str, object] = {"commit_timeout": 3.0, "request_timeout": 2.0}


async def commit_late(here: Harness, generation: Generation, seconds: float) -> None:
    """Commit 1, which arrives so late that it gets no answer in time; and then 5."""
    here.broker.slow(seconds, "offset_commit", times=1)
    with pytest.raises(CommitUnknownError):
        await generation.commit({P0: 1}, beyond_read=True)
    await generation.commit({P0: 5}, beyond_read=True)


async def commit_answered(here: Harness, generation: Generation) -> None:
    """Commit once, and get the coordinator's answer."""
    del here
    await generation.commit(dict.fromkeys(generation.assignment, 1), beyond_read=True)


async def commit_unanswered(here: Harness, generation: Generation) -> None:
    """Commit once; the coordinator answers too late."""
    here.broker.slow(60.0, "offset_commit", times=1)
    with pytest.raises(CommitUnknownError):
        await commit_answered(here, generation)


async def commit_in_transaction_unanswered(here: Harness, generation: Generation) -> None:
    """Give offsets to a producer whose request is not answered in time."""
    del here
    with pytest.raises(CommitUnknownError):
        await generation.commit_in_transaction(
            SilentProducer(),  # type: ignore[arg-type]
            dict.fromkeys(generation.assignment, 1),
            beyond_read=True,
        )


async def give_the_identity(here: Harness, generation: Generation) -> None:
    """Let the program use a producer without the generation."""
    del here
    assert generation.transaction_metadata()
    await trio.lowlevel.checkpoint()


class SilentProducer:
    """A producer that gets no answer from the coordinator."""

    def send_offsets_to_transaction(self, *arguments: object) -> None:
        """See confluent-kafka."""
        del arguments
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


Commit = Callable[[Harness, Generation], Awaitable[None]]
UNANSWERED: Final[list[Commit]] = [
    commit_unanswered,
    commit_in_transaction_unanswered,
    give_the_identity,
]


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
@pytest.mark.parametrize("commit", [commit_answered, *UNANSWERED])
async def test_only_an_unanswered_commit_costs_the_member_id(
    autojump_clock: MockClock, commit: Commit, instance_id: str | None
) -> None:
    """The member joins with a new member id, under which it commits; otherwise it keeps its id.

    The coordinator then refuses what arrives late, also from a producer.
    """
    async with harness(2) as here, trio.open_nursery() as nursery:
        async with here.group(group_instance_id=instance_id, **PROMPT) as group:
            first = await join_as_follower(here, nursery, group)
            await commit(here, first)
            first.start_soon(trio.lowlevel.checkpoint)  # whose return ends the generation
            second = await group.next()
            same = second.member_id == first.member_id
            assert same is (commit is commit_answered)
            if same:
                assert second.generation_id == first.generation_id
            # A static member does not leave for it; it is a member all the time.
            left = [event.notified for event in here.events_of(Left)]
            assert left == [True] * (not same and instance_id is None)
        nursery.cancel_scope.cancel()


async def test_a_new_member_id_after_a_leave_without_an_answer(autojump_clock: MockClock) -> None:
    """The member is one again, so its status does not say that its leave is not confirmed."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        async with here.group(**PROMPT) as group:
            first = await join_as_follower(here, nursery, group)
            await give_the_identity(here, first)
            here.broker.slow(60.0, "leave_group", times=1)
            first.start_soon(trio.lowlevel.checkpoint)  # whose return ends the generation
            await group.next()
            assert [event.notified for event in here.events_of(Left)] == [False]
            assert not group.status().leave_unconfirmed
        nursery.cancel_scope.cancel()


async def test_a_commit_that_arrives_late_is_overwritten(autojump_clock: MockClock) -> None:
    """What was acknowledged after it is committed again, while the generation runs."""
    async with harness() as here, here.group(**PROMPT) as group:
        generation = await group.next()
        await commit_late(here, generation, 20.0)
        await trio.sleep(17)
        assert await here.committed() == {P0: 5}
        await trio.sleep(1.5)
        assert await here.committed() == {P0: 1}
        await trio.sleep(6)
        assert await here.committed() == {P0: 5}
        (event,) = here.events_of(CommitsRestored)
        assert (event.offsets, event.found) == ({P0: 5}, {P0: 1})


async def test_a_generation_that_ends_checks_once_more(autojump_clock: MockClock) -> None:
    """The next owner of the partition starts at what was acknowledged, and not before it."""
    async with harness() as here:
        async with here.group(**PROMPT) as group:
            await commit_late(here, await group.next(), 20.0)
            await trio.sleep(18.5)
            assert await here.committed() == {P0: 1}
        assert await here.committed() == {P0: 5}


@pytest.mark.parametrize("api", ["offset_fetch", "offset_commit"])
async def test_the_last_check_is_short(autojump_clock: MockClock, api: str) -> None:
    """A coordinator that does not answer it delays the end by a second, and not by more."""
    async with harness() as here:
        async with here.group(**PROMPT) as group:
            await commit_late(here, await group.next(), 20.0)
            await trio.sleep(18.5)
            assert await here.committed() == {P0: 1}
            here.broker.slow(60.0, api)
            began = here.now
        assert here.now - began == pytest.approx(1, abs=0.5)


async def test_a_kept_partition_continues_at_what_was_acknowledged(
    autojump_clock: MockClock,
) -> None:
    """A commit may arrive between two generations; the next one begins as if it had not.

    It commits again at once: if the member dies before its next commit, no record is read again.
    """
    async with harness() as here, here.group(**PROMPT) as group:
        first = await group.next()
        await commit_late(here, first, 10.0)
        here.broker.slow(20.0, "join_group", times=1)
        first.start_soon(trio.lowlevel.checkpoint)  # whose return ends the generation
        second = await group.next()
        assert second.generation_id > first.generation_id
        assert second.start_offsets == {P0: 5}
        assert here.events_of(CommitsRestored) == []
        await trio.sleep(0.1)
        assert await here.committed() == {P0: 5}
        assert len(here.events_of(CommitsRestored)) == 1


async def test_what_others_own_is_left_to_them(autojump_clock: MockClock) -> None:
    """A member whose generation ends before it has begun with its partitions commits nothing again.

    The owner since then has gone back on purpose, to what the unanswered commit would have stored.
    """
    settings = {**PROMPT, "assignors": ["sticky"]}
    async with harness() as here, here.group(**settings) as group, trio.open_nursery() as nursery:
        first = await group.next()
        await commit_late(here, first, 60.0)
        here.broker.slow(10.0, "join_group", times=1)
        await here.broker.remove_member("group", first.member_id)

        async def rejoin() -> None:
            with pytest.raises(GroupClosedError):
                await group.next()

        nursery.start_soon(rejoin)
        await first.wait_ended()
        async with here.group(assignors=["sticky"]) as other:
            second = await other.next()
            second.seek(P0, 0)
            await second.commit({P0: 1}, beyond_read=True)
            here.broker.slow(1.0, "sync_group", match=lambda it: it.member_id != second.member_id)
            third = await other.next()
            assert list(third.assignment) == [P0]
            here.broker.slow(8.0, "metadata")
            await trio.sleep(2)
            await group.aclose()
            assert await here.committed() == {P0: 1}
