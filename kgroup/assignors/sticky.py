"""The two sticky assignors: as even as possible, and with as few moved partitions as that allows.

``sticky`` is for eager members. Such a member owns nothing when it joins, so it reports in its
user data what it owned.

``cooperative-sticky`` is the same in two steps (KIP-429). A cooperative member reads on while the
group rebalances. A partition that changes owners is therefore given to no member at first: its
owner sees that it is missing, revokes it and joins again, and the next assignment gives it to the
new owner.

Source: Kafka's ``StickyAssignor`` and ``CooperativeStickyAssignor``; KIP-54, KIP-341
(generations), KIP-881 (racks).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, final

import attrs

from kgroup.assignors.constrained import QuotaPlan, constrained
from kgroup.assignors.general import general
from kgroup.assignors.ownership import (
    NO_GENERATION,
    MemberClaim,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
    indexes_of,
    settle_claims,
)
from kgroup.assignors.partition_codec import topic_spans
from kgroup.assignors.partition_index import (
    MemberPartitions,
    PartitionIndex,
    by_member_id,
    subscriptions_of,
)
from kgroup.assignors.racks import Racks
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
        known = topic_spans(group.partition_index)
        claims = [MemberClaim(*decode_sticky(member.user_data, known)) for member in group.members]
        return group.named(group.divide(claims).shares)

    def user_data(self, owned: Iterable[TopicPartition] | None, generation_id: int) -> bytes | None:
        """Encode what a member sends with its subscription: the partitions that it owned.

        Args:
            owned: the member's last assignment, or None if it has had none.
            generation_id: the generation of that assignment.
        """
        return None if owned is None else encode_sticky(owned, generation_id)


@final
@attrs.frozen
class StickyGroup:
    """A group as both sticky assignors need it.

    Attributes:
        topics: its topics.
        members: its members in the order of their ids; instance ids are ignored.
        subscriptions: the topics of each member.
        partition_index: the topics that have partitions and subscribers.
    """

    topics: Mapping[str, TopicInfo]
    members: list[MemberSubscription]
    subscriptions: list[frozenset[str]]
    partition_index: PartitionIndex

    @classmethod
    def of(cls, topics: Mapping[str, TopicInfo], members: Iterable[MemberSubscription]) -> Self:
        """Sort the members and index the partitions."""
        ordered = by_member_id(members)
        subscriptions = subscriptions_of(ordered)
        return cls(
            topics, ordered, subscriptions, PartitionIndex.of_subscribed(topics, subscriptions)
        )

    @property
    def equal(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len(set(self.subscriptions)) <= 1

    def divide(self, claims: Sequence[MemberClaim]) -> QuotaPlan:
        """Divide the partitions, with as few moves from their owners as possible.

        For unequal subscriptions ``moving`` is empty; ``_moving`` finds it from the claims.
        """
        ownership = settle_claims(self.partition_index, claims)
        racks = Racks.of(self.partition_index, self.topics, self.members)
        if self.equal:
            return constrained(self.partition_index, ownership, racks)
        return QuotaPlan(
            general(self.partition_index, self.subscriptions, claims, ownership, racks), frozenset()
        )

    def named(self, shares: Iterable[MemberPartitions]) -> dict[str, MemberPartitions]:
        """Shares by member id."""
        return {member.member_id: share for member, share in zip(self.members, shares, strict=True)}


@final
@attrs.frozen
class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``: ``sticky``, without stopping what does not move."""

    name: str = attrs.field(default="cooperative-sticky", init=False)
    cooperative: bool = attrs.field(default=True, init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, MemberPartitions]:
        """See ``Assignor.assign``; a partition that changes owners is assigned to no member yet."""
        group = StickyGroup.of(topics, members)
        claims = [
            MemberClaim(owned, _generation(member))
            for member, owned in zip(
                group.members, indexes_of(group.members, group.partition_index), strict=True
            )
        ]
        plan = group.divide(claims)
        moving = plan.moving if group.equal else _moving(plan.shares, claims)
        return group.named(_without(share, moving) for share in plan.shares)

    def user_data(self, _: Iterable[TopicPartition] | None, generation_id: int) -> bytes:
        """Encode what a member sends with its subscription: the generation."""
        return encode_generation(generation_id)


def _generation(member: MemberSubscription) -> int | None:
    """The generation in the subscription (version 2 and up), or else the one in the user data."""
    if member.generation_id != NO_GENERATION:
        return member.generation_id
    return decode_generation(member.user_data)


def _moving(shares: Sequence[MemberPartitions], claims: Sequence[MemberClaim]) -> frozenset[int]:
    """The partitions that one member gets without owning, and another owns without getting."""
    added, removed = set[int](), set[int]()
    for share, claim in zip(shares, claims, strict=True):
        owned = set(claim.indexes)
        given = set(share.indexes)
        added |= given - owned
        removed |= owned - given
    return frozenset(added & removed)


def _without(share: MemberPartitions, moving: frozenset[int]) -> MemberPartitions:
    if not moving or moving.isdisjoint(share.indexes):
        return share
    kept = [index for index in share.indexes if index not in moving]
    return MemberPartitions(share.partition_index, array("i", kept))
