"""Offsets that a simulated program commits in transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.testing.simulation import Outcome, history, simulate
from kgroup.testing.simulation.faults import BrokerDies, Split
from kgroup.testing.simulation.partition_handlers import TRANSACTIONS
from tests.testing.simulation.samples import a_plan


def commits(outcome: Outcome) -> list[Any]:
    """The commits that coordinators answered, in transactions and without."""
    return [
        one
        for one in outcome.history
        if isinstance(one, history.RequestHandled)
        and one.api in ("offset_commit", "txn_offset_commit")
    ]


def test_every_batch_is_committed_in_a_transaction() -> None:
    """Without faults every commit is one of a producer, and the group's offsets are the ends."""
    outcome = simulate(a_plan(partition_handler=TRANSACTIONS))
    assert outcome.violations == ()
    assert {one.api for one in commits(outcome)} == {"txn_offset_commit"}
    (settled,) = [one for one in outcome.history if isinstance(one, history.FinalGroupState)]
    assert settled.committed == settled.ends


@pytest.mark.parametrize(
    "fault",
    [
        Split(at=40.0, seconds=8.0, process="*", broker="*"),
        BrokerDies(at=40.0, seconds=5.0, broker="b1", loading=5.0),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_transaction_that_fails_loses_nothing(fault: Any) -> None:
    """Its offsets are committed without one, and later ones are in transactions again."""
    outcome = simulate(
        a_plan(partition_handler=TRANSACTIONS, faults=(fault,), records_every=0.05, work=(0.0, 0.0))
    )
    assert outcome.violations == ()
    after = [one.api for one in commits(outcome) if one.at > fault.at]
    assert "offset_commit" in after
    assert after[-1] == "txn_offset_commit"
