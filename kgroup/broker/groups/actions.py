"""What rules do to members: take in, replace, answer, park, remove.

Source: Kafka's ``GroupMetadataManager``, the method named at each action.
"""

from __future__ import annotations

import attrs

from kgroup.broker.groups.codes import ErrorCode
from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.members import ClassicGroupMember
from kgroup.broker.groups.requests import JoinGroup
from kgroup.broker.groups.responses import JoinCompleted, SyncCompleted
from kgroup.broker.groups.states import DEAD, EMPTY, PREPARING, STABLE
from kgroup.broker.groups.timers import TimerKind
from kgroup.broker.groups.write_faults import answered

_FIRST_WITH_SKIP_ASSIGNMENT = 9
"""The JoinGroup version from which a returning leader is told not to assign (KIP-814)."""

# JoinGroup


def turn_away(turn: EventContext) -> None:
    """Whoever finds no room loses its place, if it had one; no join completes by that."""
    turn.group.remove(turn.event.member_id)
    turn.end_session(turn.event.member_id)


def hand_out_id(turn: EventContext) -> None:
    """Give an id to come back with: MEMBER_ID_REQUIRED (79)."""
    request: JoinGroup = turn.event
    member_id = _new_member_id(turn)
    turn.group.pending[member_id] = None
    turn.start_session(member_id, request.session_timeout)
    turn.answer(JoinCompleted(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))


def add_member(turn: EventContext) -> None:
    """Take a new member in and park its join (``addMemberThenRebalanceOrCompleteJoin``).

    Its session does not run yet, for it may not know its id; its join is kept for a fixed time.
    """
    request: JoinGroup = turn.event
    group = turn.group
    member = ClassicGroupMember(
        member_id=request.member_id or _new_member_id(turn),
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout=_rebalance_timeout(request),
        session_timeout=request.session_timeout,
        protocols=request.protocols,
        is_new=True,
    )
    if group.state is PREPARING and group.previous is EMPTY:
        group.newcomers = True
    group.add(member, request.protocol_type)
    group.park_join(member, turn.park())
    turn.start_session(member.member_id, turn.settings.new_member_join_timeout)


def rejoin(turn: EventContext) -> None:
    """Take over what a member sends and park its join, the older copy of which is forgotten.

    Its session runs on (``updateMemberThenRebalanceOrCompleteJoin``).
    """
    _update(turn, turn.group.members[turn.event.member_id])


def replace_instance(turn: EventContext) -> None:
    """Let a static member's new process take its place, and park its join.

    What the old one waits for is answered FENCED_INSTANCE_ID (82), ``replaceStaticMember``.
    """
    _update(turn, _fence(turn))


def replace_instance_quietly(turn: EventContext) -> None:
    """Let a static member's new process take its place and work, and answer at once.

    What the old one waits for is answered FENCED_INSTANCE_ID (82), ``replaceStaticMember``.
    A leader that can be told to skip the assignment hears who is there; one that cannot hears
    its old id as leader, and so does not assign.
    """
    request: JoinGroup = turn.event
    group = turn.group
    old_leader = group.leader
    old_id = group.instance(turn.event.group_instance_id).member_id
    member = _fence(turn)
    _update(turn, member)
    group.rewrite_record(turn.now, old_id, member)
    leads = member.member_id == group.leader
    if request.version >= _FIRST_WITH_SKIP_ASSIGNMENT:
        answer = turn.joined(member.member_id, with_members=leads)
        answer = attrs.evolve(answer, skip_assignment=leads)
    else:
        answer = turn.joined(member.member_id, with_members=False)
        answer = attrs.evolve(answer, leader=old_leader or "")
    turn.answer_join(member, answer)


def keep_instance(turn: EventContext) -> None:
    """The old process keeps its place; the new one is told of the failed write, and no id."""
    old = turn.group.instance(turn.event.group_instance_id)
    turn.extend_session(old)
    answer = turn.joined("", with_members=False)
    turn.answer(attrs.evolve(answer, error=answered(turn.journal.append())))


def write_empty_record(turn: EventContext) -> None:
    """Write down that there is such a group, without members."""
    turn.group.write_empty_record(turn.now)


def refuse_joins(turn: EventContext) -> None:
    """Whoever joined a group that cannot be written down is told of it, and no id."""
    error = answered(turn.journal.append())
    for member in turn.group.members.values():
        turn.answer_join(member, JoinCompleted(error=error))


def repeat_join_answer(turn: EventContext) -> None:
    """Tell a member of the generation that it is in; its session runs on."""
    member_id = turn.event.member_id
    leads = member_id == turn.group.leader
    turn.answer(turn.joined(member_id, with_members=leads))


def _new_member_id(turn: EventContext) -> str:
    prefix = turn.event.group_instance_id
    return f"{turn.event.client_id if prefix is None else prefix}-{turn.new_id()}"


