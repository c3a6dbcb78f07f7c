"""ConsumerGroup: hand-over, rejoin, close, and what the program sees of failures."""

from __future__ import annotations

import logging
import signal
import sys
from itertools import pairwise

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.errors import GroupClosedError, StaleGenerationError, UsageError
from kgroup.events import (
    Assigned,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    OffsetReset,
)
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.types import Cause, TopicPartition
from kgroup.worker import serve
from tests.group.harness import P0, P1, P2, Harness, harness, values
from tests.program_exceptions import OwnError, UnprintableError


async def test_a_generation_reads_commits_and_leaves(autojump_clock: MockClock) -> None:
    """A member alone gets all partitions, reads them, commits, and leaves when it is done."""
    async with harness(2) as here:
        await here.append(5, 0)
        await here.append(3, 1)
        seen: dict[int, list[int]] = {}
        async with here.group() as group:
            generation = await group.next()
            assert list(generation.assignment) == [P0, P1]
            for partition in generation.assignment:
                batch = await anext(generation.records(partition))
                seen[partition.partition] = values(batch.messages)
                await generation.commit({partition: batch.next_offset})
        assert seen == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2]}
        assert await here.committed() == {P0: 5, P1: 3}
        assert [api for api, _ in here.requests_for("leave_group")] == ["leave_group"]
        assert generation.end is not None
        assert generation.end.cause is Cause.CLOSED


async def test_a_group_is_iterated_until_it_is_closed(autojump_clock: MockClock) -> None:
    """``async for`` ends, without an error, when a task of the generation closes the group."""
    async with harness() as here:

        async def close(group: ConsumerGroup) -> None:
            await group.aclose()

        generations = []
        async with here.group() as group:
            async for generation in group:
                generations.append(generation)
                generation.start_soon(close, group)
        assert len(generations) == 1
        assert generations[0].state is State.ENDED
        with pytest.raises(GroupClosedError):
            await group.next()


async def test_next_never_yields_a_dead_generation(autojump_clock: MockClock) -> None:
    """A generation that ends before next() takes it is never handed out."""
    async with harness() as here, trio.open_nursery() as nursery:
        async with here.group() as first:
            with trio.move_on_after(0):
                await first.next()
            # The first member joins in the background; the second makes its generation stale.
            nursery.start_soon(hold, here, 60.0)
            await trio.sleep(10)
            generation = await first.next()
            assert generation.state is State.RUNNING
            started = here.events_of(GenerationStarted)
            ended = here.events_of(GenerationEnded)
            assert generation.epoch not in {event.epoch for event in ended if not event.epoch}
            assert started[-1].generation_id == generation.generation_id
        nursery.cancel_scope.cancel()


async def hold(here: Harness, seconds: float) -> None:
    """Be a member that reads nothing for a while."""
    async with here.group() as group:
        with trio.move_on_after(seconds):
            async for _ in group:
                pass


async def test_no_join_before_all_tasks_ended_and_next_waits(autojump_clock: MockClock) -> None:
    """While a task finishes or the body is at work, no JoinGroup is sent."""
    async with harness() as here:
        finished: list[float] = []

        async def returns() -> None:
            await trio.sleep(1)

        async def slow(generation: Generation) -> None:
            await generation.ending.wait()
            await trio.sleep(5)
            finished.append(here.now)

        async with here.group() as group:
            generation = await group.next()
            joins = len(here.requests_for("join_group"))
            generation.start_soon(returns)
            generation.start_soon(slow, generation)
            await trio.sleep(10)  # the body's own work
            assert len(here.requests_for("join_group")) == joins
            body_done = here.now
            again = await group.next()
            assert again.epoch > generation.epoch
            first_join = next(at for at, api, _ in here.requests[::-1] if api == "join_group")
            assert first_join >= body_done
            assert finished
            assert finished[0] < first_join


async def test_a_returning_task_brings_a_new_generation(autojump_clock: MockClock) -> None:
    """The next generation has a new epoch, the same member id and, alone, a new generation id."""
    async with harness() as here, here.group() as group:
        first = await group.next()

        async def returns() -> None:
            await trio.lowlevel.checkpoint()

        assert first.start_soon(returns)
        second = await group.next()
        assert first.end is not None
        assert first.end.cause is Cause.TASK_RETURNED
        assert second.epoch == first.epoch + 1
        assert second.member_id == first.member_id
        assert second.generation_id == first.generation_id + 1
        assert not first.start_soon(returns)


