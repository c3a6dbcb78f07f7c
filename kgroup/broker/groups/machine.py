"""One group as a machine: an event goes in at a time, answers and timers come out.

It runs the tables; it knows of no other group, of no offsets, and of no shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups import rule_tables
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.error_responses import error_response
from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.requests import (
    DeleteGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    SyncGroup,
    Ticket,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    CoordinatorResponse,
    HeartbeatCompleted,
    LeaveCompleted,
    LeftMember,
)
from kgroup.broker.groups.rules import Table, run
from kgroup.broker.groups.timers import TimerKind, TimerName, Timers
from kgroup.broker.groups.write_faults import WriteFaults, other_request_error
from kgroup.error_codes import ErrorCode

_FIRST_LEAVE_WITH_MEMBERS: Final = 3
"""The LeaveGroup version from which each member has an error of its own (KIP-345)."""

_VALIDATIONS: Final[Mapping[type, Table]] = {
    OffsetCommit: rule_tables.OFFSET_COMMIT,
    TxnOffsetCommit: rule_tables.TXN_OFFSET_COMMIT,
    OffsetDelete: rule_tables.OFFSET_DELETE,
    DeleteGroups: rule_tables.DELETE,
}
_TIMER_TABLES: Final[Mapping[TimerKind, Table]] = {
    TimerKind.SESSION: rule_tables.SESSION_EXPIRED,
    TimerKind.JOIN: rule_tables.JOIN_EXPIRED,
    TimerKind.SYNC: rule_tables.SYNC_EXPIRED,
}


@final
class GroupMachine:
    """A group and what happens to it. Not for use by two tasks at once."""

    def __init__(
        self,
        group: ClassicGroup,
        settings: CoordinatorSettings,
        timers: Timers,
        write_faults: WriteFaults,
        new_id: Callable[[], str],
    ) -> None:
        self.group = group
        self._settings = settings
        self._timers = timers
        self._write_faults = write_faults
        self._new_id = new_id

    def __repr__(self) -> str:
        group = self.group
        return (
            f"<GroupMachine {group.group_id!r} {group.state.value}"
            f" generation={group.generation_id} members={len(group.members)}>"
        )

    def loaded(self, now: float) -> None:
        """Start the sessions of a group that a failover brought here.

        A group that is larger than allowed by now rebalances.
        """
        context = self._context(now)
        for member in self.group.members.values():
            context.extend_session(member)
        run(rule_tables.LOADED, context)

    def join(self, now: float, request: JoinGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """A JoinGroup."""
        return self._handle(rule_tables.JOIN, now, request, ticket)

    def join_new_group(
        self, now: float, request: JoinGroup, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """The JoinGroup that made this group, which is Dead afterwards if it cannot be written."""
        context = self._context(now, request, ticket)
        self._run(rule_tables.JOIN, context)
        run(rule_tables.NEW_GROUP, context)
        return context.responses

    def sync(self, now: float, request: SyncGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """A SyncGroup."""
        return self._handle(rule_tables.SYNC, now, request, ticket)

    def heartbeat(
        self, now: float, request: Heartbeat, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """A Heartbeat."""
        context = self._context(now, request, ticket)
        context.respond(HeartbeatCompleted(error=run(rule_tables.HEARTBEAT, context)))
        return context.responses

    def leave(self, now: float, request: LeaveGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """A LeaveGroup: members are judged in order, the group rebalances after the last."""
        context = self._context(now, request, ticket)
        error = run(rule_tables.LEAVE, context)
        if error is not ErrorCode.NONE:
            context.respond(error_response(request, error))
            return context.responses
        results = []
        for member in request.members:
            context.event = member
            results.append(run(rule_tables.LEAVING_MEMBER, context))
        if ErrorCode.NONE in results:
            run(rule_tables.MEMBERS_LEFT, context)
        if context.write_error is ErrorCode.NONE:
            context.respond(leave_response(request, results))
        else:
            context.respond(error_response(request, other_request_error(context.write_error)))
        return context.responses

    def validate(self, now: float, request: Any) -> ErrorCode:
        """Whether a commit, an offset delete or a deletion is allowed; extends the session."""
        return run(_VALIDATIONS[type(request)], self._context(now, request))

    def fire(self, now: float, timer: TimerName) -> list[CoordinatorResponse]:
        """A timer of this group."""
        context = self._context(now, SessionExpired(member_id=timer.member_id))
        run(_TIMER_TABLES[timer.kind], context)
        return context.responses

    def unload(self, now: float) -> list[CoordinatorResponse]:
        """The group goes to another coordinator; this object is of no use afterwards."""
        context = self._context(now)
        run(rule_tables.UNLOAD, context)
        return context.responses

    def _handle(
        self, table: Table, now: float, request: Any, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        context = self._context(now, request, ticket)
        self._run(table, context)
        return context.responses

    def _run(self, table: Table, context: EventContext) -> None:
        error = run(table, context)
        if error is not ErrorCode.NONE:
            context.respond(error_response(context.event, error))

    def _context(self, now: float, event: Any = None, ticket: Ticket | None = None) -> EventContext:
        return EventContext(
            now=now,
            settings=self._settings,
            timers=self._timers,
            write_faults=self._write_faults,
            new_id=self._new_id,
            group=self.group,
            event=event,
            ticket=ticket,
        )


@final
@attrs.frozen(kw_only=True)
class SessionExpired:
    """The event of a session that has ended, or of a group's timer, without a member then."""

    member_id: str


def leave_response(request: LeaveGroup, results: list[ErrorCode]) -> LeaveCompleted:
    """The answer to a LeaveGroup from what became of each of its members."""
    if request.version < _FIRST_LEAVE_WITH_MEMBERS:
        return LeaveCompleted(error=results[0])
    return LeaveCompleted(
        members=tuple(
            LeftMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error=error,
            )
            for member, error in zip(request.members, results, strict=True)
        )
    )
