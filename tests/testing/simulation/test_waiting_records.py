"""Records that wait because a member learns of a rebalance later than others."""

from __future__ import annotations

import attrs

from kgroup.broker.groups.requests import JoinGroup
from kgroup.testing.simulation import Scenario, Summary, generate_plan, history, simulate
from kgroup.testing.simulation.faults import Stop
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.waiting_records import WaitingRecords
from kgroup.types import TopicPartition

P0, P1 = (TopicPartition("orders", number) for number in range(2))


def generation(generation_id: int, **assignments: tuple[TopicPartition, ...]) -> HistoryEntry:
    """A generation with these members begins."""
    return history.GroupChanged(
        at=0.0,
        node_id=1,
        incarnation=0,
        group_id="group",
        state="Stable",
        generation_id=generation_id,
        leader=None,
        members=tuple(
            history.MemberSnapshot(
                member_id=name, process=name, group_instance_id=None, assignment=owned
            )
            for name, owned in assignments.items()
        ),
        assigned=True,
        topics={},
    )


def joins(member_id: str) -> HistoryEntry:
    """A member joins, and waits for the others."""
    return history.RequestHandled(
        at=0.0,
        node_id=1,
        incarnation=0,
        api="join_group",
        ticket=0,
        process=member_id,
        request=JoinGroup(
            group_id="group",
            version=9,
            client_id="",
            client_host="",
            session_timeout=30.0,
            member_id=member_id,
        ),
        response=None,
        state="PreparingRebalance",
        group_generation_id=1,
        is_member=True,
    )


def written(partition: TopicPartition, records: int) -> HistoryEntry:
    """So many records are written."""
    return history.Appended(at=0.0, partition=partition, first=0, next_offset=records)


def counted(*entries: HistoryEntry) -> int:
    """How many records have waited after these entries."""
    waiting = WaitingRecords()
    for entry in entries:
        waiting.add(entry)
    return waiting.count


def test_records_between_the_first_and_the_last_join_wait() -> None:
    """Only those of a partition whose owner had joined before another member did."""
    assert (
        counted(
            generation(1, a=(P0,), b=(P1,)),
            written(P0, 1),
            joins("a"),
            written(P0, 2),
            written(P1, 4),
            joins("b"),
            written(P0, 8),
            generation(2, a=(P0,), b=(P1,)),
            written(P0, 16),
        )
        == 2
    )


def test_a_member_that_never_joins_again_does_not_count() -> None:
    """The coordinator waits for the session of a dead member whatever the clocks show."""
    assert (
        counted(
            generation(1, a=(P0,), b=(P1,)),
            joins("a"),
            written(P0, 2),
            joins("a"),
            joins("new"),
            generation(2, a=(P0,), new=(P1,)),
        )
        == 0
    )


def test_clocks_that_disagree_make_records_wait() -> None:
    """In a rolling restart, members whose clocks agree learn of each rebalance together."""

    def waited(wall_clock_error: float) -> int:
        scenario = Scenario(
            members=3,
            brokers=1,
            duration=120.0,
            topics={"orders": 6},
            faults_per_hour=0.0,
            wall_clock_error=wall_clock_error,
            config={"heartbeat_interval": 3.0, "session_timeout": 30.0},
        )
        stops = tuple(Stop(at=30.0 * n, process=f"m{n}", seconds=5.0) for n in (1, 2, 3))
        plan = attrs.evolve(
            generate_plan(scenario, seed=8),
            records_every=0.1,
            records_at_once=1,
            work=(0.0, 0.001),
            long_work=0.0,
            faults=stops,
        )
        return Summary.of(simulate(plan).history).waited

    assert waited(0.0) == 0
    assert waited(3.0) > 0
