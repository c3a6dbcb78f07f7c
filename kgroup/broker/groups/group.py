"""A classic group: its data, and the small operations that keep the data consistent.

When to do what is decided in ``rule_tables``.

INVARIANTS: every static member's instance id maps to that member alone; a leader is a member;
an id is pending or a member, never both; a state is only entered from those in PREDECESSORS.

Source: Kafka's ``ClassicGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from kgroup.broker.groups.members import ClassicGroupMember, Parked
from kgroup.broker.groups.protocol_vote import ProtocolVote, named_once
from kgroup.broker.groups.record_sizes import group_batch
from kgroup.broker.groups.records import GroupRecord, MemberRecord
from kgroup.broker.groups.requests import JoinGroup, MemberAssignment, Protocol
from kgroup.broker.groups.responses import JoinedMember
from kgroup.broker.groups.states import EMPTY, PREDECESSORS, GroupState
from kgroup.broker.groups.subscribed_topics import CONSUMER, MOST_TOPICS, subscribed_topics


@final
@attrs.frozen
class InitialWait:
    """The wait of an empty group's first join: this period, and the seconds left after it."""

    delay: float
    remaining: float


NO_WAIT: Final = InitialWait(0.0, 0.0)


@final
@attrs.define(eq=False)
class ClassicGroup:
    """One group.

    Attributes:
        previous: the state before this one; after EMPTY a join waits for more members.
        since: when the state was entered; None if the group's record did not say.
        protocol_type: of the members it has, or had last; None for a group of offsets only.
        protocol_name: the protocol selected for this generation.
        pending: member ids that were given out and not used yet (KIP-394), in order.
        unsynced: ids of members that have not synced in this generation yet, in order.
        topics: the members' topics when the last join completed; None if unknown.
        new_member_added: whether a member was added during the initial wait.
        initial_wait: the initial wait that the JOIN timer measures, or NO_WAIT.
        record: the group as a failover would find it.
        entered_states: the states entered during the current event; ``rules`` checks them.
    """

    group_id: str
    state: GroupState = EMPTY
    previous: GroupState = GroupState.DEAD
    since: float | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = attrs.field(factory=dict)
    pending: dict[str, None] = attrs.field(factory=dict)
    unsynced: dict[str, None] = attrs.field(factory=dict)
    topics: frozenset[str] | None = None
    new_member_added: bool = False
    initial_wait: InitialWait = NO_WAIT
    record: GroupRecord | None = None
    entered_states: list[GroupState] = attrs.field(factory=list)
    _static: dict[str, str] = attrs.field(factory=dict, init=False)
    _vote: ProtocolVote = attrs.field(factory=ProtocolVote, init=False)
    _parked_joins: int = attrs.field(default=0, init=False)

    # Members

    def member_of_instance(self, group_instance_id: str) -> str | None:
        """The member id of a static member, or None."""
        return self._static.get(group_instance_id)

    def instance(self, group_instance_id: str) -> ClassicGroupMember:
        """The static member with a known instance id."""
        return self.members[self._static[group_instance_id]]

    @property
    def parked_joins(self) -> int:
        """How many members have a parked join."""
        return self._parked_joins

    @property
    def all_joined(self) -> bool:
        """Whether every member has a parked join and no id is pending."""
        return self._parked_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance time-out of its members; 0 without members."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    # Changes

    def enter(self, state: GroupState, now: float) -> None:
        """Enter a state."""
        if self.state not in PREDECESSORS[state]:
            raise RuntimeError(f"group {self.group_id!r}: {state} cannot follow {self.state}")
        self.previous, self.state, self.since = self.state, state, now
        self.entered_states.append(state)

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        """Add a member; the first one sets the group's protocol type and is its leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._vote.add(member.protocols)
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Remove a member or a pending id; if it was the leader, another member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._vote.remove(member.protocols)
            self._parked_joins -= member.parked_join is not None
            if member.group_instance_id is not None:
                self._static.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        return member

    def replace(self, group_instance_id: str, member_id: str) -> ClassicGroupMember:
        """Give a static member that has no parked request a new member id.

        Its entry in ``unsynced`` stays under the old id, as in Kafka.
        """
        old = self.members.pop(self._static[group_instance_id])
        member = attrs.evolve(old, member_id=member_id, is_new=False)
        self.members[member_id] = member
        if self.leader == old.member_id:
            self.leader = member_id
        self._static[group_instance_id] = member_id
        return member

    def set_protocols(self, member: ClassicGroupMember, protocols: tuple[Protocol, ...]) -> None:
        """Change the protocols that a member supports."""
        self._vote.remove(member.protocols)
        member.protocols = protocols
        self._vote.add(protocols)

    def park_join(self, member: ClassicGroupMember, parked: Parked) -> Parked | None:
        """Park a member's join; returns the older copy that it replaces."""
        older = self.unpark_join(member)
        member.parked_join = parked
        self._parked_joins += 1
        return older

    def unpark_join(self, member: ClassicGroupMember) -> Parked | None:
        """Remove and return a member's parked join, if it has one."""
        parked, member.parked_join = member.parked_join, None
        self._parked_joins -= parked is not None
        return parked

    # Protocols

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a client with these protocols could be a member."""
        if self.state is EMPTY:
            return bool(protocol_type and named_once(protocols))
        return protocol_type == self.protocol_type and self._vote.any_supported_by_all(protocols)

    def elect_protocol(self) -> str:
        """The protocol with the most votes among those that all members support."""
        return self._vote.elect()

    def protocol_if(self, member: ClassicGroupMember, protocols: tuple[Protocol, ...]) -> str:
        """What ``elect_protocol`` would return if a member supported these."""
        before = member.protocols
        self.set_protocols(member, protocols)
        try:
            return self.elect_protocol()
        finally:
            self.set_protocols(member, before)

    @property
    def selected(self) -> str:
        """The protocol of a group whose members have completed a join."""
        if self.protocol_name is None:
            raise RuntimeError(f"group {self.group_id!r} has no protocol in {self.state}")
        return self.protocol_name

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members, as the response to the leader lists them."""
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.selected),
            )
            for member in self.members.values()
        )

    # Subscriptions

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members use the consumer protocol."""
        return self.protocol_type == CONSUMER

    def protects(self, topic: str) -> bool:
        """Whether offsets of a topic must stay, because a member may be using them."""
        return topic in self.topics if self.topics is not None else self.is_of_consumers

    def read_topics(self) -> frozenset[str] | None:
        """The topics that its members subscribe to; None if they cannot be known, or are many."""
        if not self.is_of_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        left = MOST_TOPICS
        # Mostly all members send the same bytes.
        for metadata in {one.metadata(self.protocol_name) for one in self.members.values()}:
            some = subscribed_topics(metadata, left)
            if some is None:
                return None
            left -= len(some)
            topics.update(some)
        return frozenset(topics)

    # The record

    def write_empty_record(self, now: float) -> None:
        """Write a record that says only that the group exists."""
        self.record = GroupRecord(group_id=self.group_id, since=now)

    def write_record(self, now: float) -> None:
        """Write the group as it is now, in a state in which every member has a protocol."""
        self.record = self._as_record(now)

    def batch_with(self, assignments: Iterable[MemberAssignment]) -> int:
        """The bytes of a batch with the group's record, once it has these assignments."""
        given = {one.member_id: one.assignment for one in assignments}
        record = self._as_record(0.0)
        members = tuple(
            attrs.evolve(one, assignment=given.get(one.member_id, b"")) for one in record.members
        )
        return group_batch(attrs.evolve(record, members=members))

    def batch_with_replaced(self, request: JoinGroup) -> int:
        """The bytes of a batch with the group's record, once a static member has been replaced.

        The new member id has as many characters as the old one.
        """
        old = self.instance(request.group_instance_id or "")
        new = next(one.metadata for one in request.protocols if one.name == self.selected)
        return group_batch(self._as_record(0.0)) - len(old.metadata(self.selected)) + len(new)

    def _as_record(self, now: float) -> GroupRecord:
        return GroupRecord(
            group_id=self.group_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            since=now if self.since is None else self.since,
            members=tuple(self._member_record(member) for member in self.members.values()),
        )

    def rewrite_record(self, now: float, old_id: str, member: ClassicGroupMember) -> None:
        """Write that a member has replaced another in Stable; nothing else has changed."""
        if self.record is None:
            raise RuntimeError(f"group {self.group_id!r} is {self.state} without a record")
        others = tuple(one for one in self.record.members if one.member_id != old_id)
        self.record = attrs.evolve(
            self.record,
            leader=self.leader,
            since=now if self.since is None else self.since,
            members=(*others, self._member_record(member)),
        )

    def _member_record(self, member: ClassicGroupMember) -> MemberRecord:
        return MemberRecord(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout,
            session_timeout=member.session_timeout,
            metadata=member.metadata(self.selected),
            assignment=member.assignment,
        )

    @classmethod
    def from_record(cls, record: GroupRecord) -> ClassicGroup:
        """The group as a failover finds it: Stable, or Empty without members."""
        group = cls(
            record.group_id,
            state=GroupState.STABLE if record.members else EMPTY,
            since=record.since,
            generation_id=record.generation_id,
            protocol_type=record.protocol_type,
            protocol_name=record.protocol_name,
            leader=record.leader,
            record=record,
        )
        for known in record.members:
            member = ClassicGroupMember(
                member_id=known.member_id,
                group_instance_id=known.group_instance_id,
                client_id=known.client_id,
                client_host=known.client_host,
                rebalance_timeout=known.rebalance_timeout,
                session_timeout=known.session_timeout,
                protocols=(Protocol(group.selected, known.metadata),),
                assignment=known.assignment,
            )
            group.add(member, record.protocol_type or "")
        group.topics = group.read_topics()
        return group
