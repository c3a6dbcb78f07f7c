"""One group as a machine: an event goes in at a time, answers and timers come out.

It runs the tables; it knows of no other group, of no offsets, and of no shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups import rule_tables
from kgroup.broker.groups.codes import ErrorCode
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.error_responses import refusal
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
    HeartbeatAnswered,
    LeaveCompleted,
    LeftMember,
)
from kgroup.broker.groups.rules import Table, run
from kgroup.broker.groups.timers import TimerKind, TimerName, Timers
from kgroup.broker.groups.write_faults import WriteFaults, answered_elsewhere

_FIRST_LEAVE_WITH_MEMBERS: Final = 3
"""The LeaveGroup version from which each member has an error of its own (KIP-345)."""

_JUDGES: Final[Mapping[type, Table]] = {
    OffsetCommit: rule_tables.OFFSET_COMMIT,
    TxnOffsetCommit: rule_tables.TXN_OFFSET_COMMIT,
    OffsetDelete: rule_tables.OFFSET_DELETE,
    DeleteGroups: rule_tables.DELETE,
}
_TIMER_TABLES: Final[Mapping[TimerKind, Table]] = {
    TimerKind.SESSION: rule_tables.SESSION_OVER,
    TimerKind.JOIN: rule_tables.JOIN_OVER,
    TimerKind.SYNC: rule_tables.SYNC_OVER,
}


@final
class GroupMachine:
    """A group and what happens to it. Not for use by two tasks at once."""

    def __init__(
        self,
        group: ClassicGroup,
        settings: CoordinatorSettings,
        timers: Timers,
        journal: WriteFaults,
        new_id: Callable[[], str],
    ) -> None:
        self.group = group
        self._settings = settings
        self._timers = timers
        self._journal = journal
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
        turn = self._turn(now)
        for member in self.group.members.values():
            turn.extend_session(member)
        run(rule_tables.LOADED, turn)

    def join(self, now: float, request: JoinGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """A JoinGroup."""
        return self._ask(rule_tables.JOIN, now, request, ticket)

    def join_first(
        self, now: float, request: JoinGroup, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """The JoinGroup that made this group, which is Dead afterwards if it cannot be written."""
        turn = self._turn(now, request, ticket)
        self._run(rule_tables.JOIN, turn)
        run(rule_tables.NEW_GROUP, turn)
        return turn.answers

    def sync(self, now: float, request: SyncGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """A SyncGroup."""
        return self._ask(rule_tables.SYNC, now, request, ticket)

    def heartbeat(
        self, now: float, request: Heartbeat, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """A Heartbeat."""
        turn = self._turn(now, request, ticket)
        turn.answer(HeartbeatAnswered(error=run(rule_tables.HEARTBEAT, turn)))
        return turn.answers

    def leave(self, now: float, request: LeaveGroup, ticket: Ticket) -> list[CoordinatorResponse]:
        """A LeaveGroup: members are judged in order, the group rebalances after the last."""
        turn = self._turn(now, request, ticket)
        error = run(rule_tables.LEAVE, turn)
        if error is not ErrorCode.NONE:
            turn.answer(refusal(request, error))
            return turn.answers
        results = []
        for member in request.members:
            turn.event = member
            results.append(run(rule_tables.LEAVER, turn))
        if ErrorCode.NONE in results:
            run(rule_tables.LEAVERS_GONE, turn)
        if turn.failed is ErrorCode.NONE:
            turn.answer(left(request, results))
        else:
            turn.answer(refusal(request, answered_elsewhere(turn.failed)))
        return turn.answers

    def judge(self, now: float, request: Any) -> ErrorCode:
        """Whether a commit, an offset delete or a deletion is allowed; extends the session."""
        return run(_JUDGES[type(request)], self._turn(now, request))

    def fire(self, now: float, timer: TimerName) -> list[CoordinatorResponse]:
        """A timer of this group."""
        turn = self._turn(now, SessionOver(member_id=timer.member_id))
        run(_TIMER_TABLES[timer.kind], turn)
        return turn.answers

    def unload(self, now: float) -> list[CoordinatorResponse]:
        """The group goes to another coordinator; this object is of no use afterwards."""
        turn = self._turn(now)
        run(rule_tables.UNLOAD, turn)
        return turn.answers

    def _ask(
        self, table: Table, now: float, request: Any, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        turn = self._turn(now, request, ticket)
        self._run(table, turn)
        return turn.answers

    def _run(self, table: Table, turn: EventContext) -> None:
        error = run(table, turn)
        if error is not ErrorCode.NONE:
            turn.answer(refusal(turn.event, error))

    def _turn(self, now: float, event: Any = None, ticket: Ticket | None = None) -> EventContext:
        return EventContext(
            now=now,
            settings=self._settings,
            timers=self._timers,
            journal=self._journal,
            new_id=self._new_id,
            group=self.group,
            event=event,
            ticket=ticket,
        )


@final
@attrs.frozen(kw_only=True)
class SessionOver:
    """The event of a session that has ended, or of a group's timer, without a member then."""

    member_id: str


def left(request: LeaveGroup, results: list[ErrorCode]) -> LeaveCompleted:
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
