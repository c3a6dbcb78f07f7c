"""A coordinator that is unavailable, moves, restarts or refuses, in every phase of a member."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import GroupClosedError
from kgroup.events import BackingOff, GenerationEnded, LoopBlocked
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause
from tests.group.harness import P0, Harness, harness, values
from tests.recovery.connections import Trouble
from tests.recovery.observed_member import QUICK, ObservedMember

SHORT: dict[str, object] = {"session_timeout": 10.0, "rebalance_timeout": 10.0}


@pytest.mark.parametrize("how", ["moves", "unreachable", "stopped"])
async def test_unavailable_for_less_than_the_lease_ends_nothing(
    autojump_clock: MockClock, how: str
) -> None:
    """The generation continues, and reads and commits afterwards."""
    async with harness() as here, here.group(**SHORT, request_timeout=2.0) as group:
        generation = await group.next()
        await trio.sleep(5)
        if how == "moves":
            await here.broker.restart_coordinator(away=4.0, loading=1.0)
        elif how == "unreachable":
            here.broker.set_reachable(reachable=False)
            await trio.sleep(5)
            here.broker.set_reachable(reachable=True)
        else:
            await here.broker.disconnect()
            await trio.sleep(5)
            await here.broker.start()
        await here.append(3)
        batch = await anext(generation.records(P0))
        await generation.commit({P0: batch.next_offset})
        assert generation.state is State.RUNNING
        await trio.sleep(5)
        assert generation.state is State.RUNNING
        assert generation.lease > 5
        assert await here.committed() == {P0: 3}


@pytest.mark.parametrize("how", ["moves", "unreachable", "stopped"])
async def test_unavailable_for_longer_than_the_lease_loses_the_generation(
    autojump_clock: MockClock, how: str
) -> None:
    """The member gives up when its lease expires, and joins again when it can."""
    async with harness() as here, trio.open_nursery() as nursery:
        async with here.group(**SHORT, request_timeout=2.0) as group:
            first = await group.next()
            await trio.sleep(5)
            if how == "moves":
                nursery.start_soon(lambda: here.broker.restart_coordinator(away=30.0))
            elif how == "unreachable":
                here.broker.set_reachable(reachable=False)
            else:
                await here.broker.disconnect()
            await first.ending.wait()
            assert 14.0 <= here.now <= 15.5
            assert first.end is not None
            assert first.end.cause is Cause.COORDINATOR_LOST
            assert first.lease == 0
            with trio.move_on_after(20):
                await group.next()
            if how == "unreachable":
                here.broker.set_reachable(reachable=True)
            elif how == "stopped":
                await here.broker.start()
            second = await group.next()
            assert second.epoch > first.epoch
            assert second.state is State.RUNNING
        assert [event.end.cause for event in here.events_of(GenerationEnded)] == [
            Cause.COORDINATOR_LOST,
            Cause.CLOSED,
        ]


Fall = Callable[[Harness], Awaitable[None]]


async def _restart(here: Harness) -> None:
    await here.broker.restart_coordinator(away=0.5, loading=0.5)


async def _restart_at_once(here: Harness) -> None:
    await here.broker.restart_coordinator()


async def _cut(here: Harness) -> None:
    await trio.lowlevel.checkpoint()
    here.broker.cut_connections()


FALLS = [
    pytest.param(_restart, id="restart"),
    pytest.param(_restart_at_once, id="fail-over"),
    pytest.param(_cut, id="cut"),
]


def first_arrival(here: Harness, api: str) -> trio.Event:
    """An event that is set when the broker first receives this request."""
    arrived = trio.Event()

    def note(request: Any) -> bool:
        del request
        arrived.set()
        return False

    here.broker.slow(0.0, api, match=note)
    return arrived


PHASES = ["find_coordinator", "join_group", "metadata", "sync_group", "offset_fetch"]


@pytest.mark.parametrize("fall", FALLS)
@pytest.mark.parametrize("phase", PHASES)
async def test_the_coordinator_falls_before_the_hand_over(
    autojump_clock: MockClock, phase: str, fall: Fall
) -> None:
    """In whichever request it happens, next() returns a generation that reads and commits."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(2)
        arrived = first_arrival(here, phase)
        here.broker.slow(1.0, phase, times=2)
        async with here.group() as group:

            async def falls() -> None:
                await arrived.wait()
                await trio.sleep(0.2)
                await fall(here)

            nursery.start_soon(falls)
            with trio.fail_after(60):
                generation = await group.next()
            batch = await anext(generation.records(P0))
            assert values(batch.messages) == [0, 1]
            await generation.commit({P0: batch.next_offset})
            await trio.sleep(5)
            assert generation.state is State.RUNNING
        assert await here.committed() == {P0: 2}


