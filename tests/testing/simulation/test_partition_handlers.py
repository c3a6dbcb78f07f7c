"""kgroup's own program with the handlers that plans choose."""

from __future__ import annotations

import pytest

from kgroup.events import GenerationEnded
from kgroup.testing.simulation import Scenario, generate_plan, history, simulate
from kgroup.testing.simulation.faults import Crash, Stop, TopicDeleted
from kgroup.testing.simulation.partition_handlers import (
    OWN_OFFSETS,
    PARTITION_HANDLERS,
    SEEKS,
    TRANSACTIONS,
)
from tests.testing.simulation.samples import a_plan

CRASHES = tuple(Crash(at=at, process="m1", seconds=2.0) for at in (30.0, 60.0, 90.0))


@pytest.mark.parametrize("partition_handler", PARTITION_HANDLERS)
def test_a_handler_beside_crashes_breaks_no_invariant(partition_handler: str) -> None:
    """Programs that crash break no invariant; all but those with transactions seek."""
    outcome = simulate(
        a_plan(partition_handler=partition_handler, faults=CRASHES, records_every=0.5)
    )
    assert outcome.violations == ()
    sought = [one for one in outcome.history if isinstance(one, history.SeekCalled)]
    assert bool(sought) == (partition_handler != TRANSACTIONS)
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


def test_no_topic_is_deleted_where_programs_seek() -> None:
    """Only plans whose programs do not seek delete topics."""
    plans = [generate_plan(Scenario(faults_per_hour=300.0), seed) for seed in range(100)]
    assert {plan.partition_handler for plan in plans} == {"plain", *PARTITION_HANDLERS}
    deleting = [
        plan.partition_handler
        for plan in plans
        if any(isinstance(fault, TopicDeleted) for fault in plan.faults)
    ]
    assert set(deleting) == {"plain", TRANSACTIONS}


def test_no_member_that_logs_in_commits_in_transactions() -> None:
    """The simulation's producers cannot log in."""
    plans = [generate_plan(Scenario(logins=True), seed) for seed in range(200)]
    in_transactions = [plan for plan in plans if plan.partition_handler == TRANSACTIONS]
    assert in_transactions
    assert all(plan.logins is None for plan in in_transactions)
