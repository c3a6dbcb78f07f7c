"""Invariant 10: every assignment ends exactly once."""

from __future__ import annotations

from kgroup.events import GenerationStarted
from kgroup.testing.simulation.checks.endings import Endings
from kgroup.testing.simulation.history import ProcessCrashed
from kgroup.types import Cause
from tests.testing.simulation.checks.stories import pair


def test_an_end_of_either_kind_is_an_end() -> None:
    """An assignment may end as revoked or as lost."""
    story = pair()
    story.end("a", Cause.FENCED)
    story.joining("a")
    story.end("b", Cause.CLOSED)
    story.stop("b")
    assert story.broken(Endings) == []


def test_joining_again_without_an_end_breaks_it() -> None:
    """A program may not join again before its partitions were revoked or lost."""
    story = pair()
    story.joining("a")
    (what,) = story.broken(Endings)
    assert what == "the partitions of epoch 1 of a had not ended when it reported: joining: "


def test_a_next_generation_without_an_end_breaks_it() -> None:
    """The same holds if it reports only that it has joined."""
    story = pair()
    story.report_joined("a")
    assert len(story.broken(Endings)) == 1


def test_two_ends_break_it() -> None:
    """A generation may end only once."""
    story = pair()
    story.end("a")
    story.end("a", Cause.FENCED)
    (what,) = story.broken(Endings)
    assert "the end of epoch 1, which had ended before or never begun" in what


def test_a_program_that_ends_within_a_generation_breaks_it() -> None:
    """A program may not end before its generation has."""
    story = pair()
    story.stop("a")
    (what,) = story.broken(Endings)
    assert what == "the partitions of epoch 1 of a had not ended when it ended"


def test_a_crashed_program_reports_no_end() -> None:
    """A crashed program need not report the end of its generation."""
    story = pair()
    story.record(ProcessCrashed, process="a", life=1)
    assert story.broken(Endings) == []


def test_a_generation_that_starts_after_its_end_breaks_it() -> None:
    """No generation may start after it has ended."""
    story = pair()
    story.end("a")
    story.emit("a", GenerationStarted)
    (what,) = story.broken(Endings)
    assert "which it is not in: generation started" in what
