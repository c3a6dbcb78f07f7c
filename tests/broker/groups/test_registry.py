"""Shards: which coordinator leads a group, and what a failover keeps and loses."""

from __future__ import annotations

import itertools

import attrs
import pytest

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.requests import (
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    DeletedGroup,
    FetchedGroup,
    FetchedOffset,
    GroupsDeleted,
    GroupsDescribed,
    GroupsListed,
    JoinCompleted,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    SyncCompleted,
)
from kgroup.broker.groups.states import DEAD, EMPTY, PREPARING, STABLE
from kgroup.error_codes import ErrorCode
from tests.broker.groups.bench import SETTINGS, TOPICS, Bench, subscription, to_commit, tp

ELSEWHERE = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def empty_bench(**changes: int) -> Bench:
    """A bench whose coordinator leads no shard yet."""
    settings = attrs.evolve(SETTINGS, **changes)
    ids = itertools.count(1)
    coordinator = GroupCoordinatorService(
        settings, lambda: f"new{next(ids)}", TOPICS.get, shards=()
    )
    return Bench(settings, coordinator)


def failed_over(bench: Bench, **changes: int) -> Bench:
    """The same groups after a crash, loaded by another coordinator from records alone."""
    other = empty_bench(**changes)
    other.now = bench.now
    other.coordinator.load(other.now, bench.coordinator.snapshot(), range(50))
    return other


def test_stable_group_survives_a_crash() -> None:
    """Members, assignment, generation and offsets survive; sessions start again."""
    bench = Bench()
    m1, m2 = bench.client("m1", session=5.0), bench.client("m2", instance="i2", session=5.0)
    bench.form(m1, m2)
    m1.commit("t1-0", 7)
    bench.sleep(4.0)
    other = failed_over(bench)
    m1, m2 = m1.like(bench=other), m2.like(bench=other)
    other.sleep(4.9)
    assert m1.heartbeat() is ErrorCode.NONE
    assert m2.synced().assignment == b"m2"
    assert m2.like(id="").join_now().leader == m1.id
    assert other.fetch() == {"t1-0": 7}
    assert other.state() is STABLE
    assert other.group().topics == frozenset({"t1"})
    other.sleep(5.1)
    assert m1.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_loaded_members_that_stay_silent_are_removed() -> None:
    """A session that starts again also expires."""
    bench = Bench()
    bench.form(bench.client("m1", session=5.0), bench.client("m2", session=5.0))
    other = failed_over(bench)
    other.sleep(4.9)
    assert other.state() is STABLE
    other.sleep(0.2)
    assert other.state() is EMPTY


def test_generation_that_was_not_synced_is_issued_again() -> None:
    """A crash before the leader's sync loses the generation, and its id is used again."""
    bench = Bench()
    m1, m2 = bench.client("m1"), bench.client("m2")
    bench.form(m1, m2)
    rejoin = m1.join()
    m2.join()
    assert m1.take(rejoin).generation_id == 3
    other = failed_over(bench)
    m1, m2 = m1.like(bench=other), m2.like(bench=other)
    assert m1.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    rejoin = m1.join()
    m2.join()
    assert m1.take(rejoin).generation_id == 3


def test_crash_loses_pending_ids_and_keeps_the_empty_group() -> None:
    """A group that had only a pending id is Empty afterwards, and does not know the id."""
    bench = Bench()
    m1 = bench.client("m1")
    m1.enlist()
    other = failed_over(bench)
    assert other.state() is EMPTY
    assert m1.like(bench=other).join_now().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_crash_keeps_a_replacement_and_an_emptied_group() -> None:
    """A static member's new id is loaded, and so is a generation without members."""
    bench = Bench()
    m1 = bench.client("m1", instance="i1")
    bench.form(m1)
    again = m1.like(id="")
    again.join_now()
    emptied = bench.client("m2", group_id="h")
    bench.form(emptied)
    emptied.leave()
    other = failed_over(bench)
    assert again.like(bench=other).heartbeat() is ErrorCode.NONE
    assert m1.like(bench=other).heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert other.state("h") is EMPTY
    assert other.group("h").generation_id == 2
    assert other.group("h").protocol_type == "consumer"


