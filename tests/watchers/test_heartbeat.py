"""The heartbeat loop: when it sends heartbeats, which responses end it, and blocked loops."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.beat import Beat
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.client.lease import Lease
from kgroup.clocks import TrioClock
from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, ConnectionLostError
from kgroup.events import LoopBlocked
from kgroup.types import Cause
from kgroup.watchers.heartbeat import Heartbeats, Pace, heartbeat_waits
from tests.generation.fakes import MEMBERSHIP, FakeCoordinator, RecordingEmitter, backoff

LOST = ConnectionLostError("gone", sent=True)


def refused(code: ErrorCode) -> BrokerError:
    """The error of a heartbeat."""
    return broker_error(Request.HEARTBEAT, code)


class Jumping:
    """Trio's clock, with jumps that a test makes as if the process were suspended."""

    def __init__(self) -> None:
        self.jumped = 0.0

    def now(self) -> float:
        """See ``Clock``."""
        return trio.current_time() + self.jumped


class FromNow:
    """A wall clock that is 0 when the test begins."""

    def __init__(self) -> None:
        self._began = trio.current_time()

    def now(self) -> float:
        """See ``Clock``."""
        return trio.current_time() - self._began


class Beating:
    """The heartbeats of one membership, and their reports."""

    def __init__(
        self,
        interval: float = 1.0,
        clock: Jumping | TrioClock | None = None,
        request_timeout: float = math.inf,
    ) -> None:
        clock = clock or TrioClock()
        self.coordinator = FakeCoordinator()
        self.emitter = RecordingEmitter()
        self.lease = Lease(
            clock,
            session_timeout=30.0,
            rebalance_timeout=60.0,
            joined_at=clock.now(),
            on_confirm=lambda: None,
        )
        self.synced = trio.Event()
        self.synced.set()
        self.beats = Heartbeats(
            self.coordinator,
            MEMBERSHIP,
            self.lease,
            Pace(
                interval=interval,
                beat=Beat(FromNow(), ""),
                session_timeout=30.0,
                request_timeout=request_timeout,
                clock=clock,
                backoff=backoff,
            ),
            cast("Any", self.emitter),
            self.synced,
        )

    @property
    def reports(self) -> list[Request]:
        """The requests whose failures were reported."""
        return [request for request, _ in self.emitter.reports]

    @property
    def blocked(self) -> list[float]:
        """How long the event loop stood still, each time that it was reported."""
        return [event.seconds for event in self.emitter.events if isinstance(event, LoopBlocked)]


@pytest.mark.parametrize(
    ("interval", "waits"),
    [
        (1.0, [0, 0.25, 0.5, 1, 1, 1]),
        (0.25, [0, 0.25, 0.25]),
        (0.1, [0, 0.1, 0.1]),
        (3.0, [0, 0.25, 0.5, 1, 2, 3, 3]),
        (60.0, [0, 0.25, 0.5, 1, 2, 4, 60, 60]),
    ],
)
def test_the_first_heartbeats_come_quicker(interval: float, waits: list[float]) -> None:
    """The waits are 0, then 0.25 s, doubled at most five times, and never over the interval."""
    assert list(islice(heartbeat_waits(interval), len(waits))) == waits


async def test_heartbeats_follow_their_interval_until_a_rebalance(
    autojump_clock: MockClock,
) -> None:
    """Each response without an error confirms the lease from the sending time of its request."""
    it = Beating()
    it.coordinator.beats = [*[0.0] * 6, refused(ErrorCode.REBALANCE_IN_PROGRESS)]
    began = trio.current_time()
    end = await it.beats.until_rebalance()
    assert end.cause is Cause.REBALANCE
    assert [at - began for at in it.coordinator.beaten] == pytest.approx([0, 0.25, 0.5, 1, 2, 3, 4])
    assert it.lease.unconfirmed_for == pytest.approx(1)
    assert it.lease.left == pytest.approx(30)
    assert it.reports == []


