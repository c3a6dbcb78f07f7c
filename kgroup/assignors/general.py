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
  for that. A plan is balanced exactly when no partition can be moved, which a walk over the
  partitions finds anyway. A walk costs O(partitions + subscriptions), a move O(subscribers).
- Kafka first returns a partition to the member that claims it from an earlier generation, even if
  that member no longer subscribes to the topic. Mostly a later move corrects this, and the plan is
  valid, but not the plan that would have resulted without the detour. So Kafka's way is tried
  first, and if its plan is not valid, a second one is made of only those claims that are possible.
- Kafka can move partitions back and forth endlessly. Here such moves are bounded.
- Any member can subscribe, and claim, so that balancing takes very long; the leader would then lose
  its membership, and each leader after it. INVARIANT: the number of steps is limited, by
  ``MOST_STEPS`` at most, and no step takes longer in a larger group. The plan is valid at any time;
  what is missing after the last step is balance. Kafka's way with impossible claims is given up
  after as many.
- Where Kafka takes the first element of a hash set, the lowest index is taken here.

Source: Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder`` (``performReassignments``) and
``PartitionMovements``.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, final

from kgroup.assignors.ownership import NO_GENERATION, MemberClaim, Ownership
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.racks import Racks

UNASSIGNED: Final = -1
"""The owner of a partition that no member has."""

MOST_STEPS: Final = 100_000_000
"""The most steps that one balancing may take, looks at a partition or at a subscriber: seconds."""
LEAST_STEPS: Final = 10_000_000
"""The steps that it may take in any group."""
MORE_STEPS: Final = 20
"""The steps that it may take in addition, for each partition and for each subscription. To these
come the subscribers of each partition: each one can be moved once, by a look at all of them."""

TopicIndexes = Sequence[tuple[int, Sequence[int]]]
"""Partitions to walk over: topics in the order of the walk, each with indexes of its partitions."""


def general(
    partition_index: PartitionIndex,
    subscriptions: Sequence[frozenset[str]],
    claims: Sequence[MemberClaim],
    ownership: Ownership,
    racks: Racks | None,
) -> list[MemberPartitions]:
    """Divide the partitions among members, in order of their ids.

    Args:
        partition_index: the topics that have subscribers.
        subscriptions: the topics that each member subscribes to.
        claims: what each member says that it owned, and in which generation.
        ownership: which of the claims count.
        racks: the racks of members and partitions, or None where they make no difference.
    """
    previous = _previous_owners(claims)
    draft = DraftAssignment(partition_index, subscriptions)
    possible = {
        index: member
        for index, member in previous.items()
        if partition_index.place_of(index) in draft.subscribed[member]
    }
    if possible != previous:
        with suppress(PreviousOwnerError):
            if _divide(draft, ownership, racks, previous) and draft.valid():
                return draft.shares()
        draft = DraftAssignment(partition_index, subscriptions)
    _divide(draft, ownership, racks, possible)
    return draft.shares()


def _divide(
    draft: DraftAssignment, ownership: Ownership, racks: Racks | None, previous: Mapping[int, int]
) -> bool:
    """Fill up and balance a draft; return whether balancing came to its end."""
    revoked = _keep(draft, ownership, racks)
    initial = not any(draft.counts)
    new = draft.unassigned()
    if racks is not None:
        _fill_within_racks(draft, new, racks)
    _fill(draft, new)
    counts, owner = draft.counts[:], draft.owner[:]
    balancing = Balancing(draft, previous)
    if not revoked:
        balancing.run(new)
    moved = balancing.run([(topic, draft.partition_index.span(topic)) for topic in draft.order])
    if moved and not initial and draft.imbalance(draft.counts) >= draft.imbalance(counts):
        draft.counts, draft.owner = counts, owner
    return balancing.steps_left >= 0


def _keep(draft: DraftAssignment, ownership: Ownership, racks: Racks | None) -> bool:
    """Leave members what they own; return whether one of them lost a partition."""
    revoked = False
    for member, owned in enumerate(ownership.owned):
        subscribed = draft.subscribed[member]
        for index in owned:
            if draft.partition_index.place_of(index) not in subscribed or (
                racks is not None and not racks.suits(member, index)
            ):
                revoked = True
            else:
                draft.give(index, member)
    return revoked


