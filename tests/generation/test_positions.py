"""Positions: which commits are refused, and how seeks, resets and responses move them."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from kgroup.errors import (
    ArgumentError,
    NotOwnedError,
    OffsetBehindCommitError,
    OffsetBeyondReadError,
)
from kgroup.generation.positions import Positions
from kgroup.interfaces import Batch
from kgroup.types import Assignment, OffsetAndMetadata, TopicPartition
from tests.generation.fakes import MEMBERSHIP, P0, P1, P2
from tests.generation.test_read_epochs import batch_of


def positions_at(**positions: int) -> Positions:
    """t-0 and t-1 at these positions, with no upper bound for commits."""
    at = {TopicPartition("t", int(name[1:])): offset for name, offset in positions.items()}
    made = Positions(MEMBERSHIP)
    made.begin(Assignment((P0, P1)), at)
    made.lift_upper_bounds([P0, P1])
    return made


def batch_to(partition: TopicPartition, end: int, start: int = 0) -> Batch:
    """A batch that ends at an offset."""
    return Batch(partition=partition, messages=(), start_offset=start, next_offset=end, epoch=3)


def test_numbers_become_positions() -> None:
    """An int and an OffsetAndMetadata are both accepted; the latter keeps its metadata."""
    noted = OffsetAndMetadata(5, 2, "note")
    assert positions_at().check({P0: 3, P1: noted}) == {P0: OffsetAndMetadata(3), P1: noted}
    assert positions_at().check({}) == {}


def test_no_commit_goes_behind_the_start() -> None:
    """The start itself may be committed, nothing before it; an unknown start counts as 0."""
    mine = positions_at(p0=5)
    assert (mine.lower_bound(P0), mine.lower_bound(P1)) == (5, 0)
    mine.check({P0: 5, P1: 0})
    with pytest.raises(OffsetBehindCommitError, match=r"t-0: offset 4 is behind 5.*generation 7"):
        mine.check({P0: 4})


def test_a_partition_that_is_not_owned_is_refused() -> None:
    """The error names the partition, the member and the partitions that it owns."""
    with pytest.raises(NotOwnedError, match=r"does not own t-2: .*'m-1'.* owns t-0, t-1;"):
        positions_at().check({P0: 0, P2: 1})
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
def test_an_invalid_offset_is_refused(bad: Any, kind: type[Exception]) -> None:
    """The error names the partition and the value."""
    with pytest.raises(kind, match=f"t-0: .*{bad!r}"):
        positions_at().check({P0: bad})


def test_one_wrong_partition_refuses_all() -> None:
    """If one offset of a commit is wrong, none is accepted."""
    mine = positions_at(p1=5)
    with pytest.raises(OffsetBehindCommitError):
        mine.check({P0: 9, P1: 4})
    assert mine.lower_bound(P0) == 0


def test_a_response_does_not_undo_a_later_seek() -> None:
    """If the program sought back from 100 to 10 before the response, 11 may be committed."""
    mine = positions_at()
    known = mine.moves([P0])
    mine.move(P0, 10)
    mine.raise_lower_bounds({P0: 100}, known)
    assert mine.lower_bound(P0) == 10
    assert mine.check({P0: 11}) == {P0: OffsetAndMetadata(11)}


def test_a_commit_called_before_a_seek_is_not_refused_by_it() -> None:
    """The commit is checked against the position that its caller knew."""
    mine = positions_at()
    known = mine.moves([P0])
    mine.move(P0, 100)
    assert mine.check({P0: 5}, known) == {P0: OffsetAndMetadata(5)}
    with pytest.raises(OffsetBehindCommitError):
        mine.check({P0: 5})
    with pytest.raises(OffsetBehindCommitError):
        mine.check({P0: 5}, mine.moves([P0]))


def test_whatever_interrupts_the_end_of_a_batch_can_wait_for_a_commit() -> None:
    """A signal handler or a finalizer of that thread may wait for the event loop, at any line."""
    mine = positions_at()
    batches = [mine.batch_of(batch_to(P0, end, end - 1)) for end in (1, 2)]
    lines = 0

    def commit(_: FrameType, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        loop = threading.Thread(target=mine.check, args=({P0: 1},), daemon=True)
        loop.start()
        loop.join(5.0)
        assert not loop.is_alive()
        return commit

    def trace(frame: FrameType, *_: Any) -> Any:
        return commit if frame.f_code is Positions.finished.__code__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for batch in batches:
            mine.finished(batch)
    finally:
        sys.settrace(before)
    assert lines
    assert mine.finished_ranges == {P0: (0, 2)}


def test_what_was_finished_before_a_seek_does_not_count() -> None:
    """Neither what was so before the seek, nor what the program had in hand then."""
    mine = positions_at()
    first, second = (mine.batch_of(batch_to(P0, end, end - 1)) for end in (1, 2))
    mine.finished(first)
    assert mine.finished_ranges == {P0: (0, 1)}
    mine.seek(P0, 5)
    mine.finished(second)
    assert mine.finished_ranges == {}
    mine.finished(mine.batch_of(batch_to(P0, 7, 5)))
    assert mine.finished_ranges == {P0: (5, 7)}


def with_upper_bounds(**read: int) -> Positions:
    """t-0 at 5 and t-1 at an unknown position; ``read`` is the offset up to which each was read."""
    before = {TopicPartition("t", int(name[1:])): offset for name, offset in read.items()}
    made = Positions(MEMBERSHIP, before)
    made.begin(Assignment((P0, P1)), {P0: 5})
    return made


def test_no_commit_goes_past_the_records_handed_out() -> None:
    """The error names the partition, the offset, the records handed out, and what to do."""
    mine = with_upper_bounds()
    mine.check({P0: 5, P1: 0})
    with pytest.raises(OffsetBeyondReadError, match=r"t-0: .* 6 .* given none yet, .* at 5 \(.*7"):
        mine.check({P0: 6})
    mine.handed_out(batch_to(P0, 8))
    mine.check({P0: 8})
    with pytest.raises(OffsetBeyondReadError, match=r"t-0: offset 9 .* up to 8 only") as caught:
        mine.check({P0: 9})
    assert (caught.value.partition, caught.value.offset, caught.value.read) == (P0, 9, 8)
    assert "seek to 9 first, or commit with beyond_read=True" in str(caught.value)
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: OffsetAndMetadata(9), P1: 0})
    assert mine.check({P0: 9}, beyond_read=True) == {P0: OffsetAndMetadata(9)}


def test_a_seek_raises_the_upper_bound_and_never_lowers_it() -> None:
    """After a seek back, records that were handed out before may still be committed."""
    mine = with_upper_bounds()
    mine.move(P0, 100)
    mine.check({P0: 100})
    mine.move(P0, 7)
    mine.check({P0: 100})
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: 101})


def test_batches_that_are_given_back_do_not_count() -> None:
    """The upper bound is what it was before them, but what was read before a seek still counts."""
    mine = Positions(MEMBERSHIP, {P1: 30})
    mine.begin(Assignment((P0, P1)), {P0: 5, P1: 10})

    def hand_out(partition: TopicPartition, start: int, end: int) -> Batch:
        batch = batch_to(partition, end, start)
        mine.handed_out(batch)
        return batch

    hand_out(P0, 5, 8)
    second, third = hand_out(P0, 8, 12), hand_out(P0, 12, 20)
    mine.given_back(third)
    mine.check({P0: 12})
    mine.given_back(second)
    mine.check({P0: 8})
    with pytest.raises(OffsetBeyondReadError, match="up to 8 only"):
        mine.check({P0: 9})
    mine.handed_out(batch_to(P0, 12))
    mine.seek(P0, 6)
    mine.given_back(hand_out(P0, 6, 12))
    mine.check({P0: 12})
    mine.given_back(hand_out(P1, 10, 30))
    mine.check({P1: 30})
    mine.reset(P1, 3)
    mine.given_back(hand_out(P1, 3, 30))
    with pytest.raises(OffsetBeyondReadError, match="up to 3 only"):
        mine.check({P1: 4})


@pytest.mark.parametrize("move", [Positions.seek, Positions.move, Positions.reset])
def test_a_commit_after_a_seek_has_no_leader_epoch(move: Any) -> None:
    """Records that were passed over may be of a later epoch than those read before."""
    mine = with_upper_bounds()
    mine.handed_out(batch_of([(4, 2), (5, 2)]))
    assert mine.check({P0: 6}) == {P0: OffsetAndMetadata(6, 2)}
    move(mine, P0, 6)
    assert mine.check({P0: 6}) == {P0: OffsetAndMetadata(6)}


def test_a_reset_sets_the_upper_bound() -> None:
    """Offsets handed out before may belong to a deleted log."""
    mine = with_upper_bounds()
    mine.handed_out(batch_to(P0, 100))
    mine.reset(P0, 3)
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: 4})
    mine.check({P0: 3})


def test_without_an_upper_bound_any_offset_is_accepted() -> None:
    """`lift` removes the upper bound of the named partitions only."""
    mine = with_upper_bounds()
    mine.lift_upper_bounds([P1])
    mine.check({P1: 10**9})
    with pytest.raises(OffsetBeyondReadError):
        mine.check({P0: 6})


def test_records_of_the_previous_generation_count() -> None:
    """If a partition is still owned, its upper bound holds, and reading raises it."""
    mine = with_upper_bounds(p0=9, p1=4, p2=70)
    mine.check({P0: 9, P1: 4})
    assert mine.upper_bounds == {P0: 9, P1: 4}
    mine.handed_out(batch_to(P1, 3))
    mine.handed_out(batch_to(P0, 12))
    assert mine.upper_bounds == {P0: 12, P1: 4}


@pytest.mark.parametrize("bad", [None, [], [P0], "t-0", 5, {"t-0": 1}, {("t", 0): 1}])
def test_what_is_no_mapping_of_partitions_is_refused(bad: Any) -> None:
    """The error is an ArgumentError, and no other exception gets out."""
    with pytest.raises(ArgumentError, match="offsets=.* is refused: .*TopicPartition"):
        positions_at().check(bad)


@pytest.mark.parametrize("bad", [0.0, False, "0", None])
def test_partitions_that_only_look_equal_are_refused(bad: Any) -> None:
    """``TopicPartition("t", 0.0)`` equals the owned partition, but no request can carry it."""
    with pytest.raises(ArgumentError, match="its partition an int"):
        positions_at().check({TopicPartition("t", bad): 1})
    with pytest.raises(ArgumentError):
        positions_at().check_owned(TopicPartition("t", bad))


class Indexed:
    """An integer with ``__index__``, as numpy has it."""

    def __index__(self) -> int:
        return 7


def test_an_integer_type_is_converted_to_int() -> None:
    """An offset may be an integer of numpy's."""
    offset: Any = Indexed()
    (position,) = positions_at().check({P0: offset}).values()
    assert type(position.offset) is int
    assert position.offset == 7


