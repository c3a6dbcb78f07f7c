"""Sticky assignment for members with the same subscriptions, which makes all quotas known.

Every member gets the average number of partitions, rounded down. If there is a remainder, that many
members get one partition more. A member keeps what it owns up to its quota, lowest partition
numbers first. The remaining partitions are dealt in turn, at first within racks, then regardless.

Dealing takes slices of the sequence of unassigned partitions, so that it costs O(members) from
scratch, plus O(owned partitions) if members own some.

Where Kafka goes by the order of its hash maps (which of the members with enough partitions keep
one above the average), members are taken in the order of their ids.

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
    """A finished assignment.

    Attributes:
        shares: the partitions of each member.
        moving: the indexes that another member has to revoke first.
    """

    shares: list[MemberPartitions]
    moving: frozenset[int]


def constrained(
    partition_index: PartitionIndex, ownership: Ownership, racks: Racks | None
) -> QuotaPlan:
    """Divide the partitions among members of equal subscriptions, in order of their ids."""
    if not ownership.owned:
        return QuotaPlan([], frozenset())
    return _Quotas(partition_index, ownership, racks).plan()


@final
class _Quotas:
    """One assignment in the making."""

    def __init__(
        self, partition_index: PartitionIndex, ownership: Ownership, racks: Racks | None
    ) -> None:
        self._partition_index = partition_index
        self._ownership = ownership
        self._racks = racks
        members = len(ownership.owned)
        self._least, self._extra = divmod(len(partition_index), members)
        self._kept: list[Sequence[int]] = [()] * members
        self._dealt: list[list[Sequence[int]]] = [[] for _ in range(members)]
        self._counts = [0] * members
        self._revoked: dict[int, int] = {}
        self._short: list[int] = []
        self._even: deque[int] = deque()

    def plan(self) -> QuotaPlan:
        """Let members keep what they own, then deal the rest."""
        for member, owned in enumerate(self._ownership.owned):
            self._keep(member, owned)
        if not self._extra:
            self._even.clear()
        free = self._free()
        if self._racks is not None:
            # The sort is stable. Partitions that few members can read in their rack go first.
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
        """How many more members may get one partition above the smaller quota."""
        return self._extra

    def give(self, member: int, index: int) -> int:
        """Give one partition; return how many the member then has."""
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
                self._revoke(member, [index for index in owned if index not in kept])
            owned = suited
        if len(owned) > self._least and self._extra:
            self._extra -= 1
            quota = self._least + 1
        else:
            quota = self._least
        if len(owned) > quota:
            owned = self._partition_index.by_number(owned)
            self._revoke(member, owned[quota:])
            owned = owned[:quota]
        self._kept[member] = owned
        self._counts[member] = len(owned)
        if len(owned) < self._least:
            self._short.append(member)
        elif len(owned) == self._least:
            self._even.append(member)

    def _revoke(self, member: int, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._revoked[index] = member
            self._ownership.held[index] = 0

    def _free(self) -> Sequence[int]:
        """The unassigned partitions, in order."""
        return (
            unmarked(self._ownership.held)
            if any(self._counts)
            else range(len(self._partition_index))
        )

    def _deal(self, free: Sequence[int]) -> None:
        """Deal in turn to members below the smaller quota, then one each to members at it."""
        takers = self._short
        missing = {member: self._least - self._counts[member] for member in takers}
        at = laps = 0
        while takers:
            more = min(missing[member] for member in takers) - laps
            width = len(takers)
            after = at + more * width
            for offset, member in enumerate(takers):
                self._dealt[member].append(free[at + offset : after : width])
            at = after
            laps += more
            self._even.extend(member for member in takers if missing[member] == laps)
            takers = [member for member in takers if missing[member] > laps]
        for member, index in zip(self._even, free[at:], strict=False):
            self._dealt[member].append((index,))

    def _share(self, member: int) -> MemberPartitions:
        kept = sorted(self._kept[member])
        return MemberPartitions.of(self._partition_index, [array("i", kept), *self._dealt[member]])

    def _moving(self) -> frozenset[int]:
        """Partitions that were revoked and dealt to another member, or were disputed and dealt."""
        subscriptions = self._revoked.keys() | self._ownership.disputed
        if not subscriptions:
            return frozenset()
        return frozenset(
            index
            for member, dealt in enumerate(self._dealt)
            for some in dealt
            for index in subscriptions.intersection(some)
            if self._revoked.get(index) != member
        )


@final
class _RackDeal:
    """Deals partitions to members that read them in their own rack, as far as quotas allow.

    Members below the smaller quota get them in turn, members at it in the order in which they
    reached it.
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
        """Deal what can be dealt; return the rest, in order."""
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
        """The next member in the circle whose rack is one of these, or None."""
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
