"""The states of a classic group, and which may follow which.

Source: Kafka's ``ClassicGroupState``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final


@final
class GroupState(enum.Enum):
    """Where a group stands; the value is the name that DescribeGroups and ListGroups tell."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    # Every rule looks its states up; an enum's own hash is that of its name, in Python.
    __hash__ = object.__hash__


EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

ANY: Final = frozenset(GroupState)

#: What each state means.
MEANING: Final[Mapping[GroupState, str]] = {
    EMPTY: "no members; it may still hold offsets, and ids handed out to members to come",
    PREPARING: "joins are parked until all members have joined again, or time is up",
    COMPLETING: "a generation has begun; syncs are parked until the leader's comes",
    STABLE: "the assignment is known",
    DEAD: "deleted, or given up to another coordinator",
}

#: A state -> the states from which it may be entered.
PREDECESSORS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({STABLE, COMPLETING, EMPTY}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: ANY,
}
