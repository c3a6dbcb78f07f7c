"""Balances an assignment: partitions go from members that have more to members that have less.

Kafka asks before every step whether the plan is balanced, and rebuilds a map of all partitions to
find out. That no partition can be moved is the same statement, and is what a walk over them finds
anyway, so here nothing asks: a walk costs O(partitions + subscriptions), a move O(subscribers).

What a member claims from an earlier generation it gets back before others do. Kafka gives it back
even where the member does not subscribe to it any more: mostly a later move mends that, and the
plan comes out valid but different. Balancing can follow Kafka there, and tells when it went astray.

Source: Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder.performReassignments``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from kgroup.assignors.draft import DraftAssignment, Topics
from kgroup.assignors.movements import Movements


class AstrayError(Exception):
    """A previous owner takes no part; Kafka has no answer here."""


@final
class Balancing:
    """Moves partitions until none can be moved.

    A move to and fro (`Movements`) can take a partition from a member that has no more than the
    one that it goes to. Kafka can so go on for ever; here such moves are bounded.
    """

    def __init__(self, table: DraftAssignment, previous: Mapping[int, int]) -> None:
        self._table = table
        self._previous = previous
        self._movements = Movements()
        self._patience = len(table.layout)

    def run(self, topics: Topics) -> bool:
        """Walk over the partitions until none can be moved; returns whether one was.

        Raises:
            AstrayError: a partition's previous owner takes no part.
        """
        shared = [one for one in topics if len(self._table.subscribers[one[0]]) > 1]
        moved = False
        while sum(self._walk(topic, indexes) for topic, indexes in shared):
            moved = True
        return moved

    def _walk(self, topic: int, indexes: Sequence[int]) -> int:
        """Walk over some of a topic's partitions once; returns how many were moved."""
        table, previous = self._table, self._previous
        owner, counts = table.owner, table.counts
        least = table.least(topic)
        moved = 0
        for index in indexes:
            has = counts[owner[index]]
            if index in previous and self._may_return(topic, index, has):
                to = previous[index]
            elif has > counts[least] + 1:
                to = least
            else:
                continue
            self._move(topic, index, to)
            moved += 1
            least = table.least(topic)
        return moved

    def _may_return(self, topic: int, index: int, has: int) -> bool:
        """Whether a partition is to go back to its previous owner."""
        table, to = self._table, self._previous[index]
        if topic in table.subscribed[to]:
            return has > table.counts[to] + 1
        if table.balanced():
            return False
        if to not in table.sharing:
            raise AstrayError
        return has > table.counts[to] + 1

    def _move(self, topic: int, index: int, to: int) -> None:
        owner, counts = self._table.owner, self._table.counts
        instead = self._movements.instead(topic, index, owner[index], to)
        if counts[owner[instead]] <= counts[to] + 1:
            if self._patience:
                self._patience -= 1
            else:
                instead = index
        was = owner[instead]
        self._movements.move(topic, instead, was, to)
        counts[was] -= 1
        counts[to] += 1
        owner[instead] = to