@given(st.lists(st.integers(0, 50)))
def test_responses_only_raise_a_position(offsets: list[int]) -> None:
    """After any responses, the position is the highest committed offset."""
    mine = positions_at(p0=7)
    for offset in offsets:
        mine.raise_lower_bounds({P0: offset}, mine.moves([P0]))
    assert mine.lower_bound(P0) == max([7, *offsets])


class PositionsMachine(RuleBasedStateMachine):
    """Commits and seeks in any order, with responses in any order, against a simple model."""

    called = Bundle("called")

    @initialize(start=st.integers(0, 20))
    def begin(self, start: int) -> None:
        """Start a generation."""
        self.positions = positions_at(p0=start)
        self.lower_bound = start
        self.moves = 0

    @rule(target=called, offset=st.integers(0, 20))
    def call(self, offset: int) -> tuple[int, int]:
        """A commit is refused exactly if its offset is behind the position."""
        behind = offset < self.lower_bound
        try:
            self.positions.check({P0: offset})
        except OffsetBehindCommitError:
            refused = True
        else:
            refused = False
        assert refused is behind
        return (offset if not behind else self.lower_bound, self.moves)

    @rule(offset=st.integers(0, 20))
    def move(self, offset: int) -> None:
        """Seek."""
        self.positions.move(P0, offset)
        self.lower_bound = offset
        self.moves += 1

    @rule(commit=called)
    def acknowledge(self, commit: tuple[int, int]) -> None:
        """A response raises the position unless a seek came after the call."""
        offset, moves = commit
        self.positions.raise_lower_bounds({P0: offset}, {P0: moves})
        if moves == self.moves:
            self.lower_bound = max(self.lower_bound, offset)
        assert self.positions.lower_bound(P0) == self.lower_bound


TestPositions = PositionsMachine.TestCase
TestPositions.settings = settings(max_examples=50, stateful_step_count=20)
