"""Sticky assignment where members subscribe to different topics: fill up, then balance.

Members keep what they own. What is left goes, topics with the fewest subscribers first, to the
subscriber that has least: first within racks, then regardless. Then partitions are moved from
members that have more to members that have less, as long as a move makes a difference.

Kafka asks before every step whether the plan is balanced, and rebuilds a map of all partitions to
find out. That no partition can be moved is the same statement, and is what a walk over them finds
anyway, so here nothing asks: a walk costs O(partitions + subscriptions), a move O(subscribers).

Members are ints in the order of their ids; who has least is the smallest of
``count * members + member``.

Source: Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final, final

from kgroup.assignors.movements import Movements
from kgroup.assignors.order import subscribers
from kgroup.assignors.ownership import Claim, Ownership
from kgroup.assignors.racks import Racks
from kgroup.layout import Layout, Share

_NOBODY: Final = -1

_Topics = Sequence[tuple[int, Sequence[int]]]
"""Partitions to walk over: topics in the order of the walk, and of each its indexes."""


def general(
    layout: Layout,
    wanted: Sequence[frozenset[str]],
    claims: Sequence[Claim],
    ownership: Ownership,
    racks: Racks | None,
) -> list[Share]:
    """Divide the partitions among members, in order of their ids.

    Args:
        layout: the topics that somebody subscribes to.
        wanted: what each member subscribes to.
        claims: what each member says that it owned, and when.
        ownership: which of the claims count.
        racks: the members' and partitions' racks, or None where they make no difference.
    """
    table = _Table(layout, wanted)
    given_up = _keep(table, ownership, racks)
    initial = not any(table.counts)
    new = table.unassigned()
    if racks is not None:
        _fill_within_racks(table, new, racks)
    _fill(table, new)
    before = table.counts[:], table.owner[:]
    balancing = _Balancing(table, _previous(claims))
    if not given_up:
        balancing.run(new)
    moved = balancing.run([(topic, layout.span(topic)) for topic in table.order])
    if moved and not initial and table.imbalance(table.counts) >= table.imbalance(before[0]):
        table.owner = before[1]
    return table.shares()


@final
class _Table:
    """Who subscribes to what, and who has what so far."""

    def __init__(self, layout: Layout, wanted: Sequence[frozenset[str]]) -> None:
        self.layout = layout
        self.members = len(wanted)
        places = {
            topics: frozenset(map(layout.places.__getitem__, topics & layout.places.keys()))
            for topics in set(wanted)
        }
        self.subscribed = [places[topics] for topics in wanted]
        self.subscribers = subscribers(layout, wanted)
        self.order = sorted(
            range(len(layout.names)), key=lambda topic: (len(self.subscribers[topic]), topic)
        )
        self.owner = [_NOBODY] * len(layout)
        self.counts = [0] * self.members

    def give(self, index: int, member: int) -> None:
        """Give a partition that nobody has."""
        self.owner[index] = member
        self.counts[member] += 1

    def unassigned(self) -> _Topics:
        """What nobody has."""
        free = []
        for topic in self.order:
            span = self.layout.span(topic)
            owners = self.owner[span.start : span.stop]
            if _NOBODY in owners:
                free.append(
                    (topic, [i for i, owner in zip(span, owners, strict=True) if owner < 0])
                )
        return free

    def key(self, member: int) -> int:
        """Sorts members by how many partitions they have, then by their ids."""
        return self.counts[member] * self.members + member

    def least(self, topic: int) -> int:
        """The subscriber of a topic that has least."""
        return min(map(self.key, self.subscribers[topic])) % self.members

    def imbalance(self, counts: Sequence[int]) -> int:
        """The sum of all differences between two members that share a topic with anyone."""
        sharing = {
            member
            for subscribers in self.subscribers
            if len(subscribers) > 1
            for member in subscribers
        }
        rising = sorted(counts[member] for member in sharing)
        return sum(count * (2 * at - len(rising) + 1) for at, count in enumerate(rising))

    def shares(self) -> list[Share]:
        """For each member its partitions."""
        shares: list[list[int]] = [[] for _ in range(self.members)]
        for index, member in enumerate(self.owner):
            shares[member].append(index)
        return [Share(self.layout, array("i", indexes)) for indexes in shares]


def _keep(table: _Table, ownership: Ownership, racks: Racks | None) -> bool:
    """Leave members what they own; returns whether one had to give something up."""
    given_up = False
    for member, owned in enumerate(ownership.owned):
        subscribed = table.subscribed[member]
        for index in owned:
            if table.layout.place_of(index) not in subscribed or (
                racks is not None and not racks.suits(member, index)
            ):
                given_up = True
            else:
                table.give(index, member)
    return given_up


def _fill_within_racks(table: _Table, free: _Topics, racks: Racks) -> None:
    """Give each partition to the one that has least of those that it suits, if any."""
    for topic, indexes in free:
        heaps: dict[str | None, list[int]] = {}
        for member in table.subscribers[topic]:
            heaps.setdefault(racks.members[member], []).append(table.key(member))
        for heap in heaps.values():
            heapify(heap)
        for index in indexes:
            suited = [heaps[at] for at in (None, *racks.of_partition(index)) if at in heaps]
            if suited:
                heap = min(suited, key=lambda heap: heap[0])
                table.give(index, heap[0] % table.members)
                heapreplace(heap, heap[0] + table.members)


def _fill(table: _Table, free: _Topics) -> None:
    """Give each partition that nobody has yet to the subscriber that has least."""
    owner, counts, members = table.owner, table.counts, table.members
    for topic, indexes in free:
        heap = [table.key(member) for member in table.subscribers[topic]]
        heapify(heap)
        for index in indexes:
            if owner[index] < 0:
                least = heap[0]
                member = least % members
                owner[index] = member
                counts[member] += 1
                heapreplace(heap, least + members)


def _previous(claims: Sequence[Claim]) -> dict[int, int]:
    """Who claims what from a generation before the latest, of several the latest such."""
    latest = max((claim.weight for claim in claims), default=_NOBODY)
    previous: dict[int, tuple[int, int]] = {}
    for member, claim in enumerate(claims):
        if claim.weight < latest:
            for index in claim.indexes:
                if index not in previous or claim.weight > previous[index][0]:
                    previous[index] = claim.weight, member
    return {index: member for index, (_, member) in previous.items()}


@final
class _Balancing:
    """Moves partitions to members that have less.

    A move to and fro (`Movements`) can take a partition from a member that has no more than the
    one that it goes to. Kafka can so go on for ever; here such moves are bounded.
    """

    def __init__(self, table: _Table, previous: Mapping[int, int]) -> None:
        self._table = table
        self._previous = previous
        self._movements = Movements()
        self._patience = len(table.layout)

    def run(self, topics: _Topics) -> bool:
        """Walk over the partitions until none can be moved; returns whether one was."""
        shared = [one for one in topics if len(self._table.subscribers[one[0]]) > 1]
        moved = False
        while sum(self._walk(topic, indexes) for topic, indexes in shared):
            moved = True
        return moved

    def _walk(self, topic: int, indexes: Iterable[int]) -> int:
        """Walk over some of a topic's partitions once; returns how many were moved."""
        table, previous = self._table, self._previous
        owner, counts = table.owner, table.counts
        least = table.least(topic)
        most = counts[least] + 1
        moved = 0
        for index in indexes:
            has = counts[owner[index]]
            if has <= most:
                continue
            to = previous.get(index, least)
            if to != least and (topic not in table.subscribed[to] or has <= counts[to] + 1):
                to = least
            self._move(topic, index, to)
            moved += 1
            least = table.least(topic)
            most = counts[least] + 1
        return moved

    def _move(self, topic: int, index: int, to: int) -> None:
        table = self._table
        owner, counts = table.owner, table.counts
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
