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
    SILENT,
    STARTING,
    UNKNOWN,
    WARNING,
    story_of,
)
from kgroup.types import Cause
from tests.cli.timeline.lines import (
    drained,
    draining,
    ended,
    entries,
    joined,
    line,
    stopped_and_killed,
    two_members,
)


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


def test_whose_drain_was_the_longest(tmp_path: Path) -> None:
    """Of members that learned in time; one that learned too late was not waited for."""
    lines = [
        *(line(1.0, name, "GenerationStarted", 1) for name in ("a", "b", "c")),
        *(draining(5.0, name, 1, seconds=25.0) for name in ("a", "b")),
        ended(5.25, "a", 1, seconds=0.25),
        ended(7.5, "b", 1, seconds=2.5),
        line(8.0, "a", "GenerationStarted", 2),
        line(8.0, "b", "GenerationStarted", 2),
        draining(9.0, "c", 1, seconds=25.0),
        ended(14.0, "c", 1, "membership lost", seconds=5.0),
    ]
    first, second = story_of(entries(tmp_path, lines)).rebalances
    assert first.slowest is None
    assert second.drained == {"a (h, 7)": 0.25, "b (h, 7)": 2.5}
    assert second.slowest == ("b (h, 7)", 2.5)


def test_the_longest_drain_of_a_rebalance_that_begins_again(tmp_path: Path) -> None:
    """A generation that ended before a member worked in it is part of it, and so is its drain."""
    lines = [
        line(1.0, "a", "GenerationStarted", 1),
        draining(5.0, "a", 1),
        ended(8.0, "a", 1, seconds=3.0),
        line(8.1, "a", "Joined", 2),
        draining(8.5, "a", 2),
        ended(8.6, "a", 2, seconds=0.1),
        line(9.0, "a", "GenerationStarted", 3),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert second.drained == {"a (h, 7)": 3.0}


def test_a_drain_before_a_departure_is_not_waited_for(tmp_path: Path) -> None:
    """The other member works until the first one leaves; only its own drain takes time."""
    lines = [
        *(line(1.0, name, "GenerationStarted", 1) for name in ("leaver", "stays")),
        draining(5.0, "leaver", 1, "closed"),
        ended(13.0, "leaver", 1, "closed", seconds=8.0),
        line(13.0, "leaver", "Left", 1, notified=True),
        draining(13.1, "stays", 1),
        ended(13.3, "stays", 1, seconds=0.2),
        line(13.5, "stays", "GenerationStarted", 2),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert second.drained == {"stays (h, 7)": 0.2}


@pytest.mark.parametrize(
    "cause", ["task returned", "task raised", "partitions changed", "subscription changed"]
)
def test_a_member_s_own_drain_is_not_waited_for(tmp_path: Path, cause: str) -> None:
    """The rebalance begins when the member joins again, after its drain."""
    lines = [
        *(line(1.0, name, "GenerationStarted", 1) for name in ("a", "b")),
        draining(5.0, "a", 1, cause),
        ended(13.0, "a", 1, cause, seconds=8.0),
        line(13.0, "a", "Joining"),
        draining(13.1, "b", 1),
        ended(13.3, "b", 1, seconds=0.2),
        *(line(13.5, name, "GenerationStarted", 2) for name in ("a", "b")),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert second.begin == 5.0
    assert second.drained == {"b (h, 7)": 0.2}


def test_a_drain_that_outlives_the_rebalance_is_not_counted(tmp_path: Path) -> None:
    """The others went on without its member."""
    lines = [
        *(line(1.0, name, "GenerationStarted", 1) for name in ("a", "b")),
        *(draining(5.0, name, 1) for name in ("a", "b")),
        ended(6.0, "a", 1, seconds=1.0),
        line(15.0, "a", "GenerationStarted", 2),
        ended(25.0, "b", 1, "membership lost", seconds=20.0),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert second.drained == {"a (h, 7)": 1.0}


def test_a_sign_at_the_time_of_the_last_start(tmp_path: Path) -> None:
    """It belongs to that rebalance; the next one does not begin with it."""
    lines = [
        line(100.0, "a", "Joining"),
        line(100.0, "b", "Joining"),
        line(103.0, "a", "GenerationStarted", 1),
        line(103.0, "b", "GenerationStarted", 1),
        line(103.0, "c", "Joining"),
        draining(133.0, "a", 1),
        ended(141.0, "a", 1, seconds=8.0),
        *(line(141.25, name, "GenerationStarted", 2) for name in ("a", "b", "c")),
    ]
    first, second = story_of(entries(tmp_path, lines)).rebalances
    assert (first.begin, first.end) == (100.0, 103.0)
    assert (second.begin, second.end) == (133.0, 141.25)


def test_a_group_that_is_founded_again_begins_with_its_first_join(tmp_path: Path) -> None:
    """The join that founds it is a sign of its first rebalance, unlike the departure before."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *drained(110.0, "a", 1, "closed"),
        line(110.25, "a", "Left", 1, notified=True),
        *joined(200.0, "b", 2, "t-0"),
    ]
    first, second = story_of(entries(tmp_path, lines)).rebalances
    assert (first.begin, first.end) == (100.0, 100.5)
    assert (second.begin, second.end) == (200.0, 200.5)


def test_files_without_the_seconds_of_drains(tmp_path: Path) -> None:
    """Older versions did not write them; nothing is said of the drains."""
    assert [one.slowest for one in story_of(entries(tmp_path, two_members())).rebalances] == [
        None,
        None,
    ]


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


def silences(folder: Path, lines: list[str]) -> dict[str, list[tuple[float, float]]]:
    """When the members were gone without having left, by name."""
    return {
        member.name.split()[0]: [
            (round(one.begin, 3), round(one.end, 3)) for one in member.spans if one.phase == SILENT
        ]
        for member in story_of(entries(folder, lines)).members
    }


def test_a_static_member_that_comes_back_causes_no_rebalance(tmp_path: Path) -> None:
    """Neither its stop nor its return belongs to the rebalance before or to the one after."""
    first, second = story_of(entries(tmp_path, stopped_and_killed())).rebalances
    assert (first.generation_id, first.begin, first.end) == (1, 100.0, 100.5)
    assert (second.generation_id, second.begin, second.end) == (2, 200.0, 200.7)
    assert set(first.started) == {"a (h, 7)", "b (h, 7)", "c (h, 7)"}
    assert set(second.learned) == {"a (h, 7)", "b2 (h, 7)"}


def test_a_follower_that_joins_a_stable_group_again(tmp_path: Path) -> None:
    """Its task returned, and the coordinator gave it the same generation: no rebalance."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        *drained(110.0, "b", 1, "task returned"),
        *joined(110.2, "b", 1, "t-1"),
        line(120.0, "a", "Committed", 1),
    ]
    (only,) = story_of(entries(tmp_path, lines)).rebalances
    assert (only.begin, only.end) == (100.0, 100.5)
    assert silences(tmp_path, lines) == {"a": [], "b": []}


def test_a_member_s_own_drain_begins_a_rebalance_when_it_leaves(tmp_path: Path) -> None:
    """What the coordinator is told at its end counts from the first sign, the drain."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        *drained(110.0, "b", 1, "closed"),
        line(110.2, "b", "Left", 1, notified=True),
        *drained(111.0, "a", 1),
        *joined(111.2, "a", 2, "t-0", "t-1"),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert (second.begin, second.end) == (110.0, 111.7)
    assert silences(tmp_path, lines) == {"a": [], "b": []}


def test_partitions_of_a_member_that_is_gone_stand_still(tmp_path: Path) -> None:
    """Until the static member is back, or until the killed one's session has ended."""
    found = silences(tmp_path, stopped_and_killed())
    # The killed member may have sent heartbeats until a session before the rebalance.
    assert found == {"a": [], "b": [(110.2, 120.5)], "c": [(170.0, 200.7)], "b2": []}
    members = {
        one.name.split()[0]: one
        for one in story_of(entries(tmp_path, stopped_and_killed())).members
    }
    gone = members["c"].spans[-1]
    assert (gone.generation_id, gone.partitions, gone.kind) == (1, ("t-2",), SILENT)
    assert "others worked in generation 2" in gone.text
    assert (members["c"].spans[-2].kind, members["c"].spans[-2].end) == (UNKNOWN, 170.0)
    assert "b2 (h, 7) continued with its partitions" in members["b"].spans[-1].text


def test_a_killed_member_whose_successor_has_its_row(tmp_path: Path) -> None:
    """It may be gone since its last event; it neither worked on nor ended as planned."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        line(130.0, "b", "Committed", 1),
        line(149.9, "b", "CoordinatorFound", member_id=""),
        *joined(150.0, "b", 2, "t-1"),
        *drained(150.1, "a", 1),
        *joined(150.2, "a", 2, "t-0"),
        line(300.0, "a", "Committed", 2),
    ]
    assert silences(tmp_path, lines) == {"a": [], "b": [(130.0, 150.0)]}
    assert works(tmp_path, lines, "b") == [(100.5, 130.0, UNKNOWN), (150.5, 150.5, UNKNOWN)]
    _, member = story_of(entries(tmp_path, lines)).members
    (gone,) = (one for one in member.spans if one.phase == SILENT)
    assert (gone.generation_id, gone.partitions) == (1, ("t-1",))
    assert "killed within this time" in gone.text
    assert "its process was started again" in gone.text


def test_a_killed_member_that_is_started_again_late(tmp_path: Path) -> None:
    """Its session ended before, and others had its partitions; then it was no member at all."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        line(130.0, "b", "Committed", 1),
        *drained(160.0, "a", 1),
        *joined(160.2, "a", 2, "t-0", "t-1"),
        *joined(200.0, "b", 3, "t-1"),
        *drained(200.1, "a", 2),
        *joined(200.2, "a", 3, "t-0"),
        line(300.0, "a", "Committed", 3),
    ]
    assert silences(tmp_path, lines) == {"a": [], "b": [(130.0, 160.7)]}
    assert works(tmp_path, lines, "b") == [(100.5, 130.0, UNKNOWN), (200.5, 200.5, UNKNOWN)]


def test_a_killed_member_whose_successor_does_not_work(tmp_path: Path) -> None:
    """It was gone at most for a session before the next process of its row joined."""
    lines = [
        *joined(100.0, "b", 1, "t-1"),
        line(110.0, "b", "Committed", 1),
        line(150.0, "b", "Joining"),
        line(160.0, "b", "Joining"),
    ]
    assert silences(tmp_path, lines) == {"b": [(120.0, 150.0)]}


def test_an_older_file_has_no_session_timeout(tmp_path: Path) -> None:
    """Then the killed member counts as gone since its last event."""
    lines = [one.replace(', "session_timeout": 30.0', "") for one in stopped_and_killed()]
    assert silences(tmp_path, lines)["c"] == [(130.0, 200.7)]


def test_a_member_without_later_events_may_still_run(tmp_path: Path) -> None:
    """As long as no rebalance has ended without it, nothing shows that it is gone."""
    lines = [*joined(100.0, "a", 1, "t-0"), *joined(100.0, "b", 1, "t-1")]
    lines.append(line(500.0, "a", "Committed", 1))
    assert silences(tmp_path, lines) == {"a": [], "b": []}


def test_a_static_member_that_nobody_replaces_before_the_end(tmp_path: Path) -> None:
    """Its partitions stand still until the files end."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        *drained(110.0, "b", 1, "closed"),
        line(110.2, "b", "Left", 1, notified=False),
        line(115.0, "a", "Committed", 1),
    ]
    assert silences(tmp_path, lines) == {"a": [], "b": [(110.2, 115.0)]}
    (only,) = story_of(entries(tmp_path, lines)).rebalances
    assert only.end == 100.5


def test_a_static_member_that_opens_its_group_again(tmp_path: Path) -> None:
    """The silence of a row ends where the row goes on."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *drained(110.0, "a", 1, "closed"),
        line(110.2, "a", "Left", 1, notified=False),
        *joined(115.0, "a", 1, "t-0"),
        line(120.0, "a", "Committed", 1),
    ]
    assert silences(tmp_path, lines) == {"a": [(110.2, 115.0)]}


def frozen(session: float) -> list[str]:
    """A member is frozen from 110 to 170; another has its partitions after its session."""
    return [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        *drained(110.0 + session, "a", 1),
        *joined(110.2 + session, "a", 2, "t-0", "t-1"),
        line(170.0, "b", "LoopBlocked", 1, level="WARNING", seconds=60.0),
        ended(170.1, "b", 1, "membership lost"),
        line(170.2, "b", "Joining"),
        line(171.0, "a", "Committed", 2),
    ]


def works(folder: Path, lines: list[str], name: str) -> list[tuple[float, float, str]]:
    """When a member worked, and the kind of the generation's end."""
    members = story_of(entries(folder, lines)).members
    (member,) = (one for one in members if one.name.split()[0] == name)
    return [(one.begin, one.end, one.kind) for one in member.spans if one.phase == RUNNING]


def test_a_frozen_member_works_until_it_was_frozen(tmp_path: Path) -> None:
    """Its partitions stand still until others work; from then on it owns nothing."""
    lines = frozen(30.0)
    assert silences(tmp_path, lines) == {"a": [], "b": [(110.0, 140.7)]}
    assert works(tmp_path, lines, "b") == [(100.5, 110.0, LOST)]
    (_, member) = story_of(entries(tmp_path, lines)).members
    (gone,) = (one for one in member.spans if one.phase == SILENT)
    assert "frozen for 60.0 s" in gone.text
    assert "others worked in generation 2; from then on it owned nothing" in gone.text


def test_a_frozen_member_that_keeps_its_partitions(tmp_path: Path) -> None:
    """They stand still until it goes on, in the same generation."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        line(130.0, "a", "LoopBlocked", 1, level="WARNING", seconds=20.0),
        *drained(150.0, "a", 1),
    ]
    assert silences(tmp_path, lines) == {"a": [(110.0, 130.0)]}
    assert works(tmp_path, lines, "a") == [(100.5, 110.0, PLANNED), (130.0, 150.0, PLANNED)]


def as_instance(lines: list[str], name: str) -> list[str]:
    """The lines of a static member."""
    return [one.replace("{", f'{{"group_instance_id": "{name}", ', 1) for one in lines]


def test_a_static_member_that_is_replaced_works_until_its_successor_joins(tmp_path: Path) -> None:
    """It learns of it later; its partitions wait for the successor, and not for the end."""
    lines = [
        *as_instance(joined(100.0, "a", 1, "t-0"), "i"),
        *as_instance(joined(110.0, "b", 1, "t-0"), "i"),
        ended(115.0, "a", 1, "fenced"),
        line(115.1, "a", "Left", 1, notified=False),
        line(130.0, "b", "Committed", 1),
    ]
    assert silences(tmp_path, lines) == {"a": [(110.1, 110.5)], "b": []}
    assert works(tmp_path, lines, "a") == [(100.5, 110.1, LOST)]


def test_a_frozen_static_member_that_is_replaced(tmp_path: Path) -> None:
    """Its partitions stand still until the successor works."""
    lines = [
        *as_instance(joined(100.0, "a", 1, "t-0"), "i"),
        *as_instance(joined(115.0, "b", 1, "t-0"), "i"),
        line(130.0, "a", "LoopBlocked", 1, level="WARNING", seconds=20.0),
        ended(130.1, "a", 1, "fenced"),
        line(130.2, "a", "Left", 1, notified=False),
        line(140.0, "b", "Committed", 1),
    ]
    assert silences(tmp_path, lines) == {"a": [(110.0, 115.5)], "b": []}
    assert works(tmp_path, lines, "a") == [(100.5, 110.0, LOST)]


def test_an_older_file_has_the_instance_in_the_member_id(tmp_path: Path) -> None:
    """Kafka makes the id of a static member of it, and of a dynamic one of the client id."""
    number = "250b420f-80f5-4597-acea-3a3630476662"
    first, second, third = entries(
        tmp_path,
        [
            line(1.0, "a", "Joined", 1, member_id=f"shop-1-{number}"),
            line(1.0, "a", "Joined", 1, member_id=f"a-{number}"),
            line(1.0, "a", "Joined", 1, member_id=f"a-{number}", group_instance_id="a"),
        ],
    )
    assert (first.instance, second.instance, third.instance) == ("shop-1", "", "a")


@pytest.mark.parametrize("notified", [True, False])
def test_a_group_that_was_empty(tmp_path: Path, notified: bool) -> None:
    """Its next rebalance begins when the first member joins, and not when the last ones left."""
    lines = [
        *joined(100.0, "a", 1, "t-0"),
        *drained(110.0, "a", 1, "closed"),
        line(110.2, "a", "Left", 1, notified=notified),
        *joined(170.0, "b", 2, "t-0"),
    ]
    _, second = story_of(entries(tmp_path, lines)).rebalances
    assert (second.begin, second.end) == (170.0, 170.5)


def test_a_static_member_absent_from_a_generation_is_not_missing(tmp_path: Path) -> None:
    """The leader counts it as a member until its session ends."""
    lines = [
        *as_instance(joined(100.0, "a", 1, "t-0"), "i"),
        line(110.0, "b", "Joined", 2, leader=True, members=2),
    ]
    assert story_of(entries(tmp_path, lines)).gaps == []
