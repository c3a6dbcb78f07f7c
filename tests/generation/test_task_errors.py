"""The errors of tasks: those that only report the end are separated from failures."""

from __future__ import annotations

import pytest

from kgroup.errors import CommitUnknownError, LeaseExpiredError, StaleGenerationError
from kgroup.generation.task_errors import without_stale_errors
from kgroup.types import Cause, End

LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")
#: The end of another generation: equal to ``LOSS``, and not the same object.
EQUAL_LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")


@pytest.mark.parametrize(
    "error",
    [
        StaleGenerationError("refused", LOSS),
        CommitUnknownError("unanswered, then refused", LOSS),
        LeaseExpiredError("not confirmed"),
        ExceptionGroup("both", [StaleGenerationError("refused", LOSS), LeaseExpiredError("over")]),
    ],
    ids=repr,
)
def test_errors_that_only_report_the_end_are_removed(error: Exception) -> None:
    """A stale or unknown commit of this generation, or its expired lease, is no failure."""
    assert without_stale_errors(error, LOSS) is None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        StaleGenerationError("of another generation", EQUAL_LOSS),
        CommitUnknownError("while the generation runs"),
    ],
    ids=repr,
)
def test_other_errors_are_kept(error: Exception) -> None:
    """A failure of the program and a stale error of another generation are kept."""
    assert without_stale_errors(error, LOSS) is error
    mixed = ExceptionGroup("mixed", [error, StaleGenerationError("refused", LOSS)])
    rest = without_stale_errors(mixed, LOSS)
    assert rest is not None
    assert rest.exceptions == (error,)


def test_a_group_of_the_programs_own_class() -> None:
    """It is returned as it is, with its class and attributes, if nothing has to be removed."""

    class Failed(ExceptionGroup[ValueError]):
        """A program's own, which does not say how to derive another one."""

    error = Failed("of two rows", [ValueError(1), ValueError(2)])
    assert without_stale_errors(error, LOSS) is error
