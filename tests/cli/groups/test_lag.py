"""The lag of a group, computed."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kgroup.cli.groups.lag import compute_lag, owner_names, partitions_to_read
from kgroup.cli.groups.report import print_lags
from kgroup.cli.groups.values import Group, GroupMember
from kgroup.cli.log_bounds import LogBounds
from kgroup.types import IsolationLevel, TopicPartition

P = TopicPartition("orders", 0)


def member(name: str, *partitions: TopicPartition, client: str = "worker") -> GroupMember:
    """A member of this id."""
    return GroupMember(member_id=name, client_id=client, host="10.0.0.1", partitions=partitions)


def group(*members: GroupMember, state: str = "Stable") -> Group:
    """A group of these members."""
    return Group(group_id="g", state=state, protocol="classic", members=members)


@pytest.mark.parametrize(
    ("committed", "bounds", "lag", "note"),
    [
        (7, LogBounds(0, 10), 3, ""),
        (10, LogBounds(0, 10), 0, ""),
        (None, LogBounds(0, 10), None, "nothing committed"),
        (None, LogBounds(10, 10), 0, "nothing committed"),
        (2, LogBounds(5, 10), 5, "3 offsets are gone: the log begins at 5"),
        (12, LogBounds(0, 10), 0, "committed past the end"),
        (7, LogBounds(fault="there is no such partition"), None, "there is no such partition"),
    ],
)
def test_the_lag_of_a_partition(
    committed: int | None, bounds: LogBounds, lag: int | None, note: str
) -> None:
    """It is what is left to read of the log, and what is unusual is said beside it."""
    offsets = {} if committed is None else {P: committed}
    found = compute_lag(
        group(member("a", P)), IsolationLevel.READ_COMMITTED, [P], offsets, {P: bounds}
    )
    (one,) = found.partitions
    assert (one.lag, one.note) == (lag, note)
    assert (found.total, found.unknown) == (lag or 0, lag is None)
    assert found.as_json()["partitions"][0]["note"] == (note or None)


def test_owners_and_members_without_partitions() -> None:
    """A partition has its owner, and members that own nothing are listed apart."""
    busy, idle = member("a", P), member("b")
    found = compute_lag(
        group(busy, idle), IsolationLevel.READ_UNCOMMITTED, [P], {}, {P: LogBounds(0, 1)}
    )
    assert found.partitions[0].owner == busy
    assert found.idle == (idle,)


def test_clients_that_share_a_name() -> None:
    """Members are distinguished by their ids if their clients and hosts are equal."""
    found = owner_names([member("a"), member("b"), member("c", client="other")])
    assert found == {"a": "a at 10.0.0.1", "b": "b at 10.0.0.1", "c": "other at 10.0.0.1"}


@pytest.mark.parametrize(
    ("state", "live"),
    [("Empty", False), ("Dead", False), ("Stable", True), ("Unknown", True)],
)
def test_a_group_is_live_unless_it_is_known_to_be_empty(state: str, live: bool) -> None:
    """A state that librdkafka has no name for is one of a group with members."""
    assert group(state=state).live is live


def test_all_partitions_of_a_topic_count() -> None:
    """Also those without owner and commit, and one that is gone; but of no other topic."""
    gone = TopicPartition("gone", 5)
    assert partitions_to_read({P, gone}, {"orders": 2, "other": 3}) == {
        P,
        TopicPartition("orders", 1),
        gone,
    }


def test_no_partitions_are_explained() -> None:
    """A group that rebalances and has committed nothing is not shown as one without lag."""
    empty = compute_lag(
        group(state="PreparingRebalance"), IsolationLevel.READ_UNCOMMITTED, [], {}, {}
    )
    shown = Console(file=io.StringIO(), width=200)
    with shown.capture() as printed:
        print_lags(shown, [empty])
    assert "Group g: PreparingRebalance, no members, lag unknown\nNo partitions: nothing is" in (
        printed.get()
    )
    assert "in the state PreparingRebalance" in empty.note
    assert empty.as_json()["note"] == empty.note
