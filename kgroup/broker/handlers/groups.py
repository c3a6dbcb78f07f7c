"""The group protocol: translates requests into the coordinator's values, and its responses back.

Nothing is decided here. The coordinator responds, at once or later.

Source: Kafka's message definitions; the rules are in ``kgroup.broker.groups``.
"""

from __future__ import annotations

from typing import Any, Final

from kgroup.broker.authorization import OPERATIONS_NOT_REQUESTED, authorized_operations
from kgroup.broker.groups import requests, responses
from kgroup.broker.handlers.grouping import by_topic, seconds
from kgroup.broker.request_context import NEVER_ANSWERED, NoResponse, RequestContext
from kgroup.broker.request_error import RequestError, shortened
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import ResourceType
from kgroup.broker.time_slices import BYTES_OF_AN_ITEM
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

_REBALANCE_TIMEOUT_FROM: Final = 1
_LEAVES_IN_BATCHES_FROM: Final = 3
_FETCHES_IN_BATCHES_FROM: Final = 8
_BROKERS_OWN: Final = -0.001
"""The retention time (-1 ms) that means the broker's own."""
_NO_EPOCH: Final = -1
_LONGEST_NAME: Final = 2**15 - 1 - 37
"""The most bytes of a client or instance id: with a dash and a UUID it must fit in a text."""
_MOST_PROTOCOLS: Final = 1000
"""The most protocols of a member; the vote for one counts those of all members at once."""


async def join_group(context: RequestContext) -> ResponseFields | NoResponse:
    """Answer JoinGroup, once the join of the group has completed."""
    request = context.request
    _check_names(context)
    if len(request.protocols) > _MOST_PROTOCOLS:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(request.protocols)} protocols are too many; {_MOST_PROTOCOLS} are allowed",
        )
    await context.work.spend(len(request.protocols))
    context.work.release()
    rebalance = (
        seconds(request.rebalance_timeout) if context.version >= _REBALANCE_TIMEOUT_FROM else None
    )
    answer = await context.node.groups.handle_parkable(
        requests.JoinGroup(
            group_id=request.group_id,
            version=context.version,
            client_id=context.client_id,
            client_host=context.client_host,
            session_timeout=seconds(request.session_timeout),
            rebalance_timeout=rebalance,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            protocol_type=request.protocol_type,
            protocols=tuple(
                requests.Protocol(protocol.name, protocol.metadata)
                for protocol in request.protocols
            ),
            reason=getattr(request, "reason", None),
        ),
        responses.JoinCompleted,
    )
    if answer is None:
        return NEVER_ANSWERED
    await context.work.include(len(answer.members))
    return {
        "error_code": answer.error,
        "generation_id": answer.generation_id,
        "protocol_type": answer.protocol_type,
        # Without a name, Kafka sends null if the version has null, else an empty text.
        "protocol_name": answer.protocol_name or None,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }


def _check_names(context: RequestContext) -> None:
    """Refuse names that are too long for a member id, which is one of them and a UUID."""
    for name in (context.client_id, getattr(context.request, "group_instance_id", None) or ""):
        if len(name.encode()) > _LONGEST_NAME:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"a client or instance id of {len(name)} characters is too long",
            )


async def sync_group(context: RequestContext) -> ResponseFields | NoResponse:
    """Answer SyncGroup, once the leader has synced."""
    request = context.request
    await context.work.spend(len(request.assignments))
    context.work.release()
    answer = await context.node.groups.handle_parkable(
        requests.SyncGroup(
            group_id=request.group_id,
            version=context.version,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            protocol_type=getattr(request, "protocol_type", None),
            protocol_name=getattr(request, "protocol_name", None),
            assignments=tuple(
                requests.MemberAssignment(given.member_id, given.assignment)
                for given in request.assignments
            ),
        ),
        responses.SyncCompleted,
    )
    if answer is None:
        return NEVER_ANSWERED
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }


async def heartbeat(context: RequestContext) -> ResponseFields:
    """Answer Heartbeat."""
    request = context.request
    answer = await context.node.groups.handle(
        requests.Heartbeat(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
        ),
        responses.HeartbeatCompleted,
    )
    return {"error_code": answer.error}


async def leave_group(context: RequestContext) -> ResponseFields:
    """Answer LeaveGroup, for one member or for several."""
    request = context.request
    batched = context.version >= _LEAVES_IN_BATCHES_FROM
    await context.work.spend(len(request.members) if batched else 1)
    answer = await context.node.groups.handle(
        requests.LeaveGroup(
            group_id=request.group_id,
            version=context.version,
            members=tuple(
                requests.LeavingMember(
                    member_id=member.member_id,
                    group_instance_id=getattr(member, "group_instance_id", None),
                    reason=getattr(member, "reason", None),
                )
                for member in (request.members if batched else (request,))
            ),
        ),
        responses.LeaveCompleted,
    )
    return {
        "error_code": answer.error,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": member.error,
            }
            for member in answer.members
        ],
    }


async def offset_commit(context: RequestContext) -> ResponseFields:
    """Answer OffsetCommit."""
    request = context.request
    retention = getattr(request, "retention_time", None)
    own = retention is None or seconds(retention) == _BROKERS_OWN
    offsets = offsets_of(request)
    await context.work.spend(len(offsets))
    answer = await context.node.groups.handle(
        requests.OffsetCommit(
            group_id=request.group_id,
            version=context.version,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            retention_time=None if own or retention is None else seconds(retention),
            offsets=offsets,
        ),
        responses.OffsetsCommitted,
    )
    return {"topics": results(answer.partitions)}


