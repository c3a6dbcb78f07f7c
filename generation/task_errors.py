"""What a task of the program raises at the end of its generation, and what of it is a failure.

A task that commits or reads while its generation ends gets an error that says so. A
`StaleGenerationError` of this very generation is a normal way to end, and no failure; so are a
commit whose outcome the end has hidden, and an expired lease. The same error of another generation
is a mistake in the program, and surfaces.

A ``trio.Cancelled`` of a task whose scopes nothing has cancelled is a mistake too: as an error that
says so it ends one generation, and does not pass for a cancellation of the whole group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from kgroup.errors import CommitUnknownError, LeaseExpiredError, StaleGenerationError, UsageError
from kgroup.functions import END_ALL, name_of
from kgroup.tracebacks import raise_outside
from kgroup.types import Cause, End

E = TypeVar("E", bound=BaseException)


@contextmanager
@trio.lowlevel.enable_ki_protection
def not_raising_stale_errors(end: Callable[[], End | None]) -> Iterator[None]:
    """A block that raises no errors which only say that its generation has ended.

    Args:
        end: returns the generation's recorded end, if it has one.
    """
    try:
        yield
    except BaseException as error:
        rest = without_stale_errors(error, end())
        if rest is error:
            raise
        if rest is not None:
            raise_outside(rest, rest.__context__)


def without_stale_errors(error: E, end: End | None) -> E | None:
    """What a task raised, without the errors that only say that the generation has ended.

    Args:
        error: what the task raised; an exception group is searched.
        end: the generation's recorded end, if it has one.

    Returns:
        the rest, or None if there was nothing else.
    """

    def is_stale(one: BaseException) -> bool:
        return isinstance(one, LeaseExpiredError) or (
            isinstance(one, StaleGenerationError | CommitUnknownError)
            and end is not None
            and one.end is end
        )

    return _without(error, is_stale)


def says_lease_expired(error: BaseException) -> bool:
    """Whether a task raised that the lease is over, after which no commit can succeed."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(LeaseExpiredError) is not None
    return isinstance(error, LeaseExpiredError)


def without_effects_of_cancellation(error: E) -> E | None:
    """What the body of a cancelled group raised, without what only the cancellation has caused.

    A commit that the cancellation catches in its request is shielded from it, and raises that its
    generation has ended, or that its outcome is unknown.

    Args:
        error: what the body raised; an exception group is searched.

    Returns:
        the rest, or None if there was nothing else.
    """

    def is_effect(one: BaseException) -> bool:
        return (
            isinstance(one, StaleGenerationError | CommitUnknownError)
            and one.end is not None
            and one.end.cause is Cause.CANCELLED
        )

    return _without(error, is_effect)


def _without(error: E, judge: Callable[[BaseException], bool]) -> E | None:
    if not isinstance(error, BaseExceptionGroup):
        return None if judge(error) else error
    # A split makes another group, which of a class of the program has neither class nor attributes.
    if error.subgroup(judge) is None:
        return error
    return error.split(judge)[1]  # type: ignore[return-value] # a group of its kind


@contextmanager
def refusing_stray_cancellations(fn: Callable[..., object]) -> Iterator[None]:
    """A block that calls a function of the program, out of which only real cancellations come.

    A ``trio.Cancelled`` that the function has kept from a scope of its own would end the generation
    as if the scope around the group was cancelled, and nothing would say why.

    Raises:
        UsageError: the function raised one, and is not cancelled.
    """
    try:
        yield
    except BaseException as error:
        stray = isinstance(error, trio.Cancelled) or (
            isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None
        )
        if not stray or trio.current_effective_deadline() == -math.inf:
            raise
        if isinstance(error, BaseExceptionGroup):
            ends_all = error.subgroup(END_ALL)
            if ends_all is not None:
                raise ends_all from error  # Ctrl-C in another task of the function
        raise UsageError(
            f"{name_of(fn)} raised trio.Cancelled, and nothing has cancelled it: it has kept"
            " that of a cancel scope which is over. Let it pass through that, and do not raise it"
            " again"
        ) from error
