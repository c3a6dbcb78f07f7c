"""The actions of rules on members: add, replace, respond, park, remove.

Source: Kafka's ``GroupMetadataManager``, the method named at each action.
"""

from __future__ import annotations

import attrs

from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.members import ClassicGroupMember
from kgroup.broker.groups.requests import JoinGroup
from kgroup.broker.groups.responses import JoinCompleted, SyncCompleted
from kgroup.broker.groups.states import DEAD, EMPTY, PREPARING, STABLE
from kgroup.broker.groups.timers import TimerKind
from kgroup.broker.groups.write_faults import join_or_sync_error
from kgroup.error_codes import ErrorCode

_FIRST_WITH_SKIP_ASSIGNMENT = 9
"""The JoinGroup version whose response can have SkipAssignment for a returning leader (KIP-814)."""

# JoinGroup


def remove_rejected(context: EventContext) -> None:
    """Remove the member if the group has it but no room for it; this completes no join."""
    context.group.remove(context.event.member_id)
    context.end_session(context.event.member_id)


def assign_member_id(context: EventContext) -> None:
    """Give the client a member id to join with: MEMBER_ID_REQUIRED (79)."""
    request: JoinGroup = context.event
    member_id = _new_member_id(context)
    context.group.pending[member_id] = None
    context.start_session(member_id, request.session_timeout)
    context.respond(JoinCompleted(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))


def add_member(context: EventContext) -> None:
    """Add a new member and let its join wait (``addMemberThenRebalanceOrCompleteJoin``).

    The client may not know its id yet, and then cannot send heartbeats. So its session timer runs
    for a fixed time until the join completes, whatever the session time-out.
    """
    request: JoinGroup = context.event
    group = context.group
    member = ClassicGroupMember(
        member_id=request.member_id or _new_member_id(context),
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout=_rebalance_timeout(request),
        session_timeout=request.session_timeout,
        protocols=request.protocols,
        is_new=True,
    )
    if group.state is PREPARING and group.previous is EMPTY:
        group.new_member_added = True
    group.add(member, request.protocol_type)
    group.park_join(member, context.park())
    context.start_session(member.member_id, context.settings.new_member_join_timeout)


def rejoin(context: EventContext) -> None:
    """Update a member and let its join wait; an older waiting join of it is dropped.

    Its session timer is not restarted (``updateMemberThenRebalanceOrCompleteJoin``).
    """
    _update(context, context.group.members[context.event.member_id])


def replace_instance(context: EventContext) -> None:
    """Replace a static member by its new process, and let the join wait.

    Waiting requests of the old process are answered FENCED_INSTANCE_ID (82)
    (``replaceStaticMember``).
    """
    _update(context, _fence(context))


def replace_instance_without_rebalance(context: EventContext) -> None:
    """Replace a static member by its new process, which keeps the assignment; respond at once.

    Waiting requests of the old process are answered FENCED_INSTANCE_ID (82)
    (``replaceStaticMember``).
    From version 9 on, the response gives a leader the members, with SkipAssignment set.
    Before, it names the leader's old member id as leader, so that the new process does not assign.
    """
    request: JoinGroup = context.event
    group = context.group
    old_leader = group.leader
    old_id = group.instance(context.event.group_instance_id).member_id
    member = _fence(context)
    _update(context, member)
    group.rewrite_record(context.now, old_id, member)
    leads = member.member_id == group.leader
    if request.version >= _FIRST_WITH_SKIP_ASSIGNMENT:
        response = context.join_response(member.member_id, with_members=leads)
        response = attrs.evolve(response, skip_assignment=leads)
    else:
        response = context.join_response(member.member_id, with_members=False)
        response = attrs.evolve(response, leader=old_leader or "")
    context.respond_to_join(member, response)


def refuse_replacement(context: EventContext) -> None:
    """Keep the old process as member; the new one gets the error of the failed write, and no id."""
    old = context.group.instance(context.event.group_instance_id)
    context.extend_session(old)
    response = context.join_response("", with_members=False)
    error = context.write_faults.append(context.group.batch_with_replaced(context.event))
    context.respond(attrs.evolve(response, error=join_or_sync_error(error)))


def write_empty_record(context: EventContext) -> None:
    """Write the record of a group without members."""
    context.group.write_empty_record(context.now)


def fail_joins(context: EventContext) -> None:
    """Answer all waiting joins with the error of the failed write, without a member id."""
    error = join_or_sync_error(context.write_faults.append())
    for member in context.group.members.values():
        context.respond_to_join(member, JoinCompleted(error=error))


def repeat_join_response(context: EventContext) -> None:
    """Send the member the current generation again; its session timer is not restarted."""
    member_id = context.event.member_id
    leads = member_id == context.group.leader
    context.respond(context.join_response(member_id, with_members=leads))


def _new_member_id(context: EventContext) -> str:
    prefix = context.event.group_instance_id
    return f"{context.event.client_id if prefix is None else prefix}-{context.new_id()}"


