"""Commits that got no answer: what is remembered of them, and when they have put an offset back."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from kgroup.generation.late_commits import LateCommits
from kgroup.types import OffsetAndMetadata
from tests.generation.fakes import P0, P1, at

NO_MOVES = {P0: 0, P1: 0}
STEP = st.tuples(st.sampled_from(["unanswered", "acknowledged", "arrives"]), st.integers(0, 5))


def late_after(*steps: tuple[str, dict[Any, Any]]) -> LateCommits:
    """What is known after these commits: ``("unanswered", at(p0=1))``."""
    late = LateCommits({})
    for outcome, offsets in steps:
        if outcome == "unanswered":
            late.unanswered(offsets)
        else:
            late.acknowledged(offsets, NO_MOVES)
    return late


@pytest.mark.parametrize(
    ("steps", "stored", "put_back"),
    [
        pytest.param([("acknowledged", 5)], 1, False, id="none was unanswered"),
        pytest.param([("unanswered", 1)], 1, False, id="none was acknowledged"),
        pytest.param([("acknowledged", 5), ("unanswered", 6)], 6, False, id="it is the last one"),
        pytest.param([("unanswered", 1), ("acknowledged", 5)], 1, True, id="the older one is back"),
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
async def test_what_counts_as_put_back(
    steps: list[tuple[str, int]], stored: int | None, put_back: bool
) -> None:
    """Only an unanswered commit that is older than the last acknowledged one."""
    late = late_after(*((outcome, at(p0=offset)) for outcome, offset in steps))
    found = None if stored is None else OffsetAndMetadata(stored)
    assert (P0 in late.put_back({P0: found})) is put_back
    corrected = late.corrected({P0: found})[P0]
    assert corrected == (OffsetAndMetadata(5) if put_back else found)


async def test_other_partitions_are_not_concerned() -> None:
    """A commit of another partition changes nothing; what is not stored is skipped."""
    late = late_after(("unanswered", at(p0=1)), ("acknowledged", at(p1=5)))
    assert not late.put_back({P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
    assert not late_after(("unanswered", at(p0=1)), ("acknowledged", at(p0=5))).put_back({})
    assert list(late.left) == [P0]


async def test_it_is_forgotten_when_it_cannot_arrive_any_more(autojump_clock: MockClock) -> None:
    """After ten minutes from the last unanswered commit of the partition."""
    late = late_after(("unanswered", at(p0=1, p1=1)))
    await trio.sleep(500)
    late.unanswered(at(p0=2))
    await trio.sleep(101)
    late.forget_old()
    assert list(late.left) == [P0]
    await trio.sleep(500)
    late.forget_old()
    assert not late.left


async def test_a_producer_s_commits_are_its_own() -> None:
    """What a transaction stores is not known here, so nothing is put right."""
    late = late_after(("unanswered", at(p0=1)), ("acknowledged", at(p0=5)))
    late.forget([P0, P1])
    assert not late.left


async def test_the_next_generation_looks_once_at_what_was_kept() -> None:
    """Nothing can arrive any more; what arrived before is put right where it is still owned."""
    steps = ("unanswered", at(p0=1, p1=1)), ("acknowledged", at(p0=5, p1=5))
    following = LateCommits(late_after(*steps).left)
    following.begin([P0])
    stored = {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)}
    assert following.corrected(stored) == at(p0=5, p1=1)
    following.forget_old()
    assert not following.left


@given(st.lists(STEP, max_size=20))
def test_what_is_put_right_was_acknowledged(steps: list[tuple[str, int]]) -> None:
    """A coordinator applies unanswered commits whenever it likes.

    A correction is the offset that was acknowledged last, and without a late arrival there is none.
    """

    async def check() -> None:
        late, stored, acknowledged = LateCommits({}), None, None
        under_way: list[int] = []
        arrived_late = False
        for step, offset in steps:
            if step == "unanswered":
                late.unanswered({P0: OffsetAndMetadata(offset)})
                under_way.append(offset)
            elif step == "acknowledged":
                late.acknowledged({P0: OffsetAndMetadata(offset)}, NO_MOVES)
                stored = acknowledged = OffsetAndMetadata(offset)
                arrived_late = False
            elif under_way:
                stored = OffsetAndMetadata(under_way.pop(offset % len(under_way)))
                arrived_late = True
            if late.put_back({P0: stored}):
                assert late.corrected({P0: stored}) == {P0: acknowledged}
                assert arrived_late
                assert stored != acknowledged

    trio.run(check)