def _rebalance_timeout(request: JoinGroup) -> float:
    timeout = request.rebalance_timeout
    return request.session_timeout if timeout is None else timeout


def _fence(turn: EventContext) -> ClassicGroupMember:
    """Refuse what the instance's old process waits for, and give its place a new id."""
    instance = turn.event.group_instance_id
    old = turn.group.instance(instance)
    turn.answer_join(
        old, JoinCompleted(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id)
    )
    turn.answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
    turn.end_session(old.member_id)
    member = turn.group.replace(instance, _new_member_id(turn))
    turn.extend_session(member)
    return member


def _update(turn: EventContext, member: ClassicGroupMember) -> None:
    request: JoinGroup = turn.event
    turn.group.set_protocols(member, request.protocols)
    member.rebalance_timeout = _rebalance_timeout(request)
    member.session_timeout = request.session_timeout
    turn.answer_parked(turn.group.park_join(member, turn.park()), None)


# SyncGroup


def park_sync(turn: EventContext) -> None:
    """Keep a sync until the leader's comes; the older copy of it is forgotten."""
    member = turn.group.members[turn.event.member_id]
    turn.answer_parked(member.parked_sync, None)
    member.parked_sync = turn.park()
    note_sync(turn)


def note_sync(turn: EventContext) -> None:
    """A member has synced; when all have, nobody is waited for (``removePendingSyncMember``)."""
    turn.group.unsynced.pop(turn.event.member_id, None)
    if not turn.group.unsynced:
        turn.cancel_timer(TimerKind.SYNC)


def take_assignments(turn: EventContext) -> None:
    """Take the leader's assignments and answer all syncs; who was left out gets no bytes."""
    group = turn.group
    given = {one.member_id: one.assignment for one in turn.event.assignments}
    for member in group.members.values():
        member.assignment = given.get(member.member_id, b"")
    group.write_record(turn.now)
    for member in group.members.values():
        if turn.answer_sync(member, ErrorCode.NONE):
            turn.extend_session(member)
    group.enter(STABLE, turn.now)


def refuse_syncs(turn: EventContext) -> None:
    """All syncs that wait are answered with the error of the failed write; nobody has work."""
    error = answered(turn.journal.append())
    for member in turn.group.members.values():
        member.assignment = b""
        if turn.answer_sync(member, error):
            turn.extend_session(member)


def give_assignment(turn: EventContext) -> None:
    """Tell a member its assignment again; its session runs on."""
    group = turn.group
    turn.answer(
        SyncCompleted(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=group.members[turn.event.member_id].assignment,
        )
    )


# Heartbeat and OffsetCommit


def extend_session(turn: EventContext) -> None:
    """The member's session starts anew (``rescheduleClassicGroupMemberHeartbeat``)."""
    turn.extend_session(turn.group.members[turn.event.member_id])


# LeaveGroup and timers


def drop_pending(turn: EventContext) -> None:
    """An id that was handed out is void."""
    turn.group.remove(turn.event.member_id)
    turn.end_session(turn.event.member_id)


def remove_member(turn: EventContext) -> None:
    """A member is out; its parked join is answered UNKNOWN_MEMBER_ID (25), its sync never."""
    _remove(turn, turn.event.member_id)


def remove_instance(turn: EventContext) -> None:
    """An administrator removes a static member by its instance id alone.

    Its parked join is answered UNKNOWN_MEMBER_ID (25), its sync never.
    """
    _remove(turn, turn.group.instance(turn.event.group_instance_id).member_id)


def remove_unsynced(turn: EventContext) -> None:
    """Whoever has not synced in time is out."""
    for member_id in list(turn.group.unsynced):
        turn.group.remove(member_id)
        turn.end_session(member_id)


# The end of a group


def refuse_all_parked(turn: EventContext) -> None:
    """Send whoever waits to the group's next coordinator: NOT_COORDINATOR (16)."""
    for member in turn.group.members.values():
        refusal = JoinCompleted(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
        turn.answer_join(member, refusal)
        turn.answer_sync(member, ErrorCode.NOT_COORDINATOR)


def bury(turn: EventContext) -> None:
    """The group is no more; none of its timers will come."""
    group = turn.group
    for member_id in (*group.members, *group.pending):
        turn.end_session(member_id)
    turn.cancel_timer(TimerKind.JOIN)
    turn.cancel_timer(TimerKind.SYNC)
    group.enter(DEAD, turn.now)


def _remove(turn: EventContext, member_id: str) -> None:
    """Take a member out: its parked join is answered so that it may try again, its sync never."""
    member = turn.group.members[member_id]
    turn.end_session(member_id)
    turn.answer_join(member, JoinCompleted(error=ErrorCode.UNKNOWN_MEMBER_ID))
    turn.answer_parked(member.parked_sync, None)
    turn.group.remove(member_id)
