"""Sticky assignment for members with different subscriptions: fill up, then balance.

1. Members keep the partitions that they own.
2. Each remaining partition goes to the subscriber that has the fewest partitions, topics with the
   fewest subscribers first: at first only within racks, then regardless of racks.
3. ``Balancing`` moves partitions from members that have more to members that have fewer, until no
   move makes a difference.

Members are ints in the order of their ids, and topics are places in a ``PartitionIndex``. The
member with the fewest partitions is the one with the smallest ``count * members + member``.

Where this differs from Kafka's code, and why the result is the same:

- Kafka checks before every step whether the plan is balanced, and rebuilds a map of all partitions
  for that. A plan is balanced exactly when no partition can be moved, which a walk over them finds
  anyway. A walk here costs O(partitions + subscriptions), a move O(subscribers).
- Kafka returns a partition to the member that claims it from an earlier generation before any
  other move, even if that member no longer subscribes to the topic. Mostly a later move corrects
  this, and the plan is valid but not the same as without the detour. ``_divide`` is therefore
  first tried as Kafka does it. If the result is invalid, it runs again with only those claims that
  are possible.
- Where Kafka takes what a hash set yields first, the lowest index is taken.

Source: Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder`` (``performReassignments``) and
``PartitionMovements``.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final, final

from kgroup.assignors.ownership import NO_GENERATION, MemberClaim, Ownership
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.racks import Racks


def general(
    layout: PartitionIndex,
    wanted: Sequence[frozenset[str]],
    claims: Sequence[MemberClaim],
    ownership: Ownership,
    racks: Racks | None,
) -> list[MemberPartitions]:
    """Divide the partitions among members, in order of their ids.

    Args:
        layout: the topics that somebody subscribes to.
        wanted: what each member subscribes to.
        claims: what each member says that it owned, and when.
        ownership: which of the claims count.
        racks: the members' and partitions' racks, or None where they make no difference.
    """
    previous = _previous(claims)
    table = DraftAssignment(layout, wanted)
    returning = {
        index: member
        for index, member in previous.items()
        if layout.place_of(index) in table.subscribed[member]
    }
    if returning != previous:
        try:
            _divide(table, ownership, racks, previous)
        except LostOwnerError:
            pass
        else:
            if table.valid():
                return table.shares()
        table = DraftAssignment(layout, wanted)
    _divide(table, ownership, racks, returning)
    return table.shares()


def _divide(
    table: DraftAssignment, ownership: Ownership, racks: Racks | None, previous: Mapping[int, int]
) -> None:
    given_up = _keep(table, ownership, racks)
    initial = not any(table.counts)
    new = table.unassigned()
    if racks is not None:
        _fill_within_racks(table, new, racks)
    _fill(table, new)
    counts, owner = table.counts[:], table.owner[:]
    balancing = Balancing(table, previous)
    if not given_up:
        balancing.run(new)
    moved = balancing.run([(topic, table.layout.span(topic)) for topic in table.order])
    if moved and not initial and table.imbalance(table.counts) >= table.imbalance(counts):
        table.counts, table.owner = counts, owner


def _keep(table: DraftAssignment, ownership: Ownership, racks: Racks | None) -> bool:
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


def _fill_within_racks(table: DraftAssignment, free: TopicIndexes, racks: Racks) -> None:
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


def _fill(table: DraftAssignment, free: TopicIndexes) -> None:
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


def _previous(claims: Sequence[MemberClaim]) -> dict[int, int]:
    """Who claims what from a generation before the latest, of several the latest such."""
    latest = max((claim.weight for claim in claims), default=NO_GENERATION)
    previous: dict[int, tuple[int, int]] = {}
    for member, claim in enumerate(claims):
        if claim.weight < latest:
            for index in claim.indexes:
                if index not in previous or claim.weight > previous[index][0]:
                    previous[index] = claim.weight, member
    return {index: member for index, (_, member) in previous.items()}


class LostOwnerError(Exception):
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

    def run(self, topics: TopicIndexes) -> bool:
        """Walk over the partitions until none can be moved; returns whether one was.

        Raises:
            LostOwnerError: a partition's previous owner takes no part.
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
            raise LostOwnerError
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


UNASSIGNED: Final = -1
"""The owner of a partition that nobody has."""

TopicIndexes = Sequence[tuple[int, Sequence[int]]]
"""Partitions to walk over: topics in the order of the walk, and of each its indexes."""


@final
class DraftAssignment:
    """Who subscribes to what, and who has what so far."""

    def __init__(self, layout: PartitionIndex, wanted: Sequence[frozenset[str]]) -> None:
        self.layout = layout
        self.members = len(wanted)
        places = {
            topics: frozenset(map(layout.places.__getitem__, topics & layout.places.keys()))
            for topics in set(wanted)
        }
        self.subscribed = [places[topics] for topics in wanted]
        self.subscribers = layout.subscribers(wanted)
        self.sharing = {
            member for members in self.subscribers if len(members) > 1 for member in members
        }
        self.order = sorted(
            range(len(layout.names)), key=lambda topic: (len(self.subscribers[topic]), topic)
        )
        self.owner = [UNASSIGNED] * len(layout)
        self.counts = [0] * self.members

    def give(self, index: int, member: int) -> None:
        """Give a partition that nobody has."""
        self.owner[index] = member
        self.counts[member] += 1

    def unassigned(self) -> TopicIndexes:
        """What nobody has."""
        free = []
        for topic in self.order:
            span = self.layout.span(topic)
            owners = self.owner[span.start : span.stop]
            if UNASSIGNED in owners:
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
        """The sum of the differences between any two members that share a topic with others."""
        rising = sorted(counts[member] for member in self.sharing)
        return sum(count * (2 * at - len(rising) + 1) for at, count in enumerate(rising))

    def balanced(self) -> bool:
        """Whether no subscriber has two less than somebody who has a partition of the topic.

        A member that has as many partitions as its topics have does not count as one who lacks.
        """
        has = [self.counts[member] for member in self.sharing]
        if not has or max(has) - min(has) <= 1:
            return True
        spans = map(self.layout.span, range(len(self.layout.names)))
        most = [max(self.counts[owner] for owner in self.owner[s.start : s.stop]) for s in spans]
        return all(
            self.counts[member] == sum(len(self.layout.span(topic)) for topic in topics)
            or all(most[topic] <= self.counts[member] + 1 for topic in topics)
            for member, topics in enumerate(self.subscribed)
            if member in self.sharing
        )

    def valid(self) -> bool:
        """Whether every partition is with a subscriber of its topic."""
        return all(
            topic in self.subscribed[member]
            for topic in range(len(self.layout.names))
            for member in set(self.owner[self.layout.starts[topic] : self.layout.starts[topic + 1]])
        )

    def shares(self) -> list[MemberPartitions]:
        """For each member its partitions."""
        shares: list[list[int]] = [[] for _ in range(self.members)]
        for index, member in enumerate(self.owner):
            shares[member].append(index)
        return [MemberPartitions(self.layout, array("i", indexes)) for indexes in shares]


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