def _fill_within_racks(draft: DraftAssignment, free: TopicIndexes, racks: Racks) -> None:
    """Give each partition to the member with the fewest of those whose rack suits, if any."""
    for topic, indexes in free:
        heaps: dict[str | None, list[int]] = {}
        for member in draft.subscribers[topic]:
            heaps.setdefault(racks.members[member], []).append(draft.key(member))
        for heap in heaps.values():
            heapify(heap)
        for index in indexes:
            suited = [heaps[at] for at in (None, *racks.of_partition(index)) if at in heaps]
            if suited:
                heap = min(suited, key=lambda heap: heap[0])
                draft.give(index, heap[0] % draft.members)
                heapreplace(heap, heap[0] + draft.members)


def _fill(draft: DraftAssignment, free: TopicIndexes) -> None:
    """Give each partition that is still unassigned to the subscriber with the fewest."""
    owner, counts, members = draft.owner, draft.counts, draft.members
    for topic, indexes in free:
        heap = [draft.key(member) for member in draft.subscribers[topic]]
        heapify(heap)
        for index in indexes:
            if owner[index] < 0:
                least = heap[0]
                member = least % members
                owner[index] = member
                counts[member] += 1
                heapreplace(heap, least + members)


def _previous_owners(claims: Sequence[MemberClaim]) -> dict[int, int]:
    """The members that claim partitions from an earlier generation than the latest, by index."""
    latest = max((claim.weight for claim in claims), default=NO_GENERATION)
    previous: dict[int, tuple[int, int]] = {}
    for member, claim in enumerate(claims):
        if claim.weight < latest:
            for index in claim.indexes:
                if index not in previous or claim.weight > previous[index][0]:
                    previous[index] = claim.weight, member
    return {index: member for index, (_, member) in previous.items()}


@final
class DraftAssignment:
    """An assignment in the making: who subscribes to what, and who has what so far."""

    def __init__(
        self, partition_index: PartitionIndex, subscriptions: Sequence[frozenset[str]]
    ) -> None:
        self.partition_index = partition_index
        self.members = len(subscriptions)
        place_of = partition_index.places
        places = {
            topics: frozenset(map(place_of.__getitem__, topics & place_of.keys()))
            for topics in set(subscriptions)
        }
        self.subscribed = [places[topics] for topics in subscriptions]
        self.subscribers = partition_index.subscribers(subscriptions)
        self.sharing = {
            member for members in self.subscribers if len(members) > 1 for member in members
        }
        self.order = sorted(
            range(len(partition_index.names)),
            key=lambda topic: (len(self.subscribers[topic]), topic),
        )
        self.owner = [UNASSIGNED] * len(partition_index)
        self.counts = [0] * self.members

    def give(self, index: int, member: int) -> None:
        """Give an unassigned partition to a member."""
        self.owner[index] = member
        self.counts[member] += 1

    def unassigned(self) -> TopicIndexes:
        """The partitions that no member has."""
        free = []
        for topic in self.order:
            span = self.partition_index.span(topic)
            owners = self.owner[span.start : span.stop]
            if UNASSIGNED in owners:
                free.append(
                    (topic, [i for i, owner in zip(span, owners, strict=True) if owner < 0])
                )
        return free

    def key(self, member: int) -> int:
        """The key that sorts members by their number of partitions, then by their ids."""
        return self.counts[member] * self.members + member

    def least(self, topic: int) -> int:
        """The subscriber of a topic that has the fewest partitions."""
        return min(map(self.key, self.subscribers[topic])) % self.members

    def imbalance(self, counts: Sequence[int]) -> int:
        """The sum of the differences between any two members that share a topic with others."""
        rising = sorted(counts[member] for member in self.sharing)
        return sum(count * (2 * at - len(rising) + 1) for at, count in enumerate(rising))

    def balanced(self) -> bool:
        """Whether no subscriber of a topic has two partitions less than an owner of one of it.

        A subscriber that has as many partitions as its topics have does not count.
        """
        has = [self.counts[member] for member in self.sharing]
        if not has or max(has) - min(has) <= 1:
            return True
        spans = map(self.partition_index.span, range(len(self.partition_index.names)))
        most = [max(self.counts[owner] for owner in self.owner[s.start : s.stop]) for s in spans]
        return all(
            self.counts[member] == sum(len(self.partition_index.span(topic)) for topic in topics)
            or all(most[topic] <= self.counts[member] + 1 for topic in topics)
            for member, topics in enumerate(self.subscribed)
            if member in self.sharing
        )

    def valid(self) -> bool:
        """Whether every partition is with a subscriber of its topic."""
        spans = map(self.partition_index.span, range(len(self.partition_index.names)))
        return all(
            topic in self.subscribed[member]
            for topic, span in enumerate(spans)
            for member in set(self.owner[span.start : span.stop])
        )

    def shares(self) -> list[MemberPartitions]:
        """The partitions of each member."""
        shares: list[list[int]] = [[] for _ in range(self.members)]
        for index, member in enumerate(self.owner):
            shares[member].append(index)
        return [MemberPartitions(self.partition_index, array("i", indexes)) for indexes in shares]


