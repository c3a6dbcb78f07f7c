"""The floors: what goes behind them, what moves them, and whose move counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from kgroup.errors import (
    ArgumentError,
    NotOwnedError,
    OffsetBehindFloorError,
    OffsetBeyondReadError,
)
from kgroup.generation.positions import Positions
from kgroup.types import Assignment, OffsetAndMetadata, TopicPartition
from tests.generation.bench import MEMBERSHIP, P0, P1, P2


def floors(**positions: int) -> Positions:
    """Floors of t-0 and t-1, at these positions, without ceilings."""
    at = {TopicPartition("t", int(name[1:])): offset for name, offset in positions.items()}
    made = Positions(MEMBERSHIP)
    made.begin(Assignment((P0, P1)), at)
    made.lift([P0, P1])
    return made


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
    with pytest.raises(NotOwnedError, match=r"does not own t-2: .*'m-1'.* owns t-0, t-1;"):
        floors().check({P0: 0, P2: 1})
    nothing = Positions(MEMBERSHIP)
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
    """Nothing of a commit that is wrong in part is accepted."""
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


def ceilings(**read: int) -> Positions:
    """Floors of t-0 at 5 and t-1 at an unknown position, of which so much was read before."""
    before = {TopicPartition("t", int(name[1:])): offset for name, offset in read.items()}
    made = Positions(MEMBERSHIP, before)
    made.begin(Assignment((P0, P1)), {P0: 5})
    return made


def test_nothing_goes_past_what_was_handed_out() -> None:
    """The error names the partition, what was given, what was handed out, and what to do."""
    mine = ceilings()
    mine.check({P0: 5, P1: 0})
    with pytest.raises(OffsetBeyondReadError, match=r"t-0: .* 6 .* given none yet, .* at 5 \(.*7"):
        mine.check({P0: 6})
    mine.handed_out(P0, 8)
    mine.check({P0: 8})
    with pytest.raises(OffsetBeyondReadError, match=r"t-0: offset 9 .* up to 8 only") as caught:
        mine.check({P0: 9})
    assert (caught.value.partition, caught.value.offset, caught.value.read) == (P0, 9, 8)
    assert "seek to 9 first, or commit with beyond_read=True" in str(caught.value)
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: OffsetAndMetadata(9), P1: 0})
    assert mine.check({P0: 9}, beyond_read=True) == {P0: OffsetAndMetadata(9)}


def test_a_seek_raises_the_ceiling_and_never_lowers_it() -> None:
    """What was handed out before a seek back may still be committed."""
    mine = ceilings()
    mine.move(P0, 100)
    mine.check({P0: 100})
    mine.move(P0, 7)
    mine.check({P0: 100})
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: 101})


def test_a_reset_sets_the_ceiling() -> None:
    """Offsets handed out before may belong to a log that is gone."""
    mine = ceilings()
    mine.handed_out(P0, 100)
    mine.reset(P0, 3)
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: 4})
    mine.check({P0: 3})


def test_without_a_ceiling_anything_goes() -> None:
    """Only for the partitions that it was lifted of."""
    mine = ceilings()
    mine.lift([P1])
    mine.check({P1: 10**9})
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: 6})


def test_what_was_handed_out_before_counts() -> None:
    """Of partitions that are still owned; reading on raises it."""
    mine = ceilings(p0=9, p1=4, p2=70)
    mine.check({P0: 9, P1: 4})
    assert mine.read == {P0: 9, P1: 4}
    mine.handed_out(P1, 3)
    mine.handed_out(P0, 12)
    assert mine.read == {P0: 12, P1: 4}


@pytest.mark.parametrize("bad", [None, [], [P0], "t-0", 5, {"t-0": 1}, {("t", 0): 1}])
def test_what_is_no_mapping_of_partitions_is_refused(bad: Any) -> None:
    """By the error for arguments, which is all that a caller may expect."""
    with pytest.raises(ArgumentError, match="offsets=.* is refused: .*TopicPartition"):
        floors().check(bad)


@pytest.mark.parametrize("bad", [0.0, False, "0", None])
def test_partitions_that_only_look_equal_are_refused(bad: Any) -> None:
    """``TopicPartition("t", 0.0)`` equals the owned one, and no request could carry it."""
    with pytest.raises(ArgumentError, match="its partition an int"):
        floors().check({TopicPartition("t", bad): 1})
    with pytest.raises(ArgumentError):
        floors().check_owned(TopicPartition("t", bad))


class Indexed:
    """A whole number as numpy has it."""

    def __index__(self) -> int:
        return 7


def test_what_says_that_it_is_an_int_becomes_one() -> None:
    """An offset may be numpy's."""
    offset: Any = Indexed()
    (position,) = floors().check({P0: offset}).values()
    assert type(position.offset) is int
    assert position.offset == 7


@given(st.lists(st.integers(0, 50)))
def test_commits_only_raise_it(offsets: list[int]) -> None:
    """After any acknowledgements it is at the highest of them."""
    mine = floors(p0=7)
    for offset in offsets:
        mine.raise_to({P0: offset}, mine.moves([P0]))
    assert mine[P0] == max([7, *offsets])


class FloorsMachine(RuleBasedStateMachine):
    """Commits called, moved past and acknowledged in any order, beside a plain account."""

    called = Bundle("called")

    @initialize(start=st.integers(0, 20))
    def begin(self, start: int) -> None:
        """The generation starts."""
        self.floors = floors(p0=start)
        self.floor = start
        self.moves = 0

    @rule(target=called, offset=st.integers(0, 20))
    def call(self, offset: int) -> tuple[int, int]:
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

    @rule(commit=called)
    def acknowledge(self, commit: tuple[int, int]) -> None:
        """An answer raises the floor unless a move came after the question."""
        offset, moves = commit
        self.floors.raise_to({P0: offset}, {P0: moves})
        if moves == self.moves:
            self.floor = max(self.floor, offset)
        assert self.floors[P0] == self.floor


TestFloors = FloorsMachine.TestCase
TestFloors.settings = settings(max_examples=50, stateful_step_count=20)
