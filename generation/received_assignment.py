"""What a member checks in the assignment that it received: can it be read, and does it still fit?

**Can it be read?** The leader of a classic group sends each member bytes that no broker checks. A
topic name that Kafka does not admit is an error to librdkafka at best, and ends the process at
worst. So every entry is checked here before anything is opened, sought or fetched. An entry that
cannot be read is left out, and the rest is read. The leader also decides how long the assignment
is: a topic's name is checked once, however many partitions it has, and a long assignment is checked
and sorted in a thread (`MemberContext.call_in_thread_if_long`). Partitions that the cluster does
not have yet are no fault: the leader may have newer metadata than this member's brokers, so the
record source waits for them.

**Does it still fit?** A static member that restarts within its session gets its old assignment
back, and no rebalance takes place (KIP-345). The member does not learn what happened while it was
away: partitions may have been added, and its new process may subscribe to other topics. Nothing in
the group protocol would ever correct either. The same holds for a leader whose SyncGroup is
answered with the assignment that an earlier SyncGroup of the same generation brought.

So the member compares what the group's assignment covers with the topics of today. If the two do
not fit, it requests a rebalance, in the way that the coordinator reacts to:

- A leader joins again with its member id. In a stable group that makes the coordinator rebalance.
- A follower's JoinGroup with the same subscription changes nothing in a stable group, so it leaves
  with its instance id first. The JoinGroup that follows is a new member's.

INVARIANT: a member requests this once. If the assignment that follows does not fit either, the
group's assignor wants it so, and another request would only disturb the group.

Source: Kafka's ``Topic.validate`` and ``SubscriptionState.checkAssignmentMatchedSubscription``;
KIP-345, KIP-814; Kafka's ``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin`` and
``classicGroupJoinExistingMember``. Kafka's own consumer does not make this comparison.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final, final

import attrs

from kgroup.client.coordinator import UNREADABLE
from kgroup.client.error_policy import Request
from kgroup.client.retry import until_answered
from kgroup.errors import short_list
from kgroup.generation.leader_assignment import GroupTopics, LeaderAssignment, group_topics
from kgroup.generation.member_context import CompletedJoin, PreviousGenerations
from kgroup.interfaces import DescribeResult
from kgroup.types import Assignment, Cause, TopicInfo, TopicPartition, name_fault, number_fault

_NOT_SUBSCRIBED: Final = "this member does not subscribe to the topic"


@final
@attrs.frozen
class ReceivedAssignment:
    """An assignment that can be read, and what was left out of it.

    Attributes:
        partitions: each once, in the leader's order.
        left_out: for each entry that was left out, as a text, what is wrong with it.
        foreign: the topics of those left out that could be read, which are not subscribed.
    """

    partitions: tuple[TopicPartition, ...]
    left_out: Mapping[str, str]
    foreign: frozenset[str] = frozenset()


@final
@attrs.frozen
class AcceptedAssignment:
    """The part of a received assignment that the member can read.

    Attributes:
        received: what can be read of it, and what was left out.
        assignment: what can be read, sorted, with the assignment before it.
        given_up: what the member owned and was not assigned, sorted.
    """

    received: ReceivedAssignment
    assignment: Assignment
    given_up: tuple[TopicPartition, ...]


def check_entries(
    assigned: Iterable[TopicPartition], topics: Collection[str]
) -> ReceivedAssignment:
    """Leave out what cannot be read, or was not subscribed to.

    Args:
        assigned: the partitions that the leader gave this member.
        topics: the topics that this member joined with.
    """
    admitted: dict[TopicPartition, None] = {}
    left_out: dict[str, str] = {}
    foreign: set[str] = set()
    names: dict[str, tuple[str, str | None]] = {}
    for name in assigned:
        if name.topic in topics and name.partition >= 0:  # a subscribed topic has a valid name
            admitted[name] = None
            continue
        if name.topic not in names:
            names[name.topic] = f"{name.topic!r:.80}", name_fault(name.topic)
        entry, fault = names[name.topic]
        fault = fault or number_fault(name.partition)
        if fault is None:
            foreign.add(name.topic)
        left_out[f"{entry}-{name.partition}"] = fault or _NOT_SUBSCRIBED
    return ReceivedAssignment(tuple(admitted), left_out, frozenset(foreign))


def accept(
    assigned: Iterable[TopicPartition],
    topics: Collection[str],
    previous: Iterable[TopicPartition] = (),
    retained: Iterable[TopicPartition] = (),
    owned: Iterable[TopicPartition] = (),
) -> AcceptedAssignment:
    """Check and sort an assignment, and compare it with what the member owned.

    Args:
        assigned: the partitions that the leader gave this member.
        topics: the topics that this member joined with.
        previous: the partitions of the generation that the program held before.
        retained: those of them that no other member can have owned since then.
        owned: what the member has to give up if it is not in the assignment.
    """
    received = check_entries(assigned, topics)
    assignment = Assignment(received.partitions, previous, retained)
    given_up = Assignment(name for name in owned if name not in assignment)
    return AcceptedAssignment(received, assignment, given_up.partitions)


@final
class RebalanceRequest(enum.Enum):
    """How a member makes the coordinator rebalance a stable group."""

    BY_JOINING = "join again with the member id; the coordinator rebalances for a leader"
    BY_LEAVING = "leave with the instance id, then join as a new member"


@final
@attrs.frozen(kw_only=True)
class Verdict:
    """What the comparison found.

    Attributes:
        faults: why the group needs a rebalance, in words; empty where the assignment fits.
        cause: how the generation ends by it.
        rebalance_request: how this member has to request the rebalance.
        watched: for a leader, what its partition watcher starts from.
        topics: for a leader, the topics to watch: all that the group subscribes to, or has.
    """

    faults: tuple[str, ...] = ()
    cause: Cause = Cause.PARTITIONS_CHANGED
    rebalance_request: RebalanceRequest = RebalanceRequest.BY_JOINING
    watched: Mapping[str, TopicInfo] | None = None
    topics: GroupTopics | None = None


FITS = Verdict()


@final
@attrs.frozen(kw_only=True)
class InheritedAssignment:
    """Compares the assignment of one generation with the topics, where that is in question.

    Attributes:
        leader: fetches topics, and has the JoinGroup's answer.
        join: the answered JoinGroup.
        previous: what came before this generation.
    """

    leader: LeaderAssignment
    join: CompletedJoin
    previous: PreviousGenerations

    @property
    def in_question(self) -> bool:
        """Whether `check` has anything to compare."""
        if self.previous.rebalance_requested:
            return False
        answer = self.join.answer
        if answer.leader:
            inherits = answer.skip_assignment or self.previous.repeated_by(answer)
            return inherits and self.leader.member.config.watch_partition_changes
        return self.join.returning

    @property
    def rebalance_request(self) -> RebalanceRequest:
        """How this member has to request a rebalance, as far as the JoinGroup's answer says."""
        return (
            RebalanceRequest.BY_JOINING if self.join.answer.leader else RebalanceRequest.BY_LEAVING
        )

    async def check(self, held: Collection[str], known: Mapping[str, TopicInfo]) -> Verdict:
        """Compare; at most one DescribeGroups, and one Metadata for a follower.

        Args:
            held: the topics of which this member was assigned partitions.
            known: for a leader, the topics of the whole group that exist.

        Raises:
            BrokerError | TransportError: what the error policy does not retry.

        Cancellation: the offsets connection may be broken; nothing else.
        """
        if self.join.answer.leader:
            return await self._as_leader(await self._describe(), known)
        return await self._as_follower(frozenset(held))

    async def _as_leader(self, group: DescribeResult, known: Mapping[str, TopicInfo]) -> Verdict:
        if not group.stable:  # A rebalance is under way, and this member will have to join.
            return Verdict(watched=known, topics=await self._topics_of(group, known))
        thread = f"kgroup-compare {self.leader.membership.group_id}"
        work = partial(compare, known, group)
        faults, watched = await self.leader.member.assignor_thread(work, thread)
        topics = await self._topics_of(group, watched)
        return Verdict(faults=faults, watched=watched, topics=topics)

    async def _as_follower(self, held: frozenset[str]) -> Verdict:
        if strange := held - self.join.topics:
            return _not_subscribed(strange)
        lacking = await self._existing(self.join.topics - held)
        if not lacking and not self._may_lead:
            return FITS
        group = await self._describe()
        if not group.stable:
            return FITS
        # A broker before JoinGroup v9 names the id that a returning leader had before.
        if self._may_lead and self.join.answer.leader_id not in group.assignments:
            found = await self.leader.fetch_topics(await self._topics_of(group))
            return await self._as_leader(group, found.known)
        covered = {one.topic for given in group.assignments.values() for one in given}
        return _uncovered(lacking - covered)

    @property
    def _may_lead(self) -> bool:
        """Whether the leader's id may be that of an earlier process of this instance.

        A coordinator makes the id of a static member from its instance id, "-" and a UUID.
        """
        instance = self.leader.membership.group_instance_id
        return self.join.answer.leader_id.startswith(f"{instance}-")

    async def _topics_of(self, group: DescribeResult, more: Collection[str] = ()) -> GroupTopics:
        members = (*group.members, *self.join.answer.members)
        return await self.leader.topics_of(self.join.topics, members, more)

    async def _describe(self) -> DescribeResult:
        return await until_answered(
            Request.DESCRIBE,
            self.leader.member.coordinator.describe,
            find=self.leader.member.coordinator.find,
            backoff=self.leader.member.new_backoff(),
            report=self.leader.member.emitter.failed,
        )

    async def _existing(self, topics: Collection[str]) -> frozenset[str]:
        found = await until_answered(
            Request.METADATA,
            partial(self.leader.fetch_topics_once, group_topics(topics)),
            find=None,
            backoff=self.leader.member.new_backoff(),
            report=self.leader.member.emitter.failed,
        )
        return frozenset(found)


