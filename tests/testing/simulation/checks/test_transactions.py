"""Invariant 13, and how the others treat markers and aborted records."""

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
    """The transaction ends."""
    story.record(
        TransactionEnded, producer_id=PRODUCER, committed=committed, markers=((P0, marker),)
    )


def reading(isolation: str) -> Story:
    """Two members that read with this isolation level."""
    story = Story()
    story.isolation_level = isolation
    story.begin("a", "b")
    story.rebalance({"a": [P0], "b": [P1]})
    return story


def hand_out(
    story: Story, first: int, upto: int, *left_out: int, creation: int | None = None
) -> None:
    """a gets some records of a range, by default of the current creation of the topic."""
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
        creation=story.creation if creation is None else creation,
    )


@pytest.mark.parametrize(("isolation", "faults"), [("read_committed", 1), ("read_uncommitted", 0)])
@pytest.mark.parametrize("end", ["open", "aborted"])
def test_uncommitted_records_are_for_read_uncommitted_only(
    isolation: str, faults: int, end: str
) -> None:
    """Members that read committed records get none of an open or aborted transaction."""
    story = reading(isolation)
    written(story, 0, 2)
    if end == "aborted":
        ended(story, 2, committed=False)
    hand_out(story, 0, 2)
    assert len(story.broken(Transactions)) == faults


def test_markers_and_aborted_records_may_be_left_out() -> None:
    """They may be missing between two batches and within one."""
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


def test_the_markers_of_a_deleted_log_are_those_of_its_records() -> None:
    """A member may get records that it fetched before the topic was created again."""
    for creation, faults in ((1, 0), (2, 1)):
        story = reading("read_committed")
        written(story, 0, 2)
        ended(story, 2, committed=False)
        story.append(P0, 3, 4)
        story.delete()
        story.create_again()
        story.append(P0, 0, 4)
        hand_out(story, 3, 4, creation=creation)
        assert len(story.broken(StartPositions)) == faults


def test_a_committed_record_that_is_left_out_breaks_it() -> None:
    """A committed record that is missing is lost."""
    story = reading("read_committed")
    written(story, 0, 2)
    ended(story, 2, committed=True)
    hand_out(story, 1, 2)
    assert len(story.broken(StartPositions)) == 1
    story.process("a", P0, 1, 2)
    story.commit("a", P0, 2)
    assert len(story.broken(Losses)) == 1


def test_an_aborted_record_may_be_missing_for_read_committed_only() -> None:
    """A member that reads uncommitted records must get it."""
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
    """Records outside transactions count as committed."""
    story = pair()
    story.work("a", P0, 0, 5)
    assert story.broken(Transactions) == []
