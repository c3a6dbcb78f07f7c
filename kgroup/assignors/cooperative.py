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

from kgroup.assignors.order import lay_out
from kgroup.assignors.ownership import Claim, indexes_of
from kgroup.assignors.sticky import by_id, divide, equal
from kgroup.assignors.userdata import NO_GENERATION, decode_generation, encode_generation
from kgroup.layout import Share
from kgroup.model import MemberSubscription, TopicInfo, TopicPartition


@final
@attrs.frozen
class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``: ``sticky``, without stopping what does not move."""

    name: str = attrs.field(default="cooperative-sticky", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, Share]:
        """See ``Assignor.assign``; a partition that changes owners is in nobody's share yet."""
        ordered = by_id(members)
        layout = lay_out(topics, ordered)
        claims = [
            Claim(indexes_of(member.owned, layout), _generation(member)) for member in ordered
        ]
        plan = divide(topics, ordered, layout, claims)
        moving = plan.moving
        if not equal(frozenset(member.topics) for member in ordered):
            moving = _moving(plan.shares, claims)
        return {
            member.member_id: Share(layout, _without(indexes, moving))
            for member, indexes in zip(ordered, plan.shares, strict=True)
        }

    def user_data(self, _: Iterable[TopicPartition] | None, generation_id: int) -> bytes:
        """What a member sends along when it joins: the generation; see ``StickyAssignor``."""
        return encode_generation(generation_id)


def _generation(member: MemberSubscription) -> int | None:
    """The subscription's own generation (version 2 and up), or else that in the user data."""
    if member.generation_id != NO_GENERATION:
        return member.generation_id
    return decode_generation(member.user_data)


def _moving(shares: Sequence[Sequence[int]], claims: Sequence[Claim]) -> frozenset[int]:
    """What one member gets that it does not own, and another owns and does not get."""
    added, removed = set[int](), set[int]()
    for share, claim in zip(shares, claims, strict=True):
        owned = set(claim.indexes)
        added.update(owned.symmetric_difference(share) - owned)
        removed.update(owned.difference(share))
    return frozenset(added & removed)


def _without(indexes: Sequence[int], moving: frozenset[int]) -> Sequence[int]:
    if moving.isdisjoint(indexes):
        return indexes
    return array("i", [index for index in indexes if index not in moving])
