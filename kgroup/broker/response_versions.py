"""Answers fitted to a version: a handler says all it knows, a version carries what it has.

A handler writes one mapping for every version of an API, keyed by kio's field names. Here it
becomes kio's dataclass of the version asked for: fields that the version lacks are left out,
a text that may not be null is empty instead, the throttle time is zero. A field name that no
version has is a defect and raises.

The border (``kgroup.wire.codec``) refuses what a client would lose; a broker's answer is meant
to lose it, and that is why this is another way to build the same dataclasses.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.index import schema_name_map

from kgroup.broker.time_slices import FREE, Work
from kgroup.wire.entities import error_code, field_shape
from kgroup.wire.versions import API_KEYS

Answer = Mapping[str, Any]
"""What a handler gives: kio's field names, nested mappings and sequences."""

_NO_THROTTLE: Final = timedelta(0)
_LONGEST_MESSAGE: Final = 2000
"""Characters of an error's message."""
_EMPTY: Final = {"string": "", "bytes": b""}


def fit(api: str, version: int, answer: Answer) -> Any:
    """kio's dataclass of an answer in a version.

    Raises:
        TypeError: a field without a default is missing.
        ValueError: no version of the answer has a field of that name.
    """
    return _builder(_response_type(api, version))(answer)


async def fit_in_slices(api: str, version: int, answer: Answer, work: Work) -> Any:
    """As ``fit``, for a long answer: the event loop is given back between its items.

    Cancellation: nothing is left behind.
    """
    return await _fitted(_response_type(api, version), answer, work)


async def _fitted(entity_type: Any, answer: Answer, work: Work) -> Any:
    nested = _nested(entity_type)
    values: dict[str, Any] = {}
    for name, value in answer.items():
        if name not in nested or not isinstance(value, (list, tuple)):
            values[name] = value
            continue
        values[name] = [await _fitted_item(nested[name], item, work) for item in value]
    return _builder(entity_type)(values)


async def _fitted_item(entity_type: Any, item: Answer, work: Work) -> Any:
    items = _items(item)
    await work.spend(min(items, FREE))
    return _builder(entity_type)(item) if items < FREE else await _fitted(entity_type, item, work)


def _items(item: Answer) -> int:
    """How many items there are in an item, itself included."""
    lists = [value for value in item.values() if isinstance(value, (list, tuple))]
    return 1 + sum(
        _items(inner) if isinstance(inner, Mapping) else 1 for some in lists for inner in some
    )


@cache
def _nested(entity_type: Any) -> Mapping[str, Any]:
    """The fields that are arrays of entities, and of which."""
    shapes = {field.name: field_shape(field) for field in dataclasses.fields(entity_type)}
    return {
        name: shape.entity
        for name, shape in shapes.items()
        if shape.is_array and shape.entity is not None
    }


@cache
def _response_type(api: str, version: int) -> Any:
    return load_response_schema(API_KEYS[api], version)


@cache
def _builder(entity_type: Any) -> Callable[[Answer], Any]:
    converters = {field.name: _converter(field) for field in dataclasses.fields(entity_type)}
    throttled = "throttle_time" in converters

    def build(answer: Answer) -> Any:
        if isinstance(answer, entity_type):
            return answer  # it was made in slices
        values: dict[str, Any] = {"throttle_time": _NO_THROTTLE} if throttled else {}
        for name, value in answer.items():
            if name in converters:
                convert = converters[name]
                values[name] = value if convert is None else convert(value)
            elif name not in names_in_any_version(entity_type):
                raise ValueError(f"no version of {entity_type.__name__} has a field {name}")
        return entity_type(**values)

    return build


def _converter(field: dataclasses.Field[Any]) -> Callable[[Any], Any] | None:
    shape = field_shape(field)
    kafka_type = field.metadata.get("kafka_type")
    one: Callable[[Any], Any] | None = None
    if shape.entity is not None:
        one = _builder(shape.entity)
    elif kafka_type == "error_code":
        one = _code
    if shape.is_array:
        return _each(one, nullable=shape.nullable)
    if shape.entity is not None and shape.nullable:
        build = _builder(shape.entity)
        return lambda value: None if value is None else build(value)
    if field.name == "error_message":
        return _message
    if kafka_type in _EMPTY and not shape.nullable:
        empty = _EMPTY[kafka_type]
        return lambda value: empty if value is None else value
    return one


def _message(text: str | None) -> str | None:
    """Words for people; they may quote a client's text, which alone fills a field."""
    if text is None or len(text) <= _LONGEST_MESSAGE:
        return text
    return f"{text[:_LONGEST_MESSAGE]}..."


@cache
def _code(code: int) -> int:
    # int() takes an IntEnum of another making, which kio's enum does not find, to its number.
    return error_code(int(code))


def _each(one: Callable[[Any], Any] | None, *, nullable: bool) -> Callable[[Any], Any]:
    def convert(values: Any) -> Any:
        if values is None:
            return None if nullable else ()
        return tuple(values) if one is None else tuple([one(value) for value in values])

    return convert


@cache
def names_in_any_version(entity_type: Any) -> frozenset[str]:
    """The names of the fields that a message has in one version or another."""
    root, schema, message, _, part = entity_type.__module__.split(".")
    names: set[str] = set()
    for version in schema_name_map[message]:
        module = importlib.import_module(f"{root}.{schema}.{message}.v{version}.{part}")
        twin = getattr(module, entity_type.__name__, None)
        if twin is not None:
            names.update(field.name for field in dataclasses.fields(twin))
    return frozenset(names)
