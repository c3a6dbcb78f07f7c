"""What is drawn of a group follows from its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgroup import events
from kgroup.cli.timeline.story import (
    COMMIT,
    DRAIN,
    DRAINING,
    ENDS,
    JOIN,
    JOINING,
    LOST,
    OTHER,
    OVERDUE,
    PHASES,
    PLANNED,
    RAISED,
    REFUSAL,
    RUNNING,
    STARTING,
    UNKNOWN,
    WARNING,
    story_of,
)
from kgroup.types import Cause
from tests.cli.timeline.lines import ended, entries, line, two_members


def test_each_event_of_a_phase_exists() -> None:
    """An event that was renamed would end no phase."""
    assert all(issubclass(getattr(events, name), events.Event) for name in PHASES)


def test_a_member_s_phases(tmp_path: Path) -> None:
    """They follow each other without gaps, and a generation's spans have its number and end."""
    first, _ = story_of(entries(tmp_path, two_members())).members
    assert [(one.phase, one.generation_id, one.kind) for one in first.spans] == [
        (JOINING, 1, PLANNED),
        (STARTING, 1, PLANNED),
        (RUNNING, 1, PLANNED),
        (DRAINING, 1, PLANNED),
        (JOINING, 2, PLANNED),
        (STARTING, 2, LOST),
        (RUNNING, 2, LOST),
        (DRAINING, 2, LOST),
    ]
    assert [one.partitions for one in first.spans if one.phase == RUNNING] == [
        ("t-0", "t-1"),
        ("t-0",),
    ]
    assert [(mark.at, mark.kind) for mark in first.marks] == [
        (100.5, JOIN),
        (110.4, COMMIT),
        (110.5, DRAIN),
        (110.7, JOIN),
        (130.0, DRAIN),
        (130.2, OTHER),
    ]


def test_a_process_that_was_killed(tmp_path: Path) -> None:
    """Its last span ends with its last event, and says that its end is not known."""
    _, second = story_of(entries(tmp_path, two_members())).members
    last = second.spans[-1]
    assert (last.phase, last.begin, last.end, last.kind) == (RUNNING, 111.0, 112.0, UNKNOWN)
    assert [(mark.event, mark.kind) for mark in second.marks] == [
        ("Joined", JOIN),
        ("LoopBlocked", WARNING),
    ]


def test_how_long_members_take_to_learn_of_a_rebalance(tmp_path: Path) -> None:
    """It begins with its first sign, here the Join of the other member."""
    _, second = story_of(entries(tmp_path, two_members())).rebalances
    assert (second.generation_id, second.begin, second.end) == (2, 110.0, 111.0)
    assert second.learned == {"a (h, 7)": 0.5}
    assert {name: round(at, 3) for name, at in second.started.items()} == {
        "a (h, 7)": 0.8,
        "b (h, 7)": 1.0,
    }


def test_a_member_that_learns_too_late(tmp_path: Path) -> None:
    """One that was frozen learned of the rebalance when it lost its generation; none waited."""
    lines = [
        line(1.0, "a", "GenerationStarted", 1),
        line(1.0, "b", "GenerationStarted", 1),
        line(5.0, "a", "GenerationDraining", 1),
        ended(5.1, "a", 1),
        line(6.0, "a", "GenerationStarted", 2),
        line(9.0, "b", "GenerationDraining", 1),
        ended(9.5, "b", 1, "membership lost"),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert second.learned == {"a (h, 7)": 0.0}
    assert second.late == {"b (h, 7)": 4.0}


def test_every_cause_of_an_end_has_a_kind() -> None:
    """A new cause is given its colour before it can be drawn."""
    assert set(ENDS) == set(Cause)
    assert set(ENDS.values()) == {PLANNED, RAISED, LOST, OVERDUE}


@pytest.mark.parametrize(
    ("cause", "cut_short", "kind"),
    [
        ("closed", False, PLANNED),
        ("task raised", False, RAISED),
        ("fenced", False, LOST),
        ("processing stuck", False, OVERDUE),
        ("rebalance", True, OVERDUE),
        ("task raised", True, RAISED),
        ("a cause of the future", False, UNKNOWN),
    ],
)
def test_a_generation_has_the_kind_of_its_end(
    tmp_path: Path, cause: str, cut_short: bool, kind: str
) -> None:
    """It follows from the cause; a drain that was cut short makes a planned end overdue."""
    lines = [line(1.0, "a", "GenerationStarted", 4), ended(2.0, "a", 4, cause, cut_short=cut_short)]
    (member,) = story_of(entries(tmp_path, lines)).members
    assert member.spans[-1].kind == kind


def test_a_refusal_is_no_other_warning(tmp_path: Path) -> None:
    """Refused commits and assignments have a mark of their own."""
    lines = [
        line(1.0 + number, "a", name, level="WARNING")
        for number, name in enumerate(("CommitRefused", "AssignmentRefused", "LoopBlocked"))
    ]
    (member,) = story_of(entries(tmp_path, lines)).members
    assert [mark.kind for mark in member.marks] == [REFUSAL, REFUSAL, WARNING]


def test_files_that_begin_in_the_middle(tmp_path: Path) -> None:
    """Events whose beginning is missing make no spans, and raise nothing."""
    lines = [
        ended(1.0, "a", 3),
        line(1.5, "a", "Committed", 3),
        line(2.0, "a", "Joined", 4),
        line(3.0, "a", "GenerationDraining", 4),
        ended(4.0, "a", 4),
    ]
    (member,) = story_of(entries(tmp_path, lines)).members
    assert [(one.phase, one.begin, one.end) for one in member.spans] == [
        (STARTING, 2.0, 3.0),
        (DRAINING, 3.0, 4.0),
    ]
