"""What is drawn of a group follows from its events."""

from __future__ import annotations

from pathlib import Path

from kgroup import events
from kgroup.cli.timeline.story import (
    DRAINING,
    JOINING,
    LOST,
    NORMAL,
    PHASES,
    RUNNING,
    STARTING,
    UNKNOWN,
    story_of,
)
from tests.cli.timeline.lines import ended, entries, line, two_members


def test_each_event_of_a_phase_exists() -> None:
    """An event that was renamed would end no phase."""
    assert all(issubclass(getattr(events, name), events.Event) for name in PHASES)


def test_a_member_s_phases(tmp_path: Path) -> None:
    """They follow each other without gaps, and a generation's spans have its number and end."""
    first, _ = story_of(entries(tmp_path, two_members())).members
    assert [(one.phase, one.generation_id, one.kind) for one in first.spans] == [
        (JOINING, 1, NORMAL),
        (STARTING, 1, NORMAL),
        (RUNNING, 1, NORMAL),
        (DRAINING, 1, NORMAL),
        (JOINING, 2, NORMAL),
        (STARTING, 2, LOST),
        (RUNNING, 2, LOST),
        (DRAINING, 2, LOST),
    ]
    assert [one.partitions for one in first.spans if one.phase == RUNNING] == [
        ("t-0", "t-1"),
        ("t-0",),
    ]
    assert first.commits == [110.4]
    assert [mark.event for mark in first.marks] == ["Left"]


def test_a_process_that_was_killed(tmp_path: Path) -> None:
    """Its last span ends with its last event, and says that its end is not known."""
    _, second = story_of(entries(tmp_path, two_members())).members
    last = second.spans[-1]
    assert (last.phase, last.begin, last.end, last.kind) == (RUNNING, 111.0, 112.0, UNKNOWN)
    assert [(mark.event, mark.is_warning) for mark in second.marks] == [("LoopBlocked", True)]


def test_how_long_members_take_to_learn_of_a_rebalance(tmp_path: Path) -> None:
    """It begins with its first sign, here the Join of the other member."""
    _, second = story_of(entries(tmp_path, two_members())).rebalances
    assert (second.generation_id, second.begin, second.end) == (2, 110.0, 111.0)
    assert second.learned == {"a (h, 7)": 0.5}
    assert {name: round(at, 3) for name, at in second.started.items()} == {
        "a (h, 7)": 0.8,
        "b (h, 7)": 1.0,
    }


def test_a_drain_that_was_cut_short(tmp_path: Path) -> None:
    """The generation counts as lost, whatever its cause: some of its work was not finished."""
    lines = [line(1.0, "a", "GenerationStarted", 4), ended(2.0, "a", 4, cut_short=True)]
    (member,) = story_of(entries(tmp_path, lines)).members
    assert member.spans[-1].kind == LOST


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
