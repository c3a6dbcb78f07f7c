"""Stale errors of a generation are told apart from failures of the program."""

from __future__ import annotations

import pytest

from kgroup.errors import CommitUnknownError, LeaseExpiredError, StaleGenerationError
from kgroup.generation.lifecycle import without_stale_errors
from kgroup.types import Cause, End

END = End(Cause.MEMBERSHIP_LOST, "evicted")
OTHER = End(Cause.MEMBERSHIP_LOST, "evicted")


@pytest.mark.parametrize(
    "error",
    [
        StaleGenerationError("refused", END),
        CommitUnknownError("unanswered, then refused", END),
        LeaseExpiredError("not confirmed"),
        ExceptionGroup("both", [StaleGenerationError("refused", END), LeaseExpiredError("over")]),
    ],
    ids=repr,
)
def test_a_stale_error_leaves_nothing(error: Exception) -> None:
    """What says that this very generation is over is no failure."""
    assert without_stale_errors(error, END) is None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        StaleGenerationError("of another generation", OTHER),
        CommitUnknownError("while the generation runs"),
    ],
    ids=repr,
)
def test_everything_else_stays(error: Exception) -> None:
    """A failure of the program's, and the stale error of another generation."""
    assert without_stale_errors(error, END) is error
    mixed = ExceptionGroup("mixed", [error, StaleGenerationError("refused", END)])
    rest = without_stale_errors(mixed, END)
    assert rest is not None
    assert rest.exceptions == (error,)
