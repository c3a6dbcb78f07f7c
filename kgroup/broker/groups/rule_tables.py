"""The rules of the classic group coordinator: for each request and timer, in order.

Read a table from top to bottom: the first row whose states and conditions fit decides which
actions run, which error the response has, and which state the group enters. Beside each row stands
the method of Kafka that it was read from; numbers in comments are error codes. The page
docs/coordinator.md is generated from these tables, with the docstrings of conditions and actions.

``validation`` has the checks before a group is looked up (which broker leads the shard, empty group
ids, session time-outs), and the responses for absent groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.broker.groups import actions as do
from kgroup.broker.groups import conditions as if_
from kgroup.broker.groups import rebalance
from kgroup.broker.groups.rules import Action, Condition, Rule, Table, from_kafka
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

#: Whether the sender is a member: the instance id is checked first, then the member id.
_IDENTITY: Final[Table] = from_kafka(
    "ClassicGroup.validateMember",
    Rule(ANY, (if_.instance_is_unknown,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    Rule(ANY, (if_.instance_belongs_to_another_member,), error=ErrorCode.FENCED_INSTANCE_ID),  # 82
    Rule(ANY, (if_.is_not_a_member,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
)
_DEAD_GROUP: Final = Rule({DEAD}, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # 15
_WRONG_GENERATION: Final = Rule(
    ANY, (if_.generation_differs,), error=ErrorCode.ILLEGAL_GENERATION
)  # 22


def _rebalance(*when: Condition, do_first: Action) -> Table:
    """A member is new or changes: a rebalance begins, or the current one may complete."""
    return (
        Rule(_NOT_PREPARING, when, then=(do_first, rebalance.prepare_rebalance), to=PREPARING),
        Rule({PREPARING}, when, then=(do_first, rebalance.complete_unless_initial_wait)),
    )


JOIN: Final[Table] = (
    *from_kafka("GroupMetadataManager.classicGroupJoinNewMember", _DEAD_GROUP),
    *from_kafka(
        "GroupMetadataManager.acceptJoiningMember",
        Rule(
            ANY,
            (if_.is_over_size,),
            then=(do.remove_rejected,),
            error=ErrorCode.GROUP_MAX_SIZE_REACHED,  # 81
        ),
    ),
    *from_kafka(
        "ClassicGroup.supportsProtocols",
        Rule(ANY, (if_.shares_no_protocol,), error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
    ),
    # A static member's new process.
    *from_kafka(
        "GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin",
        Rule(
            {STABLE},
            (
                if_.has_no_id,
                if_.instance_is_known,
                if_.keeps_the_protocol,
                if_.append_of_replacement_fails,
            ),
            then=(do.refuse_replacement,),
        ),
        Rule(
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
        Rule(ANY, (if_.has_no_id, if_.needs_an_id_first), then=(do.assign_member_id,)),  # 79
        *_rebalance(if_.has_no_id, do_first=do.add_member),
    ),
    # A client with a member id that it was given; it cannot be static.
    *from_kafka(
        "GroupMetadataManager.classicGroupJoinExistingMember",
        Rule(ANY, (if_.is_pending, if_.has_instance), error=ErrorCode.UNKNOWN_SERVER_ERROR),  # -1
        *_rebalance(if_.is_pending, do_first=do.add_member),
    ),
    # A known member.
    *_IDENTITY,
    *from_kafka(
        "GroupMetadataManager.classicGroupJoinExistingMember",
        Rule({PREPARING}, then=(do.rejoin, rebalance.complete_unless_initial_wait)),
        Rule({COMPLETING}, (if_.changes_nothing,), then=(do.repeat_join_response,)),
        Rule({COMPLETING}, then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
        Rule(
            {STABLE}, (if_.is_leader,), then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING
        ),
        Rule({STABLE}, (if_.changes_nothing,), then=(do.repeat_join_response,)),
        Rule({STABLE}, then=(do.rejoin, rebalance.prepare_rebalance), to=PREPARING),
    ),
)

#: After the JoinGroup that created the group; a response that it got already stands.
NEW_GROUP: Final[Table] = from_kafka(
    "GroupMetadataManager.classicGroupJoinToClassicGroup",
    Rule({EMPTY, PREPARING}, (if_.append_fails,), then=(do.fail_joins, do.mark_dead), to=DEAD),
    Rule({EMPTY, PREPARING}, then=(do.write_empty_record,)),
)

SYNC: Final[Table] = (
    *from_kafka(
        "GroupMetadataManager.classicGroupSync",
        Rule({EMPTY}, error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    ),
    *from_kafka("GroupMetadataManager.validateSyncGroup", _DEAD_GROUP),
    *_IDENTITY,
    *from_kafka(
        "GroupMetadataManager.validateSyncGroup",
        _WRONG_GENERATION,
        Rule(ANY, (if_.protocol_differs,), error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
    ),
    *from_kafka(
        "GroupMetadataManager.classicGroupSyncToClassicGroup",
        Rule({PREPARING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
        Rule(
            {COMPLETING},
            (if_.is_leader, if_.append_of_assignments_fails),
            then=(do.park_sync, do.fail_syncs, rebalance.prepare_rebalance),
            to=PREPARING,
        ),
        Rule({COMPLETING}, (if_.is_leader,), then=(do.park_sync, do.apply_assignments), to=STABLE),
        Rule({COMPLETING}, then=(do.park_sync,)),
        Rule({STABLE}, then=(do.record_sync, do.repeat_sync_response)),
    ),
)

HEARTBEAT: Final[Table] = (
    *from_kafka("GroupMetadataManager.validateClassicGroupHeartbeat", _DEAD_GROUP),
    *_IDENTITY,
    *from_kafka("GroupMetadataManager.validateClassicGroupHeartbeat", _WRONG_GENERATION),
    *from_kafka(
        "GroupMetadataManager.classicGroupHeartbeatToClassicGroup",
        Rule({PREPARING}, then=(do.extend_session,), error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
        Rule({COMPLETING, STABLE}, then=(do.extend_session,)),
    ),
)

LEAVE: Final[Table] = from_kafka(
    "GroupMetadataManager.classicGroupLeaveToClassicGroup",
    _DEAD_GROUP,
    Rule(_ALIVE),
)

#: For each member of the request.
LEAVING_MEMBER: Final[Table] = (
    *from_kafka(
        "GroupMetadataManager.classicGroupLeaveToClassicGroup",
        Rule(ANY, (if_.has_no_id, if_.instance_is_known), then=(do.remove_instance,)),
        Rule(ANY, (if_.has_no_id,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
        Rule(ANY, (if_.is_pending,), then=(do.remove_pending,)),
    ),
    *_IDENTITY,
    *from_kafka(
        "GroupMetadataManager.removeCurrentMemberFromClassicGroup",
        Rule(_WITH_MEMBERS, then=(do.remove_member,)),
    ),
)

#: After all members of the request, if any of them has left.
MEMBERS_LEFT: Final[Table] = from_kafka(
    "GroupMetadataManager.classicGroupLeaveToClassicGroup",
    Rule({STABLE, COMPLETING}, then=(rebalance.prepare_rebalance,), to=PREPARING),
    Rule({PREPARING}, then=(rebalance.complete_unless_initial_wait,)),
    Rule({EMPTY}),
)

OFFSET_COMMIT: Final[Table] = (
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _DEAD_GROUP,
        Rule({EMPTY}, (if_.has_no_generation,)),
        Rule(_WITH_MEMBERS, (if_.is_anonymous,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25
    ),
    *_IDENTITY,
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _WRONG_GENERATION,
        Rule({COMPLETING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27
    ),
    *from_kafka(
        "OffsetMetadataManager.validateOffsetCommit",
        Rule({PREPARING, STABLE}, then=(do.extend_session,)),
    ),
)

#: The same with ``isTransactional``: it does not extend a session.
TXN_OFFSET_COMMIT: Final[Table] = (
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _DEAD_GROUP,
        Rule({EMPTY}, (if_.has_no_generation,)),
        Rule(_WITH_MEMBERS, (if_.is_anonymous,)),
    ),
    *_IDENTITY,
    *from_kafka(
        "ClassicGroup.validateOffsetCommit",
        _WRONG_GENERATION,
        Rule(_WITH_MEMBERS),
    ),
)

OFFSET_DELETE: Final[Table] = from_kafka(
    "ClassicGroup.validateOffsetDelete",
    Rule({DEAD}, error=ErrorCode.GROUP_ID_NOT_FOUND),  # 69
    Rule(_WITH_MEMBERS, (if_.is_no_consumer_group,), error=ErrorCode.NON_EMPTY_GROUP),  # 68
    Rule(_ALIVE),
)

DELETE: Final[Table] = from_kafka(
    "ClassicGroup.validateDeleteGroup",
    Rule({DEAD}, error=ErrorCode.GROUP_ID_NOT_FOUND),  # 69
    Rule(_WITH_MEMBERS, error=ErrorCode.NON_EMPTY_GROUP),  # 68
    Rule({EMPTY}, then=(do.mark_dead,), to=DEAD),
)

#: A session has expired, or the time that a new member had to join.
SESSION_EXPIRED: Final[Table] = (
    *from_kafka("GroupMetadataManager.expireClassicGroupMemberHeartbeat", Rule({DEAD})),
    *from_kafka(
        "GroupMetadataManager.removePendingMemberAndUpdateClassicGroup",
        Rule(
            {PREPARING},
            (if_.is_pending,),
            then=(do.remove_pending, rebalance.complete_if_all_joined),
        ),
        Rule({EMPTY, COMPLETING, STABLE}, (if_.is_pending,), then=(do.remove_pending,)),
    ),
    *from_kafka(
        "GroupMetadataManager.expireClassicGroupMemberHeartbeat",
        Rule(_ALIVE, (if_.is_not_a_member,)),
        Rule(_WITH_MEMBERS, (if_.has_satisfied_heartbeat,)),
    ),
    *from_kafka(
        "GroupMetadataManager.removeMemberAndUpdateClassicGroup",
        Rule({PREPARING}, then=(do.remove_member, rebalance.complete_if_all_joined)),
        Rule(
            {STABLE, COMPLETING}, then=(do.remove_member, rebalance.prepare_rebalance), to=PREPARING
        ),
    ),
)

#: The JOIN timer has expired.
JOIN_EXPIRED: Final[Table] = (
    *from_kafka(
        "GroupMetadataManager.tryCompleteInitialRebalanceElseSchedule",
        Rule({PREPARING}, (if_.may_wait_longer,), then=(rebalance.extend_initial_wait,)),
    ),
    *from_kafka(
        "GroupMetadataManager.completeClassicGroupJoin",
        Rule({PREPARING}, then=(rebalance.complete_join,)),
    ),
)

#: The SYNC timer has expired; it also runs in Stable, once the leader has synced.
SYNC_EXPIRED: Final[Table] = from_kafka(
    "GroupMetadataManager.expirePendingSync",
    Rule(
        {COMPLETING, STABLE},
        then=(do.remove_unsynced, rebalance.prepare_rebalance),
        to=PREPARING,
    ),
)

#: The shard goes to another coordinator.
UNLOAD: Final[Table] = from_kafka(
    "GroupMetadataManager.onUnloaded",
    Rule(ANY, then=(do.fail_all_parked, do.mark_dead), to=DEAD),
)

#: A group that was loaded after a failover, sessions started; ``group.max.size`` may have changed.
LOADED: Final[Table] = from_kafka(
    "GroupMetadataManager.onLoaded",
    Rule({STABLE}, (if_.has_too_many_members,), then=(rebalance.prepare_rebalance,), to=PREPARING),
    Rule({EMPTY, STABLE}),
)

#: Every table, by its event.
TABLES: Final[Mapping[str, Table]] = {
    "JoinGroup": JOIN,
    "JoinGroup, after the group was created": NEW_GROUP,
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