async def test_quick_returns_back_off(autojump_clock: MockClock) -> None:
    """A handler that returns at once makes the member join less and less often."""
    async with harness() as here, here.group() as group:

        async def returns() -> None:
            await trio.lowlevel.checkpoint()

        times = []
        for _ in range(8):
            generation = await group.next()
            times.append(here.now)
            generation.start_soon(returns)
        gaps = [after - before for before, after in pairwise(times)]
        assert gaps[-1] > 3
        assert all(later > earlier for earlier, later in pairwise(gaps[:4]))
        assert max(gaps) < 6


async def test_a_task_that_raises_drains_leaves_and_surfaces(autojump_clock: MockClock) -> None:
    """Its siblings finish and the member leaves; then the group raises one exception group."""
    async with harness() as here:
        finished = []

        async def raises() -> None:
            await trio.sleep(1)
            raise ValueError("broken handler")

        async def sibling(generation: Generation) -> None:
            await generation.ending.wait()
            await trio.sleep(3)
            await generation.commit({P0: 7}, beyond_read=True)
            finished.append(True)

        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                async for generation in group:
                    generation.start_soon(raises)
                    generation.start_soon(sibling, generation)
        assert [str(error) for error in caught.value.exceptions] == ["broken handler"]
        assert isinstance(caught.value.exceptions[0], ValueError)
        assert finished == [True]
        assert await here.committed() == {P0: 7}
        assert len(here.requests_for("leave_group")) == 1


async def test_an_exception_of_the_body_comes_out_bare(autojump_clock: MockClock) -> None:
    """What the loop's body raises surfaces as it is, after the drain and the leave."""
    async with harness() as here:
        with pytest.raises(KeyError):
            async with here.group() as group:
                await group.next()
                raise KeyError("body")
        assert len(here.requests_for("leave_group")) == 1


