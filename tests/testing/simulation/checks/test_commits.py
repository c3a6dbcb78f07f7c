"""Invariants 4 and 5: which commits a coordinator takes, and which ones a member makes."""

from __future__ import annotations

from kgroup.error_codes import ErrorCode
from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.commits import AcceptedCommits, OwnCommits
from tests.testing.simulation.checks.stories import P0, P1, Story, pair


def test_a_commit_of_who_is_no_member_breaks_four() -> None:
    """Whoever was evicted has nothing to say any more."""
    story = pair()
    story.generation_id = 2
    story.group("Stable", {"b": [P0, P1]})
    story.ask_to_commit("a", P0, 1, generation_id=2)
    (what,) = story.broken(AcceptedCommits)
    assert "it is not a member" in what


def test_a_commit_of_an_older_generation_breaks_four() -> None:
    """A member commits under the generation that is, or not at all."""
    story = pair()
    story.form({"a": [P0], "b": [P1]})
    story.ask_to_commit("a", P0, 1, generation_id=1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group is in generation 2" in what


def test_a_commit_while_an_assignment_is_awaited_breaks_four() -> None:
    """Until the leader has synced nobody owns anything."""
    story = pair()
    story.generation_id = 2
    story.group("CompletingRebalance")
    story.ask_to_commit("a", P0, 1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group awaits its assignment" in what


def test_a_commit_under_anothers_instance_id_breaks_four() -> None:
    """A member has one instance id."""
    story = pair()
    story.ask_to_commit("a", P0, 1, instance="other")
    (what,) = story.broken(AcceptedCommits)
    assert "its instance id is None" in what


def test_a_commit_at_the_coordinator_that_was_breaks_four() -> None:
    """Only one broker speaks for a group."""
    story = pair()
    story.move()
    story.group("Stable")
    story.node_id = 1
    story.ask_to_commit("a", P0, 1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group is coordinated by broker 2" in what


def test_what_kafka_accepts_and_refuses_keeps_four() -> None:
    """A commit while the group prepares is good; a refused one may be anything."""
    story = pair()
    story.group("PreparingRebalance")
    story.ask_to_commit("a", P0, 1)
    story.ask_to_commit("a", P0, 1, generation_id=7, error=ErrorCode.ILLEGAL_GENERATION)
    story.generation_id = 2
    story.group("Empty", {})
    story.ask_to_commit("nobody", P0, 1, generation_id=-1)
    assert story.broken(AcceptedCommits) == []


def test_a_commit_of_anothers_partition_breaks_five() -> None:
    """Even one that is refused: it should not have been sent."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.ask_to_commit("a", P1, 5, error=ErrorCode.UNKNOWN_MEMBER_ID)
    (what,) = story.broken(OwnCommits)
    assert what == "a committed orders-1 at 5 in generation 1, in which it does not own it"


def test_a_commit_past_what_was_handed_out_breaks_five() -> None:
    """What was never seen is not done."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.ask_to_commit("a", P0, 5)
    assert story.broken(OwnCommits) == []
    story.ask_to_commit("a", P0, 6)
    (what,) = story.broken(OwnCommits)
    assert "in which its position is 5" in what


def test_a_commit_restamped_with_a_newer_generation_breaks_five() -> None:
    """What was handed out in one generation is no position in the next."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.end("a")
    story.end("b")
    story.rebalance({"a": [P0], "b": [P1]})
    story.ask_to_commit("a", P0, 5)
    (what,) = story.broken(OwnCommits)
    assert "generation 2, in which its position is 0" in what


def test_a_commit_under_a_generation_that_was_never_assigned_breaks_five() -> None:
    """Nobody owns anything in it."""
    story = pair()
    story.ask_to_commit("a", P0, 0, generation_id=3)
    (what,) = story.broken(OwnCommits)
    assert "generation 3, in which it does not own it" in what


def test_the_position_that_was_found_may_be_committed_at_once() -> None:
    """A start at the log's end is committed before the program has anything."""
    story = Story().begin("a")
    story.form({"a": [P0, P1]})
    story.emit("a", OffsetReset, partition=P0, offset=7, reason="", skipped=False)
    story.ask_to_commit("a", P0, 7)
    assert story.broken(OwnCommits) == []
    story.ask_to_commit("a", P0, 8)
    assert len(story.broken(OwnCommits)) == 1
