"""The audit of a schedule finds every kind of fault."""

from __future__ import annotations

from kgroup.cli.demo.journal import CommitDone, Ended, JournalEntry, RecordProcessed, Started
from tests.schedules.run import count

PLACED = {(0, offset): offset for offset in range(3)}


def start(epoch: int, time: float) -> Started:
    """A worker gets a generation."""
    return Started(time=time, generation=epoch, epoch=epoch, partitions=[0])


def did(offset: int, epoch: int, time: float) -> RecordProcessed:
    """A worker processes a record."""
    return RecordProcessed(
        time=time, generation=epoch, epoch=epoch, partition=0, offset=offset, words={}
    )


def committed(following: int, epoch: int, time: float) -> CommitDone:
    """A commit is accepted."""
    return CommitDone(time=time, generation=epoch, epoch=epoch, partition=0, next=following)


def ended(why: str, epoch: int, time: float) -> Ended:
    """A generation ends."""
    return Ended(time=time, generation=epoch, epoch=epoch, why=why)


WHOLE: list[JournalEntry] = [start(1, 0), *(did(offset, 1, offset) for offset in range(3))]


def test_a_perfect_run_has_no_faults() -> None:
    """A run with every record once and in order has no faults."""
    account = count(PLACED, {"a": WHOLE}, None)
    assert (account.missing, account.strange, account.planned, account.disordered) == (
        [],
        [],
        [],
        [],
    )


def test_missing_and_strange_records_are_found() -> None:
    """A record that was never processed, and one that was never produced, are found."""
    account = count(PLACED, {"a": [start(1, 0), did(0, 1, 1), did(1, 1, 2), did(9, 1, 3)]}, None)
    assert account.missing == [(0, 2)]
    assert account.strange == [(0, 9)]


def test_a_repetition_is_planned_unless_a_kill_or_a_loss_explains_it() -> None:
    """A repetition is explained by a kill or by a lost generation, or else counts as planned."""
    again: list[JournalEntry] = [start(2, 5), did(2, 2, 6)]
    assert count(PLACED, {"a": WHOLE, "b": again}, None).planned == [(0, 2)]
    killed = count(PLACED, {"a": WHOLE, "b": again}, "a")
    assert (killed.planned, killed.after_kill) == ([], [(0, 2)])
    lost = count(PLACED, {"a": [*WHOLE, ended("membership lost: x", 1, 4)], "b": again}, None)
    assert (lost.planned, lost.after_loss) == ([], [(0, 2)])
    assert count(PLACED, {"a": [*WHOLE, ended("rebalance", 1, 4)], "b": again}, None).planned == [
        (0, 2)
    ]


def test_what_was_committed_is_not_excused_by_a_kill() -> None:
    """A record below the killed worker's last accepted commit must not be processed again."""
    journals = {"a": [*WHOLE, committed(3, 1, 4)], "b": [start(2, 5), did(2, 2, 6)]}
    assert count(PLACED, journals, "a").planned == [(0, 2)]


def test_disorder_is_found() -> None:
    """Disorder is found within a generation, and between first processings of all workers."""
    backwards: list[JournalEntry] = [start(1, 0), did(1, 1, 1), did(0, 1, 2), did(2, 1, 3)]
    assert (0, 0) in count(PLACED, {"a": backwards}, None).disordered
    journals = {"a": [start(1, 0), did(1, 1, 1), did(2, 1, 3)], "b": [start(2, 1), did(0, 2, 2)]}
    assert count(PLACED, journals, None).disordered == [(0, 0)]
