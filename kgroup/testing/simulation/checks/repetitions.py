"""Invariant 8: from where a record may come again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.broker.groups.responses import OffsetsCommitted
from kgroup.error_codes import ErrorCode
from kgroup.events import GenerationDraining, GenerationEnded
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.groups import PREPARING, STABLE, STALE
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.faults import (
    Crash,
    LeaderMoves,
    MorePartitions,
    SlowWork,
    Stop,
    TopicDeleted,
    Twin,
)
from kgroup.testing.simulation.history import (
    FaultBegan,
    FaultEnded,
    HandedOut,
    Judged,
    Sought,
    Told,
    TopicChanged,
)
from kgroup.testing.simulation.plan import Plan
from kgroup.types import Cause, TopicPartition

_PLANNED: Final = frozenset(
    {
        Cause.REBALANCE,
        Cause.TASK_RETURNED,
        Cause.PARTITIONS_CHANGED,
        Cause.SUBSCRIPTION_CHANGED,
        Cause.CLOSED,
    }
)
"""Ends before which a program has the time to finish and commit what it holds."""
_REFUSALS: Final = STALE | {ErrorCode.REBALANCE_IN_PROGRESS}
_MARGIN: Final = 3.0
"""Seconds that a drain may end before the rebalance time-out, for the Join to arrive in time."""
_EPSILON: Final = 1e-6
"""Seconds that two sums of the same times may differ by."""
_HARMLESS: Final = (Crash, Stop, Twin, SlowWork, MorePartitions, LeaderMoves, TopicDeleted)
"""Faults that leave heartbeats alone."""


@final
class Repetitions(Check):
    """Looks at what is handed out, against what was acknowledged or cleanly given up before.

    What a program holds already it may process at any later time: no library can take it away.
    """

    number: ClassVar[int] = 8
    says: ClassVar[str] = (
        "A record is handed out again only from the last acknowledged commit on, and never after"
        " a clean hand-over of its partition, for which the commits of a current member are taken."
    )

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, found)
        self._loud = 0
        self._calm_since = 0.0
        self._given_up: Final[defaultdict[str, dict[TopicPartition, int]]] = defaultdict(dict)
        self._drains_until: Final[dict[Holding, float]] = {}

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            HandedOut: self._handed_out,
            GenerationDraining: self._draining,
            GenerationEnded: self._ended,
            "offset_commit": self._committed,
            Sought: self._sought,
            TopicChanged: self._topic_changed,
            FaultBegan: self._fault_began,
            FaultEnded: self._fault_ended,
        }

    def _draining(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, GenerationDraining)
        if held := self.views.programs.holding(fact, event.group_id, event.epoch):
            self._drains_until[held] = fact.at + event.deadline

    def _ended(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, GenerationEnded)
        held = self.views.programs.holding(fact, event.group_id, event.epoch)
        if held is None or held.refused or not self._had_time(held, event, fact.at):
            return
        given_up = self._given_up[event.group_id]
        for partition, offset in held.processed.items():
            given_up[partition] = max(offset, given_up.get(partition, 0))

    def _sought(self, fact: Sought) -> None:
        given_up = self._given_up[fact.group_id]
        if fact.offset < given_up.get(fact.partition, 0):
            given_up[fact.partition] = fact.offset

    def _topic_changed(self, fact: TopicChanged) -> None:
        if fact.partitions:
            return
        for given_up in self._given_up.values():
            for partition in [one for one in given_up if one.topic == fact.topic]:
                del given_up[partition]

    def _had_time(self, held: Holding, event: GenerationEnded, at: float) -> bool:
        """Whether the program should have been able to commit all that it has processed."""
        cause = event.end.cause
        if cause is Cause.MEMBERSHIP_LOST:  # which only a refusal brings about
            away = self.views.groups.turned_away.get(held.member_id, 0.0)
            return away < held.joined_at and not held.stood_still
        if cause not in _PLANNED:
            return False
        return not event.cut_short or not self._drained(held, at)

    def _drained(self, held: Holding, at: float) -> bool:
        """Whether a drain has lasted as long as it was told and must, as far as one can say."""
        if at < self._drains_until.get(held, 0.0) - _EPSILON:
            return False
        beaten = self.views.groups.beaten.get(held.member_id, 0.0)
        began = held.draining_at
        settings = self.views.programs.settings(held)
        unheard = 2 * settings.heartbeat_interval
        if (
            began is None
            or held.stood_still
            or self._loud
            or beaten - unheard < max(self._calm_since, held.joined_at)
            or began - beaten > unheard
        ):
            return True
        most = settings.rebalance_timeout - (began - beaten) - unheard - _MARGIN
        return at - began >= min(settings.drain_timeout, most)

    def _fault_began(self, fact: FaultBegan) -> None:
        if not isinstance(fact.fault, _HARMLESS):
            self._loud += 1

    def _fault_ended(self, fact: FaultEnded) -> None:
        if not isinstance(fact.fault, _HARMLESS):
            self._loud -= 1
            self._calm_since = fact.at

    def _committed(self, fact: Judged) -> None:
        request, response = fact.request, fact.response
        assert isinstance(request, OffsetCommit)
        assert isinstance(response, OffsetsCommitted)
        unjust = [one for one in response.partitions if one.error in _REFUSALS]
        group = self.views.groups[request.group_id]
        if (
            unjust
            and group.state in (STABLE, PREPARING)
            and group.generation_id == fact.group_generation_id == request.generation_id
            and request.member_id in group.members
            and fact.is_member
        ):
            self.accuse(
                fact.at,
                f"broker {fact.node_id} refused a commit of {fact.process or request.member_id} in"
                f" its own generation {request.generation_id} as {unjust[0].error.name}, so that"
                " what it has processed comes again",
            )

    def _handed_out(self, fact: HandedOut) -> None:
        if fact.member_id in self.views.groups[fact.group_id].replaced:
            return  # whoever has its instance id reads on beside it, until it hears of it
        partition, programs = fact.partition, self.views.programs
        held = programs.holding(fact, fact.group_id, fact.epoch)
        if held is not None and held.sought.get(partition, fact.first + 1) <= fact.first:
            return  # the program wants them again
        if programs.is_carried(fact.group_id, partition):
            return
        acknowledged = programs.acknowledged[fact.group_id].get(partition, 0)
        who = f"{fact.process} got the record {fact.first} of {partition} in generation"
        if fact.first < acknowledged:
            self.accuse(
                fact.at,
                f"{who} {fact.generation_id}, although a commit at {acknowledged} had been"
                " acknowledged",
            )
        elif fact.first < (offset := self._given_up[fact.group_id].get(partition, 0)):
            self.accuse(
                fact.at,
                f"{who} {fact.generation_id}, although an owner had processed it and handed over"
                f" cleanly at {offset}",
            )
