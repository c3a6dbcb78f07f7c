"""The three protocols under the same plans: what holds in all of them, and what one of them breaks.

What a protocol breaks is a finding about it; the tests hold that it is still found.
"""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.testing.simulation import MemberPlan, Plan, Scenario
from kgroup.testing.simulation.faults import (
    ALL,
    BrokerDies,
    CoordinatorMoves,
    Crash,
    Fault,
    Freeze,
    MorePartitions,
    SecondProgram,
    Split,
    Stop,
)
from kgroup.testing.simulation.history import (
    CoordinationMessages,
    FinalGroupState,
    HistoryEntry,
    PartitionsTaken,
    ProcessEnded,
)
from kgroup.testing.simulation.run import record
from kgroup.testing.simulation.schemes import SCHEMES
from kgroup.testing.simulation.schemes.findings import find
from kgroup.testing.simulation.schemes.judge import Judge, judge
from kgroup.testing.simulation.schemes.plans import comparable_plan
from tests.testing.simulation.samples import a_plan

OLDER = ["zookeeper", "broker"]
EVERY = list(SCHEMES)


def play(name: str, plan: Plan) -> tuple[HistoryEntry, ...]:
    """The history of a plan in a scheme."""
    return record(plan, SCHEMES[name].worker, SCHEMES[name].new_coordination)


def with_faults(*faults: Fault, **changes: Any) -> Plan:
    """A plan of 90 seconds, three brokers and two members with two partitions each."""
    fields: dict[str, Any] = {
        "brokers": 3,
        "duration": 90.0,
        "topics": {"orders": 4},
        "config": {"session_timeout": 6.0, "rebalance_timeout": 20.0},
        "records_every": 0.5,
        "faults": faults,
        "broker_settings": {
            "group.initial.rebalance.delay.ms": 0,
            "default.replication.factor": 3,
        },
    }
    return a_plan(**{**fields, **changes})


def numbers(found: Judge) -> set[int]:
    """The invariants that were broken."""
    return {one.number for one in found.violations}


@pytest.mark.parametrize("name", EVERY)
def test_without_faults_every_record_is_processed_once(name: str) -> None:
    """Members that start and stop in good order share the partitions, and repeat nothing."""
    plan = with_faults(work=(0.0, 0.0), members=(MemberPlan(name="m1", start_at=0.0),))
    entries = play(name, plan)
    found = judge(entries)
    (final,) = [one for one in entries if isinstance(one, FinalGroupState)]
    assert found.violations == []
    assert found.twice == 0
    assert final.stable
    assert dict(final.committed) == {one: end for one, end in final.ends.items() if end}
    assert found.processed == sum(final.ends.values()) > 100


@pytest.mark.parametrize("name", OLDER)
def test_the_same_plan_gives_the_same_trace(name: str) -> None:
    """A seed decides every step of the older protocols too."""
    plan = comparable_plan(Scenario(duration=60.0, faults_per_hour=600.0), 5)
    assert list(map(str, play(name, plan))) == list(map(str, play(name, plan)))


@pytest.mark.parametrize(
    ("name", "broken"), [("zookeeper", {2, 4}), ("broker", {2, 4}), ("classic", set[int]())]
)
def test_a_member_that_is_cut_off(name: str, broken: set[int]) -> None:
    """Older members go on and their offsets are stored in the end; a lease ends a classic one."""
    found = judge(play(name, with_faults(Split(at=40.0, process="m1", broker=ALL, seconds=30.0))))
    assert numbers(found) & {2, 4, 12} == broken
    assert (found.twice > 20) is bool(broken)
    assert (sum(found.shared.values()) > 20.0) is bool(broken)


@pytest.mark.parametrize("name", OLDER)
@pytest.mark.parametrize(
    "fault",
    [
        Freeze(at=40.0, process="m1", seconds=15.0),
        Crash(at=40.0, process="m1", seconds=20.0),
        Stop(at=40.0, process="m1", seconds=20.0),
        BrokerDies(at=40.0, broker="b1", seconds=20.0, loading=0.0),
        CoordinatorMoves(at=40.0, away=5.0, loading=0.0),
        MorePartitions(at=40.0, topic="orders", by=3),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_group_recovers(name: str, fault: Fault) -> None:
    """After a fault, every partition has one owner again and every record is processed."""
    entries = play(name, with_faults(fault))
    found = judge(entries)
    assert 12 not in numbers(found)
    assert not [one for one in found.violations if "ends at" in one.what]
    taken = [one for one in entries if isinstance(one, PartitionsTaken) and one.at >= 40.0]
    assert taken or isinstance(fault, BrokerDies | CoordinatorMoves)


def test_all_brokers_stand_for_the_election_of_the_next_coordinator() -> None:
    """While a coordinator is cut off from ZooKeeper, another is elected and commands too."""
    entries = play("broker", with_faults(CoordinatorMoves(at=40.0, away=20.0, loading=0.0)))
    elected = [
        one.process
        for one in entries
        if isinstance(one, CoordinationMessages)
        and (one.what, one.about) == ("write", "/consumers/coordinator")
        and one.at > 40.0
    ]
    commands = [
        one
        for one in entries
        if isinstance(one, CoordinationMessages) and one.about == "start" and one.at > 40.0
    ]
    assert len(set(elected)) > 1
    assert commands


def test_a_member_that_fails_to_balance_is_started_again() -> None:
    """If a claim is taken for longer than all attempts, the program ends with an error."""
    # The znodes of a member that died last for its session, and all attempts for twice that; a
    # coordinator that writes nothing for longer keeps them.
    faults = (
        CoordinatorMoves(at=39.0, away=40.0, loading=0.0),
        Crash(at=38.5, process="m1", seconds=1.0),
    )
    entries = play("zookeeper", with_faults(*faults))
    assert 12 not in numbers(judge(entries))
    assert all(one.error is None for one in entries if isinstance(one, ProcessEnded))


def test_the_end_waits_until_the_members_know_their_partitions() -> None:
    """In this seed the coordinator is stable, at the end, 0.15 s before the last member knows."""
    found = find(SCHEMES["classic"], [29])
    assert not found.broken


def test_plans_fit_every_scheme() -> None:
    """A comparable plan has no static members, logins, transactions, twins or waiting faults."""
    scenario = Scenario(logins=True, faults_per_hour=600.0)
    for seed in range(20):
        plan = comparable_plan(scenario, seed)
        assert plan.logins is None
        assert plan.transactional == 0.0
        assert plan.partition_handler == "plain"
        assert not any(one.group_instance_id for one in plan.members)
        assert not any(one.when or isinstance(one, SecondProgram) for one in plan.faults)
        assert plan.faults