class PreviousOwnerError(Exception):
    """The previous owner of a partition shares no topic with others; Kafka fails here."""


@final
class Balancing:
    """Moves partitions until no move makes a difference.

    A move that undoes an earlier one (see `Movements`) can take a partition from a member that has
    no more than the one it goes to. The number of such moves is bounded.

    Attributes:
        steps_left: how many steps it may still take; negative once it has stopped for want of them.
    """

    def __init__(self, draft: DraftAssignment, previous: Mapping[int, int]) -> None:
        self._draft = draft
        self._previous = previous
        self._movements = Movements()
        self._useless_moves_left = len(draft.partition_index)
        self._balanced: bool | None = None
        """Whether the draft is balanced, if that is known since the last move."""
        self._size = len(draft.owner) + sum(map(len, draft.subscribed))
        move_all = sum(
            len(draft.partition_index.span(topic)) * len(subscribers)
            for topic, subscribers in enumerate(draft.subscribers)
        )
        self.steps_left = min(MOST_STEPS, LEAST_STEPS + MORE_STEPS * self._size + move_all)

    def run(self, topics: TopicIndexes) -> bool:
        """Walk over the partitions until none can be moved; return whether one was moved.

        Raises:
            PreviousOwnerError: a partition's previous owner shares no topic with others.
        """
        shared = [one for one in topics if len(self._draft.subscribers[one[0]]) > 1]
        moved = False
        while self.steps_left >= 0 and sum(self._walk(*one) for one in shared) > 0:
            moved = True
        return moved

    def _walk(self, topic: int, indexes: Sequence[int]) -> int:
        """Walk over some of a topic's partitions once; return how many were moved."""
        draft, previous = self._draft, self._previous
        owner, counts = draft.owner, draft.counts
        least = self._least(topic)
        self.steps_left -= len(indexes)
        moved = 0
        for index in indexes:
            if self.steps_left < 0:
                break
            has = counts[owner[index]]
            if index in previous and self._may_return(topic, index, has):
                to = previous[index]
            elif has > counts[least] + 1:
                to = least
            else:
                continue
            self._move(topic, index, to)
            moved += 1
            least = self._least(topic)
        return moved

    def _least(self, topic: int) -> int:
        self.steps_left -= len(self._draft.subscribers[topic])
        return self._draft.least(topic)

    def _is_balanced(self) -> bool:
        if self._balanced is None:
            self.steps_left -= self._size
            self._balanced = self._draft.balanced()
        return self._balanced

    def _may_return(self, topic: int, index: int, has: int) -> bool:
        """Whether a partition is to go back to its previous owner."""
        draft, to = self._draft, self._previous[index]
        if topic not in draft.subscribed[to]:
            if self._is_balanced():
                return False
            if to not in draft.sharing:
                raise PreviousOwnerError
        return has > draft.counts[to] + 1

    def _move(self, topic: int, index: int, to: int) -> None:
        owner, counts = self._draft.owner, self._draft.counts
        self._balanced = None
        instead = self._movements.instead(topic, index, owner[index], to)
        if counts[owner[instead]] <= counts[to] + 1:
            if self._useless_moves_left:
                self._useless_moves_left -= 1
            else:
                instead = index
        before = owner[instead]
        self._movements.move(topic, instead, before, to)
        counts[before] -= 1
        counts[to] += 1
        owner[instead] = to


@final
class Movements:
    """The moves of one balancing: the first and the present owner of each moved partition.

    If a partition is to go from one member to another, and an earlier move took one of the same
    topic the other way, that one goes back instead.
    """

    def __init__(self) -> None:
        self._moved: dict[int, tuple[int, int]] = {}
        self._between: dict[tuple[int, int, int], list[int]] = {}
        """Heaps of partitions, by topic, first and present owner; some have moved on since."""

    def instead(self, topic: int, index: int, owner: int, to: int) -> int:
        """The partition to move if this one of the topic is to go from its owner to another."""
        origin = self._moved[index][0] if index in self._moved else owner
        back = self._between.get((topic, to, origin), [])
        while back and self._moved.get(back[0]) != (to, origin):
            heappop(back)
        return back[0] if back else index

    def move(self, topic: int, index: int, owner: int, to: int) -> None:
        """Record a move."""
        origin = owner
        if index in self._moved:
            origin, _ = self._moved.pop(index)
        if origin != to:
            self._moved[index] = (origin, to)
            heappush(self._between.setdefault((topic, origin, to), []), index)
