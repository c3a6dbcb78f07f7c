"""One group as a state machine: an event and the time go in, responses and timers come out.

Theory of operation
-------------------

An event is a request that concerns members, or a timer that has expired. For each kind of event
``rule_tables`` has one table. ``rules.run`` takes the first row whose states and conditions fit,
performs its actions in order, and checks that the group entered exactly the state that the row
names. All decisions are in the tables; this module only chooses the table for an event and turns
the row's error into a response. The machine knows nothing of other groups, of committed offsets and
of shards: ``registry`` and ``request_handling`` do.

INVARIANT: nothing here waits, reads a clock or draws a random number. ``now`` comes in with every
call, and a request that cannot be answered yet waits: its ticket is kept with the member
(``parked_join``, ``parked_sync``), and a later event responds to it. So one call may return several
responses, to tickets of earlier calls, and none to its own. The order of the responses is Kafka's,
and clients see it.

A generation comes about like this. The first JoinGroup that changes something takes the group to
PreparingRebalance and starts the JOIN timer; every further join waits. When all members have
joined and no member id is pending, or when the timer expires, ``rebalance.complete_join`` removes
the members that have not joined, begins the next generation, responds to all waiting joins in one
go and enters CompletingRebalance. Now the syncs wait, until the leader's sync brings the
assignments: it responds to all of them, and the group is Stable. From there only a change leads
back to PreparingRebalance: a member that joins, leaves or expires.

What one would not expect, and Kafka does:

- Completing a join is an event within an event. A join, a leave or a session's end can complete the
  join that the others wait for; ``complete_join`` then runs the table JOIN_COMPLETES inside the
  outer row. The group's ``entered_states`` keeps the two apart, so that each row is held to its own
  ``to``.
- A waiting request is dropped without any response when its member sends it again (only the latest
  copy counts), and a waiting sync when its member leaves. The caller gets a response of None and
  must forget the ticket.
- A member whose join or sync waits does not expire: it is the group that keeps it waiting. A
  *new* member does expire, 300 s after its join. Its client may be gone, and until that client has
  the response, no one knows the member id with which it could leave.
- From Empty, a join waits for ``initial_rebalance_delay`` even if all members are there, and longer
  while new members come. Joins and leaves do not end this wait early; an expired session does.
- Static members keep their place when a join completes without them. If no member at all has
  joined, the timer starts again and the group stays in PreparingRebalance.
- The SYNC timer also runs in Stable, for members that have not fetched their assignment.
- Writes can fail (``write_faults``). A failed write has rows of its own, above those for the good
  case. They leave the group as a failover would find it, or let it rebalance.
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
    """A group, and the events that change it. Not for use by two tasks at once."""

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
        """Start the sessions of a group that was loaded after a failover.

        A group that is larger than the limit rebalances: the limit may have changed meanwhile.
        """
        context = self._context(now)
        for member in self.group.members.values():
            context.extend_session(member)
        run(rule_tables.LOADED, context)

    def join(self, now: float, request: JoinGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """Handle a JoinGroup."""
        return self._handle(rule_tables.JOIN, now, request, ticket)

    def join_new_group(
        self, now: float, request: JoinGroup, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """Handle the JoinGroup that created this group; if its write fails, the group is Dead."""
        context = self._context(now, request, ticket)
        self._run(rule_tables.JOIN, context)
        run(rule_tables.NEW_GROUP, context)
        return context.responses

    def sync(self, now: float, request: SyncGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """Handle a SyncGroup."""
        return self._handle(rule_tables.SYNC, now, request, ticket)

    def heartbeat(
        self, now: float, request: Heartbeat, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """Handle a Heartbeat."""
        context = self._context(now, request, ticket)
        context.respond(HeartbeatCompleted(error=run(rule_tables.HEARTBEAT, context)))
        return context.responses

    def leave(self, now: float, request: LeaveGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """Handle a LeaveGroup: each member in order; the group rebalances after the last one."""
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
        """Validate a commit, an offset delete or a deletion; a commit extends the session."""
        return run(_VALIDATIONS[type(request)], self._context(now, request))

    def fire(self, now: float, timer: TimerName) -> list[CoordinatorResponse]:
        """Handle a timer of this group that has expired."""
        context = self._context(now, SessionExpired(member_id=timer.member_id))
        run(_TIMER_TABLES[timer.kind], context)
        return context.responses

    def unload(self, now: float) -> list[CoordinatorResponse]:
        """Give the group up to another coordinator; the machine must not be used afterwards."""
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
    """The event of an expired session; of a group's own timer if the member id is empty."""

    member_id: str


def leave_response(request: LeaveGroup, results: list[ErrorCode]) -> LeaveCompleted:
    """The response to a LeaveGroup, from the error of each of its members."""
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