def test_crash_forgets_protocols_that_were_not_selected() -> None:
    """Only the selected protocol is stored, so a follower that joins again counts as changed."""
    bench = Bench()
    both = {"range": subscription("t1"), "roundrobin": subscription("t1")}
    m1, m2 = bench.client("m1"), bench.client("m2", protocols=both)
    bench.form(m1, m2)
    assert m2.join_now().error is ErrorCode.NONE
    other = failed_over(bench)
    assert other.is_parked(m2.like(bench=other).join())


def test_pending_offsets_survive_a_crash() -> None:
    """The next coordinator completes an open transaction and finds a simple group."""
    bench = Bench()
    tool = bench.client("tool")
    tool.commit_in_transaction("t1-0", 5)
    tool.commit("t1-0", 9)
    tool.commit_in_transaction("t1-1", 6)
    other = failed_over(bench)
    assert other.state() is EMPTY
    assert other.fetch("t1-1", stable=True) == {"t1-1": "UNSTABLE_OFFSET_COMMIT"}
    other.coordinator.complete_transaction(7, committed=True)
    assert other.fetch(stable=True) == {"t1-0": 9, "t1-1": 6}


def test_crash_finds_groups_whose_offsets_are_gone() -> None:
    """A group's records create it again, unless a later record deletes it."""
    bench = Bench()
    for name in ("emptied", "aborted", "deleted"):
        tool = bench.client("tool", group_id=name)
        (tool.commit_in_transaction if name == "aborted" else tool.commit)("t1-0")
    bench.coordinator.complete_transaction(7, committed=False)
    bench.coordinator.delete_partitions([tp("t1-0")])
    bench.request(DeleteGroups(group_ids=("deleted",)), GroupsDeleted)
    other = failed_over(bench)
    assert other.state("emptied") is EMPTY
    assert other.state("aborted") is EMPTY
    assert other.state("deleted") is DEAD
    assert other.fetch(group_id="emptied") == {}


def test_commit_after_a_crash_is_later_than_what_was_pending() -> None:
    """The order of commits continues where the crashed coordinator left it."""
    bench = Bench()
    tool = bench.client("tool")
    for offset in range(5):
        tool.commit_in_transaction("t1-0", offset)
    other = failed_over(bench)
    tool.like(bench=other).commit("t1-0", 20)
    other.coordinator.complete_transaction(7, committed=True)
    assert other.fetch(stable=True) == {"t1-0": 20}


def test_loaded_group_over_size_rebalances() -> None:
    """If group.max.size is lower now, the group rebalances."""
    bench = Bench()
    bench.form(bench.client("m1"), bench.client("m2"))
    assert failed_over(bench, group_max_size=1).state() is PREPARING


def test_unload_answers_all_parked_requests() -> None:
    """Parked joins and syncs get 16; no timer of the groups is left."""
    bench = Bench()
    m1 = bench.client("m1", group_id="joining")
    bench.form(m1)
    m2 = bench.client("m2", group_id="joining")
    m2.enlist()
    join = m2.join()
    m3, m4 = (bench.client(label, group_id="syncing") for label in ("m3", "m4"))
    bench.form(m3, m4, synced=False)
    sync = m4.sync()
    bench.client("m5", group_id="pending").enlist()
    bench.record(bench.coordinator.unload(bench.now))
    assert bench.response_to(join, JoinCompleted) == JoinCompleted(error=ELSEWHERE, member_id=m2.id)
    assert bench.response_to(sync, SyncCompleted) == SyncCompleted(error=ELSEWHERE)
    assert bench.coordinator.snapshot().groups == {}
    assert m1.heartbeat() is ELSEWHERE
    bench.sleep(10_000)


