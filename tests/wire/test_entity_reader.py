"""The reader: equal to kio's own for what kio accepts, and safe for any bytes."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader as kios_reader
from kio.serial import entity_writer

from kgroup.wire.entities import UnknownErrorCode
from kgroup.wire.entity_reader import DECODE_ERRORS, entity_reader, limit_items
from tests.wire.entities import MESSAGE_TYPES, entities

METADATA_V4: Any = load_response_schema(3, 4)
METADATA_V9: Any = load_response_schema(3, 9)
LEAVE_GROUP_V4: Any = load_response_schema(13, 4)
HEARTBEAT_V4: Any = load_response_schema(12, 4)
API_VERSIONS_V4: Any = load_response_schema(18, 4)

#: A Metadata v9 answer up to the length of the first partition's replicas.
TO_REPLICAS = bytes(4) + b"\x01\0" + bytes(4) + b"\x02" + bytes(2) + b"\x02t\0\x02" + bytes(14)


def written(entity: Any) -> bytes:
    """What kio writes for an entity."""
    buffer = io.BytesIO()
    entity_type: Any = type(entity)
    entity_writer(entity_type)(buffer, entity)
    return buffer.getvalue()


def test_there_is_a_reader_for_every_message() -> None:
    """No message of the client or the broker has a field that the reader does not know."""
    assert all(callable(entity_reader(entity_type)) for entity_type in MESSAGE_TYPES)
    headers = {entity_type.__header_schema__ for entity_type in MESSAGE_TYPES}
    assert len({entity_reader(header) for header in headers}) == len(headers) == 4


@settings(max_examples=400, deadline=None)
@given(entity=st.sampled_from(MESSAGE_TYPES).flatmap(entities))
def test_it_reads_what_kio_writes_as_kio_reads_it(entity: Any) -> None:
    """What kio writes is read back as the same entity, by this reader and by kio's."""
    entity_type: Any = type(entity)
    data = b"before" + written(entity) + b"after"
    assert entity_reader(entity_type)(data, 6) == (entity, len(data) - 5)
    theirs, size = kios_reader(entity_type)(data, 6)
    assert (theirs, size) == (entity, len(data) - 11)


@settings(max_examples=400, deadline=None)
@given(entity_type=st.sampled_from(MESSAGE_TYPES), data=st.binary(max_size=60))
def test_any_bytes_are_an_entity_or_a_fault(entity_type: Any, data: bytes) -> None:
    """Any bytes give an entity or one of the declared errors, never another one."""
    try:
        entity, end = entity_reader(entity_type)(data, 0)
    except DECODE_ERRORS:
        return
    assert isinstance(entity, entity_type)
    assert end <= len(data)


@settings(max_examples=400, deadline=None)
@given(data=st.data(), entity=st.sampled_from(MESSAGE_TYPES).flatmap(entities))
def test_damaged_bytes_are_an_entity_or_a_fault(data: st.DataObject, entity: Any) -> None:
    """So do messages with changed bytes, and messages that are cut short."""
    entity_type: Any = type(entity)
    good = bytearray(written(entity))
    changes = st.tuples(st.integers(0, max(len(good) - 1, 0)), st.integers(0, 255))
    for place, byte in data.draw(st.lists(changes, max_size=3)):
        good[place : place + 1] = bytes([byte])
    damaged = bytes(good[: data.draw(st.integers(0, len(good)))])
    try:
        entity_reader(entity_type)(damaged, 0)
    except DECODE_ERRORS:
        return


