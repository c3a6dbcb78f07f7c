"""Invariant 1: an assignment is disjoint and complete."""

from __future__ import annotations

from kgroup.testing.simulation.checks.assignments import Assignments
from kgroup.testing.simulation.history import TopicChanged
from kgroup.types import TopicPartition
from tests.testing.simulation.checks.stories import P0, P1, Story, pair

P2 = TopicPartition("orders", 2)


def test_two_owners_of_one_partition_break_it() -> None:
    """Within a generation no partition may be assigned twice."""
    story = Story().begin("a", "b")
    story.form({"a": [P0], "b": [P0, P1]})
    (what,) = story.broken(Assignments)
    assert what == "orders-0 has 2 owners in generation 1: a-id, b-id"


def test_a_partition_without_an_owner_breaks_it() -> None:
    """A partition that existed before all members had joined must be assigned."""
    story = Story().begin("a")
    story.form({"a": [P0]})
    (what,) = story.broken(Assignments)
    assert "orders-1, which exists since 1.001 s, has no owner in generation 1" in what


def test_what_a_cooperative_owner_gives_up_may_wait_for_one_generation() -> None:
    """A partition may have no owner for one generation only if it had an owner before."""
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


def test_an_owner_that_missed_a_generation_still_has_to_give_up() -> None:
    """What a member lists as owned may have no owner, however many generations it missed."""
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
    """With an eager assignor every partition has an owner in every generation."""
    story = Story().begin("a", "b")
    story.form({"a": [P0, P1]})
    story.form({"a": [P0], "b": []})
    (what,) = story.broken(Assignments)
    assert "orders-1, which exists since 1.001 s, has no owner in generation 2" in what


def test_a_partition_that_does_not_exist_breaks_it() -> None:
    """A partition that does not exist may not be assigned."""
    story = Story().begin("a", partitions=1)
    story.form({"a": [P0, P1]})
    (what,) = story.broken(Assignments)
    assert "orders-1, which does not exist, was assigned to a-id" in what


def test_a_member_that_receives_anothers_partitions_breaks_it() -> None:
    """A program must receive exactly the partitions that its coordinator has for it."""
    story = Story().begin("a", "b")
    story.form({"a": [P0], "b": [P1]})
    story.report_assigned("a", [P1])
    (what,) = story.broken(Assignments)
    assert "they differ in orders-0, orders-1" in what


def test_an_assignment_that_no_coordinator_had_breaks_it() -> None:
    """A program may not receive an assignment that no coordinator had."""
    story = Story().begin("a")
    story.generation_id = 1
    story.owners = {"a": [P0]}
    story.report_joined("a")
    story.report_assigned("a")
    (what,) = story.broken(Assignments)
    assert "no coordinator had one for it" in what


def test_a_partition_added_during_a_rebalance_may_wait() -> None:
    """The leader assigns by the metadata it has seen; a failover repeats the same assignment."""
    story = pair()
    story.record(TopicChanged, topic="orders", partitions=3)
    story.move()
    story.group("Stable", topics={"orders": 3})
    assert story.broken(Assignments) == []
    story.form({"a": [P0], "b": [P1]})
    (what,) = story.broken(Assignments)
    assert "orders-2" in what


def test_a_partition_does_not_wait_for_ever() -> None:
    """In an undisturbed group the leader's watcher must find a new partition in time."""
    story = pair()
    story.record(TopicChanged, topic="orders", partitions=3)
    story.move()
    story.group("Stable", topics={"orders": 3})
    story.end_workload()
    story.wait(30.0)
    story.settle({})
    assert story.broken(Assignments) == []
    story.wait(60.0)
    story.settle({})
    (what,) = story.broken(Assignments)
    assert "orders-2" in what


def test_a_deleted_partition_needs_no_owner() -> None:
    """The partitions of a deleted topic need no owner."""
    story = Story().begin("a")
    story.record(TopicChanged, topic="orders", partitions=0)
    story.form({"a": []})
    assert story.broken(Assignments) == []
