"""Groups in JSON: how each field is read, and which errors name what is wrong."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from kgroup.cli.assign.group_input import LONGEST_INPUT, WrongInputError, read_group, read_json
from kgroup.types import Claim, MemberSubscription, TopicInfo, TopicPartition
from tests.cli.assign.groups import ORDERS, member, owning

O1 = TopicPartition("orders", 1)


def test_every_field_is_read() -> None:
    """The topics and members of a line are the input of the assignor."""
    racks = {"0": ["east", "west"], "1": []}
    full = member(
        "m",
        "orders",
        group_instance_id="i",
        owned=[["orders", 1]],
        generation_id=7,
        rack_id="east",
        user_data_b64=base64.b64encode(b"data").decode(),
        user_data=None,
        version=2,
    )
    group = read_group(
        {"topics": {"orders": {"partitions": 2, "racks": racks}}, "members": [full], "case": 1}
    )
    assert group.topics == {
        "orders": TopicInfo(name="orders", partitions=2, racks=(("east", "west"), ()))
    }
    assert group.members == (
        MemberSubscription(
            member_id="m",
            group_instance_id="i",
            topics=("orders",),
            owned=(O1,),
            generation_id=7,
            rack_id="east",
            user_data=b"data",
            version=2,
        ),
    )
    assert group.claims == {"m": Claim((O1,), 7)}


def test_most_fields_may_be_left_out() -> None:
    """A member needs only an id and topics; members are sorted by id."""
    group = read_group({"topics": ORDERS, "members": [member("b", "orders"), member("a")]})
    assert group.members == (
        MemberSubscription(member_id="a"),
        MemberSubscription(member_id="b", topics=("orders",)),
    )
    assert group.claims == {}


def test_a_sticky_member_owns_what_its_user_data_says() -> None:
    """A recorded eager member reports its owned partitions only in its user data."""
    eager = member("a", "orders", user_data={"owned": [["orders", 1]], "generation": None})
    group = read_group({"topics": ORDERS, "members": [eager]})
    assert group.claims == {"a": Claim((O1,), -1)}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"{", "it is not JSON: "),
        (b'"\xff"', "it is not JSON: "),
        pytest.param(b"[" * 100_000, "nested too deeply", id="deep"),
        (b"[1]", "it is an array of 1, not an object"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": [1e999]}', 'the number "1e999" is too large for a float'),
        (b'{"a": -1e999}', 'the number "-1e999" is too large for a float'),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "it is not JSON: ", id="digits"),
        pytest.param(b" " * (LONGEST_INPUT + 1), "it is longer than", id="long"),
        (b'{"b": {"a": 1, "a": 2}}', 'the name "a" occurs twice in one object'),
    ],
)
def test_text_that_is_no_object_is_refused(text: bytes, fault: str) -> None:
    """Text that is not a JSON object, or that has a name twice, is one error."""
    with pytest.raises(WrongInputError, match=re.escape(fault)):
        read_json(text)


@pytest.mark.parametrize("name", ["topics", "members"])
def test_topics_and_members_are_required(name: str) -> None:
    """A group without topics or members has the field all the same, and it is empty."""
    fields: dict[str, Any] = {"topics": {}, "members": []}
    read_group(fields)
    del fields[name]
    with pytest.raises(WrongInputError, match=f"it has no '{name}'"):
        read_group(fields)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"topics": []}, "topics is an array of 0, not an object"),
        ({"topics": {"t": 3}}, "topics.t is 3, not an object"),
        ({"topics": {"t": {}}}, "topics.t has no 'partitions'"),
        ({"topics": {"t": {"partitions": -1}}}, "topics.t.partitions is -1, not a whole number"),
        ({"topics": {"t": {"partitions": True}}}, "topics.t.partitions is true, not a whole"),
        (
            {"topics": {t: {"partitions": 2**31 - 1} for t in "ab"}},
            "topics have 4294967294 partitions",
        ),
        (
            {"topics": {"t": {"partitions": 1, "racks": {}}}},
            "topics.t.racks has 0 partitions, not 1",
        ),
        (
            {"topics": {"t": {"partitions": 1, "racks": {"1": []}}}},
            "topics.t.racks has no '0'",
        ),
        (
            {"topics": {"t": {"partitions": 1, "racks": {"0": [None]}}}},
            "topics.t.racks.0[0] is null, not a string",
        ),
        ({"members": {}}, "members is an object of 0, not an array"),
        ({"members": ["a"]}, 'members[0] is "a", not an object'),
        ({"members": [{"topics": []}]}, "members[0] has no 'member_id'"),
        ({"members": [{"member_id": "a"}]}, "members[0] has no 'topics'"),
        ({"members": [member("a"), member("a")]}, "members[1].member_id 'a' occurs twice"),
        ({"members": [member("\ud800")]}, "cannot be encoded in UTF-8"),
        ({"members": [member("a", "t" * 40_000)]}, "more than 32767"),
        ({"members": [member("a", owned=[["t"]])]}, "members[0].owned[0] is an array of 1, not"),
        ({"members": [member("a", owned=[["t", -1]])]}, "members[0].owned[0][1] is -1, not"),
        ({"members": [member("a", owned=[[0, 0]])]}, "members[0].owned[0][0] is 0, not a string"),
        ({"members": [member("a", version=4)]}, "members[0].version is 4, not"),
        ({"members": [member("a", generation_id=2**31)]}, "members[0].generation_id is 2147483648"),
        ({"members": [member("a", user_data_b64="?")]}, "members[0].user_data_b64 is not base64"),
        (
            {"members": [member("a", user_data={"owned": 3})]},
            "members[0].user_data.owned is 3, not an array",
        ),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], fault: str) -> None:
    """Each error says where the field is, what its value is, and what is expected."""
    with pytest.raises(WrongInputError, match=re.escape(fault)):
        read_group({"topics": {}, "members": [], **fields})


def test_a_file_is_read_as_a_line_is() -> None:
    """A file gives the same group as the line with the same text."""
    fields = {"topics": ORDERS, "members": [owning("a", "orders", 0, 1)]}
    assert read_group(read_json(json.dumps(fields))) == read_group(fields)
