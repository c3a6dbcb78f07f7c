"""The error with which a simulated program ended: whose fault it is, and how it is shown.

A program that ends with an error is started again, as by a supervisor, because most errors come of
a fault of the plan: a lost response, a refused login, another program with its instance id. An
assertion that failed is the result of the simulation, and so is an error of the program's own that
comes again and again; ``checks.assertions`` decides that.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Final

from kgroup.errors import KgroupError, NoOffsetError, OffsetOutOfRangeError, UsageError

_CAUSED_BY_THE_PROGRAM: Final = (UsageError, NoOffsetError, OffsetOutOfRangeError)
"""The errors of kgroup that are due to how a program uses or configures it."""


def described(error: BaseException | None) -> dict[str, Any]:
    """The fields of a ``ProcessEnded`` that are about the program's error, which may be None."""
    if error is None:
        return {"error": None}
    errors = list(_flattened(error))
    assertion = next((one for one in errors if isinstance(one, AssertionError)), None)
    is_own = all(map(_is_own, errors))
    shown = errors[0] if assertion is None and is_own else assertion
    return {
        "error": "; ".join(dict.fromkeys(f"{type(one).__name__}: {one}" for one in errors)),
        "assertion": None if assertion is None else _in_a_line(assertion),
        "is_own_error": is_own,
        "is_refusal": is_own and all(isinstance(one, KgroupError) for one in errors),
        "traceback": None if shown is None else "".join(traceback.format_exception(shown)),
    }


def _flattened(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group and of the groups in it."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from _flattened(one)


def _is_own(error: BaseException) -> bool:
    return not isinstance(error, KgroupError) or isinstance(error, _CAUSED_BY_THE_PROGRAM)


def _in_a_line(error: AssertionError) -> str:
    """A failed assertion, with the place that failed; a program may also put one into a group."""
    frames = traceback.extract_tb(error.__traceback__)
    text, _, _ = (str(error) or (frames[-1].line if frames else "") or "").partition("\n")
    place = "".join(f" ({one.filename}:{one.lineno}, in {one.name})" for one in frames[-1:])
    return f"{type(error).__name__}: {text}{place}"
