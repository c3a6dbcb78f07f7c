"""The timeline of a group: its contents, its width, and that it is deterministic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from kgroup.broker.groups.requests import Heartbeat, OffsetCommit, OffsetToCommit, TxnOffsetCommit
from kgroup.broker.groups.responses import (
    HeartbeatCompleted,
    OffsetsCommitted,
    PartitionResult,
)
from kgroup.error_codes import ErrorCode
from kgroup.events import Assigned, GenerationDraining, GenerationEnded, GenerationStarted, Joining
from kgroup.testing.simulation import generate_plan, history, simulate
from kgroup.testing.simulation.faults import Freeze, Split
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.partition_handlers import PLAIN
from kgroup.testing.simulation.timeline import WIDTH, timeline
from kgroup.types import Assignment, Cause, End, TopicPartition
from tests.testing.simulation.samples import SMALL, an_outcome, broken

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
WHO: dict[str, Any] = {"process": "m1", "life": 1}


def generation(begin: float, number: int) -> Iterator[HistoryEntry]:
    """m1 has a generation for ten seconds."""
    fields: dict[str, Any] = {
        "group_id": "group",
        "member_id": "m1-1",
        "generation_id": number,
        "epoch": number,
    }
    events = (
        (0.0, Joining(group_id="group", reason="rebalance")),
        (1.0, Assigned(assignment=Assignment([P0, P1]), start_offsets={P0: 3, P1: 4}, **fields)),
        (1.0, GenerationStarted(**fields)),
        (9.0, GenerationDraining(end=End(Cause.REBALANCE), seconds=5.0, **fields)),
        (10.0, GenerationEnded(end=End(Cause.REBALANCE), cut_short=False, **fields)),
    )
    for after, event in events:
        yield history.EventReported(at=begin + after, event=event, **WHO)


def line_with(picture: str, words: str) -> str:
    """The only line of a timeline with these words."""
    (line,) = [one for one in picture.splitlines() if words in one]
    return line


def test_a_lane_shows_what_its_program_does() -> None:
    """The mark of a lane follows the program from its start to its end."""
    fault = Split(at=40.0, seconds=5.0, process="m1", broker="*")
    seen = (
        history.ProcessStarted(at=0.0, group_instance_id=None, **WHO),
        *generation(10.0, 3),
        history.ProcessFrozen(at=30.0, **WHO),
        history.ProcessThawed(at=35.0, **WHO),
        history.FaultBegan(at=40.0, fault=fault),
        history.FaultEnded(at=45.0, fault=fault),
        history.ProcessCrashed(at=50.0, **WHO),
        history.ProcessStarted(at=60.0, group_instance_id=None, **{**WHO, "life": 2}),
        history.ProcessEnded(at=70.0, error="OSError: gone", **{**WHO, "life": 2}),
    )
    picture = timeline(an_outcome(seen, [broken(at=80.0)]))
    lane = picture.splitlines()[0].index("m1")

    def cell(words: str) -> str:
        return line_with(picture, words)[lane : lane + 9].rstrip()

    assert cell("m1 starts, start number 2") == ":start"
    assert cell("joining: rebalance") == ":joining"
    assert cell("generation started") == "|3:0-1"
    assert cell("draining") == "~drains"
    assert cell("generation ended") == ":ended"
    assert cell("m1 is frozen") == "#frozen"
    assert cell("m1 continues") == ":thawed"
    assert cell("FAULT: no byte passes") == "/FAULT"
    assert cell("fault over: no byte passes") == ":"
    assert cell("m1 crashes") == " crash"
    assert cell("m1 fails: OSError: gone") == " end"
    assert "!!! invariant 4 broken at 80.000 s" in picture


def test_the_coordinator_has_a_lane() -> None:
    """Its lane shows the group's state and generation, and refused requests."""
    member = history.MemberSnapshot(
        member_id="m1-1", process="m1", group_instance_id=None, assignment=(P0, P1)
    )
    changed = history.GroupChanged(
        at=1.0,
        node_id=2,
        incarnation=0,
        group_id="group",
        state="Stable",
        generation_id=3,
        leader="m1-1",
        members=(member,),
        assigned=True,
        topics={"orders": 2},
    )
    refused = history.RequestHandled(
        at=2.0,
        node_id=2,
        incarnation=0,
        api="heartbeat",
        ticket=-1,
        process="m1",
        request=Heartbeat(group_id="group", member_id="m1-1", generation_id=2),
        response=HeartbeatCompleted(error=ErrorCode.ILLEGAL_GENERATION),
        state="Stable",
        group_generation_id=3,
        is_member=True,
    )
    accepted = attrs.evolve(refused, at=3.0, response=HeartbeatCompleted())
    moved = history.CoordinatorMoved(
        at=4.0, node_id=3, incarnation=1, group_id="group", committed={P0: 5}
    )
    picture = timeline(an_outcome([changed, refused, accepted, moved], [broken(at=5.0)]))
    assert "|3 Stable" in line_with(picture, "group is Stable in generation 3 at b2: m1 0-1")
    assert "b2 refuses heartbeat of m1: ILLEGAL_GENERATION" in picture
    assert picture.count("heartbeat") == 1
    assert "|at b3" in line_with(picture, "b3 has loaded group")