def test_moving_one_shard_leaves_the_others() -> None:
    """A shard moves with its groups and offsets, and the other shards stay."""
    bench = Bench()
    other = empty_bench()
    names = ["a", "b"]
    shards = [bench.coordinator.shard_of(name) for name in names]
    assert shards[0] != shards[1]
    clients = [bench.client("m", group_id=name) for name in names]
    for client in clients:
        bench.form(client)
        client.commit("t1-0", 5)
        client.like(id="", generation=-1)
    snapshot = bench.coordinator.snapshot([shards[0]])
    assert set(snapshot.groups) == set(snapshot.offsets) == {"a"}
    assert bench.coordinator.unload(bench.now, [shards[0]]) == []
    other.coordinator.begin_loading([shards[0]])
    moved = clients[0].like(bench=other)
    assert moved.commit() is LOADING
    assert moved.heartbeat() is ErrorCode.NONE
    other.coordinator.load(other.now, snapshot, [shards[0]])
    assert moved.heartbeat() is ErrorCode.NONE
    assert other.fetch(group_id="a") == {"t1-0": 5}
    assert clients[0].heartbeat() is ELSEWHERE
    assert clients[1].heartbeat() is ErrorCode.NONE
    assert clients[1].like(bench=other).heartbeat() is ELSEWHERE


@pytest.mark.parametrize("error", [ELSEWHERE, LOADING, NOT_AVAILABLE])
def test_every_request_is_refused_alike(error: ErrorCode) -> None:
    """A shard that is not here or still loads, or a stopped coordinator, refuses all requests."""
    bench = empty_bench()
    if error is LOADING:
        bench.coordinator.begin_loading(range(50))
    if error is NOT_AVAILABLE:
        bench = Bench()
        bench.coordinator.shut_down()
    m1 = bench.client("m1", id="x", generation=1)
    echo = "x" if error is NOT_AVAILABLE else ""
    assert m1.join_now() == JoinCompleted(error=error, member_id=echo)
    assert m1.synced() == SyncCompleted(error=error)
    assert m1.heartbeat() is (ErrorCode.NONE if error is LOADING else error)
    assert m1.leave().error is error
    assert m1.commit() is error
    assert m1.commit_in_transaction() is error
    delete = OffsetDelete(group_id="g", partitions=(tp("t1-0"),))
    assert bench.request(delete, OffsetsDeleted) == OffsetsDeleted(error=error)
    assert bench.request(DeleteGroups(group_ids=("g",)), GroupsDeleted).groups == (
        DeletedGroup(group_id="g", error=error),
    )
    describe = DescribeGroups(version=6, group_ids=("g",))
    assert bench.request(describe, GroupsDescribed).groups[0].error is error
    listed = bench.request(ListGroups(), GroupsListed).error
    assert listed is (ErrorCode.NONE if error is ELSEWHERE else error)
    requested = OffsetFetchGroup(group_id="g", partitions=(tp("t1-0"),))
    assert bench.request(OffsetFetch(version=2, groups=(requested,)), OffsetsFetched).groups == (
        FetchedGroup(group_id="g", error=error),
    )
    refused = FetchedOffset(topic="t1", partition=0, error=error)
    assert bench.request(OffsetFetch(version=1, groups=(requested,)), OffsetsFetched).groups == (
        FetchedGroup(group_id="g", partitions=(refused,)),
    )


def test_old_producers_never_get_the_loading_error() -> None:
    """TxnOffsetCommit before v2 gets COORDINATOR_NOT_AVAILABLE instead."""
    bench = empty_bench()
    bench.coordinator.begin_loading(range(50))
    for version, error in ((1, NOT_AVAILABLE), (2, LOADING)):
        request = TxnOffsetCommit(
            group_id="g", version=version, producer_id=7, offsets=(to_commit("t1-0", 1),)
        )
        assert bench.request(request, OffsetsCommitted).partitions[0].error is error
