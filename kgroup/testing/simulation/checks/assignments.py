"""Invariant 1: an assignment is disjoint and complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import JoinGroup
from kgroup.events import Assigned
from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import (
    EventReported,
    FinalGroupState,
    GroupChanged,
    RequestHandled,
    TopicChanged,
    WorkloadEnded,
)
from kgroup.types import TopicPartition
from kgroup.wire.consumer_protocol import decode_subscription

_SLACK: float = 60.0
"""Seconds beside the watch interval in which an undisturbed group assigns new partitions."""
_COOPERATIVE: Final = frozenset({"cooperative-sticky"})


@final
class Assignments(Check):
    """Checks every assignment that a coordinator has, and what members receive of it.

    A cooperative assignor first assigns a partition that changes owners to no member (KIP-429).
    Such a partition is among those that a member's JoinGroup lists as owned. As a rule that member
    had it in the previous generation. A member that missed a generation, because the next
    rebalance came before its SyncGroup, still lists what it had two or more generations ago.

    The leader assigns by the metadata that it fetched after its JoinGroup was answered. A partition
    that was added later may be missing until the leader's watcher has found it; one that was
    deleted later may still be assigned.
    """

    number: ClassVar[int] = 1
    invariant: ClassVar[str] = (
        "Within a generation of one coordinator incarnation no partition has two owners. Every "
        "partition of the subscribed topics has an owner, except one that a cooperative member "
        "still lists as owned in its JoinGroup and has to give up first. Each member receives "
        "exactly its own partitions."
    )

    _added: dict[TopicPartition, float]
    _removed: dict[TopicPartition, float]
    _faults_over_at = 0.0
    _claims: dict[tuple[str, str], frozenset[TopicPartition]]
    """By group and instance id or member id: what the member's last JoinGroup listed as owned."""
    _given_up: dict[str, tuple[int, frozenset[TopicPartition]]]
    """By group: its generation, and what members listed as owned when that was assigned."""

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        self._added = {}
        self._removed = {}
        self._claims = {}
        self._given_up = {}
        return {
            TopicChanged: self._topic_changed,
            GroupChanged: self._changed,
            "join_group": self._joining,
            Assigned: self._assigned,
            WorkloadEnded: self._workload_ended,
            FinalGroupState: self._at_the_end,
        }

    def _topic_changed(self, entry: TopicChanged) -> None:
        for number in range(entry.partitions):
            self._added.setdefault(TopicPartition(entry.topic, number), entry.at)
        for partition in [one for one in self._added if one.topic == entry.topic]:
            if partition.partition >= entry.partitions:
                del self._added[partition]
                self._removed[partition] = entry.at

    def _changed(self, entry: GroupChanged) -> None:
        if not entry.assigned:
            return
        group = self.views.groups[entry.group_id]
        known_at = group.completed.get(entry.generation_id, entry.at)
        owners: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for member in entry.members:
            for partition in member.assignment:
                owners[partition].append(member.member_id)
        for partition, names in sorted(owners.items()):
            if len(names) > 1:
                self.report(
                    entry.at,
                    f"{partition} has {len(names)} owners in generation {entry.generation_id}:"
                    f" {', '.join(names)}",
                    partition=partition,
                )
            gone_at = self._removed.get(partition, 0.0)
            if partition not in self._added and gone_at < known_at:
                self.report(
                    entry.at,
                    f"{partition}, which does not exist, was assigned to {names[0]} in generation"
                    f" {entry.generation_id}",
                )
        self._report_missing(entry, entry.at, known_at, self._moving(entry))

    def _joining(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, JoinGroup)
        member = request.group_instance_id or request.member_id
        for protocol in request.protocols:
            if protocol.name in _COOPERATIVE:
                subscription = decode_subscription(protocol.metadata, member_id=member)
                self._claims[request.group_id, member] = frozenset(subscription.owned)

    def _moving(self, group: GroupChanged) -> frozenset[TopicPartition]:
        """The partitions that members of a cooperative group have to give up first.

        They are what members listed as owned when the generation was assigned: a static member
        that restarts within the generation joins it without listing anything.
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

    def _report_missing(
        self,
        group: GroupChanged,
        at: float,
        known_at: float,
        moving: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Report every partition that existed before ``known_at`` and has no owner."""
        owned = {partition for member in group.members for partition in member.assignment} | moving
        for partition, added in self._added.items():
            if partition.topic in group.topics and added < known_at and partition not in owned:
                self.report(
                    at,
                    f"{partition}, which exists since {added:.3f} s, has no owner in generation"
                    f" {group.generation_id}",
                    partition=partition,
                )

    def _assigned(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Assigned)
        group = self.views.groups[event.group_id]
        given = group.assignments.get((event.generation_id, event.member_id))
        received = frozenset(event.assignment)
        if given is None:
            self.report(
                entry.at,
                f"{entry.process} received an assignment in generation {event.generation_id}, in"
                " which no coordinator had one for it",
            )
        elif given != received:
            wrong = ", ".join(map(str, sorted(given ^ received)))
            self.report(
                entry.at,
                f"{entry.process} received another assignment in generation"
                f" {event.generation_id} than the coordinator has for it; they differ in {wrong}",
            )

    def _workload_ended(self, entry: WorkloadEnded) -> None:
        self._faults_over_at = entry.at

    def _at_the_end(self, entry: FinalGroupState) -> None:
        now = self.views.groups[entry.group_id].now
        if now is None or not now.assigned:
            return
        known_at = entry.at - self.views.programs.watch_interval - _SLACK
        if self._faults_over_at < known_at:
            self._report_missing(now, entry.at, known_at)