def _rebalance_timeout(request: JoinGroup) -> float:
    timeout = request.rebalance_timeout
    return request.session_timeout if timeout is None else timeout


def _fence(context: EventContext) -> ClassicGroupMember:
    """Fence the instance's old process, and give the member a new id."""
    instance = context.event.group_instance_id
    old = context.group.instance(instance)
    context.respond_to_join(
        old, JoinCompleted(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id)
    )
    context.respond_to_sync(old, ErrorCode.FENCED_INSTANCE_ID)
    context.end_session(old.member_id)
    member = context.group.replace(instance, _new_member_id(context))
    context.extend_session(member)
    return member


def _update(context: EventContext, member: ClassicGroupMember) -> None:
    request: JoinGroup = context.event
    context.group.set_protocols(member, request.protocols)
    member.rebalance_timeout = _rebalance_timeout(request)
    member.session_timeout = request.session_timeout
    context.respond_to_parked(context.group.park_join(member, context.park()), None)


# SyncGroup


def park_sync(context: EventContext) -> None:
    """Let a sync wait until the leader's comes; an older waiting sync of the member is dropped."""
    member = context.group.members[context.event.member_id]
    context.respond_to_parked(member.parked_sync, None)
    member.parked_sync = context.park()
    record_sync(context)


def record_sync(context: EventContext) -> None:
    """Note a member's sync; the last one cancels the timer (``removePendingSyncMember``)."""
    context.group.unsynced.pop(context.event.member_id, None)
    if not context.group.unsynced:
        context.cancel_timer(TimerKind.SYNC)


def apply_assignments(context: EventContext) -> None:
    """Store the leader's assignments and answer all syncs; a member left out gets empty bytes."""
    group = context.group
    given = {one.member_id: one.assignment for one in context.event.assignments}
    for member in group.members.values():
        member.assignment = given.get(member.member_id, b"")
    group.write_record(context.now)
    for member in group.members.values():
        if context.respond_to_sync(member, ErrorCode.NONE):
            context.extend_session(member)
    group.enter(STABLE, context.now)


def fail_syncs(context: EventContext) -> None:
    """Answer all waiting syncs with the error of the failed write; no member has an assignment."""
    size = context.group.batch_with(context.event.assignments)
    error = join_or_sync_error(context.write_faults.append(size))
    for member in context.group.members.values():
        member.assignment = b""
        if context.respond_to_sync(member, error):
            context.extend_session(member)


def repeat_sync_response(context: EventContext) -> None:
    """Send the member its assignment again; its session timer is not restarted."""
    group = context.group
    context.respond(
        SyncCompleted(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=group.members[context.event.member_id].assignment,
        )
    )


# Heartbeat and OffsetCommit


def extend_session(context: EventContext) -> None:
    """Start the member's session again (``rescheduleClassicGroupMemberHeartbeat``)."""
    context.extend_session(context.group.members[context.event.member_id])


# LeaveGroup and timers


def remove_pending(context: EventContext) -> None:
    """Forget a member id that was given out and not used."""
    context.group.remove(context.event.member_id)
    context.end_session(context.event.member_id)


def remove_member(context: EventContext) -> None:
    """Remove a member; its waiting join is answered UNKNOWN_MEMBER_ID (25), its sync never."""
    _remove(context, context.event.member_id)


def remove_instance(context: EventContext) -> None:
    """Remove a static member that an administrator named by its instance id alone.

    Its waiting join is answered UNKNOWN_MEMBER_ID (25), its sync never.
    """
    _remove(context, context.group.instance(context.event.group_instance_id).member_id)


def remove_unsynced(context: EventContext) -> None:
    """Remove the members that have not synced in time."""
    for member_id in list(context.group.unsynced):
        context.group.remove(member_id)
        context.end_session(member_id)


# The end of a group


def fail_all_parked(context: EventContext) -> None:
    """Answer all waiting requests NOT_COORDINATOR (16): the next coordinator has the group."""
    for member in context.group.members.values():
        error_response = JoinCompleted(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
        context.respond_to_join(member, error_response)
        context.respond_to_sync(member, ErrorCode.NOT_COORDINATOR)


def mark_dead(context: EventContext) -> None:
    """End the group: cancel all its timers."""
    group = context.group
    for member_id in (*group.members, *group.pending):
        context.end_session(member_id)
    context.cancel_timer(TimerKind.JOIN)
    context.cancel_timer(TimerKind.SYNC)
    group.enter(DEAD, context.now)


def _remove(context: EventContext, member_id: str) -> None:
    """Remove a member: its waiting join is answered so that it can join again, its sync never."""
    member = context.group.members[member_id]
    context.end_session(member_id)
    context.respond_to_join(member, JoinCompleted(error=ErrorCode.UNKNOWN_MEMBER_ID))
    context.respond_to_parked(member.parked_sync, None)
    context.group.remove(member_id)
