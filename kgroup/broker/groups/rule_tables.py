"""The rules of the classic group coordinator: for each request and timer, in order.

Read a table from top to bottom: the first row whose states and conditions fit says what is
done, what the request is answered with, and which state is entered. With each stands the
method of Kafka that it was read from; numbers in comments are error codes. The page
docs/coordinator.md is made from these tables, with the words of the conditions and actions.

What is answered for an absent group, and what comes before any group is looked at (who leads
the shard, empty group ids, session time-outs), is in ``gate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.broker.groups import actions as do
from kgroup.broker.groups import conditions as if_
from kgroup.broker.groups import rebalance
from kgroup.broker.groups.rules import Action, Condition, Row, Table, from_kafka
from kgroup.broker.groups.states import (
    ANY,
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
)
from kgroup.error_codes import ErrorCode

_ALIVE: Final = frozenset({EMPTY, PREPARING, COMPLETING, STABLE})
_NOT_PREPARING: Final = frozenset({EMPTY, COMPLETING, STABLE})
_WITH_MEMBERS: Final = frozenset({PREPARING, COMPLETING, STABLE})

#: Who is asking? The instance id is looked at first, then the member id.
_IDENTITY: Final[Table] = from_kafka(
    "ClassicGroup.validateMember",
    Row(ANY, (if_.instance_is_unknown,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    Row(ANY, (if_.instance_belongs_to_another_member,), error=ErrorCode.FENCED_INSTANCE_ID),  # 82
    Row(ANY, (if_.is_not_a_member,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
)
_DEAD_GROUP: Final = Row({DEAD}, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # 15
_WRONG_GENERATION: Final = Row(
    ANY, (if_.generation_differs,), error=ErrorCode.ILLEGAL_GENERATION
)  # 22


def _rebalance(*when: Condition, do_first: Action) -> Table:
    """A member comes or changes: a rebalance begins, or the one that is on may complete."""
    return (
        Row(_NOT_PREPARING, when, then=(do_first, rebalance.prepare_rebalance), to=PREPARING),
        Row({PREPARING}, when, then=(do_first, rebalance.complete_unless_initial_wait)),
    )


JOIN: Final[Table] = (
    *from_kafka("GroupMetadataManager.classicGroupJoinNewMember", _DEAD_GROUP),
    *from_kafka(
        "GroupMetadataManager.acceptJoiningMember",
        Row(
            ANY,
            (if_.is_over_size,),
            then=(do.remove_rejected,),
            error=ErrorCode.GROUP_MAX_SIZE_REACHED,  # 81
        ),
    ),
    *from_kafka(
        "ClassicGroup.supportsProtocols",
        Row(ANY, (if_.shares_no_protocol,), error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
    ),
    # A static member's new process.
    *from_kafka(
        "GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin",
        Row(
            {STABLE},
            (if_.has_no_id, if_.instance_is_known, if_.keeps_the_protocol, if_.append_fails),
            then=(do.refuse_replacement,),
        ),
        Row(
            {STABLE},
            (if_.has_no_id, if_.instance_is_known, if_.keeps_the_protocol),
            then=(do.replace_instance_without_rebalance,),
        ),
        *_rebalance(if_.has_no_id, if_.instance_is_known, do_first=do.replace_instance),
    ),
    # A new member.
    *from_kafka(
        "GroupMetadataManager.classicGroupJoinNewStaticMember",
        *_rebalance(if_.has_no_id, if_.has_instance, do_first=do.add_member),
    ),
    *from_kafka(
        "GroupMetadataManager.classicGroupJoinNewDynamicMember",
        Row(ANY, (if_.has_no_id, if_.needs_an_id_first), then=(do.assign_member_id,)),  # 79
        *_rebalance(if_.has_no_id, do_first=do.add_member),
    ),
    # The owner of an id that was handed out, who cannot be static.
    *from_kafka(
        "GroupMetadataManager.classicGroupJoinExistingMember",
        Row(ANY, (if_.is_pending, if_.has_instance), error=ErrorCode.UNKNOWN_SERVER_ERROR),  # -1
        *_rebalance(if_.is_pending, do_first=do.add_member),
    ),
    # A member.
    *_IDENTITY,
    *from_kafka(
        "GroupMetadataManager.classicGroupJoinExistingMember",
        Row({PREPARING}, then=(do.rejoin, rebalance.complete_unless_initial_wait)),
        Row({COMPLETING}, (if_.changes_nothing,), then=(do.repeat_join_response,)),
        Row({COMPLETING}, then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
        Row(
            {STABLE}, (if_.is_leader,), then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING
        ),
        Row({STABLE}, (if_.changes_nothing,), then=(do.repeat_join_response,)),
        Row({STABLE}, then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
    ),
)

#: After the JoinGroup that made the group; what it was answered with at once stands.
NEW_GROUP: Final[Table] = from_kafka(
    "GroupMetadataManager.classicGroupJoinToClassicGroup",
    Row({EMPTY, PREPARING}, (if_.append_fails,), then=(do.fail_joins, do.mark_dead), to=DEAD),
    Row({EMPTY, PREPARING}, then=(do.write_empty_record,)),
)

SYNC: Final[Table] = (
    *from_kafka(
        "GroupMetadataManager.classicGroupSync",
        Row({EMPTY}, error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    ),
    *from_kafka("GroupMetadataManager.validateSyncGroup", _DEAD_GROUP),
    *_IDENTITY,
    *from_kafka(
        "GroupMetadataManager.validateSyncGroup",
        _WRONG_GENERATION,
        Row(ANY, (if_.protocol_differs,), error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
    ),
    *from_kafka(
        "GroupMetadataManager.classicGroupSyncToClassicGroup",
        Row({PREPARING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
        Row(
            {COMPLETING},
            (if_.is_leader, if_.append_fails),
            then=(do.park_sync, do.fail_syncs, rebalance.prepare_rebalance),
            to=PREPARING,
        ),
        Row({COMPLETING}, (if_.is_leader,), then=(do.park_sync, do.apply_assignments), to=STABLE),
        Row({COMPLETING}, then=(do.park_sync,)),
        Row({STABLE}, then=(do.record_sync, do.repeat_sync_response)),
    ),
)

HEARTBEAT: Final[Table] = (
    *from_kafka("GroupMetadataManager.validateClassicGroupHeartbeat", _DEAD_GROUP),
    *_IDENTITY,
    *from_kafka("GroupMetadataManager.validateClassicGroupHeartbeat", _WRONG_GENERATION),
    *from_kafka(
        "GroupMetadataManager.classicGroupHeartbeatToClassicGroup",
        Row({PREPARING}, then=(do.extend_session,), error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
        Row({COMPLETING, STABLE}, then=(do.extend_session,)),
    ),
)

LEAVE: Final[Table] = from_kafka(
    "GroupMetadataManager.classicGroupLeaveToClassicGroup",
    _DEAD_GROUP,
    Row(_ALIVE),
)

#: For each member of the request.
LEAVING_MEMBER: Final[Table] = (
    *from_kafka(
        "GroupMetadataManager.classicGroupLeaveToClassicGroup",
        Row(ANY, (if_.has_no_id, if_.instance_is_known), then=(do.remove_instance,)),
        Row(ANY, (if_.has_no_id,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
        Row(ANY, (if_.is_pending,), then=(do.remove_pending,)),
    ),
    *_IDENTITY,
    *from_kafka(
        "GroupMetadataManager.removeCurrentMemberFromClassicGroup",
        Row(_WITH_MEMBERS, then=(do.remove_member,)),
    ),
)

#: Once all members of the request are judged, if any of them has left.
MEMBERS_LEFT: Final[Table] = from_kafka(
    "GroupMetadataManager.classicGroupLeaveToClassicGroup",
    Row({STABLE, COMPLETING}, then=(rebalance.prepare_rebalance,), to=PREPARING),
    Row({PREPARING}, then=(rebalance.complete_unless_initial_wait,)),
    Row({EMPTY}),
)

OFFSET_COMMIT: Final[Table] = (
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _DEAD_GROUP,
        Row({EMPTY}, (if_.has_no_generation,)),
        Row(_WITH_MEMBERS, (if_.is_anonymous,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    ),
    *_IDENTITY,
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _WRONG_GENERATION,
        Row({COMPLETING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
    ),
    *from_kafka(
        "OffsetMetadataManager.validateOffsetCommit",
        Row({PREPARING, STABLE}, then=(do.extend_session,)),
    ),
)

#: The same with ``isTransactional``: no session is extended.
TXN_OFFSET_COMMIT: Final[Table] = (
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _DEAD_GROUP,
        Row({EMPTY}, (if_.has_no_generation,)),
        Row(_WITH_MEMBERS, (if_.is_anonymous,)),
    ),
    *_IDENTITY,
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _WRONG_GENERATION,
        Row(_WITH_MEMBERS),
    ),
)

OFFSET_DELETE: Final[Table] = from_kafka(
    "ClassicGroup.validateOffsetDelete",
    Row({DEAD}, error=ErrorCode.GROUP_ID_NOT_FOUND),  # 69
    Row(_WITH_MEMBERS, (if_.is_no_consumer_group,), error=ErrorCode.NON_EMPTY_GROUP),  # 68
    Row(_ALIVE),
)

DELETE: Final[Table] = from_kafka(
    "ClassicGroup.validateDeleteGroup",
    Row({DEAD}, error=ErrorCode.GROUP_ID_NOT_FOUND),  # 69
    Row(_WITH_MEMBERS, error=ErrorCode.NON_EMPTY_GROUP),  # 68
    Row({EMPTY}, then=(do.mark_dead,), to=DEAD),
)

#: A session is over, or a new member's time to join.
SESSION_EXPIRED: Final[Table] = (
    *from_kafka("GroupMetadataManager.expireClassicGroupMemberHeartbeat", Row({DEAD})),
    *from_kafka(
        "GroupMetadataManager.removePendingMemberAndUpdateClassicGroup",
        Row(
            {PREPARING},
            (if_.is_pending,),
            then=(do.remove_pending, rebalance.complete_if_all_joined),
        ),
        Row({EMPTY, COMPLETING, STABLE}, (if_.is_pending,), then=(do.remove_pending,)),
    ),
    *from_kafka(
        "GroupMetadataManager.expireClassicGroupMemberHeartbeat",
        Row(_ALIVE, (if_.is_not_a_member,)),
        Row(_WITH_MEMBERS, (if_.has_satisfied_heartbeat,)),
    ),
    *from_kafka(
        "GroupMetadataManager.removeMemberAndUpdateClassicGroup",
        Row({PREPARING}, then=(do.remove_member, rebalance.complete_if_all_joined)),
        Row(
            {STABLE, COMPLETING}, then=(do.remove_member, rebalance.prepare_rebalance), to=PREPARING
        ),
    ),
)

#: The end of the wait for joins.
JOIN_EXPIRED: Final[Table] = (
    *from_kafka(
        "GroupMetadataManager.tryCompleteInitialRebalanceElseSchedule",
        Row({PREPARING}, (if_.may_wait_longer,), then=(rebalance.extend_initial_wait,)),
    ),
    *from_kafka(
        "GroupMetadataManager.completeClassicGroupJoin",
        Row({PREPARING}, then=(rebalance.complete_join,)),
    ),
)

#: Also in a group that is Stable since its leader has synced.
SYNC_EXPIRED: Final[Table] = from_kafka(
    "GroupMetadataManager.expirePendingSync",
    Row(
        {COMPLETING, STABLE},
        then=(do.remove_unsynced, rebalance.prepare_rebalance),
        to=PREPARING,
    ),
)

#: The coordinator gives the group up.
UNLOAD: Final[Table] = from_kafka(
    "GroupMetadataManager.onUnloaded",
    Row(ANY, then=(do.fail_all_parked, do.mark_dead), to=DEAD),
)

#: A group that a failover brought, its sessions started; its limit may be another now.
LOADED: Final[Table] = from_kafka(
    "GroupMetadataManager.onLoaded",
    Row({STABLE}, (if_.has_too_many_members,), then=(rebalance.prepare_rebalance,), to=PREPARING),
    Row({EMPTY, STABLE}),
)

#: Every table by the event that it is about.
TABLES: Final[Mapping[str, Table]] = {
    "JoinGroup": JOIN,
    "JoinGroup, once the group is made": NEW_GROUP,
    "the join completes": rebalance.JOIN_COMPLETES,
    "SyncGroup": SYNC,
    "Heartbeat": HEARTBEAT,
    "LeaveGroup": LEAVE,
    "LeaveGroup, each member": LEAVING_MEMBER,
    "LeaveGroup, after the members": MEMBERS_LEFT,
    "OffsetCommit": OFFSET_COMMIT,
    "TxnOffsetCommit": TXN_OFFSET_COMMIT,
    "OffsetDelete": OFFSET_DELETE,
    "DeleteGroups": DELETE,
    "a session ends": SESSION_EXPIRED,
    "the wait for joins ends": JOIN_EXPIRED,
    "the wait for syncs ends": SYNC_EXPIRED,
    "the shard is unloaded": UNLOAD,
    "the shard is loaded": LOADED,
}
