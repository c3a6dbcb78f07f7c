"""Plain values to kio entities: a caller names fields and need not know which version has which.

A message is a mapping keyed by kio's field names, nested ones included. This module makes the
frozen dataclass of one version from it; the bytes are `kgroup.wire.codec`'s.

INVARIANTS: a value that would be lost is refused, never dropped; a field without a default is
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


_EMPTY: Final = {"string": "", "bytes": b""}
"""What stands for null in a field that cannot be null."""
_ERROR_CODES: Final[Mapping[int, ErrorCode]] = {code.value: code for code in ErrorCode}


def error_code(number: int, /) -> ErrorCode | UnknownErrorCode:
    """Give kio's `ErrorCode` of a number, or an `UnknownErrorCode` that keeps it."""
    known = _ERROR_CODES.get(number)
    return UnknownErrorCode(number) if known is None else known


class LostFieldError(ValueError):
    """A field carries a value, and this version of the message has no such field."""


def build(entity_type: Any, fields: Mapping[str, Any]) -> Any:
    """Make a kio entity, nested ones included, from plain values. Clients build requests so.

    A field that this version lacks is left out if its value is None or what the field's absence
    means (its default in the versions that have it, or zero where it has none).

    Raises:
        LostFieldError: this version lacks a field that carries a value.
        ValueError: no version has a field, or one without a default is missing. The text names
            the fields, not their values.
    """
    return _builder(entity_type, fits=False)(fields)


def fit(entity_type: Any, fields: Mapping[str, Any]) -> Any:
    """Make a kio entity from what several versions of it carry. Brokers build responses so.

    A broker answers an old client with as much as the client's version can carry: fields that
    the version lacks are left out whatever their value, and null becomes empty where the version
    has no null.

    Raises:
        ValueError: no version has a field, or one without a default is missing.
    """
    return _builder(entity_type, fits=True)(fields)


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


@cache
def _builder(entity_type: Any, *, fits: bool) -> Callable[[Mapping[str, Any]], Any]:
    """The function that builds one kind of entity, as ``fit`` does or as ``build`` does."""
    own = dataclasses.fields(entity_type)
    converters = {field.name: _converter(entity_type, field, fits=fits) for field in own}
    leave_out = _check_known if fits else _check_without_value

    def make(fields: Mapping[str, Any]) -> Any:
        values = {}
        for name, value in fields.items():
            if name not in converters:
                leave_out(entity_type, name, value)
                continue
            convert = converters[name]
            values[name] = value if convert is None else convert(value)
        try:
            return entity_type(**values)
        except TypeError:
            missing = sorted(_required(entity_type) - values.keys())
            raise ValueError(f"{label(entity_type)} needs {', '.join(missing)}") from None

    return make


def _required(entity_type: Any) -> frozenset[str]:
    return frozenset(
        field.name
        for field in dataclasses.fields(entity_type)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


def _converter(
    entity_type: Any, field: dataclasses.Field[Any], *, fits: bool
) -> Callable[[Any], Any] | None:
    shape = field_shape(field)
    kafka_type = field.metadata.get("kafka_type")
    convert_one: Callable[[Any], Any] | None = None
    if shape.entity is not None:
        convert_one = partial(_nested, _builder(shape.entity, fits=fits))
    elif kafka_type == "error_code":
        convert_one = _any_error_code
    elif fits and kafka_type in _EMPTY and not shape.nullable and not shape.is_array:
        empty = _EMPTY[kafka_type]
        return lambda value: empty if value is None else value
    if not shape.is_array:
        return convert_one
    what = f"{label(entity_type)} field {field.name}"

    def convert_all(value: Any) -> Any:
        if value is None:
            if shape.nullable:
                return None
            if fits:
                return ()
            raise ValueError(f"{what} must be a sequence, got None")
        if isinstance(value, str | bytes | Mapping):
            kind = type(value).__name__
            raise ValueError(f"{what} must be a sequence, got {kind}")
        return tuple(value) if convert_one is None else tuple(map(convert_one, value))

    return convert_all


def _nested(builder: Callable[[Mapping[str, Any]], Any], value: Any) -> Any:
    # isinstance is quick for a dict and slow for another Mapping, and there can be thousands.
    return builder(value) if isinstance(value, (dict, Mapping)) else value


@cache
def _any_error_code(code: int) -> ErrorCode | UnknownErrorCode:
    # kio's enum does not find a member of another IntEnum, but it finds its number.
    return error_code(int(code))


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


def _check_known(entity_type: Any, name: str, value: object) -> None:
    """Let any value of a field go, provided that some version has the field."""
    del value
    if not _defaults_elsewhere(entity_type, name):
        raise ValueError(f"no version of {entity_type.__name__} has a field {name}")


def _check_without_value(entity_type: Any, name: str, value: Any) -> None:
    """Let a field go only if nothing is lost with it."""
    _check_known(entity_type, name, value)
    defaults = _defaults_elsewhere(entity_type, name)
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
        other = getattr(module, entity_type.__name__, None)
        if other is None:
            continue
        found += [field.default for field in dataclasses.fields(other) if field.name == name]
    return tuple(found)