def offsets_of(request: Any) -> tuple[requests.OffsetToCommit, ...]:
    """The offsets of an OffsetCommit or a TxnOffsetCommit."""
    return tuple(
        requests.OffsetToCommit(
            topic=topic.name,
            partition=part.partition_index,
            offset=part.committed_offset,
            leader_epoch=getattr(part, "committed_leader_epoch", _NO_EPOCH),
            metadata=part.committed_metadata,
        )
        for topic in request.topics
        for part in topic.partitions
    )


def results(partitions: tuple[responses.PartitionResult, ...]) -> list[dict[str, Any]]:
    """The result of each partition, by topic."""
    return by_topic(
        partitions,
        lambda result: {"partition_index": result.partition, "error_code": result.error},
    )


async def offset_fetch(context: RequestContext) -> ResponseFields:
    """Answer OffsetFetch, for one group or for several."""
    request = context.request
    batched = context.version >= _FETCHES_IN_BATCHES_FROM
    groups = request.groups if batched else (request,)
    fetched: list[dict[str, Any]] = []
    async for group in context.work.each(groups):
        requested = requests.OffsetFetchGroup(
            group_id=group.group_id, partitions=_partitions(group)
        )
        await context.work.spend(len(requested.partitions or ()))
        answer = await context.node.groups.handle(
            requests.OffsetFetch(
                version=context.version,
                groups=(requested,),
                require_stable=getattr(request, "require_stable", False),
            ),
            responses.OffsetsFetched,
        )
        (found,) = answer.groups
        await context.work.include(len(found.partitions))
        await context.work.include_bytes(sum(len(one.metadata) for one in found.partitions))
        fetched.append(
            {
                "group_id": found.group_id,
                "error_code": found.error,
                "topics": by_topic(found.partitions, _fetched),
            }
        )
    if batched:
        return {"groups": fetched}
    return {"topics": fetched[0]["topics"], "error_code": fetched[0]["error_code"]}


def _partitions(group: Any) -> tuple[TopicPartition, ...] | None:
    if group.topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, number)
        for topic in group.topics
        for number in topic.partition_indexes
    )


def _fetched(offset: responses.FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": offset.partition,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": offset.error,
    }


async def offset_delete(context: RequestContext) -> ResponseFields:
    """Answer OffsetDelete."""
    request = context.request
    partitions = tuple(
        TopicPartition(topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    )
    await context.work.spend(len(partitions))
    answer = await context.node.groups.handle(
        requests.OffsetDelete(group_id=request.group_id, partitions=partitions),
        responses.OffsetsDeleted,
    )
    return {"error_code": answer.error, "topics": results(answer.partitions)}


async def describe_groups(context: RequestContext) -> ResponseFields:
    """Answer DescribeGroups."""
    described: list[responses.DescribedGroup] = []
    async for group_id in context.work.each(context.request.groups):
        answer = await context.node.groups.handle(
            requests.DescribeGroups(version=context.version, group_ids=(group_id,)),
            responses.GroupsDescribed,
        )
        described += answer.groups
        await context.work.include(sum(_cost(group) for group in answer.groups))
    wanted = getattr(context.request, "include_authorized_operations", False)
    return {
        "groups": [
            {
                "error_code": group.error,
                "error_message": group.error_message and shortened(group.error_message),
                "group_id": group.group_id,
                "group_state": group.state,
                "protocol_type": group.protocol_type,
                "protocol_data": group.protocol_name,
                "members": [
                    {
                        "member_id": member.member_id,
                        "group_instance_id": member.group_instance_id,
                        "client_id": member.client_id,
                        "client_host": member.client_host,
                        "member_metadata": member.metadata,
                        "member_assignment": member.assignment,
                    }
                    for member in group.members
                ],
                "authorized_operations": (
                    await authorized_operations(context, ResourceType.GROUP, group.group_id)
                    if wanted and not group.error
                    else OPERATIONS_NOT_REQUESTED
                ),
            }
            for group in described
        ]
    }


def _cost(group: responses.DescribedGroup) -> int:
    """The items that a described group counts for: its members, and the bytes that they sent."""
    carried = sum(
        len(one.member_id) + len(one.client_id) + len(one.metadata) + len(one.assignment)
        for one in group.members
    )
    return 1 + len(group.members) + carried // BYTES_OF_AN_ITEM


async def list_groups(context: RequestContext) -> ResponseFields:
    """Answer ListGroups."""
    answer = await context.node.groups.handle(
        requests.ListGroups(
            states=tuple(getattr(context.request, "states_filter", ())),
            types=tuple(getattr(context.request, "types_filter", ())),
        ),
        responses.GroupsListed,
    )
    await context.work.include(len(answer.groups))
    await context.work.include_bytes(
        sum(len(one.group_id) + len(one.protocol_type) for one in answer.groups)
    )
    return {
        "error_code": answer.error,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.type,
            }
            for group in answer.groups
        ],
    }


async def delete_groups(context: RequestContext) -> ResponseFields:
    """Answer DeleteGroups."""
    await context.work.spend(len(context.request.groups_names))
    answer = await context.node.groups.handle(
        requests.DeleteGroups(group_ids=tuple(context.request.groups_names)),
        responses.GroupsDeleted,
    )
    return {
        "results": [
            {"group_id": group.group_id, "error_code": group.error} for group in answer.groups
        ]
    }
