"""Invariant 8: which records may be handed out again."""

from __future__ import annotations

import pytest

from kgroup.error_codes import ErrorCode
from kgroup.events import CommitRefused, GenerationDraining, GenerationEnded
from kgroup.testing.simulation.checks.repetitions import Repetitions
from kgroup.testing.simulation.faults import Cut
from kgroup.testing.simulation.history import FaultBegan, FaultEnded
from kgroup.types import Cause, End
from tests.testing.simulation.checks.stories import DRAIN, P0, P1, Story, pair, replaced


def uncommitted(
    cause: Cause,
    *,
    cut_short: bool = False,
    took: float = 0.0,
    refused: bool = False,
    refused_at: bool = False,
) -> Story:
    """a processes 8 records, commits 5, and its generation ends; b gets the following records."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.hand_out("a", P0, 5, 10)
    story.process("a", P0, 5, 8)
    if refused:
        story.emit("a", CommitRefused, offsets={P0: 8}, reason="", stale=False)
    if refused_at:
        story.heartbeat("a", ErrorCode.UNKNOWN_MEMBER_ID)
    story.end("a", cause, cut_short=cut_short, took=took)
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    return story


def test_a_record_before_an_acknowledged_commit_breaks_it() -> None:
    """It may not be handed out again, in the same generation or a later one."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.hand_out("a", P0, 4, 6)
    (what,) = story.broken(Repetitions)
    assert "got the record at offset 4 of orders-0 in generation 1, although a commit at 5" in what


def test_an_unacknowledged_commit_promises_nothing() -> None:
    """Records before a commit without a response may be handed out again."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.process("a", P0, 0, 5)
    story.send_commit("a", P0, 5)
    story.end("a", Cause.COORDINATOR_LOST)
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.hand_out("b", P0, 0, 5)
    assert story.broken(Repetitions) == []


@pytest.mark.parametrize("cause", [Cause.REBALANCE, Cause.CLOSED, Cause.PARTITIONS_CHANGED])
def test_a_repetition_after_a_clean_hand_over_breaks_it(cause: Cause) -> None:
    """After a clean end, processed records may not be handed out again."""
    story = uncommitted(cause)
    story.hand_out("b", P0, 5, 10)
    (what,) = story.broken(Repetitions)
    assert "an owner had processed it and handed the partition over cleanly at 8" in what


@pytest.mark.parametrize(
    "story",
    [
        uncommitted(Cause.REBALANCE, cut_short=True),
        uncommitted(Cause.REBALANCE, cut_short=True, took=0.5),
        uncommitted(Cause.MEMBERSHIP_LOST),
    ],
    ids=["no drain", "half a drain", "membership lost"],
)
def test_an_end_that_was_not_forced_breaks_it(story: Story) -> None:
    """A drain may be cut short only after its time; membership may be lost only after a refusal."""
    story.hand_out("b", P0, 5, 10)
    (what,) = story.broken(Repetitions)
    assert "handed the partition over cleanly at 8" in what


@pytest.mark.parametrize(
    "story",
    [
        uncommitted(Cause.FENCED),
        uncommitted(Cause.COORDINATOR_LOST),
        uncommitted(Cause.TASK_RAISED),
        uncommitted(Cause.MEMBERSHIP_LOST, refused_at=True),
        uncommitted(Cause.REBALANCE, cut_short=True, took=1.0),
        uncommitted(Cause.REBALANCE, refused=True),
    ],
    ids=[
        "fenced",
        "coordinator lost",
        "task raised",
        "membership lost",
        "cut short",
        "commit refused",
    ],
)
def test_what_was_not_handed_over_cleanly_may_come_again(story: Story) -> None:
    """After an unclean end, records from the last acknowledged commit on may come again."""
    story.hand_out("b", P0, 5, 10)
    assert story.broken(Repetitions) == []
    story.hand_out("b", P0, 4, 10)
    assert len(story.broken(Repetitions)) == 1


def test_a_member_that_was_removed_hands_over_nothing() -> None:
    """It was frozen past its session, and closes when it wakes, before any request is refused."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.hand_out("a", P0, 5, 10)
    story.process("a", P0, 5, 8)
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.end("a", Cause.CLOSED)
    story.hand_out("b", P0, 5, 10)
    assert story.broken(Repetitions) == []


def test_a_replaced_member_may_read_what_its_successor_has_committed() -> None:
    """It learns of its replacement from its next heartbeat; invariant 11 bounds the time."""
    story = replaced()
    story.work("twin", P0, 0, 5)
    story.hand_out("a", P0, 0, 5)
    assert story.broken(Repetitions) == []
    story.hand_out("twin", P0, 0, 5)
    assert len(story.broken(Repetitions)) == 1


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_a_refused_commit_of_a_current_member_breaks_it(state: str) -> None:
    """A refused commit would make a clean hand-over impossible."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.group(state)
    story.send_commit("a", P0, 5, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    story.send_commit("a", P0, 5, error=ErrorCode.ILLEGAL_GENERATION, generation_id=7)
    assert story.broken(Repetitions) == []
    story.send_commit("a", P0, 5, error=ErrorCode.REBALANCE_IN_PROGRESS)
    (what,) = story.broken(Repetitions)
    assert "refused a commit of a in its current generation 1 as REBALANCE_IN_PROGRESS" in what


def cut_too_short(*, loud: bool = False, heard: bool = True, took: float = 0.0) -> Story:
    """a reports a drain of no time right after a heartbeat; b gets the same records."""
    story = pair()
    if heard:
        story.live("a", "b", seconds=4)
    fault = Cut(at=0.0, process="a", broker="*")
    if loud:
        story.record(FaultBegan, fault=fault)
        story.record(FaultEnded, fault=fault)
    story.hand_out("a", P0, 0, 5)
    story.process("a", P0, 0, 3)
    story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), seconds=0.0)
    story.wait(took)
    story.emit("a", GenerationEnded, end=End(Cause.REBALANCE), cut_short=True)
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.hand_out("b", P0, 0, 5)
    return story


def test_a_drain_that_is_too_short_breaks_it() -> None:
    """After a recent heartbeat a drain lasts its time-out, or most of the rebalance time-out."""
    (what,) = cut_too_short().broken(Repetitions)
    assert "handed the partition over cleanly at 3" in what


@pytest.mark.parametrize(
    "story",
    [cut_too_short(loud=True), cut_too_short(heard=False), cut_too_short(took=DRAIN)],
    ids=["a fault just before", "never heard", "long enough"],
)
def test_a_drain_may_be_short_if_heartbeats_may_have_failed(story: Story) -> None:
    """The heartbeats may have been lost, or the time may be over."""
    assert story.broken(Repetitions) == []
