"""What conditions and actions work on: one event in one group, and the responses to it.

Source: the fields of Kafka's ``GroupMetadataManager``, its futures and its timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import attrs

from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.members import ClassicGroupMember, Parked
from kgroup.broker.groups.requests import Ticket
from kgroup.broker.groups.responses import (
    CoordinatorResponse,
    JoinCompleted,
    Response,
    SyncCompleted,
)
from kgroup.broker.groups.timers import TimerKind, TimerName, Timers
from kgroup.broker.groups.write_faults import WriteFaults
from kgroup.error_codes import ErrorCode


@final
@attrs.define(eq=False, kw_only=True)
class EventContext:
    """One event in one group.

    Attributes:
        event: the request, or the part of one that concerns a single member; for timers a
            ``SessionExpired``; None when a shard is loaded or unloaded.
        ticket: the request's, None for other events.
        responses: the responses so far, in order.
        write_error: the error of a failed write that the response must still report.
    """

    now: float
    settings: CoordinatorSettings
    timers: Timers
    write_faults: WriteFaults
    new_id: Callable[[], str]
    group: ClassicGroup
    event: Any = None
    ticket: Ticket | None = None
    responses: list[CoordinatorResponse] = attrs.field(factory=list)
    write_error: ErrorCode = ErrorCode.NONE

    # Responses

    def respond(self, response: Response) -> None:
        """Respond to this request."""
        self.responses.append(CoordinatorResponse(self.ticket, response))

    def park(self) -> Parked:
        """This request, as one that waits for its response."""
        return Parked(self.ticket)

    def respond_to_parked(self, parked: Parked | None, response: Response | None) -> None:
        """Respond to a parked request, if there is one; None drops it without a response."""
        if parked is not None:
            self.responses.append(CoordinatorResponse(parked.ticket, response))

    def respond_to_join(self, member: ClassicGroupMember, response: Response) -> None:
        """Respond to a member's parked join, if it has one."""
        self.respond_to_parked(self.group.unpark_join(member), response)

    def respond_to_sync(self, member: ClassicGroupMember, error: ErrorCode) -> bool:
        """Respond to a member's parked sync, with its assignment unless there is an error.

        Returns:
            whether it had one.
        """
        parked, member.parked_sync = member.parked_sync, None
        good = error is ErrorCode.NONE
        self.respond_to_parked(
            parked,
            SyncCompleted(
                error=error,
                protocol_type=self.group.protocol_type if good else None,
                protocol_name=self.group.protocol_name if good else None,
                assignment=member.assignment if good else b"",
            ),
        )
        return parked is not None

    def join_response(self, member_id: str, *, with_members: bool) -> JoinCompleted:
        """The response to a join that is in the group's current generation."""
        group = self.group
        return JoinCompleted(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            member_id=member_id,
            members=group.joined_members() if with_members else (),
        )

    # Timers

    def start_session(self, member_id: str, seconds: float) -> None:
        """Start the session of a member or of a pending member id, or start it again."""
        self.timers.set(self._session(member_id), self.now + seconds)

    def end_session(self, member_id: str) -> None:
        """Cancel a session's timer."""
        self.timers.cancel(self._session(member_id))

    def extend_session(self, member: ClassicGroupMember) -> None:
        """Start a member's session again, for its session time-out."""
        self.start_session(member.member_id, member.session_timeout)

    def set_timer(self, kind: TimerKind, seconds: float) -> None:
        """Start a timer of the group, or start it again; for now if the time-out is negative."""
        self.timers.set(TimerName(kind, self.group.group_id), self.now + max(seconds, 0.0))

    def cancel_timer(self, kind: TimerKind) -> None:
        """Cancel a timer of the group."""
        self.timers.cancel(TimerName(kind, self.group.group_id))

    def _session(self, member_id: str) -> TimerName:
        return TimerName(TimerKind.SESSION, self.group.group_id, member_id)
