"""The audit finds each fault in the journals, and finds none in a correct story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kgroup.cli.demo.audit import FAULTS, AuditReport, Disturbance, audit
from kgroup.cli.demo.journal import Ended, RecordProcessed
from tests.cli.demo.story import KILLED_AT, LINES, PLACED, WOKEN_AT, Story, whole_story


def changes_of(story: Story, **evidence: Any) -> dict[str, Any]:
    """The figures that differ from those of the correct story."""
    right = attrs.asdict(audit(whole_story().evidence()))
    now = attrs.asdict(audit(story.evidence(**evidence)))
    return {name: value for name, value in now.items() if value != right[name]}


def test_a_correct_demo() -> None:
    """A kill and a freeze repeat what was not committed, and the report counts it."""
    account = audit(whole_story().evidence())
    assert account.faults == []
    assert account.produced == account.processed == len(LINES)
    assert account.lost == account.never_produced == account.repeated_planned == 0
    assert account.repeated_after_kill == account.uncommitted_at_kill == 2
    assert account.repeated_by_frozen == 3
    assert account.processed_after_waking == 1
    assert account.stale_commits_refused == 1
    assert account.generations == 3
    assert account.counts_equal
    assert account.words == 4 * len(LINES)


def last(worker: str) -> Callable[[Story], None]:
    """Remove a worker's last processed record from its journal."""

    def change(story: Story) -> None:
        journal = story.journals[worker]
        at = max(n for n, entry in enumerate(journal) if isinstance(entry, RecordProcessed))
        del journal[at]

    return change


def repeat_in_a_planned_rebalance(story: Story) -> None:
    """A worker that was neither killed nor frozen reads a record again in its next generation."""
    story.starts("third", 4, 0, 1)
    story.handles("third", 0, 7, 8)


def repeat_within_a_generation(story: Story) -> None:
    """A generation processes a record twice."""
    story.processes("third", 0, 7, 8)


def repeat_what_the_killed_one_had_committed(story: Story) -> None:
    """A record that was committed before the kill is read again."""
    story.processes("third", 0, 1, 2)


def repeat_of_an_earlier_generation(story: Story) -> None:
    """A record of a generation before the frozen one is read again."""
    story.processes("third", 1, 1, 2)


def a_third_time(story: Story) -> None:
    """A kill excuses one repetition of a record, not two."""
    story.starts("third", 4, 0, 1)
    story.processes("third", 0, 2, 3)


@pytest.mark.parametrize(
    "change",
    [
        repeat_in_a_planned_rebalance,
        repeat_within_a_generation,
        repeat_what_the_killed_one_had_committed,
        repeat_of_an_earlier_generation,
        a_third_time,
    ],
)
def test_a_repetition_without_an_explanation_is_found(change: Callable[[Story], None]) -> None:
    """A repetition without a kill or a freeze that explains it is a fault."""
    story = whole_story()
    change(story)
    changed = changes_of(story)
    assert changed["repeated_planned"] == 1
    assert "repeated_after_kill" not in changed
    assert "repeated_by_frozen" not in changed


def test_a_repetition_within_a_generation_is_not_explained() -> None:
    """Even the killed worker must not process a record twice within its last generation."""
    story = whole_story()
    entry = next(
        e for e in story.journals["first"] if isinstance(e, RecordProcessed) and e.offset == 3
    )
    story.journals["first"].append(attrs.evolve(entry, time=entry.time + 0.0001))
    assert changes_of(story)["repeated_planned"] == 1


def test_a_kill_does_not_explain_what_the_killed_worker_repeated() -> None:
    """A worker that reads again what another one has processed is at fault, though killed later."""
    story = whole_story()
    story.starts("first", 4, 0)
    story.processes("first", 0, 6, 8)
    changed = changes_of(story, kill=Disturbance(worker="first", time=story.time + 1))
    # Two more are those that the story's kill, which is not among the evidence here, explains.
    assert changed["repeated_planned"] == 2 + 2
    assert changed["repeated_after_kill"] == 0


