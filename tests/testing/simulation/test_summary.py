"""The figures of simulations: what they count, and how they add up."""

from __future__ import annotations

import attrs

from kgroup.testing.simulation import Scenario, Summary, generate_plan, history, simulate
from kgroup.testing.simulation.faults import Cut
from kgroup.testing.simulation.partition_handlers import PLAIN, TRANSACTIONS
from kgroup.types import TopicPartition
from tests.testing.simulation.samples import SMALL

P0 = TopicPartition("orders", 0)


def stable(generation_id: int, incarnation: int = 0) -> history.GroupChanged:
    """The group becomes stable."""
    return history.GroupChanged(
        at=1.0,
        node_id=1,
        incarnation=incarnation,
        group_id="group",
        state="Stable",
        generation_id=generation_id,
        leader="m1-1",
        members=(),
        assigned=True,
        topics={},
    )


def test_a_repeated_record_is_counted_once() -> None:
    """Each record counts once as processed; every further time is a repetition."""
    processed = [
        history.Processed(at=float(at), process="m1", life=1, partition=P0, offset=offset)
        for at, offset in enumerate((5, 6, 7, 6, 7))
    ]
    written = history.Appended(at=0.0, partition=P0, first=5, next_offset=9)
    summary = Summary.of((written, *processed))
    assert (summary.written, summary.processed, summary.repeated) == (4, 3, 2)
    assert summary.seconds == 4.0


def test_what_was_not_processed_has_a_reason() -> None:
    """Records of aborted transactions and of deleted topics are counted; others were skipped."""

    def written(first: int, upto: int, producer_id: int | None = None) -> history.Appended:
        return history.Appended(
            at=0.0, partition=P0, first=first, next_offset=upto, producer_id=producer_id
        )

    def ended(producer_id: int, offset: int, *, committed: bool) -> history.TransactionEnded:
        return history.TransactionEnded(
            at=0.0, producer_id=producer_id, committed=committed, markers=((P0, offset),)
        )

    def processed(offset: int, creation: int) -> history.Processed:
        return history.Processed(
            at=0.0, process="m1", life=1, partition=P0, offset=offset, creation=creation
        )

    def changed(partitions: int, creation: int) -> history.TopicChanged:
        return history.TopicChanged(
            at=0.0, topic="orders", partitions=partitions, creation=creation
        )

    summary = Summary.of(
        (
            changed(1, 1),
            written(0, 4),
            written(4, 7, producer_id=1),
            ended(1, 7, committed=False),
            written(8, 10, producer_id=2),
            ended(2, 10, committed=True),
            *(processed(offset, 1) for offset in (0, 1, 4, 8)),
            changed(0, 1),
            processed(9, 1),  # a batch that a member held
            changed(1, 2),
            written(0, 2),
            processed(0, 2),
        )
    )
    assert (summary.written, summary.processed, summary.repeated) == (11, 6, 0)
    assert (summary.aborted, summary.deleted, summary.skipped) == (2, 2, 1)


def test_a_generation_that_moves_is_no_other() -> None:
    """A group that another coordinator loads is still in the same generation."""
    assert Summary.of((stable(1), stable(1, incarnation=1), stable(2))).generations == 2


def test_figures_add_up() -> None:
    """The sum of two simulations adds all figures, faults by kind."""
    cut = history.FaultBegan(at=3.0, fault=Cut(at=3.0, process="m1", broker="b1"))
    one, other = Summary.of((cut, stable(1))), Summary.of((cut,))
    both = one + other
    assert both.faults == (("Cut", 2),)
    assert (both.generations, both.seconds) == (1, one.seconds + other.seconds)
    assert one + Summary() == one


def test_programs_that_fail_are_counted() -> None:
    """Errors of programs are counted, and the first one is kept."""
    ended = [
        history.ProcessEnded(at=float(life), process="m1", life=life, error=error)
        for life, error in enumerate((None, "OSError: a", "OSError: b"), 1)
    ]
    summary = Summary() + Summary.of(ended)
    assert (summary.failures, summary.failure) == (2, "m1: OSError: a")


def test_a_real_simulation_has_figures() -> None:
    """Without faults all records are processed, none twice."""
    summary = Summary.of(simulate(generate_plan(SMALL, 1)).history)
    assert summary.processed == summary.written > 0
    assert summary.aborted == summary.deleted == summary.skipped == 0
    assert summary.seconds >= SMALL.duration
    assert summary.starts >= SMALL.members
    assert summary.generations >= 1
    assert summary.requests > summary.generations


def test_transactions_and_deletions_explain_what_is_not_processed() -> None:
    """Where members do not seek, every record is processed, or aborted, or deleted."""
    seen = Summary()
    for seed in range(12):
        plan = generate_plan(SMALL, seed)
        if plan.partition_handler in {PLAIN, TRANSACTIONS}:
            summary = Summary.of(simulate(plan).history)
            assert summary.skipped == 0
            seen += summary
    assert seen.aborted > 0
    assert seen.written - seen.processed == seen.aborted + seen.deleted


def test_the_default_program_skips_no_record_of_any_topic() -> None:
    """It subscribes to every topic of the plan. No invariant notices a topic without readers."""
    scenario = Scenario(
        members=2, duration=60.0, topics={"orders": 2, "payments": 2}, faults_per_hour=0.0
    )
    plan = attrs.evolve(generate_plan(scenario, 0), partition_handler=PLAIN)
    summary = Summary.of(simulate(plan).history)
    assert summary.written > 0
    assert summary.skipped == 0
