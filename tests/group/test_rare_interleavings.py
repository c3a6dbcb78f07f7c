"""Rare interleavings in which an exception, an offset or a partition could get lost."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import ConnectionLostError, GroupClosedError, NoOffsetError
from kgroup.events import Assigned, Event, GenerationEnded, GenerationStarted, Joined
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, TopicPartition
from tests.generation.fakes import FakeGeneration
from tests.group.harness import P0, P1, harness, values
from tests.group.test_stale import evict


async def test_a_task_s_exception_outlives_a_cancellation_from_outside(
    autojump_clock: MockClock,
) -> None:
    """A task's exception surfaces even if a cancellation cuts the drain of the others short."""
    async with harness() as here:

        async def fails() -> None:
            raise ValueError("of a task")

        async def slow() -> None:
            await trio.sleep(20)

        with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
            with trio.move_on_after(5):
                async with here.group(drain_timeout=10.0) as group:
                    generation = await group.next()
                    generation.start_soon(slow)
                    generation.start_soon(fails)
                    await trio.sleep_forever()


async def test_a_commit_unanswered_until_the_drain_s_deadline_is_no_failure(
    autojump_clock: MockClock,
) -> None:
    """The unknown outcome ends with the generation, and the next generation begins."""
    async with harness() as here:
        await here.append(2)

        async def handle(generation: Generation) -> None:
            async for batch in generation.records():
                await generation.commit({P0: batch.next_offset})

        async def returns() -> None:
            await trio.sleep(1)

        slowed = here.broker.slow(100.0, api="offset_commit")
        async with here.group(drain_timeout=3.0) as group:
            first = await group.next()
            first.start_soon(handle, first)
            first.start_soon(returns)
            second = await group.next()
            slowed.cancel()
            assert first.end is not None
            assert first.end.cause is Cause.TASK_RETURNED
            assert second.epoch > first.epoch


async def test_a_commit_is_not_sent_again_past_the_lease(autojump_clock: MockClock) -> None:
    """If the coordinator is away for longer than the lease, the commit is not repeated."""
    async with harness() as here:
        await here.append(2)

        async def handle(generation: Generation) -> None:
            async for batch in generation.records():
                await trio.sleep(1)
                await generation.commit({P0: batch.next_offset})

        async with here.group(session_timeout=6.0, commit_timeout=60.0) as group:
            first = await group.next()
            fault = here.broker.inject("offset_commit", 14, times=None)
            here.broker.inject("heartbeat", 14, times=None)
            first.start_soon(handle, first)
            began = here.now
            second = await group.next()
            fault.cancel()
            assert first.end is not None
            assert first.end.cause is Cause.COORDINATOR_LOST
            sent = [at for at, api, _ in here.requests if api == "offset_commit"]
            assert sent
            assert max(sent) <= began + 7
            assert second.epoch > first.epoch


async def test_a_seek_is_a_position(autojump_clock: MockClock) -> None:
    """With auto_offset_reset=error, a seek before the first read replaces a commit."""
    async with harness() as here:
        await here.append(5)
        async with here.group(auto_offset_reset="error") as group:
            generation = await group.next()
            generation.seek(P0, 2)
            batch = await anext(generation.records(P0))
            assert values(batch.messages) == [2, 3, 4]


async def test_a_commit_is_a_position(autojump_clock: MockClock) -> None:
    """With auto_offset_reset=error, a partition is read from where the program has committed it."""
    async with harness() as here:
        await here.append(5)
        async with here.group(auto_offset_reset="error") as group:
            generation = await group.next()
            stream = generation.records(P0)
            with pytest.raises(NoOffsetError):
                await anext(stream)
            await generation.commit({P0: 2}, beyond_read=True)
            batch = await anext(stream)
            assert values(batch.messages) == [2, 3, 4]


