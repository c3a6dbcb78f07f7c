"""Groups of any shape, for hypothesis: topics with and without racks, members of all kinds."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from kgroup.model import MemberSubscription, TopicInfo

NAMES: Final = ("a", "b", "c", "d")
RACKS: Final = ("r1", "r2", "r3")

Group = tuple[dict[str, TopicInfo], tuple[MemberSubscription, ...]]
"""What ``assign`` takes."""

# Made once: hypothesis looks at each strategy that is new to it before it draws.
_TOPIC_NAMES: Final = st.sets(st.sampled_from(NAMES))
_COUNTS: Final = st.integers(0, 9)
_REPLICAS: Final = st.lists(st.sampled_from(RACKS), max_size=3).map(tuple)
_RACKS: Final = {
    count: st.just(()) | st.lists(_REPLICAS, min_size=count, max_size=count).map(tuple)
    for count in range(10)
}
_IDS: Final = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8, unique=True)
_STATIC: Final = st.booleans()
_SUBSCRIBED: Final = st.lists(st.sampled_from(NAMES)).map(tuple)
_RACK: Final = st.none() | st.just("") | st.sampled_from(RACKS)


@st.composite
def _topics(draw: st.DrawFn) -> dict[str, TopicInfo]:
    topics = {}
    for name in draw(_TOPIC_NAMES):
        count = draw(_COUNTS)
        topics[name] = TopicInfo(name=name, partitions=count, racks=draw(_RACKS[count]))
    return topics


_TOPICS: Final = _topics()


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """A group: its topics, some of which do not exist, and its members, by member id."""
    members = [
        MemberSubscription(
            member_id=member_id,
            group_instance_id=f"instance-{member_id}" if draw(_STATIC) else None,
            topics=draw(_SUBSCRIBED),
            rack_id=draw(_RACK),
        )
        for member_id in sorted(draw(_IDS))
    ]
    return draw(_TOPICS), tuple(members)