def compare(
    known: Mapping[str, TopicInfo], group: DescribeResult
) -> tuple[tuple[str, ...], dict[str, TopicInfo]]:
    """Find where a group's assignment and its topics differ, and what a watcher starts from.

    A topic that is assigned and does not exist is no fault yet: a broker that has just started
    may not know it. It is in the watcher's baseline, so that the watcher finds it gone.

    Args:
        known: the topics of the whole group that exist.
        group: its members, and what each was assigned.
    """
    covered: dict[str, set[int]] = {}
    faults = []
    for member in group.members:
        strange = set()
        for topic, number in (
            (one.topic, one.partition) for one in group.assignments.get(member.member_id, ())
        ):
            covered.setdefault(topic, set()).add(number)
            if member.version != UNREADABLE and topic not in member.topics:
                strange.add(topic)
        if strange:
            names = short_list(sorted(strange), "{:.80}".format)
            faults.append(f"{member.member_id} has partitions of {names}, but no subscription")
    for name, info in sorted(known.items()):
        numbers = covered.get(name, set())
        assigned = sum(number < info.partitions for number in numbers)
        if assigned < info.partitions:
            faults.append(f"topic {name} has {info.partitions} partitions, {assigned} assigned")
        elif len(numbers) > assigned:
            faults.append(f"topic {name} has only {info.partitions} partitions")
    gone = {
        name: TopicInfo(name=name, partitions=max(numbers) + 1)
        for name, numbers in covered.items()
        if name not in known
    }
    return tuple(faults), {**known, **gone}


def _not_subscribed(topics: Collection[str]) -> Verdict:
    names = short_list(sorted(topics))
    fault = f"assigned partitions of {names}, which this member does not subscribe to any more"
    return Verdict(
        faults=(fault,),
        cause=Cause.SUBSCRIPTION_CHANGED,
        rebalance_request=RebalanceRequest.BY_LEAVING,
    )


def _uncovered(topics: Collection[str]) -> Verdict:
    if not topics:
        return FITS
    fault = f"no member is assigned anything of {short_list(sorted(topics))}"
    return Verdict(
        faults=(fault,),
        cause=Cause.SUBSCRIPTION_CHANGED,
        rebalance_request=RebalanceRequest.BY_LEAVING,
    )
