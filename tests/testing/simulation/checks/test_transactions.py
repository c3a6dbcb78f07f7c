"""Invariant 13, and what the others say of markers and aborted records."""

from __future__ import annotations

import pytest

from kgroup.testing.simulation.checks.losses import Losses
from kgroup.testing.simulation.checks.starts import StartPositions
from kgroup.testing.simulation.checks.table import CHECKS
from kgroup.testing.simulation.checks.transactions import Transactions
from kgroup.testing.simulation.history import Appended, HandedOut, TransactionEnded
from tests.testing.simulation.checks.stories import GROUP, P0, P1, Story, pair

PRODUCER = 5


def written(story: Story, first: int, upto: int) -> None:
    """Records are written in a transaction."""
    story.record(Appended, partition=P0, first=first, next_offset=upto, producer_id=PRODUCER)


def ended(story: Story, marker: int, *, committed: bool) -> None:
    """The transaction is over."""
    story.record(
        TransactionEnded, producer_id=PRODUCER, committed=committed, markers=((P0, marker),)
    )


def reading(isolation: str) -> Story:
    """Two members that read by this isolation level."""
    story = Story()
    story.isolation_level = isolation
    story.begin("a", "b")
    story.rebalance({"a": [P0], "b": [P1]})
    return story


def hand_out(story: Story, first: int, upto: int, *left_out: int) -> None:
    """a is handed out some records of a range."""
    story.record(
        HandedOut,
        process="a",
        life=1,
        group_id=GROUP,
        member_id=story.id_of("a"),
        generation_id=1,
        epoch=1,
        partition=P0,
        first=first,
        next_offset=upto,
        left_out=left_out,
    )


@pytest.mark.parametrize(("isolation", "faults"), [("read_committed", 1), ("read_uncommitted", 0)])
@pytest.mark.parametrize("end", ["open", "aborted"])
def test_what_is_not_committed_is_handed_out_only_to_who_wants_it(
    isolation: str, faults: int, end: str
) -> None:
    """Neither while the transaction is open nor once it was aborted."""
    story = reading(isolation)
    written(story, 0, 2)
    if end == "aborted":
        ended(story, 2, committed=False)
    hand_out(story, 0, 2)
    assert len(story.broken(Transactions)) == faults


def test_what_is_committed_is_handed_out() -> None:
    """Markers and what was aborted may be left out, between two batches and within one."""
    story = reading("read_committed")
    written(story, 0, 2)
    ended(story, 2, committed=False)
    written(story, 3, 5)
    ended(story, 5, committed=True)
    story.append(P0, 6, 7)
    hand_out(story, 3, 7, 5)
    for offset in (3, 4, 6):
        story.process("a", P0, offset, offset + 1)
    story.commit("a", P0, 7)
    story.settle({P0: 7})
    assert [what for kind in CHECKS if kind.number != 12 for what in story.broken(kind)] == []


def test_a_committed_record_that_is_left_out_breaks_it() -> None:
    """Nobody would ever get it."""
    story = reading("read_committed")
    written(story, 0, 2)
    ended(story, 2, committed=True)
    hand_out(story, 1, 2)
    assert len(story.broken(StartPositions)) == 1
    story.process("a", P0, 1, 2)
    story.commit("a", P0, 2)
    assert len(story.broken(Losses)) == 1


def test_an_aborted_record_is_no_loss_only_to_who_reads_committed_ones() -> None:
    """Whoever reads all is given it."""
    for isolation, faults in (("read_committed", 0), ("read_uncommitted", 1)):
        story = reading(isolation)
        story.process("b", P1, 0, 1)
        written(story, 0, 2)
        ended(story, 2, committed=False)
        story.append(P0, 3, 4)
        story.process("a", P0, 3, 4)
        story.commit("a", P0, 4)
        assert len(story.broken(Losses)) == faults


def test_a_story_without_transactions_breaks_nothing() -> None:
    """Every other record is as good as committed."""
    story = pair()
    story.work("a", P0, 0, 5)
    assert story.broken(Transactions) == []
