"""One change in a simulated group: one more member joins, or one of them is cut off.

A member that is cut off loses its connections to all brokers and ZooKeeper servers for a while, and
still gets records: a simulated member reads the log directly.

Time is virtual and every message is under way for a millisecond; servers and members take no time
to think. So times are those of a group with processors enough, and counts are those of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, final

import attrs

from kgroup.broker.groups.requests import Heartbeat
from kgroup.broker.groups.responses import HeartbeatCompleted
from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation import history
from kgroup.testing.simulation.faults import ALL, Fault, Split
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.network import Latency
from kgroup.testing.simulation.plan import MemberPlan, Plan
from kgroup.testing.simulation.run import record
from kgroup.testing.simulation.schemes import Scheme
from kgroup.testing.simulation.schemes.judge import Judge
from kgroup.testing.simulation.schemes.owners import Owners

CHANGE_AT: Final = 60.6
"""When the change happens: by then the members have shared the partitions. Members of the classic
scheme learn of it from their next heartbeat, which is half of an interval later."""
DURATION: Final = 100.0
LATENCY: Final = 0.001
RECORDS_EVERY: Final = 0.02
"""Seconds between two records, wherever they are written."""
WORK: Final = (0.0, 0.2)
"""Seconds that a member takes for a record, at least and at most."""
SESSION: Final = 6.0
JOIN: Final = "join"
CUT_OFF: Final = "cut off"
AWAY: Final = 20.0
"""Seconds for which a member is cut off."""


@final
@attrs.frozen(kw_only=True)
class Figures:
    """What a change took.

    Attributes:
        notifications: messages that reported the change to a member, or commanded it.
        requests: reads, writes and answers that followed from it.
        settled: seconds from the start of the new member until every partition had one owner for
            good, or None if that did not happen.
        shared: seconds for which two members acted as owner of one partition, added up.
        twice: records that were processed again.
    """

    notifications: int
    requests: int
    settled: float | None
    shared: float
    twice: int


def plan(members: int, partitions: int, change: str = JOIN) -> Plan:
    """The plan of a change."""
    starts = [0.0] * members
    faults: tuple[Fault, ...] = ()
    if change == JOIN:
        starts.append(CHANGE_AT)
    else:
        faults = (Split(at=CHANGE_AT, process=name_of(1), broker=ALL, seconds=AWAY),)
    return Plan(
        seed=1,
        duration=DURATION,
        brokers=3,
        topics={"orders": partitions},
        members=tuple(
            MemberPlan(name=name_of(number), start_at=at) for number, at in enumerate(starts, 1)
        ),
        config={"session_timeout": SESSION, "assignors": ["range"]},
        broker_settings={"default.replication.factor": 3, "group.initial.rebalance.delay.ms": 3000},
        latency=Latency(LATENCY, LATENCY),
        records_every=RECORDS_EVERY,
        records_at_once=1,
        work=WORK,
        faults=faults,
        wall_clock_error=0.0,
    )


def name_of(number: int) -> str:
    """A member's name, so that names sort as numbers do."""
    return f"m{number:04}"


def played(
    scheme: Scheme, members: int, partitions: int, change: str = JOIN
) -> tuple[HistoryEntry, ...]:
    """The history of a change."""
    return record(plan(members, partitions, change), scheme.worker, scheme.new_coordination)


def figures_of(entries: Sequence[HistoryEntry]) -> Figures:
    """Read the figures of the change from its history."""
    judge = Judge()
    cut = next(number for number, one in enumerate(entries) if one.at >= CHANGE_AT)
    judge.read(entries[:cut])
    if not judge.owners.are_settled():
        raise RuntimeError("the group had not shared its partitions before the change")
    twice, shared = judge.twice, sum(judge.shared.values())
    settled: float | None = None
    ending = next(n for n, one in enumerate(entries) if isinstance(one, history.WorkloadEnded))
    notifications, requests = counted(entries[cut:ending])
    for entry in entries[cut:ending]:
        owned = judge.owners.are_settled()
        judge.read((entry,))
        if judge.owners.are_settled() and (not owned or judge.owners.takes(entry)):
            settled = entry.at - CHANGE_AT
        elif not judge.owners.are_settled():
            settled = None
    return Figures(
        notifications=notifications,
        requests=requests,
        settled=settled,
        shared=sum(judge.shared.values()) - shared,
        twice=judge.twice - twice,
    )


