"""Invariant 2: a partition changes owners only after its previous owner is done or evicted."""

from __future__ import annotations

import pytest

from kgroup.error_codes import ErrorCode
from kgroup.events import GenerationDraining
from kgroup.testing.simulation.checks.handovers import Handovers
from kgroup.testing.simulation.faults import Split
from kgroup.testing.simulation.history import (
    FaultBegan,
    ProcessCrashed,
    ProcessFrozen,
    ProcessThawed,
)
from kgroup.types import Cause, End
from tests.testing.simulation.checks.stories import (
    P0,
    P1,
    REBALANCE,
    REQUEST,
    SESSION,
    Story,
    pair,
)

CUT = Split(at=1.0, process="a", broker="*", seconds=9.0)


def test_a_new_owner_before_the_old_one_has_ended_breaks_it() -> None:
    """a may not join the next generation while its old one is open."""
    story = pair()
    story.end("b")
    story.rebalance({"a": [P1], "b": [P0]})
    whats = story.broken(Handovers)
    assert len(whats) == 1
    assert "b in generation 2 received orders-0" in whats[0]


def passed_over(seconds: float) -> Story:
    """A rebalance that waits ``seconds`` for a, which is static and does not join."""
    story = Story()
    story.instances = {"a": "one"}
    story.begin("a", "b")
    story.rebalance({"a": [P0], "b": [P1]})
    story.end("b")
    story.group("PreparingRebalance")
    story.wait(seconds)
    ticket = story.park_join("b")
    story.generation_id = 2
    story.answer_join(ticket, "b")
    story.group("CompletingRebalance")
    story.report_joined("b")
    story.group("Stable", {"a": [], "b": [P0, P1]})
    story.report_assigned("b")
    return story


def test_a_rebalance_that_did_not_wait_for_a_member_breaks_it() -> None:
    """A rebalance may complete without a member only after the rebalance time-out."""
    (what,) = passed_over(REBALANCE - 1).broken(Handovers)
    assert "it is a member, and the coordinator waited only" in what


def test_a_member_that_misses_the_rebalance_may_lose_its_partitions() -> None:
    """After the time-out a static member stays, but its partitions may be reassigned."""
    story = passed_over(REBALANCE + 0.1)
    assert story.broken(Handovers) == []
    story.generation_id = 1
    story.hand_out("a", P0, 0, 1)
    (what,) = story.broken(Handovers)
    assert "the group was already in generation 2" in what


def test_a_crashed_member_need_not_end_first() -> None:
    """A crashed program ends nothing; the coordinator waits for its session to expire."""
    story = pair()
    story.record(ProcessCrashed, process="a", life=1)
    story.live("b", seconds=SESSION + 1)
    story.end("b")
    story.group("PreparingRebalance", {"b": [P1]})
    story.rebalance({"b": [P0, P1]})
    assert story.broken(Handovers) == []


def test_an_eviction_within_the_session_breaks_it() -> None:
    """A member may not be evicted right after its heartbeat."""
    story = pair()
    story.live("a", "b", seconds=3)
    story.end("b")
    story.group("PreparingRebalance", {"b": [P1]})
    (what,) = story.broken(Handovers)
    assert (
        "a (member 'a-id') was evicted before its session and rebalance time-outs were over" in what
    )


def test_an_eviction_by_a_rebalance_that_has_just_begun_breaks_it() -> None:
    """A member may not be evicted while it still has time to join."""
    story = pair()
    story.live("a", "b", seconds=3)
    story.group("PreparingRebalance")
    story.live("a", "b", seconds=3)
    story.park_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance", {"b": [P1]})
    assert len(story.broken(Handovers)) == 1


