"""A member between two generations: what it does before it joins again, and how it leaves."""

from __future__ import annotations

import random
from logging import INFO, WARNING
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.client.subscription import Subscription
from kgroup.clocks import TrioClock
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthorizationError,
    ConnectionLostError,
    FencedInstanceError,
    LeaseExpiredError,
    RequestTimeoutError,
)
from kgroup.event_emitter import EventEmitter
from kgroup.events import BackingOff, CoordinatorFound, Event, Left, RequestFailed
from kgroup.member import Member
from kgroup.runtime import Runtime
from kgroup.types import Cause, End
from kgroup.worker_thread import compute_inline
from tests.client.test_cluster import coordinator_of
from tests.client.test_coordinator import left
from tests.fake_brokers import FakeBrokers
from tests.generation.fakes import FakeSource

LOST = ConnectionLostError("gone", sent=True)


def refused(request: Request, code: ErrorCode) -> Exception:
    """An error as the coordinator's client raises it."""
    return broker_error(request, code)


class Between:
    """A member with an id, whose generation is over."""

    def __init__(self, nursery: trio.Nursery, **settings: Any) -> None:
        self.nodes = FakeBrokers(nursery)
        self.nodes.add("a:1", find_coordinator=coordinator_of)
        self.coordinator = self.nodes.add("b:9", find_coordinator=coordinator_of, leave_group=left)
        self.events: list[Event] = []
        source: Any = FakeSource()
        self.member = Member(
            self.nodes.config(**settings),
            Runtime(
                open_stream=self.nodes.open,
                clock=TrioClock(),
                random=random.Random(1),
                record_source=lambda *_: source,
                compute=lambda: compute_inline,
            ),
            EventEmitter("g", self.events.append),
            source,
            Subscription(("topic",)),
            self,
        )
        self.member._member_id = "m-1"

    async def recover(
        self, end: End, *, failure: Any = None, handed_over: bool = True, lived: float = 100.0
    ) -> float:
        """Let the member recover from a generation with this end; return the seconds."""
        before = trio.current_time()
        last: Any = SimpleNamespace(
            end=end, failure=failure, handed_over=handed_over, lived=lived, rebalance_request=None
        )
        await self.member.recover(last)
        return trio.current_time() - before

    def waits(self) -> list[float]:
        """The seconds of each wait that an event reported."""
        return [event.seconds for event in self.events if isinstance(event, BackingOff)]

    def found(self) -> int:
        """How often the member searched for the coordinator and found it."""
        return sum(isinstance(event, CoordinatorFound) for event in self.events)


def lost(error: Exception | None) -> End:
    """The end of a generation whose coordinator was away."""
    return End(Cause.COORDINATOR_LOST, "away", error)


#: An end, whether the member searches for the coordinator, and whether it keeps its id.
ENDS = [
    (End(Cause.REBALANCE), False, True),
    (End(Cause.PARTITIONS_CHANGED), False, True),
    (End(Cause.CLOSED), False, True),
    (End(Cause.MEMBERSHIP_LOST, "", LeaseExpiredError("late")), False, True),
    (lost(None), True, True),
    (lost(LOST), True, True),
    (lost(RequestTimeoutError("silent")), True, True),
    (
        End(Cause.MEMBERSHIP_LOST, "", refused(Request.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)),
        False,
        False,
    ),
    (
        End(Cause.MEMBERSHIP_LOST, "", refused(Request.COMMIT, ErrorCode.ILLEGAL_GENERATION)),
        False,
        True,
    ),
]


@pytest.mark.parametrize(("end", "finds", "keeps"), ENDS)
async def test_after_each_end(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    end: End,
    *,
    finds: bool,
    keeps: bool,
) -> None:
    """The first end costs no wait; the search and the member id are as in the table."""
    it = Between(nursery)
    assert await it.recover(end) == 0
    assert it.found() == int(finds)
    assert bool(it.member._member_id) is keeps


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused(Request.HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID), FencedInstanceError),
        (
            refused(Request.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED),
            AuthorizationError,
        ),
    ],
)
async def test_a_fatal_error_is_raised(
    nursery: trio.Nursery, autojump_clock: MockClock, error: Any, kind: type[Exception]
) -> None:
    """The error of the end is raised unchanged, without a wait."""
    it = Between(nursery)
    with pytest.raises(kind) as caught:
        await it.recover(End(Cause.FENCED, "", error))
    assert caught.value is error
    assert it.waits() == []


