"""Invariant 1: an assignment is disjoint and whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import JoinGroup
from kgroup.events import Assigned
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import (
    GroupChanged,
    Judged,
    Quiet,
    Settled,
    Told,
    TopicChanged,
)
from kgroup.types import TopicPartition
from kgroup.wire.consumer_protocol import decode_subscription

_WATCHED: float = 60.0
"""Seconds beside the watch interval in which a calm group takes new partitions in."""
_COOPERATIVE: Final = frozenset({"cooperative-sticky"})


@final
class Assignments(Check):
    """Looks at every assignment that a coordinator has, and at what members are told of it.

    A cooperative assignor first gives what changes owners to no member (KIP-429). Such a partition
    is among those that a member's Join names as owned. As a rule that member had it in the
    generation before; a member that heard nothing of a generation, because the next rebalance came
    before its Sync, still names what it had two or more generations ago.

    The leader computes from what it saw after its Join was answered, so a partition that was
    added later may be missing, until the leader's watcher has had its time; and one that was
    deleted later may be among what it gives.
    """

    number: ClassVar[int] = 1
    says: ClassVar[str] = (
        "Within a coordinator's incarnation and a generation no partition has two owners, every"
        " partition of the subscribed topics has one (but for what a cooperative"
        " owner still names in its Join and has to give up), and members are told of just their"
        " own."
    )

    _added: dict[TopicPartition, float]
    _removed: dict[TopicPartition, float]
    _calm_since = 0.0
    _claims: dict[tuple[str, str], frozenset[TopicPartition]]
    """By group and instance id, or member id, what the member's last Join named as owned."""
    _given_up: dict[str, tuple[int, frozenset[TopicPartition]]]
    """By group, its generation and what members named as owned when that was assigned."""

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        self._added = {}
        self._removed = {}
        self._claims = {}
        self._given_up = {}
        return {
            TopicChanged: self._topic_changed,
            GroupChanged: self._changed,
            "join_group": self._joining,
            Assigned: self._told,
            Quiet: self._quiet,
            Settled: self._settled,
        }

    def _topic_changed(self, fact: TopicChanged) -> None:
        for number in range(fact.partitions):
            self._added.setdefault(TopicPartition(fact.topic, number), fact.at)
        for partition in [one for one in self._added if one.topic == fact.topic]:
            if partition.partition >= fact.partitions:
                del self._added[partition]
                self._removed[partition] = fact.at

    def _changed(self, fact: GroupChanged) -> None:
        if not fact.assigned:
            return
        group = self.views.groups[fact.group_id]
        known_at = group.completed.get(fact.generation_id, fact.at)
        owners: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for member in fact.members:
            for partition in member.assignment:
                owners[partition].append(member.member_id)
        for partition, names in sorted(owners.items()):
            if len(names) > 1:
                self.accuse(
                    fact.at,
                    f"{partition} has {len(names)} owners in generation {fact.generation_id}:"
                    f" {', '.join(names)}",
                )
            gone_at = self._removed.get(partition, 0.0)
            if partition not in self._added and gone_at < known_at:
                self.accuse(
                    fact.at,
                    f"{partition}, which does not exist, was given to {names[0]} in generation"
                    f" {fact.generation_id}",
                )
        self._look_for_missing(fact, fact.at, known_at, self._moving(fact))

    def _joining(self, fact: Judged) -> None:
        request = fact.request
        assert isinstance(request, JoinGroup)
        member = request.group_instance_id or request.member_id
        for protocol in request.protocols:
            if protocol.name in _COOPERATIVE:
                subscription = decode_subscription(protocol.metadata, member_id=member)
                self._claims[request.group_id, member] = frozenset(subscription.owned)

    def _moving(self, group: GroupChanged) -> frozenset[TopicPartition]:
        """What a cooperative group's members have to give up before another one can have it.

        It is what they named when the generation was assigned: a static member that restarts
        within the generation joins it without naming anything.
        """
        if group.assignor not in _COOPERATIVE:
            return frozenset()
        generation_id, moving = self._given_up.get(group.group_id, (-1, frozenset()))
        if generation_id != group.generation_id:
            names = (member.group_instance_id or member.member_id for member in group.members)
            nothing = frozenset[TopicPartition]()
            moving = nothing.union(
                *(self._claims.get((group.group_id, name), nothing) for name in names)
            )
            self._given_up[group.group_id] = group.generation_id, moving
        return moving

    def _look_for_missing(
        self,
        group: GroupChanged,
        at: float,
        known_at: float,
        moving: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Accuse for every partition that was there before ``known_at`` and has no owner."""
        owned = {partition for member in group.members for partition in member.assignment} | moving
        for partition, added in self._added.items():
            if partition.topic in group.topics and added < known_at and partition not in owned:
                self.accuse(
                    at,
                    f"{partition}, there since {added:.3f} s, has no owner in generation"
                    f" {group.generation_id}",
                )

    def _told(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Assigned)
        group = self.views.groups[event.group_id]
        given = group.assignments.get((event.generation_id, event.member_id))
        told = frozenset(event.assignment)
        if given is None:
            self.accuse(
                fact.at,
                f"{fact.process} was told of an assignment in generation {event.generation_id},"
                " in which no coordinator had one for it",
            )
        elif given != told:
            wrong = ", ".join(map(str, sorted(given ^ told)))
            self.accuse(
                fact.at,
                f"{fact.process} was told of another assignment in generation"
                f" {event.generation_id} than the coordinator has for it: they differ in {wrong}",
            )

    def _quiet(self, fact: Quiet) -> None:
        self._calm_since = fact.at

    def _settled(self, fact: Settled) -> None:
        now = self.views.groups[fact.group_id].now
        if now is None or not now.assigned:
            return
        known_at = fact.at - self.views.programs.watch_interval - _WATCHED
        if self._calm_since < known_at:
            self._look_for_missing(now, fact.at, known_at)
