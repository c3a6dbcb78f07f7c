"""What a member says of itself, through its life, in virtual time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import kgroup
from kgroup.clocks import SuspendAwareClock
from kgroup.error_codes import ErrorCode
from kgroup.events import Event, GenerationDraining, GenerationEnded, Joining, RequestFailed
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch, RecordSource
from kgroup.status import GroupStatus, Phase
from kgroup.testing.memory import memory_runtime
from kgroup.watchers.brokers import MAX_AGE
from tests.group.harness import P0, harness


def reasons(group: ConsumerGroup) -> str:
    """Why a group is not ready."""
    return "; ".join(group.health().reasons)


async def test_the_phases_of_a_member(autojump_clock: MockClock) -> None:
    """From before it is entered to after it has closed, with what a generation has."""
    async with harness(2) as here:
        await here.append(50)
        group = here.group()
        assert group.status().phase is Phase.NOT_ENTERED
        async with group:
            await trio.sleep(1)
            assert group.status().phase is Phase.IDLE
            here.broker.slow(2.0, "join_group", times=2)
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await trio.sleep(1)
                    assert group.status().phase is Phase.JOINING
                    assert "no generation yet: it is joining" in reasons(group)
                    assert group.health().live

                nursery.start_soon(watch)
                generation = await group.next()
            status = group.status()
            assert (status.phase, status.epoch) == (Phase.RUNNING, generation.epoch)
            assert status.generation_id == generation.generation_id
            assert status.was_assigned
            await anext(generation.records(P0, max_records=20))
            await trio.sleep(3.25)
            status = group.status()
            assert status.lag[P0] == 30
            assert status.buffered_records == 30
            assert status.buffered_bytes > 30
            assert status.batch_age == 3.25
            assert status.age == pytest.approx(3.25)
            assert status.lease == pytest.approx(generation.lease)
            assert 0 < status.heartbeat_age < 1.1
            assert group.health().ready
            group.shutdown("enough")
            assert (group.status().phase, group.status().detail) == (Phase.CLOSING, "enough")
        assert (group.status().phase, group.status().detail) == (Phase.CLOSED, "enough")
        assert group.health().live
        assert not group.health().ready


async def test_a_member_without_partitions_is_ready(autojump_clock: MockClock) -> None:
    """More members than partitions: the one that gets none rightly idles."""
    async with (
        harness(1) as here,
        here.group() as first,
        here.group() as second,
        trio.open_nursery() as nursery,
    ):

        async def run(group: ConsumerGroup) -> None:
            async for _ in group:
                pass

        nursery.start_soon(run, first)
        nursery.start_soon(run, second)
        await trio.sleep(30)
        assert sorted(len(group.status().lag) for group in (first, second)) == [0, 1]
        assert first.health().ready
        assert second.health().ready
        first.shutdown()
        second.shutdown()


async def test_brokers_that_are_away(autojump_clock: MockClock) -> None:
    """First heartbeats are unconfirmed, then the lease is over, then there is no generation."""
    async with harness() as here, here.group(session_timeout=30.0) as group:
        await group.next()
        await trio.sleep(5)
        away = here.broker.slow(1000.0)
        await trio.sleep(12)
        assert "has confirmed no heartbeat for 1" in reasons(group)
        await trio.sleep(10)
        assert group.health().live
        away.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.next)
            await trio.sleep(60)
            assert group.health().ready
            nursery.cancel_scope.cancel()


async def test_a_stuck_handler_is_reported_and_runs_on(autojump_clock: MockClock) -> None:
    """The member is live and not ready; the handler is not interrupted, and ready ends that."""
    async with harness() as here, here.group() as group:
        await here.append(5)
        done = trio.Event()

        async def handle(generation: Generation) -> None:
            async for _ in generation.records():
                await trio.sleep(400)
                done.set()

        generation = await group.next()
        generation.start_soon(handle, generation)
        await trio.sleep(301)
        health = group.health()
        assert (health.live, health.ready) == (True, False)
        assert "a handler has had its batch for 30" in reasons(group)
        assert group.health(stuck_after=None).ready
        await done.wait()
        await trio.sleep(1)
        assert group.health().ready


async def test_a_drain_that_hangs(autojump_clock: MockClock) -> None:
    """A rebalance is normal for a while, and then not ready, with what it waits for."""
    async with harness() as here, here.group(drain_timeout=50.0) as group:
        generation = await group.next()

        async def handle() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(200)

        generation.start_soon(handle)
        generation.start_soon(trio.lowlevel.checkpoint)  # which returns, so that the drain begins
        await trio.sleep(30)
        assert here.events_of(GenerationDraining)
        assert (group.status().phase, group.health().ready) == (Phase.DRAINING, True)
        assert not group.health(hanging_after=20).ready
        await trio.sleep(50)
        group.unsubscribe()
        await trio.sleep(10)
        group.subscribe(["topic"])  # which ends no work
        await trio.sleep(40)
        assert "no generation for 130.0 s: the work of its last one has not ended" in reasons(group)


async def test_work_that_outlasts_a_lost_generation(autojump_clock: MockClock) -> None:
    """It keeps the member out of the group: not ready soon, and not live if it goes on."""
    async with harness() as here, here.group(rebalance_timeout=60.0) as group:
        generation = await group.next()

        async def handle() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(400)

        generation.start_soon(handle)
        here.broker.inject("heartbeat", ErrorCode.UNKNOWN_MEMBER_ID, 1)
        await generation.ending.wait()
        for seconds, live, ready in ((59.0, True, True), (2.0, True, False), (240.0, False, False)):
            await trio.sleep(seconds)
            health = group.health()
            assert (health.status.phase, health.live, health.ready) == (
                Phase.DRAINING,
                live,
                ready,
            )
        assert health.status.without_generation == pytest.approx(301)
        assert not here.events_of(GenerationEnded)
        assert health.status.lag == {}
        await generation.wait_ended()
        await trio.sleep(1)
        assert group.status().phase is Phase.IDLE
        assert group.status().without_generation == pytest.approx(401, abs=1)


async def test_a_failure_is_not_live(autojump_clock: MockClock) -> None:
    """A handler's exception closes the group: a restart helps, and the reason names it."""
    async with harness() as here:
        group = here.group()

        async def handle() -> None:
            await trio.sleep(1)
            raise ValueError("bad")

        with pytest.RaisesGroup(pytest.RaisesExc(ValueError)):
            async with group:
                generation = await group.next()
                generation.start_soon(handle)
                await trio.sleep_forever()
        health = group.health()
        assert (health.live, health.status.phase) == (False, Phase.FAILED)
        assert health.reasons == ("an error closed the group: ValueError: bad",)


