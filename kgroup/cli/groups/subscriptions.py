"""The topics to which each member of a group subscribes, which librdkafka does not report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kgroup.cli.groups.coordinator_request import CoordinatorRequest
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.client.responses import group_of
from kgroup.error_codes import ErrorCode
from kgroup.errors import ProtocolError
from kgroup.wire.consumer_protocol import decode_subscription

_AUTHORIZED_OPERATIONS: Final = 3
"""The first version of DescribeGroups with a field for authorized operations (KIP-430)."""

Subscriptions = Mapping[str, tuple[str, ...]]
"""The topics by member id, sorted; without members whose subscription cannot be read."""


def subscriptions(group_id: str) -> CoordinatorRequest[Subscriptions]:
    """The request for them; during a rebalance, the coordinator may say nothing of its members."""
    return CoordinatorRequest(
        Request.DESCRIBE,
        "describe_groups",
        partial(describe_fields, group_id),
        partial(_read, group_id),
        "the subscriptions",
    )


def describe_fields(group_id: str, version: int) -> Mapping[str, Any]:
    """The fields of DescribeGroups for one group, by version."""
    fields: dict[str, Any] = {"groups": [group_id]}
    if version >= _AUTHORIZED_OPERATIONS:
        fields["include_authorized_operations"] = False
    return fields


def _read(group_id: str, answer: Any) -> Subscriptions:
    group = group_of(group_id, answer)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}  # its last member has just left
    if group.error_code:
        raise broker_error(Request.DESCRIBE, int(group.error_code), f"group {group_id!r}")
    found: dict[str, tuple[str, ...]] = {}
    for member in group.members:
        member_id = str(member.member_id)
        try:
            read = decode_subscription(
                bytes(member.member_metadata), member_id=member_id, group_instance_id=None
            )
        except ProtocolError:
            continue
        found[member_id] = tuple(sorted(read.topics))
    return found
