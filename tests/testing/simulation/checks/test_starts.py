"""Invariant 6: where an owner starts."""

from __future__ import annotations

import pytest

from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.starts import StartPositions
from tests.testing.simulation.checks.stories import P0, P1, Story, pair


def handed_over(start: int | None) -> Story:
    """b takes over after a's commit at 5 and receives a start position."""
    story = pair()
    story.work("a", P0, 0, 5)
    story.end("a")
    story.end("b")
    story.form({"b": [P0, P1]})
    start_offsets = {P1: 0} if start is None else {P0: start, P1: 0}
    story.report_assigned("b", start_offsets=start_offsets)
    return story


def test_the_last_commit_is_the_start() -> None:
    """An owner must start at the last commit, with the record there."""
    story = handed_over(5)
    story.hand_out("b", P0, 5, 6)
    assert story.broken(StartPositions) == []


@pytest.mark.parametrize("start", [0, 4, 6, None])
def test_another_start_breaks_it(start: int | None) -> None:
    """A start before or after the last commit, or none, breaks the invariant."""
    (what,) = handed_over(start).broken(StartPositions)
    assert f"starts orders-0 at {start}, but the last commit that was applied is 5" in what


@pytest.mark.parametrize("first", [4, 6])
def test_a_first_record_elsewhere_breaks_it(first: int) -> None:
    """The first record must be the one at the start position."""
    story = handed_over(5)
    story.hand_out("b", P0, first, 8)
    (what,) = story.broken(StartPositions)
    assert f"at 5, but the first record that it got is {first}" in what


def test_without_a_commit_the_start_is_the_logs() -> None:
    """It is the log's start with ``earliest``, and anything with ``latest``."""
    for rule, faults in (("earliest", 1), ("latest", 0)):
        story = Story()
        story.auto_offset_reset = rule
        story.begin("a")
        story.form({"a": [P0, P1]})
        story.report_assigned("a", start_offsets={P0: 3, P1: 0})
        assert len(story.broken(StartPositions)) == faults


def test_a_commit_that_a_failover_lost_is_no_start() -> None:
    """The start is the commit that the coordinator has now, or had when the member joined."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.send_commit("a", P0, 5)
    story.end("a")
    story.end("b")
    story.move({})
    story.group("Stable")
    story.form({"b": [P0, P1]})
    story.report_assigned("b", start_offsets={P0: 5, P1: 0})
    assert len(story.broken(StartPositions)) == 1


def test_a_record_that_comes_again_breaks_it() -> None:
    """Each batch must begin where the one before ends, or later, even if nothing is committed."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.hand_out("a", P0, 5, 7)
    assert story.broken(StartPositions) == []
    story.hand_out("a", P0, 6, 9)
    (what,) = story.broken(StartPositions)
    assert "got the record at offset 6 of orders-0 again" in what


def test_a_record_that_is_twice_in_a_batch_breaks_it() -> None:
    """A batch must have its records once, in the order of their offsets."""
    story = pair()
    story.hand_out("a", P0, 0, 5, misplaced=(2, 1))
    (what,) = story.broken(StartPositions)
    assert "got the record at offset 2 of orders-0 again, or after a later one" in what


@pytest.mark.parametrize(("first", "faults"), [(1, 1), (2, 0), (3, 1)])
def test_after_a_reset_the_first_record_is_the_one_there(first: int, faults: int) -> None:
    """A generation that has read continues exactly where its position was reset to."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.emit("a", OffsetReset, partition=P0, offset=2, reason="", skipped=True)
    story.hand_out("a", P0, first, 9)
    assert len(story.broken(StartPositions)) == faults


def overtaken(*later: int, previous: bool = True, start: int = 9) -> list[str]:
    """What is reported of a's next start at 9, its last commit, where a late one of 5 is stored.

    Args:
        later: what a commits after it without an answer.
        previous: whether a had the partition before.
        start: another start.
    """
    story = pair()
    story.hand_out("a", P0, 0, 9)
    story.give_up_commit("a", P0, 5)
    story.commit("a", P0, 9)
    for offset in later:
        story.give_up_commit("a", P0, offset)
    story.send_commit("a", P0, 5)
    story.end("a")
    story.end("b")
    story.form({"a": [P0], "b": [P1]})
    kept = [P0] if previous else []
    story.report_assigned("a", start_offsets={P0: start}, previous=kept)
    return story.broken(StartPositions)


def test_a_member_knows_its_late_commit() -> None:
    """It may start at what was acknowledged after it: only it can have read what is between."""
    assert overtaken() == []


def test_it_may_also_not_know_it() -> None:
    """The coordinator's commit is always right."""
    assert overtaken(start=5) == []


@pytest.mark.parametrize(
    "otherwise",
    [
        pytest.param({"previous": False}, id="others may have had the partition"),
        pytest.param({"start": 8}, id="not the last commit"),
    ],
)
def test_another_start_than_the_later_commit_breaks_it(otherwise: dict[str, int]) -> None:
    """A member that has not kept the partition cannot know, and none starts between both."""
    (what,) = overtaken(**otherwise)  # type: ignore[arg-type]
    assert "but the last commit that was applied is 5" in what


def test_a_commit_that_may_be_the_last_one_is_not_late() -> None:
    """The member has committed 5 once more, and does not know which of the two was applied."""
    (what,) = overtaken(5)
    assert "but the last commit that was applied is 5" in what
