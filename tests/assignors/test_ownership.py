"""Members' claims: how user data carries them, and which of them count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors.ownership import (
    MemberClaim,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
    indexes_of,
    settle_claims,
)
from kgroup.assignors.partition_codec import topic_spans
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.sticky import StickyAssignor
from kgroup.types import MemberSubscription, TopicPartition
from tests.assignors.golden import golden

INDEX = PartitionIndex({"t": 4})


@pytest.mark.parametrize(
    ("generations", "owner"),
    [
        ((5, None), 0),
        ((5, 6), 1),
        ((None, -1), None),
        ((3, 3), None),
        ((3, 3, 2), None),
        ((2, 3, 3), None),
        ((3, 3, 4), 2),
        ((4, 3, 3), 0),
    ],
)
def test_the_latest_claim_counts(generations: tuple[int | None, ...], owner: int | None) -> None:
    """The claim of the highest generation wins, if only one member claims in that generation."""
    claims = [MemberClaim([1], generation) for generation in generations]
    ownership = settle_claims(INDEX, claims)
    assert ownership.owned == [[1] if at == owner else [] for at in range(len(claims))]
    assert ownership.disputed == (frozenset({1}) if owner is None else frozenset())
    assert list(ownership.held) == [0, owner is not None, 0, 0]


def test_an_uncontested_claim_counts_however_old() -> None:
    """A member of an older generation keeps what no other member claims."""
    ownership = settle_claims(INDEX, [MemberClaim([0, 2], -1), MemberClaim([3], 9)])
    assert ownership.owned == [[0, 2], [3]]
    assert list(ownership.held) == [1, 0, 1, 1]


def test_a_partition_claimed_twice_by_one_member_counts_once() -> None:
    """A partition that a member lists twice is owned once."""
    ownership = settle_claims(INDEX, [MemberClaim([2, 2, 1], 3), MemberClaim([0], 3)])
    assert ownership.owned == [[2, 1], [0]]
    assert not ownership.disputed


def test_what_does_not_exist_is_not_owned() -> None:
    """Partitions of unknown topics, or beyond the last, are left out."""
    owned = [TopicPartition("t", n) for n in (-1, 0, 3, 4)] + [TopicPartition("u", 0)]
    members = [MemberSubscription(member_id="m", owned=tuple(owned))]
    assert list(indexes_of(members, INDEX)) == [[0, 3]]


TWO_TOPICS = PartitionIndex({"a": 4, "b": 2})
KNOWN = topic_spans(TWO_TOPICS)


@given(st.sets(st.integers(0, 5)).map(sorted), st.integers(-1, 2**31 - 1))
def test_sticky_user_data_is_decoded_as_encoded(rising: list[int], generation_id: int) -> None:
    """The leader reads what the member sent; a missing generation is None."""
    data = encode_sticky(MemberPartitions(TWO_TOPICS, rising), generation_id)
    assert decode_sticky(data, KNOWN) == (rising, generation_id)
    assert decode_sticky(data[:-4], KNOWN) == (rising, None)


@pytest.mark.parametrize("data", [None, b""])
def test_no_bytes_are_no_claim(data: bytes | None) -> None:
    """A member that has no assignment yet sends no user data, which claims nothing."""
    assert decode_sticky(data, KNOWN) == ([], None)
    assert StickyAssignor().user_data(None, -1) is None


@given(st.binary(min_size=1, max_size=30))
def test_any_bytes_can_be_read(data: bytes) -> None:
    """Broken user data raises no error, and claims no partition that does not exist."""
    owned, generation = decode_sticky(data, KNOWN)
    assert all(0 <= index < len(TWO_TOPICS) for index in owned)
    assert generation is None or -(2**31) <= generation < 2**31


@pytest.mark.parametrize(
    ("data", "generation"),
    [(None, None), (b"", -1), (b"\0\0\0", -1), (b"\0\0\0\x07", 7), (b"\0\0\0\x07more", 7)],
)
def test_a_generation_is_read(data: bytes | None, generation: int | None) -> None:
    """Four bytes are a generation, fewer mean -1, and no user data means None."""
    assert decode_generation(data) == generation


def test_writes_what_kafkas_members_write() -> None:
    """Recorded user data is the same bytes after it was decoded and encoded again."""
    seen = 0
    for line in golden("cooperative-sticky"):
        for member in line.members:
            if member.user_data is not None and len(member.user_data) == 4:
                generation = decode_generation(member.user_data)
                assert generation is not None
                assert encode_generation(generation) == member.user_data
                seen += 1
    for line in golden("sticky"):
        partition_index = PartitionIndex(dict.fromkeys(sorted(line.topics), 100))
        for member in line.members:
            owned, known = decode_sticky(member.user_data, topic_spans(partition_index))
            if member.user_data and known is not None and owned:
                again = encode_sticky(MemberPartitions(partition_index, sorted(owned)), known)
                assert decode_sticky(again, topic_spans(partition_index)) == (sorted(owned), known)
                seen += 1
    assert seen > 100
