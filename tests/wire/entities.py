"""Hypothesis strategies for any kio dataclass, made from its annotations."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.static.constants import EntityType

from kgroup.wire.entities import field_shape
from kgroup.wire.versions import API_KEYS, SUPPORTED_REQUESTS

#: What an embedded broker reads and writes besides what the client speaks.
BROKERS = (
    "produce",
    "fetch",
    "create_topics",
    "delete_topics",
    "create_partitions",
    "describe_groups",
    "list_groups",
    "delete_groups",
    "offset_delete",
    "init_producer_id",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "txn_offset_commit",
    "offset_for_leader_epoch",
    "describe_configs",
    "describe_cluster",
    "consumer_group_heartbeat",
)


def known_versions(api: str) -> tuple[int, int]:
    """The lowest and the highest version of an API that kio can encode and decode."""
    known = [
        version for version, kinds in schema_name_map[api].items() if EntityType.request in kinds
    ]
    return min(known), max(known)


def _int(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _milliseconds(bits: int) -> st.SearchStrategy[timedelta]:
    bound = min(2 ** (bits - 1) - 1, 10**13)
    return st.integers(-bound, bound).map(lambda number: timedelta(milliseconds=number))


_SCALARS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "int8": _int(8),
    "int16": _int(16),
    "int32": _int(32),
    "int64": _int(64),
    "uint8": st.integers(0, 2**8 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _milliseconds(32),
    "timedelta_i64": _milliseconds(64),
    "datetime_i64": st.integers(0, 10**11).map(lambda number: datetime.fromtimestamp(number, UTC)),
    "uuid": st.none() | st.uuids(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5),
}


@cache
def entities(entity_type: Any) -> st.SearchStrategy[Any]:
    """Entities of one kio dataclass, nested ones included."""
    fields = dataclasses.fields(entity_type)
    return st.builds(entity_type, **{field.name: _values(field) for field in fields})


def _values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    shape = field_shape(field)
    if shape.entity is not None:
        values = entities(shape.entity)
    else:
        values = _SCALARS[field.metadata["kafka_type"]]
    if shape.is_array:
        values = st.lists(values, max_size=2).map(tuple)
    # A tagged field that is null is left out, and then has its default.
    if "tag" in field.metadata:
        return values if field.default is dataclasses.MISSING else st.just(field.default) | values
    return st.none() | values if shape.nullable else values


def _message_types() -> list[Any]:
    found: list[Any] = []
    for api in (*SUPPORTED_REQUESTS, *BROKERS):
        lowest, highest = known_versions(api)
        for version in range(lowest, highest + 1):
            found.append(load_request_schema(API_KEYS[api], version))
            found.append(load_response_schema(API_KEYS[api], version))
    return found


MESSAGE_TYPES: Final[list[Any]] = _message_types()
"""Every version of every request and response that kgroup's client or broker uses."""
