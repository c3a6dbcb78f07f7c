"""Invariant 12: who waits is answered, and a group comes to rest."""

from __future__ import annotations

from kgroup.broker.groups.responses import SyncCompleted
from kgroup.testing.simulation.checks.answers import Answers
from kgroup.testing.simulation.faults import BrokerDies
from kgroup.testing.simulation.history import FaultBegan
from tests.testing.simulation.checks.stories import P0, P1, REBALANCE, SESSION, pair


def test_a_join_that_is_never_answered_breaks_it() -> None:
    """Once the rebalance must have completed."""
    story = pair()
    story.ask_to_join("a")
    story.settle({})
    assert story.broken(Answers) == []
    story.wait(REBALANCE + 1)
    story.settle({})
    (what,) = story.broken(Answers)
    assert what.startswith("the JoinGroup request of a, parked at broker 1 at 1.0")
    assert what.endswith("is never answered")


def test_a_sync_that_is_answered_too_late_breaks_it() -> None:
    """The pending-sync timer should have ended the wait."""
    story = pair()
    story.sync("a", None, ticket=77)
    story.wait(REBALANCE + 1)
    story.answer(77, SyncCompleted())
    (what,) = story.broken(Answers)
    assert "the SyncGroup request of a, parked at broker 1 was answered after 21.0" in what


def test_a_failover_that_forgets_who_waits_breaks_it() -> None:
    """Whoever waits is sent to look elsewhere."""
    story = pair()
    story.ask_to_join("a")
    story.move()
    assert len(story.broken(Answers)) == 1


def test_a_broker_that_is_killed_answers_nobody() -> None:
    """Others do."""
    story = pair()
    story.ask_to_join("a")
    story.record(FaultBegan, fault=BrokerDies(at=0.0, broker="b1", seconds=1.0))
    story.move()
    assert story.broken(Answers) == []
    story.ask_to_join("a")
    story.record(FaultBegan, fault=BrokerDies(at=0.0, broker="b1", seconds=1.0))
    story.move()
    assert len(story.broken(Answers)) == 1


def test_a_second_answer_breaks_it() -> None:
    """A request has one."""
    story = pair()
    ticket = story.ask_to_join("a")
    story.answer_join(ticket, "a")
    story.answer_join(ticket, "a")
    (what,) = story.broken(Answers)
    assert what == "broker 1 answered a request twice, or one that was never sent"


def test_silence_that_kafka_keeps_too_is_no_fault() -> None:
    """An older copy of a Join, and what a leaver has parked."""
    story = pair()
    older = story.ask_to_join("a")
    story.answer(older, None)
    story.at_once()
    ticket = story.ask_to_join("a")
    story.answer_join(ticket, "a")
    story.sync("b", None, ticket=77)
    story.answer(77, None)
    story.at_once()
    story.leave("b")
    story.settle({})
    assert story.broken(Answers) == []


def test_silence_for_another_reason_breaks_it() -> None:
    """Another member's request, another kind of request, or none."""
    for after in ("another member", "a sync", "nothing"):
        story = pair()
        ticket = story.ask_to_join("a")
        story.answer(ticket, None)
        story.at_once()
        if after == "another member":
            story.ask_to_join("b")
        elif after == "a sync":
            story.sync("a", SyncCompleted())
        story.settle({})
        assert len(story.broken(Answers)) == 1


def test_a_group_that_never_rests_breaks_it() -> None:
    """It is still at it at the end."""
    story = pair()
    story.quiet()
    story.live("a", "b", seconds=500)
    story.settle({})
    assert story.broken(Answers) == []
    story.group("PreparingRebalance")
    story.settle({}, stable=False)
    (what,) = story.broken(Answers)
    assert what == "group group has not become stable"


def test_a_group_that_rests_too_late_breaks_it() -> None:
    """All time-outs together have a sum."""
    story = pair()
    story.quiet()
    story.live("a", "b", seconds=100)
    story.form({"a": [P0], "b": [P1]})
    story.settle({})
    assert story.broken(Answers) == []
    story.live("a", "b", seconds=100)
    story.form({"a": [P0], "b": [P1]})
    story.settle({})
    (what,) = story.broken(Answers)
    assert "became stable only 20" in what


def test_a_member_that_is_silent_and_stays_breaks_it() -> None:
    """Its session is over; it is told once."""
    story = pair()
    story.live("b", seconds=SESSION)
    story.commit("b", P1, 0)
    assert story.broken(Answers) == []
    story.live("b", seconds=2)
    story.commit("b", P1, 0)
    story.commit("b", P1, 0)
    (what,) = story.broken(Answers)
    assert "a (member 'a-id') is still a member after 12.0" in what


def test_who_waits_and_who_was_taken_over_need_not_be_heard() -> None:
    """A parked request spares a member, and a failover lets every session begin anew."""
    story = pair()
    ticket = story.ask_to_join("a")
    story.live("b", seconds=SESSION + 5)
    story.commit("b", P1, 0)
    story.answer_join(ticket, "a")
    story.live("b", seconds=SESSION - 1)
    story.move()
    story.group("Stable")
    story.live("b", seconds=SESSION - 1)
    story.commit("b", P1, 0)
    assert story.broken(Answers) == []
    story.live("b", seconds=3)
    story.commit("b", P1, 0)
    assert len(story.broken(Answers)) == 1


def test_a_member_whose_id_is_new_was_heard_when_it_was_given() -> None:
    """It asked without one."""
    story = pair()
    story.live("a", "b", seconds=SESSION + 5)
    ticket = story.ask_to_join("c", known=False)
    story.answer_join(ticket, "c")
    story.live("a", "b", seconds=SESSION - 1)
    story.group("Stable", {"a": [P0], "b": [P1], "c": []})
    assert story.broken(Answers) == []
    story.live("a", "b", seconds=3)
    story.commit("b", P1, 0)
    assert len(story.broken(Answers)) == 1
