"""Invariant 1: an assignment is disjoint and whole."""

from __future__ import annotations

from kgroup.testing.simulation.checks.assignments import Assignments
from kgroup.testing.simulation.history import TopicChanged
from kgroup.types import TopicPartition
from tests.testing.simulation.checks.stories import P0, P1, Story, pair

P2 = TopicPartition("orders", 2)


def test_two_owners_of_one_partition_break_it() -> None:
    """In one generation nothing is given twice."""
    story = Story().begin("a", "b")
    story.form({"a": [P0], "b": [P0, P1]})
    (what,) = story.broken(Assignments)
    assert what == "orders-0 has 2 owners in generation 1: a-id, b-id"


def test_a_partition_without_an_owner_breaks_it() -> None:
    """What was there before the members were known must be given to one of them."""
    story = Story().begin("a")
    story.form({"a": [P0]})
    (what,) = story.broken(Assignments)
    assert "orders-1, which exists since 1.001 s, has no owner in generation 1" in what


def test_what_a_cooperative_owner_gives_up_may_wait_for_one_generation() -> None:
    """It had an owner before, and has one after; what never had one is missed at once."""
    story = Story().begin("a", "b")
    story.assignor = "cooperative-sticky"
    story.form({"a": [P0, P1]})
    story.form({"a": [P0], "b": []})
    story.form({"a": [P0], "b": [P1]})
    assert story.broken(Assignments) == []
    story.form({"a": [P0], "b": []})
    story.form({"a": [P0], "b": []})
    (what,) = story.broken(Assignments)
    assert "orders-1, which exists since 1.001 s, has no owner in generation 5" in what


def test_an_owner_that_heard_nothing_of_a_generation_still_has_to_give_up() -> None:
    """What it names in its Join may be without an owner, however many generations it missed."""
    story = Story().begin("a", "b")
    story.assignor = "cooperative-sticky"
    story.form({"a": [P0, P1]})
    story.claims = {"a": [P0, P1]}
    story.form({"a": [P0], "b": []})
    story.form({"a": [P0], "b": []})
    assert story.broken(Assignments) == []
    story.claims = {"a": [P0]}
    story.form({"a": [P0], "b": []})
    (what,) = story.broken(Assignments)
    assert "orders-1, which exists since 1.001 s, has no owner in generation 4" in what


def test_an_eager_group_leaves_nothing_out() -> None:
    """What has changed owners in one generation has its new one in it."""
    story = Story().begin("a", "b")
    story.form({"a": [P0, P1]})
    story.form({"a": [P0], "b": []})
    (what,) = story.broken(Assignments)
    assert "orders-1, which exists since 1.001 s, has no owner in generation 2" in what


def test_a_partition_that_does_not_exist_breaks_it() -> None:
    """Nobody can own what is not there."""
    story = Story().begin("a", partitions=1)
    story.form({"a": [P0, P1]})
    (what,) = story.broken(Assignments)
    assert "orders-1, which does not exist, was assigned to a-id" in what


def test_a_member_that_is_told_of_anothers_partitions_breaks_it() -> None:
    """What a program hears is what its coordinator has."""
    story = Story().begin("a", "b")
    story.form({"a": [P0], "b": [P1]})
    story.told_assigned("a", [P1])
    (what,) = story.broken(Assignments)
    assert "they differ in orders-0, orders-1" in what


def test_a_member_that_is_told_of_a_generation_that_was_none_breaks_it() -> None:
    """There is no assignment that no coordinator had."""
    story = Story().begin("a")
    story.generation_id = 1
    story.owners = {"a": [P0]}
    story.told_joined("a")
    story.told_assigned("a")
    (what,) = story.broken(Assignments)
    assert "no coordinator had one for it" in what


def test_a_partition_that_came_after_the_members_were_known_may_wait() -> None:
    """The leader computes from what it saw; a failover shows the same assignment again."""
    story = pair()
    story.record(TopicChanged, topic="orders", partitions=3)
    story.move()
    story.group("Stable", topics={"orders": 3})
    assert story.broken(Assignments) == []
    story.form({"a": [P0], "b": [P1]})
    (what,) = story.broken(Assignments)
    assert "orders-2" in what


def test_a_partition_does_not_wait_for_ever() -> None:
    """In a calm group the leader's watcher has found it by then."""
    story = pair()
    story.record(TopicChanged, topic="orders", partitions=3)
    story.move()
    story.group("Stable", topics={"orders": 3})
    story.quiet()
    story.wait(30.0)
    story.settle({})
    assert story.broken(Assignments) == []
    story.wait(60.0)
    story.settle({})
    (what,) = story.broken(Assignments)
    assert "orders-2" in what


def test_what_was_deleted_needs_no_owner() -> None:
    """A topic that is gone has no partitions to give."""
    story = Story().begin("a")
    story.record(TopicChanged, topic="orders", partitions=0)
    story.form({"a": []})
    assert story.broken(Assignments) == []