def test_only_records_that_can_be_read_are_left_to_commit() -> None:
    """A commit behind the last of them, as after an aborted transaction, leaves nothing."""
    end = history.FinalGroupState(
        at=9.0, group_id="group", stable=True, committed={P0: 5, P1: 7}, ends={P0: 3, P1: 8}
    )
    picture = timeline(an_outcome([end], [broken(at=9.0)]))
    assert "group is stable; orders-1: 1 not committed" in picture
    assert "orders-0" not in picture


def test_records_in_a_row_are_one_line() -> None:
    """Consecutive records of a partition are one line."""
    seen = [
        history.Processed(at=1.0 + offset, partition=P0, offset=offset, **WHO)
        for offset in range(9)
    ]
    seen[5] = attrs.evolve(seen[5], partition=P1)
    picture = timeline(an_outcome(seen, [broken(at=20.0)]))
    assert "m1 has processed orders-0 0 to 4" in picture
    assert "m1 has processed orders-0 6 to 8" in picture
    assert "m1 has processed orders-1 5\n" in picture
    assert picture.count("has processed") == 3


def test_only_the_stretch_around_the_violation_is_in_full() -> None:
    """The rows around the violation are shown in full, all others in outline."""
    seen: list[HistoryEntry] = [history.ProcessStarted(at=0.0, group_instance_id=None, **WHO)]
    for number in range(1, 200):
        seen += generation(number * 20.0, number)
    picture = timeline(an_outcome(seen, [broken(at=2000.0)]))
    assert len(picture.splitlines()) < 200
    assert "everything from here" in picture
    assert "(generation 99): draining" in picture
    assert "(generation 86): draining" not in picture
    assert "(generation 86): generation ended" in picture
    assert "(generation 5)" not in picture
    assert "more)" in picture


def handed_out(at: float, partition: TopicPartition, first: int, upto: int) -> HistoryEntry:
    """m1 is handed records."""
    return history.HandedOut(
        at=at,
        group_id="group",
        member_id="m1-1",
        generation_id=1,
        epoch=1,
        partition=partition,
        first=first,
        next_offset=upto,
        **WHO,
    )


def applied(
    at: float, partition: TopicPartition, offset: int, producer_id: int | None = None
) -> HistoryEntry:
    """A coordinator applies a commit of m1, or adds it to the transaction of a producer."""
    fields: dict[str, Any] = {
        "group_id": "group",
        "member_id": "m1-1",
        "generation_id": 1,
        "offsets": (
            OffsetToCommit(topic=partition.topic, partition=partition.partition, offset=offset),
        ),
    }
    request: OffsetCommit | TxnOffsetCommit = OffsetCommit(version=9, **fields)
    if producer_id is not None:
        request = TxnOffsetCommit(version=3, producer_id=producer_id, **fields)
    result = PartitionResult(
        topic=partition.topic, partition=partition.partition, error=ErrorCode.NONE
    )
    response = OffsetsCommitted(partitions=(result,))
    return history.RequestHandled(
        at=at,
        node_id=1,
        incarnation=1,
        api="offset_commit" if producer_id is None else "txn_offset_commit",
        ticket=0,
        process="m1",
        request=request,
        response=response,
        state="Stable",
        group_generation_id=1,
        is_member=True,
    )


