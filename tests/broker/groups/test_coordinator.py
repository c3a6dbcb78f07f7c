"""The coordinator as a whole: a few clients do anything at any time."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.protocol_vote import ProtocolVote
from kgroup.broker.groups.requests import DeleteGroups
from kgroup.broker.groups.responses import GroupsDeleted, JoinCompleted
from kgroup.broker.groups.states import COMPLETING, EMPTY, PREPARING, STABLE
from kgroup.broker.groups.timers import TimerKind, TimerName
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import TOPICS, Client, Harness, subscription

SETTINGS = CoordinatorSettings(
    initial_rebalance_delay=1.0, min_session_timeout=0.1, group_max_size=4
)
PROTOCOLS = [
    {"range": subscription("t1")},
    {"range": subscription("t2"), "roundrobin": subscription("t1")},
    {"roundrobin": subscription("t1"), "range": subscription("t2")},
]
LABELS = ["d1", "d2", "d3", "s1", "s2"]
LONG_ENOUGH = 10_000.0
"""Seconds after which every silent member is gone."""

labels = st.sampled_from(LABELS)


class Anything(RuleBasedStateMachine):
    """Clients join, sync, send heartbeats, commit and leave; time passes; coordinators crash."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = itertools.count(1)
        self.harness = Harness(SETTINGS, self.coordinator(None))
        self.clients = {
            label: self.harness.client(
                label,
                instance=label if label.startswith("s") else None,
                protocols=PROTOCOLS[0],
                session=5.0 + number,
                rebalance=4.0 + number,
            )
            for number, label in enumerate(LABELS)
        }
        self.waiting: dict[int, Client] = {}
        self.highest = 0
        self.generations: dict[int, tuple[str, str | None]] = {}

    def coordinator(self, shards: tuple[int, ...] | None) -> GroupCoordinatorService:
        """Start another coordinator; member ids continue to count up."""
        return GroupCoordinatorService(
            SETTINGS, lambda: f"id{next(self.ids)}", TOPICS.get, shards=shards
        )

    # What clients do

    @rule(label=labels, version=st.sampled_from([3, 8, 9]))
    def joins(self, label: str, version: int) -> None:
        """Send a join, which may be parked."""
        client = self.clients[label]
        self.waiting[client.join(version)] = client

    @rule(label=labels)
    def restarts(self, label: str) -> None:
        """Restart a client, which forgets its member id."""
        self.clients[label] = self.clients[label].like(id="", generation=-1)

    @rule(label=labels, protocols=st.sampled_from(PROTOCOLS))
    def subscribes(self, label: str, protocols: dict[str, bytes]) -> None:
        """Change a client's subscription, which it sends with its next join."""
        self.clients[label].protocols = protocols

    @rule(label=labels)
    def syncs(self, label: str) -> None:
        """Send a sync; the leader assigns to all members."""
        client = self.clients[label]
        group = self.group
        name = group.protocol_name if group is not None else None
        given = {one: one.label for one in self.clients.values() if one.id}
        self.waiting[client.sync(given, protocol_name=name or "range")] = client

    @rule(label=labels)
    def beats(self, label: str) -> None:
        """A heartbeat succeeds only for a member in its generation."""
        client = self.clients[label]
        group = self.group
        good = group is not None and client.id in group.members
        good = good and group is not None and client.generation == group.generation_id
        error = client.heartbeat()
        if error in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            assert good

    @rule(label=labels, transactional=st.booleans(), old=st.booleans())
    def commits(self, label: str, transactional: bool, old: bool) -> None:
        """A commit is accepted from a current member, or from any client in an Empty group."""
        client = self.clients[label]
        client = client.like(generation=client.generation - 1) if old else client
        group = self.group
        state = EMPTY if group is None else group.state
        current = (
            group is not None
            and client.id in group.members
            and client.generation == group.generation_id
        )
        error = client.commit_in_transaction() if transactional else client.commit()
        if error is ErrorCode.NONE and state is not EMPTY:
            assert current or (transactional and client.generation < 0)
            assert transactional or state is not COMPLETING

    @rule(leavers=st.lists(labels, min_size=1, max_size=3))
    def leave(self, leavers: list[str]) -> None:
        """Some clients leave in one request."""
        first, *others = (self.clients[label] for label in leavers)
        first.leave(*others)

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5, 6.0]))
    def time_passes(self, seconds: float) -> None:
        """Let time pass, and run timers."""
        self.harness.sleep(seconds)

    @precondition(lambda self: self.group is not None)
    @rule()
    def crashes(self) -> None:
        """Another coordinator loads the records; parked requests get no response."""
        snapshot = self.harness.coordinator.snapshot()
        self.harness.coordinator = self.coordinator(())
        self.harness.coordinator.load(self.harness.now, snapshot, range(50))
        self.waiting.clear()
        self.generations.clear()
        self.highest = 0 if self.group is None else self.group.generation_id

    @precondition(lambda self: self.group is not None)
    @rule()
    def hands_over(self) -> None:
        """The shards move to another coordinator; all parked requests get a response."""
        old = self.harness.coordinator
        snapshot = old.snapshot()
        self.harness.record(old.unload(self.harness.now))
        assert old.group("g") is None
        assert all(ticket in self.harness.responses for ticket in self.waiting)
        self.harness.coordinator = self.coordinator(())
        self.harness.coordinator.load(self.harness.now, snapshot, range(50))
        self.generations.clear()
        self.highest = 0 if self.group is None else self.group.generation_id

    @rule(times=st.integers(1, 2))
    def writes_fail(self, times: int) -> None:
        """Let the next writes to the log fail."""
        self.harness.coordinator.fail_writes(ErrorCode.NOT_ENOUGH_REPLICAS, times)

    @rule()
    def is_deleted(self) -> None:
        """An administrator deletes the group, which succeeds only without members."""
        was = EMPTY if self.group is None else self.group.state
        request = DeleteGroups(group_ids=("g",))
        (deleted,) = self.harness.request(request, GroupsDeleted).groups
        assert (deleted.error is ErrorCode.NON_EMPTY_GROUP) == (was is not EMPTY) or (
            deleted.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        assert (self.group is None) or deleted.error is not ErrorCode.NONE

    # What must hold

    @property
    def group(self) -> ClassicGroup | None:
        """The group, if it exists."""
        return self.harness.coordinator.group("g")

    @invariant()
    def takes_answers(self) -> None:
        """Deliver responses; those of one generation agree on leader and protocol."""
        for ticket in [one for one in self.waiting if one in self.harness.responses]:
            client = self.waiting.pop(ticket)
            response = self.harness.responses[ticket]
            if not isinstance(response, JoinCompleted):
                continue
            if response.error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
                client.take(ticket)
            if (
                response.error is ErrorCode.NONE
                and response.members
                and not response.skip_assignment
            ):
                chosen = (response.leader, response.protocol_name)
                known = self.generations.setdefault(response.generation_id, chosen)
                assert known[1] == chosen[1]
                assert len({one.member_id for one in response.members}) == len(response.members)
                instances = [one.group_instance_id for one in response.members]
                named = Counter(one for one in instances if one is not None)
                assert not named or max(named.values()) == 1

    @invariant()
    def generations_grow(self) -> None:
        """Within the life of a coordinator the generation never falls."""
        if self.group is None:
            self.highest = 0
        else:
            assert self.group.generation_id >= self.highest
            self.highest = self.group.generation_id

    @invariant()
    def every_parked_request_has_a_reason(self) -> None:
        """A member waits for each parked request, and no parked request is lost."""
        parked: set[object] = set()
        if self.group is not None:
            for member in self.group.members.values():
                some = (member.parked_join, member.parked_sync)
                parked |= {one.ticket for one in some if one is not None}
        unanswered = {one for one in self.waiting if one not in self.harness.responses}
        assert unanswered == parked

    @invariant()
    def group_is_consistent(self) -> None:
        """The group's counters and indexes agree with its members."""
        group = self.group
        if group is None:
            return
        members = group.members
        assert len(members) <= SETTINGS.group_max_size or group.state is PREPARING
        assert not set(members) & set(group.pending)
        assert (group.leader in members) if members else (group.leader is None)
        assert group.parked_joins == sum(one.parked_join is not None for one in members.values())
        static = {one.group_instance_id: one.member_id for one in members.values()}
        static.pop(None, None)
        assert group._static == static
        vote = ProtocolVote()
        for one in members.values():
            vote.add(one.protocols)
        assert vars(group._vote) == vars(vote)

    @invariant()
    def states_mean_what_they_say(self) -> None:
        """In each state only certain requests wait, and a timer ends each wait."""
        group = self.group
        if group is None:
            return
        joins = sum(one.parked_join is not None for one in group.members.values())
        syncs = sum(one.parked_sync is not None for one in group.members.values())
        if group.state is EMPTY:
            assert not group.members
        if group.state in {EMPTY, COMPLETING, STABLE}:
            assert joins == 0
        if group.state in {EMPTY, PREPARING, STABLE}:
            assert syncs == 0

    @invariant()
    def every_wait_has_an_end(self) -> None:
        """A timer runs for joins in PreparingRebalance, and for syncs until all have arrived."""
        coordinator, group = self.harness.coordinator, self.group
        timers = coordinator._registry.timers
        waits = {kind: timers.get(TimerName(kind, "g")) for kind in TimerKind}
        prepares = group is not None and group.state is PREPARING
        assert (waits[TimerKind.JOIN] is not None) == prepares
        unsynced = group is not None and bool(group.unsynced)
        assert (waits[TimerKind.SYNC] is not None) == unsynced
        assert not unsynced or self.harness.state() in {COMPLETING, STABLE}
        if coordinator.next_timer is not None:
            assert coordinator.next_timer >= self.harness.now
        parked = any(ticket not in self.harness.responses for ticket in self.waiting)
        assert not parked or prepares or unsynced

    @invariant()
    def every_member_has_a_session_or_a_parked_request(self) -> None:
        """Every member has a session or a parked request; no others but pending ids have one."""
        timers = self.harness.coordinator._registry.timers
        sessions = {one.member_id for one in timers._deadlines if one.kind is TimerKind.SESSION}
        group = self.group
        members = {} if group is None else group.members
        known = set() if group is None else {*members, *group.pending}
        assert sessions <= known
        assert all(members[one].has_satisfied_heartbeat for one in known - sessions)

    def teardown(self) -> None:
        """Without new requests, all parked ones are answered and the group becomes Empty."""
        self.takes_answers()
        self.harness.sleep(LONG_ENOUGH)
        assert all(ticket in self.harness.responses for ticket in self.waiting)
        assert self.group is None or self.group.state is EMPTY


Anything.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnything = Anything.TestCase
