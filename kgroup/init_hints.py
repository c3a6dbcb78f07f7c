"""Annotations of ``__init__`` as types, for ``typing.get_type_hints`` and what is built on it.

attrs takes the annotation of a field with a converter from the converter, as a text whose names
belong to another module. It also looks names up as they were before the class existed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def typed_init(**names: object) -> Callable[[type[T]], type[T]]:
    """A decorator of attrs classes that evaluates the annotations of their ``__init__``.

    Args:
        names: what the annotations name and the module of the class does not have.
    """

    def decorate(kind: type[T]) -> type[T]:
        init: Any = kind.__init__
        known = {**vars(sys.modules[kind.__module__]), kind.__name__: kind, **names}
        init.__annotations__ = {
            name: eval(hint, known) if isinstance(hint, str) else hint  # noqa: S307 # kgroup's own
            for name, hint in init.__annotations__.items()
        }
        return kind

    return decorate


def wraps_init(init: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``functools.wraps``, for a function that takes the place of an ``__init__``.

    Since Python 3.14 that does not copy annotations that were set after the definition, as attrs
    and `typed_init` set them.
    """
    return functools.wraps(init, assigned=(*functools.WRAPPER_ASSIGNMENTS, "__annotations__"))
