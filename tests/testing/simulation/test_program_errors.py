"""How the errors of simulated programs are told apart and shown."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup import NoOffsetError, StaleGenerationError, UsageError
from kgroup.testing.simulation.program_errors import described


def raised(error: BaseException) -> dict[str, Any]:
    """An error that was raised, described."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 # the one above
        return described(caught)


def test_no_error_is_none() -> None:
    """A program that ended by itself has no error."""
    assert described(None) == {"error": None}


def test_an_assertion_in_a_group_is_found() -> None:
    """It is the first of the group's failed assertions, with the place and the traceback."""
    with pytest.raises(AssertionError) as failed:
        assert [] == [1]
    more = ExceptionGroup("more", [failed.value])
    group = BaseExceptionGroup("its tasks", [OSError("lost"), more])
    found = raised(group)
    assert found["error"].startswith("OSError: lost; AssertionError: ")
    assert found["assertion"].startswith("AssertionError: assert [] == [1] (")
    assert found["assertion"].endswith("in test_an_assertion_in_a_group_is_found)")
    assert found["traceback"].startswith("Traceback (most recent call last):\n")
    assert "    assert [] == [1]\n" in found["traceback"]


def test_an_assertion_that_was_never_raised_has_no_place() -> None:
    """A program may put any error into a group."""
    found = raised(ExceptionGroup("its tasks", [AssertionError("wrong"), AssertionError("wrong")]))
    assert found["error"] == found["assertion"] == "AssertionError: wrong"
    assert found["traceback"] == "AssertionError: wrong\n"


@pytest.mark.parametrize(
    ("error", "is_own", "is_refusal"),
    [
        (ValueError("7"), True, False),
        (UsageError("called twice"), True, True),
        (NoOffsetError("none is committed"), True, True),
        (ExceptionGroup("", [ValueError("7"), UsageError("called twice")]), True, False),
        (StaleGenerationError("it has ended"), False, False),
        (
            ExceptionGroup("", [ValueError("7"), StaleGenerationError("it has ended")]),
            False,
            False,
        ),
    ],
)
def test_what_a_fault_of_the_plan_causes_is_not_the_program_s_own(
    error: Exception, is_own: bool, is_refusal: bool
) -> None:
    """Its own are errors that are not kgroup's, and those of a wrong use or configuration."""
    found = raised(error)
    assert found["is_own_error"] is is_own
    assert found["is_refusal"] is is_refusal
    assert (found["traceback"] is not None) is is_own
