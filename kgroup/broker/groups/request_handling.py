"""How each request is handled: first its preconditions, then its group, then offsets or records.

Every function takes a request and returns its response, except for the requests of members: those
may be parked, and may cause responses to other requests.

Source: Kafka's ``GroupCoordinatorService``; ``KafkaApis`` for unknown partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kgroup.broker.groups import administration, offset_requests
from kgroup.broker.groups.error_responses import commit_errors, error_response, fetch_error_response
from kgroup.broker.groups.machine import GroupMachine, leave_response
from kgroup.broker.groups.record_sizes import offsets_batch
from kgroup.broker.groups.registry import Registry
from kgroup.broker.groups.requests import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetToCommit,
    SyncGroup,
    Ticket,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    CoordinatorResponse,
    DeletedGroup,
    DescribedGroup,
    FetchedGroup,
    GroupsDeleted,
    GroupsDescribed,
    GroupsListed,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    PartitionResult,
    Response,
)
from kgroup.broker.groups.validation import absent_group_error
from kgroup.broker.groups.write_faults import other_request_error
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

# Members

BY_MEMBERS: Final[
    Mapping[type, Callable[[GroupMachine, float, Any, Ticket], list[CoordinatorResponse]]]
] = {
    JoinGroup: GroupMachine.join,
    SyncGroup: GroupMachine.sync,
    Heartbeat: GroupMachine.heartbeat,
    LeaveGroup: GroupMachine.leave,
}


def of_member(
    registry: Registry, now: float, request: Any, ticket: Ticket
) -> list[CoordinatorResponse]:
    """Handle a JoinGroup, SyncGroup, Heartbeat or LeaveGroup."""
    error = registry.precondition_error(request, request.group_id)
    if error is not None:
        return [CoordinatorResponse(ticket, error_response(request, error))]
    machine = registry.machines.get(request.group_id)
    if machine is None:
        error = absent_group_error(request)
        if error is None and registry.is_full:
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is not None:
            return [CoordinatorResponse(ticket, _absent_group_response(request, error))]
        return registry.create_by_join(now, request, ticket)
    return BY_MEMBERS[type(request)](machine, now, request, ticket)


def _absent_group_response(request: Any, error: ErrorCode) -> Response:
    if isinstance(request, LeaveGroup):
        return leave_response(request, [error] * len(request.members))
    return error_response(request, error)


# Offsets


def commit(registry: Registry, now: float, request: OffsetCommit | TxnOffsetCommit) -> Response:
    """Handle an OffsetCommit or TxnOffsetCommit; unknown partitions never reach the group."""
    known = tuple(one for one in request.offsets if registry.exists(one.topic, one.partition))
    results = _unknown(registry, request.offsets)
    if known:
        error = registry.precondition_error(request, request.group_id)
        if error is None:
            results += _commit(registry, now, request, known)
        else:
            results += commit_errors(request, known, error)
    return OffsetsCommitted(partitions=results)


def _commit(
    registry: Registry,
    now: float,
    request: OffsetCommit | TxnOffsetCommit,
    known: tuple[OffsetToCommit, ...],
) -> tuple[PartitionResult, ...]:
    is_new = request.group_id not in registry.machines
    error = registry.validate(now, request)
    written = [one for one in known if not offset_requests.is_too_large(one, registry.settings)]
    if error is ErrorCode.NONE and written:
        size = offsets_batch(request.group_id, written)
        error = other_request_error(registry.write_faults.append(size))
    is_created = is_new and request.group_id in registry.machines
    if is_created and (error is not ErrorCode.NONE or not written):
        registry.discard(request.group_id)
    if error is not ErrorCode.NONE:
        return commit_errors(request, known, error)
    return offset_requests.commit(now, request, known, registry.store, registry.settings)


def fetch(registry: Registry, request: OffsetFetch) -> Response:
    """Handle an OffsetFetch."""

    def fetched(requested: OffsetFetchGroup) -> FetchedGroup:
        error = registry.precondition_error(request, requested.group_id)
        if error is not None:
            return fetch_error_response(request.version, requested, error)
        group = registry.group(requested.group_id)
        return offset_requests.fetch(
            requested, group, registry.store, stable=request.require_stable
        )

    return OffsetsFetched(groups=tuple(fetched(requested) for requested in request.groups))


def delete_offsets(registry: Registry, now: float, request: OffsetDelete) -> Response:
    """Handle an OffsetDelete."""
    error = registry.precondition_error(request, request.group_id) or registry.validate(
        now, request
    )
    if error is not ErrorCode.NONE:
        return error_response(request, error)
    known = tuple(one for one in request.partitions if registry.exists(one.topic, one.partition))
    group = registry.machines[request.group_id].group
    if offset_requests.deletable(group, known, registry.store):
        error = other_request_error(registry.write_faults.append())
        if error is not ErrorCode.NONE:
            return error_response(request, error)
    results = offset_requests.delete(group, known, registry.store)
    return OffsetsDeleted(partitions=_unknown(registry, request.partitions) + results)


def _unknown(
    registry: Registry, requested: tuple[OffsetToCommit, ...] | tuple[TopicPartition, ...]
) -> tuple[PartitionResult, ...]:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return tuple(
        PartitionResult(topic=one.topic, partition=one.partition, error=error)
        for one in requested
        if not registry.exists(one.topic, one.partition)
    )


# Administration


def describe(registry: Registry, request: DescribeGroups) -> Response:
    """Handle a DescribeGroups."""

    def described(group_id: str) -> DescribedGroup:
        error = registry.precondition_error(request, group_id)
        if error is not None:
            return DescribedGroup(group_id=group_id, error=error)
        return administration.describe(group_id, registry.group(group_id), request.version)

    return GroupsDescribed(groups=tuple(described(group_id) for group_id in request.group_ids))


def list_groups(registry: Registry, request: ListGroups) -> Response:
    """Handle a ListGroups."""
    error = registry.precondition_error_in_any_shard(request)
    if error is not None:
        return error_response(request, error)
    groups = (machine.group for machine in registry.machines.values())
    found = administration.filtered(groups, request.states, request.types)
    return GroupsListed(groups=tuple(map(administration.listed, found)))


def delete_groups(registry: Registry, now: float, request: DeleteGroups) -> Response:
    """Handle a DeleteGroups; each group is deleted once, those of one shard in one write."""
    refused = {name: registry.precondition_error(request, name) for name in request.group_ids}
    served = [name for name, error in refused.items() if error is None]
    written = dict.fromkeys(registry.shard_of(name) for name in served if registry.is_empty(name))
    failed = {shard: other_request_error(registry.write_faults.append()) for shard in written}

    def deleted(group_id: str) -> DeletedGroup:
        error = refused[group_id]
        if error is None:
            error = failed.get(registry.shard_of(group_id), ErrorCode.NONE)
            if error is ErrorCode.NONE:
                error = registry.delete(now, group_id, request)
        return DeletedGroup(group_id=group_id, error=error)

    return GroupsDeleted(groups=tuple(deleted(name) for name in refused))


READS: Final[Mapping[type, Callable[[Registry, Any], Response]]] = {
    OffsetFetch: fetch,
    DescribeGroups: describe,
    ListGroups: list_groups,
}
WRITES: Final[Mapping[type, Callable[[Registry, float, Any], Response]]] = {
    OffsetCommit: commit,
    TxnOffsetCommit: commit,
    OffsetDelete: delete_offsets,
    DeleteGroups: delete_groups,
}
