"""Sticky assignment where all members subscribe to the same topics: quotas are known beforehand.

Everybody gets the average rounded down, and as many members as it does not come out even get one
more. A member keeps what it owns up to its quota, lowest partition numbers first; what is left is
dealt in turn, first within racks, then regardless.

Dealing is by slices of the line of unassigned partitions, so that its cost is that of the hands
dealt, not of the partitions: O(members) from scratch, plus O(owned) where something is owned.

Where Kafka goes by its hash maps' order (who of those that own enough keeps the one above the
average), members are taken in the order of their ids.

Source: Kafka's ``AbstractStickyAssignor.ConstrainedAssignmentBuilder``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import final

import attrs

from kgroup.assignors.ownership import Ownership
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex, unmarked
from kgroup.assignors.racks import Racks


@final
@attrs.frozen
class QuotaPlan:
    """What an assignment comes to.

    Attributes:
        shares: for each member its partitions.
        moving: indexes that another member has to give up first.
    """

    shares: list[MemberPartitions]
    moving: frozenset[int]


def constrained(layout: PartitionIndex, ownership: Ownership, racks: Racks | None) -> QuotaPlan:
    """Divide the partitions among members of equal subscriptions, in order of their ids."""
    if not ownership.owned:
        return QuotaPlan([], frozenset())
    return _Quotas(layout, ownership, racks).plan()


@final
class _Quotas:
    """One assignment on its way."""

    def __init__(self, layout: PartitionIndex, ownership: Ownership, racks: Racks | None) -> None:
        self._layout = layout
        self._ownership = ownership
        self._racks = racks
        members = len(ownership.owned)
        self._least, self._extra = divmod(len(layout), members)
        self._kept: list[Sequence[int]] = [()] * members
        self._dealt: list[list[Sequence[int]]] = [[] for _ in range(members)]
        self._counts = [0] * members
        self._given_up: dict[int, int] = {}
        self._short: list[int] = []
        self._even: deque[int] = deque()

    def plan(self) -> QuotaPlan:
        """Keep, then deal."""
        for member, owned in enumerate(self._ownership.owned):
            self._keep(member, owned)
        if not self._extra:
            self._even.clear()
        free = self._free()
        if self._racks is not None:
            # A stable sort: those that few could read in their own rack are dealt first.
            free = sorted(free, key=self._racks.readers)
            free = _RackDeal(self._racks, self._short, self._even).deal(self, free)
        self._deal(free)
        return QuotaPlan([self._share(member) for member in range(len(self._kept))], self._moving())

    @property
    def least(self) -> int:
        """The smaller quota."""
        return self._least

    @property
    def extra(self) -> int:
        """How many more members may get one above the smaller quota."""
        return self._extra

    def give(self, member: int, index: int) -> int:
        """Give one partition; returns how many the member has then."""
        self._dealt[member].append((index,))
        self._counts[member] += 1
        if self._counts[member] > self._least:
            self._extra -= 1
        return self._counts[member]

    def _keep(self, member: int, owned: list[int]) -> None:
        if self._racks is not None:
            suited = [index for index in owned if self._racks.suits(member, index)]
            if len(suited) < len(owned):
                kept = set(suited)
                self._give_up(member, [index for index in owned if index not in kept])
            owned = suited
        if len(owned) > self._least and self._extra:
            self._extra -= 1
            quota = self._least + 1
        else:
            quota = self._least
        if len(owned) > quota:
            owned = self._layout.by_number(owned)
            self._give_up(member, owned[quota:])
            owned = owned[:quota]
        self._kept[member] = owned
        self._counts[member] = len(owned)
        if len(owned) < self._least:
            self._short.append(member)
        elif len(owned) == self._least:
            self._even.append(member)

    def _give_up(self, member: int, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._given_up[index] = member
            self._ownership.held[index] = 0

    def _free(self) -> Sequence[int]:
        """What nobody has, in order."""
        return unmarked(self._ownership.held) if any(self._counts) else range(len(self._layout))

    def _deal(self, free: Sequence[int]) -> None:
        """Deal in turn: to those below the smaller quota, then one each to those that are at it."""
        hands = self._short
        missing = {member: self._least - self._counts[member] for member in hands}
        at = laps = 0
        while hands:
            more = min(missing[member] for member in hands) - laps
            width = len(hands)
            after = at + more * width
            for offset, member in enumerate(hands):
                self._dealt[member].append(free[at + offset : after : width])
            at = after
            laps += more
            self._even.extend(member for member in hands if missing[member] == laps)
            hands = [member for member in hands if missing[member] > laps]
        for member, index in zip(self._even, free[at:], strict=False):
            self._dealt[member].append((index,))

    def _share(self, member: int) -> MemberPartitions:
        kept = sorted(self._kept[member])
        return MemberPartitions.of(self._layout, [array("i", kept), *self._dealt[member]])

    def _moving(self) -> frozenset[int]:
        """What was given up and dealt to another one, or claimed by two and dealt to any."""
        wanted = self._given_up.keys() | self._ownership.disputed
        if not wanted:
            return frozenset()
        return frozenset(
            index
            for member, dealt in enumerate(self._dealt)
            for some in dealt
            for index in wanted.intersection(some)
            if self._given_up.get(index) != member
        )


@final
class _RackDeal:
    """Deals partitions to members that read them in their own rack, as far as quotas go.

    Members below the smaller quota come in turn, those at it in the order in which they got there.
    """

    def __init__(self, racks: Racks, short: list[int], even: deque[int]) -> None:
        self._racks = racks
        self._short = short
        self._even = even
        self._turns: dict[str, list[int]] = {}
        for member in short:
            if rack := self._rack(member):
                self._turns.setdefault(rack, []).append(member)
        self._next = 0
        self._waiting: dict[str, deque[tuple[int, int]]] = {}
        self._arrivals = 0
        for member in even:
            self._wait(member)

    def deal(self, quotas: _Quotas, free: Sequence[int]) -> list[int]:
        """Deal what can be dealt; returns what is left, in order."""
        left = []
        full = set[int]()
        for index in free:
            here = self._racks.of_partition(index)
            member = self._in_turn(here)
            if member is not None:
                self._next = member + 1
                if quotas.give(member, index) >= quotas.least:
                    self._turns[self._rack(member)].remove(member)
                    full.add(member)
                    if quotas.extra:
                        self._wait(member)
                        self._even.append(member)
            elif quotas.extra and (member := self._first_waiting(here)) is not None:
                quotas.give(member, index)
                self._waiting[self._rack(member)].popleft()
                self._even.remove(member)
            else:
                left.append(index)
        self._short[:] = [member for member in self._short if member not in full]
        if not quotas.extra:
            self._even.clear()
        return left

    def _in_turn(self, here: frozenset[str]) -> int | None:
        """The next member, in a circle, whose rack is one of these."""
        ahead: int | None = None
        wrapped: int | None = None
        for rack in here:
            turn = self._turns.get(rack)
            if not turn:
                continue
            at = bisect_left(turn, self._next)
            if at < len(turn):
                ahead = turn[at] if ahead is None else min(ahead, turn[at])
            wrapped = turn[0] if wrapped is None else min(wrapped, turn[0])
        return wrapped if ahead is None else ahead

    def _first_waiting(self, here: frozenset[str]) -> int | None:
        firsts = (self._waiting[rack][0] for rack in here if self._waiting.get(rack))
        first = min(firsts, default=None)
        return None if first is None else first[1]

    def _rack(self, member: int) -> str:
        return self._racks.members[member] or ""

    def _wait(self, member: int) -> None:
        if rack := self._rack(member):
            self._waiting.setdefault(rack, deque()).append((self._arrivals, member))
            self._arrivals += 1
