"""What is measured, without a library for metrics."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from typing import Any

import attrs
import pytest

from kgroup.errors import LeaseExpiredError
from kgroup.events import (
    FIRST_JOIN,
    NEW_ID_JOIN,
    Assigned,
    BatchCancelled,
    BatchDone,
    BatchFailed,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Joined,
    Joining,
    Left,
    LoopBlocked,
    RecordFailed,
    RecordParked,
    RequestFailed,
)
from kgroup.health import Health
from kgroup.metrics import rebalances, table
from kgroup.metrics.measuring import Labels, Measuring
from kgroup.metrics.rebalances import RebalanceTimes
from kgroup.metrics.table import METRICS, Metric, MetricKind
from kgroup.status import GroupStatus, Phase
from kgroup.types import Assignment, Cause, End, TopicPartition

P0 = TopicPartition("t", 0)
END = End(Cause.REBALANCE)
LOST = End(Cause.MEMBERSHIP_LOST)
FIELDS: dict[type[Event], dict[str, Any]] = {
    Joining: {"reason": "r"},
    RequestFailed: {"request": "JoinGroup", "reason": "r", "next_action": "a"},
    Joined: {"leader": True, "assignor": "range", "members": 1},
    Assigned: {"assignment": Assignment((P0,)), "start_offsets": {}},
    GenerationStarted: {},
    GenerationDraining: {"end": END, "seconds": 1.0},
    GenerationEnded: {"end": END, "cut_short": False},
    Left: {"reason": "r", "notified": True},
}


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.added: list[tuple[str, Labels]] = []
        self.observed: list[tuple[str, Labels, float]] = []

    def add(self, metric: Metric, labels: Labels, number: int) -> None:
        """See ``Sink``."""
        assert number > 0
        self.added.append((metric.prometheus, labels))

    def observe(self, metric: Metric, labels: Labels, seconds: float) -> None:
        """See ``Sink``."""
        self.observed.append((metric.prometheus, labels, seconds))


@attrs.define(eq=False)
class Group:
    """A group with a status that a test sets."""

    judged: GroupStatus
    ready: bool = True
    live: bool = True

    def status(self) -> GroupStatus:
        """See ``Monitored``."""
        return self.judged

    def health(self, **_: float | None) -> Health:
        """See ``Monitored``."""
        return Health(live=self.live, ready=self.ready, reasons=(), status=self.judged)


class Member:
    """Events of one member, each one second after the last."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = RebalanceTimes(lambda: self.now)

    def play(
        self, *kinds: type[Event], member_id: str = "m", **fields: Any
    ) -> list[tuple[str, float]]:
        """Take events; return the spans of what is over."""
        spans = []
        for kind in kinds:
            self.now += 1
            given = {**FIELDS[kind], **fields}
            spans += self.times.take(kind(group_id="g", member_id=member_id, **given))
        return [(span.phase, span.seconds) for span in spans]


def test_the_parts_of_a_rebalance() -> None:
    """First a join without an id, then a rebalance with a drain; the whole comes last."""
    member = Member()
    assert member.play(Joining, member_id="") == []
    assert member.play(Joining, Joined, Assigned, GenerationStarted) == [
        ("join", 2),  # from the first JoinGroup on
        ("sync", 1),
        ("hand_over", 1),
        ("", 4),
    ]
    assert member.play(
        *(GenerationDraining, GenerationEnded, Joining, Joined, Assigned, GenerationStarted)
    ) == [("drain", 1), ("rejoin", 1), ("join", 1), ("sync", 1), ("hand_over", 1), ("", 5)]


def test_a_generation_that_ends_before_the_hand_over() -> None:
    """Its parts count once they are over, and the rebalance goes on."""
    member = Member()
    member.play(GenerationEnded, Joining, Joined)
    assert member.play(GenerationEnded, Joining, Joined, Assigned, GenerationStarted) == [
        *(("rejoin", 1), ("join", 1), ("rejoin", 1), ("join", 1), ("sync", 1), ("hand_over", 1)),
        ("", 7),
    ]


