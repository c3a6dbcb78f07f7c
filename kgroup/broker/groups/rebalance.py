"""How a rebalance begins and how its join completes: the actions that several rules share.

Source: Kafka's ``GroupMetadataManager.prepareRebalance``, ``completeClassicGroupJoin``,
``maybeCompleteJoinPhase``, ``tryCompleteInitialRebalanceElseSchedule``.
"""

from __future__ import annotations

from typing import Final

from kgroup.broker.groups import conditions as if_
from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.group import NO_WAIT, InitialWait
from kgroup.broker.groups.rules import Rule, Table, from_kafka, run
from kgroup.broker.groups.states import COMPLETING, EMPTY, PREPARING
from kgroup.broker.groups.timers import TimerKind
from kgroup.error_codes import ErrorCode

SHORTEST_REPEAT: Final = 0.1
"""Seconds for which the join timer runs at least if only static members are waited for."""
_MILLISECONDS: Final = 3
"""Decimals of a second: time-outs are whole milliseconds, and differences must be, too."""


def prepare_rebalance(context: EventContext) -> None:
    """Begin a rebalance: every member must join again; an empty group first waits for more members.

    Waiting syncs are answered REBALANCE_IN_PROGRESS (27), and assignments are cleared. If all
    members have joined already, the join completes at once.
    """
    group = context.group
    if group.state is COMPLETING:
        for member in group.members.values():
            member.assignment = b""
            if context.respond_to_sync(member, ErrorCode.REBALANCE_IN_PROGRESS):
                context.extend_session(member)
    group.unsynced.clear()
    context.cancel_timer(TimerKind.SYNC)
    was_empty = group.state is EMPTY
    group.enter(PREPARING, context.now)
    if was_empty:
        delay = context.settings.initial_rebalance_delay
        group.initial_wait = InitialWait(delay, _left(group.rebalance_timeout, delay))
        context.set_timer(TimerKind.JOIN, delay)
    elif group.all_joined:
        complete_join(context)
    else:
        context.set_timer(TimerKind.JOIN, group.rebalance_timeout)


def complete_if_all_joined(context: EventContext) -> None:
    """Complete the join if all members have joined, even during the initial wait."""
    if context.group.all_joined:
        complete_join(context)


def complete_unless_initial_wait(context: EventContext) -> None:
    """Complete the join if all members have joined; this does not shorten the initial delay."""
    if context.group.previous is not EMPTY:
        complete_if_all_joined(context)


def extend_initial_wait(context: EventContext) -> None:
    """Wait another period, because new members joined in the last one."""
    group = context.group
    last = group.initial_wait
    group.new_member_added = False
    delay = min(context.settings.initial_rebalance_delay, last.remaining)
    group.initial_wait = InitialWait(delay, _left(last.remaining, last.delay))
    context.set_timer(TimerKind.JOIN, delay)


def complete_join(context: EventContext) -> None:
    """Complete the join: remove the members that have not joined, unless they are static."""
    group = context.group
    context.cancel_timer(TimerKind.JOIN)
    group.initial_wait = NO_WAIT
    missing = [
        member
        for member in group.members.values()
        if member.parked_join is None and not member.is_static
    ]
    for member in missing:
        group.remove(member.member_id)
        context.end_session(member.member_id)
    run(JOIN_COMPLETES, context)


def become_empty(context: EventContext) -> None:
    """Begin a generation without members, and write its record."""
    _become_empty(context)
    context.group.write_record(context.now)


def become_empty_without_record(context: EventContext) -> None:
    """Begin a generation without members after a failed write; a leaving member gets the error."""
    _become_empty(context)
    context.write_error = context.write_faults.append()


def _become_empty(context: EventContext) -> None:
    group = context.group
    group.generation_id += 1
    group.protocol_name = None
    group.topics = group.read_topics()
    group.enter(EMPTY, context.now)
    group.unsynced.clear()


def restart_join_timer(context: EventContext) -> None:
    """Wait another rebalance time-out for the static members, which stay in the group.

    They may have named 0: without a pause, the coordinator would do nothing else.
    """
    seconds = max(context.group.rebalance_timeout, SHORTEST_REPEAT)
    context.set_timer(TimerKind.JOIN, seconds)


def start_generation(context: EventContext) -> None:
    """Elect a leader that has joined and a protocol, answer all joins and expect all syncs."""
    group = context.group
    present = [one.member_id for one in group.members.values() if one.parked_join is not None]
    if group.leader not in present:
        group.leader = present[0]
    group.generation_id += 1
    group.protocol_name = group.elect_protocol()
    group.topics = group.read_topics()
    group.enter(COMPLETING, context.now)
    for member in group.members.values():
        leads = member.member_id == group.leader
        response = context.join_response(member.member_id, with_members=leads)
        context.respond_to_join(member, response)
        context.extend_session(member)
        member.is_new = False
        group.unsynced[member.member_id] = None
    context.set_timer(TimerKind.SYNC, group.rebalance_timeout)


def _left(seconds: float, spent: float) -> float:
    return max(round(seconds - spent, _MILLISECONDS), 0.0)


#: A join completes: the JOIN timer has expired, or all members have joined.
JOIN_COMPLETES: Final[Table] = from_kafka(
    "GroupMetadataManager.completeClassicGroupJoin",
    Rule(
        {PREPARING},
        (if_.has_no_members, if_.append_fails),
        then=(become_empty_without_record,),
        to=EMPTY,
    ),
    Rule({PREPARING}, (if_.has_no_members,), then=(become_empty,), to=EMPTY),
    Rule({PREPARING}, (if_.no_member_has_joined,), then=(restart_join_timer,)),
    Rule({PREPARING}, then=(start_generation,), to=COMPLETING),
)
