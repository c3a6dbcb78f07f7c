"""A walk through all rule tables reaches each of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kgroup.broker.groups import rules, validation
from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.machine import GroupMachine
from kgroup.broker.groups.requests import (
    DeleteGroups,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    SyncGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    CoordinatorResponse,
    GroupsDeleted,
    LeaveCompleted,
    OffsetsDeleted,
)
from kgroup.broker.groups.rule_tables import TABLES
from kgroup.broker.groups.rules import Rule, Table
from kgroup.broker.groups.states import DEAD
from kgroup.broker.groups.timers import TimerKind, TimerName, Timers
from kgroup.broker.groups.validation import (
    ABSENT_GROUP_RULES,
    PRECONDITIONS,
    IncomingRequest,
    Shard,
)
from kgroup.broker.groups.write_faults import WriteFaults
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import SETTINGS, Client, Harness, tp
from tests.broker.groups.test_registry import failed_over

NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
OTHER = {"roundrobin": b""}
BOTH = {"range": b"", "roundrobin": b""}


def ghosts(client: Client) -> list[Client]:
    """Requests that the checks of identity and generation refuse, in the order of the checks."""
    return [
        client.like(instance="unknown"),
        client.like(id="somebody else's", instance="i1"),
        client.like(id="ghost"),
        client.like(generation=99),
    ]


def a_group(harness: Harness, *, synced: bool = True) -> tuple[Client, Client]:
    """A dynamic leader and a static follower, with ``i1``."""
    m1, m2 = (
        harness.client("m1", protocols=BOTH),
        harness.client("m2", protocols=BOTH, instance="i1"),
    )
    harness.form(m1, m2, synced=synced)
    return m1, m2


def joins_of_members(harness: Harness) -> None:
    """Members join again in every state, unchanged and changed."""
    m1, m2 = a_group(harness)
    for ghost in ghosts(m1)[:3]:
        ghost.join()
    m2.join()
    m2.like(protocols=OTHER).join()
    m1.join()
    harness.client("m3", protocols={"x": b""}).join()
    m1, m2 = a_group(Harness())
    m1.join()
    m2.join()
    m1, m2 = a_group(Harness(), synced=False)
    m2.join()
    m2.like(protocols=OTHER).join()


def joins_of_newcomers(harness: Harness) -> None:
    """New members join groups in which a join is parked, and groups in which none is."""
    old = harness.client("old")
    old.take(old.join(version=3))
    harness.client("older").join(version=3)
    harness.client("oldest").join(version=3)
    harness.client("static", instance="s1").join()
    late = harness.client("late")
    late.enlist()
    late.like(instance="no").join()
    late.enter()
    full = Harness(attrs.evolve(SETTINGS, group_max_size=1))
    full.form(full.client("m1"))
    full.client("m2").join()
    first = Harness(attrs.evolve(SETTINGS, initial_rebalance_delay=1.0))
    first.client("m1").enter()
    first.client("m2").enter()
    first.client("s1", instance="s1").enter()
    first.sleep(10)


def joins_of_restarted_instances(harness: Harness) -> None:
    """A static member's new process joins: unchanged, changed, and where the write fails."""
    _, m2 = a_group(harness)
    harness.coordinator.fail_writes(TOO_FEW)
    m2.like(id="").join()
    m2.like(id="").join_now()
    m2.like(id="", protocols=OTHER).join()
    m2.like(id="").join()


def groups_that_cannot_be_written(harness: Harness) -> None:
    """The log fails for a first join, an assignment and an emptied group."""
    harness.coordinator.fail_writes(TOO_FEW)
    harness.client("m1").join()
    m1, _ = a_group(harness, synced=False)
    harness.coordinator.fail_writes(TOO_FEW)
    m1.sync()
    harness.coordinator.fail_writes(TOO_FEW)
    harness.sleep(500)


def syncs(harness: Harness) -> None:
    """Syncs in every state."""
    harness.client("m0").enlist()
    harness.client("m0").sync()
    harness.sleep(61)
    m1, m2 = a_group(harness, synced=False)
    for ghost in ghosts(m1):
        ghost.sync()
    m1.sync(protocol_name="other")
    m2.sync()
    m1.sync()
    m1.sync()
    m1.join()
    m2.sync()


def heartbeats_and_commits(harness: Harness) -> None:
    """Heartbeats and commits in every state, of members and of other clients."""
    tool = harness.client("tool")
    tool.commit()
    tool.commit_in_transaction()
    m1, m2 = a_group(harness, synced=False)
    asks: tuple[Callable[[Client], object], ...] = (
        Client.heartbeat,
        Client.commit,
        Client.commit_in_transaction,
    )
    for request in asks:
        for one in (*ghosts(m1), m1):
            request(one)
    tool.commit()
    tool.commit_in_transaction()
    m1.sync()
    m1.heartbeat()
    m1.commit()
    m2.join()
    m1.join()
    m2.heartbeat()


def leaves(harness: Harness) -> None:
    """Leaves of all kinds, and the rules after the last leave of a request."""
    m1, m2 = a_group(harness)
    m3 = harness.client("m3", protocols=BOTH)
    m3.enlist()
    ghosts(m1)[0].leave(*ghosts(m1)[1:3], m1.like(id=""), m2.like(id=""), m3)
    m1.leave()
    m3 = m3.like(id="")
    m3.enlist()
    m3.leave()
    m1, m2 = a_group(Harness())
    m1.join()
    m2.leave()


def administration(harness: Harness) -> None:
    """Deletions of offsets and of groups."""
    harness.client("tool", group_id="empty").commit()
    harness.form(harness.client("w", group_id="connect", protocol_type="connect"))
    for name in ("empty", "connect"):
        harness.request(OffsetDelete(group_id=name, partitions=(tp("t1-0"),)), OffsetsDeleted)
    harness.request(DeleteGroups(group_ids=("empty", "connect")), GroupsDeleted)


