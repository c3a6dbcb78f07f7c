"""Invariant 1: an assignment is disjoint and whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar, Final, final

import attrs

from kgroup.events import Assigned
from kgroup.model import TopicPartition
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.facts import GroupChanged, Quiet, Settled, Told, TopicChanged

_WATCHED: float = 60.0
"""Seconds beside the watch interval in which a calm group takes new partitions in."""
_COOPERATIVE: Final = frozenset({"cooperative-sticky"})


@final
@attrs.define
class _Owned:
    """What had an owner in a group's last two generations."""

    generation_id: int = -1
    now: frozenset[TopicPartition] = frozenset()
    before: frozenset[TopicPartition] = frozenset()

    def owned_before(
        self, generation_id: int, owned: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """What had an owner in the generation before this one, of which it notes the owned."""
        if generation_id != self.generation_id:
            self.generation_id, self.before = generation_id, self.now
        self.now = owned
        return self.before


@final
class Assignments(Check):
    """Looks at every assignment that a coordinator has, and at what members are told of it.

    A cooperative assignor first gives what changes owners to nobody (KIP-429): such a partition
    had an owner in the generation before.

    The leader computes from what it saw after its Join was answered, so a partition that was
    added later may be missing, until the leader's watcher has had its time; and one that was
    deleted later may be among what it gives.
    """

    number: ClassVar[int] = 1
    says: ClassVar[str] = (
        "Within a coordinator's incarnation and a generation no partition has two owners, every"
        " partition of the subscribed topics has one (but for one generation while a cooperative"
        " owner gives it up), and members are told of just their own."
    )

    _added: dict[TopicPartition, float]
    _removed: dict[TopicPartition, float]
    _calm_since = 0.0
    _owned: defaultdict[str, _Owned]

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        self._added = {}
        self._removed = {}
        self._owned = defaultdict(_Owned)
        return {
            TopicChanged: self._topic_changed,
            GroupChanged: self._changed,
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
        before = self._owned[fact.group_id].owned_before(fact.generation_id, frozenset(owners))
        moving = before if fact.assignor in _COOPERATIVE else frozenset[TopicPartition]()
        self._look_for_missing(fact, fact.at, known_at, moving)

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
