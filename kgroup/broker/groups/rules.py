"""Rows of rules and their interpreter: the first row that fits decides what happens.

INVARIANT: an event enters no state but the one that its row names. Completing a join is an
event of its own, within the event that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

import attrs

from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.states import GroupState
from kgroup.error_codes import ErrorCode

Condition = Callable[[EventContext], bool]
Action = Callable[[EventContext], None]


def _states(states: Iterable[GroupState]) -> frozenset[GroupState]:
    return frozenset(states)


@final
@attrs.frozen
class Rule:
    """One rule.

    Attributes:
        states: the states in which the rule applies.
        when: further conditions, which must all hold.
        then: the actions, in order.
        error: the error of the response, if no action responds to the request or parks it.
        to: the state that the group enters, or None if it stays in its state.
        source: the method of Kafka that the rule was read from.
    """

    states: frozenset[GroupState] = attrs.field(converter=_states)
    when: tuple[Condition, ...] = ()
    then: tuple[Action, ...] = attrs.field(default=(), kw_only=True)
    error: ErrorCode = attrs.field(default=ErrorCode.NONE, kw_only=True)
    to: GroupState | None = attrs.field(default=None, kw_only=True)
    source: str = attrs.field(default="", kw_only=True)

    def fits(self, context: EventContext) -> bool:
        """Whether the rule applies to this event."""
        if context.group.state not in self.states:
            return False
        for holds in self.when:  # noqa: SIM110 # a generator costs more than most conditions
            if not holds(context):
                return False
        return True


Table = tuple[Rule, ...]


def from_kafka(source: str, *rows: Rule) -> Table:
    """Rows that were read from one method of Kafka."""
    return tuple(attrs.evolve(row, source=source) for row in rows)


def run(table: Table, context: EventContext) -> ErrorCode:
    """Perform the actions of the first row that fits, and return its error.

    Raises:
        RuntimeError: no row fits, or the group entered another state than the row says: a defect.
    """
    row = _first(table, context)
    entered_states = context.group.entered_states
    mark = len(entered_states)
    for act in row.then:
        act(context)
    entered, entered_states[mark:] = entered_states[mark:], []
    if entered != ([] if row.to is None else [row.to]):
        raise RuntimeError(
            f"group {context.group.group_id!r} entered {entered}, but its rule says {row.to}"
        )
    return row.error


def _first(rows: Iterable[Rule], context: EventContext) -> Rule:
    for row in rows:
        if row.fits(context):
            return row
    group = context.group
    raise RuntimeError(
        f"group {group.group_id!r} has no rule in {group.state} for {context.event!r}"
    )
