"""Invariants 4 and 5: the commits that a coordinator accepts, and those that a member makes."""

from __future__ import annotations

import pytest

from kgroup.error_codes import ErrorCode
from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.commits import AcceptedCommits, OwnCommits
from kgroup.testing.simulation.checks.starts import StartPositions
from tests.testing.simulation.checks.stories import P0, P1, Story, pair


def test_a_commit_of_a_former_member_breaks_four() -> None:
    """A coordinator must refuse the commit of a member that was evicted."""
    story = pair()
    story.generation_id = 2
    story.group("Stable", {"b": [P0, P1]})
    story.send_commit("a", P0, 1, generation_id=2)
    (what,) = story.broken(AcceptedCommits)
    assert "it is not a member" in what


def test_a_commit_of_an_older_generation_breaks_four() -> None:
    """A coordinator must refuse the commit of an older generation."""
    story = pair()
    story.form({"a": [P0], "b": [P1]})
    story.send_commit("a", P0, 1, generation_id=1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group is in generation 2" in what


def test_a_commit_while_an_assignment_is_awaited_breaks_four() -> None:
    """No commit may be accepted until the leader has sent the assignment."""
    story = pair()
    story.generation_id = 2
    story.group("CompletingRebalance")
    story.send_commit("a", P0, 1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group awaits its assignment" in what


def test_a_commit_under_anothers_instance_id_breaks_four() -> None:
    """A commit must name the member's own instance id."""
    story = pair()
    story.send_commit("a", P0, 1, instance="other")
    (what,) = story.broken(AcceptedCommits)
    assert "its instance id is None" in what


def test_a_commit_at_the_former_coordinator_breaks_four() -> None:
    """Only the current coordinator may accept a commit."""
    story = pair()
    story.move()
    story.group("Stable")
    story.node_id = 1
    story.send_commit("a", P0, 1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group is coordinated by broker 2" in what


def test_what_kafka_accepts_and_refuses_keeps_four() -> None:
    """During PreparingRebalance commits may be accepted; a refused one may be anything."""
    story = pair()
    story.group("PreparingRebalance")
    story.send_commit("a", P0, 1)
    story.send_commit("a", P0, 1, generation_id=7, error=ErrorCode.ILLEGAL_GENERATION)
    story.generation_id = 2
    story.group("Empty", {})
    story.send_commit("stranger", P0, 1, generation_id=-1)
    assert story.broken(AcceptedCommits) == []


def test_a_commit_of_anothers_partition_breaks_five() -> None:
    """A member may not even send a commit of a partition that it does not own."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.send_commit("a", P1, 5, error=ErrorCode.UNKNOWN_MEMBER_ID)
    (what,) = story.broken(OwnCommits)
    assert what == "a committed orders-1 at 5 in generation 1, in which it does not own it"


def test_a_commit_past_what_was_handed_out_breaks_five() -> None:
    """A member may not commit records that it was not handed."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.send_commit("a", P0, 5)
    assert story.broken(OwnCommits) == []
    story.send_commit("a", P0, 6)
    (what,) = story.broken(OwnCommits)
    assert "in which its position is 5" in what


def test_a_commit_restamped_with_a_newer_generation_breaks_five() -> None:
    """Records handed out in one generation are no position in the next."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.end("a")
    story.end("b")
    story.rebalance({"a": [P0], "b": [P1]})
    story.send_commit("a", P0, 5)
    (what,) = story.broken(OwnCommits)
    assert "generation 2, in which its position is 0" in what


def test_a_commit_under_a_generation_that_was_never_assigned_breaks_five() -> None:
    """A member owns nothing in a generation that never got an assignment."""
    story = pair()
    story.send_commit("a", P0, 0, generation_id=3)
    (what,) = story.broken(OwnCommits)
    assert "generation 3, in which it does not own it" in what


def test_a_start_position_may_be_committed_at_once() -> None:
    """A start at the log's end may be committed before any record is handed out."""
    story = Story().begin("a")
    story.form({"a": [P0, P1]})
    story.emit("a", OffsetReset, partition=P0, offset=7, reason="", skipped=False)
    story.send_commit("a", P0, 7)
    assert story.broken(OwnCommits) == []
    story.send_commit("a", P0, 8)
    assert len(story.broken(OwnCommits)) == 1


@pytest.mark.parametrize(
    ("offset", "sought", "faults"), [(3, False, 1), (5, False, 0), (3, True, 0)]
)
def test_a_late_commit_of_a_former_generation_breaks_five(
    *, offset: int, sought: bool, faults: int
) -> None:
    """A follower that joins a stable group again keeps its ids: no old commit may pass for new."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.end("a")
    story.report_joined("a")
    story.report_assigned("a", start_offsets={P0: 5})
    if sought:
        story.seek("a", offset)
    story.send_commit("a", P0, offset, error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert story.broken(OwnCommits) == []
    story.send_commit("a", P0, offset)
    whats = story.broken(OwnCommits)
    assert len(whats) == faults
    assert all("which started it at 5: a commit of a former generation" in what for what in whats)


# Offsets in transactions.


def test_late_offsets_of_a_former_member_break_four() -> None:
    """A TxnOffsetCommit of a member that was evicted must be refused."""
    story = pair()
    story.generation_id = 2
    story.group("Stable", {"b": [P0, P1]})
    story.add_to_transaction("a", P0, 1, generation_id=1)
    (what,) = story.broken(AcceptedCommits)
    assert "it is not a member" in what


def test_late_offsets_of_an_older_generation_break_four() -> None:
    """A TxnOffsetCommit of a generation that is over must be refused."""
    story = pair()
    story.form({"a": [P0], "b": [P1]})
    story.add_to_transaction("a", P0, 1, generation_id=1)
    (what,) = story.broken(AcceptedCommits)
    assert "the group is in generation 2" in what


def test_late_offsets_of_an_older_producer_epoch_break_four() -> None:
    """Its transaction was aborted, and the offsets must not get into the next one."""
    story = pair()
    story.add_to_transaction("a", P0, 1, epoch=1)
    story.end_transaction(committed=False)
    story.add_to_transaction("a", P0, 2, epoch=2)
    assert story.broken(AcceptedCommits) == []
    story.add_to_transaction("a", P0, 1, epoch=1)
    (what,) = story.broken(AcceptedCommits)
    assert "the producer has epoch 2, and the commit epoch 1" in what


def test_offsets_under_anothers_instance_id_break_four() -> None:
    """A TxnOffsetCommit must name the member's own instance id."""
    story = pair()
    story.add_to_transaction("a", P0, 1, instance="other")
    (what,) = story.broken(AcceptedCommits)
    assert "its instance id is None" in what


def test_offsets_that_kafka_accepts_and_refuses_keep_four() -> None:
    """They may come while an assignment is awaited, or name no member; refused ones may be any."""
    story = pair()
    story.add_to_transaction("", P0, 1, generation_id=-1)
    story.add_to_transaction("a", P0, 1, generation_id=7, error=ErrorCode.ILLEGAL_GENERATION)
    story.generation_id = 2
    story.group("CompletingRebalance")
    story.add_to_transaction("a", P0, 1)
    story.group("Empty", {})
    story.add_to_transaction("", P0, 1, generation_id=-1)
    assert story.broken(AcceptedCommits) == []


def test_a_plain_commit_that_names_no_member_still_breaks_four() -> None:
    """While a group has members, only a transaction may do so."""
    story = pair()
    story.ids["no member"] = ""
    story.send_commit("no member", P0, 1, generation_id=-1)
    (what,) = story.broken(AcceptedCommits)
    assert "it is not a member" in what


def test_offsets_of_anothers_partition_in_a_transaction_break_five() -> None:
    """Nor may a member add offsets past what it was handed."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.add_to_transaction("a", P0, 5)
    assert story.broken(OwnCommits) == []
    story.add_to_transaction("a", P0, 6)
    story.add_to_transaction("a", P1, 5)
    past, others = story.broken(OwnCommits)
    assert "in which its position is 5" in past
    assert "in which it does not own it" in others


@pytest.mark.parametrize(
    ("committed", "commits_since", "applied"),
    [(True, False, 5), (False, False, 3), (True, True, 4)],
)
def test_offsets_are_committed_with_their_transaction(
    *, committed: bool, commits_since: bool, applied: int
) -> None:
    """Until then the last commit counts, and afterwards, too, if it came after them."""
    for start in (3, 4, 5):
        story = pair()
        story.work("a", P0, 0, 3)
        story.hand_out("a", P0, 3, 5)
        story.add_to_transaction("a", P0, 5)
        if commits_since:
            story.send_commit("a", P0, 4)
        story.end_transaction(committed=committed)
        story.end("a")
        story.report_joined("a")
        story.report_assigned("a", start_offsets={P0: start})
        assert bool(story.broken(StartPositions)) == (start != applied)


def test_offsets_in_a_transaction_are_deleted_with_their_topic() -> None:
    """The transaction does not commit them for the topic that is created again."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.add_to_transaction("a", P0, 5)
    story.delete()
    story.create_again()
    story.end_transaction(committed=True)
    story.end("a")
    story.report_joined("a")
    story.report_assigned("a", start_offsets={P0: 0})
    assert story.broken(StartPositions) == []