async def test_heartbeats_continue_through_the_drain(autojump_clock: MockClock) -> None:
    """They renew the session until the membership is lost."""
    it = Beating()
    it.coordinator.beats = [
        *[refused(ErrorCode.REBALANCE_IN_PROGRESS)] * 40,
        refused(ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    end = await it.beats.until_lost()
    assert end.cause is Cause.MEMBERSHIP_LOST
    assert len(it.coordinator.beaten) == 41
    assert it.lease.left == pytest.approx(60 - it.lease.unconfirmed_for)


async def test_a_throttled_member_waits(autojump_clock: MockClock) -> None:
    """The next heartbeat waits for the throttle time; then the usual intervals follow."""
    it = Beating()
    it.coordinator.beats = [7.0, 0.0, refused(ErrorCode.REBALANCE_IN_PROGRESS)]
    began = trio.current_time()
    await it.beats.until_rebalance()
    assert [at - began for at in it.coordinator.beaten] == pytest.approx([0, 7.25, 7.5])


async def test_no_throttling_outlasts_the_session(autojump_clock: MockClock) -> None:
    """For a throttle time of 24 days, the wait is a third of the session timeout."""
    it = Beating()
    it.coordinator.beats = [(2**31 - 1) / 1000, 0.0, refused(ErrorCode.REBALANCE_IN_PROGRESS)]
    began = trio.current_time()
    await it.beats.until_rebalance()
    assert [at - began for at in it.coordinator.beaten] == pytest.approx([0, 10.25, 10.5])


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Cause.MEMBERSHIP_LOST),
        (ErrorCode.ILLEGAL_GENERATION, Cause.MEMBERSHIP_LOST),
        (ErrorCode.FENCED_INSTANCE_ID, Cause.FENCED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Cause.MEMBERSHIP_LOST),
    ],
)
async def test_a_loss_ends_the_heartbeats_at_once(
    autojump_clock: MockClock, code: ErrorCode, cause: Cause
) -> None:
    """The end has the cause and the error, and the failure is reported."""
    it = Beating()
    it.coordinator.beats = [refused(code)]
    end = await it.beats.until_rebalance()
    assert end.cause is cause
    assert end.error is not None
    assert str(end.error) in str(end)
    assert it.reports == [Request.HEARTBEAT]


