"""What the members of an event loop share: made by the first that needs it, found by the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trio.lowlevel import RunVar

T = TypeVar("T")


def loop_local(variable: RunVar[T], make: Callable[[], T]) -> T:
    """The value of a variable of this event loop; `make` is called if it has none yet.

    Raises:
        RuntimeError: no event loop runs in this thread.
    """
    try:
        return variable.get()
    except LookupError:
        value = make()
        variable.set(value)
        return value
