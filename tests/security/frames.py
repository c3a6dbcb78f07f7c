"""What a report of an error with local variables shows, as services that collect errors send it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


def printed(value: object) -> str:
    """An object's repr; one that was refused half-made may have none."""
    try:
        return repr(value)
    except AttributeError as error:
        return str(error)


def frames(error: BaseException) -> Iterator[str]:
    """Everything that a report with local variables would print of kgroup's own frames.

    Of the error itself, of its causes, and of what it and they came of or contain.
    """
    for one in related(error):
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if "/tests/" not in frame.f_code.co_filename:
                where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_name}"
                yield from (
                    f"{name}={printed(held)} in {where}" for name, held in frame.f_locals.items()
                )
        yield from ("".join(traceback.format_exception(one)), repr(vars(one)), repr(one.args))


def related(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes and contexts, also suppressed ones, and the members of groups."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        if (one := left.pop()) is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
