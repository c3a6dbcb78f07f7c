"""A coordinator for tests: the test moves its clock, ids count up, requests are short to write."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    CoordinatorResponse,
    FetchedOffset,
    HeartbeatCompleted,
    JoinCompleted,
    LeaveCompleted,
    OffsetsCommitted,
    OffsetsFetched,
    Response,
    SyncCompleted,
)
from kgroup.broker.groups.states import GroupState
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

TOPICS = {"t1": 3, "t2": 2}
SETTINGS = CoordinatorSettings(initial_rebalance_delay=0, min_session_timeout=0.1)
R = TypeVar("R", bound=Response)


def subscription(*topics: str, user_data: str = "") -> bytes:
    """A ConsumerProtocolSubscription, version 0."""
    words = [struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics]
    data = user_data.encode()
    return (
        struct.pack(">hi", 0, len(topics)) + b"".join(words) + struct.pack(">i", len(data)) + data
    )


class Harness:
    """A coordinator, its time, and every response that it gave."""

    def __init__(
        self,
        settings: CoordinatorSettings = SETTINGS,
        coordinator: GroupCoordinatorService | None = None,
    ) -> None:
        ids = itertools.count(1)
        self.now = 1000.0
        self.settings = settings
        self.coordinator = coordinator or GroupCoordinatorService(
            settings, lambda: f"id{next(ids)}", TOPICS.get
        )
        self.responses: dict[int, Response | None] = {}
        self._tickets = itertools.count(1)

    def send(self, request: Request) -> int:
        """Handle a request, and run timers that are due at once."""
        ticket = next(self._tickets)
        self.record(self.coordinator.handle(self.now, request, ticket))
        self.record(self.coordinator.expire(self.now))
        return ticket

    def record(self, responses: list[CoordinatorResponse]) -> None:
        """Keep responses; each ticket gets one."""
        for response in responses:
            assert isinstance(response.ticket, int)
            assert response.ticket not in self.responses
            self.responses[response.ticket] = response.response

    def request(self, request: Request, kind: type[R]) -> R:
        """Send a request that must be answered at once; return the response."""
        return self.response_to(self.send(request), kind)

    def response_to(self, ticket: int, kind: type[R]) -> R:
        """The response to a request."""
        assert ticket in self.responses, "still parked"
        response = self.responses[ticket]
        assert isinstance(response, kind)
        return response

    def is_parked(self, ticket: int) -> bool:
        """Whether a request has no response yet."""
        return ticket not in self.responses

    def is_given_up(self, ticket: int) -> bool:
        """Whether a request will never be answered."""
        return ticket in self.responses and self.responses[ticket] is None

    def sleep(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end = self.now + seconds
        while (at := self.coordinator.next_timer) is not None and at <= end:
            self.now = max(self.now, at)
            self.record(self.coordinator.expire(self.now))
        self.now = end

    def group(self, group_id: str = "g") -> ClassicGroup:
        """A group that exists."""
        group = self.coordinator.group(group_id)
        assert group is not None
        return group

    def state(self, group_id: str = "g") -> GroupState:
        """The state of the group; DEAD if it does not exist."""
        group = self.coordinator.group(group_id)
        return GroupState.DEAD if group is None else group.state

    def fetch(self, *partitions: str, group_id: str = "g", stable: bool = False) -> dict[str, Any]:
        """The committed offsets, or errors, by partition."""
        requested = OffsetFetchGroup(
            group_id=group_id, partitions=tuple(tp(one) for one in partitions) or None
        )
        request = OffsetFetch(version=9, groups=(requested,), require_stable=stable)
        (group,) = self.request(request, OffsetsFetched).groups
        assert group.error is ErrorCode.NONE
        return {f"{one.topic}-{one.partition}": _shown(one) for one in group.partitions}

    def client(self, label: str, **attributes: Any) -> Client:
        """A client that is not in the group yet."""
        return Client(harness=self, label=label, **attributes)

    def form(self, *clients: Client, synced: bool = True) -> None:
        """Bring clients into one generation; the first one leads."""
        first = clients[0].enter()
        others = [client.enter() for client in clients[1:]]
        if others:
            clients[0].take(first)
            first = clients[0].join()
        for client, ticket in zip(clients, [first, *others], strict=True):
            client.take(ticket)
        assert len({client.generation for client in clients}) == 1
        if synced:
            given = {client: client.label for client in clients}
            assert self.response_to(clients[0].sync(given), SyncCompleted).error is ErrorCode.NONE
            for client in clients[1:]:
                assert (
                    self.response_to(client.sync(), SyncCompleted).assignment
                    == client.label.encode()
                )


@attrs.define(eq=False, kw_only=True)
class Client:
    """A client of one group; ``like`` makes one that claims to be the same."""

    harness: Harness
    label: str
    group_id: str = "g"
    id: str = ""
    instance: str | None = None
    generation: int = -1
    protocols: Mapping[str, bytes] = {"range": subscription("t1")}
    protocol_type: str = "consumer"
    session: float = 60.0
    rebalance: float | None = 60.0

    def like(self, **changes: Any) -> Client:
        """The same client with changed attributes."""
        return attrs.evolve(self, **changes)

    def joining(self, version: int = 9) -> JoinGroup:
        """The JoinGroup that the client sends."""
        return JoinGroup(
            group_id=self.group_id,
            version=version,
            client_id=self.label,
            client_host="/127.0.0.1",
            session_timeout=self.session,
            rebalance_timeout=self.rebalance,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=tuple(Protocol(name, data) for name, data in self.protocols.items()),
        )

    def join(self, version: int = 9) -> int:
        """Send a JoinGroup."""
        return self.harness.send(self.joining(version))

    def join_now(self, version: int = 9) -> JoinCompleted:
        """Send a JoinGroup that is answered at once, and keep its id and generation."""
        return self.take(self.join(version))

    def take(self, ticket: int) -> JoinCompleted:
        """Keep the id and the generation of a JoinGroup response."""
        response = self.harness.response_to(ticket, JoinCompleted)
        if response.error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.id = response.member_id
        if response.error is ErrorCode.NONE:
            self.generation = response.generation_id
        return response

    def enlist(self) -> None:
        """Get a member id."""
        assert self.join_now().error is ErrorCode.MEMBER_ID_REQUIRED

    def enter(self) -> int:
        """Send the JoinGroup that makes the client a member."""
        if self.instance is None and not self.id:
            self.enlist()
        return self.join()

    def sync(self, assignments: Mapping[Client, str] | None = None, **more: Any) -> int:
        """Send a SyncGroup v5; a leader's has the assignment."""
        given = (assignments or {}).items()
        request = SyncGroup(
            group_id=self.group_id,
            version=5,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=next(iter(self.protocols)),
            assignments=tuple(MemberAssignment(one.id, text.encode()) for one, text in given),
        )
        return self.harness.send(attrs.evolve(request, **more))

    def synced(self, assignments: Mapping[Client, str] | None = None, **more: Any) -> SyncCompleted:
        """Send a SyncGroup that is answered at once."""
        return self.harness.response_to(self.sync(assignments, **more), SyncCompleted)

    def heartbeat(self) -> ErrorCode:
        """Send a Heartbeat."""
        request = Heartbeat(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return self.harness.request(request, HeartbeatCompleted).error

    def leave(self, *others: Client, version: int = 5) -> LeaveCompleted:
        """Send a LeaveGroup of this client, and of others in the same request."""
        members = tuple(
            LeavingMember(member_id=one.id, group_instance_id=one.instance)
            for one in (self, *others)
        )
        request = LeaveGroup(group_id=self.group_id, version=version, members=members)
        return self.harness.request(request, LeaveCompleted)

    def commit(self, partition: str = "t1-0", offset: int = 1, version: int = 9) -> ErrorCode:
        """Send an OffsetCommit of one partition."""
        request = OffsetCommit(
            group_id=self.group_id,
            version=version,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            offsets=(to_commit(partition, offset),),
        )
        return self.harness.request(request, OffsetsCommitted).partitions[0].error

    def commit_in_transaction(self, partition: str = "t1-0", offset: int = 1) -> ErrorCode:
        """Send a TxnOffsetCommit of one partition, of producer 7."""
        request = TxnOffsetCommit(
            group_id=self.group_id,
            version=3,
            producer_id=7,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            offsets=(to_commit(partition, offset),),
        )
        return self.harness.request(request, OffsetsCommitted).partitions[0].error


def to_commit(partition: str, offset: int, metadata: str | None = None) -> OffsetToCommit:
    """An offset of ``topic-number`` to commit."""
    known = tp(partition)
    return OffsetToCommit(
        topic=known.topic, partition=known.partition, offset=offset, metadata=metadata
    )


def tp(partition: str) -> TopicPartition:
    """The partition ``topic-number``."""
    topic, _, number = partition.rpartition("-")
    return TopicPartition(topic, int(number))


def _shown(one: FetchedOffset) -> int | str:
    return one.offset if one.error is ErrorCode.NONE else one.error.name
