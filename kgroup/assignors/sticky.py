"""The sticky assignor: as even as can be, and of what members owned as little moved as can be.

An eager member owns nothing any more when it joins, so what it owned travels in its user data.

Source: Kafka's ``StickyAssignor``; KIP-54, KIP-341 (generations), KIP-881 (racks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

import attrs

from kgroup.assignors.constrained import Plan, constrained
from kgroup.assignors.general import general
from kgroup.assignors.order import java_order, lay_out
from kgroup.assignors.ownership import Claim, settle
from kgroup.assignors.racks import Racks
from kgroup.assignors.userdata import decode_sticky, encode_sticky
from kgroup.layout import Layout, Share
from kgroup.model import MemberSubscription, TopicInfo, TopicPartition


@final
@attrs.frozen
class StickyAssignor:
    """Kafka's ``sticky``: even over all topics together, close to what members owned."""

    name: str = attrs.field(default="sticky", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, Share]:
        """See ``Assignor.assign``."""
        ordered = by_id(members)
        layout = lay_out(topics, ordered)
        spots = {name.encode(): layout.span(place) for name, place in layout.places.items()}
        claims = [Claim(*decode_sticky(member.user_data, spots)) for member in ordered]
        shares = divide(topics, ordered, layout, claims).shares
        return {
            member.member_id: Share(layout, indexes)
            for member, indexes in zip(ordered, shares, strict=True)
        }

    def user_data(self, owned: Iterable[TopicPartition] | None, generation_id: int) -> bytes | None:
        """What a member sends along when it joins.

        Args:
            owned: the partitions that it was assigned last, or None if it never was.
            generation_id: the generation in which it was.
        """
        return None if owned is None else encode_sticky(owned, generation_id)


def by_id(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Members in the order of their ids; instance ids play no part."""
    return sorted(members, key=lambda member: java_order(member.member_id))


def divide(
    topics: Mapping[str, TopicInfo],
    members: Sequence[MemberSubscription],
    layout: Layout,
    claims: Sequence[Claim],
) -> Plan:
    """What both sticky assignors do with what their members claim.

    In the plan of unequal subscriptions nothing is moving: what moves there is told by the claims.
    """
    ownership = settle(layout, claims)
    racks = Racks.of(layout, topics, members)
    subscriptions = [frozenset(member.topics) for member in members]
    if equal(subscriptions):
        return constrained(layout, ownership, racks)
    return Plan(general(layout, subscriptions, claims, ownership, racks), frozenset())


def equal(subscriptions: Iterable[frozenset[str]]) -> bool:
    """Whether all members subscribe to the same topics."""
    return len(set(subscriptions)) <= 1
