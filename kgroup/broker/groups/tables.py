"""The rules of the classic group coordinator: for each request and timer, in order.

Read a table from top to bottom: the first row whose states and conditions fit says what is
done, what the request is answered with, and which state is entered. Beside each stands the
method of Kafka that it was read from; numbers in comments are error codes.

What is answered for an absent group, and what comes before any group is looked at (who leads
the shard, empty group ids, session time-outs), is in ``gate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.broker.groups import actions as do
from kgroup.broker.groups import conditions as if_
from kgroup.broker.groups import rebalance
from kgroup.broker.groups.codes import ErrorCode
from kgroup.broker.groups.rules import Action, Condition, Row, Table
from kgroup.broker.groups.states import (
    ANY,
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
)

_NOT_PREPARING: Final = frozenset({EMPTY, COMPLETING, STABLE})
_WITH_MEMBERS: Final = frozenset({PREPARING, COMPLETING, STABLE})

#: Who is asking? ``ClassicGroup.validateMember``: the instance id first, then the member id.
_IDENTITY: Final[Table] = (
    Row(ANY, (if_.instance_is_unknown,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    Row(ANY, (if_.instance_is_anothers,), error=ErrorCode.FENCED_INSTANCE_ID),  # 82
    Row(ANY, (if_.is_no_member,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
)
_GONE: Final = Row({DEAD}, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # 15
_WRONG_GENERATION: Final = Row(
    ANY, (if_.generation_differs,), error=ErrorCode.ILLEGAL_GENERATION
)  # 22


def _rebalance(*when: Condition, do_first: Action) -> Table:
    """A member comes or changes: a rebalance begins, or the one that is on may complete."""
    return (
        Row(_NOT_PREPARING, when, then=(do_first, rebalance.prepare_rebalance), to=PREPARING),
        Row({PREPARING}, when, then=(do_first, rebalance.complete_if_not_waiting)),
    )


#: ``classicGroupJoinToClassicGroup`` and the methods it calls.
JOIN: Final[Table] = (
    _GONE,
    Row(
        ANY, (if_.is_over_size,), then=(do.turn_away,), error=ErrorCode.GROUP_MAX_SIZE_REACHED
    ),  # 81
    Row(ANY, (if_.shares_no_protocol,), error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
    # A static member's new process (updateStaticMemberThenRebalanceOrCompleteJoin).
    Row(
        {STABLE},
        (if_.has_no_id, if_.instance_is_known, if_.keeps_the_protocol),
        then=(do.replace_instance_quietly,),
    ),
    *_rebalance(if_.has_no_id, if_.instance_is_known, do_first=do.replace_instance),
    # A new member (classicGroupJoinNewStaticMember, classicGroupJoinNewDynamicMember).
    *_rebalance(if_.has_no_id, if_.has_instance, do_first=do.add_member),
    Row(ANY, (if_.has_no_id, if_.needs_an_id_first), then=(do.hand_out_id,)),  # 79
    *_rebalance(if_.has_no_id, do_first=do.add_member),
    # The owner of an id that was handed out, who cannot be static.
    Row(ANY, (if_.is_pending, if_.has_instance), error=ErrorCode.UNKNOWN_SERVER_ERROR),  # -1
    *_rebalance(if_.is_pending, do_first=do.add_member),
    # A member (classicGroupJoinExistingMember).
    *_IDENTITY,
    Row({PREPARING}, then=(do.rejoin, rebalance.complete_if_not_waiting)),
    Row({COMPLETING}, (if_.changes_nothing,), then=(do.repeat_join_answer,)),
    Row({COMPLETING}, then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
    Row({STABLE}, (if_.is_leader,), then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
    Row({STABLE}, (if_.changes_nothing,), then=(do.repeat_join_answer,)),
    Row({STABLE}, then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
)

#: ``classicGroupSync``, ``validateSyncGroup``, ``classicGroupSyncToClassicGroup``.
SYNC: Final[Table] = (
    Row({EMPTY}, error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    _GONE,
    *_IDENTITY,
    _WRONG_GENERATION,
    Row(ANY, (if_.protocol_differs,), error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
    Row({PREPARING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
    Row({COMPLETING}, (if_.is_leader,), then=(do.park_sync, do.take_assignments), to=STABLE),
    Row({COMPLETING}, then=(do.park_sync,)),
    Row({STABLE}, then=(do.note_sync, do.give_assignment)),
)

#: ``validateClassicGroupHeartbeat``, ``classicGroupHeartbeatToClassicGroup``.
HEARTBEAT: Final[Table] = (
    _GONE,
    *_IDENTITY,
    _WRONG_GENERATION,
    Row({PREPARING}, then=(do.extend_session,), error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
    Row({COMPLETING, STABLE}, then=(do.extend_session,)),
)

#: ``classicGroupLeaveToClassicGroup``, for each member of the request.
LEAVE: Final[Table] = (
    _GONE,
    Row(ANY, (if_.has_no_id, if_.instance_is_known), then=(do.remove_instance,)),
    Row(ANY, (if_.has_no_id,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    Row(ANY, (if_.is_pending,), then=(do.drop_pending,)),
    *_IDENTITY,
    Row(_WITH_MEMBERS, then=(do.remove_member,)),
)

#: ``classicGroupLeaveToClassicGroup``, once all are judged, if any of them has left.
LEAVERS_GONE: Final[Table] = (
    Row({STABLE, COMPLETING}, then=(rebalance.prepare_rebalance,), to=PREPARING),
    Row({PREPARING}, then=(rebalance.complete_if_not_waiting,)),
    Row({EMPTY}),
)

#: ``ClassicGroup.validateOffsetCommit`` and ``OffsetMetadataManager.commitOffset``.
OFFSET_COMMIT: Final[Table] = (
    _GONE,
    Row({EMPTY}, (if_.has_no_generation,)),
    Row(_WITH_MEMBERS, (if_.is_anonymous,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    *_IDENTITY,
    _WRONG_GENERATION,
    Row({COMPLETING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
    Row({PREPARING, STABLE}, then=(do.extend_session,)),
)

#: The same with ``isTransactional``, and ``commitTransactionalOffset``: no session is extended.
TXN_OFFSET_COMMIT: Final[Table] = (
    _GONE,
    Row({EMPTY}, (if_.has_no_generation,)),
    Row(_WITH_MEMBERS, (if_.is_anonymous,)),
    *_IDENTITY,
    _WRONG_GENERATION,
    Row(_WITH_MEMBERS),
)

#: ``ClassicGroup.validateOffsetDelete``.
OFFSET_DELETE: Final[Table] = (
    Row({DEAD}, error=ErrorCode.GROUP_ID_NOT_FOUND),  # 69
    Row(_WITH_MEMBERS, (if_.speaks_another_protocol,), error=ErrorCode.NON_EMPTY_GROUP),  # 68
    Row(ANY),
)

#: ``ClassicGroup.validateDeleteGroup``.
DELETE: Final[Table] = (
    Row({DEAD}, error=ErrorCode.GROUP_ID_NOT_FOUND),  # 69
    Row(_WITH_MEMBERS, error=ErrorCode.NON_EMPTY_GROUP),  # 68
    Row({EMPTY}, then=(do.bury,), to=DEAD),
)

#: ``expireClassicGroupMemberHeartbeat``: a session is over, or a new member's time to join.
SESSION_OVER: Final[Table] = (
    Row({PREPARING}, (if_.is_pending,), then=(do.drop_pending, rebalance.complete_if_all_joined)),
    Row(ANY, (if_.is_pending,), then=(do.drop_pending,)),
    Row(ANY, (if_.is_no_member,)),
    Row(_WITH_MEMBERS, (if_.is_spared,)),
    Row({PREPARING}, then=(do.remove_member, rebalance.complete_if_all_joined)),
    Row({STABLE, COMPLETING}, then=(do.remove_member, rebalance.prepare_rebalance), to=PREPARING),
)

#: The end of the wait for joins: ``tryCompleteInitialRebalanceElseSchedule`` for an initial one.
JOIN_OVER: Final[Table] = (
    Row({PREPARING}, (if_.may_wait_longer,), then=(rebalance.wait_for_more,)),
    Row({PREPARING}, then=(rebalance.complete_join,)),
)

#: ``expirePendingSync``: also in a group that is Stable since its leader has synced.
SYNC_OVER: Final[Table] = (
    Row(
        {COMPLETING, STABLE},
        then=(do.remove_unsynced, rebalance.prepare_rebalance),
        to=PREPARING,
    ),
)

#: The coordinator gives the group up (``onUnloaded``).
UNLOAD: Final[Table] = (Row(ANY, then=(do.refuse_all_parked, do.bury), to=DEAD),)

#: Every table by the event that it is about.
TABLES: Final[Mapping[str, Table]] = {
    "JoinGroup": JOIN,
    "the join completes": rebalance.JOIN_COMPLETES,
    "SyncGroup": SYNC,
    "Heartbeat": HEARTBEAT,
    "LeaveGroup, each member": LEAVE,
    "LeaveGroup, after the members": LEAVERS_GONE,
    "OffsetCommit": OFFSET_COMMIT,
    "TxnOffsetCommit": TXN_OFFSET_COMMIT,
    "OffsetDelete": OFFSET_DELETE,
    "DeleteGroups": DELETE,
    "a session ends": SESSION_OVER,
    "the wait for joins ends": JOIN_OVER,
    "the wait for syncs ends": SYNC_OVER,
    "the shard is unloaded": UNLOAD,
}