async def test_a_commit_on_its_way_is_a_position(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Where the leader names the log's end meanwhile, that does not replace the commit."""
    async with harness() as here:
        await here.append(5)
        here.broker.slow(4, "list_offsets", times=2)
        async with here.group(auto_offset_reset="latest") as group:
            generation = await group.next()
            stream = generation.records(P0)
            with trio.move_on_after(1):
                await anext(stream)
            here.broker.slow(8, "offset_commit", times=1)
            nursery.start_soon(partial(generation.commit, {P0: 2}, beyond_read=True))
            assert values((await anext(stream)).messages) == [2, 3, 4]
        assert await here.committed() == {P0: 2}


async def test_what_was_owned_before_is_what_the_program_held(autojump_clock: MockClock) -> None:
    """A generation that was not handed over does not count as the previous assignment."""
    async with harness() as here:

        async def returns() -> None:
            await trio.sleep(1)

        async with here.group() as group:
            first = await group.next()
            first.start_soon(returns)
            await first.wait_ended()
            here.broker.inject("sync_group", 27, times=1)
            second = await group.next()
            assert second.epoch == first.epoch + 2
            assert second.assignment.kept == {P0}
            assert not second.assignment.added


@pytest.mark.parametrize("lost_by", ["eviction", "expiry", "refused generation", "unknown member"])
async def test_what_was_lost_is_not_kept(autojump_clock: MockClock, lost_by: str) -> None:
    """After a loss, others may have read what the member gets back: it counts as added."""
    async with harness(2) as here, here.group(session_timeout=10.0) as group:
        first = await group.next()
        if lost_by == "eviction":
            await evict(here, first.member_id)
        elif lost_by == "expiry":
            here.broker.inject("heartbeat", 14, times=20)
        elif lost_by == "refused generation":
            here.broker.inject("heartbeat", ErrorCode.ILLEGAL_GENERATION, times=1)
        else:
            here.broker.inject("join_group", ErrorCode.UNKNOWN_MEMBER_ID, times=1)
            first.start_soon(trio.sleep, 1)
        second = await group.next()
        assert second.assignment.previous == {P0, P1}
        assert second.assignment.added == {P0, P1}
        assert not second.assignment.kept
        assert not second.assignment.removed
        assert here.events_of(Assigned)[-1].message().endswith("(2 added, 0 kept, 0 removed)")


async def test_what_came_and_went_before_the_hand_over_is_not_kept(
    autojump_clock: MockClock,
) -> None:
    """Where another member was assigned a partition in between, even unseen, it is added again."""
    async with harness(2) as here, here.group() as group, trio.open_nursery() as nursery:
        first = await group.next()
        assert first.assignment.added == {P0, P1}
        slowed = here.broker.slow(15.0, "offset_fetch")  # no generation is handed over meanwhile

        async def come_and_go() -> None:
            with trio.move_on_after(10.0):
                async with here.group() as other:
                    await other.next()
            slowed.cancel()

        nursery.start_soon(come_and_go)
        second = await group.next()
        assert second.epoch == first.epoch + 2
        assert second.assignment.previous == {P0, P1}
        assert len(second.assignment.kept) == 1
        assert len(second.assignment.added) == 1


async def test_a_commit_that_fails_for_a_while_waits_for_the_lease(
    autojump_clock: MockClock,
) -> None:
    """Between attempts, a commit waits until a heartbeat has confirmed the membership."""
    fake = FakeGeneration(session_timeout=3.0, commit_timeout=60.0)

    async def takes_long() -> None:
        await trio.sleep(5)
        raise ConnectionLostError("gone", sent=True)

    fake.coordinator.replies = [takes_long]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: fake.commit(p0=1))
        await trio.sleep(20)
        assert len(fake.coordinator.commits) == 1
        fake.lease.confirm(trio.current_time())
    assert len(fake.coordinator.commits) == 2
    assert fake.committed


async def test_closing_during_a_leave_leaves_all_the_same(autojump_clock: MockClock) -> None:
    """A member that was about to join again when the group closed leaves the group."""
    async with harness() as here:

        async def returns() -> None:
            await trio.lowlevel.checkpoint()

        async with here.group() as group:
            first = await group.next()
            first.start_soon(returns)
            await first.wait_ended()
            here.broker.inject("join_group", ErrorCode.UNKNOWN_SERVER_ERROR)
            here.broker.slow(2.0, api="leave_group", times=1)
            with trio.move_on_after(1.5):
                await group.next()
            assert len(here.requests_for("leave_group")) == 1
        (left,) = await here.broker.groups()
        assert not left.members


