"""Invariant 8: from where a record may come again."""

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
    """a processes 8 records, commits 5, and its generation ends; b gets what follows."""
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
    """In the same generation or a later one."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.hand_out("a", P0, 4, 6)
    (what,) = story.broken(Repetitions)
    assert "got the record 4 of orders-0 in generation 1, although a commit at 5" in what


def test_an_unacknowledged_commit_promises_nothing() -> None:
    """Nobody was told of it."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.process("a", P0, 0, 5)
    story.ask_to_commit("a", P0, 5)
    story.end("a", Cause.COORDINATOR_LOST)
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.hand_out("b", P0, 0, 5)
    assert story.broken(Repetitions) == []


@pytest.mark.parametrize("cause", [Cause.REBALANCE, Cause.CLOSED, Cause.PARTITIONS_CHANGED])
def test_a_repetition_after_a_clean_hand_over_breaks_it(cause: Cause) -> None:
    """There was time to commit what was processed."""
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
    """A drain that is cut short has had its time, and who has lost its membership was refused."""
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
    """From the last acknowledged commit on, and not from before."""
    story.hand_out("b", P0, 5, 10)
    assert story.broken(Repetitions) == []
    story.hand_out("b", P0, 4, 10)
    assert len(story.broken(Repetitions)) == 1


def test_who_does_not_know_of_its_replacement_may_read_what_the_other_has_committed() -> None:
    """It hears of it with its next heartbeat; invariant 11 says until when."""
    story = replaced()
    story.work("twin", P0, 0, 5)
    story.hand_out("a", P0, 0, 5)
    assert story.broken(Repetitions) == []
    story.hand_out("twin", P0, 0, 5)
    assert len(story.broken(Repetitions)) == 1


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_a_refusal_that_a_current_member_does_not_deserve_breaks_it(state: str) -> None:
    """What it has done would come again, however well it drains."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.group(state)
    story.ask_to_commit("a", P0, 5, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    story.ask_to_commit("a", P0, 5, error=ErrorCode.ILLEGAL_GENERATION, generation_id=7)
    assert story.broken(Repetitions) == []
    story.ask_to_commit("a", P0, 5, error=ErrorCode.REBALANCE_IN_PROGRESS)
    (what,) = story.broken(Repetitions)
    assert "refused a commit of a in its current generation 1 as REBALANCE_IN_PROGRESS" in what


def told_too_short(*, loud: bool = False, heard: bool = True, took: float = 0.0) -> Story:
    """a is told a drain of no time, although it was heard just now; b gets the same records."""
    story = pair()
    if heard:
        story.live("a", "b", seconds=4)
    fault = Cut(at=0.0, process="a", broker="*")
    if loud:
        story.record(FaultBegan, fault=fault)
        story.record(FaultEnded, fault=fault)
    story.hand_out("a", P0, 0, 5)
    story.process("a", P0, 0, 3)
    story.emit("a", GenerationDraining, end=End(Cause.REBALANCE), deadline=0.0)
    story.wait(took)
    story.emit("a", GenerationEnded, end=End(Cause.REBALANCE), cut_short=True)
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.hand_out("b", P0, 0, 5)
    return story


def test_a_drain_that_is_told_too_short_breaks_it() -> None:
    """Who was heard a moment ago has its drain time-out, or most of the rebalance time-out."""
    (what,) = told_too_short().broken(Repetitions)
    assert "handed the partition over cleanly at 3" in what


@pytest.mark.parametrize(
    "story",
    [told_too_short(loud=True), told_too_short(heard=False), told_too_short(took=DRAIN)],
    ids=["a fault just before", "never heard", "long enough"],
)
def test_a_drain_that_nobody_can_call_too_short_is_none(story: Story) -> None:
    """Its heartbeats may have been lost, or it has had its time."""
    assert story.broken(Repetitions) == []
