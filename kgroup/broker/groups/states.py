"""The states of a classic group, and the states that may follow each.

Source: Kafka's ``ClassicGroupState``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final


@final
class GroupState(enum.Enum):
    """The state of a group; the value is its name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    # Every rule looks up its states. The hash of an enum member is computed in Python code, which
    # is slow; that of an object is not.
    __hash__ = object.__hash__


EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

ANY: Final = frozenset(GroupState)

#: What each state means.
MEANING: Final[Mapping[GroupState, str]] = {
    EMPTY: "no members; it may still have offsets, and member ids that are not used yet",
    PREPARING: "joins wait until all members have joined again, or the timer expires",
    COMPLETING: "a generation has begun; syncs wait until the leader's comes",
    STABLE: "the assignment is known",
    DEAD: "deleted, or moved to another coordinator",
}

#: A state -> the states from which it may be entered.
PREDECESSORS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({STABLE, COMPLETING, EMPTY}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: ANY,
}
