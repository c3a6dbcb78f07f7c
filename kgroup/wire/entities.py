"""Plain values to kio entities: a caller names fields and need not know which version has which.

A message is a mapping keyed by kio's field names, nested ones included. This module makes the
frozen dataclass of one version from it; the bytes are `kgroup.wire.codec`'s.

Invariants: a value that would be lost is refused, never dropped; a field without a default is
never guessed. Values themselves appear in no error text: they may be secrets.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from types import NoneType
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.static.primitive import i16

Step = TypeVar("Step")


class UnknownErrorCode(int):
    """An error number that kio has no name for: a newer broker's. Compares as the number it is."""

    retriable: Final = False

    @property
    def name(self) -> str:
        """A name to print, since there is no other."""
        return f"unknown_error_{int(self)}"

    @property
    def value(self) -> int:
        """The number on the wire."""
        return int(self)

    def __repr__(self) -> str:
        return f"<UnknownErrorCode: {int(self)}>"


_ERROR_CODES: Final[Mapping[int, ErrorCode]] = {code.value: code for code in ErrorCode}


def error_code(number: int, /) -> ErrorCode | UnknownErrorCode:
    """Give kio's `ErrorCode` of a number, or an `UnknownErrorCode` that keeps it."""
    known = _ERROR_CODES.get(number)
    return UnknownErrorCode(number) if known is None else known


class LostFieldError(ValueError):
    """A field carries a value, and this version of the message has no such field."""


def build(entity_type: Any, fields: Mapping[str, Any]) -> Any:
    """Make a kio entity, nested ones included, from plain values.

    A field that this version lacks is dropped if its value is None or what the field's absence
    means (its default in the versions that have it, or zero where it has none).

    Raises:
        LostFieldError: this version lacks a field that carries a value.
        ValueError: no version has a field, or one without a default is missing. The text names
            the fields, not their values.
    """
    plan = _plan(entity_type)
    values = {}
    for name, value in fields.items():
        if name not in plan.converters:
            _refuse_if_it_carries_something(entity_type, name, value)
            continue
        convert = plan.converters[name]
        values[name] = value if convert is None else convert(value)
    if missing := plan.required - values.keys():
        raise ValueError(f"{label(entity_type)} needs {', '.join(sorted(missing))}")
    return entity_type(**values)


def wrong_field(entity: Any) -> str | None:
    """The name of the first field whose value does not fit its kio type, or None."""
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        shape = field_shape(field)
        items = value if shape.is_array and isinstance(value, tuple) else (value,)
        for item in items:
            if item is None and shape.nullable:
                continue
            if shape.entity is not None:
                if not isinstance(item, shape.entity):
                    return f"{field.name} cannot hold this {type(item).__name__}"
                if (inner := wrong_field(item)) is not None:
                    return f"{field.name}.{inner}"
            elif not _fits(item, shape.scalar):
                return f"{field.name} cannot hold this {type(item).__name__}"
    return None


def _fits(value: Any, scalar: Any) -> bool:
    return isinstance(value, i16 if scalar is ErrorCode else scalar)


def label(entity_type: Any) -> str:
    """How error texts name a message and its version."""
    return f"{entity_type.__name__} v{entity_type.__version__}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    converters: Mapping[str, Callable[[Any], Any] | None]
    required: frozenset[str]


@cache
def _plan(entity_type: Any) -> _Plan:
    fields = dataclasses.fields(entity_type)
    return _Plan(
        converters={field.name: _converter(entity_type, field) for field in fields},
        required=frozenset(
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ),
    )


def _converter(entity_type: Any, field: dataclasses.Field[Any]) -> Callable[[Any], Any] | None:
    shape = field_shape(field)
    convert_one: Callable[[Any], Any] | None = None
    if shape.entity is not None:
        convert_one = partial(_entity, shape.entity)
    elif field.metadata.get("kafka_type") == "error_code":
        convert_one = error_code
    if not shape.is_array:
        return convert_one
    what = f"{label(entity_type)} field {field.name}"

    def convert_all(value: Any) -> Any:
        if value is None:
            if shape.nullable:
                return None
            raise ValueError(f"{what} must be a sequence, got None")
        if isinstance(value, str | bytes | Mapping):
            kind = type(value).__name__
            raise ValueError(f"{what} must be a sequence, got {kind}")
        return tuple(value) if convert_one is None else tuple(map(convert_one, value))

    return convert_all


def _entity(entity_type: Any, value: Any) -> Any:
    return build(entity_type, value) if isinstance(value, Mapping) else value


@dataclasses.dataclass(frozen=True, slots=True)
class FieldShape:
    """What kio's annotation of one field says: an array or not, null or not, of which entity."""

    is_array: bool
    nullable: bool
    scalar: Any
    entity: Any | None


def field_shape(field: dataclasses.Field[Any]) -> FieldShape:
    """Read a field's shape from its annotation, such as ``tuple[Topic, ...] | None``."""
    nullable, inner = _without_none(field.type)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner = _without_none(typing.get_args(inner)[0])[1]
    entity = inner if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None
    return FieldShape(is_array, nullable, inner, entity)


def field_steps(
    fields: Iterable[dataclasses.Field[Any]],
    fixed_types: Collection[str],
    fixed_step: Callable[[list[dataclasses.Field[Any]]], Step],
    field_step: Callable[[dataclasses.Field[Any]], Step],
) -> list[Step]:
    """One step for each run of neighbouring fields of fixed size, and one for every other field.

    Args:
        fields: in the order of the wire.
        fixed_types: kio's names of the types of fixed size.
        fixed_step: makes the step for such a run.
        field_step: makes the step for a field that is an array, an entity, or of another type.
    """

    def is_fixed(field: dataclasses.Field[Any]) -> bool:
        return field.metadata.get("kafka_type") in fixed_types and not field_shape(field).is_array

    steps: list[Step] = []
    for fixed, run in itertools.groupby(fields, is_fixed):
        if fixed:
            steps.append(fixed_step(list(run)))
        else:
            steps += map(field_step, run)
    return steps


def _without_none(annotation: Any) -> tuple[bool, Any]:
    arguments = typing.get_args(annotation)
    if NoneType not in arguments:
        return False, annotation
    return True, next(argument for argument in arguments if argument is not NoneType)


def _refuse_if_it_carries_something(entity_type: Any, name: str, value: Any) -> None:
    defaults = _defaults_elsewhere(entity_type, name)
    if not defaults:
        raise ValueError(f"no version of {entity_type.__name__} has a field {name}")
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        value = tuple(value)
    if value is None or value in defaults or (dataclasses.MISSING in defaults and not value):
        return
    raise LostFieldError(f"{label(entity_type)} has no field {name}, and its value would be lost")


@cache
def _defaults_elsewhere(entity_type: Any, name: str) -> tuple[Any, ...]:
    """The defaults that a field has in all versions of its message; empty if none has it."""
    root, schema, message, _, part = entity_type.__module__.split(".")
    found: list[Any] = []
    for version in schema_name_map[message]:
        module = importlib.import_module(f"{root}.{schema}.{message}.v{version}.{part}")
        twin = getattr(module, entity_type.__name__, None)
        if twin is None:
            continue
        found += [field.default for field in dataclasses.fields(twin) if field.name == name]
    return tuple(found)
