"""The passing of a generation, as an exception of its own work: no failure of the program's."""

from __future__ import annotations

from typing import TypeVar

from kgroup.errors import CommitUnknownError, LeaseExpiredError, StaleGenerationError
from kgroup.types import End

E = TypeVar("E", bound=BaseException)


def without_stale_errors(error: E, end: End | None) -> E | None:
    """What work of a generation raised, without that generation's own passing.

    Args:
        error: what it raised; a group is looked through.
        end: the generation's recorded end, if it has one.

    Returns:
        the rest, or None if it was nothing else.
    """

    def is_own_passing(one: BaseException) -> bool:
        return isinstance(one, LeaseExpiredError) or (
            isinstance(one, StaleGenerationError | CommitUnknownError)
            and end is not None
            and one.end is end
        )

    if isinstance(error, BaseExceptionGroup):
        return error.split(is_own_passing)[1]  # type: ignore[return-value] # a group of its kind
    return None if is_own_passing(error) else error
