"""How the invariants treat a program that seeks."""

from __future__ import annotations

import pytest

from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.base import Check
from kgroup.testing.simulation.checks.commits import OwnCommits
from kgroup.testing.simulation.checks.failover import Failover
from kgroup.testing.simulation.checks.losses import Losses
from kgroup.testing.simulation.checks.repetitions import Repetitions
from kgroup.testing.simulation.checks.starts import StartPositions
from kgroup.testing.simulation.history import RecordsSkipped
from tests.testing.simulation.checks.stories import GROUP, P0, P1, Story, pair

SEEKABLE = (OwnCommits, StartPositions, Losses, Repetitions, Failover)


def broken(story: Story) -> list[str]:
    """The violations of the invariants that seeks concern."""
    return [what for kind in SEEKABLE for what in story.broken(kind)]


def ahead() -> Story:
    """a has processed up to 5 and stored that offset itself; its commit was never sent."""
    story = pair()
    story.hand_out("a", P0, 0, 5)
    story.process("a", P0, 0, 5)
    story.end("a")
    story.end("b")
    story.rebalance({"a": [P0], "b": [P1]})
    return story


def test_a_program_that_begins_at_its_own_offsets_breaks_nothing() -> None:
    """It may start after the committed offset, and commit from there."""
    story = ahead()
    story.seek("a", 5)
    story.commit("a", P0, 5)
    story.work("a", P0, 5, 8)
    assert broken(story) == []


def test_going_back_and_committing_less_breaks_nothing() -> None:
    """Later records may then come again, after a failover and for the next owner too."""
    story = pair()
    story.work("a", P0, 0, 8)
    story.seek("a", 3)
    story.hand_out("a", P0, 3, 6)
    story.process("a", P0, 3, 5)
    story.commit("a", P0, 5)
    story.move()
    story.group("Stable")
    story.end("a")
    story.end("b")
    story.rebalance({"b": [P0, P1]})
    story.work("b", P0, 5, 8)
    assert broken(story) == []


@pytest.mark.parametrize("kind", [StartPositions, Losses])
def test_what_comes_after_a_seek_is_what_was_sought(kind: type[Check]) -> None:
    """After a seek the first record must be the one sought; a later one is a gap."""
    story = pair()
    story.work("a", P0, 0, 8)
    story.seek("a", 3)
    story.hand_out("a", P0, 3 if kind is Losses else 4, 5)
    if kind is Losses:
        story.hand_out("a", P0, 6, 7)
    assert len(story.broken(kind)) == 1


def test_a_commit_past_what_was_sought_and_read_breaks_it() -> None:
    """A seek allows commits only from the offset sought on."""
    story = pair()
    story.seek("a", 3)
    story.send_commit("a", P0, 4)
    assert len(story.broken(OwnCommits)) == 1


def test_records_that_a_program_seeks_past_are_lost_unless_skipped() -> None:
    """Records that are skipped without a report count as lost."""
    for says, faults in ((False, 1), (True, 0)):
        story = pair()
        story.process("b", P1, 0, 1)
        story.seek("a", 3)
        if says:
            story.record(
                RecordsSkipped, process="a", life=1, partition=P0, offset=3, group_id=GROUP
            )
        story.commit("a", P0, 3)
        assert len(story.broken(Losses)) == faults


def test_a_program_that_does_not_seek_gets_no_record_again() -> None:
    """Another program's earlier seek excuses no repetition after a commit."""
    story = pair()
    story.seek("a", 0)
    story.work("a", P0, 0, 8)
    story.end("a")
    story.end("b")
    story.form({"b": [P0, P1]})
    story.report_assigned("b", start_offsets={P0: 2, P1: 0})
    story.hand_out("b", P0, 2, 4)
    assert len(story.broken(Repetitions)) == 1


@pytest.mark.parametrize(
    ("sought", "commits", "faults"), [(5, True, 0), (4, True, 1), (4, False, 0)]
)
def test_a_program_with_its_own_offsets_may_commit_less(
    sought: int, commits: bool, faults: int
) -> None:
    """At the end all must be processed, but commits may be behind the program's own store.

    If no commit of the group was ever past a start, the program does not commit at all.
    """
    story = ahead()
    story.seek("a", sought)
    story.send_commit("a", P0, sought)
    story.hand_out("b", P1, 0, 2)
    story.process("b", P1, 0, 2)
    if commits:
        story.commit("b", P1, 2)
    story.settle({P0: 5, P1: 2} if commits else {P0: 5})
    assert len(story.broken(Losses)) == faults


def test_a_commit_that_a_reset_overtakes_breaks_nothing() -> None:
    """The coordinator may get the commit of an offset that was sought after the log lacked it."""
    story = pair()
    story.seek("a", 7)
    story.emit("a", OffsetReset, partition=P0, offset=0, reason="", skipped=True)
    story.send_commit("a", P0, 7)
    assert story.broken(OwnCommits) == []
    story.send_commit("a", P0, 6)
    (what,) = story.broken(OwnCommits)
    assert "in which its position is 0" in what


def test_what_a_program_skips_it_may_commit() -> None:
    """A program may commit past what it was handed, as far as it reports to skip."""
    story = pair()
    story.record(RecordsSkipped, process="a", life=1, partition=P0, offset=3, group_id=GROUP)
    story.send_commit("a", P0, 3)
    assert broken(story) == []
    story.send_commit("a", P0, 4)
    assert len(story.broken(OwnCommits)) == 1
