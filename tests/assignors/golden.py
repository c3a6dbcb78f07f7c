"""Recorded calls of Kafka's own assignors: the input, and the answer that ours must give too.

``tests/data/assignors.jsonl.gz`` has one call of a Java assignor of kafka-clients 4.3.0 a line.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any, Final, final

import attrs

from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

FILE: Final = Path(__file__).resolve().parents[1] / "data" / "assignors.jsonl.gz"

Sets = dict[str, frozenset[TopicPartition]]
"""For each member id its partitions, without an order."""


@final
@attrs.frozen(kw_only=True)
class Line:
    """One recorded call.

    Attributes:
        name: case and round.
        topics: the topics of the call.
        members: the members of the call, sorted by member id.
        answer: Java's answer; where the order of a hash map matters, Java read it in sorted order.
        exact: whether kgroup's answer must equal it. It need not where two members claim a
            partition and Java gives it to the one that it happens to read first.
        sizes: how many partitions members get, sorted, in each of Java's answers to this call.
    """

    name: str
    topics: dict[str, TopicInfo]
    members: tuple[MemberSubscription, ...]
    answer: Sets
    exact: bool
    sizes: frozenset[tuple[int, ...]]


def sets(assignments: dict[str, Any]) -> Sets:
    """An assignment as sets, because the order within its lists does not matter."""
    return {
        member: frozenset(TopicPartition(topic, number) for topic, number in partitions)
        for member, partitions in assignments.items()
    }


def golden(assignor: str) -> list[Line]:
    """All recorded calls of one assignor."""
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        calls = [json.loads(line) for line in file]
    return [_line(call) for call in calls if call["assignor"] == assignor]


def _line(call: dict[str, Any]) -> Line:
    members = [_member(member) for member in call["members"]]
    answer = sets(call["assignment"] if call["deterministic"] else call["if_sorted"])
    one = [sorted(map(len, answer.values()))]
    sizes = one if call["deterministic"] else call["variants"]["sizes"]
    return Line(
        name=f"{call['case']}, round {call['round']}",
        topics={name: _topic(name, topic) for name, topic in call["topics"].items()},
        members=tuple(sorted(members, key=lambda member: member.member_id)),
        answer=answer,
        exact=call.get("tie") != "claims",
        sizes=frozenset(map(tuple, sizes)),
    )


def _topic(name: str, topic: dict[str, Any]) -> TopicInfo:
    count = topic["partitions"]
    racks = topic.get("racks")
    of = () if racks is None else tuple(tuple(racks[str(number)]) for number in range(count))
    return TopicInfo(name=name, partitions=count, racks=of)


def _member(member: dict[str, Any]) -> MemberSubscription:
    user_data = member["user_data_b64"]
    generation_id = member["generation_id"]
    return MemberSubscription(
        member_id=member["member_id"],
        group_instance_id=member["group_instance_id"],
        topics=tuple(member["topics"]),
        user_data=None if user_data is None else base64.b64decode(user_data),
        owned=tuple(TopicPartition(topic, number) for topic, number in member["owned"]),
        generation_id=-1 if generation_id is None else generation_id,
        rack_id=member["rack_id"],
        version=member["version"],
    )