def timers(harness: Harness) -> None:
    """Timers of sessions, joins and syncs that have no effect any more."""
    m1, m2 = (harness.client(label, session=5.0, rebalance=20.0) for label in ("m1", "m2"))
    m3 = m1.like(label="m3")
    m3.enlist()
    harness.sleep(6)
    harness.form(m1, m2)
    m3.like(id="").enlist()
    m1.join()
    harness.sleep(100)
    harness.form(m1.like(id="", session=100.0), synced=False)
    harness.sleep(30)
    static = Harness()
    lone = static.client("s", instance="s1", rebalance=5.0)
    static.form(lone)
    other = static.client("m", session=1.0, rebalance=5.0)
    other.enter()
    static.sleep(400)


def shards(harness: Harness) -> None:
    """Shards are unloaded and loaded, with a lower maximum size."""
    a_group(harness)
    failed_over(harness)
    failed_over(harness, group_max_size=1)
    harness.coordinator.unload(harness.now)


WALKS = [
    joins_of_members,
    joins_of_newcomers,
    joins_of_restarted_instances,
    groups_that_cannot_be_written,
    syncs,
    heartbeats_and_commits,
    leaves,
    administration,
    timers,
    shards,
]


def rows_that_only_kafka_reaches() -> None:
    """Rows for events that cannot occur here: dead groups and stale sessions are removed."""
    session = TimerName(TimerKind.SESSION, "g", "ghost")
    alive = GroupMachine(ClassicGroup("g"), SETTINGS, Timers(), WriteFaults(), lambda: "id")
    assert alive.fire(0.0, session) == []
    harness = Harness()
    m1 = harness.client("m1")
    machine = GroupMachine(
        ClassicGroup("g", state=DEAD), SETTINGS, Timers(), WriteFaults(), lambda: "id"
    )
    harness.coordinator._registry.machines["g"] = machine
    m1.join()
    m1.sync()
    m1.heartbeat()
    m1.commit()
    m1.commit_in_transaction()
    leaving = LeaveGroup(group_id="g", version=3, members=(LeavingMember(member_id="x"),))
    assert machine.leave(0.0, leaving, 1) == [
        CoordinatorResponse(1, LeaveCompleted(error=NOT_AVAILABLE))
    ]
    harness.request(OffsetDelete(group_id="g", partitions=()), OffsetsDeleted)
    harness.request(DeleteGroups(group_ids=("g",)), GroupsDeleted)
    assert machine.fire(0.0, session) == []


def requests_of(kind: type) -> list[Any]:
    """Requests that differ in the fields that preconditions and rules for absent groups check."""
    member: dict[str, Any] = {"group_id": "g", "member_id": "m", "generation_id": 1}
    joining = Harness().client("m").joining()
    syncing = SyncGroup(**member, version=5)
    commit = OffsetCommit(**member, version=9)
    in_transaction = TxnOffsetCommit(**member, version=3, producer_id=7)
    some: dict[type, list[Any]] = {
        JoinGroup: [
            joining,
            attrs.evolve(joining, session_timeout=0.0),
            attrs.evolve(joining, member_id="m"),
        ],
        SyncGroup: [syncing, attrs.evolve(syncing, version=4)],
        OffsetCommit: [
            commit,
            attrs.evolve(commit, version=8),
            attrs.evolve(commit, generation_id=-1),
        ],
        TxnOffsetCommit: [in_transaction, attrs.evolve(in_transaction, generation_id=-1)],
    }
    return some.get(kind, [object.__new__(kind)])


@pytest.mark.parametrize("kind", PRECONDITIONS, ids=lambda kind: kind.__name__)
def test_every_precondition_is_reached(kind: type) -> None:
    """Each precondition stops a request that passes all those before it."""
    errors: dict[Any, set[ErrorCode | None]] = {check: set() for check, _ in PRECONDITIONS[kind]}
    for request, group_id, shard, shut_down in itertools.product(
        requests_of(kind), ("g", ""), Shard, (False, True)
    ):
        incoming = IncomingRequest(
            request=request,
            group_id=group_id,
            shard=shard,
            shut_down=shut_down,
            settings=SETTINGS,
        )
        check = next((check for check in errors if check(incoming)), None)
        if check is not None:
            errors[check].add(validation.precondition_error(incoming))
    assert errors == {check: {error} for check, error in PRECONDITIONS[kind]}


@pytest.mark.parametrize("kind", ABSENT_GROUP_RULES, ids=lambda kind: kind.__name__)
def test_every_rule_for_absent_groups_is_reached(kind: type) -> None:
    """Each condition is the first that holds for some request."""
    conditions = [condition for condition, _ in ABSENT_GROUP_RULES[kind]]
    first = [next(one for one in conditions if one(request)) for request in requests_of(kind)]
    assert set(first) == set(conditions)


def test_every_row_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each row there is an event for which it is the first that matches."""
    reached: set[tuple[int, int]] = set()
    first = rules._first

    def noting(table: Table, context: EventContext) -> Rule:
        row = first(table, context)
        reached.update((id(table), at) for at, one in enumerate(table) if one is row)
        return row

    monkeypatch.setattr(rules, "_first", noting)
    for walk in WALKS:
        walk(Harness())
    rows_that_only_kafka_reaches()
    missing = [
        f"{name}, row {at + 1}: {row}"
        for name, table in TABLES.items()
        for at, row in enumerate(table)
        if (id(table), at) not in reached
    ]
    assert missing == []