def test_a_kill_after_a_drain_does_not_explain_what_the_drain_left() -> None:
    """A generation that had ended before the kill must have committed what it had processed."""
    story = whole_story()
    journal = story.journals["first"]
    at = KILLED_AT - 1
    journal.append(Ended(time=at, generation=1, epoch=1, why="rebalance"))
    changed = changes_of(story)
    assert changed["repeated_planned"] == 2
    assert changed["repeated_after_kill"] == 0


@pytest.mark.parametrize(
    "placed",
    [
        {place: number for place, number in PLACED.items() if number < len(LINES) - 1},
        {**PLACED, (1, 7): 14},
    ],
    ids=["not said", "two at one offset"],
)
def test_a_line_without_an_offset_of_its_own_is_found(placed: dict[tuple[int, int], int]) -> None:
    """A line that was sent counts even if the cluster did not say where it stored it."""
    changed = changes_of(whole_story(), placed=placed)
    assert changed["unplaced"] == 1


def test_a_lost_line_is_found() -> None:
    """A line that no worker has processed is lost, and the word counts differ."""
    story = whole_story()
    last("third")(story)
    assert changes_of(story) == {"processed": 15, "lost": 1, "counts_equal": False}


def test_a_record_that_only_the_killed_worker_processed_is_no_repetition() -> None:
    """Without a second processing there is no repetition."""
    story = whole_story()
    del story.journals["second"][3 + 2 :]
    changed = changes_of(story)
    assert changed["repeated_after_kill"] == 0


def test_a_record_that_was_never_produced_is_found() -> None:
    """A processed record past the last produced one is a fault."""
    story = whole_story()
    story.processes("third", 1, 8, 9)
    changed = changes_of(story)
    assert changed == {"processed": 17, "never_produced": 1, "counts_equal": False}


def test_wrong_counts_are_found() -> None:
    """One additional word in one record is found."""
    story = whole_story()
    journal = story.journals["third"]
    at = next(n for n, entry in enumerate(journal) if isinstance(entry, RecordProcessed))
    entry = journal[at]
    assert isinstance(entry, RecordProcessed)
    words = {**entry.words, "more": 1}
    # Of a record that was processed several times the first processing counts.
    journal[at] = attrs.evolve(entry, time=0.0, words=words)
    assert changes_of(story)["counts_equal"] is False


def test_records_out_of_order_are_found() -> None:
    """Within a partition a record must not come after a later one."""
    story = whole_story()
    journal = story.journals["third"]
    places = [
        n
        for n, entry in enumerate(journal)
        if isinstance(entry, RecordProcessed) and entry.partition == 0
    ]
    one, other = journal[places[0]], journal[places[1]]
    journal[places[0]] = attrs.evolve(other, time=one.time)
    journal[places[1]] = attrs.evolve(one, time=other.time)
    assert changes_of(story) == {"out_of_order": 1}


def test_repetitions_out_of_order_are_found() -> None:
    """A generation must read in order even what an earlier generation has read."""
    story = whole_story()
    journal = story.journals["third"]
    places = [
        n
        for n, entry in enumerate(journal)
        if isinstance(entry, RecordProcessed) and entry.partition == 1
    ]
    one, other = journal[places[0]], journal[places[1]]
    journal[places[0]] = attrs.evolve(other, time=one.time)
    journal[places[1]] = attrs.evolve(one, time=other.time)
    assert changes_of(story) == {"out_of_order": 1}


def test_what_the_woken_worker_had_in_hand_may_come_late() -> None:
    """The woken worker's batch is not out of order beside the new owner's records."""
    story = whole_story()
    journal = story.journals["third"]
    late = [
        n
        for n, entry in enumerate(journal)
        if isinstance(entry, RecordProcessed)
        and (entry.partition, entry.offset) in {(1, 6), (1, 7)}
    ]
    for number in late:
        journal[number] = attrs.evolve(journal[number], time=WOKEN_AT + 1 + number)
    assert changes_of(story) == {}


