"""Subscriptions and assignments: all versions, newer ones, and invalid bytes."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.static.constants import EntityType

from kgroup.assignors.partition_codec import PartitionList
from kgroup.errors import ProtocolError
from kgroup.types import MemberSubscription, TopicPartition
from kgroup.wire import consumer_protocol
from kgroup.wire.codec import decode_data
from kgroup.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
#: What each version of a subscription added.
ADDED: list[dict[str, object]] = [{}, {"owned": OWNED}, {"generation_id": 7}, {"rack_id": "r"}]


def fields_of(version: int) -> dict[str, object]:
    """All fields of a subscription of this version."""
    fields: dict[str, object] = {"topics": ("a", "b"), "user_data": b"data", "version": version}
    for added in ADDED[: version + 1]:
        fields |= added
    return fields


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_comes_back(version: int) -> None:
    """Each version carries its fields; those that it lacks have their neutral values."""
    fields = fields_of(version)
    blob = encode_subscription(**fields)  # type: ignore[arg-type] # a version's fields
    decoded = decode_subscription(blob, member_id="m", group_instance_id="i")
    assert decoded == MemberSubscription(
        member_id="m",
        group_instance_id="i",
        **fields,  # type: ignore[arg-type] # as above
    )


@pytest.mark.parametrize("version", range(3))
def test_a_field_that_a_subscription_lacks_is_refused(version: int) -> None:
    """A field that this version lacks is a ValueError, not a loss."""
    fields = fields_of(version) | ADDED[version + 1]
    with pytest.raises(ValueError, match="its value would be lost"):
        encode_subscription(**fields)  # type: ignore[arg-type] # on purpose


def test_a_subscription_is_kafkas_bytes() -> None:
    """Version, topics in order, null user data: as Kafka's serializer writes version 0."""
    blob = encode_subscription(topics=["b", "a"], version=0)
    assert blob == b"\0\0" + b"\0\0\0\x02\0\x01a\0\x01b" + b"\xff\xff\xff\xff"
    assert decode_subscription(blob).user_data is None


def test_newer_versions_and_more_bytes_are_read() -> None:
    """A version beyond 3 is read as 3, and what follows the known fields is ignored."""
    fields = fields_of(3)
    blob = b"\0\x09" + encode_subscription(**fields)[2:] + b"more"  # type: ignore[arg-type]
    assert decode_subscription(blob).rack_id == "r"
    assert decode_assignment(b"\0\x09" + encode_assignment(OWNED)[2:] + b"more") == OWNED


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("user_data", [None, b"", b"data"])
def test_an_assignment_comes_back(version: int, user_data: bytes | None) -> None:
    """Every version gives the partitions back, whatever the user data."""
    assert decode_assignment(encode_assignment(OWNED, user_data, version)) == OWNED
    assert decode_assignment(encode_assignment((), user_data, version)) == ()


def test_no_bytes_are_no_partitions() -> None:
    """A coordinator sends no bytes to a member that the leader left out."""
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize(
    ("blob", "text"),
    [
        (b"", "the subscription of member 'm' has 0 bytes, too few for its version"),
        (b"\xff\xff", "the subscription of member 'm' has version -1"),
        (b"\0\x01", r"member 'm' \(version 1\): .* cannot be read"),
        (b"\0\0\x7f\xff\xff\xff", "an array of 2147483647 items"),
        (b"\0\0\xff\xff\xff\xff", "an array is null"),
    ],
)
def test_invalid_subscriptions_are_an_error_that_names_the_member(blob: bytes, text: str) -> None:
    """Garbage from another member is a ProtocolError."""
    with pytest.raises(ProtocolError, match=text):
        decode_subscription(blob, member_id="m")


@given(
    st.lists(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 3)), max_size=5),
    st.none() | st.binary(max_size=5),
    st.integers(0, 12),
    st.binary(max_size=8),
)
def test_an_assignment_is_what_kio_reads(
    partitions: list[TopicPartition], user_data: bytes | None, missing: int, more: bytes
) -> None:
    """Whole, with more behind it, or cut off: the same partitions, or both refuse it."""
    blob = encode_assignment(partitions, user_data)
    blob = blob[: len(blob) - missing] + more
    schema = load_entity_schema("consumer_protocol_assignment", 0, EntityType.data)
    read: object = None
    kio: object = None
    with contextlib.suppress(ProtocolError):
        read = tuple(decode_assignment(blob))
    with contextlib.suppress(ProtocolError):
        kio = tuple(
            TopicPartition(topic.topic, number)
            for topic in decode_data(schema, blob, 2).assigned_partitions
            for number in topic.partitions
        )
    assert read == (kio if blob else ())


def test_the_partitions_of_an_assignment_are_made_when_they_are_read() -> None:
    """The event loop waits for decoding, which makes no object for a partition."""
    blob = encode_assignment(TopicPartition("t", number) for number in range(1000))
    decoded = decode_assignment(blob)
    assert isinstance(decoded, PartitionList)
    assert len(decoded) == 1000
    assert decoded[999] == TopicPartition("t", 999)


@given(st.binary(max_size=40))
def test_any_blob_is_a_value_or_a_protocol_error(blob: bytes) -> None:
    """Any bytes are decoded or are a ProtocolError, never another error."""
    with contextlib.suppress(ProtocolError):
        decode_subscription(blob)
    with contextlib.suppress(ProtocolError):
        decode_assignment(blob)


names = st.text(max_size=5)
subscriptions = st.fixed_dictionaries(
    {
        "topics": st.lists(names, max_size=3, unique=True),
        "user_data": st.none() | st.binary(max_size=5),
        "owned": st.lists(st.builds(TopicPartition, names, st.integers(0, 3)), max_size=5),
        "generation_id": st.integers(-1, 9),
        "rack_id": st.none() | names,
    }
)


@given(subscriptions, st.integers(0, 3), st.integers(0, 12), st.binary(max_size=3))
def test_the_quick_reader_reads_what_kio_reads(
    fields: dict[str, Any], version: int, missing: int, more: bytes
) -> None:
    """Whole, with more behind it, or cut off: the same value or the same refusal."""
    given = {name: fields[name] for name in ("topics", "user_data", *added_until(version))}
    blob = encode_subscription(**given, version=version)
    blob = blob[: len(blob) - missing] + more

    def outcome() -> MemberSubscription | str:
        try:
            return decode_subscription(blob, member_id="m")
        except ProtocolError as error:
            return str(error)

    quick = outcome()
    with mock.patch.object(consumer_protocol, "_read_subscription", side_effect=ValueError):
        assert outcome() == quick


def added_until(version: int) -> list[str]:
    """The fields of this version."""
    return [name for added in ADDED[: version + 1] for name in added]
