"""Invariant 11: one live member for an instance id."""

from __future__ import annotations

import pytest

from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation.checks.instances import Instances
from kgroup.testing.simulation.history import (
    ProcessCrashed,
    ProcessFrozen,
    ProcessThawed,
    SimulationEnded,
)
from kgroup.types import Cause
from tests.testing.simulation.checks.stories import P0, P1, SESSION, Story, replaced


def test_two_members_with_one_instance_id_break_it() -> None:
    """A group knows each once."""
    story = Story()
    story.instances = {"a": "one", "b": "one"}
    story.begin("a", "b")
    story.form({"a": [P0], "b": [P1]})
    assert "has 2 members with the instance id 'one'" in story.broken(Instances)[-1]


def test_who_is_replaced_reads_on_until_it_hears_of_it() -> None:
    """It hears by its next request, which is refused."""
    story = replaced()
    story.hand_out("a", P0, 0, 1)
    story.hand_out("twin", P0, 0, 1)
    story.heartbeat("a", ErrorCode.FENCED_INSTANCE_ID)
    story.end("a", Cause.FENCED)
    story.record(SimulationEnded)
    assert story.broken(Instances) == []


def test_a_heartbeat_that_is_answered_well_breaks_it() -> None:
    """It would never hear of it."""
    story = replaced()
    story.heartbeat("twin")
    assert story.broken(Instances) == []
    story.heartbeat("a")
    (what,) = story.broken(Instances)
    assert "answered a heartbeat of 'a-id' without an error" in what


def test_records_after_its_session_break_it() -> None:
    """By then its lease is over, whatever it has heard."""
    story = replaced()
    story.wait(SESSION - 1)
    story.hand_out("a", P0, 0, 1)
    assert story.broken(Instances) == []
    story.wait(1)
    story.hand_out("a", P0, 1, 2)
    (what,) = story.broken(Instances)
    assert "a was handed orders-0 from 1 on, 10.0" in what


def test_who_never_hears_of_it_breaks_it() -> None:
    """Or too late."""
    for late in (True, False):
        story = replaced()
        story.wait(SESSION + 2)
        if late:
            story.end("a", Cause.FENCED)
        story.record(SimulationEnded)
        (what,) = story.broken(Instances)
        assert "a in generation 1 did not notice for 12.0" in what


@pytest.mark.parametrize("thawed", [True, False])
def test_who_stands_still_hears_when_it_goes_on(thawed: bool) -> None:
    """Or never, while it does not."""
    story = replaced()
    story.record(ProcessFrozen, process="a", life=1)
    story.wait(SESSION * 3)
    if thawed:
        story.record(ProcessThawed, process="a", life=1)
        story.end("a", Cause.FENCED)
    story.record(SimulationEnded)
    assert story.broken(Instances) == []


def test_who_has_crashed_hears_nothing() -> None:
    """And need not."""
    story = replaced()
    story.record(ProcessCrashed, process="a", life=1)
    story.wait(SESSION * 3)
    story.record(SimulationEnded)
    assert story.broken(Instances) == []


def test_who_was_replaced_and_joins_again_breaks_it() -> None:
    """The two would take the instance id from each other for ever."""
    story = replaced()
    story.end("a", Cause.FENCED)
    story.ids["a"] = "a-second-id"
    story.group("Stable", {"a": [P0, P1]})
    story.told_joined("a")
    (what,) = story.broken(Instances)
    assert what == ("a has joined again, although twin had taken its instance id 'one'")


def test_a_replacement_that_a_failover_has_lost_was_none() -> None:
    """What the coordinator had not written down its successor does not know."""
    story = replaced()
    story.group("Stable", {"a": [P0, P1]})
    story.heartbeat("a")
    story.hand_out("a", P0, 0, 1)
    assert story.broken(Instances) == []


def test_who_is_replaced_before_it_hears_that_it_is_in_has_joined_only_once() -> None:
    """The answer to its Join was under way."""
    story = Story()
    story.instances = {"a": "one", "twin": "one"}
    story.begin("a", "twin")
    story.answer_join(story.ask_to_join("a", known=False), "a")
    story.group("Stable", {"a": [P0, P1]})
    story.answer_join(story.ask_to_join("twin", known=False), "twin")
    story.group("Stable", {"twin": [P0, P1]})
    story.told_joined("a")
    assert story.broken(Instances) == []


def test_who_joins_again_with_the_id_that_was_replaced_breaks_it() -> None:
    """The coordinator should have refused it."""
    story = replaced()
    story.end("a", Cause.FENCED)
    story.answer_join(story.ask_to_join("a"), "a")
    story.told_joined("a")
    assert len(story.broken(Instances)) == 1