async def commit_in_the_drain(generation: Generation) -> None:
    """A task that has work left when its generation ends."""
    await generation.ending.wait()
    await trio.sleep(3)
    await generation.commit({P0: 7}, beyond_read=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_program_in_the_body_drains_first(
    autojump_clock: MockClock, error: type[BaseException]
) -> None:
    """After ``sys.exit()`` or Ctrl-C in the body, tasks finish and commit; the member leaves."""
    async with harness() as here:
        with pytest.raises(error):
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(commit_in_the_drain, generation)
                raise error
        assert await here.committed() == {P0: 7}
        assert len(here.requests_for("leave_group")) == 1


async def test_a_program_that_sets_ending_itself(autojump_clock: MockClock) -> None:
    """It has deceived only its own tasks: the generation continues, and no record is skipped."""
    async with harness() as here:
        await here.append(3)
        firsts: list[int | None] = []

        async def handle(generation: Generation, batch: Batch) -> int:
            await trio.lowlevel.checkpoint()
            firsts.append(batch.messages[0].offset())
            generation.ending.set()
            if batch.next_offset == 3 and len(batch.messages) == 1:
                group.shutdown()
            return batch.start_offset + 1

        async with here.group() as group:
            await serve(group, handle)
        assert firsts == [0, 1, 2]
        assert await here.committed() == {P0: 3}


async def test_an_exception_that_cannot_be_printed(autojump_clock: MockClock) -> None:
    """It ends the group as any other does, whose end and status name its class."""
    async with harness() as here:

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise UnprintableError

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(fail)
                await generation.wait_ended()
        assert raised.group_contains(UnprintableError)
        assert generation.end is not None
        assert "raised <UnprintableError that cannot be printed>" in str(generation.end.detail)
        assert group.status().detail == "UnprintableError"
        assert len(here.requests_for("leave_group")) == 1


async def test_starts_that_exit(autojump_clock: MockClock) -> None:
    """What they raise ends the group, which leaves, and is raised by ``next()``."""
    async with harness() as here:

        def starts(_: object) -> dict[TopicPartition, int]:
            sys.exit(3)

        with pytest.raises(SystemExit) as raised:
            async with here.group(starts=starts) as group:
                await group.next()
        assert raised.value.code == 3
        assert len(here.requests_for("leave_group")) == 1


@pytest.mark.parametrize("error", [SystemExit, OwnError])
@pytest.mark.parametrize("within_a_nursery", [False, True])
async def test_a_task_that_exits_lets_the_others_drain(
    autojump_clock: MockClock, error: type[BaseException], *, within_a_nursery: bool
) -> None:
    """After ``sys.exit()`` in a task, other tasks finish and commit, and the member leaves."""
    async with harness() as here:

        async def leave() -> None:
            await trio.lowlevel.checkpoint()
            raise error

        async def leave_within() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                nursery.start_soon(leave)

        with pytest.raises(BaseExceptionGroup) as raised:
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(commit_in_the_drain, generation)
                generation.start_soon(leave_within if within_a_nursery else leave)
                await generation.wait_ended()
        exits = raised.value.subgroup(error)
        assert exits is not None
        assert raised.value.split(error)[1] is None
        assert await here.committed() == {P0: 7}
        assert len(here.requests_for("leave_group")) == 1


async def test_what_cancels_a_program_is_not_kept_in_a_task(autojump_clock: MockClock) -> None:
    """KeyboardInterrupt in a task's own nursery cancels the other tasks at once."""
    async with harness() as here:
        cancelled: list[float] = []

        async def slow() -> None:
            try:
                await trio.sleep_forever()
            finally:
                cancelled.append(trio.current_effective_deadline())

        async def interrupted() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(slow)
                await trio.lowlevel.checkpoint()
                raise KeyboardInterrupt

        with pytest.raises(BaseExceptionGroup) as raised:
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(slow)
                generation.start_soon(interrupted)
                await generation.wait_ended()
        assert raised.value.subgroup(KeyboardInterrupt) is not None
        assert len(cancelled) == 2
        assert here.events_of(GenerationDraining) == []


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_it_waits_in_next(presses: int) -> None:
    """Ctrl-C lets tasks finish and commit; a second one cancels them; the member leaves."""
    ended = []
    left = []

    async def slow(generation: Generation) -> None:
        try:
            await generation.ending.wait()
            await trio.sleep(10)
            await generation.commit({P0: 7}, beyond_read=True)
        finally:
            ended.append(trio.current_time())

    async def press() -> None:
        for _ in range(presses):
            await trio.sleep(5)
            signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with harness() as here:
            began = trio.current_time()
            try:
                async with trio.open_nursery() as presser, here.group() as group:
                    presser.start_soon(press)
                    async for generation in group:
                        generation.start_soon(slow, generation)
            finally:
                ended[0] -= began
                with trio.CancelScope(shield=True):
                    left.append((await here.committed(), len(here.requests_for("leave_group"))))

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(
            main,
            clock=MockClock(autojump_threshold=0),
            restrict_keyboard_interrupt_to_checkpoints=True,
        )
    assert caught.value.split(KeyboardInterrupt)[1] is None
    assert ended == pytest.approx([15.0 if presses == 1 else 10.0])
    assert left == [({P0: 7} if presses == 1 else {}, 1)]


async def test_wrong_calls_of_next_are_usage_errors(autojump_clock: MockClock) -> None:
    """Two calls at once, a call inside a task of the generation, and one before entering."""
    async with harness() as here:
        with pytest.raises(UsageError, match="not open"):
            await here.group().next()
        async with here.group() as group:
            generation = await group.next()
            caught: list[BaseException] = []

            async def inside() -> None:
                try:
                    await group.next()
                except UsageError as error:
                    caught.append(error)
                await trio.sleep_forever()

            async def twice() -> None:
                with pytest.raises(UsageError, match="waits in next"):
                    await group.next()
                nursery.cancel_scope.cancel()

            generation.start_soon(inside)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.next)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(twice)
            assert len(caught) == 1
        with pytest.raises(UsageError, match="entered only once"):
            await group.__aenter__()


async def test_a_cancelled_next_loses_nothing(autojump_clock: MockClock) -> None:
    """After a cancelled next(), another call gets the generation that was joined for it."""
    async with harness() as here, here.group() as group:
        with trio.move_on_after(0):
            await group.next()
        await trio.sleep(5)
        generation = await group.next()
        assert generation.state is State.RUNNING
        assert generation.generation_id == 1


async def test_close_during_a_parked_join(autojump_clock: MockClock) -> None:
    """Closing while the coordinator holds the Join back leaves within the deadline."""
    async with harness() as here, trio.open_nursery() as nursery:

        async def stays_away(started: trio.Event) -> None:
            async with here.group() as blocker:
                generation = await blocker.next()
                started.set()
                await generation.ending.wait()
                await (
                    trio.sleep_forever()
                )  # its body never calls next() again: the join waits for it

        ready = trio.Event()
        nursery.start_soon(stays_away, ready)
        await ready.wait()
        async with here.group() as group:
            nursery.start_soon(closes, group, 3.0)
            with pytest.raises(GroupClosedError):
                await group.next()
            called = here.now
        assert here.now - called < group.config.close_timeout
        assert len(here.requests_for("leave_group")) == 1
        nursery.cancel_scope.cancel()


