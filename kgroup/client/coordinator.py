"""The group's coordinator as a member uses it: one method for each request, on two connections.

This is the client's side. The coordinator of the embedded broker is in ``kgroup.broker.groups``.

A broker answers the requests of one connection in order, so a slow commit would delay a heartbeat
behind it. INVARIANT: JoinGroup and Heartbeat have one connection, and the offsets have another.
SyncGroup uses that of the offsets, because the coordinator holds its response back until the
leader's SyncGroup, and heartbeats must continue meanwhile. LeaveGroup takes whichever is idle, or
one of its own.
``BrokerConnection`` replaces a connection after a failure. The second one is opened while a
JoinGroup is parked, so that no TLS handshake and login come between its response and the SyncGroup.

This module neither retries nor decides: an error in a response is raised as the class that the
error policy names. Durations become int32 milliseconds here, and in no layer above.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, final

import trio

from kgroup.assignors import all_cooperative, resolve, user_data_of
from kgroup.client import responses
from kgroup.client.broker_errors import broker_error
from kgroup.client.cluster import Cluster
from kgroup.client.error_policy import Request
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    ConnectionLostError,
    KgroupError,
    MemberIdRequiredError,
    ProtocolError,
)
from kgroup.functions import is_program_error
from kgroup.interfaces import Assignor, Compute, DescribeResult, JoinResult
from kgroup.types import (
    BrokerAddress,
    Claim,
    MemberAssignments,
    Membership,
    MemberSubscription,
    OffsetAndMetadata,
    TopicPartition,
    by_topic,
)
from kgroup.wire.broker_connection import BrokerConnection, InvalidResponseError
from kgroup.wire.codec import milliseconds
from kgroup.wire.consumer_protocol import (
    LATEST_VERSION,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kgroup.worker_thread import compute_inline

PROTOCOL_TYPE: Final = "consumer"
JOIN_GRACE: Final = 5.0
"""Seconds after the rebalance timeout for which a JoinGroup or SyncGroup response is awaited."""
OPENING_GRACE: Final = 0.1
"""Seconds for which a JoinGroup that was answered waits for the opening of the other connection.
SyncGroup would wait for it too; a heartbeat, which comes first, must not wait for long."""
UNREADABLE: Final = -1
"""The version of a subscription that cannot be decoded."""
LONG_ASSIGNMENT: Final = 64 * 1024
"""Assignments from this many bytes on are decoded in a thread; less takes at most 10 ms."""
_LONGEST_REASON: Final = 255
_LAST_WITH_RETENTION: Final = 4
_FIRST_WITH_OPERATIONS: Final = 3
"""The first DescribeGroups version that has ``include_authorized_operations`` (KIP-430)."""
_STABLE: Final = "Stable"
_FIRST_WITH_EPOCH: Final = 6

T = TypeVar("T")


@final
class UserDataError(Exception):
    """The method ``user_data`` of an assignor raised. Programs never see this error.

    Attributes:
        error: what it raised, for the program.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