async def test_a_commit_unanswered_when_membership_is_lost_is_no_failure(
    autojump_clock: MockClock,
) -> None:
    """The request times out after the end, and the next generation begins all the same."""
    async with harness() as here:
        await here.append(2)

        async def handle(generation: Generation) -> None:
            async for batch in generation.records():
                await generation.commit({P0: batch.next_offset})

        async with here.group() as group:
            first = await group.next()
            here.broker.slow(100.0, api="offset_commit", times=1)
            first.start_soon(handle, first)
            await trio.sleep(1)
            here.broker.inject("heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
            second = await group.next()
            assert first.end is not None
            assert first.end.cause is Cause.MEMBERSHIP_LOST
            assert second.epoch > first.epoch


async def test_a_cancellation_from_outside_ends_the_generation_at_once(
    autojump_clock: MockClock,
) -> None:
    """A shielded commit that is awaited is then the last one, and its loss is no failure."""
    async with harness() as here:
        await here.append(2)
        started = []
        causes = []

        async def handle(generation: Generation) -> None:
            async for batch in generation.records():
                try:
                    await generation.commit({P0: batch.next_offset})
                finally:
                    started.append(generation.start_soon(handle, generation))
                    causes.append(generation.end and generation.end.cause)

        here.broker.slow(100.0, api="offset_commit")
        with trio.move_on_after(1):
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(handle, generation)
                await trio.sleep_forever()
        assert causes == [Cause.CANCELLED]
        assert started == [False]
        assert len(here.requests_for("offset_commit")) == 1


async def test_next_behind_a_shield_ends_when_a_task_raised(autojump_clock: MockClock) -> None:
    """The cancellation cannot reach a shielded next(), but the group's end does."""
    async with harness() as here:

        async def fails() -> None:
            raise ValueError("of a task")

        with pytest.RaisesGroup(ValueError):
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(fails)
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
                    with pytest.raises(GroupClosedError):
                        await group.next()
                    assert here.now < 10


async def test_a_group_closed_in_the_event_of_a_generation_hands_none_out(
    autojump_clock: MockClock,
) -> None:
    """``shutdown()`` in the handler of that event ends the generation before next() returns."""
    async with harness() as here:

        def close(event: Event) -> None:
            if isinstance(event, GenerationStarted):
                group.shutdown()

        group = ConsumerGroup(here.config(), runtime=memory_runtime(here.broker), on_event=close)
        async with group:
            with pytest.raises(GroupClosedError):
                await group.next()


async def test_a_group_closed_as_it_joins_ends_by_that(autojump_clock: MockClock) -> None:
    """If the close comes with the response to JoinGroup, the generation's end says so."""
    async with harness() as here:

        def close(event: Event) -> None:
            here.events.append(event)
            if isinstance(event, Joined):
                group.shutdown("over")

        runtime = memory_runtime(here.broker)
        group = ConsumerGroup(here.config(), runtime=runtime, on_event=close)
        async with group:
            with pytest.raises(GroupClosedError, match="over"):
                await group.next()
        (ended,) = here.events_of(GenerationEnded)
        assert (ended.end.cause, ended.end.detail) == (Cause.CLOSED, "over")


async def test_an_exception_of_starts_outlives_a_cancellation_from_outside(
    autojump_clock: MockClock,
) -> None:
    """It surfaces from the block if the cancellation comes before next() has raised it."""
    async with harness() as here:
        for ticks in range(20):
            began = trio.Event()

            def starts(partitions: object, began: trio.Event = began) -> dict[TopicPartition, int]:
                began.set()
                raise LookupError(partitions)

            async def cancel(
                scope: trio.CancelScope, began: trio.Event = began, ticks: int = ticks
            ) -> None:
                await began.wait()
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                with pytest.raises(LookupError), trio.CancelScope() as scope:
                    nursery.start_soon(cancel, scope)
                    async with here.group(group_id=f"group-{ticks}", starts=starts) as group:
                        await group.next()
