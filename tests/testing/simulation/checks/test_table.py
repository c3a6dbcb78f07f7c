"""All fifteen invariants, on a story in which they hold."""

from __future__ import annotations

import attrs
import pytest

from kgroup.testing.simulation.checks import CHECKS, Check, check
from tests.testing.simulation.checks.stories import P0, complete, pair


def test_there_are_fifteen_invariants_in_their_order() -> None:
    """Each check has a number, a sentence and a class of its own."""
    assert [one.number for one in CHECKS] == list(range(1, 16))
    assert all(one.invariant.endswith(".") for one in CHECKS)
    assert len({one.invariant for one in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("kind", CHECKS)
def test_a_good_story_breaks_no_invariant(kind: type[Check]) -> None:
    """Work, a hand-over, a failover and a clean end break no invariant."""
    assert complete().broken(kind) == []


def test_violations_come_in_the_order_in_which_they_are_found() -> None:
    """One step may break several invariants, and each is reported by its number."""
    story = pair()
    story.hand_out("b", P0, 3, 5)
    found = list(check(story.plan, story.history))
    assert {one.number for one in found} == {2}
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert str(found[0]).startswith("invariant 2 broken at 1.0")


def test_the_history_is_read_once() -> None:
    """A check takes any iterable and does not change it."""
    entries = complete().history
    before = [attrs.asdict(one, recurse=False) for one in entries]
    assert list(check(pair().plan, iter(entries))) == []
    assert [attrs.asdict(one, recurse=False) for one in entries] == before
