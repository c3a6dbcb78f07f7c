"""Fetches a live group from its cluster: members, owned partitions, topics and racks.

It only reads: the group's members are not affected.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from kgroup.cli.assign.group_input import GroupInput, check_partitions
from kgroup.cli.groups.subscriptions import describe_fields
from kgroup.client.cluster import Cluster
from kgroup.client.coordinator import PROTOCOL_TYPE
from kgroup.client.responses import group_of
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import UsageError
from kgroup.permissions import to_grant
from kgroup.runtime import Runtime
from kgroup.security.settings import Security
from kgroup.types import Claim, MemberSubscription, topic_fault
from kgroup.wire.consumer_protocol import decode_assignment, decode_subscription

_STABLE: Final = "Stable"


async def fetch_group(
    bootstrap_servers: str, group_id: str, runtime: Runtime, security: Security | None = None
) -> GroupInput:
    """Fetch a group's members, their assigned partitions, and their topics.

    DescribeGroups does not report the generation, so that all claims count alike.

    Args:
        bootstrap_servers: the cluster.
        group_id: the group.
        runtime: opens the connections.
        security: how they are encrypted, and how the client logs in.

    Raises:
        ConfigError: the servers or the group id are not valid.
        WrongInputError: the topics have more partitions than are allowed.
        UsageError: there is no such consumer group, or it is rebalancing.
        BrokerError | TransportError: a request failed.

    Cancellation: the connections are closed.
    """
    config = GroupConfig(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        topics=(re.compile(".*"),),
        security=Security() if security is None else security,
    )
    cluster = Cluster(config, runtime.open_stream, runtime.random)
    try:
        described = await _describe(cluster, config)
        members, claims = read_members(described)
        named = frozenset[str]().union(*(member.topics for member in members))
        wanted = frozenset(name for name in named if topic_fault(name) is None)
        metadata = await cluster.metadata(wanted, foreign=wanted) if wanted else None
        topics = metadata.topics if metadata else {}
        check_partitions(topics)
        return GroupInput(topics=topics, members=members, claims=claims)
    finally:
        await cluster.aclose()


async def _describe(cluster: Cluster, config: GroupConfig) -> Any:
    found = await cluster.find_coordinator(config.group_id)
    connection = cluster.new_connection(found.host, found.port)

    try:
        return await connection.request_value(
            partial(group_of, config.group_id),
            "describe_groups",
            partial(describe_fields, config.group_id),
            timeout=config.request_timeout,
        )
    finally:
        await connection.aclose()


def read_members(described: Any) -> tuple[tuple[MemberSubscription, ...], dict[str, Claim]]:
    """The members of a described group, sorted by id, and their assigned partitions.

    Args:
        described: a group of a DescribeGroups response.

    Raises:
        UsageError: it is not a stable consumer group; the text says what it is.
        ProtocolError: a member's subscription or assignment cannot be decoded.
    """
    group = f"group {str(described.group_id)!r}"
    code, state = int(described.error_code), str(described.group_state)
    if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        grant = to_grant(code, "DESCRIBE", group=str(described.group_id), may_be_missing=True)
        raise UsageError(
            f"{group} cannot be described: {code_name(code)}{f': {grant}' if grant else ''}"
        )
    if code or state == "Dead":
        raise UsageError(
            f"{group} does not exist, or does not use the classic protocol (the broker itself"
            " assigns the partitions of KIP-848 groups)"
        )
    if described.protocol_type not in ("", PROTOCOL_TYPE):
        raise UsageError(
            f"{group} is not a consumer group: its protocol type is {described.protocol_type!r}"
        )
    if not described.members:
        raise UsageError(f"{group} has no members (state {state})")
    if state != _STABLE:
        raise UsageError(
            f"{group} is rebalancing (state {state}): run the command again when it is stable"
        )
    members = sorted(
        (
            decode_subscription(
                bytes(member.member_metadata),
                member_id=str(member.member_id),
                group_instance_id=getattr(member, "group_instance_id", None),
            )
            for member in described.members
        ),
        key=lambda member: member.member_id,
    )
    claims = {
        str(member.member_id): Claim(owned, -1)
        for member in described.members
        if (owned := tuple(decode_assignment(bytes(member.member_assignment))))
    }
    return tuple(members), claims
