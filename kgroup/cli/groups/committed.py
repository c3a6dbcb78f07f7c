"""Fetches all offsets that a group has committed, through kgroup's own connections.

librdkafka's call for it cannot be used: in confluent-kafka 2.16.1 it crashes the process when the
coordinator answers NOT_COORDINATOR, as it does while it moves to another broker. And a consumer's
call for it needs the partitions by name, which only the group knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from kgroup.cli.admin_client import CLIENT_ID, ClusterError
from kgroup.cli.options import one_line
from kgroup.cli.signals import run_whole
from kgroup.client.backoff import Backoff
from kgroup.client.cluster import Cluster
from kgroup.client.error_policy import Reaction, Request, broker_error
from kgroup.client.retry import find_coordinator, until_answered
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, KgroupError
from kgroup.group import default_runtime
from kgroup.permissions import to_grant
from kgroup.runtime import Runtime
from kgroup.security.settings import Security
from kgroup.types import BrokerAddress, TopicPartition
from kgroup.wire.broker_connection import InvalidResponseError

__all__ = ["fetch_committed", "request_committed"]

_GROUPS: Final = 8
"""The first version of OffsetFetch that is about several groups (KIP-709)."""
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 1.0
"""Seconds between two attempts; the wait doubles from the first to this."""


def fetch_committed(
    bootstrap_servers: str, group_id: str, security: Security, timeout: float
) -> Mapping[TopicPartition, int]:
    """The committed offset of each partition that has one; of an unknown group none. It blocks.

    Args:
        bootstrap_servers: the cluster.
        group_id: the group.
        security: how connections are encrypted, and how the client logs in.
        timeout: seconds for all of it.

    Raises:
        ClusterError: they cannot be fetched.
    """
    config = GroupConfig(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        topics=(re.compile(".*"),),
        client_id=CLIENT_ID,
        security=security,
    )
    failure = f"the offsets of group {group_id!r} cannot be fetched"

    async def within_timeout() -> Mapping[TopicPartition, int]:
        reasons: list[str] = []
        with trio.move_on_after(timeout):
            return await request_committed(config, default_runtime(), reasons.append)
        reason = f": {reasons[-1]}" if reasons else ""
        raise ClusterError(f"{failure} within {timeout:g} s{reason}")

    try:
        return run_whole(within_timeout)
    except KgroupError as error:
        raise ClusterError(f"{failure}: {_why(error, group_id)}") from error


def _why(error: KgroupError, group_id: str) -> str:
    """The error's text; its advice is for members, which need more than this command."""
    if isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"{error.name}: {to_grant(error.code, 'DESCRIBE', group=group_id)}"
    return one_line(error)


async def request_committed(
    config: GroupConfig, runtime: Runtime, failed: Callable[[str], None]
) -> Mapping[TopicPartition, int]:
    """The same until it succeeds, or a retry cannot help.

    Args:
        config: the cluster, the group and the security.
        runtime: opens the connections.
        failed: is called with each failure that is retried.

    Raises:
        BrokerError | TransportError: a retry cannot help.

    Cancellation: the connections are closed.
    """
    cluster = Cluster(config, runtime.open_stream, runtime.random)
    backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT, runtime.random)

    def report(request: Request, error: KgroupError, reaction: Reaction) -> None:
        del request, reaction
        failed(one_line(error))

    coordinator: list[BrokerAddress] = []

    async def find() -> None:
        coordinator[:] = [await cluster.find_coordinator(config.group_id)]

    try:
        await find_coordinator(find, backoff, report)
        return await until_answered(
            Request.FETCH_OFFSETS,
            lambda: _request(cluster, coordinator[0], config),
            find=find,
            backoff=backoff,
            report=report,
        )
    finally:
        await cluster.aclose()


async def _request(
    cluster: Cluster, coordinator: BrokerAddress, config: GroupConfig
) -> Mapping[TopicPartition, int]:
    connection = cluster.new_connection(coordinator.host, coordinator.port)
    try:
        return await connection.request_value(
            partial(_read, config.group_id),
            "offset_fetch",
            partial(_fields, config.group_id),
            timeout=config.request_timeout,
        )
    finally:
        await connection.aclose()


def _fields(group_id: str, version: int) -> Mapping[str, Any]:
    """The request for all offsets, those of open transactions without their outcome."""
    group = {"group_id": group_id, "topics": None}
    if version >= _GROUPS:
        return {"groups": [group], "require_stable": False}
    return {**group, "require_stable": False}


def _read(group_id: str, answer: Any) -> Mapping[TopicPartition, int]:
    group = answer
    if hasattr(answer, "groups"):
        if [one.group_id for one in answer.groups] != [group_id]:
            raise InvalidResponseError(f"is about other groups than {group_id!r}")
        group = answer.groups[0]
    if group.error_code:
        raise broker_error(Request.FETCH_OFFSETS, int(group.error_code), f"group {group_id!r}")
    offsets: dict[TopicPartition, int] = {}
    for topic in group.topics:
        for one in topic.partitions:
            partition = TopicPartition(str(topic.name), int(one.partition_index))
            if one.error_code:
                raise broker_error(Request.FETCH_OFFSETS, int(one.error_code), str(partition))
            if one.committed_offset >= 0:
                offsets[partition] = int(one.committed_offset)
    return dict(sorted(offsets.items()))
