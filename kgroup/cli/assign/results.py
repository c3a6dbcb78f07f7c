"""Evaluates an assignor on a group: the assignment, and its moves, imbalance and missed racks.

A cooperative assignor withholds partitions that change owners until their owners have revoked them.
So its rounds are followed to the end: members give up what they were not assigned, and join again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Self, final

import attrs

from kgroup.assignors import all_cooperative, user_data_of
from kgroup.cli.assign.group_input import GroupInput
from kgroup.cli.assign.lines import answer, subscribed
from kgroup.interfaces import Assignor
from kgroup.types import Claim, MemberAssignments, MemberSubscription, TopicPartition

MOST_ROUNDS: Final = 10
"""The most rounds that are followed; Kafka's cooperative-sticky assignor takes two."""


@final
@attrs.frozen
class Spread:
    """The lowest and the highest of some counts of partitions."""

    least: int
    most: int

    @classmethod
    def of(cls, counts: Iterable[int]) -> Self:
        """The spread of some counts; 0 to 0 if there are none."""
        known = list(counts)
        return cls(min(known, default=0), max(known, default=0))

    @property
    def difference(self) -> int:
        """Most minus least."""
        return self.most - self.least


@final
@attrs.frozen
class AssignedPart:
    """One member's part of an assignment.

    Attributes:
        partitions: the partitions that it gets.
        gained: how many of them it did not own before.
        lost: how many of those that it owned it does not get.
    """

    partitions: tuple[TopicPartition, ...]
    gained: int
    lost: int


@final
@attrs.frozen(kw_only=True)
class AssignorResult:
    """The result of one assignor for a group.

    Attributes:
        assignor: the assignor's name.
        parts: each member's part, by member id.
        rounds: how often the group joins until no partition moves any more.
        owned: existing partitions that a member owned before.
        moved: how many of these get another owner, or none.
        withheld: partitions that only a later round assigns, after their owners revoked them.
        unassigned: partitions to which a member subscribes and which no member gets.
        by_member: the spread over the members that subscribe to a partition at all.
        by_topic: for each topic that has subscribers, the spread over its subscribers.
        rack_mismatched: partitions with racks of which none is that of their member.
    """

    assignor: str
    parts: Mapping[str, AssignedPart]
    rounds: int
    owned: int
    moved: int
    withheld: int
    unassigned: int
    by_member: Spread
    by_topic: Mapping[str, Spread]
    rack_mismatched: int

    @property
    def widest(self) -> tuple[str, Spread] | None:
        """The topic with the widest spread, the first by name; None if there is no topic."""
        if not self.by_topic:
            return None
        return min(self.by_topic.items(), key=lambda item: (-item[1].difference, item[0]))


def evaluate(assignor: Assignor, group: GroupInput) -> AssignorResult:
    """Let an assignor divide a group's partitions, and measure the result.

    Raises:
        InvalidAssignmentError: the assignor returned an invalid assignment.
        Exception: raised by a custom assignor.
    """
    given = answer(assignor, joining(assignor, group))
    of_first, rounds = given, 1
    now = group
    while all_cooperative([assignor]) and rounds < MOST_ROUNDS and _misses_something(now, given):
        now = attrs.evolve(now, claims=_claims(now, given))
        given = answer(assignor, joining(assignor, now))
        rounds += 1
    return _measured(assignor.name, group, of_first, given, rounds)


def joining(assignor: Assignor, group: GroupInput) -> GroupInput:
    """The group as its leader would see it if all members offered this assignor.

    Owned partitions are put where members of this assignor report them: in the subscription or in
    the user data. If the assignor sends no user data of its own, the given one is kept.
    """

    def subscription(member: MemberSubscription) -> MemberSubscription:
        claim = group.claims.get(member.member_id)
        if hasattr(assignor, "user_data"):
            member = attrs.evolve(member, user_data=user_data_of(assignor, claim))
        if claim is None or not all_cooperative([assignor]):
            return attrs.evolve(member, owned=(), generation_id=-1)
        return attrs.evolve(member, owned=claim.owned, generation_id=claim.generation_id)

    return attrs.evolve(group, members=tuple(map(subscription, group.members)))


def _misses_something(group: GroupInput, given: MemberAssignments) -> bool:
    return any(
        not set(claim.owned) <= set(given.get(member_id, ()))
        for member_id, claim in group.claims.items()
    )


def _claims(group: GroupInput, given: MemberAssignments) -> dict[str, Claim]:
    """The partitions that members own in the next round, in one generation."""
    latest = max((claim.generation_id for claim in group.claims.values()), default=-1)
    return {
        member_id: Claim(tuple(partitions), latest + 1)
        for member_id, partitions in given.items()
        if partitions
    }


def _measured(
    name: str, group: GroupInput, of_first: MemberAssignments, given: MemberAssignments, rounds: int
) -> AssignorResult:
    topics = subscribed(group)
    owned = {
        member_id: {one for one in claim.owned if _exists(group, one)}
        for member_id, claim in group.claims.items()
    }
    everything = set[TopicPartition]().union(*owned.values())
    first = set[TopicPartition]().union(*of_first.values())
    parts: dict[str, AssignedPart] = {}
    kept = missed = 0
    in_topic: dict[str, Counter[str]] = {name: Counter() for name in topics}
    for member in group.members:
        partitions = tuple(given[member.member_id])
        before = owned.get(member.member_id, set())
        stay = len(before.intersection(partitions))
        kept += stay
        parts[member.member_id] = AssignedPart(
            partitions, len(partitions) - stay, len(before) - stay
        )
        for one in partitions:
            in_topic[one.topic][member.member_id] += 1
            racks = topics[one.topic].racks
            near = racks[one.partition] if racks else ()
            missed += bool(member.rack_id and near and member.rack_id not in near)
    subscribers = Counter(topic for member in group.members for topic in set(member.topics))
    total = sum(topic.partitions for topic in topics.values())
    return AssignorResult(
        assignor=name,
        parts=parts,
        rounds=rounds,
        owned=len(everything),
        moved=len(everything) - kept,
        withheld=len(set[TopicPartition]().union(*given.values()) - first),
        unassigned=total - sum(len(part.partitions) for part in parts.values()),
        by_member=Spread.of(
            len(parts[member.member_id].partitions)
            for member in group.members
            if any(topic in topics and topics[topic].partitions for topic in member.topics)
        ),
        by_topic={
            topic: Spread.of([*counts.values(), *([0] if len(counts) < subscribers[topic] else [])])
            for topic, counts in sorted(in_topic.items())
        },
        rack_mismatched=missed,
    )


def _exists(group: GroupInput, one: TopicPartition) -> bool:
    topic = group.topics.get(one.topic)
    return topic is not None and one.partition < topic.partitions