def test_members_that_leave_or_vanish_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that left begins again, and ids that never come again do not pile up."""
    member = Member()
    assert member.play(GenerationEnded, Left, GenerationStarted) == []
    monkeypatch.setattr(rebalances, "_MOST", 3)
    member.play(GenerationEnded)
    for number in range(10):
        member.play(GenerationEnded, member_id=f"lost-{number}")
        member.play(Joining)
    assert len(member.times._running) <= 3
    # One that goes on is none of them.
    member.play(Joined)
    assert ("rejoin", 2.0) in member.play(Assigned, GenerationStarted)


@pytest.mark.parametrize("began", [(Joining,), (Joining, RequestFailed)])
@pytest.mark.parametrize("member_id", ["", "lost"])
def test_a_group_that_is_entered_after_another_one(
    began: tuple[type[Event], ...], member_id: str
) -> None:
    """What a group that was closed while it joined, or had lost its id, began is no part of it."""
    member = Member()
    first = Group(GroupStatus(group_id="g", phase=Phase.JOINING))
    other = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    member.times.entered(first)
    member.times.entered(other)
    member.play(*began, member_id=member_id)
    first.judged = GroupStatus(group_id="g", phase=Phase.FAILED)
    other.judged = GroupStatus(group_id="g", phase=Phase.CLOSED)
    member.now += 3600
    member.times.entered(Group(GroupStatus(group_id="g", phase=Phase.IDLE)))
    member.play(Joining, member_id="")
    *_, whole = member.play(Joined, Assigned, GenerationStarted)
    assert whole == ("", 3)


@pytest.mark.parametrize("member_id", ["", "lost"])
def test_a_group_that_is_entered_again_beside_another_one(member_id: str) -> None:
    """What the group that has ended began is over, and the rebalance of the other one goes on."""
    member = Member()
    other, first = (Group(GroupStatus(group_id="g", phase=Phase.JOINING)) for _ in range(2))
    member.times.entered(other)
    member.times.entered(first)
    member.play(Joining, RequestFailed, member_id=member_id)
    member.play(GenerationDraining, GenerationEnded)
    first.judged = GroupStatus(group_id="g", phase=Phase.CLOSED)
    member.now += 100
    member.times.entered(Group(GroupStatus(group_id="g", phase=Phase.IDLE)))
    member.play(Joining, member_id="")
    *_, own = member.play(Joined, Assigned, GenerationStarted, member_id="new")
    *_, others = member.play(Joining, Joined, Assigned, GenerationStarted)
    assert (own, others) == (("", 3), ("", 109))


def test_a_group_that_is_entered_beside_another_one() -> None:
    """The rebalance of a member that has not ended goes on, whatever else is entered."""
    member = Member()
    group = Group(GroupStatus(group_id="g", phase=Phase.DRAINING))
    member.times.entered(group)
    member.play(GenerationEnded)
    for group_id in ("g", "h"):
        member.times.entered(Group(GroupStatus(group_id=group_id, phase=Phase.IDLE)))
    *_, whole = member.play(Joining, Joined, Assigned, GenerationStarted)
    assert whole == ("", 4)


def test_a_member_that_has_to_give_up_its_id() -> None:
    """Its rebalance begins with the end of its generation, and not with the join without an id."""
    member = Member()
    member.play(GenerationEnded, end=LOST)
    member.play(Joining, member_id="")
    assert member.play(Joined, Assigned, GenerationStarted, member_id="new") == [
        *(("rejoin", 1), ("join", 1), ("sync", 1), ("hand_over", 1)),
        ("", 4),
    ]
    assert not member.times._running


def test_members_that_give_up_their_ids_together() -> None:
    """After an outage each of them has one rebalance, from its own end, and nothing is left."""
    member = Member()
    for name in ("a", "b"):
        member.play(GenerationEnded, end=LOST, member_id=name)
        member.play(Joining, RequestFailed, member_id=name)
    member.play(Joining, Joining, member_id="")
    wholes = []
    for name in ("c", "d"):
        member.play(Joining, member_id=name)
    for name in ("c", "d"):
        *_, whole = member.play(Joined, Assigned, GenerationStarted, member_id=name)
        wholes.append(whole)
    assert wholes == [("", 12), ("", 12)]
    assert not member.times._running


def test_a_member_whose_id_is_refused_by_the_join() -> None:
    """The join is repeated without the id, and belongs to the rebalance that has begun."""
    member = Member()
    member.play(GenerationDraining, GenerationEnded, Joining, RequestFailed)
    member.play(Joining, member_id="")
    *_, whole = member.play(Joined, Assigned, GenerationStarted, member_id="new")
    assert whole == ("", 7)


@pytest.mark.parametrize("leave", [[], [Left]])
def test_a_member_that_changes_its_id(leave: list[type[Event]]) -> None:
    """It leaves for that, unless it is static; the rebalance is one, and nothing is left of it."""
    member = Member()
    member.play(GenerationDraining, GenerationEnded, Joining)
    member.play(*leave, reason=NEW_ID_JOIN)
    member.play(Joining, member_id="", reason=NEW_ID_JOIN)
    drain, *_, whole = member.play(Joined, Assigned, GenerationStarted, member_id="new")
    assert (drain, whole) == (("drain", 1), ("", 6 + len(leave)))
    assert not member.times._running


def test_the_first_join_of_another_member() -> None:
    """A member that drains keeps its id: a join without one is not its own."""
    member = Member()
    member.play(GenerationDraining, GenerationEnded)
    member.play(Joining, member_id="")
    *_, other = member.play(Joined, Assigned, GenerationStarted, member_id="other")
    *_, own = member.play(Joining, Joined, Assigned, GenerationStarted)
    assert (other, own) == (("", 3), ("", 9))


def test_members_whose_first_join_waits() -> None:
    """A static member has no id until its JoinGroup is answered: what others do is not its own."""
    member = Member()
    member.play(Joining, member_id="")
    member.play(GenerationDraining, GenerationEnded, Joining)
    *_, new = member.play(Joined, Assigned, GenerationStarted, member_id="new")
    *_, own = member.play(Joined, Assigned, GenerationStarted)
    assert (new, own) == (("", 6), ("", 8))


def test_the_first_join_of_another_member_beside_one_that_has_lost_its_id() -> None:
    """Its reason says that it is the first, as often as it is repeated; the other one goes on."""
    member = Member()
    member.play(GenerationEnded, end=LOST)
    member.play(Joining, RequestFailed, member_id="", reason=FIRST_JOIN)
    member.play(Joining, member_id="", reason=FIRST_JOIN)
    member.play(Joining, RequestFailed, member_id="refused")
    member.play(Joining, member_id="", reason=FIRST_JOIN)
    *_, new = member.play(Joined, Assigned, GenerationStarted, member_id="new")
    member.play(Joining, member_id="")
    *_, own = member.play(Joined, Assigned, GenerationStarted, member_id="own")
    assert (new, own) == (("", 8), ("", 13))


def test_the_first_join_of_another_member_while_a_join_waits() -> None:
    """Members of one process that rejoin because a new one has come keep their own rebalances."""
    member = Member()
    member.play(GenerationDraining, GenerationEnded, Joining, RequestFailed, Joining)
    member.play(Joining, member_id="")
    member.play(Joining, member_id="other")
    *_, own = member.play(Joined, Assigned, GenerationStarted)
    *_, other = member.play(Joined, Assigned, GenerationStarted, member_id="other")
    assert (own, other) == (("", 9), ("", 7))


def test_a_rebalance_that_fails_for_hours_keeps_its_last_parts() -> None:
    """A thousand attempts before a hand-over leave a hundred parts, and all of it counts."""
    member = Member()
    for _ in range(1000):
        member.play(GenerationEnded, Joining, Joined, Assigned)
    *parts, whole = member.play(GenerationStarted)
    assert len(parts) == rebalances.MOST_PARTS
    assert parts[-4:] == [("rejoin", 1), ("join", 1), ("sync", 1), ("hand_over", 1)]
    assert whole == ("", 4000)


def test_events_are_counted() -> None:
    """Each counted event adds one to its counter, and warnings are counted by their name."""
    sink = Sink()
    measuring = Measuring(sink, lambda: 0.0)
    record: Any = {"partition": P0, "offset": 1, "attempts": 1, "reason": "r"}
    for event in (
        GenerationEnded(group_id="g", end=END, cut_short=False),
        RequestFailed(group_id="g", request="Heartbeat", reason="r", next_action="n"),
        RecordFailed(group_id="g", max_attempts=2, pause=0.1, **record),
        RecordParked(group_id="g", **record),
        LoopBlocked(group_id="g", seconds=9.0),
    ):
        measuring(event)
    counted = {name for name, _ in sink.added}
    assert counted == {
        metric.prometheus
        for metric in METRICS
        if metric.kind is MetricKind.COUNTER and metric is not table.RECORDS
    }
    assert ("kgroup_generations_ended_total", ("g", "rebalance")) in sink.added
    warnings = [labels for name, labels in sink.added if name == "kgroup_warnings_total"]
    assert ("g", "LoopBlocked") in warnings
    assert ("g", "GenerationEnded") not in warnings


def test_batches_of_spark() -> None:
    """Their offsets are records, and a batch counts for each of its topics."""
    sink = Sink()
    measuring = Measuring(sink, lambda: 0.0)
    ranges = {P0: (5, 9), TopicPartition("u", 1): (0, 2)}
    times: Any = {"planning": 0.5, "running": 2.0, "committing": 0.25}
    measuring(
        BatchDone(group_id="g", batch_id="b", ranges=ranges, rows=6, bytes=None, lag=0, **times)
    )
    assert sink.added == [
        ("kgroup_records_total", ("g", "t", "0")),
        ("kgroup_records_total", ("g", "u", "1")),
    ]
    assert sorted(sink.observed) == [
        ("kgroup_batch_seconds", ("g", "t", "processed"), 2.75),
        ("kgroup_batch_seconds", ("g", "u", "processed"), 2.75),
    ]


def test_batches_of_spark_that_fail() -> None:
    """Their time counts, with the outcome; no record of them counts as handed out."""
    sink = Sink()
    measuring = Measuring(sink, lambda: 0.0)
    batch: Any = {"group_id": "g", "batch_id": "b", "ranges": {P0: (5, 9)}, "reason": "why"}
    measuring(BatchFailed(running=2.0, **batch))
    measuring(BatchCancelled(running=3.0, **batch))
    assert sink.observed == [
        ("kgroup_batch_seconds", ("g", "t", "failed"), 2.0),
        ("kgroup_batch_seconds", ("g", "t", "cancelled"), 3.0),
    ]
    assert sink.added == [("kgroup_warnings_total", ("g", "BatchFailed"))]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "processed"),
        (ValueError(), "failed"),
        (SystemExit(3), "failed"),
        (ExceptionGroup("two", [ValueError()]), "failed"),
        (BaseExceptionGroup("two", [ValueError(), asyncio.CancelledError()]), "failed"),
        (LeaseExpiredError("late", None), "stale"),
        (ExceptionGroup("of a nursery", [LeaseExpiredError("late", None)]), "stale"),
        (KeyboardInterrupt(), "cancelled"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_outcomes_of_batches(error: BaseException | None, outcome: str) -> None:
    """What the program raised decides: an error of its own, the generation's end, or neither."""
    sink = Sink()

    async def process() -> None:  # what cancels depends on the event loop
        await asyncio.sleep(0)
        Measuring(sink, lambda: 0.0).processed("g", P0, 5, 1.5, error)

    asyncio.run(process())
    assert sink.observed == [("kgroup_batch_seconds", ("g", "t", outcome), 1.5)]


