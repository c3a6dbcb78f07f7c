"""Invariant 11: an instance id has one member at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import attrs
import pytest

from kgroup.error_codes import ErrorCode
from kgroup.events import CommitRefused
from kgroup.testing.simulation.checks.handovers import Handovers
from kgroup.testing.simulation.checks.instances import Instances
from kgroup.testing.simulation.faults import BrokerDies, Fault, Split, Stop
from kgroup.testing.simulation.history import (
    FaultBegan,
    FaultEnded,
    ProcessCrashed,
    ProcessFrozen,
    ProcessThawed,
    SimulationEnded,
)
from kgroup.testing.simulation.network import Latency
from kgroup.types import Cause
from tests.testing.simulation.checks.stories import (
    DRAIN,
    P0,
    P1,
    PLAN,
    REQUEST,
    SESSION,
    Story,
    replaced,
)

SPLIT: Final = Split(at=0.0, seconds=1.0, process="a", broker="*")
OTHERS: Final = Split(at=0.0, seconds=1.0, process="b", broker="*")
DIES: Final = BrokerDies(at=0.0, seconds=1.0, broker="b1")
STOP: Final = Stop(at=0.0, seconds=1.0, process="b")


def test_two_members_with_one_instance_id_break_it() -> None:
    """A group may have only one member with an instance id."""
    story = Story()
    story.instances = {"a": "one", "b": "one"}
    story.begin("a", "b")
    story.form({"a": [P0], "b": [P1]})
    assert "has 2 members with the instance id 'one'" in story.broken(Instances)[-1]


def test_a_replaced_member_reads_on_until_its_next_request() -> None:
    """A replaced member learns of it from its next request, which is refused."""
    story = replaced()
    story.hand_out("a", P0, 0, 1)
    story.hand_out("twin", P0, 0, 1)
    story.heartbeat("a", ErrorCode.FENCED_INSTANCE_ID)
    story.end("a", Cause.FENCED)
    story.record(SimulationEnded)
    assert story.broken(Instances) == []


def test_a_successful_heartbeat_breaks_it() -> None:
    """A replaced member's heartbeat must be refused, or it would never learn of it."""
    story = replaced()
    story.heartbeat("twin")
    assert story.broken(Instances) == []
    story.heartbeat("a")
    (what,) = story.broken(Instances)
    assert "answered a heartbeat of 'a-id' without an error" in what


def test_records_after_its_session_break_it() -> None:
    """It may get no records after its session, by when its lease is over."""
    story = replaced()
    story.wait(SESSION - 1)
    story.hand_out("a", P0, 0, 1)
    assert story.broken(Instances) == []
    story.wait(1)
    story.hand_out("a", P0, 1, 2)
    (what,) = story.broken(Instances)
    assert "a was handed orders-0 from 1 on, 10.0" in what


def test_a_member_that_never_notices_breaks_it() -> None:
    """It must notice in time."""
    for late in (True, False):
        story = replaced()
        story.wait(SESSION + 2)
        if late:
            story.end("a", Cause.FENCED)
        story.record(SimulationEnded)
        (what,) = story.broken(Instances)
        assert "a in generation 1 did not notice for 12.0" in what


def commit_refused(story: Story, *, sent: float) -> None:
    """The commit of "a" that was sent so many seconds after its replacement gets no answer."""
    seconds = story.at - replaced().at - sent
    story.emit("a", CommitRefused, offsets={P0: 1}, reason="", stale=True, seconds=seconds)


def test_a_commit_that_was_sent_before_may_delay_the_end() -> None:
    """The generation of a member that noticed in time waits for the response to such a commit."""
    for sent in (-3.0, SESSION):
        story = replaced()
        story.wait(SESSION + 5)
        commit_refused(story, sent=sent)
        story.end("a", Cause.MEMBERSHIP_LOST)
        story.record(SimulationEnded)
        assert story.broken(Instances) == []


