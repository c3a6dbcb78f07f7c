"""Groups of any shape, for hypothesis: topics with and without racks, members of all kinds."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from kgroup.model import MemberSubscription, TopicInfo

NAMES: Final = ("a", "b", "c", "d")
RACKS: Final = ("r1", "r2", "r3")

Group = tuple[dict[str, TopicInfo], tuple[MemberSubscription, ...]]
"""What ``assign`` takes."""


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
    """A group: its topics, some of which do not exist, and its members, by member id."""
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
