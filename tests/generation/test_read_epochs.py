"""ReadEpochs: the leader epochs that commits carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.generation.read_epochs import MOST_STRETCHES, ReadEpochs
from kgroup.interfaces import Batch, Message
from kgroup.types import OffsetAndMetadata
from tests.generation.fakes import P0, P1


@attrs.frozen
class Record:
    """A record that knows its leader epoch, as those of librdkafka do."""

    at: int
    epoch: int | None

    def offset(self) -> int:
        """See ``Message``."""
        return self.at

    def leader_epoch(self) -> int | None:
        """See ``confluent_kafka.Message``."""
        return self.epoch


def batch_of(
    records: Sequence[tuple[int, int | None]], end: int | None = None, next_epoch: int = -1
) -> Batch:
    """A batch of t-0 with records of these offsets and epochs."""
    messages = cast("Sequence[Message]", [Record(*one) for one in records])
    next_offset = records[-1][0] + 1 if end is None else end
    return Batch(
        partition=P0, messages=messages, next_offset=next_offset, epoch=1, next_epoch=next_epoch
    )


def epoch_at(read: ReadEpochs, offset: int) -> int:
    """The leader epoch that a commit of t-0 gets."""
    return read.added_to(P0, OffsetAndMetadata(offset)).leader_epoch


def test_a_commit_has_the_epoch_of_the_record_before_it() -> None:
    """Also in the middle of a batch, and where the epoch changes in one."""
    read = ReadEpochs()
    read.handed_out(batch_of([(5, 2), (6, 2), (8, 3), (9, 3), (10, 7)]))
    read.handed_out(batch_of([(11, 7), (12, 7)]))
    expected = {5: -1, 6: 2, 7: 2, 8: -1, 9: 3, 10: 3, 11: 7, 12: 7, 13: 7, 14: -1}
    assert {offset: epoch_at(read, offset) for offset in expected} == expected


@pytest.mark.parametrize("between", [[(5, 2)], [(5, 2), (6, 2)]])
@pytest.mark.parametrize("batches", [1, 2])
def test_what_lies_between_two_epochs_may_be_of_either(
    between: list[tuple[int, int]], batches: int
) -> None:
    """A marker there is mostly of the later one; with the earlier one the log would look cut."""
    read = ReadEpochs().next((), {P0: 5}, {P0: 2})
    records, end = [*between, (9, 3), (10, 3)], between[-1][0] + 1
    if batches == 1:
        read.handed_out(attrs.evolve(batch_of(records), start_offset=5))
    else:
        read.handed_out(batch_of(between))
        read.handed_out(attrs.evolve(batch_of(records[len(between) :]), start_offset=end))
    expected = {end: 2, end + 1: -1, 8: -1, 9: -1, 10: 3, 11: 3}
    assert {offset: epoch_at(read, offset) for offset in expected} == expected
    again = attrs.evolve(batch_of([(9, 3)]), start_offset=end)
    read.handed_out(again)  # it was given back
    assert {offset: epoch_at(read, offset) for offset in (end, 9, 10)} == {end: 2, 9: -1, 10: 3}


def test_what_lies_between_a_commit_and_the_first_record_may_be_of_a_later_epoch() -> None:
    """As for what lies between records."""
    read = ReadEpochs().next((), {P0: 5}, {P0: 2})
    read.handed_out(attrs.evolve(batch_of([(7, 3)]), start_offset=5))
    assert {offset: epoch_at(read, offset) for offset in (5, 6, 7, 8)} == {5: 2, 6: -1, 7: -1, 8: 3}


@pytest.mark.parametrize(
    ("end", "next_epoch", "expected"),
    [
        (14, 7, {13: 7, 14: 7, 15: -1}),
        (14, 8, {13: 7, 14: 8, 15: -1}),
        (14, -1, {13: 7, 14: -1, 15: -1}),
        (16, 8, {13: 7, 14: -1, 15: -1, 16: 8, 17: -1}),
        (16, 7, {13: 7, 14: 7, 15: 7, 16: 7, 17: -1}),
    ],
)
def test_a_commit_past_markers_has_the_epoch_of_the_last_one(
    end: int, next_epoch: int, expected: dict[int, int]
) -> None:
    """They may be of a later epoch than the records; with too low a one the log would look cut."""
    read = ReadEpochs()
    read.handed_out(batch_of([(11, 7), (12, 7)], end=end, next_epoch=next_epoch))
    assert {offset: epoch_at(read, offset) for offset in expected} == expected
    read.handed_out(attrs.evolve(batch_of([(end, 9)]), start_offset=end))
    assert epoch_at(read, end + 1) == 9


def test_what_was_read_is_kept_for_the_next_generation() -> None:
    """The program may commit it then; it proves a commit of the same epoch."""
    before = ReadEpochs().next((), {P0: 5, P1: 3}, {P0: 2, P1: 2})
    assert not before.has_read(P0, 5, 2)
    before.handed_out(batch_of([(5, 2), (6, 3)]))
    proofs = [(6, 2), (7, 3), (6, 3), (8, 3), (5, -1)]
    assert [before.has_read(P0, *one) for one in proofs] == [True, True, False, False, False]
    assert not before.next({P1}, {P0: 7, P1: 3}, {}).has_read(P0, 7, 3)
    now = before.next({P0}, {P0: 6, P1: 3}, {P0: 2, P1: 2})
    assert [epoch_at(now, offset) for offset in (6, 7, 8)] == [2, 3, -1]
    later = before.next({P0}, {P0: 9}, {P0: 4})
    assert [epoch_at(later, offset) for offset in (7, 9)] == [-1, 4]


def test_the_start_has_the_epoch_of_the_commit() -> None:
    """A program that has read nothing yet commits what it found."""
    read = ReadEpochs().next((), {P0: 5, P1: 7}, {P0: 4})
    assert [epoch_at(read, offset) for offset in (4, 5, 6)] == [-1, 4, -1]
    read.handed_out(batch_of([(5, 4)]))
    read.handed_out(batch_of([(6, 9)]))
    assert [epoch_at(read, offset) for offset in (5, 6, 7, 8)] == [4, 4, 9, -1]
    position = OffsetAndMetadata(7)
    assert read.added_to(P1, position) is position


def test_what_the_caller_gives_is_kept() -> None:
    """Its leader epoch and its metadata."""
    read = ReadEpochs()
    read.handed_out(batch_of([(0, 4)]))
    given_epoch, noted = OffsetAndMetadata(1, 2), OffsetAndMetadata(1, metadata="note")
    assert read.added_to(P0, given_epoch) is given_epoch
    assert read.added_to(P0, noted) == OffsetAndMetadata(1, 4, "note")


def test_nothing_is_known_across_a_seek() -> None:
    """Records that were passed over may be of a later epoch."""
    read = ReadEpochs()
    read.handed_out(batch_of([(0, 1)]))
    read.forget(P0)
    assert epoch_at(read, 1) == -1
    read.handed_out(batch_of([(90, 3)]))
    assert [epoch_at(read, offset) for offset in (1, 90, 91)] == [-1, -1, 3]


def test_a_source_that_knows_no_epochs() -> None:
    """Commits have none, also if it knew some before."""
    read = ReadEpochs()
    read.handed_out(batch_of([(0, 1)]))
    read.handed_out(batch_of([(1, None)]))
    assert [epoch_at(read, offset) for offset in (1, 2)] == [-1, -1]
    read.handed_out(Batch(partition=P0, messages=(), next_offset=3, epoch=1))
    assert epoch_at(read, 3) == -1


def stretches(read: ReadEpochs) -> int:
    """How many stretches of t-0 are kept."""
    return len(read._known[P0].starts)


def test_markers_of_the_same_epoch_begin_no_other_stretch() -> None:
    """A thousand batches with two markers behind each leave one stretch, and each epoch is known.

    An epoch never falls within a log: what is between records of one epoch is of that one.
    """
    read = ReadEpochs()
    for at in range(0, 4000, 4):
        batch = batch_of([(at, 7), (at + 1, 7)], end=at + 4, next_epoch=7)
        read.handed_out(attrs.evolve(batch, start_offset=at))
    assert stretches(read) == 1
    assert {epoch_at(read, offset) for offset in range(1, 4001)} == {7}


@pytest.mark.parametrize("next_epoch", [-1, 8])
def test_of_many_stretches_the_oldest_are_forgotten(next_epoch: int) -> None:
    """A commit of what was forgotten has no epoch, which is never wrong; it proves nothing."""
    read = ReadEpochs()
    for at in range(0, 4000, 4):
        batch = batch_of([(at, 7), (at + 1, 7)], end=at + 4, next_epoch=next_epoch)
        read.handed_out(attrs.evolve(batch, start_offset=at))
    assert stretches(read) == MOST_STRETCHES
    assert epoch_at(read, 2) == -1
    assert not read.has_read(P0, 2, 7)
    assert [epoch_at(read, offset) for offset in (3997, 3998, 4000)] == [7, 7, next_epoch]


def test_a_batch_of_many_epochs_leaves_no_more_stretches() -> None:
    """Those of its last records are kept."""
    read = ReadEpochs()
    read.handed_out(batch_of([(at, at) for at in range(1000)]))
    assert stretches(read) == MOST_STRETCHES
    assert [epoch_at(read, offset) for offset in (900, 901, 1000)] == [-1, 900, 999]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=MOST_STRETCHES),
    st.data(),
)
def test_any_log_in_any_batches(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Wherever the log is divided into batches, and if one comes twice, each record's is known."""
    records: list[tuple[int, int | None]] = []
    offset = epoch = 0
    for gap, rise in steps:
        offset, epoch = offset + gap, epoch + rise
        records.append((offset, epoch))
    read, at = ReadEpochs(), 0
    # What was known of a log that was cut at its beginning counts no more.
    read.handed_out(batch_of([(0, 0), (offset, 0)]))
    while at < len(records):
        size = data.draw(st.integers(1, len(records) - at))
        batch = batch_of(records[at : at + size])
        begin = records[at - 1][0] + 1 if at else 0
        read.handed_out(attrs.evolve(batch, start_offset=begin))
        if not data.draw(st.booleans()):  # else it is given back, and comes again
            at += size
    assert [epoch_at(read, offset + 1) for offset, _ in records] == [epoch for _, epoch in records]
