"""kgroup's own program with handlers that seek."""

from __future__ import annotations

import pytest

from kgroup.events import GenerationEnded
from kgroup.testing.simulation import Scenario, generate_plan, history, simulate
from kgroup.testing.simulation.faults import Crash, Stop, TopicDeleted
from kgroup.testing.simulation.partition_handlers import OWN_OFFSETS, PARTITION_HANDLERS, SEEKS
from tests.testing.simulation.samples import a_plan

CRASHES = tuple(Crash(at=at, process="m1", seconds=2.0) for at in (30.0, 60.0, 90.0))


@pytest.mark.parametrize("partition_handler", PARTITION_HANDLERS)
def test_a_worker_that_seeks_breaks_no_invariant(partition_handler: str) -> None:
    """Programs that seek and crash break no invariant."""
    outcome = simulate(
        a_plan(partition_handler=partition_handler, faults=CRASHES, records_every=0.5)
    )
    assert outcome.violations == ()
    sought = [one for one in outcome.history if isinstance(one, history.SeekCalled)]
    assert sought
    skipped = [one for one in outcome.history if isinstance(one, history.RecordsSkipped)]
    assert partition_handler == SEEKS or not skipped


def test_a_worker_with_its_own_offsets_does_nothing_twice() -> None:
    """A program with a store of its own repeats no record after a crash."""
    work = (0.05, 0.2)
    outcome = simulate(
        a_plan(partition_handler=OWN_OFFSETS, faults=CRASHES, records_every=0.5, work=work)
    )
    done = [
        (one.partition, one.offset) for one in outcome.history if isinstance(one, history.Processed)
    ]
    assert len(done) == len(set(done)) > 0


@pytest.mark.parametrize("partition_handler", ["plain", *PARTITION_HANDLERS])
def test_work_that_outlasts_drains_breaks_no_invariant(partition_handler: str) -> None:
    """Drains end before the rebalance time-out, and what they cut short is processed again."""
    stops = tuple(Stop(at=at, process="m1", seconds=3.0) for at in (30.0, 50.0, 70.0, 90.0))
    settings = {"session_timeout": 6.0, "rebalance_timeout": 5.0, "drain_timeout": 30.0}
    outcome = simulate(
        a_plan(
            partition_handler=partition_handler,
            faults=stops,
            records_every=0.2,
            long_work=24.0,
            config=settings,
        )
    )
    assert outcome.violations == ()
    ends = [
        one.event
        for one in outcome.history
        if isinstance(one, history.EventReported) and isinstance(one.event, GenerationEnded)
    ]
    assert any(end.cut_short for end in ends)


def test_no_topic_is_deleted_where_programs_keep_offsets() -> None:
    """Plans whose programs store offsets delete no topic."""
    plans = [generate_plan(Scenario(faults_per_hour=300.0), seed) for seed in range(100)]
    assert {plan.partition_handler for plan in plans} == {"plain", *PARTITION_HANDLERS}
    for plan in plans:
        deleted = any(isinstance(fault, TopicDeleted) for fault in plan.faults)
        assert plan.partition_handler == "plain" or not deleted