def counted(entries: Iterable[HistoryEntry]) -> tuple[int, int]:
    """How many notifications there were, and requests that followed from them."""
    notifications = requests = 0
    for entry in entries:
        match entry:
            case history.CoordinationMessages(what="notification"):
                notifications += entry.count
            case history.CoordinationMessages() if not _stores_offset(entry):
                requests += entry.count
            case history.RequestHandled(request=Heartbeat()):
                notifications += _reports_rebalance(entry.response)
            case history.RequestHandled() if entry.api != "offset_commit":
                requests += 1
            case _:
                pass
    return notifications, requests


def _stores_offset(entry: history.CoordinationMessages) -> bool:
    """Whether a message only keeps progress, which members do without a change too."""
    return entry.what == "write" and "/offsets/" in entry.about


def _reports_rebalance(response: Any) -> bool:
    """Whether a heartbeat's answer says that a rebalance has begun."""
    assert isinstance(response, HeartbeatCompleted)
    return response.error is ErrorCode.REBALANCE_IN_PROGRESS


@final
@attrs.frozen(kw_only=True)
class Lane:
    """What a member did in a change; times are seconds since its beginning.

    Attributes:
        name: the member.
        spans: begin, end and partitions of each time in which it owned some.
        marks: when it got a notification ("received"), or read or wrote something ("sent").
    """

    name: str
    spans: Sequence[tuple[float, float, str]]
    marks: Sequence[tuple[float, str]]


def lanes_of(entries: Sequence[HistoryEntry], before: float, seconds: float) -> Iterator[Lane]:
    """The lanes of all members, from some seconds before the change to some after it."""
    begin, end = CHANGE_AT - before, CHANGE_AT + seconds
    started = (one for one in entries if isinstance(one, history.ProcessStarted))
    for name in sorted({one.process for one in started}):
        owners, spans = Owners(), list[tuple[float, float, str]]()
        marks = list[tuple[float, str]]()
        since, had = begin, ""
        for entry in entries:
            if getattr(entry, "process", name) != name or entry.at > end:
                continue
            for kind, handle in owners.handlers.items():
                if type(entry) is kind:
                    handle(entry)
            has = _owned(owners, name)
            if has != had:
                if had and entry.at > begin:
                    spans.append((max(since, begin), entry.at, had))
                since, had = entry.at, has
            if entry.at >= begin and (mark := _mark(entry)):
                marks.append((entry.at - CHANGE_AT, mark))
        if had:
            spans.append((max(since, begin), end, had))
        shown = [(one - CHANGE_AT, other - CHANGE_AT, text) for one, other, text in spans]
        yield Lane(name=name, spans=shown, marks=list(dict.fromkeys(marks)))


def _owned(owners: Owners, name: str) -> str:
    """The partitions of a member, as 0-2."""
    found = [one.partition for life, its in owners.owned.items() if life[0] == name for one in its]
    return f"{min(found)}-{max(found)}" if len(found) > 1 else "".join(map(str, found))


def _mark(entry: HistoryEntry) -> str:
    match entry:
        case history.CoordinationMessages(what="notification"):
            return "received"
        case history.CoordinationMessages() if not _stores_offset(entry):
            return "sent"
        case history.RequestHandled(request=Heartbeat()):
            return "received" if _reports_rebalance(entry.response) else ""
        case history.RequestHandled() if entry.api != "offset_commit":
            return "sent"
        case _:
            return ""