@pytest.mark.parametrize("fall", FALLS)
@pytest.mark.parametrize("phase", ["running", "draining", "committing"])
async def test_the_coordinator_falls_while_a_generation_works(
    autojump_clock: MockClock, phase: str, fall: Fall
) -> None:
    """The current work is committed with its own generation's id, and read once."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(3)
        seen: list[int] = []

        async def handle(generation: Generation) -> None:
            async for batch in generation.records(P0):
                if phase == "running":
                    await fall(here)
                elif phase == "draining":
                    await generation.ending.wait()
                    await fall(here)
                else:
                    here.broker.slow(1.0, "offset_commit", times=1)
                    nursery.start_soon(fall, here)
                await generation.commit({P0: batch.next_offset})
                seen.extend(values(batch.messages))

        async def ends(generation: Generation) -> None:
            await trio.sleep(10)
            assert generation.state is not State.ENDED

        async with here.group() as group:
            first = await group.next()
            first.start_soon(handle, first)
            first.start_soon(ends, first)
            second = await group.next()
            assert seen == [0, 1, 2]
            assert first.end is not None
            assert first.end.cause is Cause.TASK_RETURNED
            assert second.start_offsets == {P0: 3}
            assert second.member_id == first.member_id


@pytest.mark.parametrize("fall", FALLS)
async def test_the_coordinator_falls_while_a_member_leaves(
    autojump_clock: MockClock, fall: Fall
) -> None:
    """The leave is sent again, within close_timeout, and the group is empty."""
    async with harness() as here, trio.open_nursery() as nursery:
        async with here.group() as group:
            await group.next()
            here.broker.slow(1.0, "leave_group", times=1)

            async def falls() -> None:
                await trio.sleep(0.5)
                await fall(here)

            nursery.start_soon(falls)
            began = here.now
        assert here.now - began < 5
        await trio.sleep(1)
        (described,) = await here.broker.groups()
        assert described.members == ()


async def test_a_leave_without_a_response_is_given_up(autojump_clock: MockClock) -> None:
    """With a dead coordinator, closing takes no longer than close_timeout."""
    async with harness() as here:
        async with here.group(close_timeout=3.0) as group:
            await group.next()
            here.broker.set_reachable(reachable=False)
            began = here.now
        assert 2.9 <= here.now - began <= 3.1
        here.broker.set_reachable(reachable=True)


@pytest.mark.parametrize("phase", PHASES)
async def test_closing_in_each_phase_before_the_hand_over(
    autojump_clock: MockClock, phase: str
) -> None:
    """Closing keeps its deadline, next() raises GroupClosedError, and the group is empty."""
    async with harness() as here, trio.open_nursery() as nursery:
        arrived = first_arrival(here, phase)
        here.broker.slow(60.0, phase)
        async with here.group() as group:

            async def closes() -> None:
                await arrived.wait()
                await trio.sleep(1)
                began = here.now
                if phase == "find_coordinator":
                    assert here.requests_for("join_group") == []
                await group.aclose()
                assert here.now - began <= group.config.close_timeout + 0.01

            nursery.start_soon(closes)
            with pytest.raises(GroupClosedError):
                await group.next()
        members = [len(one.members) for one in await here.broker.groups()]
        assert members in ([], [0])


async def test_closing_while_it_drains_and_while_it_backs_off(autojump_clock: MockClock) -> None:
    """A drain that has begun keeps its deadline; a backoff ends at once."""
    async with harness() as here:
        finished: list[float] = []

        async def slow(generation: Generation) -> None:
            await generation.ending.wait()
            await trio.sleep(6)
            await generation.commit({P0: 1}, beyond_read=True)
            finished.append(here.now)

        async with here.group() as group:
            first = await group.next()
            first.start_soon(slow, first)
            first.start_soon(trio.sleep, 1)
            await first.ending.wait()
            await trio.sleep(2)
            await group.aclose()
            assert finished == [7.0]
            assert here.now == 7.0
        assert await here.committed() == {P0: 1}
        here.broker.inject("join_group", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        long = {"rejoin_backoff": 100.0, "rejoin_backoff_max": 100.0}
        async with here.group(**long) as group:
            with trio.move_on_after(10):
                await group.next()
            began = here.now
        assert here.now == began


async def test_a_join_that_outlives_the_rebalance_is_sent_again(
    autojump_clock: MockClock,
) -> None:
    """After rebalance_timeout + 5 s it is sent with the same id on a new connection."""
    async with harness() as here, trio.open_nursery() as nursery:
        slower = ObservedMember(here, session_timeout=60.0, rebalance_timeout=40.0)
        observed = ObservedMember(here, session_timeout=60.0, rebalance_timeout=5.0)

        async def other(ready: trio.Event) -> None:
            async with slower.group() as group:
                generation = await group.next()
                ready.set()
                await generation.ending.wait()
                await trio.sleep(25)
                await group.next()
                await trio.sleep(5)

        ready = trio.Event()
        nursery.start_soon(other, ready)
        await ready.wait()
        async with observed.group() as group:
            generation = await group.next()
            joins = [it for it in observed.connections.sent if it.api == "join_group"]
            ids = [it.member_id for it in joins]
            assert ids == ["", *[generation.member_id] * (len(joins) - 1)]
            assert len(joins) >= 4
            gaps = {round(b.at - a.at) for a, b in pairwise(joins[1:])}
            assert gaps == {10}
            assert len({it.connection for it in joins[1:]}) == len(joins) - 1
            assert generation.state is State.RUNNING


async def test_a_join_whose_connection_does_not_open_is_sent_on_another(
    autojump_clock: MockClock,
) -> None:
    """The opening may take ``request_timeout``: a JoinGroup's own time is that of the rebalance."""
    async with harness() as here:
        observed = ObservedMember(here, **QUICK)
        async with observed.group() as group:
            first = await group.next()
            first.start_soon(trio.sleep, 10)
            await first.ending.wait()
            began = here.now

            def unnoticed() -> bool:
                return not observed.failures(Request.JOIN)

            observed.connections.trouble(Trouble.CUT_BEFORE, "join_group", unnoticed)
            observed.connections.trouble(Trouble.SILENT_BEFORE, "api_versions", unnoticed)
            again = await group.next()
            assert here.now - began == pytest.approx(group.config.request_timeout, abs=1)
            assert again.member_id == first.member_id