async def test_a_group_that_was_cancelled(autojump_clock: MockClock) -> None:
    """It is closed, which no restart would help, and has no generation and no batch any more."""
    async with harness() as here:
        group = here.group()
        await here.append(1)
        with trio.move_on_after(5):
            async with group:
                await anext((await group.next()).records())
                await trio.sleep_forever()
        await trio.sleep(400)
        health = group.health()
        assert (health.status.phase, health.live) == (Phase.CLOSED, True)
        assert health.reasons == ("the group is closed (the program cancels the group)",)
        assert health.status == GroupStatus(
            group_id="group",
            phase=Phase.CLOSED,
            detail="the program cancels the group",
            without_generation=health.status.without_generation,
            was_assigned=True,
            lost=health.status.lost,
        )


async def test_the_end_of_a_member_that_loses_its_partitions_in_a_drain(
    autojump_clock: MockClock,
) -> None:
    """It says that functions were cut off, by a loss, and that nobody has confirmed its leaving."""
    async with harness() as here:
        await here.append(1)
        group = here.group(session_timeout=6.0, drain_timeout=60.0)

        async def handle(_: Generation, __: Batch) -> None:
            here.broker.set_reachable(reachable=False)
            group.shutdown()
            await trio.sleep_forever()

        async with group:
            await kgroup.serve(group, handle)
        status = group.status()
        assert (status.cut_short, status.lost, status.leave_unconfirmed) == (True, True, True)


async def test_the_end_of_a_member_that_joins_after_a_drain_that_was_cut_short(
    autojump_clock: MockClock,
) -> None:
    """What was cut off in an earlier generation is no part of this end."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        await here.append(1)
        cut: list[bool] = []

        async def handle(_: Generation, __: Batch) -> None:
            nursery.start_soon(other)
            await trio.sleep_forever()

        async def other() -> None:
            async with here.group(client_id="other") as joining:
                with trio.move_on_after(60):
                    await joining.next()

        def close_while_joining(event: Event) -> None:
            if isinstance(event, GenerationEnded):
                cut.append(group.status().cut_short)
                here.broker.slow(30.0, "join_group")
            elif isinstance(event, Joining) and cut:
                assert group.status().phase is Phase.JOINING
                group.shutdown()

        runtime = memory_runtime(here.broker)
        config = here.config(drain_timeout=1.0)
        async with ConsumerGroup(config, runtime=runtime, on_event=close_while_joining) as group:
            await kgroup.serve(group, handle)
        assert cut == [True]
        status = group.status()
        assert (status.cut_short, status.lost, status.leave_unconfirmed) == (False, False, False)
        nursery.cancel_scope.cancel()


def test_an_event_loop_that_died() -> None:
    """An error of trio's own ends the loop, and another thread sees it."""
    groups: list[ConsumerGroup] = []

    async def main() -> None:
        async with harness() as here:
            runtime = attrs.evolve(memory_runtime(here.broker), clock=SuspendAwareClock())
            group = ConsumerGroup(here.config(), runtime=runtime)
            groups.append(group)
            async with group:
                trio.lowlevel.current_trio_token().run_sync_soon(crash)
                await trio.sleep_forever()

    def crash() -> None:
        raise ValueError("bad")

    with pytest.raises(trio.TrioInternalError):
        trio.run(main)
    health = groups[0].health()
    assert (health.live, health.status.phase) == (False, Phase.FAILED)
    assert "its event loop has ended" in health.reasons[0]