def test_a_member_that_leaves_or_stays_away_may_be_removed() -> None:
    """A member may be removed after its LeaveGroup or after the rebalance time-out."""
    story = pair()
    story.live("a", "b", seconds=3)
    story.leave("a")
    story.group("PreparingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []
    story = pair()
    story.group("PreparingRebalance")
    story.live("a", "b", seconds=REBALANCE + 1)
    story.park_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []


def test_only_a_member_that_does_not_sync_in_time_may_be_removed() -> None:
    """The pending-sync timer also runs in a stable group."""
    story = pair()
    story.live("a", "b", seconds=REBALANCE + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    assert len(story.broken(Handovers)) == 1
    unsynced = [one for one in story.history if getattr(one, "api", "") != "sync_group"]
    story.history = unsynced
    assert story.broken(Handovers) == []


def test_a_generation_id_that_is_used_again_needs_another_sync() -> None:
    """After a failover the same id may be another generation, for which nobody has synced."""
    story = pair()
    story.move()
    story.live("a", "b", seconds=1)
    story.group("PreparingRebalance")
    story.park_join("a")
    story.park_join("b")
    story.group("CompletingRebalance")
    story.live("a", "b", seconds=REBALANCE + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []


def test_records_for_an_evicted_member_break_it() -> None:
    """After a freeze no record may be handed out without a valid lease."""
    story = pair()
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    story.hand_out("a", P0, 0, 5)
    (what,) = story.broken(Handovers)
    assert what == ("a was handed orders-0 from 0 on, in generation 1: it had been evicted")


def test_records_of_a_generation_that_is_over_break_it() -> None:
    """No record may be handed out once the end of the generation has begun."""
    story = pair()
    story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), seconds=1.0)
    story.hand_out("a", P0, 0, 5)
    (what,) = story.broken(Handovers)
    assert "it had reported the end of the generation" in what
    story.end("a")
    story.hand_out("a", P0, 5, 6)
    assert len(story.broken(Handovers)) == 2


def test_records_of_anothers_partition_break_it() -> None:
    """No record may be handed out of another member's partition or of an unknown generation."""
    story = pair()
    story.hand_out("a", P1, 0, 5)
    (what,) = story.broken(Handovers)
    assert "it does not own it" in what
    story.epochs["a"] = 7
    story.hand_out("a", P0, 0, 5)
    assert "it had not received that generation" in story.broken(Handovers)[1]


def test_a_dynamic_member_that_did_not_join_breaks_it() -> None:
    """Only a static member may stay in the group without joining."""
    story = pair()
    story.end("a")
    story.end("b")
    story.group("PreparingRebalance")
    story.wait(REBALANCE + 1)
    story.park_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance")
    (what,) = story.broken(Handovers)
    assert what == "a (member 'a-id') is in generation 2, for which it has not joined"


def test_work_of_an_evicted_member_breaks_it() -> None:
    """The tasks of an evicted member must be cancelled when its lease is over."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    story.process("a", P0, 0, 1)
    (what,) = story.broken(Handovers)
    assert what == (
        "a in generation 1 processed the record at offset 0 of orders-0 after it had been evicted"
    )


def test_a_thawed_program_may_continue_until_a_response() -> None:
    """After a freeze a program may process what it holds until it gets a response."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.record(ProcessFrozen, process="a", life=1)
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    story.record(ProcessThawed, process="a", life=1)
    story.process("a", P0, 0, 1)
    assert story.broken(Handovers) == []


@pytest.mark.parametrize("network", [None, CUT])
def test_a_thawed_program_does_not_work_for_long(network: Split | None) -> None:
    """The first response, which a cut network may delay, ends what an evicted program does."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.record(ProcessFrozen, process="a", life=1)
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    if network is not None:
        story.record(FaultBegan, fault=network)
    story.record(ProcessThawed, process="a", life=1)
    story.wait(2.0)
    story.process("a", P0, 0, 1)
    assert len(story.broken(Handovers)) == (network is None)
    story.wait(2 * REQUEST)
    story.process("a", P0, 1, 2)
    assert len(story.broken(Handovers)) == 1 + (network is None)


def test_a_freeze_excuses_no_work_once_the_membership_was_confirmed() -> None:
    """Once a heartbeat after the freeze was answered, the program is as any other."""
    for confirmed in (True, False):
        story = pair()
        story.hand_out("a", P0, 0, 5)
        story.record(ProcessFrozen, process="a", life=1)
        story.record(FaultBegan, fault=CUT)
        story.record(ProcessThawed, process="a", life=1)
        if confirmed:
            story.heartbeat("a")
        story.wait(SESSION + 0.1)
        story.group("PreparingRebalance", {"b": [P1]})
        story.process("a", P0, 0, 1)
        assert len(story.broken(Handovers)) == confirmed


def test_a_freeze_excuses_no_drain_that_began_after_it() -> None:
    """A drain has the same time as any other if a heartbeat came between the freeze and it."""
    for confirmed, faults in ((True, 1), (False, 0)):
        story = pair()
        story.record(ProcessFrozen, process="a", life=1)
        story.record(ProcessThawed, process="a", life=1)
        if confirmed:
            story.heartbeat("a")
        story.group("PreparingRebalance")
        story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), seconds=99.0)
        story.wait(REBALANCE + 1)
        story.heartbeat("a", error=ErrorCode.REBALANCE_IN_PROGRESS)
        story.park_join("b")
        story.generation_id = 2
        story.group("CompletingRebalance", {"b": [P1]})
        assert len(story.broken(Handovers)) == faults


def test_a_drain_that_outlasts_the_rebalance_breaks_it() -> None:
    """A drain must end before the group completes the rebalance without the member."""
    story = pair()
    story.group("PreparingRebalance")
    story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), seconds=99.0)
    story.live("a", "b", seconds=REBALANCE + 1)
    story.park_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance", {"b": [P1]})
    (what,) = story.broken(Handovers)
    assert what.startswith("a in generation 1 was still draining when the group completed")


def test_a_drain_may_outlast_an_expired_session() -> None:
    """A disconnected member may still drain when its session expires."""
    story = pair()
    story.live("a", "b", seconds=1)
    story.group("PreparingRebalance")
    story.live("b", seconds=SESSION)
    story.emit("a", GenerationDraining, end=End(Cause.TASK_RAISED), seconds=99.0)
    story.wait(1.0)
    story.park_join("b")
    story.group("PreparingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []


@pytest.mark.parametrize("renewal", ["join", "commit"])
def test_an_eviction_within_the_session_that_no_heartbeat_renewed_breaks_it(renewal: str) -> None:
    """The answer to a JoinGroup, and a commit that is accepted, renew a session as well."""
    for waited, faults in ((SESSION - 1, 1), (SESSION + 1, 0)):
        story = pair()
        story.wait(2 * SESSION)
        if renewal == "join":
            story.end("a")
            story.end("b")
            story.rebalance({"a": [P0], "b": [P1]})
        else:
            story.send_commit("a", P0, 0)
        story.wait(waited)
        story.heartbeat("b")
        story.group("PreparingRebalance", {"b": [P1]})
        assert len(story.broken(Handovers)) == faults


@pytest.mark.parametrize(
    ("cause", "cut_short", "faults"),
    [
        (Cause.REBALANCE, False, 1),
        (Cause.REBALANCE, True, 0),
        (Cause.MEMBERSHIP_LOST, False, 0),
    ],
)
def test_work_after_a_generation_that_was_not_cut_short_breaks_it(
    cause: Cause,
    cut_short: bool,
    faults: int,
) -> None:
    """A generation that drains ends after its work; one that is lost, or out of time, may not."""
    story = pair()
    story.hand_out("a", P0, 0, 2)
    story.end("a", cause, cut_short=cut_short)
    story.process("a", P0, 0, 1)
    assert len(story.broken(Handovers)) == faults
