"""Groups are described, listed and deleted."""

from __future__ import annotations

import pytest

from kgroup.broker.groups.requests import DeleteGroups, DescribeGroups, ListGroups
from kgroup.broker.groups.responses import (
    DeletedGroup,
    DescribedGroup,
    DescribedMember,
    GroupsDeleted,
    GroupsDescribed,
    GroupsListed,
    ListedGroup,
)
from kgroup.broker.groups.states import DEAD
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import Harness, subscription


def described(harness: Harness, group_id: str = "g", version: int = 6) -> DescribedGroup:
    """A DescribeGroups of one group."""
    request = DescribeGroups(version=version, group_ids=(group_id,))
    return harness.request(request, GroupsDescribed).groups[0]


def test_absent_group_is_dead() -> None:
    """From v6 on, an absent group has an error code too."""
    assert described(Harness(), version=5) == DescribedGroup(group_id="g", state="Dead")
    response = described(Harness())
    assert (response.error, response.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert response.error_message == "Group g not found."


def test_description_follows_the_group() -> None:
    """Protocol and metadata are shown in Stable only, assignments until the next ones."""
    harness = Harness()
    m1 = harness.client("m1", instance="i1")
    harness.form(m1)
    member = DescribedMember(
        member_id=m1.id,
        group_instance_id="i1",
        client_id="m1",
        client_host="/127.0.0.1",
        metadata=subscription("t1"),
        assignment=b"m1",
    )
    assert described(harness) == DescribedGroup(
        group_id="g",
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        members=(member,),
    )
    m2 = harness.client("m2")
    m2.enlist()
    m2.join()
    response = described(harness)
    assert (response.state, response.protocol_name) == ("PreparingRebalance", "")
    assert [(one.metadata, one.assignment) for one in response.members] == [
        (b"", b"m1"),
        (b"", b""),
    ]
    m1.leave(m2)
    assert described(harness) == DescribedGroup(
        group_id="g", state="Empty", protocol_type="consumer"
    )


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), {"empty", "simple", "stable"}),
        (("Stable",), (), {"stable"}),
        ((" stable\t",), (), {"stable"}),
        ((), (" classic",), set()),
        (("empty", "DEAD"), (), {"empty", "simple"}),
        ((), ("Classic",), {"empty", "simple", "stable"}),
        (("stable",), ("consumer",), set()),
        ((), ("nonsense",), set()),
    ],
)
def test_list_filters(states: tuple[str, ...], types: tuple[str, ...], expected: set[str]) -> None:
    """Filters ignore case, states also white space; every group here has the type classic."""
    harness = Harness()
    harness.form(harness.client("m1", group_id="stable"))
    leaver = harness.client("m2", group_id="empty")
    harness.form(leaver)
    leaver.leave()
    harness.client("tool", group_id="simple").commit()
    groups = harness.request(ListGroups(states=states, types=types), GroupsListed).groups
    assert {group.group_id for group in groups} == expected
    simple = ListedGroup(group_id="simple", protocol_type="", state="Empty", type="classic")
    assert all(group == simple for group in groups if group.group_id == "simple")


def test_only_empty_groups_are_deleted() -> None:
    """Absent: 69; with members: 68; an Empty one is deleted with offsets and ids, once."""
    harness = Harness()
    m1 = harness.client("m1", group_id="live")
    harness.form(m1)
    tool = harness.client("tool", group_id="empty")
    tool.commit()
    tool.commit_in_transaction("t1-1")
    pending = harness.client("m2", group_id="empty")
    pending.enlist()
    request = DeleteGroups(group_ids=("absent", "live", "empty", "empty", ""))
    assert harness.request(request, GroupsDeleted).groups == (
        DeletedGroup(group_id="absent", error=ErrorCode.GROUP_ID_NOT_FOUND),
        DeletedGroup(group_id="live", error=ErrorCode.NON_EMPTY_GROUP),
        DeletedGroup(group_id="empty"),
        DeletedGroup(group_id="", error=ErrorCode.GROUP_ID_NOT_FOUND),
    )
    assert harness.state("empty") is DEAD
    harness.coordinator.complete_transaction(7, committed=True)
    tool.commit("t2-0")
    assert harness.fetch(group_id="empty") == {"t2-0": 1}
    assert pending.join_now().error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.sleep(100)


def test_filters_are_read_once_for_all_groups() -> None:
    """The cost of a list is its filters and its groups, not one times the other."""
    read: list[str] = []

    class Name(str):
        __slots__ = ()

        def lower(self) -> str:
            read.append(self)
            return str(self).lower()

        def strip(self, *_: object) -> str:
            read.append(self)
            return str(self).strip()

    harness = Harness()
    for number in range(10):
        harness.client("tool", group_id=f"g{number}").commit()
    request = ListGroups(states=(Name("empty"),), types=(Name("classic"),))
    harness.request(request, GroupsListed)
    assert len(read) == 2