def test_members_of_one_group_are_one() -> None:
    """Gauges of two members in a process are combined; one that is closed counts no more."""
    status = GroupStatus(group_id="g", phase=Phase.RUNNING, lag={P0: 5}, buffered_bytes=7)
    one = Group(attrs.evolve(status, age=10.0))
    other = Group(attrs.evolve(status, age=3.0, lag={}), ready=False)
    time = 100.0
    measuring = Measuring(Sink(), lambda: time)
    for group in (one, other):
        measuring.attach(group)
    measuring.handed_out("g", P0, 3)
    time = 104.0

    def gauge(metric: Metric) -> dict[Labels, float]:
        return measuring.gauges(metric)[metric]

    assert gauge(table.LAG) == {("g", "t", "0"): 5}
    assert gauge(table.BUFFERED_BYTES) == {("g",): 14}
    assert gauge(table.GENERATION_AGE) == {("g",): 3}
    assert gauge(table.READY) == {("g",): 0}
    assert gauge(table.RECORD_AGE) == {("g",): 4}
    other.judged = attrs.evolve(status, phase=Phase.CLOSED)
    assert gauge(table.READY) == {("g",): 1}
    assert gauge(table.BUFFERED_BYTES) == {("g",): 7}


@pytest.mark.parametrize("phase", [Phase.CLOSED, Phase.FAILED, Phase.FORKED])
def test_a_group_that_has_ended_and_is_kept_by_the_program(phase: Phase) -> None:
    """It has no gauges but the two that outlast it, and adds nothing to those of another member."""
    measuring = Measuring(Sink(), lambda: 0.0)
    gauges = [metric for metric in METRICS if metric.kind is MetricKind.GAUGE]
    ended = Group(GroupStatus(group_id="g", phase=phase), live=False, ready=False)
    measuring.attach(ended)
    shown = {metric for metric, values in measuring.gauges(*gauges).items() if values}
    assert shown == {table.LIVE, table.READY}
    other = Group(GroupStatus(group_id="g", phase=Phase.RUNNING, age=7.0, lag={P0: 1}))
    measuring.attach(other)
    ended = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    measuring.attach(ended)
    ended.judged = GroupStatus(group_id="g", phase=phase)
    assert measuring.gauges(table.GENERATION_AGE)[table.GENERATION_AGE] == {("g",): 7.0}


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("phase", [Phase.CLOSED, Phase.FAILED])
def test_a_group_that_has_ended_is_not_ready(phase: Phase, *, seen: bool) -> None:
    """It says so until one of its id is attached, also if its end was read after it was dropped."""
    measuring = Measuring(Sink(), lambda: 0.0)

    def gauge(metric: Metric) -> dict[Labels, float]:
        return measuring.gauges(metric)[metric]

    group = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    dropped = weakref.ref(group)
    measuring.attach(group)
    assert gauge(table.READY) == {("g",): 1}
    group.judged = GroupStatus(group_id="g", phase=phase)
    group.live, group.ready = phase is Phase.CLOSED, False
    if seen:
        assert gauge(table.READY) == {("g",): 0}
    del group
    gc.collect()
    for _ in range(2):
        assert gauge(table.READY) == {("g",): 0}
        assert gauge(table.LIVE) == {("g",): float(phase is Phase.CLOSED)}
        gc.collect()
    assert dropped() is None
    assert gauge(table.PARTITIONS) == {}
    other, again = (Group(GroupStatus(group_id=name, phase=Phase.RUNNING)) for name in "hg")
    measuring.attach(other)
    assert gauge(table.READY) == {("g",): 0, ("h",): 1}
    measuring.attach(again)
    assert gauge(table.READY) == gauge(table.LIVE) == {("g",): 1, ("h",): 1}


