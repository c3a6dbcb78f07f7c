"""The writer, compared with kio's own."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer as kios_writer

from kgroup.wire.entity_writer import entity_writer
from tests.wire.entities import MESSAGE_TYPES, entities


def written(entity: Any) -> bytes:
    """What the writer makes of an entity."""
    parts: list[bytes] = []
    entity_type: Any = type(entity)
    entity_writer(entity_type)(parts, entity)
    return b"".join(parts)


def test_there_is_a_writer_for_every_message() -> None:
    """No message of the client or the broker has a field that the writer does not know."""
    assert all(callable(entity_writer(entity_type)) for entity_type in MESSAGE_TYPES)


@settings(max_examples=400, deadline=None)
@given(entity=st.sampled_from(MESSAGE_TYPES).flatmap(entities))
def test_it_writes_what_kio_writes(entity: Any) -> None:
    """Every message has kio's bytes, tagged fields and nulls included."""
    entity_type: Any = type(entity)
    buffer = io.BytesIO()
    kios_writer(entity_type)(buffer, entity)
    assert written(entity) == buffer.getvalue()


@pytest.mark.parametrize("length", [126, 127, 128, 16_382, 16_383, 16_384])
def test_lengths_of_every_size_are_kios(length: int) -> None:
    """A varint has as many bytes as it needs, also at the edges between one, two and three."""
    describe_groups: Any = load_request_schema(15, 5)
    entity = describe_groups(groups=("g" * length,), include_authorized_operations=False)
    buffer = io.BytesIO()
    kios_writer(type(entity))(buffer, entity)
    assert written(entity) == buffer.getvalue()


def test_large_values_are_not_copied_before_they_are_joined() -> None:
    """A batch of records is a part of its own: the very object that was passed."""
    response: Any = load_response_schema(1, 12)
    partition_type = response.__dataclass_fields__["responses"].type.__args__[0]
    inner = partition_type.__dataclass_fields__["partitions"].type.__args__[0]
    records = bytes(100)
    part = inner(
        partition_index=0,
        error_code=0,
        high_watermark=1,
        aborted_transactions=None,
        records=records,
    )
    parts: list[bytes] = []
    entity_writer(inner)(parts, part)
    assert any(one is records for one in parts)
