"""Where partitions start: committed offsets, auto_offset_reset, and partitions added later."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import AuthorizationError, NoOffsetError, OffsetOutOfRangeError
from kgroup.events import GenerationStarted, OffsetReset
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.types import OffsetAndMetadata
from tests.group.harness import P0, P1, P2, harness, values


async def first_of(generation: Generation) -> int:
    """The first record of partition 0."""
    batch = await anext(generation.records(P0))
    return values(batch.messages)[0]


async def read_all(generation: Generation) -> None:
    """Read until the generation's end begins."""
    async for _ in generation.records():
        pass


async def test_committed_offsets_come_first(autojump_clock: MockClock) -> None:
    """Whatever auto_offset_reset is, a partition starts at its committed offset."""
    async with harness() as here:
        await here.append(5)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit(
                {P0: OffsetAndMetadata(2, leader_epoch=0, metadata="note")}, beyond_read=True
            )
        for reset in ("earliest", "latest", "error"):
            async with here.group(auto_offset_reset=reset) as group:
                generation = await group.next()
                assert generation.start_offsets == {P0: 2}
                assert await first_of(generation) == 2
        assert len(here.events_of(OffsetReset)) == 1  # the first member's


async def test_earliest_skips_nothing(autojump_clock: MockClock) -> None:
    """Without an offset, reading starts at the first record, and nothing is committed."""
    async with harness() as here:
        await here.append(5)
        async with here.group() as group:
            generation = await group.next()
            assert generation.start_offsets == {P0: 0}
            assert await first_of(generation) == 0
        assert await here.committed() == {}


async def test_latest_begins_at_the_end_and_commits_it(autojump_clock: MockClock) -> None:
    """Old records are skipped; later ones are read, even if the member restarts before them."""
    async with harness() as here:
        await here.append(5)
        async with here.group(auto_offset_reset="latest") as group:
            generation = await group.next()
            assert generation.start_offsets == {P0: 5}
        assert await here.committed() == {P0: 5}
        await here.append(2)
        async with here.group(auto_offset_reset="latest") as group:
            generation = await group.next()
            assert generation.start_offsets == {P0: 5}
            assert await first_of(generation) == 0  # of the second lot


async def test_latest_without_the_initial_commit(autojump_clock: MockClock) -> None:
    """With commit_initial_position off nothing is committed before the program does."""
    async with harness() as here:
        await here.append(5)
        async with here.group(auto_offset_reset="latest", commit_initial_position=False) as group:
            assert (await group.next()).start_offsets == {P0: 5}
        assert here.requests_for("offset_commit") == []


async def test_a_refused_initial_commit_harms_nothing(autojump_clock: MockClock) -> None:
    """The program gets the generation all the same, and reads from that position."""
    async with harness() as here:
        await here.append(5)
        here.broker.inject("offset_commit", ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        async with here.group(auto_offset_reset="latest") as group:
            generation = await group.next()
            assert generation.start_offsets == {P0: 5}
            assert generation.state is State.RUNNING


async def test_latest_reads_added_partitions_from_their_beginning(
    autojump_clock: MockClock,
) -> None:
    """A partition without an offset, in a topic with offsets, was added later: it is read whole."""
    async with harness() as here:
        await here.append(5)
        async with here.group(auto_offset_reset="latest") as group:
            first = await group.next()
            assert first.start_offsets == {P0: 5}
            await here.broker.add_partitions("topic", 3)
            await here.append(4, 1)
            await first.ending.wait()
            second = await group.next()
            assert second.start_offsets == {P0: 5, P1: 0, P2: 0}
            batch = await anext(second.records(P1))
            assert values(batch.messages) == [0, 1, 2, 3]
        reasons = {event.partition: event.reason for event in here.events_of(OffsetReset)}
        assert "added later" in reasons[P1]
        assert "latest" in reasons[P0]


async def test_error_hands_over_and_fails_where_it_is_read(autojump_clock: MockClock) -> None:
    """auto_offset_reset='error': the handler of that partition gets it; commits still work."""
    async with harness(2) as here:
        await here.append(3)
        async with here.group(auto_offset_reset="error") as group:
            generation = await group.next()
            with pytest.raises(NoOffsetError, match="topic-0"):
                await anext(generation.records(P0))
            await generation.commit({P0: 1}, beyond_read=True)
        async with here.group(auto_offset_reset="error") as group:
            generation = await group.next()
            assert generation.start_offsets == {P0: 1}
            assert await first_of(generation) == 1


@pytest.mark.parametrize(("reset", "value"), [("earliest", 0), ("latest", None), ("error", None)])
async def test_an_offset_out_of_range(
    autojump_clock: MockClock, reset: str, value: int | None
) -> None:
    """It is reset, with an event; with 'error' the handler gets the error."""
    async with harness() as here:
        await here.append(3)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({P0: 100}, beyond_read=True)
        async with here.group(auto_offset_reset=reset) as group:
            generation = await group.next()
            if reset == "error":
                with pytest.raises(OffsetOutOfRangeError):
                    await anext(generation.records(P0))
                return
            stream = generation.records(P0)
            if value is None:
                with trio.move_on_after(5):
                    await anext(stream)
                await here.append(1)
                assert values((await anext(stream)).messages) == [0]
                assert await here.committed() == {P0: 3}  # the reset lowered the position
            else:
                batch = await anext(stream)
                assert values(batch.messages)[0] == value
                await generation.commit({P0: batch.next_offset})
                assert await here.committed() == {P0: 3}
        assert "not in the log" in here.events_of(OffsetReset)[-1].reason


async def test_an_unavailable_leader_delays_nothing(autojump_clock: MockClock) -> None:
    """A hand-over waits a moment for positions; with ``earliest`` the others start at 0."""
    async with harness() as here:
        await here.append(3)
        here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=8)
        async with here.group() as group:
            generation = await group.next()
            assert here.now == pytest.approx(2.0)
            assert generation.start_offsets == {P0: 0}
            assert await first_of(generation) == 0
            await generation.commit({P0: 3}, beyond_read=True)
        assert await here.committed() == {P0: 3}