async def test_transient_errors_are_retried_within_the_interval(
    autojump_clock: MockClock,
) -> None:
    """Retries never wait for longer than the interval, because the lease runs meanwhile."""
    it = Beating()
    it.coordinator.beats = [
        *[refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 12,
        refused(ErrorCode.REBALANCE_IN_PROGRESS),
    ]
    end = await it.beats.until_rebalance()
    assert end.cause is Cause.REBALANCE
    beaten = it.coordinator.beaten
    waits = [after - before for before, after in pairwise(beaten)]
    assert max(waits) <= 1
    assert waits[-1] == pytest.approx(1)
    assert it.coordinator.found == 0


async def test_a_coordinator_that_moved_is_found(autojump_clock: MockClock) -> None:
    """The first search for the new coordinator comes without a wait."""
    it = Beating()
    it.coordinator.beats = [
        refused(ErrorCode.NOT_COORDINATOR),
        refused(ErrorCode.REBALANCE_IN_PROGRESS),
    ]
    await it.beats.until_rebalance()
    assert it.coordinator.found == 1
    assert it.coordinator.beaten[0] == it.coordinator.beaten[1]


async def test_an_unauthorized_lookup_loses_the_coordinator(
    autojump_clock: MockClock,
) -> None:
    """The end has the error, which the group raises."""
    it = Beating()
    forbidden = broker_error(Request.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    it.coordinator.beats = [LOST]
    it.coordinator.finds = [forbidden]
    end = await it.beats.until_rebalance()
    assert (end.cause, end.error) == (Cause.COORDINATOR_LOST, forbidden)


@pytest.mark.parametrize("silent", [True, False])
async def test_unavailable_until_the_lease_expires(autojump_clock: MockClock, silent: bool) -> None:
    """The coordinator is lost one session timeout after the last confirmed heartbeat was sent."""
    it = Beating()
    it.coordinator.beats = [0.0, *([trio.sleep_forever] if silent else [LOST] * 500)]
    it.coordinator.finds = [LOST] * 500
    began = trio.current_time()
    end = await it.beats.until_rebalance()
    assert end.cause is Cause.COORDINATOR_LOST
    assert trio.current_time() - began == pytest.approx(30)
    assert "before the lease expired" in end.detail


async def test_a_loop_that_stood_still_is_named(autojump_clock: MockClock) -> None:
    """A block of over a third of the session timeout is reported, a shorter one is not."""
    clock = Jumping()
    it = Beating(clock=clock)

    async def stand_still() -> None:
        for seconds in (9.0, 11.0):
            await trio.sleep(1.3)
            clock.jumped += seconds
        await trio.sleep(1.3)
        it.coordinator.beats = [refused(ErrorCode.REBALANCE_IN_PROGRESS)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stand_still)
        await it.beats.until_rebalance()
    assert it.blocked == pytest.approx([11])


@pytest.mark.parametrize(("seconds", "named"), [(13.0, [12.5]), (9.0, []), (0.0, [])])
async def test_a_loop_that_stood_still_is_named_also_if_the_generation_ends_first(
    autojump_clock: MockClock, seconds: float, named: list[float]
) -> None:
    """What has blocked it may notice before the heartbeat does that the lease is over."""
    clock = Jumping()
    it = Beating(clock=clock)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.beats.until_rebalance)
            await trio.sleep(10.3)  # within a wait for the next heartbeat
            clock.jumped += seconds
            scope.cancel()
    # The wait that was cut short would have gone on for a part of the interval.
    assert it.blocked == pytest.approx(named, abs=1)


@pytest.mark.parametrize("known", [True, False])
async def test_a_process_suspended_past_its_lease_sends_one_heartbeat(
    autojump_clock: MockClock, known: bool
) -> None:
    """The generation continues only if the coordinator responds that it knows the member."""
    clock = Jumping()
    it = Beating(clock=clock)

    async def sleep() -> None:
        await trio.sleep(1.3)
        clock.jumped += 100
        if not known:
            it.coordinator.beats = [LOST]
            it.coordinator.finds = [trio.sleep_forever]
        await trio.sleep(5)
        it.coordinator.beats = [refused(ErrorCode.REBALANCE_IN_PROGRESS)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep)
        end = await it.beats.until_rebalance()
    assert end.cause is (Cause.REBALANCE if known else Cause.COORDINATOR_LOST)
    assert it.blocked == pytest.approx([100])


async def test_a_process_suspended_during_a_heartbeat(autojump_clock: MockClock) -> None:
    """A failure that is detected after the lease has expired ends the generation."""
    clock = Jumping()
    it = Beating(clock=clock)

    async def stand_still() -> None:
        clock.jumped += 100
        raise LOST

    it.coordinator.beats = [stand_still]
    end = await it.beats.until_rebalance()
    assert (end.cause, end.error) == (Cause.COORDINATOR_LOST, LOST)
    assert end.detail.endswith("before the lease expired (gone)")


async def play_suspension(it: Beating, clock: Jumping) -> Cause:
    """Suspend the process past its lease; return the end, or REBALANCE for none within a minute."""
    with trio.move_on_after(60):
        async with trio.open_nursery() as nursery:

            async def sleep() -> None:
                await trio.sleep(1.3)
                clock.jumped += 100

            nursery.start_soon(sleep)
            return (await it.beats.until_rebalance()).cause
    return Cause.REBALANCE


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (None, Cause.REBALANCE),
        (
            broker_error(Request.SYNC, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            Cause.COORDINATOR_LOST,
        ),
        (broker_error(Request.SYNC, ErrorCode.NOT_COORDINATOR), Cause.COORDINATOR_LOST),
        # Old coordinators answer so while they load.
        (broker_error(Request.SYNC, ErrorCode.REBALANCE_IN_PROGRESS), Cause.COORDINATOR_LOST),
        (LOST, Cause.COORDINATOR_LOST),
        (trio.sleep_forever, Cause.COORDINATOR_LOST),
        (broker_error(Request.SYNC, ErrorCode.UNKNOWN_MEMBER_ID), Cause.MEMBERSHIP_LOST),
        (broker_error(Request.SYNC, ErrorCode.ILLEGAL_GENERATION), Cause.MEMBERSHIP_LOST),
    ],
)
async def test_past_the_lease_a_heartbeats_answer_needs_a_sync_group_beside_it(
    autojump_clock: MockClock, answer: Any, cause: Cause
) -> None:
    """A coordinator that loads answers heartbeats of evicted members, too, without an error."""
    clock = Jumping()
    it = Beating(clock=clock, request_timeout=10.0)
    it.coordinator.syncs = [answer]
    assert await play_suspension(it, clock) is cause
    assert it.coordinator.synced == 1
    assert (it.lease.left > 0) is (answer is None)


async def test_before_it_has_its_assignment_a_member_sends_no_other_sync_group(
    autojump_clock: MockClock,
) -> None:
    """A leader's would give the group an empty assignment."""
    clock = Jumping()
    it = Beating(clock=clock)
    it.synced = it.beats._synced = trio.Event()
    assert await play_suspension(it, clock) is Cause.REBALANCE
    assert (it.coordinator.synced, it.lease.left > 0) == (0, True)