@pytest.mark.parametrize(
    ("waited", "sent", "after"),
    [
        pytest.param(5.0, SESSION + 2, 0.0, id="sent when the session was over"),
        pytest.param(5.0, -3.0, 2.0, id="answered long before the end"),
        pytest.param(DRAIN + 3, -3.0, 0.0, id="waited for too long"),
        pytest.param(5.0, -3.0, math.inf, id="never ended"),
    ],
)
def test_no_other_commit_delays_the_end(waited: float, sent: float, after: float) -> None:
    """A member that still commits, or waits for anything else, has not noticed."""
    story = replaced()
    story.wait(SESSION + waited)
    commit_refused(story, sent=sent)
    if after < math.inf:
        story.wait(after)
        story.end("a", Cause.MEMBERSHIP_LOST)
    else:
        story.wait(SESSION)
    story.record(SimulationEnded)
    (what,) = story.broken(Instances)
    assert "a in generation 1 did not notice for" in what


@pytest.mark.parametrize("thawed", [True, False])
def test_a_frozen_member_notices_when_it_thaws(thawed: bool) -> None:
    """A frozen member need not notice before it thaws."""
    story = replaced()
    story.record(ProcessFrozen, process="a", life=1)
    story.wait(SESSION * 3)
    if thawed:
        story.record(ProcessThawed, process="a", life=1)
        story.end("a", Cause.FENCED)
    story.record(SimulationEnded)
    assert story.broken(Instances) == []


@pytest.mark.parametrize(("seconds", "notices"), [(3.7, True), (3.9, False)])
def test_a_slow_network_delays_what_a_thawed_member_learns(seconds: float, notices: bool) -> None:
    """It may have to connect and to log in again first: seven round trips of 0.4 s at most."""
    story = replaced(attrs.evolve(PLAN, latency=Latency(0.01, 0.2)))
    story.record(ProcessFrozen, process="a", life=1)
    story.wait(SESSION * 3)
    story.record(ProcessThawed, process="a", life=1)
    story.wait(seconds)
    story.end("a", Cause.FENCED)
    story.record(SimulationEnded)
    assert bool(story.broken(Instances)) is not notices


LONG = 2 * REQUEST


@pytest.mark.parametrize(
    ("fault", "began", "ended", "seconds", "notices"),
    [
        pytest.param(SPLIT, -9.0, -1.0, 0.5, True, id="no fault, and it is in time"),
        pytest.param(SPLIT, -9.0, -1.0, 2.0, False, id="the fault ended before it woke"),
        pytest.param(SPLIT, -1.0, 0.5, LONG, True, id="the fault ended after it woke"),
        pytest.param(SPLIT, -1.0, math.inf, LONG, True, id="the fault has not ended"),
        pytest.param(SPLIT, 0.5, math.inf, LONG, True, id="the fault began as it woke"),
        pytest.param(SPLIT, 2.0, math.inf, LONG, False, id="the fault began too late"),
        pytest.param(DIES, -1.0, 0.5, LONG, True, id="a fault of a broker"),
        pytest.param(SPLIT, -1.0, 0.5, LONG + 2, False, id="it waits for longer than time-outs"),
        pytest.param(STOP, -1.0, 0.5, 2.0, False, id="a fault that delays no answer"),
        pytest.param(OTHERS, -1.0, 0.5, 2.0, False, id="a fault of another member"),
    ],
)
def test_a_fault_may_delay_what_a_thawed_member_learns_from(
    fault: Fault, began: float, ended: float, seconds: float, notices: bool
) -> None:
    """It learns of its replacement from answers, and waits for each no longer than a time-out."""
    story = replaced()
    story.record(ProcessFrozen, process="a", life=1)
    story.wait(SESSION * 3)
    steps: list[tuple[float, Callable[[], None]]] = [
        (began, lambda: story.record(FaultBegan, fault=fault, members=(), coordinator="Stable")),
        (0.0, lambda: story.record(ProcessThawed, process="a", life=1)),
        (ended, lambda: story.record(FaultEnded, fault=fault)),
        (seconds, lambda: story.end("a", Cause.FENCED)),
    ]
    thaws = story.at
    for at, step in sorted(steps, key=lambda one: one[0]):
        if at < math.inf:
            story.at = thaws + at
            step()
    story.record(SimulationEnded)
    assert bool(story.broken(Instances)) is not notices


