"""What a leader does before it sends SyncGroup: fetch the group's topics, and call the assignor.

INVARIANT: no subscription of another member can end this member's generation. A name that no topic
can have is left out before the topics are requested; a topic that this leader may not read is left
out when the broker refuses it.

Source: Kafka's ``ConsumerCoordinator.onLeaderElected``; KIP-814 (a leader that skips it).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import Final, final

import attrs
import trio

from kgroup.assignors import resolve
from kgroup.assignors.validation import CheckedAssignments, check_assignments
from kgroup.client.coordinator import UNREADABLE
from kgroup.client.error_policy import Request
from kgroup.client.metadata import Metadata
from kgroup.client.retry import until_answered
from kgroup.errors import AssignorTimeoutError, UsageError, count_of, short_list
from kgroup.events import (
    AssignorAbandoned,
    PartitionsUnassigned,
    RequestFailed,
    TopicsRefused,
)
from kgroup.generation.member_context import MemberContext
from kgroup.interfaces import Assignor, JoinResult
from kgroup.types import (
    MemberAssignments,
    Membership,
    MemberSubscription,
    TopicInfo,
    topic_fault,
)
from kgroup.watchers.partitions import Poll

MARGIN: Final = 1.0
"""Seconds before the rebalance time-out by which the assignment must be computed, so that SyncGroup
arrives in time; a tenth of the time-out, if that is less."""

MANY_TOPICS: Final = 2000
"""With more topics of other members than this, Metadata requests all topics and names none."""

MOST_REPORTED: Final = 1000
"""The most invalid, and the most missing, names of other members' topics that an event lists."""

_THREAD: Final = "kgroup-topics"


@final
@attrs.frozen
class GroupTopics:
    """The topics that a group subscribes to.

    Attributes:
        own: those that this member subscribes to.
        foreign: those that only other members subscribe to.
        invalid: the first `MOST_REPORTED` names of other members' subscriptions that no topic can
            have, and why.
    """

    own: frozenset[str]
    foreign: frozenset[str]
    invalid: Mapping[str, str]


def group_topics(own: Collection[str], *others: Collection[str]) -> GroupTopics:
    """The topics of a member and of the others."""
    foreign = frozenset[str]().union(*others).difference(own)
    faults = {name: fault for name in foreign if (fault := topic_fault(name))}
    invalid = {name: faults[name] for name in nsmallest(MOST_REPORTED, faults)}
    return GroupTopics(frozenset(own), foreign.difference(faults), invalid)


@final
@attrs.frozen
class FoundTopics:
    """What brokers know of a group's topics.

    Attributes:
        known: the topics that exist.
        missing: those that do not exist; of topics that only other members subscribe to, the first
            `MOST_REPORTED`.
    """

    known: Mapping[str, TopicInfo]
    missing: Collection[str]


@final
class LateTopicsError(Exception):
    """The topics were found so late that too little time was left for the assignor."""


