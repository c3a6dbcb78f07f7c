"""What ``kgroup groups`` prints for people."""

from __future__ import annotations

import pytest

from kgroup.cli.groups.report import print_changes, print_groups
from kgroup.cli.groups.reset import Change
from kgroup.cli.groups.values import Group, GroupMember
from kgroup.cli.tables import console
from kgroup.types import TopicPartition


def test_what_members_will_own(capsys: pytest.CaptureFixture[str]) -> None:
    """A member that will own nothing is shown in another way than one that keeps what it owns."""
    one, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    members = tuple(
        GroupMember(member_id=name, client_id="c", host="h", partitions=owned, target=target)
        for name, owned, target in (
            ("keeps", (one,), (one,)),
            ("loses", (other,), ()),
            ("gains", (), (other,)),
        )
    )
    group = Group(group_id="g", state="Unknown", protocol="consumer", members=members)
    print_groups(console(), [group])
    cells = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert {line[2]: line[4:] for line in cells} == {
        "keeps": ["orders", "0", "-"],
        "loses": ["orders", "1", "nothing"],
        "gains": ["-", "orders", "1"],
    }


def test_a_reset_that_is_not_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line counts the partitions that were to be set, and not those that stay."""
    one, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    changes = [
        Change(partition=one, committed=4, target=10),
        Change(partition=other, committed=4, target=None, note="stays: there is no such partition"),
    ]
    print_changes(console(), "g", changes, {one: "no answer"}, executed=True)
    assert capsys.readouterr().out.startswith("Group g: not confirmed for 1 of 1 partitions\n")
