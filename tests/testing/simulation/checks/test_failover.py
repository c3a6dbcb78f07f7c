"""Invariant 9: acknowledged commits survive."""

from __future__ import annotations

from kgroup.broker.groups.requests import OffsetFetch
from kgroup.broker.groups.responses import FetchedGroup, FetchedOffset, OffsetsFetched
from kgroup.error_codes import ErrorCode
from kgroup.events import Committed
from kgroup.testing.simulation.checks.failover import Failover
from kgroup.testing.simulation.history import TopicChanged
from tests.testing.simulation.checks.stories import GROUP, P0, P1, Story, pair


def worked() -> Story:
    """a has committed partition 0 at 5 and got the response."""
    story = pair()
    story.work("a", P0, 0, 5)
    return story


def fetch(story: Story, offset: int, error: ErrorCode = ErrorCode.NONE) -> None:
    """A member fetches the offsets."""
    fetched = FetchedOffset(topic=P0.topic, partition=P0.partition, offset=offset, error=error)
    answer = OffsetsFetched(groups=(FetchedGroup(group_id=GROUP, partitions=(fetched,)),))
    story.handle("offset_fetch", "", OffsetFetch(version=9, groups=()), answer)


def test_a_failover_that_loses_a_commit_breaks_it() -> None:
    """A new coordinator must have every acknowledged commit."""
    for found in ({}, {P0: 4}):
        story = worked()
        story.move(found)
        (what,) = story.broken(Failover)
        assert what == (
            "the commit of orders-0 at 5 was acknowledged, and after the failover to broker 2 it"
            f" is at {found.get(P0)}"
        )


def test_a_failover_may_keep_or_lose_an_unacknowledged_commit() -> None:
    """A commit that was not acknowledged may be lost."""
    story = worked()
    story.hand_out("b", P1, 0, 9)
    story.send_commit("b", P1, 9)
    story.move({P0: 5})
    story.move({P0: 6, P1: 9})
    assert story.broken(Failover) == []


def test_a_commit_that_is_missing_at_the_end_breaks_it() -> None:
    """It must be there at the end, whether or not a coordinator has moved."""
    story = worked()
    story.settle({})
    assert story.broken(Failover) == []
    story.committed.clear()
    story.settle({})
    (what,) = story.broken(Failover)
    assert "at the end it is at None" in what


def test_a_response_with_an_older_commit_breaks_it() -> None:
    """OffsetFetch must return the last acknowledged commit."""
    story = worked()
    fetch(story, 5)
    fetch(story, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert story.broken(Failover) == []
    fetch(story, 4)
    (what,) = story.broken(Failover)
    assert "according to broker 1 it is at 4" in what


def test_the_commits_of_a_deleted_topic_go_with_it() -> None:
    """A deleted topic's commits may be gone, as in Kafka."""
    story = worked()
    story.record(TopicChanged, topic="orders", partitions=0)
    story.move({})
    assert story.broken(Failover) == []


def test_a_commit_that_no_coordinator_has_accepted_breaks_it() -> None:
    """What a member reports as committed must have been accepted, at that very offset."""
    story = pair()
    story.send_commit("a", P0, 5, error=ErrorCode.ILLEGAL_GENERATION)
    story.emit("a", Committed, offsets={P0: 5})
    story.send_commit("a", P0, 5)
    story.emit("a", Committed, offsets={P0: 6})
    assert story.broken(Failover) == [
        f"a reported that orders-0 was committed at {offset} in generation 1, which no coordinator"
        " has accepted from it"
        for offset in (5, 6)
    ]


def test_a_commit_whose_topic_was_deleted_before_its_response_came_was_accepted() -> None:
    """The response may still be on its way when the commit is deleted with its topic."""
    story = pair()
    story.send_commit("a", P0, 5)
    story.delete()
    story.emit("a", Committed, offsets={P0: 5})
    assert story.broken(Failover) == []
