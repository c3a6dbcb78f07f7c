"""Which member reads which partition in its own rack, for the sticky assignors (KIP-881).

Racks count only if they make a difference: the rack of some member has replicas, and not every
partition has a replica in all racks.

Source: Kafka's ``AbstractStickyAssignor.RackInfo``.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Self, final

from kgroup.assignors.partition_index import PartitionIndex
from kgroup.types import MemberSubscription, TopicInfo

_NONE: Final = frozenset[str]()


@final
class Racks:
    """The racks of a group's members and partitions, where they make a difference.

    Attributes:
        members: the rack of each member, or None; a member without a rack suits every partition.
    """

    def __init__(
        self, members: Sequence[str | None], kinds: Sequence[int], sets: Sequence[frozenset[str]]
    ) -> None:
        self.members = members
        self._kinds = kinds
        self._sets = sets
        readers = Counter(rack for rack in members if rack)
        self._readers = [sum(readers[rack] for rack in racks) for racks in sets]

    @classmethod
    def of(
        cls,
        partition_index: PartitionIndex,
        topics: Mapping[str, TopicInfo],
        members: Sequence[MemberSubscription],
    ) -> Self | None:
        """Return the racks, or None if they make no difference."""
        own = [member.rack_id or None for member in members]
        here = {rack for rack in own if rack}
        if not here:
            return None
        numbers: dict[frozenset[str], int] = {}
        kinds = array("i")
        for name in partition_index.names:
            topic = topics[name]
            if not topic.racks:
                kinds.extend([numbers.setdefault(_NONE, len(numbers))] * topic.partitions)
                continue
            known = {
                racks: numbers.setdefault(frozenset(racks), len(numbers))
                for racks in dict.fromkeys(topic.racks)
            }
            kinds.extend([known[racks] for racks in topic.racks])
        there = _NONE.union(*numbers)
        if here.isdisjoint(there) or set(numbers) == {there}:
            return None
        return cls(own, kinds, list(numbers))

    def of_partition(self, index: int) -> frozenset[str]:
        """The racks that have a replica of a partition."""
        return self._sets[self._kinds[index]]

    def suits(self, member: int, index: int) -> bool:
        """Whether the member reads the partition in its own rack, or has no rack."""
        rack = self.members[member]
        return rack is None or rack in self._sets[self._kinds[index]]

    def readers(self, index: int) -> int:
        """How many members are in racks with a replica of the partition."""
        return self._readers[self._kinds[index]]