@pytest.mark.parametrize(
    ("entity_type", "data"),
    [
        (METADATA_V4, bytes(4) + b"\x7f\xff\xff\xff"),
        (METADATA_V9, bytes(4) + b"\xff\xff\xff\xff\x07"),
        (METADATA_V9, bytes(4) + b"\xff\xff\xff\xff\x0f"),
        (METADATA_V9, TO_REPLICAS + b"\x80\x80\x80\xbe\x01"),
    ],
)
def test_an_announced_length_allocates_nothing(entity_type: Any, data: bytes) -> None:
    """An array longer than the remaining bytes is refused before memory is allocated for it."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"an array of \d+ items, \d+ bytes left"):
            entity_reader(entity_type)(data, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_items_that_cannot_fit_are_refused() -> None:
    """An array with as many items as bytes left, but larger ones, is refused too."""
    with pytest.raises(ValueError, match="4 items of 4 bytes, 8 bytes left"):
        entity_reader(METADATA_V9)(TO_REPLICAS + b"\x05" + bytes(8), 0)


def test_a_null_array_is_refused() -> None:
    """Kafka never sends null there; kio would pass it on as None."""
    data = bytes(8)  # no throttling, no error, null members, no tags
    assert kios_reader(LEAVE_GROUP_V4)(data, 0)[0].members is None
    with pytest.raises(ValueError, match="an array is null"):
        entity_reader(LEAVE_GROUP_V4)(data, 0)


def test_an_unknown_tagged_field_is_skipped() -> None:
    """Fields with unknown tags are skipped, before and after known ones."""
    data = bytes(2) + b"\x01" + bytes(4)  # no error, no APIs, no throttling
    tags = b"\x03" + b"\x01\x08" + bytes(7) + b"\x2a" + b"\x63\x02hi" + b"\xe4\x00\x01x"
    entity, end = entity_reader(API_VERSIONS_V4)(data + tags, 0)
    assert entity.finalized_features_epoch == 42
    assert end == len(data + tags)
    with pytest.raises(KeyError):
        kios_reader(API_VERSIONS_V4)(data + tags, 0)


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        (b"\x01\x63\x05hi", "tagged field 99 of 5 bytes, 2 left"),
        (b"\x01\x01\x04" + bytes(8), "tagged field 1 .finalized_features_epoch. is longer than"),
    ],
)
def test_a_tagged_field_keeps_to_its_length(tags: bytes, text: str) -> None:
    """A tagged field beyond the end, or one that needs more than its length, is refused."""
    with pytest.raises(ValueError, match=text):
        entity_reader(API_VERSIONS_V4)(bytes(2) + b"\x01" + bytes(4) + tags, 0)


def test_a_nullable_entity() -> None:
    """A nullable entity begins with a byte that says whether it is null (KIP-893)."""
    entity_type: Any = load_response_schema(68, 0)  # ConsumerGroupHeartbeat
    head = bytes(4) + bytes(2) + b"\0" + b"\0" + bytes(4) + bytes(4)
    entity, _ = entity_reader(entity_type)(head + b"\xff" + b"\0", 0)
    assert entity.assignment is None
    entity, _ = entity_reader(entity_type)(head + b"\x01" + b"\x01\0" + b"\0", 0)
    assert entity.assignment.topic_partitions == ()


def test_an_unknown_error_number_is_kept() -> None:
    """An unknown error code keeps its number and has a name to print; known ones are kio's."""
    entity, _ = entity_reader(HEARTBEAT_V4)(bytes(4) + b"\x03\xe7\0", 0)
    code = entity.error_code
    assert code == 999
    assert isinstance(code, UnknownErrorCode)
    assert (code.name, code.value, code.retriable) == ("unknown_error_999", 999, False)
    assert repr(code) == "<UnknownErrorCode: 999>"
    entity, _ = entity_reader(HEARTBEAT_V4)(bytes(4) + b"\0\x1b\0", 0)
    assert entity.error_code is ErrorCode.rebalance_in_progress
    entity, _ = entity_reader(HEARTBEAT_V4)(bytes(7), 0)
    assert entity.error_code is ErrorCode.none


def test_a_number_without_an_end_is_refused_at_once() -> None:
    """A varint has at most five bytes, so that a megabyte of 0xFF is refused at once."""
    data = bytes(8) + b"\xff" * (1 << 20)
    for entity_type in [one for one in MESSAGE_TYPES if one.__flexible__]:
        tracemalloc.start()
        try:
            with pytest.raises(DECODE_ERRORS):
                entity_reader(entity_type)(data, 8)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_tagged_fields_are_limited_with_the_items() -> None:
    """Unknown tagged fields are skipped one by one, and so few bytes could hold a great many."""
    heartbeat: Any = load_request_schema(12, 4)
    data = b"\2g" + bytes(4) + b"\2m" + b"\0" + b"\4" + b"\x63\0" * 4
    with limit_items(4):
        assert entity_reader(heartbeat)(data, 0)[1] == len(data)
    with limit_items(3), pytest.raises(ValueError, match="4 tagged fields, 3 more are allowed"):
        entity_reader(heartbeat)(data, 0)


def test_the_items_of_a_message_can_be_limited() -> None:
    """All arrays count together, and the limit ends with the block."""
    request: Any = load_request_schema(3, 1)
    data = b"\0\0\0\4" + b"\0\1t" * 4
    with limit_items(4):
        assert len(entity_reader(request)(data, 0)[0].topics) == 4
    with limit_items(3), pytest.raises(ValueError, match="4 array items, 3 more are allowed"):
        entity_reader(request)(data, 0)
    assert len(entity_reader(request)(data, 0)[0].topics) == 4
