"""Invariant 3: generation ids grow."""

from __future__ import annotations

from kgroup.testing.simulation.checks.generations import Generations
from tests.testing.simulation.checks.stories import P0, P1, pair


def test_a_rebalance_without_a_new_generation_breaks_it() -> None:
    """Two assignments of one incarnation may not share a generation id."""
    story = pair()
    story.group("PreparingRebalance")
    story.group("CompletingRebalance")
    (what,) = story.broken(Generations)
    assert "from PreparingRebalance in generation 1 to CompletingRebalance in generation 1" in what


def test_a_group_that_empties_has_a_new_generation_too() -> None:
    """To become empty counts as a completed rebalance."""
    story = pair()
    story.group("PreparingRebalance")
    story.group("Empty", {})
    assert len(story.broken(Generations)) == 1


def test_a_generation_that_goes_back_breaks_it() -> None:
    """The id may not decrease, in any state."""
    story = pair()
    story.generation_id = 0
    story.group("Stable")
    assert len(story.broken(Generations)) == 1


def test_another_incarnation_may_repeat_one() -> None:
    """A failover may forget a generation that was not written, as in Kafka."""
    story = pair()
    story.end("a")
    story.end("b")
    story.form({"a": [P0], "b": [P1]})
    story.generation_id = 1
    story.move()
    story.group("Stable")
    story.form({"a": [P0], "b": [P1]})
    assert story.broken(Generations) == []


def test_a_deleted_empty_group_begins_again() -> None:
    """Kafka deletes groups without members and offsets, whose generations then begin again."""
    story = pair()
    story.generation_id = 2
    story.group("Empty", {})
    story.generation_id = 0
    story.group("Empty", {})  # its first member has requested an id
    story.form({"a": [P0, P1]})
    assert story.broken(Generations) == []


def test_an_empty_group_with_offsets_is_not_deleted() -> None:
    """Its generations may not begin again."""
    story = pair()
    story.commit("a", P0, 0)
    story.generation_id = 2
    story.group("Empty", {})
    story.generation_id = 0
    story.group("Empty", {})
    assert len(story.broken(Generations)) == 1
