"""The wrong kind of block or loop around a group: a plain one for an async one, or the reverse.

Python's own error does not say which class has the block that the program writes. The methods that
raise a better one are hidden from type checkers, which refuse such code before it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from kgroup.errors import UsageError

_ASYNC: Final = (
    "enter it by `async with`, and iterate over it by `async for`; a program without an event loop"
    " uses kgroup.threaded.ConsumerGroup, by `with` and `for`"
)
_PLAIN: Final = (
    "enter it by `with`, and iterate over it by `for`; `async with` and `async for` are for"
    " kgroup.ConsumerGroup, on trio, and kgroup.aio.ConsumerGroup, on asyncio"
)


class AsyncBlocks:
    """A group with ``async with`` and ``async for``, which refuses the plain ones."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise _refused(self, "with", _ASYNC)

        def __exit__(self, *details: object) -> None:
            """Python looks this up before it calls `__enter__`."""

        def __iter__(self) -> NoReturn:
            raise _refused(self, "for", _ASYNC)


class PlainBlocks:
    """A group with plain ``with`` and ``for``, which says so where a program writes async."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise _refused(self, "async with", _PLAIN)

        def __aexit__(self, *details: object) -> None:
            """Python looks this up before it calls `__aenter__`."""

        def __aiter__(self) -> NoReturn:
            raise _refused(self, "async for", _PLAIN)


def _refused(group: Any, word: str, instead: str) -> UsageError:
    return UsageError(f"group {group.config.group_id!r} has no `{word}`: {instead}")