def test_a_fault_excuses_no_member_that_was_not_frozen() -> None:
    """Such a member has its lease, and ends when that is over."""
    story = replaced()
    story.record(FaultBegan, fault=SPLIT, members=(), coordinator="Stable")
    story.wait(SESSION + 2)
    story.end("a", Cause.FENCED)
    story.record(SimulationEnded)
    assert len(story.broken(Instances)) == 1


def test_a_crashed_member_need_not_notice() -> None:
    """A crashed member need not notice."""
    story = replaced()
    story.record(ProcessCrashed, process="a", life=1)
    story.wait(SESSION * 3)
    story.record(SimulationEnded)
    assert story.broken(Instances) == []


def test_a_replaced_program_that_joins_again_breaks_it() -> None:
    """Otherwise the two would take the instance id from each other for ever."""
    story = replaced()
    story.end("a", Cause.FENCED)
    story.ids["a"] = "a-second-id"
    story.group("Stable", {"a": [P0, P1]})
    story.report_joined("a")
    (what,) = story.broken(Instances)
    assert what == ("a has joined again, although twin had taken its instance id 'one'")


@pytest.mark.parametrize("cause", [Cause.MEMBERSHIP_LOST, Cause.REBALANCE])
def test_a_program_that_had_lost_its_membership_is_a_new_one(cause: Cause) -> None:
    """It joins as if it had just started, also if a failover brought its old member id back."""
    story = Story()
    story.instances = {"a": "one"}
    story.begin("a")
    story.rebalance({"a": [P0, P1]})
    story.end("a", cause)
    story.instances["twin"] = "one"
    story.answer_join(story.park_join("twin", known=False), "twin")
    story.at_once()
    story.group("Stable", {"twin": [P0, P1]})
    story.report_joined("twin")
    story.ids["a"] = "a-second-id"
    story.group("Stable", {"a": [P0, P1]})
    story.report_joined("a")
    assert bool(story.broken(Instances)) is (cause is Cause.REBALANCE)


def test_a_replacement_lost_in_a_failover_does_not_count() -> None:
    """A new coordinator does not know a replacement that was not written."""
    story = replaced()
    story.group("Stable", {"a": [P0, P1]})
    story.heartbeat("a")
    story.hand_out("a", P0, 0, 1)
    assert story.broken(Instances) == []


def test_a_member_replaced_before_its_join_is_answered_has_joined_once() -> None:
    """The response to its JoinGroup was still under way."""
    story = Story()
    story.instances = {"a": "one", "twin": "one"}
    story.begin("a", "twin")
    story.answer_join(story.park_join("a", known=False), "a")
    story.group("Stable", {"a": [P0, P1]})
    story.answer_join(story.park_join("twin", known=False), "twin")
    story.group("Stable", {"twin": [P0, P1]})
    story.report_joined("a")
    assert story.broken(Instances) == []


def test_a_member_replaced_before_its_join_is_answered_must_notice_too() -> None:
    """It starts a generation that is no longer its own, and must learn of that in time."""
    story = Story()
    story.instances = {"a": "one", "twin": "one"}
    story.begin("a", "twin")
    story.answer_join(story.park_join("a", known=False), "a")
    story.group("Stable", {"a": [P0, P1]})
    story.answer_join(story.park_join("twin", known=False), "twin")
    story.group("Stable", {"twin": [P0, P1]})
    story.report_joined("a")
    story.report_assigned("a", [P0, P1])
    assert story.broken(Handovers) == []
    story.wait(SESSION + 2)
    story.record(SimulationEnded)
    (what,) = story.broken(Instances)
    assert "did not notice for 12.0" in what


def test_joining_again_with_the_replaced_member_id_breaks_it() -> None:
    """The coordinator must refuse a replaced member id."""
    story = replaced()
    story.end("a", Cause.FENCED)
    story.answer_join(story.park_join("a"), "a")
    story.report_joined("a")
    assert len(story.broken(Instances)) == 1