def test_records_beyond_the_batch_in_hand_are_found() -> None:
    """The woken worker may finish the batch that it holds, but must not begin another."""
    story = whole_story()
    story.receives("second", 1, 7, 8)
    story.processes("second", 1, 7, 8)
    changed = changes_of(story)
    assert changed["beyond_batch_in_hand"] == 1
    assert changed["processed_after_waking"] == 2


def test_the_worker_may_hold_a_batch_of_each_partition() -> None:
    """All batches count that were received before the freeze, however shortly before."""
    story = whole_story()
    story.receives("second", 0, 4, 5)
    story.processes("second", 0, 4, 5)
    assert "beyond_batch_in_hand" not in changes_of(story)


def test_a_stale_commit_that_was_accepted_is_found() -> None:
    """A commit that the woken worker begins in its old generation must be refused."""
    story = whole_story()
    story.commits("second", 1, 7)
    assert changes_of(story)["stale_commits_accepted"] == 1


def test_a_commit_that_was_on_its_way_at_the_freeze_is_not_stale() -> None:
    """The coordinator accepted it before the freeze; the worker only reads the response later."""
    story = whole_story()
    journal = story.journals["second"]
    begun, _ = journal[-2:]
    story.commits("second", 1, 7)
    journal[-2] = attrs.evolve(journal[-2], time=begun.time - 25)
    assert "stale_commits_accepted" not in changes_of(story)


def test_commits_of_a_new_generation_are_not_stale() -> None:
    """After it joined again, the woken worker may commit."""
    story = whole_story()
    story.starts("second", 4, 1)
    story.commits("second", 1, 8)
    assert changes_of(story) == {"generations": 4}


@pytest.mark.parametrize("committed", [{0: 8, 1: 7}, {0: 8}, {0: 8, 1: 9}, {0: 8, 1: 8, 2: 1}])
def test_a_wrong_final_offset_is_found(committed: dict[int, int]) -> None:
    """The group's final committed offset must be the end of each partition."""
    assert changes_of(whole_story(), committed=committed) == {"offsets_wrong": 1}


def test_a_demo_that_ended_early_has_a_report() -> None:
    """The report has all figures even without a worker, a kill or a freeze."""
    account = audit(
        Story().evidence(kill=None, freeze=None, committed=None, problems=["no broker"])
    )
    assert account.lost == len(PLACED)
    assert account.faults[0] == "no broker"


def test_a_worker_without_a_generation_explains_nothing() -> None:
    """A worker that was killed before its first generation held no batch."""
    story = whole_story()
    for number, entry in enumerate(story.journals["first"]):
        story.journals["first"][number] = attrs.evolve(entry, time=entry.time + 16)
    changed = changes_of(story)
    assert changed["repeated_after_kill"] == 0
    assert changed["repeated_planned"] == 2


RIGHT = audit(whole_story().evidence())


@pytest.mark.parametrize("figure", [name for name, _ in FAULTS])
def test_a_figure_that_must_be_0(figure: str) -> None:
    """If such a figure is not 0, the report has one fault, which names the number."""
    assert RIGHT.faults == []
    figures: dict[str, Any] = {figure: 7}
    (fault,) = attrs.evolve(RIGHT, **figures).faults
    assert "7 " in fault


def test_every_figure_is_classified() -> None:
    """Each figure must be 0 or is only a result; a new figure fails here until it is listed."""
    results = {
        "produced",
        "processed",
        "repeated_after_kill",
        "repeated_by_frozen",
        "uncommitted_at_kill",
        "processed_after_waking",
        "generations",
        "stale_commits_refused",
        "words",
        "seconds",
    }
    otherwise = {"counts_equal", "problems"}
    named = {field.name for field in attrs.fields(AuditReport)}
    assert named == results | otherwise | {name for name, _ in FAULTS}


def test_unequal_counts_are_a_fault() -> None:
    """Unequal word counts are a fault even if all other figures are right."""
    (fault,) = attrs.evolve(RIGHT, counts_equal=False).faults
    assert "word counts" in fault


def test_a_problem_is_a_fault() -> None:
    """A demo with a problem is not right, whatever the figures are."""
    assert attrs.evolve(RIGHT, problems=("no worker came",)).faults == ["no worker came"]
