"""Commits that got no answer: what is remembered of them, and when one has overwritten another."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from kgroup.generation.late_commits import LateCommits
from kgroup.types import OffsetAndMetadata
from tests.generation.fakes import P0, P1, P2, at

MOVES = {P0: 3, P1: 3}
STEP = st.tuples(st.sampled_from(["unanswered", "acknowledged", "arrives"]), st.integers(0, 5))
LATE = ("unanswered", at(p0=1)), ("acknowledged", at(p0=5))
"""The history of a partition whose commit of 1 may overwrite that of 5."""


def late_after(*steps: tuple[str, dict[Any, Any]]) -> LateCommits:
    """What is known in a first generation after these commits."""
    late = LateCommits({})
    late.begin([], {})
    for outcome, offsets in steps:
        if outcome == "unanswered":
            late.unanswered(offsets)
        else:
            late.acknowledged(offsets, MOVES)
    return late


@pytest.mark.parametrize(
    ("steps", "stored", "overwritten"),
    [
        pytest.param([("acknowledged", 5)], 1, False, id="none was unanswered"),
        pytest.param([("unanswered", 1)], 1, False, id="none was acknowledged"),
        pytest.param([("acknowledged", 5), ("unanswered", 6)], 6, False, id="it is the last one"),
        pytest.param([("unanswered", 1), ("acknowledged", 5)], 1, True, id="it is an older one"),
        pytest.param([("unanswered", 9), ("acknowledged", 5)], 9, True, id="after a seek back"),
        pytest.param([("unanswered", 1), ("acknowledged", 5)], 5, False, id="it did not arrive"),
        pytest.param([("unanswered", 5), ("acknowledged", 5)], 5, False, id="the same offset"),
        pytest.param([("unanswered", 1), ("acknowledged", 5)], 3, False, id="another client's"),
        pytest.param([("unanswered", 1), ("acknowledged", 5)], None, False, id="deleted"),
        pytest.param(
            [("unanswered", 1), ("acknowledged", 5), ("unanswered", 1)],
            1,
            False,
            id="committed once more after a seek back",
        ),
    ],
)
async def test_what_counts_as_overwritten(
    steps: list[tuple[str, int]], stored: int | None, overwritten: bool
) -> None:
    """Only an unanswered commit that is older than the last acknowledged one overwrites it."""
    late = late_after(*((outcome, at(p0=offset)) for outcome, offset in steps))
    found = None if stored is None else OffsetAndMetadata(stored)
    assert (P0 in late.overwritten({P0: found})) is overwritten
    corrected = late.corrected({P0: found})[P0]
    assert corrected == (OffsetAndMetadata(5) if overwritten else found)


async def test_commits_that_differ_in_their_metadata_differ() -> None:
    """A program may keep more than the offset in a commit; the leader epoch is not compared."""
    late = late_after(
        ("unanswered", {P0: OffsetAndMetadata(5, 3, "old")}),
        ("acknowledged", {P0: OffsetAndMetadata(5, 3, "new")}),
    )
    assert P0 in late.overwritten({P0: OffsetAndMetadata(5, -1, "old")})
    assert P0 not in late.overwritten({P0: OffsetAndMetadata(5, -1, "new")})


async def test_other_partitions_are_not_concerned() -> None:
    """A commit of another partition changes nothing; what was not fetched is skipped."""
    late = late_after(("unanswered", at(p0=1)), ("acknowledged", at(p1=5)))
    assert not late.overwritten({P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
    assert not late_after(*LATE).overwritten({})
    assert list(late.pending) == [P0]


async def test_each_commit_is_forgotten_when_it_cannot_arrive_any_more(
    autojump_clock: MockClock,
) -> None:
    """Ten minutes after it was given up, whatever came later."""
    late = late_after(*LATE, ("unanswered", at(p1=1)))
    await trio.sleep(500)
    late.unanswered(at(p0=6))
    late.acknowledged(at(p0=7), MOVES)
    late.forget_old()
    assert set(late.pending) == {P0, P1}
    await trio.sleep(101)
    late.forget_old()
    assert list(late.pending) == [P0]
    assert not late.overwritten({P0: OffsetAndMetadata(1)})
    assert late.overwritten({P0: OffsetAndMetadata(6)})
    await trio.sleep(500)
    late.forget_old()
    assert not late.pending


async def test_the_next_generation_has_what_was_kept() -> None:
    """What its member has owned all the time and was acknowledged; no longer if it is in order."""
    both = ("unanswered", at(p0=1, p1=1, p2=1)), ("acknowledged", at(p0=5, p1=5))
    following = LateCommits(late_after(*both).left_for_next)
    assert not following.pending
    stored = {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1), P2: OffsetAndMetadata(1)}
    following.begin([P0, P2], stored)
    assert following.pending[P0].moves == 0  # those of the new generation
    assert following.corrected(stored) == at(p0=5, p1=1, p2=1)
    following.fetched({P0: OffsetAndMetadata(1)})
    assert list(following.pending) == [P0]
    following.fetched({P0: OffsetAndMetadata(5)})
    assert not following.pending


async def test_what_did_not_arrive_before_the_next_generation_never_does() -> None:
    """A generation whose stored offsets are in order has nothing of the one before to check."""
    following = LateCommits(late_after(*LATE).left_for_next)
    following.begin([P0], at(p0=5))
    assert not following.any_inherited
    assert not following.pending


async def test_a_partition_that_was_not_fetched_is_left_to_a_check() -> None:
    """Where it starts is in the program's own store, and what is committed is not known yet."""
    following = LateCommits(late_after(*LATE).left_for_next)
    following.begin([P0], at(p1=5))
    assert following.any_inherited
    following.fetched(at(p0=5))
    assert not following.any_inherited


async def test_a_generation_without_partitions_passes_it_on() -> None:
    """It ended before it had any, so it commits nothing, and the one after it may."""
    skipped = LateCommits(late_after(*LATE).left_for_next)
    following = LateCommits(skipped.left_for_next)
    following.begin([P0], {})
    assert list(following.pending) == [P0]
    assert not skipped.pending


async def test_an_inherited_one_may_become_one_of_this_generation() -> None:
    """Once a commit of this generation got no answer, it stays, also where all is in order."""
    following = LateCommits(late_after(*LATE).left_for_next)
    following.begin([P0], at(p0=1))
    following.unanswered(at(p0=6))
    following.fetched({P0: OffsetAndMetadata(5)})
    assert list(following.pending) == [P0]
    assert following.any_unanswered


@given(st.lists(STEP, max_size=20))
def test_a_correction_was_acknowledged(steps: list[tuple[str, int]]) -> None:
    """A coordinator applies unanswered commits whenever it likes.

    A correction is the offset that was acknowledged last, and without a late arrival there is none.
    """

    async def check() -> None:
        late, acknowledged, stored = late_after(), None, None
        under_way: list[int] = []
        arrived_late = False
        for step, offset in steps:
            if step == "unanswered":
                late.unanswered({P0: OffsetAndMetadata(offset)})
                under_way.append(offset)
            elif step == "acknowledged":
                late.acknowledged({P0: OffsetAndMetadata(offset)}, MOVES)
                stored = acknowledged = OffsetAndMetadata(offset)
                arrived_late = False
            elif under_way:
                stored = OffsetAndMetadata(under_way.pop(offset % len(under_way)))
                arrived_late = True
            if late.overwritten({P0: stored}):
                assert late.corrected({P0: stored}) == {P0: acknowledged}
                assert arrived_late
                assert stored != acknowledged

    trio.run(check)
