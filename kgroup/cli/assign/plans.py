"""What an assignor makes of a group, and what it costs: moves, imbalance, racks missed.

A cooperative assignor first gives to nobody what changes owners. Its plan is followed to its end:
members give up what they were not assigned and join again, as they would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Self, final

import attrs

from kgroup.assignors import all_cooperative, user_data_of
from kgroup.cli.assign.fields import GroupInput
from kgroup.cli.assign.lines import answer, subscribed
from kgroup.interfaces import Assignor
from kgroup.types import Claim, MemberAssignments, MemberSubscription, TopicPartition

MOST_ROUNDS: Final = 10
"""Rounds after which an assignor is not asked again; Kafka's takes two."""


@final
@attrs.frozen
class Spread:
    """How many partitions the one has that has least, and the one that has most."""

    least: int
    most: int

    @classmethod
    def of(cls, counts: Iterable[int]) -> Self:
        """The spread of some counts; of none it is nothing."""
        known = list(counts)
        return cls(min(known, default=0), max(known, default=0))

    @property
    def difference(self) -> int:
        """Most minus least."""
        return self.most - self.least


@final
@attrs.frozen
class Part:
    """One member's part of a plan.

    Attributes:
        partitions: what it gets.
        gained: how many of them it did not own.
        lost: how many that it owned it does not get.
    """

    partitions: tuple[TopicPartition, ...]
    gained: int
    lost: int


@final
@attrs.frozen(kw_only=True)
class AssignorResult:
    """What one assignor makes of a group.

    Attributes:
        assignor: its name.
        parts: by member id.
        rounds: how often the group joins until nothing moves any more.
        owned: partitions that exist and that somebody owned.
        moved: those of them that no member keeps that owned them.
        withheld: partitions that only a later round gives out, when their owners gave them up.
        unassigned: partitions that somebody subscribes to and nobody gets.
        by_member: over members that subscribe to a partition at all.
        by_topic: for each topic that has subscribers, over these.
        rack_mismatched: partitions that have racks, none of them that of their member.
    """

    assignor: str
    parts: Mapping[str, Part]
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
        """The topic of the widest spread, by name the first of several; None where none is."""
        if not self.by_topic:
            return None
        return min(self.by_topic.items(), key=lambda item: (-item[1].difference, item[0]))


def plan(assignor: Assignor, group: GroupInput) -> AssignorResult:
    """Ask an assignor, and see what comes of it.

    Raises:
        InvalidAssignmentError: no group may follow what the assignor answered.
        Exception: whatever a custom assignor raises.
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

    What they own is told as the assignor's members tell it. The user data of an assignor that has
    none of its own to send is left as it is.
    """

    def told(member: MemberSubscription) -> MemberSubscription:
        claim = group.claims.get(member.member_id)
        if hasattr(assignor, "user_data"):
            member = attrs.evolve(member, user_data=user_data_of(assignor, claim))
        if claim is None or not all_cooperative([assignor]):
            return attrs.evolve(member, owned=(), generation_id=-1)
        return attrs.evolve(member, owned=claim.owned, generation_id=claim.generation_id)

    return attrs.evolve(group, members=tuple(map(told, group.members)))


def _misses_something(group: GroupInput, given: MemberAssignments) -> bool:
    return any(
        not set(claim.owned) <= set(given.get(member_id, ()))
        for member_id, claim in group.claims.items()
    )


def _claims(group: GroupInput, given: MemberAssignments) -> dict[str, Claim]:
    """What members own in the round after, as members of one generation."""
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
    parts: dict[str, Part] = {}
    kept = missed = 0
    in_topic: dict[str, Counter[str]] = {name: Counter() for name in topics}
    for member in group.members:
        partitions = tuple(given[member.member_id])
        before = owned.get(member.member_id, set())
        stay = len(before.intersection(partitions))
        kept += stay
        parts[member.member_id] = Part(partitions, len(partitions) - stay, len(before) - stay)
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
