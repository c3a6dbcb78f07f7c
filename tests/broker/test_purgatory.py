"""The purgatory: requests that wait for the coordinator, and its timer."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from kgroup.broker.groups import requests, responses
from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.purgatory import Alarm, GroupPurgatory
from tests.broker.recording_observer import RecordingObserver


def purgatory() -> GroupPurgatory:
    """A purgatory with a coordinator that knows one topic."""
    numbers = itertools.count()
    settings = CoordinatorSettings(initial_rebalance_delay=3.0)
    return GroupPurgatory(
        GroupCoordinatorService(settings, lambda: f"id{next(numbers)}", lambda topic: 1)
    )


def join(version: int = 3, member_id: str = "") -> requests.JoinGroup:
    """A JoinGroup of a new member, or of one with an id."""
    return requests.JoinGroup(
        group_id="g",
        version=version,
        client_id="c",
        client_host="/h",
        session_timeout=10.0,
        rebalance_timeout=10.0,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(requests.Protocol("range", b""),),
    )


async def test_the_timer_runs_at_the_set_times(autojump_clock: trio.testing.MockClock) -> None:
    """A timer that is set again to an earlier time runs at that time."""
    times, rung = [100.0], list[float]()

    def ring() -> None:
        rung.append(trio.current_time())
        times.pop(0)

    alarm = Alarm(lambda: times[0] if times else None, ring)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.run)
        await trio.sleep(10)
        times.insert(0, 20.0)
        alarm.reschedule()
        await trio.sleep_until(200)
        times.append(250.0)
        alarm.reschedule()
        await trio.sleep_until(300)
        nursery.cancel_scope.cancel()
    assert rung == [20.0, 100.0, 250.0]


async def test_a_parked_request_is_answered_by_a_timer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A first JoinGroup waits exactly for the initial delay."""
    waiting = purgatory()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.alarm.run)
        answer = await waiting.handle(join(), responses.JoinCompleted)
        nursery.cancel_scope.cancel()
    assert trio.current_time() == 3.0
    assert answer.generation_id == 1


async def test_a_cancelled_request_has_been_handled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After a cancelled JoinGroup the member is in the group, and others get responses."""
    waiting = purgatory()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.alarm.run)
        with trio.move_on_after(1):
            await waiting.handle(join(), responses.JoinCompleted)
        await waiting.handle(join(), responses.JoinCompleted)
        nursery.cancel_scope.cancel()
    group = waiting.coordinator.group("g")
    assert group is not None
    assert len(group.members) == 2
    assert not waiting._waiting


async def test_a_request_that_is_never_answered_gives_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The older copy of a repeated parked JoinGroup ends without a response, as in Kafka."""
    waiting = purgatory()
    gave: list[responses.JoinCompleted | None] = []

    async def handle(member_id: str) -> None:
        gave.append(
            await waiting.handle_parkable(join(member_id=member_id), responses.JoinCompleted)
        )

    refused = await waiting.handle(join(version=4), responses.JoinCompleted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.alarm.run)
        async with trio.open_nursery() as askers:
            askers.start_soon(handle, refused.member_id)
            await trio.testing.wait_all_tasks_blocked()
            askers.start_soon(handle, refused.member_id)
        nursery.cancel_scope.cancel()
    assert gave[0] is None
    assert gave[1] is not None


async def test_an_answer_of_another_kind_is_a_defect(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A response of the wrong type, or a missing one, raises."""
    with pytest.raises(TypeError, match="was answered with"):
        await purgatory().handle(requests.ListGroups(), responses.JoinCompleted)
    waiting = purgatory()
    refused = await waiting.handle(join(version=4), responses.JoinCompleted)
    again = join(member_id=refused.member_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.alarm.run)

        async def older() -> None:
            with pytest.raises(TypeError, match="never answered"):
                await waiting.handle(again, responses.JoinCompleted)

        async with trio.open_nursery() as askers:
            askers.start_soon(older)
            await trio.testing.wait_all_tasks_blocked()
            await waiting.handle(again, responses.JoinCompleted)
        nursery.cancel_scope.cancel()


async def test_an_observer_sees_requests_and_their_responses(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A response is reported with the request that caused it, also for another request."""
    waiting, observer = purgatory(), RecordingObserver()
    waiting.observer = observer
    refused = await waiting.handle(join(version=4), responses.JoinCompleted)
    again = join(member_id=refused.member_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.handle_parkable, again, responses.JoinCompleted)
        await trio.testing.wait_all_tasks_blocked()
        leaver = requests.LeavingMember(member_id=refused.member_id, group_instance_id=None)
        leave = requests.LeaveGroup(group_id="g", version=3, members=(leaver,))
        await waiting.handle(leave, responses.LeaveCompleted)
    first, parked, left = observer.requests
    assert [request for request, _, _ in observer.requests] == [join(version=4), again, leave]
    assert [(one.ticket, one.response) for one in first[2]] == [(first[1], refused)]
    assert list(parked[2]) == []
    assert {one.ticket for one in left[2]} == {parked[1], left[1]}
    assert observer.expiries == []


async def test_an_observer_sees_the_responses_of_timers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The response to a JoinGroup that waited for the initial delay belongs to its timer."""
    waiting, observer = purgatory(), RecordingObserver()
    waiting.observer = observer
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.alarm.run)
        answer = await waiting.handle(join(), responses.JoinCompleted)
        nursery.cancel_scope.cancel()
    ((_, ticket, at_once),) = observer.requests
    assert list(at_once) == []
    ((answered,),) = observer.expiries
    assert (answered.ticket, answered.response) == (ticket, answer)