async def closes(group: ConsumerGroup, after: float) -> None:
    """Close a group after a while."""
    await trio.sleep(after)
    await group.aclose()


async def test_cancellation_from_outside_does_not_drain_and_leaves(
    autojump_clock: MockClock,
) -> None:
    """A cancelled program drops its work at once, and the member leaves the group."""
    async with harness() as here:
        finished = []

        async def slow() -> None:
            try:
                await trio.sleep(100)
            finally:
                finished.append(here.now)

        with trio.move_on_after(5):
            async with here.group() as group:
                async for generation in group:
                    generation.start_soon(slow)
        assert finished == [5.0]
        assert len(here.requests_for("leave_group")) == 1


async def test_a_drain_within_its_deadline_commits(autojump_clock: MockClock) -> None:
    """Work that finishes within the drain commits under the old generation id."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        await here.append(4, 0)
        outcome = []

        async def slow(generation: Generation) -> None:
            async for batch in generation.records(P0):
                await generation.ending.wait()
                await trio.sleep(8)
                await generation.commit({P0: batch.next_offset})
                outcome.append((generation.generation_id, generation.state))

        async with here.group() as group:
            first = await group.next()
            first.start_soon(slow, first)
            nursery.start_soon(hold, here, 60.0)
            second = await group.next()
            assert second.epoch > first.epoch
            assert outcome == [(first.generation_id, State.DRAINING)]
            assert (await here.committed())[P0] == 4
            assert first.end is not None
            assert first.end.cause is Cause.REBALANCE
        nursery.cancel_scope.cancel()


async def test_a_drain_past_its_deadline_is_cut(autojump_clock: MockClock) -> None:
    """Work that outlasts the drain is cancelled, and its late commit is refused as stale."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(4, 0)
        late = []

        async def too_slow(generation: Generation) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.5)
                    try:
                        await generation.commit({P0: 4}, beyond_read=True)
                    except StaleGenerationError as error:
                        late.append(error)

        async with here.group(drain_timeout=4.0) as group:
            first = await group.next()
            first.start_soon(too_slow, first)
            nursery.start_soon(hold, here, 60.0)
            began = await first_draining(first, here)
            await group.next()
            assert here.now - began < 6
        assert [error.end for error in late] == [first.end]
        assert await here.committed() == {}
        (ended,) = [event for event in here.events_of(GenerationEnded) if event.cut_short]
        assert ended.seconds == pytest.approx(4.5)
        nursery.cancel_scope.cancel()


async def first_draining(generation: Generation, here: Harness) -> float:
    """Wait for the end to begin, and return the time."""
    await generation.ending.wait()
    return here.now


async def test_a_first_start_is_no_warning_and_a_lost_position_is_one(
    autojump_clock: MockClock,
) -> None:
    """A reset without a committed offset is no warning; one of a deleted position is."""
    async with harness() as here:
        await here.append(3)
        levels = []
        for committed in (9, 3):
            async with here.group() as group:
                generation = await group.next()
                batch = await anext(generation.records(P0))
                assert values(batch.messages) == [0, 1, 2]
                await generation.commit({P0: committed}, beyond_read=True)
            levels.append([event.severity for event in here.events_of(OffsetReset)])
            here.events.clear()
        assert levels == [[logging.INFO], [logging.WARNING]]


async def test_where_a_start_offset_comes_from(autojump_clock: MockClock) -> None:
    """The log says which starts are not the group's commits: the program's, or the policy's."""
    async with harness(3) as here:
        for number in range(3):
            await here.append(5, number)
        async with here.group() as group:
            first = await group.next()
            await first.commit({P0: 3, P1: 3}, beyond_read=True)
        async with here.group(starts=lambda _: {P0: 2, P2: None}) as group:
            await group.next()
        (_, assigned) = here.events_of(Assigned)
        assert assigned.start_origins == {P0: "starts", P2: "earliest"}
        assert assigned.as_dict()["start_origins"] == {"topic-0": "starts", "topic-2": "earliest"}
        assert assigned.message() == (
            "assigned topic-0 from 2 (starts), topic-1 from 3, topic-2 from 0 (earliest)"
            " (3 added, 0 kept, 0 removed)"
        )
