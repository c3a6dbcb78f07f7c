"""Invariant 2: nobody gets a partition before its old owner is done with it, or is out."""

from __future__ import annotations

from kgroup.events import GenerationDraining
from kgroup.testing.simulation.checks.handovers import Handovers
from kgroup.testing.simulation.history import ProcessCrashed, ProcessFrozen, ProcessThawed
from kgroup.types import Cause, End
from tests.testing.simulation.checks.stories import P0, P1, REBALANCE, SESSION, Story, pair


def test_a_new_owner_before_the_old_one_has_ended_breaks_it() -> None:
    """a has joined the next generation with its old one still open."""
    story = pair()
    story.end("b")
    story.rebalance({"a": [P1], "b": [P0]})
    whats = story.broken(Handovers)
    assert len(whats) == 1
    assert "b in generation 2 received orders-0" in whats[0]


def passed_over(seconds: float) -> Story:
    """A rebalance that waits so long for a, which is static and does not come."""
    story = Story()
    story.instances = {"a": "one"}
    story.begin("a", "b")
    story.rebalance({"a": [P0], "b": [P1]})
    story.end("b")
    story.group("PreparingRebalance")
    story.wait(seconds)
    ticket = story.ask_to_join("b")
    story.generation_id = 2
    story.answer_join(ticket, "b")
    story.group("CompletingRebalance")
    story.told_joined("b")
    story.group("Stable", {"a": [], "b": [P0, P1]})
    story.told_assigned("b")
    return story


def test_a_rebalance_that_did_not_wait_for_a_member_breaks_it() -> None:
    """A member may be left out when the rebalance time-out is over, and not before."""
    (what,) = passed_over(REBALANCE - 1).broken(Handovers)
    assert "it is a member, and the coordinator waited only" in what


def test_a_member_that_was_waited_for_in_vain_may_be_passed_over() -> None:
    """A static member stays in the group, and its partitions go to others."""
    story = passed_over(REBALANCE + 0.1)
    assert story.broken(Handovers) == []
    story.generation_id = 1
    story.hand_out("a", P0, 0, 1)
    (what,) = story.broken(Handovers)
    assert "the group was already in generation 2" in what


def test_who_has_crashed_need_not_end_first() -> None:
    """Nobody is there any more; the coordinator waits for its session."""
    story = pair()
    story.record(ProcessCrashed, process="a", life=1)
    story.live("b", seconds=SESSION + 1)
    story.end("b")
    story.group("PreparingRebalance", {"b": [P1]})
    story.rebalance({"b": [P0, P1]})
    assert story.broken(Handovers) == []


def test_an_eviction_within_the_session_breaks_it() -> None:
    """a was heard from just now."""
    story = pair()
    story.live("a", "b", seconds=3)
    story.end("b")
    story.group("PreparingRebalance", {"b": [P1]})
    (what,) = story.broken(Handovers)
    assert (
        "a (member 'a-id') was evicted before its session and rebalance time-outs were over" in what
    )


def test_an_eviction_by_a_rebalance_that_has_just_begun_breaks_it() -> None:
    """a still has time to come."""
    story = pair()
    story.live("a", "b", seconds=3)
    story.group("PreparingRebalance")
    story.live("a", "b", seconds=3)
    story.ask_to_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance", {"b": [P1]})
    assert len(story.broken(Handovers)) == 1


def test_who_leaves_or_stays_away_may_be_removed() -> None:
    """By its own word, or when the rebalance time-out is over."""
    story = pair()
    story.live("a", "b", seconds=3)
    story.leave("a")
    story.group("PreparingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []
    story = pair()
    story.group("PreparingRebalance")
    story.live("a", "b", seconds=REBALANCE + 1)
    story.ask_to_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []


def test_who_does_not_sync_in_time_may_be_removed_and_nobody_else() -> None:
    """The pending-sync timer runs in a stable group too."""
    story = pair()
    story.live("a", "b", seconds=REBALANCE + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    assert len(story.broken(Handovers)) == 1
    unsynced = [one for one in story.history if getattr(one, "api", "") != "sync_group"]
    story.history = unsynced
    assert story.broken(Handovers) == []


def test_records_for_who_was_evicted_break_it() -> None:
    """It thaws, and its lease was not looked at."""
    story = pair()
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    story.hand_out("a", P0, 0, 5)
    (what,) = story.broken(Handovers)
    assert what == ("a was handed orders-0 from 0 on, in generation 1: it had been evicted")


def test_records_of_a_generation_that_is_over_break_it() -> None:
    """From the beginning of its end on."""
    story = pair()
    story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), deadline=1.0)
    story.hand_out("a", P0, 0, 5)
    (what,) = story.broken(Handovers)
    assert "it had reported the end of the generation" in what
    story.end("a")
    story.hand_out("a", P0, 5, 6)
    assert len(story.broken(Handovers)) == 2


def test_records_of_anothers_partition_break_it() -> None:
    """Or of a generation that the program never heard of."""
    story = pair()
    story.hand_out("a", P1, 0, 5)
    (what,) = story.broken(Handovers)
    assert "it does not own it" in what
    story.epochs["a"] = 7
    story.hand_out("a", P0, 0, 5)
    assert "it had not received that generation" in story.broken(Handovers)[1]


def test_a_member_that_is_taken_along_without_joining_breaks_it() -> None:
    """Only a static one stays without a word."""
    story = pair()
    story.end("a")
    story.end("b")
    story.group("PreparingRebalance")
    story.wait(REBALANCE + 1)
    story.ask_to_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance")
    (what,) = story.broken(Handovers)
    assert what == "a (member 'a-id') is in generation 2, for which it has not joined"


def test_work_of_who_was_evicted_breaks_it() -> None:
    """Its tasks should have been cancelled with its lease."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    story.process("a", P0, 0, 1)
    (what,) = story.broken(Handovers)
    assert what == (
        "a in generation 1 processed the record 0 of orders-0 after it had been evicted"
    )


def test_who_stood_still_may_go_on_with_what_it_holds() -> None:
    """Until it has asked, it cannot know."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.record(ProcessFrozen, process="a", life=1)
    story.live("b", seconds=SESSION + 1)
    story.group("PreparingRebalance", {"b": [P1]})
    story.record(ProcessThawed, process="a", life=1)
    story.process("a", P0, 0, 1)
    assert story.broken(Handovers) == []


def test_a_drain_that_outlasts_the_rebalance_breaks_it() -> None:
    """Whoever drains has to be done before the group goes on without it."""
    story = pair()
    story.group("PreparingRebalance")
    story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), deadline=99.0)
    story.live("a", "b", seconds=REBALANCE + 1)
    story.ask_to_join("b")
    story.generation_id = 2
    story.group("CompletingRebalance", {"b": [P1]})
    (what,) = story.broken(Handovers)
    assert what.startswith("a in generation 1 was still draining when the group completed")


def test_a_drain_that_the_session_ends_is_no_fault() -> None:
    """A member that cannot be heard is evicted by its session, whatever it does meanwhile."""
    story = pair()
    story.live("a", "b", seconds=1)
    story.group("PreparingRebalance")
    story.live("b", seconds=SESSION)
    story.emit("a", GenerationDraining, end=End(Cause.TASK_RAISED), deadline=99.0)
    story.wait(1.0)
    story.ask_to_join("b")
    story.group("PreparingRebalance", {"b": [P1]})
    assert story.broken(Handovers) == []
