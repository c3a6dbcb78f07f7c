"""Invariant 12: parked requests are answered, sessions expire, and groups become stable."""

from __future__ import annotations

from kgroup.broker.groups.responses import SyncCompleted
from kgroup.testing.simulation.checks.answers import Answers
from kgroup.testing.simulation.faults import BrokerDies
from kgroup.testing.simulation.history import FaultBegan
from tests.testing.simulation.checks.stories import P0, P1, REBALANCE, SESSION, pair


def test_a_join_that_is_never_answered_breaks_it() -> None:
    """A JoinGroup must be answered once the rebalance must have completed."""
    story = pair()
    story.park_join("a")
    story.settle({})
    assert story.broken(Answers) == []
    story.wait(REBALANCE + 1)
    story.settle({})
    (what,) = story.broken(Answers)
    assert what.startswith("the JoinGroup request of a, waiting at broker 1 at 1.0")
    assert what.endswith("is never answered")


def test_a_sync_that_is_answered_too_late_breaks_it() -> None:
    """The pending-sync timer must end the wait of a SyncGroup."""
    story = pair()
    story.sync("a", None, ticket=77)
    story.wait(REBALANCE + 1)
    story.answer(77, SyncCompleted())
    (what,) = story.broken(Answers)
    assert "the SyncGroup request of a, waiting at broker 1 was answered after 21.0" in what


def test_a_failover_that_forgets_parked_requests_breaks_it() -> None:
    """In a failover the old coordinator must answer its parked requests."""
    story = pair()
    story.park_join("a")
    story.move()
    assert len(story.broken(Answers)) == 1


def test_a_broker_that_is_killed_answers_no_request() -> None:
    """Requests at a killed broker may stay unanswered; those at others may not."""
    story = pair()
    story.park_join("a")
    story.record(FaultBegan, fault=BrokerDies(at=0.0, broker="b1", seconds=1.0))
    story.move()
    assert story.broken(Answers) == []
    story.park_join("a")
    story.record(FaultBegan, fault=BrokerDies(at=0.0, broker="b1", seconds=1.0))
    story.move()
    assert len(story.broken(Answers)) == 1


def test_a_second_answer_breaks_it() -> None:
    """No request is answered twice."""
    story = pair()
    ticket = story.park_join("a")
    story.answer_join(ticket, "a")
    story.answer_join(ticket, "a")
    (what,) = story.broken(Answers)
    assert what == "broker 1 answered a request twice, or one that was never sent"


def test_requests_that_kafka_drops_need_no_answer() -> None:
    """Kafka drops an older copy of a JoinGroup, and parked requests of a member that left."""
    story = pair()
    older = story.park_join("a")
    story.answer(older, None)
    story.at_once()
    ticket = story.park_join("a")
    story.answer_join(ticket, "a")
    story.sync("b", None, ticket=77)
    story.answer(77, None)
    story.at_once()
    story.leave("b")
    story.settle({})
    assert story.broken(Answers) == []


def test_a_request_dropped_for_another_reason_breaks_it() -> None:
    """A request may not be dropped because of another member's request, or of another kind."""
    for after in ("another member", "a sync", "nothing"):
        story = pair()
        ticket = story.park_join("a")
        story.answer(ticket, None)
        story.at_once()
        if after == "another member":
            story.park_join("b")
        elif after == "a sync":
            story.sync("a", SyncCompleted())
        story.settle({})
        assert len(story.broken(Answers)) == 1


def test_a_group_that_never_becomes_stable_breaks_it() -> None:
    """The group must be stable at the end."""
    story = pair()
    story.end_workload()
    story.live("a", "b", seconds=500)
    story.settle({})
    assert story.broken(Answers) == []
    story.group("PreparingRebalance")
    story.settle({}, stable=False)
    (what,) = story.broken(Answers)
    assert what == "group group has not become stable"


def test_a_group_that_becomes_stable_too_late_breaks_it() -> None:
    """The group must be stable within a bound made of its time-outs."""
    story = pair()
    story.end_workload()
    story.live("a", "b", seconds=100)
    story.form({"a": [P0], "b": [P1]})
    story.settle({})
    assert story.broken(Answers) == []
    story.live("a", "b", seconds=100)
    story.form({"a": [P0], "b": [P1]})
    story.settle({})
    (what,) = story.broken(Answers)
    assert "became stable only 20" in what


def test_a_silent_member_that_stays_breaks_it() -> None:
    """A session that does not expire is reported, once."""
    story = pair()
    story.live("b", seconds=SESSION)
    story.commit("b", P1, 0)
    assert story.broken(Answers) == []
    story.live("b", seconds=2)
    story.commit("b", P1, 0)
    story.commit("b", P1, 0)
    (what,) = story.broken(Answers)
    assert "a (member 'a-id') is still a member after 12.0" in what


def test_parked_members_and_loaded_members_may_be_silent() -> None:
    """A parked request and a failover each renew a member's session."""
    story = pair()
    ticket = story.park_join("a")
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


def test_a_new_member_id_begins_a_session() -> None:
    """The session of a new member begins when it gets its member id."""
    story = pair()
    story.live("a", "b", seconds=SESSION + 5)
    ticket = story.park_join("c", known=False)
    story.answer_join(ticket, "c")
    story.live("a", "b", seconds=SESSION - 1)
    story.group("Stable", {"a": [P0], "b": [P1], "c": []})
    assert story.broken(Answers) == []
    story.live("a", "b", seconds=3)
    story.commit("b", P1, 0)
    assert len(story.broken(Answers)) == 1
