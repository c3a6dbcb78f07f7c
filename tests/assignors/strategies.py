"""Hypothesis strategies for groups: topics with and without racks, members of all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from hypothesis import strategies as st

from kgroup.assignors.sticky import StickyAssignor
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

NAMES: Final = ("a", "b", "c", "d")
RACKS: Final = ("r1", "r2", "r3")

Members = tuple[MemberSubscription, ...]
Group = tuple[dict[str, TopicInfo], Members]
"""The arguments of ``assign``: topics and members."""


@st.composite
def _topics(draw: st.DrawFn) -> dict[str, TopicInfo]:
    topics = {}
    for name in draw(st.sets(st.sampled_from(NAMES))):
        count = draw(st.integers(0, 9))
        of = st.lists(st.sampled_from(RACKS), max_size=3).map(tuple)
        racks = draw(st.just(()) | st.lists(of, min_size=count, max_size=count).map(tuple))
        topics[name] = TopicInfo(name=name, partitions=count, racks=racks)
    return topics


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """A group's topics, and its members by member id; some subscribe to missing topics."""
    ids = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8, unique=True))
    members = [
        MemberSubscription(
            member_id=member_id,
            group_instance_id=draw(st.none() | st.just(f"instance-{member_id}")),
            topics=tuple(draw(st.lists(st.sampled_from(NAMES)))),
            rack_id=draw(st.none() | st.just("") | st.sampled_from(RACKS)),
        )
        for member_id in sorted(ids)
    ]
    return draw(_topics()), tuple(members)


@st.composite
def claiming(draw: st.DrawFn) -> Group:
    """A group whose members claim anything: also others' partitions, missing ones, and twice."""
    topics, members = draw(groups())
    if draw(st.booleans()):
        members = alike(members)
    partitions = st.builds(TopicPartition, st.sampled_from((*NAMES, "gone")), st.integers(-1, 11))
    return topics, owning(
        [
            attrs.evolve(
                member,
                owned=tuple(draw(st.lists(partitions, max_size=12))),
                generation_id=draw(st.integers(-1, 3)),
            )
            for member in members
        ]
    )


@st.composite
def owned_once(draw: st.DrawFn, *, equal: bool, most: int = 9) -> Group:
    """A small group without racks, in which each partition has at most one owner."""
    names = NAMES[: draw(st.integers(1, 2 if equal else 3))]
    count = draw(st.integers(1, 4 if equal else 3))
    topics: dict[str, TopicInfo] = {}
    for name in names:
        room = most - sum(topic.partitions for topic in topics.values())
        topics[name] = TopicInfo(name=name, partitions=draw(st.integers(0, min(5, room))))
    members = []
    for number in range(count):
        subscribed = names if equal else tuple(draw(st.sets(st.sampled_from(names))))
        members.append(MemberSubscription(member_id=f"m{number}", topics=subscribed))
    owners = {
        TopicPartition(name, number): draw(st.integers(-1, count - 1))
        for name, topic in topics.items()
        for number in range(topic.partitions)
    }
    return topics, owning(
        [
            attrs.evolve(
                member,
                owned=tuple(p for p, owner in owners.items() if owner == number),
                generation_id=3,
            )
            for number, member in enumerate(members)
        ]
    )


def alike(members: Sequence[MemberSubscription]) -> Members:
    """The same members, all with the subscription of the first."""
    return tuple(attrs.evolve(member, topics=members[0].topics) for member in members)


def owning(members: Sequence[MemberSubscription]) -> Members:
    """The same members, with what they own also in the user data that ``sticky`` reads."""
    encode = StickyAssignor().user_data
    return tuple(
        attrs.evolve(member, user_data=encode(member.owned, member.generation_id))
        for member in members
    )