@final
@attrs.frozen(kw_only=True)
class LeaderAssignment:
    """Computes one generation's assignment.

    Attributes:
        member: the parts of the member that outlive this generation.
        membership: the leader's.
        answer: the answer to its JoinGroup.
        deadline: when, by trio's clock, the coordinator stops waiting for this leader.
    """

    member: MemberContext
    membership: Membership
    answer: JoinResult
    deadline: float

    async def topics_of(
        self,
        own: Collection[str],
        members: Sequence[MemberSubscription],
        more: Collection[str] = (),
    ) -> GroupTopics:
        """Every topic that this member and others subscribe to, and some more.

        Cancellation: nothing changes.
        """

        def gather() -> GroupTopics:
            return group_topics(own, more, *{member.topics for member in members})

        names = sum(len(member.topics) for member in members)
        return await self.member.call_in_thread_if_long(gather, names, _THREAD)

    async def fetch_topics(self, topics: GroupTopics) -> FoundTopics:
        """Find the topics that exist, however long it takes until a broker answers.

        Raises:
            BrokerError: a broker refuses to answer, or this member may not read a topic of its own.
        """
        found = await until_answered(
            Request.METADATA,
            partial(self._metadata, topics),
            find=None,
            backoff=self.member.new_backoff(),
            report=self.member.emitter.failed,
        )
        refused = {**topics.invalid, **{name: error.name for name, error in found.refused.items()}}
        if refused:
            self.member.emitter.emit(TopicsRefused, topics=dict(sorted(refused.items())))
        find = partial(_missing, topics, {*found.topics, *refused})
        missing = await self.member.call_in_thread_if_long(find, len(topics.foreign), _THREAD)
        return FoundTopics(found.topics, missing)

    async def fetch_topics_once(self, topics: GroupTopics) -> Mapping[str, TopicInfo]:
        """Those of the topics that exist, by one attempt.

        Raises:
            TransportError: no broker answered.
            BrokerError: a broker refuses to answer, or this member may not read a topic of its own.
        """
        return (await self._metadata(topics)).topics

    def watch_topics(self, topics: GroupTopics) -> Poll:
        """What a watcher polls: the metadata of the topics.

        It raises TransportError if no broker answers, and BrokerError if a broker refuses to
        answer, or if this member may not read a topic of its own.
        """
        interval = self.member.config.partition_watch_interval
        are_many = len(topics.foreign) > MANY_TOPICS
        names = frozenset[str]() if are_many else topics.own | topics.foreign
        if not names:

            async def alone(*, only_changed: bool) -> Metadata:
                del only_changed
                await trio.sleep(interval)
                return await self._metadata(topics)

            return alone
        return self.member.cluster.watch(names, topics.foreign, interval)

    async def _metadata(self, topics: GroupTopics) -> Metadata:
        if not topics.own and not topics.foreign:
            await trio.lowlevel.checkpoint()
            return Metadata(topics={}, leaders={})
        if len(topics.foreign) <= MANY_TOPICS:
            return await self.member.cluster.metadata(topics.own | topics.foreign, topics.foreign)
        # Other members decide how many names this request would have, every few seconds. So all
        # topics are requested: their number is bounded by the cluster.
        own = await self.member.cluster.metadata(topics.own)
        everything = await self.member.cluster.metadata(None)
        theirs = {name: info for name, info in everything.topics.items() if name in topics.foreign}
        return attrs.evolve(own, topics={**theirs, **own.topics})

    async def assign(self, known: Mapping[str, TopicInfo]) -> MemberAssignments:
        """The partitions of every member; nothing where the coordinator keeps the last assignment.

        The assignor runs in a thread, so that heartbeats continue. It has until shortly before the
        coordinator would remove a leader that sends no SyncGroup.

        Raises:
            UsageError: the coordinator chose an assignor that this member does not have.
            AssignorTimeoutError: the assignor takes too long.
            LateTopicsError: it did not end in time, but had less than half of the time: brokers
                that do not answer must not end the group.
            InvalidAssignmentError: the assignor returned an invalid assignment.
            Exception: whatever a custom assignor raises.

        Cancellation: kgroup stops waiting for the assignor, with an event; its thread may continue.

        Source: Kafka's ``GroupMetadataManager.schedulePendingSync``.
        """
        if self.answer.skip_assignment:
            await trio.lowlevel.checkpoint()
            return {}
        self._report_unreadable(self.answer.members)
        assignor = resolve(self.member.config.assignors).get(self.membership.assignor)
        if assignor is None:
            raise UsageError(
                f"{self.membership}: the coordinator chose the assignor"
                f" {self.membership.assignor!r}, which this member did not offer"
            )
        checked = await self._computed(assignor, known)
        if checked.unassigned:
            self.member.emitter.emit(PartitionsUnassigned, partitions=checked.unassigned)
        return checked.assignments

    async def _computed(
        self, assignor: Assignor, known: Mapping[str, TopicInfo]
    ) -> CheckedAssignments:
        thread = f"kgroup-assign {self.membership.group_id}"
        began = trio.current_time()
        limit = self.member.config.rebalance_timeout
        cut_off = self.deadline - min(MARGIN, limit / 10)
        if began >= cut_off:
            await trio.lowlevel.checkpoint()
            raise self._late_topics(assignor, began, cut_off)
        checked: CheckedAssignments | None = None
        try:
            with trio.move_on_at(cut_off):
                checked = await self.member.assignor_thread(
                    partial(_compute, assignor, known, self.answer.members), thread
                )
        except trio.Cancelled:
            self._emit_abandoned(assignor, began, thread)
            raise
        if checked is not None:
            return checked
        self._emit_abandoned(assignor, began, thread)
        if cut_off - began < limit / 2:
            raise self._late_topics(assignor, began, cut_off)
        raise AssignorTimeoutError(
            f"{self.membership}: the assignor {assignor.name!r} did not assign"
            f" {sum(topic.partitions for topic in known.values())} partitions to"
            f" {len(self.answer.members)} members within"
            f" {trio.current_time() - began:.1f} s; the coordinator waits {limit:g} s"
            " (rebalance_timeout) for its leader. Nothing was sent: this member leaves, and the"
            f" group continues without it. The thread {thread!r} ends when the assignor returns."
            " Make the assignor faster, or rebalance_timeout longer",
            assignor.name,
            thread,
        )

    def _late_topics(self, assignor: Assignor, began: float, cut_off: float) -> LateTopicsError:
        limit = self.member.config.rebalance_timeout
        return LateTopicsError(
            f"SyncGroup was not sent: the topics were found {began - self.deadline + limit:.1f} s"
            f" after the JoinGroup's response, which left {max(0.0, cut_off - began):.1f} s to the"
            f" assignor {assignor.name!r}; the coordinator waits {limit:g} s (rebalance_timeout)"
            " for its leader"
        )

    def _emit_abandoned(self, assignor: Assignor, began: float, thread: str) -> None:
        self.member.emitter.emit(
            AssignorAbandoned,
            assignor=assignor.name,
            seconds=trio.current_time() - began,
            thread=thread,
        )

    def _report_unreadable(self, members: Collection[MemberSubscription]) -> None:
        names = [member.member_id for member in members if member.version == UNREADABLE]
        if names:
            subject = f"the subscriptions of {count_of(len(names), 'member')} cannot be read"
            self.member.emitter.emit(
                RequestFailed,
                request=Request.JOIN.value,
                reason=f"{subject}: {short_list(names)}",
                next_action="assign them no partitions",
            )


def _missing(topics: GroupTopics, others: Collection[str]) -> Collection[str]:
    """The topics that are not among others; of the foreign ones, the first."""
    own, foreign = topics.own.difference(others), topics.foreign.difference(others)
    return own.union(nsmallest(MOST_REPORTED, foreign))


def _compute(
    assignor: Assignor, known: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
) -> CheckedAssignments:
    """Call the assignor and check its result. Runs in a thread.

    A partition that is assigned to no member, but that a member still owns, is not unassigned: its
    owner gives it up first, and the next generation assigns it.
    """
    checked = check_assignments(assignor.name, known, members, assignor.assign(known, members))
    if not checked.unassigned:
        return checked
    waiting = {one for member in members for one in member.owned}
    forgotten = tuple(one for one in checked.unassigned if one not in waiting)
    return attrs.evolve(checked, unassigned=forgotten)
