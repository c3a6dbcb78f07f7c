"""Records: written, read back, and read by another implementation."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from kgroup.broker import batches
from kgroup.broker.log import LogSettings, PartitionLog
from kgroup.broker.records import (
    CompressedBatchError,
    CorruptBatchError,
    NewRecord,
    _write_record,
    batch_of,
    marker,
    records_in_steps,
    records_of,
)
from kgroup.records.memory import StoredRecord
from tests.broker.record_batches import NOW, batch, compressed

RECORDS = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    timestamp=st.none() | st.integers(0, 2**45),
)


def read(data: bytes) -> list[StoredRecord]:
    """The records of a batch."""
    return list(records_of(data, batches.header_of(data)))


@given(st.lists(RECORDS, min_size=1, max_size=20), st.integers(0, 2**40))
def test_records_come_back_as_they_went_in(given_: list[NewRecord], offset: int) -> None:
    """Key, value, headers and time of every record are kept, at consecutive offsets."""
    stored = read(batches.placed(batch_of(given_, NOW), offset, 0))
    assert [one.offset for one in stored] == list(range(offset, offset + len(given_)))
    for before, after in zip(given_, stored, strict=True):
        assert (after.key, after.value, after.headers) == (before.key, before.value, before.headers)
        assert after.timestamp == (NOW if before.timestamp is None else before.timestamp)
        assert not after.append_time


def test_another_implementation_reads_the_same() -> None:
    """kio's own reader agrees on headers, keys and tombstones."""
    data = batch_of([NewRecord(None, b"k", (("h", b"1"), ("n", None))), NewRecord(b"v")], NOW)
    first, second = read_batch(data, 0)[0].records
    assert (first.key, first.value) == (b"k", None)
    assert [(header.key, header.value) for header in first.headers] == [(b"h", b"1"), (b"n", None)]
    assert (second.key, second.value) == (None, b"v")


def test_the_brokers_time_counts_for_all_records() -> None:
    """Every record of a batch with append time has the batch's time."""
    data = batches.stamped(batch(b"a", b"b"), NOW + 9)
    assert {(one.timestamp, one.append_time) for one in read(data)} == {(NOW + 9, True)}


def test_gzip_is_read() -> None:
    """A batch compressed with gzip can be read."""
    assert [one.value for one in read(compressed(1, b"a", b"b"))] == [b"a", b"b"]


@pytest.mark.parametrize(("codec", "name"), [(2, "snappy"), (3, "lz4"), (4, "zstd"), (7, "7")])
def test_other_codecs_are_refused_by_name(codec: int, name: str) -> None:
    """The error names the codec that is not supported, and those that are."""
    with pytest.raises(CompressedBatchError, match=f"{name}.*use none or gzip"):
        read(compressed(codec, b"a"))


def test_records_that_end_too_early_are_an_error() -> None:
    """A count greater than the number of records in the bytes is refused."""
    body = batch(b"abc")[batches.HEADER.size :]
    for cut in (body[:-2], body):
        data = batches.assemble(cut, count=2, base_timestamp=NOW, max_timestamp=NOW)
        with pytest.raises(CorruptBatchError, match="cut off"):
            read(data)


EXTREMES = st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1]) | st.integers(
    -(2**63), 2**63 - 1
)


@given(base=EXTREMES, newest=EXTREMES, time=EXTREMES, offset=st.just(0) | EXTREMES)
def test_whatever_numbers_a_record_has_those_that_are_read_fit_into_64_bits(
    base: int, newest: int, time: int, offset: int
) -> None:
    """Times wrap around, as in Java, and an offset that is not in the batch is an error."""
    body = bytearray()
    _write_record(body, NewRecord(b"v"), offset, time)
    data = batches.assemble(bytes(body), count=1, base_timestamp=base, max_timestamp=newest)
    try:
        (record,) = read(batches.placed(data, 5, 0))
    except CorruptBatchError:
        assert offset
        return
    assert (record.offset, offset) == (5, 0)
    assert (record.timestamp - base - time) % 2**64 == 0
    assert -(2**63) <= record.timestamp < 2**63


def test_a_batch_needs_a_record() -> None:
    """An empty batch is refused."""
    with pytest.raises(ValueError, match="at least one record"):
        batch_of([], NOW)


@pytest.mark.parametrize("committed", [True, False])
def test_markers_are_those_of_kafka(committed: bool) -> None:
    """A marker is a transactional control batch whose key says commit (1) or abort (0)."""
    data = marker(9, 2, committed=committed, now=NOW)
    header = batches.header_of(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert read(data)[0].key == bytes([0, 0, 0, committed])


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_decompression_is_divided_into_steps(size: int) -> None:
    """Each 16 KiB, and each of many empty gzip members, is a step of its own."""
    data = compressed(1, bytes(size))
    empty = gzip.compress(b"")
    header = batches.header_of(data)
    members = data[: batches.HEADER.size] + empty * 1000 + data[batches.HEADER.size :]
    steps = list(records_in_steps(members, header))
    assert [len(one.value or b"") for one in steps if one is not None] == [size]
    assert steps.count(None) >= 1000 + size // (1 << 14)


@pytest.mark.parametrize(
    ("settings", "timestamp", "reads"),
    [
        ({}, NOW, False),
        ({}, NOW + 3_600_000, False),
        ({}, 0, False),
        ({}, -1, False),
        ({}, NOW + 3_600_001, True),
        ({}, -(2**63), True),
        ({"append_time": True}, 2**63 - 1, False),
        ({"needs_keys": True}, NOW, True),
        ({"timestamp_before_max": 1000}, NOW, True),
    ],
)
def test_only_batches_that_may_break_a_rule_are_read(
    settings: dict[str, Any], timestamp: int, *, reads: bool
) -> None:
    """With a topic's default rules, the header of an honest batch is enough."""
    rules = PartitionLog(LogSettings(**settings)).record_rules(NOW)
    data = batches.assemble(b"", count=1, base_timestamp=timestamp, max_timestamp=timestamp)
    assert rules.may_refuse(batches.header_of(data)) == reads
