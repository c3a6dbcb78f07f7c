"""What a leader does before it syncs: look at the group's topics, and divide their partitions.

Source: Kafka's ``ConsumerCoordinator.onLeaderElected``; KIP-814 (a leader that skips it).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, final

import attrs
import trio

from kgroup.assignors import resolve
from kgroup.assignors.check import CheckedAssignments, check_assignments
from kgroup.backoff import Backoff
from kgroup.cluster import Cluster
from kgroup.config import GroupConfig
from kgroup.coordinator import UNREADABLE
from kgroup.errors import UsageError
from kgroup.events import PartitionsUnassigned, RequestFailed, TopicsMissing
from kgroup.model import MemberAssignments, Membership, MemberSubscription, TopicInfo
from kgroup.protocols import Assignor, Joined
from kgroup.recovery import Request
from kgroup.reporting import Reporter
from kgroup.retry import until_answered

MANY: Final = 20_000
"""Partitions from which on an assignment takes long enough to be computed in a thread."""


@final
@attrs.frozen(kw_only=True)
class Leader:
    """Computes one generation's assignment."""

    config: GroupConfig
    cluster: Cluster
    reporter: Reporter
    membership: Membership
    answer: Joined
    new_backoff: Callable[[], Backoff]

    def topics_of(self, own: Collection[str]) -> frozenset[str]:
        """Every topic that the whole group subscribes to."""
        return frozenset(own).union(*(member.topics for member in self.answer.members))

    async def look(self, topics: Collection[str]) -> Mapping[str, TopicInfo]:
        """Those of the topics that exist, however long it takes until a broker tells.

        Raises:
            BrokerError: a broker refuses to tell.
        """
        known = await until_answered(
            Request.METADATA,
            partial(self.look_once, topics),
            find=None,
            backoff=self.new_backoff(),
            report=self.reporter.failed,
        )
        if missing := set(topics) - known.keys():
            self.reporter.tell(TopicsMissing, topics=tuple(sorted(missing)))
        return known

    async def look_once(self, topics: Collection[str]) -> Mapping[str, TopicInfo]:
        """Those of the topics that exist, by one request.

        Raises:
            TransportError: no broker answered.
            BrokerError: a broker refuses to tell.
        """
        if not topics:
            await trio.lowlevel.checkpoint()
            return {}
        return (await self.cluster.metadata(topics)).topics

    async def assign(self, known: Mapping[str, TopicInfo]) -> MemberAssignments:
        """What every member gets; nothing where the coordinator keeps the last assignment.

        For many partitions it is computed in a thread, so that heartbeats go on meanwhile.

        Raises:
            UsageError: the coordinator chose an assignor that this member does not have.
            InvalidAssignmentError: no group may follow what the assignor answered.
            Exception: whatever a custom assignor raises.
        """
        if self.answer.skip_assignment:
            await trio.lowlevel.checkpoint()
            return {}
        self._tell_of_unreadable(self.answer.members)
        assignor = resolve(self.config.assignors).get(self.membership.assignor)
        if assignor is None:
            raise UsageError(
                f"{self.membership}: the coordinator chose the assignor"
                f" {self.membership.assignor!r}, which this member did not offer"
            )
        compute = partial(_compute, assignor, known, self.answer.members)
        if sum(topic.partitions for topic in known.values()) < MANY:
            await trio.lowlevel.checkpoint()
            checked = compute()
        else:
            checked = await trio.to_thread.run_sync(compute)
        # What waits for its owner to give it up is not forgotten.
        waiting = {one for member in self.answer.members for one in member.owned}
        if forgotten := tuple(one for one in checked.unassigned if one not in waiting):
            self.reporter.tell(PartitionsUnassigned, partitions=forgotten)
        return checked.assignments

    def _tell_of_unreadable(self, members: Collection[MemberSubscription]) -> None:
        for member in members:
            if member.version == UNREADABLE:
                self.reporter.tell(
                    RequestFailed,
                    request=Request.JOIN.value,
                    reason=f"the subscription of member {member.member_id} cannot be read",
                    next_move="it is given nothing",
                )


def _compute(
    assignor: Assignor, known: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
) -> CheckedAssignments:
    return check_assignments(assignor.name, known, members, assignor.assign(known, members))