def test_an_event_loop_that_ends_after_its_group_was_cancelled() -> None:
    """The group stays closed, and live."""

    async def main() -> ConsumerGroup:
        async with harness() as here:
            runtime = attrs.evolve(memory_runtime(here.broker), clock=SuspendAwareClock())
            group = ConsumerGroup(here.config(), runtime=runtime)
            with trio.CancelScope() as scope:
                async with group:
                    scope.cancel()
                    await group.next()
            return group

    health = trio.run(main).health()
    assert (health.live, health.status.phase) == (True, Phase.CLOSED)


async def test_a_record_source_that_fails_in_an_unknown_way(autojump_clock: MockClock) -> None:
    """Its exception has closed the group, so that the member is not live."""

    def no_source(*_: object) -> RecordSource:
        raise ZeroDivisionError("on purpose")

    async with harness() as here:
        runtime = attrs.evolve(memory_runtime(here.broker), record_source=no_source)
        group = ConsumerGroup(here.config(), runtime=runtime)
        with pytest.RaisesGroup(ZeroDivisionError):
            async with group:
                await group.next()
        health = group.health()
        assert (health.live, health.status.phase) == (False, Phase.FAILED)
        assert "ZeroDivisionError: on purpose" in health.status.detail


async def test_a_status_while_the_first_generation_begins(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that another thread still sees joining is not ready, however soon it is."""
    async with harness() as here:
        here.broker.slow(1.0, "join_group")
        async with here.group() as group, trio.open_nursery() as nursery:
            nursery.start_soon(group.next)
            await trio.sleep(0.5)
            phase_of = group._phase

            def begun_meanwhile(*args: Any, **named: Any) -> tuple[Phase, str]:
                found = phase_of(*args, **named)
                group._recorder.started_at = 1.0
                return found

            monkeypatch.setattr(group, "_phase", begun_meanwhile)
            health = group.health()
            assert health.status.phase is Phase.JOINING
            assert not health.ready
            nursery.cancel_scope.cancel()


async def test_a_failure_is_not_why_a_program_that_wants_no_generation_has_none(
    autojump_clock: MockClock,
) -> None:
    """The brokers' addresses are requested meanwhile too, and that may fail, and be long over."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        generation.start_soon(trio.lowlevel.checkpoint)
        await generation.wait_ended()
        await here.broker.stop()
        await trio.sleep(2 * MAX_AGE)
        failed = {event.request for event in here.events_of(RequestFailed)}
        assert "Metadata" in failed
        assert (group.status().phase, group.status().detail) == (Phase.IDLE, "")
        await here.broker.start()


async def test_a_generation_that_the_program_does_not_fetch(autojump_clock: MockClock) -> None:
    """It has all that it needs to start, and waits only for the program to call `next()`."""
    async with harness() as here, here.group() as group:
        here.broker.slow(1.0, "offset_fetch")
        with trio.move_on_after(0.5):
            await group.next()
        await trio.sleep(5)
        assert group.status().phase is Phase.IDLE
        assert "no generation yet: the program does not wait in next(), for 5" in reasons(group)
        await group.next()
        assert group.status().phase is Phase.RUNNING


async def test_a_failure_that_is_over_is_not_the_detail_of_a_generation(
    autojump_clock: MockClock,
) -> None:
    """A heartbeat that is confirmed again, or the end of the generation, makes it old."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        await trio.sleep(10)
        loading = here.broker.inject("heartbeat", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
        await trio.sleep(2)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in group.status().detail
        loading.cancel()
        await trio.sleep(10)
        assert (group.status().phase, group.status().detail) == (Phase.RUNNING, "")

        here.broker.slow(60.0, "join_group")
        generation.start_soon(trio.lowlevel.checkpoint)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.next)
            await trio.sleep(50)
            health = group.health()
            assert (health.status.phase, health.status.detail) == (Phase.JOINING, "")
            assert health.reasons[0].endswith("it is joining the group")
            nursery.cancel_scope.cancel()
