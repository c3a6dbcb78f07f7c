"""The sticky assignor: as even as can be, and of what members owned as little moved as can be.

An eager member owns nothing any more when it joins, so what it owned travels in its user data.

Source: Kafka's ``StickyAssignor``; KIP-54, KIP-341 (generations), KIP-881 (racks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, final

import attrs

from kgroup.assignors.constrained import QuotaPlan, constrained
from kgroup.assignors.general import general
from kgroup.assignors.order import by_id, lay_out, subscriptions
from kgroup.assignors.ownership import MemberClaim, settle
from kgroup.assignors.partition_codec import heads
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.racks import Racks
from kgroup.assignors.user_data import decode_sticky, encode_sticky
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition


@final
@attrs.frozen
class StickyAssignor:
    """Kafka's ``sticky``: even over all topics together, close to what members owned."""

    name: str = attrs.field(default="sticky", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, MemberPartitions]:
        """See ``Assignor.assign``."""
        group = StickyGroup.of(topics, members)
        known = heads(group.layout)
        claims = [MemberClaim(*decode_sticky(member.user_data, known)) for member in group.members]
        return group.named(group.divide(claims).shares)

    def user_data(self, owned: Iterable[TopicPartition] | None, generation_id: int) -> bytes | None:
        """What a member sends along when it joins.

        Args:
            owned: the partitions that it was assigned last, or None if it never was.
            generation_id: the generation in which it was.
        """
        return None if owned is None else encode_sticky(owned, generation_id)


@final
@attrs.frozen
class StickyGroup:
    """A group as both sticky assignors see it.

    Attributes:
        topics: its topics.
        members: its members in the order of their ids; instance ids play no part.
        wanted: what each of them subscribes to.
        layout: the topics that have partitions and subscribers.
    """

    topics: Mapping[str, TopicInfo]
    members: list[MemberSubscription]
    wanted: list[frozenset[str]]
    layout: PartitionIndex

    @classmethod
    def of(cls, topics: Mapping[str, TopicInfo], members: Iterable[MemberSubscription]) -> Self:
        """Put what an assignor was given in order."""
        ordered = by_id(members)
        wanted = subscriptions(ordered)
        return cls(topics, ordered, wanted, lay_out(topics, wanted))

    @property
    def equal(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len(set(self.wanted)) <= 1

    def divide(self, claims: Sequence[MemberClaim]) -> QuotaPlan:
        """What both sticky assignors do with what their members claim.

        In a plan for unequal subscriptions nothing is moving: the claims tell what moves.
        """
        ownership = settle(self.layout, claims)
        racks = Racks.of(self.layout, self.topics, self.members)
        if self.equal:
            return constrained(self.layout, ownership, racks)
        return QuotaPlan(general(self.layout, self.wanted, claims, ownership, racks), frozenset())

    def named(self, shares: Iterable[MemberPartitions]) -> dict[str, MemberPartitions]:
        """Shares by member id."""
        return {member.member_id: share for member, share in zip(self.members, shares, strict=True)}
