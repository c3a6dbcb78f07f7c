"""Idempotent producers: which batches are new, repeated or refused."""

from __future__ import annotations

import tracemalloc

import pytest

from kgroup.broker.batches import BatchHeader, header_of
from kgroup.broker.producer_state import REMEMBERED, ProducerState
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode
from tests.broker.record_batches import batch


def sent(sequence: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    """A producer's batch."""
    values = [b"x"] * count
    return header_of(batch(*values, producer_id=1, producer_epoch=epoch, base_sequence=sequence))


def written(*batches: BatchHeader) -> ProducerState:
    """The state of a partition that has these batches."""
    sequences = ProducerState()
    offset = 0
    for one in batches:
        assert sequences.duplicate(one) is None
        sequences.written(one, offset, one.max_timestamp)
        offset += one.count
    return sequences


def error(sequences: ProducerState, one: BatchHeader) -> ErrorCode:
    """The error with which a batch is refused."""
    with pytest.raises(RequestError) as refused:
        sequences.duplicate(one)
    return refused.value.code


def test_the_next_sequence_is_taken() -> None:
    """Batches in sequence are new."""
    written(sent(0, 3), sent(3, 2), sent(5))


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    """The producer's earlier batches may have been deleted."""
    written(sent(17))


def test_the_last_five_batches_are_known_again() -> None:
    """A repeated batch among them gets its offset; an older one is out of order."""
    sequences = written(*(sent(number) for number in range(REMEMBERED + 1)))
    for number in range(1, REMEMBERED + 1):
        repeated = sequences.duplicate(sent(number))
        assert repeated is not None
        assert repeated.base_offset == number
    assert error(sequences, sent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused() -> None:
    """A batch that skips a sequence number is out of order."""
    assert error(written(sent(0)), sent(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    """The sequence after 2^31-1 is 0."""
    written(sent(2**31 - 2, 2), sent(0))


def test_an_older_epoch_is_fenced() -> None:
    """A batch of an older producer epoch is refused."""
    sequences = written(sent(0, epoch=3))
    assert error(sequences, sent(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    """The sequence of a new epoch must start at 0."""
    sequences = written(sent(0, epoch=3))
    assert error(sequences, sent(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sequences.duplicate(sent(0, epoch=4)) is None


def test_a_marker_raises_the_epoch() -> None:
    """A marker with a later epoch fences the earlier one; one of the same epoch does not."""
    sequences = written(sent(0, epoch=3))
    sequences.transaction_ended(1, 3, 0)
    assert sequences.duplicate(sent(1, epoch=3)) is None
    sequences.transaction_ended(1, 4, 0)
    assert error(sequences, sent(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert sequences.duplicate(sent(0, epoch=4)) is None
    assert error(sequences, sent(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_costs_little_memory() -> None:
    """Clients make up any number of producers: the state of one with one batch is small."""
    many = 2_000
    headers = [
        header_of(batch(b"x", producer_id=n, producer_epoch=0, base_sequence=0))
        for n in range(many)
    ]
    state = ProducerState()
    tracemalloc.start()
    try:
        for offset, header in enumerate(headers):
            state.written(header, offset, header.max_timestamp)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert state.count == many
    assert used / many < 400


def test_a_batch_refused_outside_of_its_transaction_comes_before_later_ones() -> None:
    """Later ones are refused until it is written; a marker or a higher epoch ends the wait."""
    for end in ("written", "marker", "epoch", "leader"):
        state = ProducerState()
        for sequence in (3, 2, 7):
            state.refused_outside(sent(sequence))
        assert error(state, sent(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if end == "written":
            assert state.duplicate(sent(2)) is None
            state.written(sent(2), 0, 0)
            assert state.duplicate(sent(3)) is None
        elif end == "marker":
            state.transaction_ended(1, 0, 0)
            assert state.duplicate(sent(0)) is None
        elif end == "epoch":
            assert state.duplicate(sent(5, epoch=1)) is None
            state.refused_outside(sent(5, epoch=1))
            assert error(state, sent(6, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            state.forget_outside()
            assert state.duplicate(sent(3)) is None
