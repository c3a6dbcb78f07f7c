"""Invariant 8: which records may be handed out again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.broker.groups.responses import OffsetsCommitted
from kgroup.error_codes import ErrorCode
from kgroup.events import GenerationDraining, GenerationEnded
from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.groups import PREPARING, STABLE, STALE
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.faults import (
    Crash,
    LeaderMoves,
    MorePartitions,
    PasswordChanges,
    RightRevoked,
    SecondProgram,
    SlowWork,
    Stop,
    TopicDeleted,
    UserRevoked,
)
from kgroup.testing.simulation.history import (
    EventReported,
    FaultBegan,
    FaultEnded,
    HandedOut,
    RequestHandled,
    SeekCalled,
    TopicChanged,
)
from kgroup.testing.simulation.logins import user_of
from kgroup.testing.simulation.plan import Plan
from kgroup.types import Cause, TopicPartition

_CLEAN_CAUSES: Final = frozenset(
    {
        Cause.REBALANCE,
        Cause.TASK_RETURNED,
        Cause.PARTITIONS_CHANGED,
        Cause.SUBSCRIPTION_CHANGED,
        Cause.CLOSED,
    }
)
"""Causes of an end that leaves a program the time to finish and commit what it holds."""
_REFUSALS: Final = STALE | {ErrorCode.REBALANCE_IN_PROGRESS}
_MARGIN: Final = 3.0
"""Seconds before the rebalance time-out that a drain may end, so that the JoinGroup arrives."""
_EPSILON: Final = 1e-6
"""Seconds by which two sums of the same times may differ."""
_HARMLESS: Final = (Crash, Stop, SecondProgram, SlowWork, MorePartitions, LeaderMoves, TopicDeleted)
"""Faults that do not affect heartbeats."""


@final
class Repetitions(Check):
    """Compares records handed out with what was acknowledged or cleanly handed over before.

    A program may process the batch that it already holds at any later time: no library can take
    it back.
    """

    number: ClassVar[int] = 8
    invariant: ClassVar[str] = (
        "A record is handed out again only if it lies at or after the last acknowledged commit, "
        "and never after a clean hand-over of its partition. So that a hand-over can be clean, "
        "the coordinator does not refuse a current member's commit in the current generation as "
        "stale, nor because of a rebalance, except while the group awaits its assignment."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._open_faults = 0
        self._faults_over_at = 0.0
        self._given_up: Final[defaultdict[str, dict[TopicPartition, int]]] = defaultdict(dict)
        self._drains_until: Final[dict[HeldGeneration, float]] = {}
        self._answered_before_drain: Final[dict[HeldGeneration, float]] = {}
        """When the last heartbeat before each drain was answered: its length is counted from it."""
        self._refused_until: Final[dict[str, float]] = {}
        """By user: until when logins or requests may be refused that no coordinator sees."""

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {
            HandedOut: self._handed_out,
            GenerationDraining: self._draining,
            GenerationEnded: self._ended,
            "offset_commit": self._committed,
            SeekCalled: self._sought,
            TopicChanged: self._topic_changed,
            FaultBegan: self._fault_began,
            FaultEnded: self._fault_ended,
        }

    def _draining(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, GenerationDraining)
        if held := self.views.programs.held_generation(entry, event.group_id, event.epoch):
            self._drains_until[held] = entry.at + event.seconds
            answered_at = self.views.groups.heartbeat_answered_at.get(held.member_id, 0.0)
            self._answered_before_drain[held] = answered_at

    def _ended(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, GenerationEnded)
        held = self.views.programs.held_generation(entry, event.group_id, event.epoch)
        if held is None or held.refused or not self._had_time(held, event, entry.at):
            return
        if held.member_id not in self.views.groups[event.group_id].members:
            return  # removed while it was frozen, so others may have been given the partitions
        given_up = self._given_up[event.group_id]
        for partition, offset in held.processed.items():
            given_up[partition] = max(offset, given_up.get(partition, 0))

    def _sought(self, entry: SeekCalled) -> None:
        given_up = self._given_up[entry.group_id]
        if entry.offset < given_up.get(entry.partition, 0):
            given_up[entry.partition] = entry.offset

    def _topic_changed(self, entry: TopicChanged) -> None:
        if entry.partitions:
            return
        for given_up in self._given_up.values():
            for partition in [one for one in given_up if one.topic == entry.topic]:
                del given_up[partition]

    def _had_time(self, held: HeldGeneration, event: GenerationEnded, at: float) -> bool:
        """Whether the program had the time to commit everything that it has processed."""
        cause = event.end.cause
        if cause is Cause.MEMBERSHIP_LOST:  # which only a refused request causes
            refused = self.views.groups.refused_at.get(held.member_id, 0.0)
            unseen = self._refused_until.get(user_of(held.life[0]), 0.0)
            answered_at = self.views.groups.heartbeat_answered_at.get(held.member_id, 0.0)
            frozen = self.views.programs.was_frozen_since(held, answered_at)
            return max(refused, unseen) < held.joined_at and not frozen
        if cause not in _CLEAN_CAUSES:
            return False
        return not event.cut_short or not self._drained(held, at)

    def _drained(self, held: HeldGeneration, at: float) -> bool:
        """Whether a drain lasted as long as it has to, as far as the history shows."""
        if at < self._drains_until.get(held, 0.0) - _EPSILON:
            return False
        answered_at = self._answered_before_drain.get(held, 0.0)
        began = held.draining_at
        settings = self.views.programs.settings(held)
        undetected = 2 * settings.heartbeat_interval
        if (
            began is None
            or self._open_faults
            or answered_at - undetected < max(self._faults_over_at, held.joined_at)
            or began - answered_at > undetected
        ):
            return True
        most = settings.rebalance_timeout - (began - answered_at) - undetected - _MARGIN
        return at - began >= min(settings.drain_timeout, most) - _EPSILON

    def _fault_began(self, entry: FaultBegan) -> None:
        fault = entry.fault
        if isinstance(fault, UserRevoked | PasswordChanges | RightRevoked):
            until = max(entry.at + fault.seconds, self._refused_until.get(fault.process, 0.0))
            self._refused_until[fault.process] = until
        if not isinstance(entry.fault, _HARMLESS):
            self._open_faults += 1

    def _fault_ended(self, entry: FaultEnded) -> None:
        if not isinstance(entry.fault, _HARMLESS):
            self._open_faults -= 1
            self._faults_over_at = entry.at

    def _committed(self, entry: RequestHandled) -> None:
        request, response = entry.request, entry.response
        assert isinstance(request, OffsetCommit)
        assert isinstance(response, OffsetsCommitted)
        refused = [one for one in response.partitions if one.error in _REFUSALS]
        group = self.views.groups[request.group_id]
        if (
            refused
            and group.state in (STABLE, PREPARING)
            and group.generation_id == entry.group_generation_id == request.generation_id
            and request.member_id in group.members
            and entry.is_member
        ):
            self.report(
                entry.at,
                f"broker {entry.node_id} refused a commit of {entry.process or request.member_id}"
                f" in its current generation {request.generation_id} as"
                f" {refused[0].error.name}, so that the records that it has processed are"
                " handed out again",
            )

    def _handed_out(self, entry: HandedOut) -> None:
        if entry.member_id in self.views.groups[entry.group_id].replaced:
            return  # it reads beside the program that has its instance id, until it learns of it
        partition, programs = entry.partition, self.views.programs
        held = programs.held_generation(entry, entry.group_id, entry.epoch)
        if held is not None and held.sought.get(partition, entry.first + 1) <= entry.first:
            return  # the program sought back
        if programs.has_old_commit(entry.group_id, partition):
            return
        acknowledged = programs.acknowledged[entry.group_id].get(partition, 0)
        who = f"{entry.process} got the record at offset {entry.first} of {partition} in generation"
        if entry.first < acknowledged:
            self.report(
                entry.at,
                f"{who} {entry.generation_id}, although a commit at {acknowledged} had been"
                " acknowledged",
                partition=entry.partition,
                offset=entry.first,
            )
        elif entry.first < (offset := self._given_up[entry.group_id].get(partition, 0)):
            self.report(
                entry.at,
                f"{who} {entry.generation_id}, although an owner had processed it and handed the"
                f" partition over cleanly at {offset}",
                partition=entry.partition,
                offset=entry.first,
            )
