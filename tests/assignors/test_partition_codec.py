"""The codec of the partition lists in Kafka's subscriptions and assignments."""

from __future__ import annotations

import contextlib
import gc
import struct
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors import partition_codec
from kgroup.assignors.partition_codec import (
    decode_indexes,
    decode_partitions,
    encode_partitions,
    topic_spans,
)
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.types import TopicPartition

INDEX = PartitionIndex({"a": 3, "bc": 1, "d.e": 4, "f": 300})
PARTITIONS = st.sets(st.integers(0, len(INDEX) - 1)).map(sorted)


def share(rising: list[int]) -> MemberPartitions:
    """A member's partitions, by their indexes."""
    return MemberPartitions(INDEX, array("i", rising))


def test_the_bytes_are_kafkas() -> None:
    """An ARRAY of topics, each a STRING and an ARRAY of INT32."""
    two = [TopicPartition("t", 5), TopicPartition("t", 258)]
    assert (
        encode_partitions(two)
        == b"\0\0\0\x01" + b"\0\x01t" + b"\0\0\0\x02" + b"\0\0\0\x05\0\0\x01\x02"
    )
    assert encode_partitions([]) == b"\0\0\0\0"


@given(PARTITIONS)
def test_a_share_packs_like_a_list(rising: list[int]) -> None:
    """`MemberPartitions` are encoded as the same partitions in a list are."""
    assert encode_partitions(share(rising)) == encode_partitions(list(share(rising)))


@given(PARTITIONS, st.binary(max_size=9), st.binary(max_size=3))
def test_indexes_are_decoded_as_encoded(rising: list[int], after: bytes, before: bytes) -> None:
    """Decoding returns the indexes and the offset after them."""
    packed = encode_partitions(share(rising))
    data = before + packed + after
    assert decode_indexes(data, len(before), topic_spans(INDEX)) == (
        rising,
        len(data) - len(after),
    )


def test_missing_partitions_are_left_out() -> None:
    """Unknown topics and numbers that do not exist are skipped, alone or among others."""
    packed = struct.pack(">i", 4) + b"".join(
        struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
        for name, numbers in ((b"a", [3]), (b"bc", []), (b"zz", [0, 1]), (b"d.e", [-1, 2, 4]))
    )
    assert decode_indexes(packed, 0, topic_spans(INDEX)) == ([6], len(packed))


@given(PARTITIONS.filter(bool), st.data())
def test_bytes_that_end_early_are_refused(rising: list[int], data: st.DataObject) -> None:
    """A list that was cut off is never read as a shorter list."""
    packed = encode_partitions(share(rising))
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises((ValueError, IndexError, struct.error)):
        decode_indexes(packed[:cut], 0, topic_spans(INDEX))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x01\xff\xff\0\0\0\0",
        b"\0\0\0\x01\0\x01a\xff\xff\xff\xff",
        b"\0\0\0\x01\0\x01a\x7f\xff\xff\xff\0\0\0\0",
    ],
)
def test_nulls_and_lengths_beyond_the_end_are_refused(data: bytes) -> None:
    """A null array, topic or list is refused, and so are more items than there are bytes."""
    with pytest.raises((ValueError, IndexError, struct.error)):
        decode_indexes(data, 0, topic_spans(INDEX))


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Whatever the bytes are, only partitions that exist are found, or one error is raised."""
    try:
        found, at = decode_indexes(data, 0, topic_spans(INDEX))
    except (ValueError, IndexError, struct.error):
        return
    assert at <= len(data)
    assert all(0 <= index < len(INDEX) for index in found)


@given(PARTITIONS, st.binary(min_size=4, max_size=9), st.binary(max_size=3))
def test_partitions_are_decoded_as_encoded(rising: list[int], after: bytes, before: bytes) -> None:
    """They are a sequence that equals any other with the same partitions."""
    blob = encode_partitions(share(rising))
    found, at = decode_partitions(before + blob + after, len(before))
    wanted = list(share(rising))
    assert at == len(before) + len(blob)
    assert found == wanted == list(found)
    assert hash(found) == hash(tuple(wanted))
    assert repr(found).startswith(f"<PartitionList of {len(wanted)}: ")
    assert found[:2] == tuple(wanted[:2])
    assert [found[at] for at in range(len(found))] == wanted
    assert found != [*wanted, TopicPartition("z", 0)]
    assert found != len(wanted)


def test_a_name_that_is_cut_off_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was cut off does not spoil the cache of names, whose size is bounded."""
    monkeypatch.setattr(partition_codec, "_MAX_CACHED_NAMES", 3)
    blob = encode_partitions([TopicPartition("orders", 7)]) + b"more"
    for missing in range(len(blob), 0, -1):
        with contextlib.suppress(ValueError, IndexError, struct.error):
            decode_partitions(blob[: len(blob) - missing], 0)
        assert decode_partitions(blob, 0)[0] == [TopicPartition("orders", 7)]
    for number in range(9):
        decode_partitions(encode_partitions([TopicPartition(f"t{number}", 0)]) + b"more", 0)
        assert len(partition_codec._CACHED_NAMES) <= 3


def test_names_from_other_members_do_not_fill_the_cache() -> None:
    """The cache holds a bounded number of names, and no long ones."""
    names = [TopicPartition(f"{number:05}{'x' * 240}", 0) for number in range(30_000)]
    decode_partitions(encode_partitions([*names, TopicPartition("y" * 30_000, 0)]) + b"more", 0)
    assert len(partition_codec._CACHED_NAMES) <= 20_000
    assert max(map(len, partition_codec._CACHED_NAMES)) <= 251


def test_names_are_kept_nowhere_else() -> None:
    """Once the names are gone from the cache, their memory is free again."""
    partition_codec._CACHED_NAMES.clear()
    blob = encode_partitions(
        [TopicPartition(f"{number:05}{'z' * 240}", 0) for number in range(9999)]
    )
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        decode_partitions(blob + b"more", 0)
        partition_codec._CACHED_NAMES.clear()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 18
    finally:
        tracemalloc.stop()
