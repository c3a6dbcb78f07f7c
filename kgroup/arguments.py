"""Checks of what a program passes to the API, made in the call and before anything happens.

A wrong number that goes to another thread, or onto the wire, fails far from the mistake and may
end more than the one call. Therefore the functions that a program calls check it here first.

Whole numbers are ints, and objects that say by ``__index__`` that they are (numpy's are), which
become ints at once. Neither a bool nor a float is one, not even 2.0.
"""

from __future__ import annotations

import inspect
import operator
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from kgroup.errors import ArgumentError
from kgroup.types import (
    INT64_MAX,
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
)

T = TypeVar("T")

_OFFSET: Final = "an int or an OffsetAndMetadata"


def whole(name: str, value: object, least: int, most: int = INT64_MAX) -> int:
    """A whole number within bounds, as an int.

    Raises:
        ArgumentError: it is none.
    """
    limits = "2**63-1" if most == INT64_MAX else str(most)
    wanted = f"it must be an int from {least} to {limits}"
    if isinstance(value, bool):
        raise ArgumentError(name, value, wanted)
    try:
        number = operator.index(value)  # type: ignore[arg-type] # that is what is found out
    except TypeError:
        raise ArgumentError(name, value, wanted) from None
    if not least <= number <= most:
        raise ArgumentError(name, value, wanted)
    return number


def seconds(name: str, value: object) -> float | None:
    """A time to wait, or None for as long as it takes, which infinity means too.

    Raises:
        ArgumentError: it is a number that no wait can take, such as NaN, or none at all.
    """
    if value is None:
        return None
    wanted = "it must be seconds, 0 or more, or None"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(name, value, wanted)
    if not value >= 0:  # NaN is not
        raise ArgumentError(name, value, wanted)
    return None if value > threading.TIMEOUT_MAX else float(value)


def function(name: str, value: object) -> Callable[..., Any]:
    """A function.

    Raises:
        ArgumentError: it cannot be called, such as a coroutine.
    """
    if callable(value):
        return value
    wanted = "it must be a function"
    if inspect.iscoroutine(value):
        value.close()  # it would warn that nothing awaited it
        wanted += "; pass its arguments beside it, and do not call it"
    raise ArgumentError(name, value, wanted)


def callback(name: str, value: object) -> None:
    """A function, or None.

    Raises:
        ArgumentError: it cannot be called.
    """
    if value is not None:
        function(name, value)


def instance(name: str, value: T, kind: type[T]) -> T:
    """An object of a class.

    Raises:
        ArgumentError: it is of another.
    """
    if not isinstance(value, kind):
        ours = "kgroup " if kind.__module__.startswith("kgroup.") else ""
        raise ArgumentError(name, value, f"it must be a {ours}{kind.__name__}")
    return value


def listed(name: str, value: object, kind: type[T]) -> tuple[T, ...]:
    """Objects of one class, out of any iterable.

    Raises:
        ArgumentError: it is no iterable, or has something else in it.
    """
    if not isinstance(value, Iterable):
        raise ArgumentError(name, value, f"it must be an iterable of {kind.__name__}")
    return tuple(instance(name, one, kind) for one in value)


def partition(name: str, value: object) -> TopicPartition:
    """One partition, whose number is an int.

    Raises:
        ArgumentError: it is something else, such as confluent-kafka's class of the same name.
    """
    if not isinstance(value, TopicPartition):
        raise ArgumentError(name, value, "it must be a kgroup.TopicPartition")
    # 2.0 and True are equal to ints, and would be found among the partitions that are owned.
    if type(value.partition) is not int or type(value.topic) is not str:
        raise ArgumentError(name, value, "its topic must be a str and its partition an int")
    return value


def partitions(name: str, value: object) -> frozenset[TopicPartition] | None:
    """The partitions that a caller named; None, which means all, stays None.

    Raises:
        ArgumentError: it is neither a partition nor an iterable of such.
    """
    if value is None:
        return None
    if isinstance(value, TopicPartition):
        return frozenset((partition(name, value),))
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        wanted = "it must be a kgroup.TopicPartition, or an iterable of them"
        raise ArgumentError(name, value, wanted)
    return frozenset(partition(name, one) for one in value)


def offsets(value: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a commit is given, as what is sent; a copy, so that the caller may go on with its own.

    Raises:
        ArgumentError: it is no mapping of partitions to offsets.
    """
    if not isinstance(value, Mapping):
        wanted = f"it must be a mapping of kgroup.TopicPartition to {_OFFSET}"
        raise ArgumentError("offsets", value, wanted)
    given: Offsets = value
    return {partition("offsets", one): _position(one, at) for one, at in given.items()}


def _position(of: TopicPartition, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        return given
    return OffsetAndMetadata(whole(f"{of}: offset", given, 0))
