"""Properties of the rule tables that can be checked without running the rules."""

from __future__ import annotations

import pytest

from kgroup.broker.groups import rule_tables
from kgroup.broker.groups.rules import Rule, Table
from kgroup.broker.groups.states import DEAD, PREDECESSORS, GroupState
from kgroup.error_codes import ErrorCode

ROWS = [
    pytest.param(row, id=f"{name} {number}")
    for name, table in rule_tables.TABLES.items()
    for number, row in enumerate(table)
]
REQUESTS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "TxnOffsetCommit")


@pytest.mark.parametrize("row", ROWS)
def test_rows_lead_where_the_states_allow(row: Rule) -> None:
    """The state that a row enters may follow each state in which the row applies."""
    assert row.states
    assert row.to is None or row.states <= PREDECESSORS[row.to]


@pytest.mark.parametrize("row", ROWS)
def test_conditions_and_actions_say_what_they_are(row: Rule) -> None:
    """Each has a docstring, which the generated page shows."""
    assert all(part.__doc__ for part in (*row.when, *row.then))


def test_every_state_is_left_and_entered() -> None:
    """The rows connect all states, and no row leaves Dead for another state."""
    entered = {row.to for table in rule_tables.TABLES.values() for row in table} - {None}
    assert entered == set(GroupState)
    assert all(DEAD not in before for state, before in PREDECESSORS.items() if state is not DEAD)


@pytest.mark.parametrize("name", REQUESTS)
def test_dead_groups_answer_that_the_coordinator_is_not_available(name: str) -> None:
    """The first row for Dead refuses with 15; only an Empty group's sync comes before it."""
    table: Table = rule_tables.TABLES[name]
    first = next(row for row in table if DEAD in row.states)
    assert first.states == {DEAD}
    assert first.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_identity_is_checked_in_the_order_of_validate_member() -> None:
    """Unknown instance 25, another's instance 82, unknown member 25, then the generation 22."""
    for name in ("SyncGroup", "Heartbeat", "OffsetCommit", "TxnOffsetCommit"):
        errors = [row.error.value for row in rule_tables.TABLES[name]]
        assert "25 82 25 22" in " ".join(map(str, errors))


@pytest.mark.parametrize("row", ROWS)
def test_rows_say_where_they_were_read(row: Rule) -> None:
    """Each row names the method in one of Kafka's three classes from which it was taken."""
    owner, _, method = row.source.partition(".")
    assert owner in {"GroupMetadataManager", "ClassicGroup", "OffsetMetadataManager"}
    assert method.isidentifier()
