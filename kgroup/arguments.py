"""Checks of the arguments that a program passes to the API, made in the call itself.

A wrong number that reaches another thread, or a request, fails far from the mistake and may end
more than the one call. Therefore public functions check their arguments before they do anything.
What a number or an object may be is a `kgroup.bounds.Bound`, as it is for settings; here a refused
value raises an ``ArgumentError``.

A whole number is an int, or an object that converts itself to one by ``__index__``, as numpy's ints
do. A bool is none, and neither is a float, not even 2.0.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from kgroup import bounds
from kgroup.errors import ArgumentError, short_repr
from kgroup.types import (
    INT64_MAX,
    OffsetAndMetadata,
    TopicPartition,
    as_int,
    partition_fault,
)

T = TypeVar("T")

_DELAY: Final = bounds.Bound(
    lambda value: bounds.is_number(value) and value >= 0 and not bounds.is_milliseconds(value),
    "it must be a number of seconds, 0 or more",
    advice=bounds.of_milliseconds,
)
_TIMEOUT: Final = bounds.optional(_DELAY)
_FUNCTION: Final = bounds.function()
_END: Final = "the end of the log, as Consumer.get_watermark_offsets returns it"
_BEGINNING: Final = "the first offset of the log, as Consumer.get_watermark_offsets returns it"
_LOGICAL: Final = {
    -1: ("OFFSET_END", _END),
    -2: ("OFFSET_BEGINNING", _BEGINNING),
    -1000: ("OFFSET_STORED", None),
    -1001: ("OFFSET_INVALID", None),
}
"""librdkafka's numbers that are no offsets, and what to give in place of each; None: the committed
offset."""


def whole(name: str, value: object, least: int, most: int = INT64_MAX) -> int:
    """Check a whole number, and convert it to an int.

    Raises:
        ArgumentError: it is no whole number, or out of bounds.
    """
    number: Any = as_int(value)
    bounds.whole(least, most).check(name, number, ArgumentError)
    return int(number)


def position(name: str, value: object, how: str, committed: str) -> int:
    """Check an offset at which reading starts.

    Args:
        name: the argument's.
        value: the offset.
        how: a verb: what the program does with an offset.
        committed: what it gives in place of one for the committed offset.

    Raises:
        ArgumentError: it is no offset. If it is one of librdkafka's numbers for a place in the log,
            such as OFFSET_END, the error says how to get the offset of that place.
    """
    number = as_int(value)
    if isinstance(number, int) and number in _LOGICAL:
        meaning, instead = _LOGICAL[number]
        allowed = "it must be an int of 0 or more; for librdkafka's"
        raise ArgumentError(name, value, f"{allowed} {meaning} {how} {instead or committed}")
    return whole(name, value, 0)


def seconds(name: str, value: object) -> float | None:
    """Check a timeout; None and infinity mean no timeout, for which None is returned.

    Raises:
        ArgumentError: it is not a number, it is NaN or negative, or, as 30000, it was meant in
            milliseconds by all appearances.
    """
    _TIMEOUT.check(name, value, ArgumentError)
    timeout: Any = value
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else float(timeout)


def delay(name: str, value: object) -> float:
    """Check the seconds that something lasts; infinity means that it does not end.

    Raises:
        ArgumentError: as for `seconds`, and for None.
    """
    _DELAY.check(name, value, ArgumentError)
    lasts: Any = value
    return float(lasts)


def function(name: str, value: object) -> Callable[..., Any]:
    """Check a function.

    Raises:
        ArgumentError: it cannot be called; a coroutine cannot.
    """
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns that it was never awaited
        wanted = f"{_FUNCTION.allowed}; pass its arguments beside it, and do not call it"
        raise ArgumentError(name, value, wanted)
    _FUNCTION.check(name, value, ArgumentError)
    called: Any = value
    return called  # type: ignore[no-any-return]


def callback(name: str, value: object) -> None:
    """Check a function that may be None.

    Raises:
        ArgumentError: it cannot be called.
    """
    if value is not None:
        function(name, value)


def instance(name: str, value: T, kind: type[T]) -> T:
    """Check that an object is of a class.

    Raises:
        ArgumentError: it is of another class.
    """
    ours = "kgroup " if kind.__module__.startswith("kgroup.") else ""
    bounds.instance(kind, f"a {ours}{kind.__name__}").check(name, value, ArgumentError)
    return value


def group(value: T, kind: type[T]) -> T:
    """Check that a group is one of the package whose function it is given to.

    Raises:
        ArgumentError: it is of another class; the error names the function for another package's.
    """
    given = type(value)
    package, dot, _ = given.__module__.rpartition(".")
    if not isinstance(value, kind) and dot and given.__name__ == kind.__name__:
        raise ArgumentError(
            "group", value, f"it is a {package}.{given.__name__}; give it to {package}.serve"
        )
    return instance("group", value, kind)


def with_method(name: str, value: object, method: str, wanted: str) -> None:
    """Check that an object has a method.

    Raises:
        ArgumentError: it has none, or raises where that is read.
    """
    try:
        has_it = callable(getattr(value, method, None))
    except Exception as error:
        raise ArgumentError(name, value, f"its {method!r} raised; {wanted}") from error
    if not has_it:
        raise ArgumentError(name, value, wanted)


def listed(name: str, value: object, kind: type[T]) -> tuple[T, ...]:
    """Check an iterable of objects of one class, and convert it to a tuple.

    Raises:
        ArgumentError: it is no iterable, or has an object of another class.
    """
    if not isinstance(value, Iterable):
        raise ArgumentError(name, value, f"it must be an iterable of {kind.__name__}")
    return tuple(instance(name, one, kind) for one in _items(name, value))


def partition(name: str, value: object) -> TopicPartition:
    """Check a partition.

    Raises:
        ArgumentError: it is something else, such as confluent-kafka's class of the same name.
    """
    if not isinstance(value, TopicPartition):
        wanted = f"it must be a kgroup.TopicPartition{_namesake(value, TopicPartition)}"
        raise ArgumentError(name, value, wanted)
    # 2.0 and True equal ints, so that such a partition would be found among the owned ones.
    if type(value.partition) is not int or type(value.topic) is not str:
        raise ArgumentError(name, value, "its topic must be a str and its partition an int")
    return value


def partitions(name: str, value: object) -> frozenset[TopicPartition] | None:
    """Check one partition, an iterable of partitions, or None, which means all partitions.

    Raises:
        ArgumentError: it is something else.
    """
    if value is None:
        return None
    # Some clients' partitions are tuples: they would be taken for iterables of partitions.
    if isinstance(value, TopicPartition) or _namesake(value, TopicPartition):
        return frozenset((partition(name, value),))
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        wanted = "it must be a kgroup.TopicPartition, or an iterable of them"
        raise ArgumentError(name, value, wanted)
    return frozenset(partition(name, one) for one in _items(name, value))


def offsets(value: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check the offsets of a commit, and copy them, so that the program may change its own mapping.

    Raises:
        ArgumentError: it is not a mapping of partitions to offsets.
    """
    if not isinstance(value, Mapping):
        wanted = "it must be a mapping of kgroup.TopicPartition to an int or an OffsetAndMetadata"
        raise ArgumentError("offsets", value, wanted)
    given: Mapping[Any, Any] = value
    if type(value) is not dict:
        try:
            given = dict(value.items())
        except Exception as error:
            wanted = f"reading it raised {short_repr(error)}"
            raise ArgumentError("offsets", value, wanted) from error
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for one, at in given.items():
        if not isinstance(one, TopicPartition):
            other = _namesake(one, TopicPartition)
            wanted = f"its key {short_repr(one)} must be a kgroup.TopicPartition{other}"
            raise ArgumentError("offsets", value, wanted)
        name = partition("offsets", one)
        checked[name] = _position(name, at)
    return checked


def _position(of: TopicPartition, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        return given
    if type(given) is int and 0 <= given <= INT64_MAX:
        return OffsetAndMetadata(given)
    name = "offset" if partition_fault(of) else f"{of}: offset"
    if other := _namesake(given, OffsetAndMetadata):
        raise ArgumentError(name, given, f"it must be an int or a kgroup.OffsetAndMetadata{other}")
    return OffsetAndMetadata(whole(name, given, 0))


def _namesake(value: object, kind: type) -> str:
    """What an error adds about another library's object whose class has the same name.

    Its repr may be that of kgroup's, which alone would not show what is wrong.
    """
    given = type(value)
    if isinstance(value, kind) or given.__name__ != kind.__name__:
        return ""
    module = "confluent_kafka" if given.__module__ == "cimpl" else given.__module__
    return f"; this is {module}.{given.__name__}"


def _items(name: str, value: Iterable[T]) -> Iterator[T]:
    """The items of a program's iterable, one by one: it may be endless."""
    try:
        yield from value
    except Exception as error:
        wanted = f"iterating over it raised {short_repr(error)}"
        raise ArgumentError(name, value, wanted) from error
