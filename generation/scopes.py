"""The type of the block that `Generation.scope` makes: it may end without its body's exception."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TypeVar, cast

T = TypeVar("T")


def may_end_early(block: AbstractContextManager[T]) -> AbstractContextManager[T, bool]:
    """Tell type checkers that a program may continue after this block though its body raised.

    They take a function of ``contextlib.contextmanager`` for one that never swallows an exception,
    and would then call the lines after ``with generation.scope(): return 1`` unreachable.
    """
    return cast("AbstractContextManager[T, bool]", block)
