"""The data of a group and its small operations."""

from __future__ import annotations

import pytest

from kgroup.broker.groups import group as group_module
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.members import ClassicGroupMember, Parked
from kgroup.broker.groups.requests import Protocol
from kgroup.broker.groups.states import STABLE
from tests.broker.groups.harness import subscription


def member(member_id: str, *protocols: str, instance: str | None = None) -> ClassicGroupMember:
    """A member that subscribes to a topic of its own name."""
    return ClassicGroupMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="h",
        rebalance_timeout=1.0,
        session_timeout=1.0,
        protocols=tuple(Protocol(name, subscription(member_id)) for name in protocols),
    )


def test_first_member_leads_and_sets_the_type() -> None:
    """If the leader leaves, the oldest other member leads; the last one has no successor."""
    group = ClassicGroup("g")
    a, b = member("a", "range"), member("b", "range")
    group.add(a, "consumer")
    group.add(b, "consumer")
    assert (group.leader, group.protocol_type) == ("a", "consumer")
    assert [group.remove("a"), group.leader] == [a, "b"]
    assert [group.remove("b"), group.leader] == [b, None]
    assert group.remove("b") is None


def test_joins_are_counted_through_parking_and_removal() -> None:
    """A parked join counts once, however often it is repeated, until its member is removed."""
    group = ClassicGroup("g")
    a, b = member("a", "range"), member("b", "range")
    group.add(a, "consumer")
    group.add(b, "consumer")
    assert group.park_join(a, Parked(1)) is None
    assert group.park_join(a, Parked(2)) == Parked(1)
    assert group.parked_joins == 1
    waits = [group.all_joined]
    group.park_join(b, Parked(3))
    waits.append(group.all_joined)
    group.pending["c"] = None
    waits.append(group.all_joined)
    assert waits == [False, True, False]
    group.remove("c")
    group.remove("b")
    assert group.parked_joins == 1
    assert group.unpark_join(a) == Parked(2)
    assert group.unpark_join(a) is None
    assert group.parked_joins == 0


def test_replaced_member_keeps_place_and_work() -> None:
    """A static member's new id leads if the old one led, and has its assignment."""
    group = ClassicGroup("g")
    old = member("a", "range", instance="i")
    old.assignment = b"work"
    group.add(old, "consumer")
    new = group.replace("i", "b")
    assert group.leader == group.member_of_instance("i") == "b"
    assert group.instance("i") is new
    assert new.assignment == b"work"
    assert list(group.members) == ["b"]


def test_election_among_common_protocols() -> None:
    """Only a protocol that all support can win; an election changes nothing."""
    group = ClassicGroup("g")
    a, b = member("a", "x", "range", "roundrobin"), member("b", "roundrobin", "range")
    group.add(a, "consumer")
    group.add(b, "consumer")
    assert group.elect_protocol() == "range"
    turned = member("a", "roundrobin", "range").protocols
    assert group.protocol_if(a, turned) == "roundrobin"
    assert group.elect_protocol() == "range"


def test_support_depends_on_who_is_there() -> None:
    """An Empty group accepts any type and protocol; others must match the members'."""
    group = ClassicGroup("g")
    some = member("x", "range", "new").protocols
    assert group.supports("anything", some)
    assert not group.supports("anything", ())
    assert not group.supports("", some)
    group.add(member("a", "range"), "consumer")
    group.state = STABLE
    assert group.supports("consumer", some)
    assert not group.supports("connect", some)
    assert not group.supports("consumer", some[1:])


def test_protocol_that_a_client_names_twice_is_not_supported() -> None:
    """An empty group refuses such a client too: no protocol could ever be elected."""
    group = ClassicGroup("g")
    twice = (Protocol("range", b"1"), Protocol("range", b"2"))
    assert not group.supports("consumer", twice)
    assert group.supports("consumer", (*twice, Protocol("roundrobin", b"")))


def test_subscribed_topics() -> None:
    """They are known after a join of consumers, unknown for other types or without a protocol."""
    group = ClassicGroup("g")
    assert group.read_topics() is None
    group.add(member("a", "range"), "consumer")
    assert group.read_topics() is None
    group.protocol_name = "range"
    group.add(member("b", "range"), "consumer")
    assert group.read_topics() == frozenset({"a", "b"})
    group.protocol_type = "connect"
    assert group.read_topics() is None


def test_more_topics_than_are_read_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all members count together; members that send the same bytes count once."""
    monkeypatch.setattr(group_module, "MOST_TOPICS", 2)
    group = ClassicGroup("g")
    for name in ("a", "a2", "b"):
        one = member(name, "range")
        one.protocols = (Protocol("range", subscription(name[0])),)
        group.add(one, "consumer")
    group.protocol_name = "range"
    assert group.read_topics() == frozenset({"a", "b"})
    group.add(member("c", "range"), "consumer")
    assert group.read_topics() is None


def test_selected_protocol_needs_a_completed_join() -> None:
    """Before that, the error names the group."""
    with pytest.raises(RuntimeError, match="'g' has no protocol"):
        _ = ClassicGroup("g").selected