@final
class CoordinatorClient:
    """Sends a member's requests to the coordinator; `Coordinator` describes each method.

    INVARIANT: a request carries the ids of the `Membership` that it is given, and no others.
    """

    def __init__(
        self, cluster: Cluster, config: GroupConfig, compute: Compute = compute_inline
    ) -> None:
        self._cluster = cluster
        self._compute = compute
        self._config = config
        self._assignors = resolve(config.assignors)
        self._cooperates = all_cooperative(self._assignors.values())
        self._broker: BrokerAddress | None = None
        self._membership_connection: BrokerConnection | None = None
        self._offsets_connection: BrokerConnection | None = None

    @property
    def broker(self) -> BrokerAddress | None:
        """The coordinator's broker, if it is known."""
        return self._broker

    async def find(self) -> None:
        """See `Coordinator.find`."""
        found = await self._cluster.find_coordinator(self._config.group_id)
        if self._broker is not None:  # it was lost, or has moved; so may other brokers
            self._cluster.suspect_brokers()
        if found != self._broker:
            # INVARIANT: no checkpoint between this check and the change, since two tasks may be in
            # `find` at the same time.
            old = self._membership_connection, self._offsets_connection
            self._membership_connection = self._cluster.new_connection(found.host, found.port)
            self._offsets_connection = self._cluster.new_connection(found.host, found.port)
            self._broker = found
            await _close(old)

    async def aclose(self) -> None:
        """Close both connections.

        Cancellation: they are closed all the same.
        """
        connections = self._membership_connection, self._offsets_connection
        self._membership_connection = self._offsets_connection = None
        self._broker = None
        await _close(connections)

    async def join(
        self, member_id: str, topics: Collection[str], reason: str, claim: Claim | None = None
    ) -> JoinResult:
        """See `Coordinator.join`."""
        config = self._config
        fields = {
            "group_id": config.group_id,
            "session_timeout": milliseconds(config.session_timeout, "session_timeout"),
            "rebalance_timeout": milliseconds(config.rebalance_timeout, "rebalance_timeout"),
            "member_id": member_id,
            "group_instance_id": config.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [
                {"name": assignor.name, "metadata": self._subscription(assignor, topics, claim)}
                for assignor in self._assignors.values()
            ],
        }
        send = partial(
            self._request,
            self._membership_connection,
            self._read_join,
            "join_group",
            lambda version: {**fields, "reason": _sendable(reason)} if version >= 8 else fields,
            timeout=config.rebalance_timeout + JOIN_GRACE,
        )
        # Without an id, the first response only assigns one (KIP-394), and comes at once.
        parks = member_id or config.group_instance_id is not None
        answer = await (self._while_opening(send) if parks else send())
        assigned_id = str(answer.member_id)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and assigned_id:
            raise MemberIdRequiredError(assigned_id, str(config.group_id))
        if answer.error_code:
            raise broker_error(Request.JOIN, int(answer.error_code), self._named(member_id))
        is_leader = bool(answer.leader == answer.member_id or answer.members)
        members: tuple[MemberSubscription, ...] = ()
        if answer.members:
            members = await self._in_thread(partial(self._read_members, answer.members), "read")
        return JoinResult(
            member_id=assigned_id,
            generation_id=int(answer.generation_id),
            assignor=str(answer.protocol_name),
            leader=is_leader,
            skip_assignment=bool(getattr(answer, "skip_assignment", False)),
            members=members,
            leader_id=str(answer.leader),
        )

    async def sync(
        self, membership: Membership, assignments: MemberAssignments
    ) -> Sequence[TopicPartition]:
        """See `Coordinator.sync`."""
        encoded: list[Mapping[str, Any]] = []
        if assignments:
            encoded = await self._in_thread(partial(_encoded, assignments), "encode")
        fields = {
            **self._identity(membership),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": membership.assignor,
            "assignments": encoded,
        }
        answer, mine = await self._request(
            self._offsets_connection,
            _read_sync,
            "sync_group",
            lambda version: (
                fields
                if version >= 5
                else {k: v for k, v in fields.items() if not k.startswith("protocol_")}
            ),
            # The coordinator answers the leader at once, and the others after the leader.
            timeout=self._config.request_timeout
            if membership.leader
            else self._config.rebalance_timeout + JOIN_GRACE,
            long=lambda answer: len(answer.assignment) >= LONG_ASSIGNMENT,
        )
        if answer.error_code:
            raise broker_error(Request.SYNC, int(answer.error_code), str(membership))
        return mine

    async def describe(self) -> DescribeResult:
        """See `Coordinator.describe`."""
        group_id = self._config.group_id

        def fields(version: int) -> Mapping[str, Any]:
            wanted: dict[str, Any] = {"groups": [group_id]}
            if version >= _FIRST_WITH_OPERATIONS:
                wanted["include_authorized_operations"] = False
            return wanted

        group = await self._request(
            self._offsets_connection,
            partial(responses.described, group_id),
            "describe_groups",
            fields,
            timeout=self._config.request_timeout,
        )
        return await self._in_thread(partial(self._read_group, group), "read")

    async def heartbeat(self, membership: Membership) -> float:
        """See `Coordinator.heartbeat`."""
        answer = await self._request(
            self._membership_connection,
            _unchanged,
            "heartbeat",
            self._identity(membership),
            timeout=self._config.request_timeout,
        )
        if answer.error_code:
            raise broker_error(Request.HEARTBEAT, int(answer.error_code), str(membership))
        return max(0.0, float(answer.throttle_time.total_seconds()))

    async def leave(self, member_id: str, group_instance_id: str | None, reason: str) -> None:
        """See `Coordinator.leave`."""
        if self._broker is None:
            await self.find()
        assert self._broker is not None
        # To open another one takes a TLS handshake and a login, while the member's partitions
        # wait. But a request in flight, such as a parked JoinGroup, would hold the LeaveGroup up.
        kept = self._idle_connection()
        connection = kept or self._cluster.new_connection(self._broker.host, self._broker.port)

        def fields(version: int) -> Mapping[str, Any]:
            if version < 3:
                return {"group_id": self._config.group_id, "member_id": member_id}
            member = {"member_id": member_id, "group_instance_id": group_instance_id}
            if version >= 5:
                member["reason"] = _sendable(reason)
            return {"group_id": self._config.group_id, "members": [member]}

        try:
            answer = await connection.request(
                "leave_group", fields, timeout=self._config.request_timeout
            )
        finally:
            if kept is None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                    await connection.aclose()
        codes = [
            answer.error_code,
            *(member.error_code for member in getattr(answer, "members", ())),
        ]
        for code in codes:
            if code:
                raise broker_error(Request.LEAVE, int(code), self._named(member_id))

    async def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_sent: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> Mapping[TopicPartition, int]:
        """See `Coordinator.commit`."""
        # The generation's own ids; since KIP-848 the schema has another name for the generation id.
        identity = self._identity(membership)
        identity["generation_id_or_member_epoch"] = identity.pop("generation_id")
        retention = self._config.offset_retention

        def fields(version: int) -> Mapping[str, Any]:
            kept = dict(identity)
            if 2 <= version <= _LAST_WITH_RETENTION:
                kept["retention_time"] = _retention(retention)
            kept["topics"] = [
                {
                    "name": topic,
                    "partitions": [
                        _commit_partition(number, offsets[TopicPartition(topic, number)], version)
                        for number in numbers
                    ],
                }
                for topic, numbers in by_topic(offsets).items()
            ]
            return kept

        return await self._request(
            self._offsets_connection,
            partial(responses.commit_codes, wanted=offsets.keys()),
            "offset_commit",
            fields,
            timeout=self._config.request_timeout,
            max_version=None if retention is None else _LAST_WITH_RETENTION,
            on_sent=on_sent,
            on_lost=on_lost,
        )

    async def fetch_offsets(
        self, membership: Membership, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """See `Coordinator.fetch_offsets`."""
        group_id = self._config.group_id
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in by_topic(partitions).items()
        ]

        def fields(version: int) -> Mapping[str, Any]:
            if version >= 8:
                groups = [{"group_id": group_id, "topics": topics}]
                return {"groups": groups, "require_stable": True}
            return {"group_id": group_id, "topics": topics, "require_stable": True}

        return await self._request(
            self._offsets_connection,
            partial(
                responses.committed_offsets,
                group_id=group_id,
                wanted=frozenset(partitions),
                subject=str(membership),
            ),
            "offset_fetch",
            fields,
            timeout=self._config.request_timeout,
        )

    async def _while_opening(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request, and meanwhile open the connection of the offsets.

        What prevents the opening is reported by the next request on that connection.
        """
        answer: Any = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._open_offsets_connection)
            try:
                answer = await send()
                nursery.cancel_scope.deadline = trio.current_time() + OPENING_GRACE
            except Exception as error:  # noqa: BLE001 # raised below, and not in a group
                failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return answer

    @trio.lowlevel.enable_ki_protection
    async def _open_offsets_connection(self) -> None:
        connection = self._offsets_connection
        if connection is not None:
            with suppress(KgroupError):
                await connection.open(timeout=self._config.request_timeout)

    async def _request(
        self,
        connection: BrokerConnection | None,
        read: Callable[[Any], T],
        api: str,
        fields: Any,
        *,
        timeout: float,  # noqa: ASYNC109 # its error is another than the caller's cancellation
        max_version: int | None = None,
        on_sent: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        long: Callable[[Any], bool] | None = None,
    ) -> T:
        if connection is None:
            await trio.lowlevel.checkpoint()
            raise ConnectionLostError(
                f"the coordinator of group {self._config.group_id!r} is not known; the request was"
                " not sent"
            )
        return await connection.request_value(
            read,
            api,
            fields,
            timeout=timeout,
            max_version=max_version,
            on_sent=on_sent,
            on_lost=on_lost,
            long=long,
        )

    async def _in_thread(self, work: Callable[[], T], what: str) -> T:
        """Work in a thread: in a large group, a leader decodes and encodes megabytes."""
        return await self._compute(work, f"kgroup-{what} {self._config.group_id}")

    def _identity(self, membership: Membership) -> dict[str, Any]:
        return {
            "group_id": membership.group_id,
            "generation_id": membership.generation_id,
            "member_id": membership.member_id,
            "group_instance_id": membership.group_instance_id,
        }

    def _subscription(
        self, assignor: Assignor, topics: Collection[str], claim: Claim | None
    ) -> bytes:
        # INVARIANT: the same topics and claim give the same bytes, because a follower that joins a
        # stable group with other bytes would start a rebalance.
        rack = self._config.rack_id
        owns = self._cooperates and claim is not None and not claim.lost
        try:
            user_data = user_data_of(assignor, claim)
        except BaseException as error:
            if not is_program_error(error):
                raise
            raise UserDataError(error) from error
        return encode_subscription(
            topics=topics,
            user_data=user_data,
            owned=claim.owned if claim is not None and owns else (),
            generation_id=claim.generation_id if claim is not None and owns else -1,
            rack_id=rack,
            version=LATEST_VERSION if self._cooperates or rack is not None else 0,
        )

    def _read_group(self, group: Any) -> DescribeResult:
        members = sorted(group.members, key=lambda member: str(member.member_id))
        return DescribeResult(
            stable=group.group_state == _STABLE,
            members=tuple(
                self._subscription_of(
                    member.member_metadata,
                    str(member.member_id),
                    getattr(member, "group_instance_id", None),
                )
                for member in members
            ),
            assignments={
                str(member.member_id): _decoded(member.member_assignment) for member in members
            },
        )

    def _read_join(self, answer: Any) -> Any:
        if not answer.error_code:
            responses.check_join(answer, self._assignors.keys(), PROTOCOL_TYPE)
        return answer

    def _read_members(self, members: Iterable[Any]) -> tuple[MemberSubscription, ...]:
        read = map(self._read_member, members)
        return tuple(sorted(read, key=lambda member: member.member_id))

    def _read_member(self, member: Any) -> MemberSubscription:
        instance = getattr(member, "group_instance_id", None)
        return self._subscription_of(member.metadata, member.member_id, instance)

    def _subscription_of(
        self, data: bytes, member_id: str, instance: str | None
    ) -> MemberSubscription:
        try:
            return decode_subscription(data, member_id=member_id, group_instance_id=instance)
        except ProtocolError:
            # A member's invalid bytes must not stop the others: that member gets no topics.
            return MemberSubscription(
                member_id=member_id, group_instance_id=instance, version=UNREADABLE
            )

    def _idle_connection(self) -> BrokerConnection | None:
        """A connection to the coordinator on which a request is sent at once, if there is one."""
        for connection in (self._membership_connection, self._offsets_connection):
            if connection is not None and connection.idle:
                return connection
        return None

    def _named(self, member_id: str) -> str:
        return f"member {member_id!r} of group {self._config.group_id!r}"


async def _close(connections: Iterable[BrokerConnection | None]) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
        for connection in connections:
            if connection is not None:
                await connection.aclose()
    await trio.lowlevel.checkpoint()


def _sendable(reason: str) -> str:
    """A reason that UTF-8 can encode, no longer than Kafka stores."""
    return reason[:_LONGEST_REASON].encode(errors="replace").decode()


def _unchanged(answer: Any) -> Any:
    return answer


def _read_sync(answer: Any) -> tuple[Any, Sequence[TopicPartition]]:
    if answer.error_code:
        return answer, ()
    try:
        return answer, decode_assignment(answer.assignment)
    except ProtocolError as error:  # the leader's bytes
        raise InvalidResponseError(f"carries an assignment that cannot be read: {error}") from error


def _encoded(assignments: MemberAssignments) -> list[Mapping[str, Any]]:
    return [
        {"member_id": member_id, "assignment": encode_assignment(partitions)}
        for member_id, partitions in sorted(assignments.items())
    ]


def _decoded(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none if the bytes cannot be decoded."""
    try:
        return tuple(decode_assignment(bytes(assignment)))
    except ProtocolError:
        return ()


def _retention(seconds: float | None) -> timedelta:
    """The retention of v2 to v4; with -1 the broker decides (KIP-211)."""
    if seconds is None:
        return timedelta(milliseconds=-1)
    return milliseconds(seconds, "offset_retention")


def _commit_partition(number: int, position: OffsetAndMetadata, version: int) -> Mapping[str, Any]:
    fields: dict[str, Any] = {
        "partition_index": number,
        "committed_offset": position.offset,
        "committed_metadata": position.metadata,
    }
    if version >= _FIRST_WITH_EPOCH:
        fields["committed_leader_epoch"] = position.leader_epoch
    return fields
