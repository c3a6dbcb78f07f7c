"""Record batches: their header, the invalid ones, and the fields that a log sets."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from kgroup.broker import batches
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode
from tests.broker.record_batches import NOW, batch


def test_a_batch_is_read_by_another_implementation() -> None:
    """kio's reader finds the records that were put in, and a correct CRC."""
    data = batch(b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=3)
    theirs, size = read_batch(data, 0)
    assert size == len(data)
    assert [record.value for record in theirs.records] == [b"a", b"b"]
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 1, 3)


def test_a_placed_batch_differs_only_in_its_place() -> None:
    """Only offset and leader epoch are written; the CRC, which omits them, still holds."""
    data = batch(b"a", b"b")
    placed = batches.placed(data, 1000, 5)
    header = batches.header_of(placed)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1000, 1001, 5)
    assert placed[16:] == data[16:]
    assert crc32c(placed[21:]) == header.crc


def test_a_stamped_batch_has_the_brokers_time() -> None:
    """The broker's time replaces the producer's, and the CRC is right again."""
    header, _ = batches.check(batches.stamped(batch(b"a"), NOW + 5))
    assert header.has_append_time
    assert header.max_timestamp == NOW + 5


def test_sequences_wrap_around() -> None:
    """After the greatest int32 comes 0."""
    header = batches.header_of(batch(b"a", b"b", b"c", base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def _with_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def _changed(layout: str, at: int, value: int) -> bytes:
    data = bytearray(batch(b"a", b"b"))
    struct.pack_into(layout, data, at, value)
    return _with_crc(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a")[:60], ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a") + b"\0" * 12, ErrorCode.CORRUPT_MESSAGE),
        (_changed(">i", 8, 3), ErrorCode.CORRUPT_MESSAGE),
        (_changed(">i", 8, 48), ErrorCode.CORRUPT_MESSAGE),
        (_changed(">b", 16, 1), ErrorCode.INVALID_RECORD),
        (_changed(">b", 16, 3), ErrorCode.CORRUPT_MESSAGE),
        (_changed(">b", 16, -1), ErrorCode.CORRUPT_MESSAGE),
        (batches.placed(batch(b"a"), 5, 0), ErrorCode.INVALID_RECORD),
        (_changed(">i", 23, 2), ErrorCode.INVALID_RECORD),
        (_changed(">i", 57, 0), ErrorCode.INVALID_RECORD),
        (batch(b"a", control=True), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "null",
        "empty",
        "shorter than a header",
        "cut off",
        "two batches",
        "wrong CRC",
        "zeros behind it",
        "impossible length",
        "shorter than its header",
        "magic 1",
        "magic 3",
        "magic -1",
        "offset",
        "last offset",
        "no records",
        "control",
        "no sequence",
    ],
)
def test_invalid_batches_are_refused(data: bytes | None, code: ErrorCode) -> None:
    """Each fault of a producer's batch is refused with Kafka's code."""
    with pytest.raises(RequestError) as refused:
        batches.check(data)
    assert refused.value.code is code


@pytest.mark.parametrize("rest", [b"\0", batch(b"b")[:30], batch(b"b")[:-1]])
def test_a_piece_behind_a_batch_is_dropped(rest: bytes) -> None:
    """As in Kafka, a batch that is cut off behind a whole one is no part of the log."""
    assert batches.check(batch(b"a") + rest)[1] == batch(b"a")


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    """Bytes that are no batch raise only the error of a refused batch."""
    with pytest.raises(RequestError):
        batches.check(data)
