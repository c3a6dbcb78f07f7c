"""What sticky members send along."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors.partition_codec import heads
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.sticky import StickyAssignor
from kgroup.assignors.user_data import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from tests.assignors.golden import golden

LAYOUT = PartitionIndex({"a": 4, "b": 2})
KNOWN = heads(LAYOUT)


@given(st.sets(st.integers(0, 5)).map(sorted), st.integers(-1, 2**31 - 1))
def test_sticky_comes_back(rising: list[int], generation_id: int) -> None:
    """What a member sends is what the leader reads."""
    data = encode_sticky(MemberPartitions(LAYOUT, rising), generation_id)
    assert decode_sticky(data, KNOWN) == (rising, generation_id)
    assert decode_sticky(data[:-4], KNOWN) == (rising, None)


@pytest.mark.parametrize("data", [None, b""])
def test_no_bytes_tell_nothing(data: bytes | None) -> None:
    """A member that was assigned nothing yet owns nothing and was in no generation."""
    assert decode_sticky(data, KNOWN) == ([], None)
    assert StickyAssignor().user_data(None, -1) is None


@given(st.binary(min_size=1, max_size=30))
def test_any_bytes_can_be_read(data: bytes) -> None:
    """Broken user data is never an error."""
    owned, generation = decode_sticky(data, KNOWN)
    assert all(0 <= index < len(LAYOUT) for index in owned)
    assert generation is None or -(2**31) <= generation < 2**31


@pytest.mark.parametrize(
    ("data", "generation"),
    [(None, None), (b"", -1), (b"\0\0\0", -1), (b"\0\0\0\x07", 7), (b"\0\0\0\x07more", 7)],
)
def test_a_generation_is_read(data: bytes | None, generation: int | None) -> None:
    """Four bytes are a generation, fewer are none; no user data tells nothing."""
    assert decode_generation(data) == generation


def test_writes_what_kafkas_members_write() -> None:
    """Well-formed user data that was recorded comes out again as it was, generation and all."""
    seen = 0
    for line in golden("cooperative-sticky"):
        for member in line.members:
            if member.user_data is not None and len(member.user_data) == 4:
                generation = decode_generation(member.user_data)
                assert generation is not None
                assert encode_generation(generation) == member.user_data
                seen += 1
    for line in golden("sticky"):
        layout = PartitionIndex(dict.fromkeys(sorted(line.topics), 100))
        for member in line.members:
            owned, known = decode_sticky(member.user_data, heads(layout))
            if member.user_data and known is not None and owned:
                again = encode_sticky(MemberPartitions(layout, sorted(owned)), known)
                assert decode_sticky(again, heads(layout)) == (sorted(owned), known)
                seen += 1
    assert seen > 100