def long_after(
    *entries: HistoryEntry, busy: tuple[TopicPartition, ...] = (P0, P1)
) -> list[HistoryEntry]:
    """These at first, then much work on partitions, with commits."""
    seen: list[HistoryEntry] = [
        history.ProcessStarted(at=0.0, group_instance_id=None, **WHO),
        *entries,
    ]
    for number in range(100):
        for partition in busy:
            at = 100.0 + number + partition.partition / 2
            first = 20 + number * 3
            seen.append(handed_out(at, partition, first, first + 3))
            seen.append(applied(at + 0.1, partition, first + 3))
    return seen


def test_what_led_to_the_violation_in_its_partition_is_shown() -> None:
    """The hand-out of the record, the seek after it and the commit are shown, however early."""
    seen = long_after(
        handed_out(1.0, P0, 5, 9),
        history.Processed(at=2.0, partition=P0, offset=5, **WHO),
        history.SeekCalled(at=3.0, group_id="group", epoch=1, partition=P0, offset=7, **WHO),
        applied(4.0, P0, 7),
        applied(4.5, P0, 8, producer_id=7),
        handed_out(5.0, P1, 5, 9),
        history.SeekCalled(at=6.0, group_id="group", epoch=1, partition=P1, offset=7, **WHO),
    )
    violation = attrs.evolve(broken(at=300.0), partition=P0, offset=6)
    picture = timeline(an_outcome(seen, [violation]))
    assert "is handed orders-0 5 to 8" in picture
    line_with(picture, "seek    m1 seeks orders-0 to 7")
    line_with(picture, "b1 applies a commit of m1: orders-0 at 7")
    line_with(picture, "b1 adds a commit of m1 to a transaction: orders-0 at 8")
    assert "outline so far with what led to it in its partition" in picture
    # Of the work in between, only what is near to the violation is shown.
    assert "is handed orders-0 110 to 112" not in picture
    assert len(picture.splitlines()) < 90
    # The other partition has nothing to do with it.
    assert "is handed orders-1 5 to 8" not in picture
    assert "seeks orders-1" not in picture
    assert "commit of m1: orders-1" not in picture


def test_the_last_rows_of_its_partition_are_shown() -> None:
    """If the other partitions are busy, what happened last in this one is shown nevertheless."""
    skip = history.RecordsSkipped(at=50.0, partition=P0, offset=20, **WHO)
    seen = long_after(skip, busy=(P1,))
    violation = attrs.evolve(broken(at=300.0), partition=P0)
    line_with(timeline(an_outcome(seen, [violation])), "m1 skips orders-0 before 20")
    assert "skips orders-0" not in timeline(an_outcome(seen, [broken(at=300.0)]))


@pytest.mark.parametrize("members", [1, 6, 40])
def test_it_is_never_too_wide(members: int) -> None:
    """However many programs there are, every line fits, and each lane has one program."""
    names = [f"m{number}" for number in range(1, members + 1)]
    seen = [
        history.ProcessStarted(at=1.0, process=name, life=1, group_instance_id=None)
        for name in names
    ]
    seen += [
        history.ProcessFrozen(at=2.0, process=name, life=1)  # type: ignore[misc]
        for name in names[-2:]
    ]
    what = "x" * 150 + " and more " * 20
    picture = timeline(an_outcome(seen, [attrs.evolve(broken(at=9.0), what=what)]))
    assert max(map(len, picture.splitlines())) <= WIDTH
    assert names[-1] in picture.splitlines()[0]


def test_a_simulation_without_a_violation_has_an_outline() -> None:
    """The timeline of a real simulation is deterministic and plain ASCII."""
    plan = attrs.evolve(
        generate_plan(SMALL, 3),
        faults=(Freeze(at=40.0, seconds=5.0, process="m1"),),
        duration=60.0,
        partition_handler=PLAIN,
    )
    picture = timeline(simulate(plan))
    assert timeline(simulate(plan)) == picture
    assert picture.isascii()
    assert "FAULT: m1 is frozen for 5.00 s" in picture
    assert max(map(len, picture.splitlines())) <= WIDTH
