"""The figures of simulations: what they count, and how they add up."""

from __future__ import annotations

from kgroup.testing.simulation import Summary, generate_plan, history, simulate
from kgroup.testing.simulation.faults import Cut
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
    assert summary.seconds >= SMALL.duration
    assert summary.starts >= SMALL.members
    assert summary.generations >= 1
    assert summary.requests > summary.generations
