"""Invariant 10: every assignment ends, once."""

from __future__ import annotations

from kgroup.events import GenerationStarted
from kgroup.testing.simulation.checks.endings import Endings
from kgroup.testing.simulation.history import ProcessCrashed
from kgroup.types import Cause
from tests.testing.simulation.checks.stories import pair


def test_an_end_of_either_kind_is_an_end() -> None:
    """As revoked or as lost."""
    story = pair()
    story.end("a", Cause.FENCED)
    story.joining("a")
    story.end("b", Cause.CLOSED)
    story.stop("b")
    assert story.broken(Endings) == []


def test_who_joins_again_without_an_end_breaks_it() -> None:
    """The old partitions were neither revoked nor lost."""
    story = pair()
    story.joining("a")
    (what,) = story.broken(Endings)
    assert what == "the partitions of epoch 1 of a had not ended when it reported: joining: "


def test_who_is_in_the_next_generation_without_an_end_breaks_it() -> None:
    """Even where it did not tell that it joins."""
    story = pair()
    story.told_joined("a")
    assert len(story.broken(Endings)) == 1


def test_two_ends_break_it() -> None:
    """The second one is of something that is over."""
    story = pair()
    story.end("a")
    story.end("a", Cause.FENCED)
    (what,) = story.broken(Endings)
    assert "the end of epoch 1, which had ended before or never begun" in what


def test_a_program_that_ends_without_an_end_breaks_it() -> None:
    """Its owner would believe that it still has its partitions."""
    story = pair()
    story.stop("a")
    (what,) = story.broken(Endings)
    assert what == "the partitions of epoch 1 of a had not ended when it ended"


def test_who_crashes_owes_no_end() -> None:
    """Nobody can hear it."""
    story = pair()
    story.record(ProcessCrashed, process="a", life=1)
    assert story.broken(Endings) == []


def test_a_generation_that_starts_after_its_end_breaks_it() -> None:
    """Nobody is given one that is over."""
    story = pair()
    story.end("a")
    story.emit("a", GenerationStarted)
    (what,) = story.broken(Endings)
    assert "which it is not in: generation started" in what