async def test_a_storm_of_member_id_required_is_slowed_down(autojump_clock: MockClock) -> None:
    """The first id is used at once; if the coordinator assigns more ids, the member backs off."""
    async with harness() as here:
        observed = ObservedMember(here)
        async with observed.group() as group:
            first = await group.next()
            first.start_soon(trio.sleep, 10)
            await first.ending.wait()
            since = len(observed.connections.sent)
            here.broker.inject("join_group", ErrorCode.MEMBER_ID_REQUIRED, times=6)
            second = await group.next()
            assert second.member_id == first.member_id
        joins = [it.at for it in observed.connections.sent[since:] if it.api == "join_group"]
        gaps = [round(b - a, 6) for a, b in pairwise(joins)]
        assert gaps[0] == 0
        for gap, wait in zip(gaps[1:], (0.1, 0.2, 0.4, 0.8, 1.6), strict=True):
            assert wait * 0.8 <= gap <= wait * 1.2
        assert len(observed.events(BackingOff)) == 5


async def test_a_fresh_member_joins_without_any_wait(autojump_clock: MockClock) -> None:
    """KIP-394 costs no backoff: the assigned id is used at once, even after a dropped one."""
    async with harness() as here:
        observed = ObservedMember(here)
        async with observed.group() as group:
            first = await group.next()
            assert here.now == 0
            await trio.sleep(10)
            here.broker.inject("heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
            await first.ending.wait()
            second = await group.next()
            assert second.member_id != first.member_id
        assert observed.events(BackingOff) == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_generations_that_are_lost_at_once_back_off(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    """If the coordinator refuses every first heartbeat, the member backs off between joins."""
    async with harness(1, **{"group.min.session.timeout.ms": "1000"}) as here:
        here.broker.inject("heartbeat", code, times=None)
        observed = ObservedMember(here, session_timeout=3.0, heartbeat_interval=0.5)
        async with observed.group() as group:
            with trio.move_on_after(60):
                while True:
                    generation = await group.next()
                    await generation.ending.wait()
        joins = [it for it in observed.connections.sent if it.api == "join_group"]
        assert len(joins) < 60


@attrs.define
class Suspended:
    """A clock beside trio's that counts the time in which the machine was suspended."""

    extra: float = 0.0

    def now(self) -> float:
        """See ``Clock``."""
        return trio.current_time() + self.extra


async def test_a_suspended_process_confirms_its_membership_and_continues(
    autojump_clock: MockClock,
) -> None:
    """Past its lease, it returns no records and commits nothing until a heartbeat is confirmed."""
    async with harness() as here:
        clock = Suspended()
        events: list[object] = []
        runtime = attrs.evolve(memory_runtime(here.broker, seed=1), clock=clock)
        config = here.config(**SHORT)
        async with ConsumerGroup(config, runtime=runtime, on_event=events.append) as group:
            generation = await group.next()
            await trio.sleep(5)
            clock.extra = 20.0
            assert generation.lease == 0
            heartbeats = len(here.requests_for("heartbeat"))
            await generation.commit({P0: 1}, beyond_read=True)
            assert len(here.requests_for("heartbeat")) == heartbeats + 1
            apis = [api for _, api, _ in here.requests if api in ("heartbeat", "offset_commit")]
            assert apis[-2:] == ["heartbeat", "offset_commit"]
            assert generation.lease > 9
        blocked = [event for event in events if isinstance(event, LoopBlocked)]
        assert [round(event.seconds) for event in blocked] == [20]
        assert "blocked" in str(blocked[0])


async def test_a_process_suspended_for_too_long_stops(autojump_clock: MockClock) -> None:
    """If the coordinator has reassigned its partitions, it returns no more records."""
    async with harness() as here:
        await here.append(3)
        clock = Suspended()
        runtime = attrs.evolve(memory_runtime(here.broker, seed=1), clock=clock)
        config = here.config(**SHORT)
        read: list[int] = []

        async def handle(generation: Generation) -> None:
            async for batch in generation.records(P0, max_records=1):
                read.extend(values(batch.messages))
                await trio.sleep(2)

        async with ConsumerGroup(config, runtime=runtime) as group:
            first = await group.next()
            first.start_soon(handle, first)
            await trio.sleep(0.5)
            clock.extra = 20.0
            here.broker.inject("heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
            await first.ending.wait()
            assert first.end is not None
            assert first.end.cause is Cause.MEMBERSHIP_LOST
            assert read == [0]


async def test_a_frozen_broker_is_noticed_by_its_silence(autojump_clock: MockClock) -> None:
    """An open connection without responses is replaced after request_timeout."""
    async with harness() as here:
        observed = ObservedMember(here, **QUICK)
        async with observed.group() as group:
            generation = await group.next()
            since = len(observed.connections.sent)
            connection = next(
                it.connection for it in observed.connections.sent if it.api == "heartbeat"
            )
            observed.connections.trouble(
                Trouble.SILENT_BEFORE, "heartbeat", lambda: not observed.failures(Request.HEARTBEAT)
            )
            await trio.sleep(8)
            assert generation.state is State.RUNNING
            beats = [it for it in observed.connections.sent[since:] if it.api == "heartbeat"]
            assert beats[-1].connection != connection
