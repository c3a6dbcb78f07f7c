"""Responses fitted to a version: a handler returns all it knows, a version carries what it has.

A handler writes one mapping for every version of an API, keyed by kio's field names; here it
becomes kio's dataclass of the version that the client asked for (``kgroup.wire.entities.fit``). The
throttle time is always zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from kio.index import load_response_schema

from kgroup.broker.time_slices import FREE, Work
from kgroup.wire.entities import field_shape, fit
from kgroup.wire.versions import API_KEYS

ResponseFields = Mapping[str, Any]
"""What a handler returns: kio's field names, nested mappings and sequences."""

_NO_THROTTLE: Final = {"throttle_time": timedelta(0)}


def fit_response(api: str, version: int, fields: ResponseFields) -> Any:
    """kio's dataclass of a response in a version.

    Raises:
        ValueError: no version of the response has a field, or one without a default is missing.
    """
    entity_type = _response_type(api, version)
    return fit(entity_type, _throttled(entity_type, fields))


async def fit_response_in_slices(api: str, version: int, fields: ResponseFields, work: Work) -> Any:
    """As ``fit_response``, for a long response: other tasks run between its items.

    Cancellation: nothing is left behind.
    """
    entity_type = _response_type(api, version)
    return await _fitted(entity_type, _throttled(entity_type, fields), work)


async def _fitted(entity_type: Any, fields: ResponseFields, work: Work) -> Any:
    nested = _nested(entity_type)
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in nested or not isinstance(value, (list, tuple)):
            values[name] = value
            continue
        values[name] = [await _fitted_item(nested[name], item, work) for item in value]
    return fit(entity_type, values)


async def _fitted_item(entity_type: Any, item: ResponseFields, work: Work) -> Any:
    items = _items(item)
    await work.spend(min(items, FREE))
    return fit(entity_type, item) if items < FREE else await _fitted(entity_type, item, work)


def _items(item: ResponseFields) -> int:
    """How many items there are in an item, itself included."""
    lists = [value for value in item.values() if isinstance(value, (list, tuple))]
    return 1 + sum(
        _items(inner) if isinstance(inner, Mapping) else 1 for some in lists for inner in some
    )


@cache
def _nested(entity_type: Any) -> Mapping[str, Any]:
    """The fields that are arrays of entities, each with the type of its items."""
    shapes = {field.name: field_shape(field) for field in dataclasses.fields(entity_type)}
    return {
        name: shape.entity
        for name, shape in shapes.items()
        if shape.is_array and shape.entity is not None
    }


def _throttled(entity_type: Any, fields: ResponseFields) -> ResponseFields:
    return {**_NO_THROTTLE, **fields} if hasattr(entity_type, "throttle_time") else fields


@cache
def _response_type(api: str, version: int) -> Any:
    return load_response_schema(API_KEYS[api], version)
