"""The cooperative sticky assignor: sticky, in two steps (KIP-429).

A member keeps reading what it owns while the group rebalances. A partition that is to change
owners is therefore first given to nobody: its owner sees it missing, gives it up and joins again,
and the assignment after that hands it out.

Source: Kafka's ``CooperativeStickyAssignor``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import attrs

from kgroup.assignors.ownership import MemberClaim, indexes_of
from kgroup.assignors.partition_index import MemberPartitions
from kgroup.assignors.sticky import StickyGroup
from kgroup.assignors.user_data import NO_GENERATION, decode_generation, encode_generation
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition


@final
@attrs.frozen
class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``: ``sticky``, without stopping what does not move."""

    name: str = attrs.field(default="cooperative-sticky", init=False)
    cooperative: bool = attrs.field(default=True, init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, MemberPartitions]:
        """See ``Assignor.assign``; a partition that changes owners is in nobody's share yet."""
        group = StickyGroup.of(topics, members)
        claims = [
            MemberClaim(owned, _generation(member))
            for member, owned in zip(
                group.members, indexes_of(group.members, group.layout), strict=True
            )
        ]
        plan = group.divide(claims)
        moving = plan.moving if group.equal else _moving(plan.shares, claims)
        return group.named(_without(share, moving) for share in plan.shares)

    def user_data(self, _: Iterable[TopicPartition] | None, generation_id: int) -> bytes:
        """What a member sends along when it joins: the generation; see ``StickyAssignor``."""
        return encode_generation(generation_id)


def _generation(member: MemberSubscription) -> int | None:
    """The subscription's own generation (version 2 and up), or else that in the user data."""
    if member.generation_id != NO_GENERATION:
        return member.generation_id
    return decode_generation(member.user_data)


def _moving(shares: Sequence[MemberPartitions], claims: Sequence[MemberClaim]) -> frozenset[int]:
    """What one member gets that it does not own, and another owns and does not get."""
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
    return MemberPartitions(share.layout, array("i", kept))