async def test_a_failure_before_the_hand_over_counts_for_its_request(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The row of SyncGroup decides: after an unknown error the member first leaves."""
    it = Between(nursery)
    error = refused(Request.SYNC, ErrorCode.UNKNOWN_SERVER_ERROR)
    end = End(Cause.MEMBERSHIP_LOST, "", error)
    assert await it.recover(end, failure=(Request.SYNC, error), handed_over=False) > 0
    assert len(it.nodes.requests("leave_group")) == 1
    assert it.member._member_id == ""


async def test_losses_in_a_row_back_off_and_a_long_life_ends_the_row(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The first loss costs no wait, later ones more and more, until a generation lasts."""
    it = Between(nursery)
    end = End(Cause.MEMBERSHIP_LOST, "", refused(Request.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION))
    took = [await it.recover(end, lived=1.0) for _ in range(4)]
    assert took[0] == 0
    assert 0.08 <= took[1] <= 0.12
    assert 0.16 <= took[2] <= 0.24
    assert 0.32 <= took[3] <= 0.48
    assert await it.recover(end, lived=100.0) == 0
    assert await it.recover(end, lived=100.0, handed_over=False) > 0


async def test_handlers_that_return_at_once_slow_down(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The waits grow up to the longest back-off, and end after a generation that lasts longer."""
    it = Between(nursery)
    end = End(Cause.TASK_RETURNED, "handle returned")
    took = [await it.recover(end, lived=0.5) for _ in range(10)]
    assert took[:6] == sorted(took[:6])
    assert 0.08 <= took[0] <= 0.12
    assert took[-1] == pytest.approx(5)
    assert await it.recover(end, lived=5.1) == 0
    assert await it.recover(end, lived=0.5) < 0.13
    assert await it.recover(End(Cause.REBALANCE), lived=0.5) == 0
    assert "handle returned, after a generation of 0.5 s" in str(it.events[-1])


async def test_a_handler_that_returns_at_once_again_is_advised_to_loop(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Once may be meant; from the second time in a row on it is a warning."""
    it = Between(nursery)
    end = End(Cause.TASK_RETURNED, "handle returned")
    for lived in (0.5, 0.5, 0.5, 100.0, 0.5):
        await it.recover(end, lived=lived)
    waits = [event for event in it.events if isinstance(event, BackingOff)]
    assert ["loop over" in str(event) for event in waits] == [False, True, True, False]
    assert [event.severity for event in waits] == [INFO, WARNING, WARNING, INFO]


async def test_a_member_leaves_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """An event reports it; a second call finds no member id, and sends nothing."""
    it = Between(nursery)
    await it.member.leave("closed")
    await it.member.leave("closed")
    (request,) = it.nodes.requests("leave_group")
    assert request.members[0].member_id == "m-1"
    assert [str(event) for event in it.events if isinstance(event, Left)] == [
        "group g: left the group: closed"
    ]
    await it.member.aclose()


async def test_a_static_member_stays(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """It sends no LeaveGroup, and the event says why."""
    it = Between(nursery, group_instance_id="one")
    await it.member.leave("closed")
    (event,) = it.events
    assert "stopped without leaving the group: closed (a static member stays)" in str(event)
    assert it.nodes.requests("leave_group") == []


async def test_a_refused_leave_is_reported_and_over(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An error in the response fails nothing, and the member has left."""
    it = Between(nursery)
    it.coordinator.answers["leave_group"] = lambda frame: left(frame, member_code=25)
    await it.member.leave("closed")
    assert [type(event) for event in it.events] == [RequestFailed, Left]
    assert "UNKNOWN_MEMBER_ID" in str(it.events[-1])
    assert it.member._member_id == ""
    await it.member.aclose()


async def test_a_cancelled_leave_is_reported_too(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If the deadline of closing cancels the leave, the event says that it did not succeed."""
    it = Between(nursery)
    it.coordinator.up = False
    with trio.move_on_after(5) as scope:
        await it.member.leave("closed")
    assert scope.cancelled_caught
    assert isinstance(it.events[-1], Left)
    assert not it.events[-1].notified
    assert it.member._member_id  # for another LeaveGroup