def test_a_failed_member_is_not_made_well_by_another() -> None:
    """A group with a member that has failed is not live, whether the program drops it or not."""
    measuring = Measuring(Sink(), lambda: 0.0)
    failed = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    other = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    measuring.attach(failed)
    measuring.attach(other)
    failed.judged = GroupStatus(group_id="g", phase=Phase.FAILED)
    failed.live = failed.ready = False
    assert measuring.gauges(table.LIVE)[table.LIVE] == {("g",): 0}
    del failed
    gc.collect()
    other.judged = GroupStatus(group_id="g", phase=Phase.CLOSED)
    assert measuring.gauges(table.LIVE)[table.LIVE] == {("g",): 0}


def test_a_group_of_the_process_from_which_this_one_was_forked() -> None:
    """It is not live here, unless this process has a group of that id of its own."""
    measuring = Measuring(Sink(), lambda: 0.0)
    parents = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    measuring.attach(parents)
    parents.judged = GroupStatus(group_id="g", phase=Phase.FORKED)
    parents.live = parents.ready = False
    assert measuring.gauges(table.LIVE)[table.LIVE] == {("g",): 0}
    own = Group(GroupStatus(group_id="g", phase=Phase.RUNNING))
    measuring.attach(own)
    assert measuring.gauges(table.LIVE)[table.LIVE] == {("g",): 1}


def test_groups_that_have_ended_are_dropped() -> None:
    """A program that makes group after group, and is never scraped, holds the last one only."""
    measuring = Measuring(Sink(), lambda: 0.0)
    groups = []
    for number in range(10):
        group = Group(GroupStatus(group_id=f"g{number % 3}", phase=Phase.RUNNING))
        groups.append(weakref.ref(group))
        measuring.attach(group)
        group.judged = attrs.evolve(group.judged, phase=Phase.CLOSED)
    del group
    gc.collect()
    assert [group() is None for group in groups] == [True] * 9 + [False]


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("prometheus", "prometheus_client", "kgroup[prometheus]"),
        ("opentelemetry", "opentelemetry", "kgroup[opentelemetry]"),
    ],
)
def test_a_missing_extra(module: str, package: str, extra: str) -> None:
    """The import fails with the command that installs it; kgroup itself needs neither."""
    code = (
        f"import sys; sys.modules['{package}'] = None; import kgroup.group, kgroup.metrics.table;"
        f" import kgroup.metrics.{module}"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert f"pip install '{extra}'" in ended.stderr.splitlines()[-1]
