"""The interpreter of the tables."""

from __future__ import annotations

import pytest

from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.rules import Rule, run
from kgroup.broker.groups.states import EMPTY, PREPARING, STABLE
from kgroup.broker.groups.timers import Timers
from kgroup.broker.groups.write_faults import WriteFaults
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import SETTINGS


def a_context() -> EventContext:
    """An event in an empty group."""
    return EventContext(
        now=0.0,
        settings=SETTINGS,
        timers=Timers(),
        write_faults=WriteFaults(),
        new_id=lambda: "id",
        group=ClassicGroup("g"),
    )


def prepare(context: EventContext) -> None:
    """Enter a state that may follow Empty."""
    context.group.enter(PREPARING, context.now)


def test_first_fitting_row_wins() -> None:
    """Rows of other states, and rows whose condition fails, are skipped."""
    table = (
        Rule({STABLE}, error=ErrorCode.FENCED_INSTANCE_ID),
        Rule({EMPTY}, (lambda _: True, lambda _: False), error=ErrorCode.INVALID_GROUP_ID),
        Rule({EMPTY}, error=ErrorCode.UNKNOWN_MEMBER_ID),
        Rule({EMPTY}),
    )
    assert run(table, a_context()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_row_enters_the_state_that_it_names_and_no_other() -> None:
    """An action that enters another state, or none, is an internal error."""
    assert run((Rule({EMPTY}, then=(prepare,), to=PREPARING),), a_context()) is ErrorCode.NONE
    with pytest.raises(RuntimeError, match="its rule says None"):
        run((Rule({EMPTY}, then=(prepare,)),), a_context())
    with pytest.raises(RuntimeError, match="entered \\[\\], but"):
        run((Rule({EMPTY}, to=PREPARING),), a_context())


def test_a_row_within_a_row_answers_for_its_own_state() -> None:
    """The state that an inner table enters does not count for the outer row."""

    def inner(context: EventContext) -> None:
        run((Rule({EMPTY}, then=(prepare,), to=PREPARING),), context)

    assert run((Rule({EMPTY}, then=(inner,)),), a_context()) is ErrorCode.NONE


def test_no_rule_is_an_error_that_names_the_group() -> None:
    """An event that no row matches raises."""
    with pytest.raises(RuntimeError, match="group 'g' has no rule in GroupState.EMPTY"):
        run((), a_context())


def test_states_are_entered_from_their_predecessors_only() -> None:
    """A group cannot become Stable out of Empty."""
    with pytest.raises(RuntimeError, match="cannot follow"):
        ClassicGroup("g").enter(STABLE, 0.0)
