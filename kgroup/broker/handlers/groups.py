"""The calls of the group protocol: what came over the wire as the coordinator's values, and back.

Nothing is decided here. The coordinator answers, at once or when its answer is due.

Source: Kafka's message definitions; the rules are in ``kgroup.broker.groups``.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kgroup.broker.groups import requests, responses
from kgroup.broker.handlers.grouping import by_topic, seconds
from kgroup.broker.request_context import SILENCE, NoResponse, RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import Answer
from kgroup.broker.time_slices import BYTES_OF_AN_ITEM
from kgroup.types import TopicPartition

_REBALANCE_TIMEOUT_FROM: Final = 1
_LEAVES_IN_BATCHES_FROM: Final = 3
_FETCHES_IN_BATCHES_FROM: Final = 8
_BROKERS_OWN: Final = -0.001
"""The retention time (-1 ms) that leaves it to the broker."""
_NO_EPOCH: Final = -1
_ALLOWED: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""What everybody may do to a group, as Kafka's ``AclOperation`` numbers it: read, delete,
describe, describe its configuration, alter that."""
_LONGEST_NAME: Final = 2**15 - 1 - 37
"""Bytes of a client or instance id: with a dash and a UUID behind it, it still fits a text."""
_NOT_TOLD: Final = -(1 << 31)


async def join_group(call: RequestContext) -> Answer | NoResponse:
    """Answer JoinGroup; it waits until the group is complete."""
    request = call.request
    _check_names(call)
    await call.work.spend(len(request.protocols))
    call.work.rest()
    rebalance = (
        seconds(request.rebalance_timeout) if call.version >= _REBALANCE_TIMEOUT_FROM else None
    )
    answer = await call.node.groups.ask_parked(
        requests.JoinGroup(
            group_id=request.group_id,
            version=call.version,
            client_id=call.client_id,
            client_host=call.client_host,
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
        return SILENCE
    await call.work.include(len(answer.members))
    return {
        "error_code": answer.error,
        "generation_id": answer.generation_id,
        "protocol_type": answer.protocol_type,
        # No name is null where the version knows null (``JoinGroupResponse``), else empty.
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


def _check_names(call: RequestContext) -> None:
    """Refuse names of which no member id can be made: it is one of them and a UUID, and a text."""
    for name in (call.client_id, getattr(call.request, "group_instance_id", None) or ""):
        if len(name.encode()) > _LONGEST_NAME:
            raise RequestError(
                ErrorCode.invalid_request, f"a client or instance id of {len(name)} characters"
            )


async def sync_group(call: RequestContext) -> Answer | NoResponse:
    """Answer SyncGroup; it waits for the leader's."""
    request = call.request
    await call.work.spend(len(request.assignments))
    call.work.rest()
    answer = await call.node.groups.ask_parked(
        requests.SyncGroup(
            group_id=request.group_id,
            version=call.version,
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
        return SILENCE
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }


async def heartbeat(call: RequestContext) -> Answer:
    """Answer Heartbeat."""
    request = call.request
    answer = await call.node.groups.ask(
        requests.Heartbeat(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
        ),
        responses.HeartbeatCompleted,
    )
    return {"error_code": answer.error}


async def leave_group(call: RequestContext) -> Answer:
    """Answer LeaveGroup, of one member or of several."""
    request = call.request
    batched = call.version >= _LEAVES_IN_BATCHES_FROM
    await call.work.spend(len(request.members) if batched else 1)
    answer = await call.node.groups.ask(
        requests.LeaveGroup(
            group_id=request.group_id,
            version=call.version,
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


async def offset_commit(call: RequestContext) -> Answer:
    """Answer OffsetCommit."""
    request = call.request
    retention = getattr(request, "retention_time", None)
    own = retention is None or seconds(retention) == _BROKERS_OWN
    offsets = offsets_of(request)
    await call.work.spend(len(offsets))
    answer = await call.node.groups.ask(
        requests.OffsetCommit(
            group_id=request.group_id,
            version=call.version,
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
    """What became of each partition, by topic."""
    return by_topic(
        partitions,
        lambda result: {"partition_index": result.partition, "error_code": result.error},
    )


async def offset_fetch(call: RequestContext) -> Answer:
    """Answer OffsetFetch, of one group or of several."""
    request = call.request
    batched = call.version >= _FETCHES_IN_BATCHES_FROM
    groups = request.groups if batched else (request,)
    fetched: list[dict[str, Any]] = []
    async for group in call.work.each(groups):
        asked = requests.OffsetFetchGroup(group_id=group.group_id, partitions=_partitions(group))
        await call.work.spend(len(asked.partitions or ()))
        answer = await call.node.groups.ask(
            requests.OffsetFetch(
                version=call.version,
                groups=(asked,),
                require_stable=getattr(request, "require_stable", False),
            ),
            responses.OffsetsFetched,
        )
        (found,) = answer.groups
        await call.work.include(len(found.partitions))
        await call.work.include_bytes(sum(len(one.metadata) for one in found.partitions))
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


async def offset_delete(call: RequestContext) -> Answer:
    """Answer OffsetDelete."""
    request = call.request
    partitions = tuple(
        TopicPartition(topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    )
    await call.work.spend(len(partitions))
    answer = await call.node.groups.ask(
        requests.OffsetDelete(group_id=request.group_id, partitions=partitions),
        responses.OffsetsDeleted,
    )
    return {"error_code": answer.error, "topics": results(answer.partitions)}


async def describe_groups(call: RequestContext) -> Answer:
    """Answer DescribeGroups."""
    described: list[responses.DescribedGroup] = []
    async for group_id in call.work.each(call.request.groups):
        answer = await call.node.groups.ask(
            requests.DescribeGroups(version=call.version, group_ids=(group_id,)),
            responses.GroupsDescribed,
        )
        described += answer.groups
        await call.work.include(sum(_cost(group) for group in answer.groups))
    told = getattr(call.request, "include_authorized_operations", False)
    return {
        "groups": [
            {
                "error_code": group.error,
                "error_message": group.error_message,
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
                "authorized_operations": _ALLOWED if told and not group.error else _NOT_TOLD,
            }
            for group in described
        ]
    }


def _cost(group: responses.DescribedGroup) -> int:
    """Items that a described group stands for: its members, and what they have sent along."""
    carried = sum(
        len(one.member_id) + len(one.client_id) + len(one.metadata) + len(one.assignment)
        for one in group.members
    )
    return 1 + len(group.members) + carried // BYTES_OF_AN_ITEM


async def list_groups(call: RequestContext) -> Answer:
    """Answer ListGroups."""
    answer = await call.node.groups.ask(
        requests.ListGroups(
            states=tuple(getattr(call.request, "states_filter", ())),
            types=tuple(getattr(call.request, "types_filter", ())),
        ),
        responses.GroupsListed,
    )
    await call.work.include(len(answer.groups))
    await call.work.include_bytes(
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


async def delete_groups(call: RequestContext) -> Answer:
    """Answer DeleteGroups."""
    await call.work.spend(len(call.request.groups_names))
    answer = await call.node.groups.ask(
        requests.DeleteGroups(group_ids=tuple(call.request.groups_names)),
        responses.GroupsDeleted,
    )
    return {
        "results": [
            {"group_id": group.group_id, "error_code": group.error} for group in answer.groups
        ]
    }
