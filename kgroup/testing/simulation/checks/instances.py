"""Invariant 11: one live member for an instance id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import Heartbeat
from kgroup.broker.groups.responses import HeartbeatCompleted
from kgroup.error_codes import ErrorCode
from kgroup.events import GenerationEnded, Joined
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.groups import DEAD
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import GroupChanged, HandedOut, Judged, Over, Told
from kgroup.testing.simulation.plan import Plan

_SLACK: Final = 1.0
"""Seconds that a program may take beside its session time-out to end what it has lost."""


@final
class Instances(Check):
    """Follows members whose instance id another program has taken up.

    The older one hears of it when it next asks the coordinator, or else by its own lease.
    """

    number: ClassVar[int] = 11
    says: ClassVar[str] = (
        "An instance id has one member; a program whose instance id another one takes up is"
        " answered nothing good any more, hears of it, does not join again while that one is a"
        " member, and gets no record once its session is over."
    )

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, found)
        self._unaware: Final[dict[str, Holding]] = {}

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            GroupChanged: self._changed,
            "heartbeat": self._heartbeat,
            Joined: self._joined,
            HandedOut: self._handed_out,
            GenerationEnded: self._ended,
            Over: self._over,
        }

    def _changed(self, fact: GroupChanged) -> None:
        counts = Counter(member.group_instance_id for member in fact.members)
        for name, count in counts.items():
            if name is not None and count > 1:
                self.accuse(
                    fact.at,
                    f"group {fact.group_id} has {count} members with the instance id {name!r}",
                )
        group = self.views.groups[fact.group_id]
        for member in fact.members:  # a failover may have lost the replacement
            self._unaware.pop(member.member_id, None)
        for member_id in group.replaced:
            held = self.views.programs.latest(fact.group_id, member_id)
            if held is not None and not held.over:
                self._unaware[member_id] = held

    def _heartbeat(self, fact: Judged) -> None:
        if not self._unaware or fact.state == DEAD:
            return  # a coordinator that is loading answers everybody well, as Kafka's does
        request, response = fact.request, fact.response
        assert isinstance(request, Heartbeat)
        assert isinstance(response, HeartbeatCompleted)
        if request.member_id in self._unaware and response.error is ErrorCode.NONE:
            self.accuse(
                fact.at,
                f"broker {fact.node_id} answered a heartbeat of {request.member_id!r} well,"
                " although another member has its instance id",
            )

    def _joined(self, fact: Told) -> None:
        event = fact.event
        groups = self.views.groups
        replaced = groups[event.group_id].replaced
        life = self.views.programs.life(fact.process, fact.life)
        for member_id in sorted(life.member_ids[event.group_id] & replaced.keys()):
            at, successor = replaced[member_id]
            if member_id == event.member_id and groups.joined.get(member_id, 0.0) < at:
                continue  # it was replaced before its program heard of its id
            other = groups.owners.get(successor, fact.process)
            if other != fact.process and self._was_there(event.group_id, successor):
                self.accuse(
                    fact.at,
                    f"{fact.process} has joined again, although {other} had taken its instance id"
                    f" {life.group_instance_id!r} up",
                )

    def _was_there(self, group_id: str, successor: str) -> bool:
        """Whether whoever has the instance id was a member until this one joined, or still is."""
        group = self.views.groups[group_id]
        while successor in group.replaced:
            successor = group.replaced[successor][1]
        return successor in group.members

    def _handed_out(self, fact: HandedOut) -> None:
        late = self._late(fact.member_id, fact.at, 0.0)
        if late is not None:
            self.accuse(
                fact.at,
                f"{fact.process} was handed out {fact.partition} from {fact.first} on, {late:.3f} s"
                " after another program had taken its instance id up",
            )

    def _ended(self, fact: Told) -> None:
        self._look(fact.event.member_id, fact.at)

    def _over(self, fact: Over) -> None:
        for member_id in list(self._unaware):
            self._look(member_id, fact.at)

    def _look(self, member_id: str, at: float) -> None:
        """Accuse if a program that ends now has taken too long to hear of its replacement."""
        held = self._unaware.get(member_id)
        late = self._late(member_id, at, _SLACK)
        self._unaware.pop(member_id, None)
        if held is None or late is None:
            return
        life = self.views.programs.life(*held.life)
        if not (life.frozen or at - life.thawed_at < _SLACK or (life.over and held.ended is None)):
            self.accuse(
                at,
                f"{held} did not hear for {late:.3f} s that another program has its instance id",
            )

    def _late(self, member_id: str, at: float, slack: float) -> float | None:
        """For how long the member has been replaced, if that is longer than it may be unaware."""
        held = self._unaware.get(member_id)
        if held is None:
            return None
        replaced_at, _ = self.views.groups[held.group_id].replaced[member_id]
        session = self.views.groups.session_timeouts.get(member_id, 0.0)
        late = at - replaced_at
        return late if late > session + slack else None