async def test_a_latest_position_that_comes_late_is_found_when_read(
    autojump_clock: MockClock,
) -> None:
    """With ``latest``, a partition without a leader has no position before it is read."""
    async with harness() as here:
        await here.append(3)
        here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=8)
        async with here.group(auto_offset_reset="latest") as group, trio.open_nursery() as nursery:
            generation = await group.next()
            assert generation.start_offsets == {}

            async def later() -> None:
                await trio.sleep(20)
                await here.append(1)

            nursery.start_soon(later)
            assert (await anext(generation.records())).next_offset == 4


async def test_a_rebalance_while_offsets_are_unstable_is_joined_at_once(
    autojump_clock: MockClock,
) -> None:
    """A generation that ends before its hand-over never reaches the program."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        unstable = here.broker.inject("offset_fetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, times=None)

        async def second() -> None:
            await trio.sleep(20)
            async with here.group() as group:
                async for _ in group:
                    pass

        nursery.start_soon(second)
        async with here.group() as group:

            async def settles() -> None:
                await trio.sleep(30)
                unstable.cancel()

            nursery.start_soon(settles)
            generation = await group.next()
            assert generation.epoch == 2
            assert generation.state is State.RUNNING
            assert len(generation.assignment) == 1
        mine = list(here.events_of(GenerationStarted))
        assert generation.member_id in {event.member_id for event in mine}
        assert (generation.member_id, 1) not in {(event.member_id, event.epoch) for event in mine}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, None),
    ],
)
async def test_a_pattern_that_cannot_be_resolved(
    autojump_clock: MockClock, code: ErrorCode, error: type[Exception] | None
) -> None:
    """No JoinGroup is sent before the topics are known; failures are retried."""
    async with harness() as here:
        here.broker.inject("metadata", code, times=2)
        async with here.group(topics=[re.compile("top.*")]) as group:
            if error is None:
                assert list((await group.next()).assignment) == [P0]
                assert 0.2 <= here.now <= 0.4
            else:
                with pytest.raises(error):
                    await group.next()
                assert here.requests_for("join_group", "leave_group") == []


async def a_task_that_returns() -> None:
    """End the generation by returning."""
    await trio.lowlevel.checkpoint()


async def test_a_lookup_of_a_first_position_ends_with_the_generation(
    autojump_clock: MockClock,
) -> None:
    """A stream that waits for a leader ends with its generation; the next one reads on."""
    async with harness() as here:
        await here.append(3)
        away = here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None)
        async with here.group(auto_offset_reset="latest", drain_timeout=20.0) as group:
            generation = await group.next()
            generation.start_soon(read_all, generation)
            await trio.sleep(10)
            generation.start_soon(a_task_that_returns)
            began = here.now
            await generation.wait_ended()
            assert here.now == began
            assert here.events_of(OffsetReset) == here.requests_for("offset_commit") == []
            away.cancel()
            assert (await group.next()).start_offsets == {P0: 3}
        assert await here.committed() == {P0: 3}


async def test_a_lookup_of_a_lost_position_ends_with_the_generation(
    autojump_clock: MockClock,
) -> None:
    """A position that the log does not have stays committed until the next generation resets it."""
    async with harness() as here:
        await here.append(3)
        async with here.group() as group:
            await (await group.next()).commit({P0: 100}, beyond_read=True)
        away = here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None)
        async with here.group(drain_timeout=20.0) as group:
            generation = await group.next()
            generation.start_soon(read_all, generation)
            await trio.sleep(10)
            generation.start_soon(a_task_that_returns)
            began = here.now
            await generation.wait_ended()
            assert here.now == began
            assert here.events_of(OffsetReset)[1:] == []  # the one is the first member's
            assert await here.committed() == {P0: 100}
            away.cancel()
            assert await first_of(await group.next()) == 0
        assert await here.committed() == {P0: 0}


async def test_the_end_does_not_break_the_commit_of_a_position(autojump_clock: MockClock) -> None:
    """A resolved latest position is committed, although the generation has begun to end."""
    async with harness() as here:
        await here.append(3)
        away = here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None)
        async with here.group(auto_offset_reset="latest", drain_timeout=20.0) as group:
            generation = await group.next()
            here.broker.slow(8.0, "offset_commit", times=1)
            generation.start_soon(read_all, generation)
            away.cancel()
            await trio.sleep(5)
            assert await here.committed() == {}
            generation.start_soon(a_task_that_returns)
            await generation.wait_ended()
            assert await here.committed() == {P0: 3}
            assert len(here.requests_for("offset_commit")) == 1
