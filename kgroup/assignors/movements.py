"""Which partitions an assignment in the making has moved, so that it takes none to and fro.

When a partition is to go from one member to another, and one of the same topic has gone the other
way before, that one goes back instead.

Source: Kafka's ``AbstractStickyAssignor.PartitionMovements``; where it takes what its hash set
gives first, the lowest index is taken.
"""

from __future__ import annotations

from typing import final


@final
class Movements:
    """The moves so far: of each moved partition its first owner and its present one."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[int, int]] = {}
        self._between: dict[tuple[int, int, int], set[int]] = {}

    def instead(self, topic: int, index: int, owner: int, to: int) -> int:
        """The partition to move where this one of the topic is to go from its owner to another."""
        origin = self._moved[index][0] if index in self._moved else owner
        back = self._between.get((topic, to, origin))
        return min(back) if back else index

    def move(self, topic: int, index: int, owner: int, to: int) -> None:
        """Note a move."""
        origin = owner
        if index in self._moved:
            origin, _ = pair = self._moved.pop(index)
            self._between[topic, *pair].discard(index)
        if origin != to:
            self._moved[index] = (origin, to)
            self._between.setdefault((topic, origin, to), set()).add(index)
