"""The floors: what goes behind them, what moves them, and whose move counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from kgroup.errors import NotOwnedError, OffsetBehindFloorError
from kgroup.generation.floors import Floors
from kgroup.model import Assignment, OffsetAndMetadata, TopicPartition
from tests.generation.bench import MEMBERSHIP, P0, P1, P2


def floors(**positions: int) -> Floors:
    """Floors of t-0 and t-1, at these positions."""
    at = {TopicPartition("t", int(name[1:])): offset for name, offset in positions.items()}
    return Floors(MEMBERSHIP, Assignment((P0, P1)), at)


def test_numbers_become_positions() -> None:
    """An int and an OffsetAndMetadata are both taken; the latter keeps what it carries."""
    noted = OffsetAndMetadata(5, 2, "note")
    assert floors().check({P0: 3, P1: noted}) == {P0: OffsetAndMetadata(3), P1: noted}
    assert floors().check({}) == {}


def test_the_start_position_is_the_first_floor() -> None:
    """It may be committed itself, nothing before it; an unknown one is 0."""
    mine = floors(p0=5)
    assert (mine[P0], mine[P1]) == (5, 0)
    mine.check({P0: 5, P1: 0})
    with pytest.raises(OffsetBehindFloorError, match=r"t-0: offset 4 is behind 5.*generation 7"):
        mine.check({P0: 4})


def test_what_is_not_owned_is_refused() -> None:
    """The error names the partition, the member and what it owns."""
    with pytest.raises(NotOwnedError, match=r"t-2 is not of .*'m-1'.* owns t-0, t-1;"):
        floors().check({P0: 1, P2: 1})
    nothing = Floors(MEMBERSHIP, Assignment(()), {})
    with pytest.raises(NotOwnedError, match="owns nothing"):
        nothing.check_owned(P0)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ("5", TypeError),
        (5.0, TypeError),
        (True, TypeError),
        (None, TypeError),
        (-1, ValueError),
        (2**63, ValueError),
    ],
)
def test_what_is_no_offset_is_refused(bad: Any, kind: type[Exception]) -> None:
    """The error names the partition and the value."""
    with pytest.raises(kind, match=f"t-0: .*{bad!r}"):
        floors().check({P0: bad})


def test_one_wrong_partition_refuses_all() -> None:
    """Nothing of a commit that is wrong in part is taken."""
    mine = floors(p1=5)
    with pytest.raises(OffsetBehindFloorError):
        mine.check({P0: 9, P1: 4})
    assert mine[P0] == 0


def test_an_answer_does_not_undo_a_later_move() -> None:
    """Committed at 100, sought back to 10 meanwhile: 11 may be committed."""
    mine = floors()
    known = mine.moves([P0])
    mine.move(P0, 10)
    mine.raise_to({P0: 100}, known)
    assert mine[P0] == 10
    assert mine.check({P0: 11}) == {P0: OffsetAndMetadata(11)}


def test_a_commit_asked_for_before_a_move_is_not_refused_by_it() -> None:
    """Its caller knew of another floor."""
    mine = floors()
    known = mine.moves([P0])
    mine.move(P0, 100)
    assert mine.check({P0: 5}, known) == {P0: OffsetAndMetadata(5)}
    with pytest.raises(OffsetBehindFloorError):
        mine.check({P0: 5})
    with pytest.raises(OffsetBehindFloorError):
        mine.check({P0: 5}, mine.moves([P0]))


@given(st.lists(st.integers(0, 50)))
def test_commits_only_raise_it(offsets: list[int]) -> None:
    """After any acknowledgements it is at the highest of them."""
    mine = floors(p0=7)
    for offset in offsets:
        mine.raise_to({P0: offset}, mine.moves([P0]))
    assert mine[P0] == max([7, *offsets])


class FloorsMachine(RuleBasedStateMachine):
    """Commits asked for, moved past and acknowledged in any order, beside a plain account."""

    asked = Bundle("asked")

    @initialize(start=st.integers(0, 20))
    def begin(self, start: int) -> None:
        """The generation starts."""
        self.floors = floors(p0=start)
        self.floor = start
        self.moves = 0

    @rule(target=asked, offset=st.integers(0, 20))
    def ask(self, offset: int) -> tuple[int, int]:
        """A caller commits: refused exactly where it is behind."""
        behind = offset < self.floor
        try:
            self.floors.check({P0: offset})
        except OffsetBehindFloorError:
            refused = True
        else:
            refused = False
        assert refused is behind
        return (offset if not behind else self.floor, self.moves)

    @rule(offset=st.integers(0, 20))
    def move(self, offset: int) -> None:
        """A seek."""
        self.floors.move(P0, offset)
        self.floor = offset
        self.moves += 1

    @rule(commit=asked)
    def acknowledge(self, commit: tuple[int, int]) -> None:
        """An answer raises the floor unless a move came after the question."""
        offset, moves = commit
        self.floors.raise_to({P0: offset}, {P0: moves})
        if moves == self.moves:
            self.floor = max(self.floor, offset)
        assert self.floors[P0] == self.floor


TestFloors = FloorsMachine.TestCase
TestFloors.settings = settings(max_examples=50, stateful_step_count=20)
