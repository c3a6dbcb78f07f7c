"""GenerationRunner beside the embedded broker: events, watchers and the lease."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.clocks import TrioClock
from kgroup.config import DRAIN_MARGIN
from kgroup.errors import GroupClosedError
from kgroup.events import (
    Assigned,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Joined,
    LoopBlocked,
)
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, TopicPartition
from kgroup.worker_thread import compute_inline
from tests.group.harness import P0, P1, Harness, harness, values
from tests.watchers.test_heartbeat import Jumping

T = TypeVar("T")


def jumping_group(here: Harness, clock: Jumping, **settings: object) -> ConsumerGroup:
    """A member whose clock the test can move ahead."""
    runtime = attrs.evolve(memory_runtime(here.broker), clock=clock)
    return ConsumerGroup(here.config(**settings), runtime=runtime, on_event=here.events.append)


async def test_the_events_of_a_generation_are_in_order(autojump_clock: MockClock) -> None:
    """From JoinGroup to the end, each event comes once and names the same generation."""
    async with harness(2) as here:
        async with here.group() as group:
            generation = await group.next()
        kinds = (Joined, Assigned, GenerationStarted, GenerationDraining, GenerationEnded)
        events = [event for event in here.events if isinstance(event, kinds)]
        assert [type(event) for event in events] == list(kinds)
        for event in events:
            assert (event.member_id, event.generation_id, event.epoch) == (
                generation.member_id,
                generation.generation_id,
                generation.epoch,
            )
        assert str(events[1]).endswith(
            "topic-0 from 0 (earliest), topic-1 from 0 (earliest) (2 added, 0 kept, 0 removed)"
        )


async def test_an_assignment_knows_the_one_before(autojump_clock: MockClock) -> None:
    """Epochs rise, and the partitions owned before are kept."""
    async with harness(2) as here, here.group() as group:
        first = await group.next()
        await here.broker.add_partitions("topic", 3)
        second = await group.next()
        assert first.assignment.added == {P0, P1}
        assert second.assignment.kept == {P0, P1}
        assert second.assignment.added == {TopicPartition("topic", 2)}
        assert second.epoch == first.epoch + 1


async def test_a_drain_ends_before_the_rebalance_does(autojump_clock: MockClock) -> None:
    """A drain ends a margin before the time-out, counted from the last answered heartbeat."""
    settings: dict[str, object] = {"rebalance_timeout": 12.0, "drain_timeout": 25.0}
    async with harness() as here, here.group(**settings) as group:
        first = await group.next()
        first.start_soon(trio.sleep_forever)
        await trio.sleep(20.3)
        began = trio.current_time()
        first.start_soon(trio.lowlevel.checkpoint)
        await first.wait_ended()
        (draining,) = here.events_of(GenerationDraining)
        assert draining.seconds <= 12 - DRAIN_MARGIN
        assert draining.seconds >= 12 - DRAIN_MARGIN - 1.01
        assert trio.current_time() - began == pytest.approx(draining.seconds)


async def test_reading_waits_for_the_lease(autojump_clock: MockClock) -> None:
    """A process stopped past its lease reads nothing until a heartbeat confirms membership."""
    async with harness() as here:
        await here.append(3)
        clock = Jumping()
        async with jumping_group(here, clock) as group:
            generation = await group.next()
            stream = generation.records(P0, max_records=1)
            assert values((await anext(stream)).messages) == [0]
            await trio.sleep(10)
            here.broker.slow(3.0, "heartbeat", times=1)
            clock.jumped += 40
            began = trio.current_time()
            assert generation.lease == 0
            assert values((await anext(stream)).messages) == [1]
            assert trio.current_time() - began >= 3
            assert generation.lease > 0
            assert generation.end is None
        assert [type(event) for event in here.events_of(LoopBlocked)] == [LoopBlocked]


async def test_a_lease_that_cannot_be_confirmed_ends_the_reading(
    autojump_clock: MockClock,
) -> None:
    """A stream that waits for the lease ends with the generation."""
    async with harness() as here:
        await here.append(3)
        clock = Jumping()
        async with jumping_group(here, clock) as group:
            generation = await group.next()
            stream = generation.records(P0, max_records=1)
            await anext(stream)
            await trio.sleep(10)
            here.broker.inject("heartbeat", 25)
            here.broker.slow(3.0, "heartbeat", times=1)
            clock.jumped += 40
            assert [batch async for batch in stream] == []
            assert generation.end is not None
            assert generation.end.cause is Cause.MEMBERSHIP_LOST


async def test_a_generation_that_ends_before_the_hand_over(
    autojump_clock: MockClock,
) -> None:
    """After a rebalance between JoinGroup and hand-over the program gets the next generation."""
    async with harness() as here, here.group() as group:
        here.broker.slow(5.0, "offset_fetch", times=1)
        here.broker.inject("heartbeat", 27)
        generation = await group.next()
        assert generation.epoch == 2
    assert [event.epoch for event in here.events_of(GenerationStarted)] == [2]
    ended = here.events_of(GenerationEnded)
    assert [event.end.cause for event in ended] == [Cause.REBALANCE, Cause.CLOSED]


@pytest.mark.parametrize(("error", "epoch"), [(None, 1), (25, 2)])
async def test_a_generation_is_handed_over_only_within_its_lease(
    autojump_clock: MockClock, error: int | None, epoch: int
) -> None:
    """A process suspended after SyncGroup waits for a heartbeat before the hand-over."""
    async with harness() as here:
        clock = Jumping()
        here.broker.slow(5.0, "offset_fetch", times=1)

        async def stand_still() -> None:
            await trio.sleep(4)  # the answer of the next heartbeat comes after the offsets
            here.broker.slow(3.0, "heartbeat", times=1)
            if error:
                here.broker.inject("heartbeat", error)
            clock.jumped += 40

        async with jumping_group(here, clock) as group, trio.open_nursery() as nursery:
            nursery.start_soon(stand_still)
            generation = await group.next()
            assert generation.lease > 0
            assert trio.current_time() >= 4 + 3  # not at 5, when the offsets were there
        assert [event.epoch for event in here.events_of(Assigned)] == [epoch]
        assert [event.epoch for event in here.events_of(GenerationStarted)] == [epoch]


async def test_a_group_closed_by_an_event_handler_hands_nothing_over(
    autojump_clock: MockClock,
) -> None:
    """An event handler may close the group at any event, also just before the hand-over."""
    async with harness() as here:
        events: list[Event] = []

        def hear(event: Event) -> None:
            events.append(event)
            if isinstance(event, Assigned):
                group.shutdown("seen enough")

        group = ConsumerGroup(here.config(), runtime=memory_runtime(here.broker), on_event=hear)
        async with group:
            with pytest.raises(GroupClosedError, match="seen enough"):
                await group.next()
        assert not any(isinstance(event, GenerationStarted) for event in events)
        assert len(here.requests_for("leave_group")) == 1


async def test_heartbeats_begin_after_the_join_response(autojump_clock: MockClock) -> None:
    """Heartbeats are sent while the fetch of committed offsets takes long."""
    async with harness() as here:
        here.broker.slow(5.0, "offset_fetch", times=1)
        async with here.group() as group:
            await group.next()
        apis = [api for api, _ in here.requests_for("join_group", "heartbeat", "offset_fetch")]
        assert apis[:3] == ["join_group", "join_group", "heartbeat"]
        beats = [at for at, api, _ in here.requests if api == "heartbeat"]
        assert max(after - before for before, after in pairwise(beats)) <= 1.001


async def test_the_runtime_s_clock_measures_only_the_lease(autojump_clock: MockClock) -> None:
    """Everything else behaves the same with trio's clock."""
    clock = Jumping()
    assert clock.now() == TrioClock().now()
    events: list[Event] = []
    async with harness() as here, jumping_group(here, clock) as group:
        generation = await group.next()
        await trio.sleep(5)
        assert generation.lease == pytest.approx(30, abs=1.01)
        events = here.events_of(LoopBlocked)
    assert events == []


@pytest.mark.parametrize("long", [True, False])
async def test_a_long_assignment_is_checked_in_a_thread(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, *, long: bool
) -> None:
    """It is read, checked and sorted by the runtime's `compute`; a short one is not."""
    if long:
        monkeypatch.setattr("kgroup.generation.member_context.MANY", 2)
        monkeypatch.setattr("kgroup.client.coordinator.LONG_ASSIGNMENT", 10)
    computed: list[str] = []

    class Noting:
        async def __call__(self, work: Callable[[], T], name: str) -> T:
            computed.append(name)
            return await compute_inline(work, name)

    async with harness(2) as here:
        runtime = attrs.evolve(memory_runtime(here.broker), compute=Noting)
        async with ConsumerGroup(here.config(), runtime=runtime) as group:
            generation = await group.next()
            assert list(generation.assignment) == [P0, P1]
    beside = [name for name in computed if name.startswith(("kgroup-read S", "kgroup-assigned"))]
    assert beside == (["kgroup-read SyncGroup", "kgroup-assigned group"] if long else [])
