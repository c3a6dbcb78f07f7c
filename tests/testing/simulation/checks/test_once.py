"""Invariant 15: records that are processed again."""

from __future__ import annotations

import attrs
import pytest

from kgroup.testing.simulation.checks.once import ProcessedOnce
from tests.testing.simulation.checks.stories import P0, P1, PLAN, Story


def repeated(*, own_starts: bool, exactly_once: bool | None) -> Story:
    """b processes again what a has processed."""
    story = Story(attrs.evolve(PLAN, exactly_once=exactly_once))
    story.own_starts = own_starts
    story.begin("a", "b")
    story.form({"a": [P0], "b": [P1]})
    story.report_assigned("a", start_offsets={P0: 0})
    story.report_assigned("b", start_offsets={P1: 0})
    story.work("a", P0, 0, 5)
    story.end("a")
    story.end("b")
    story.form({"b": [P0, P1]})
    story.report_assigned("b", start_offsets={P0: 3, P1: 0})
    story.work("b", P0, 3, 7)
    return story


@pytest.mark.parametrize(
    ("own_starts", "exactly_once", "breaks"),
    [
        (True, None, True),
        (True, True, True),
        (True, False, False),
        (False, None, False),
        (False, True, True),
        (False, False, False),
    ],
)
def test_a_repeated_record_breaks_it(
    own_starts: bool, exactly_once: bool | None, breaks: bool
) -> None:
    """It does for programs with starts of their own, unless the plan says otherwise."""
    story = repeated(own_starts=own_starts, exactly_once=exactly_once)
    assert bool(story.broken(ProcessedOnce)) is breaks


def test_one_violation_is_reported_for_a_generation_and_a_partition() -> None:
    """It names the first record, both owners, and the start."""
    (what,) = repeated(own_starts=True, exactly_once=None).broken(ProcessedOnce)
    assert (
        "b in generation 2 processed the record at offset 3 of orders-0 again, which a in " in what
    )
    assert "started at 3" in what


def test_the_record_of_a_topic_that_is_created_again_is_another() -> None:
    """Its offset may be the same."""
    story = Story(attrs.evolve(PLAN, exactly_once=True)).begin("a")
    story.form({"a": [P0, P1]})
    story.report_assigned("a", start_offsets={P0: 0, P1: 0})
    story.work("a", P0, 0, 5)
    story.delete()
    story.create_again()
    story.work("a", P0, 0, 5)
    assert story.broken(ProcessedOnce) == []
