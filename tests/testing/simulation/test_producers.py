"""Records in transactions: how they end, and what readers get."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.testing.simulation import Outcome, history, simulate
from tests.testing.simulation.samples import a_plan


def run(isolation: str) -> Outcome:
    """Two minutes in which most writes are in transactions."""
    config = {**a_plan().config, "isolation_level": isolation}
    return simulate(a_plan(config=config, transactional=0.8, records_every=1.0))


def of(outcome: Outcome, kind: type[Any]) -> list[Any]:
    """The entries of a kind."""
    return [one for one in outcome.history if type(one) is kind]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_every_transaction_ends(isolation: str) -> None:
    """Every transaction ends; aborted records are only for readers of uncommitted ones."""
    outcome = run(isolation)
    assert outcome.violations == ()
    ended = of(outcome, history.TransactionEnded)
    assert {one.committed for one in ended} == {True, False}
    written = {
        (one.partition, offset): one.producer_id
        for one in of(outcome, history.Appended)
        for offset in range(one.first, one.next_offset)
    }
    done = {(one.partition, one.offset) for one in of(outcome, history.Processed)}
    assert (done == set(written)) is (isolation == "read_uncommitted")
    assert {producer for producer in written.values() if producer is not None}
    assert of(outcome, history.TransactionEnded)[-1].at <= of(outcome, history.WorkloadEnded)[0].at
