"""The effect of each fault, in a simulation without other faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import pytest

from kgroup.broker.groups.java_hashing import shard_of
from kgroup.events import Joined
from kgroup.security.settings import SaslMechanism
from kgroup.testing.simulation import Outcome, Scenario, faults, generate_plan, history, simulate
from kgroup.testing.simulation.fault_generation import LOGIN_KINDS
from kgroup.testing.simulation.faults import ALL, Fault
from kgroup.testing.simulation.plan import LoginPlan, MemberPlan

AT: Final = 30.0
LASTS: Final = 20.0
END: Final = AT + LASTS
STATIC: Final = MemberPlan(name="m2", start_at=1.0, group_instance_id="second")
CALM: Final = attrs.evolve(
    generate_plan(
        Scenario(
            members=2,
            duration=80.0,
            topics={"orders": 4},
            faults_per_hour=0.0,
            config={
                "session_timeout": 6.0,
                "heartbeat_interval": 1.0,
                "rebalance_timeout": 10.0,
                "partition_watch_interval": 5.0,
                "assignors": ["range"],
            },
        ),
        1,
    ),
    members=(MemberPlan(name="m1", start_at=0.5), STATIC),
    records_every=0.5,
    records_at_once=4,
    work=(0.01, 0.05),
)


LOGINS: Final = LoginPlan(mechanism=SaslMechanism.PLAIN, session_lifetime=None)


def run(fault: Fault) -> Outcome:
    """Run a simulation with one fault, with logins if it is about them."""
    logins = LOGINS if type(fault) in LOGIN_KINDS else None
    return simulate(attrs.evolve(CALM, faults=(fault,), logins=logins))


def of(outcome: Outcome, kind: type[Any], after: float, before: float) -> Sequence[Any]:
    """The entries of one kind between two times."""
    return [one for one in outcome.history if type(one) is kind and after < one.at < before]


def lives(outcome: Outcome, name: str) -> int:
    """How often a program was started."""
    return sum(one.process == name for one in of(outcome, history.ProcessStarted, -1, 1e9))


def requests_of(outcome: Outcome, api: str, process: str, after: float, before: float) -> int:
    """How many requests of a program reached a coordinator."""
    judged = of(outcome, history.RequestHandled, after, before)
    return sum(one.api == api and one.process == process for one in judged)


def work_of(outcome: Outcome, process: str, after: float, before: float) -> int:
    """How many records a program has processed."""
    return sum(one.process == process for one in of(outcome, history.Processed, after, before))


def freezes(outcome: Outcome) -> bool:
    """A frozen member does nothing, and continues in the same run."""
    seen = (*of(outcome, history.EventReported, AT, END), *of(outcome, history.HandedOut, AT, END))
    still = [one for one in seen if one.process == "m1"]
    silent = not requests_of(outcome, "heartbeat", "m1", AT + 0.1, END)
    return not still and silent and work_of(outcome, "m1", END, 1e9) > 0 == lives(outcome, "m1") - 1


def crashes(outcome: Outcome) -> bool:
    """A crashed member neither commits nor leaves, and is started again."""
    gone = of(outcome, history.ProcessCrashed, 0, 1e9)
    left = requests_of(outcome, "leave_group", "m1", AT, END)
    commits = requests_of(outcome, "offset_commit", "m1", AT + 0.1, END)
    return len(gone) == 1 and not left and not commits and lives(outcome, "m1") == 2


def stops(outcome: Outcome) -> bool:
    """A stopped member leaves, ends without an error, and is started again."""
    (ended, *_) = of(outcome, history.ProcessEnded, AT, END)
    left = requests_of(outcome, "leave_group", "m1", AT, END)
    return ended.error is None and left == 1 and lives(outcome, "m1") == 2


def has_a_second_program(outcome: Outcome) -> bool:
    """A program with the same instance id takes over the membership; the first one is fenced."""
    fenced = [one for one in of(outcome, history.ProcessEnded, AT, 1e9) if one.error is not None]
    return any("Fenced" in one.error for one in fenced) and lives(outcome, "m2-second") == 1


def works_slowly(outcome: Outcome) -> bool:
    """A slow member processes fewer records during the fault."""
    before, during = work_of(outcome, "m1", AT - LASTS, AT), work_of(outcome, "m1", AT, END)
    return 0 < during < before


def is_split_off(outcome: Outcome) -> bool:
    """No request of the member reaches a coordinator during the fault; then it joins again."""
    silent = not requests_of(outcome, "heartbeat", "m1", AT + 0.5, END)
    return silent and joined(outcome, "m1", END, 1e9) > 0


def reconnects(outcome: Outcome) -> bool:
    """After a cut a member reconnects and stays in its generation."""
    on = requests_of(outcome, "heartbeat", "m1", AT, END) > 10
    return on and not joined(outcome, "m1", AT, 1e9)


def continues(outcome: Outcome) -> bool:
    """Records are processed during and after the fault."""
    return all(work_of(outcome, "m1", *when) for when in ((AT, END), (END, 80.0)))


def moves(outcome: Outcome) -> bool:
    """Another broker loads the group and coordinates it."""
    (moved, *_) = of(outcome, history.CoordinatorMoved, AT - 0.1, END)
    before = of(outcome, history.GroupChanged, 0, AT)[-1].node_id
    return moved.node_id != before and continues(outcome)


def is_without_a_user(outcome: Outcome) -> bool:
    """The member's connections close and no login succeeds, however often it starts.

    Its first process may end by a commit that was under way, of which it got no answer.
    """
    ended = of(outcome, history.ProcessEnded, AT, END)
    silent = not requests_of(outcome, "join_group", "m1", AT + 0.5, END)
    refused = ["SASL_AUTHENTICATION_FAILED" in one.error for one in ended if one.life > 1]
    return silent and len(refused) > 1 and all(refused) and back(outcome)


def learns_its_password_late(outcome: Outcome) -> bool:
    """The sessions of before continue, so that the member does not notice."""
    return reconnects(outcome)


def may_not_read_the_group(outcome: Outcome) -> bool:
    """The next heartbeat ends the group with the reason, and so does each attempt to join."""
    ended = of(outcome, history.ProcessEnded, AT, END)
    refused = all("GROUP_AUTHORIZATION_FAILED" in one.error for one in ended)
    return len(ended) > 1 and refused and back(outcome)


def may_not_commit(outcome: Outcome) -> bool:
    """The next commit fails with the reason."""
    ended = of(outcome, history.ProcessEnded, AT, END)
    refused = all("TOPIC_AUTHORIZATION_FAILED" in one.error for one in ended)
    return len(ended) > 0 and refused and back(outcome)


def back(outcome: Outcome) -> bool:
    """After the fault the member works again."""
    return joined(outcome, "m1", END, 1e9) > 0 and work_of(outcome, "m1", END, 1e9) > 0


def grows(outcome: Outcome) -> bool:
    """New partitions are found and assigned."""
    stable = [one for one in of(outcome, history.GroupChanged, AT, END) if one.assigned]
    given = [name for member in stable[-1].members for name in member.assignment]
    return len(given) == 6 and len(set(given)) == 6


def is_created_again(outcome: Outcome) -> bool:
    """The topic is missing during the fault; the new one is read from its first record on."""
    gone, again = of(outcome, history.TopicChanged, AT - 0.1, 1e9)
    fresh = [one for one in of(outcome, history.HandedOut, END, 1e9) if one.creation == 2]
    firsts = {one.partition: one.first for one in reversed(fresh)}
    return (gone.partitions, again.partitions) == (0, 3) and set(firsts.values()) == {0}


def joined(outcome: Outcome, process: str, after: float, before: float) -> int:
    """How often a member has joined."""
    reported = of(outcome, history.EventReported, after, before)
    return sum(isinstance(one.event, Joined) and one.process == process for one in reported)


M1: Final[dict[str, Any]] = {"at": AT, "process": "m1"}
B: Final = f"b{shard_of('group', 50) % 3 + 1}"
"""The group's coordinator."""
EFFECTS: Final[dict[Fault, Callable[[Outcome], bool]]] = {
    faults.Freeze(**M1, seconds=LASTS): freezes,
    faults.Crash(**M1, seconds=LASTS): crashes,
    faults.Stop(**M1, seconds=LASTS): stops,
    faults.SecondProgram(at=AT, process="m2", seconds=LASTS): has_a_second_program,
    faults.SlowWork(**M1, seconds=LASTS, times=50.0): works_slowly,
    faults.Split(**M1, broker=ALL, seconds=LASTS): is_split_off,
    faults.Cut(**M1, broker=ALL): reconnects,
    faults.Stall(**M1, broker=ALL, seconds=LASTS / 10): continues,
    faults.SlowNetwork(**M1, broker=ALL, delay=0.5, seconds=LASTS): continues,
    faults.BrokerStops(at=AT, broker=B, seconds=LASTS, loading=0.5): moves,
    faults.BrokerDies(at=AT, broker=B, seconds=LASTS): moves,
    faults.SlowBroker(at=AT, broker=B, delay=0.5, seconds=LASTS): continues,
    faults.CoordinatorMoves(at=AT, away=0.5, loading=0.5): moves,
    faults.LeaderMoves(at=AT, topic="orders", partition=0): continues,
    faults.SessionsEnd(**M1): reconnects,
    faults.UserRevoked(**M1, seconds=LASTS): is_without_a_user,
    faults.PasswordChanges(**M1, seconds=LASTS): learns_its_password_late,
    faults.RightRevoked(**M1, resource_type="group", seconds=LASTS): may_not_read_the_group,
    faults.RightRevoked(**M1, resource_type="topic", seconds=LASTS): may_not_commit,
    faults.MorePartitions(at=AT, topic="orders", by=2): grows,
    faults.TopicDeleted(at=AT, topic="orders", partitions=3, seconds=LASTS): is_created_again,
}
"""Each fault, and whether a run shows its effect."""


@pytest.mark.parametrize("fault", EFFECTS, ids=lambda one: type(one).__name__)
def test_a_fault_does_what_it_says(fault: Fault) -> None:
    """A fault is recorded, has its effect, and breaks no invariant."""
    outcome = run(fault)
    about_faults = (history.FaultBegan, history.FaultEnded)
    found = [(type(one), one.fault) for one in outcome.history if isinstance(one, about_faults)]
    assert found == [(history.FaultBegan, fault), (history.FaultEnded, fault)]
    assert outcome.violations == ()
    assert EFFECTS[fault](outcome), EFFECTS[fault].__doc__


def test_without_faults_there_is_one_generation() -> None:
    """Without faults nothing changes once the group is stable, and no record is repeated."""
    outcome = simulate(CALM)
    assert outcome.violations == ()
    assert not of(outcome, history.GroupChanged, 15.0, 79.0)
    done = [(one.partition, one.offset) for one in of(outcome, history.Processed, -1, 1e9)]
    assert len(done) == len(set(done)) > 0
