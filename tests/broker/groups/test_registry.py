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
from tests.broker.groups.harness import SETTINGS, TOPICS, Harness, subscription, to_commit, tp

ELSEWHERE = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def empty_bench(**changes: int) -> Harness:
    """A coordinator that leads no shard yet."""
    settings = attrs.evolve(SETTINGS, **changes)
    ids = itertools.count(1)
    coordinator = GroupCoordinatorService(
        settings, lambda: f"new{next(ids)}", TOPICS.get, shards=()
    )
    return Harness(settings, coordinator)


def failed_over(harness: Harness, **changes: int) -> Harness:
    """The same groups after a crash, loaded by another coordinator from records alone."""
    other = empty_bench(**changes)
    other.now = harness.now
    other.coordinator.load(other.now, harness.coordinator.snapshot(), range(50))
    return other


def test_stable_group_survives_a_crash() -> None:
    """Members, assignment, generation and offsets survive; sessions start again."""
    harness = Harness()
    m1, m2 = harness.client("m1", session=5.0), harness.client("m2", instance="i2", session=5.0)
    harness.form(m1, m2)
    m1.commit("t1-0", 7)
    harness.sleep(4.0)
    other = failed_over(harness)
    m1, m2 = m1.like(harness=other), m2.like(harness=other)
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
    harness = Harness()
    harness.form(harness.client("m1", session=5.0), harness.client("m2", session=5.0))
    other = failed_over(harness)
    other.sleep(4.9)
    assert other.state() is STABLE
    other.sleep(0.2)
    assert other.state() is EMPTY


def test_generation_that_was_not_synced_is_issued_again() -> None:
    """A crash before the leader's sync loses the generation, and its id is used again."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2)
    rejoin = m1.join()
    m2.join()
    assert m1.take(rejoin).generation_id == 3
    other = failed_over(harness)
    m1, m2 = m1.like(harness=other), m2.like(harness=other)
    assert m1.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    rejoin = m1.join()
    m2.join()
    assert m1.take(rejoin).generation_id == 3


def test_crash_loses_pending_ids_and_keeps_the_empty_group() -> None:
    """A group that had only a pending id is Empty afterwards, and does not know the id."""
    harness = Harness()
    m1 = harness.client("m1")
    m1.enlist()
    other = failed_over(harness)
    assert other.state() is EMPTY
    assert m1.like(harness=other).join_now().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_crash_keeps_a_replacement_and_an_emptied_group() -> None:
    """A static member's new id is loaded, and so is a generation without members."""
    harness = Harness()
    m1 = harness.client("m1", instance="i1")
    harness.form(m1)
    again = m1.like(id="")
    again.join_now()
    emptied = harness.client("m2", group_id="h")
    harness.form(emptied)
    emptied.leave()
    other = failed_over(harness)
    assert again.like(harness=other).heartbeat() is ErrorCode.NONE
    assert m1.like(harness=other).heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert other.state("h") is EMPTY
    assert other.group("h").generation_id == 2
    assert other.group("h").protocol_type == "consumer"


def test_crash_forgets_protocols_that_were_not_selected() -> None:
    """Only the selected protocol is stored, so a follower that joins again counts as changed."""
    harness = Harness()
    both = {"range": subscription("t1"), "roundrobin": subscription("t1")}
    m1, m2 = harness.client("m1"), harness.client("m2", protocols=both)
    harness.form(m1, m2)
    assert m2.join_now().error is ErrorCode.NONE
    other = failed_over(harness)
    assert other.is_parked(m2.like(harness=other).join())


def test_pending_offsets_survive_a_crash() -> None:
    """The next coordinator completes an open transaction and finds a simple group."""
    harness = Harness()
    tool = harness.client("tool")
    tool.commit_in_transaction("t1-0", 5)
    tool.commit("t1-0", 9)
    tool.commit_in_transaction("t1-1", 6)
    other = failed_over(harness)
    assert other.state() is EMPTY
    assert other.fetch("t1-1", stable=True) == {"t1-1": "UNSTABLE_OFFSET_COMMIT"}
    other.coordinator.complete_transaction(7, committed=True)
    assert other.fetch(stable=True) == {"t1-0": 9, "t1-1": 6}


def test_crash_finds_groups_whose_offsets_are_gone() -> None:
    """A group's records create it again, unless a later record deletes it."""
    harness = Harness()
    for name in ("emptied", "aborted", "deleted"):
        tool = harness.client("tool", group_id=name)
        (tool.commit_in_transaction if name == "aborted" else tool.commit)("t1-0")
    harness.coordinator.complete_transaction(7, committed=False)
    harness.coordinator.delete_partitions([tp("t1-0")])
    harness.request(DeleteGroups(group_ids=("deleted",)), GroupsDeleted)
    other = failed_over(harness)
    assert other.state("emptied") is EMPTY
    assert other.state("aborted") is EMPTY
    assert other.state("deleted") is DEAD
    assert other.fetch(group_id="emptied") == {}


def test_commit_after_a_crash_is_later_than_what_was_pending() -> None:
    """The order of commits continues where the crashed coordinator left it."""
    harness = Harness()
    tool = harness.client("tool")
    for offset in range(5):
        tool.commit_in_transaction("t1-0", offset)
    other = failed_over(harness)
    tool.like(harness=other).commit("t1-0", 20)
    other.coordinator.complete_transaction(7, committed=True)
    assert other.fetch(stable=True) == {"t1-0": 20}


def test_loaded_group_over_size_rebalances() -> None:
    """If group.max.size is lower now, the group rebalances."""
    harness = Harness()
    harness.form(harness.client("m1"), harness.client("m2"))
    assert failed_over(harness, group_max_size=1).state() is PREPARING


def test_unload_answers_all_parked_requests() -> None:
    """Parked joins and syncs get 16; no timer of the groups is left."""
    harness = Harness()
    m1 = harness.client("m1", group_id="joining")
    harness.form(m1)
    m2 = harness.client("m2", group_id="joining")
    m2.enlist()
    join = m2.join()
    m3, m4 = (harness.client(label, group_id="syncing") for label in ("m3", "m4"))
    harness.form(m3, m4, synced=False)
    sync = m4.sync()
    harness.client("m5", group_id="pending").enlist()
    harness.record(harness.coordinator.unload(harness.now))
    assert harness.response_to(join, JoinCompleted) == JoinCompleted(
        error=ELSEWHERE, member_id=m2.id
    )
    assert harness.response_to(sync, SyncCompleted) == SyncCompleted(error=ELSEWHERE)
    assert harness.coordinator.snapshot().groups == {}
    assert m1.heartbeat() is ELSEWHERE
    harness.sleep(10_000)


def test_moving_one_shard_leaves_the_others() -> None:
    """A shard moves with its groups and offsets, and the other shards stay."""
    harness = Harness()
    other = empty_bench()
    names = ["a", "b"]
    shards = [harness.coordinator.shard_of(name) for name in names]
    assert shards[0] != shards[1]
    clients = [harness.client("m", group_id=name) for name in names]
    for client in clients:
        harness.form(client)
        client.commit("t1-0", 5)
        client.like(id="", generation=-1)
    snapshot = harness.coordinator.snapshot([shards[0]])
    assert set(snapshot.groups) == set(snapshot.offsets) == {"a"}
    assert harness.coordinator.unload(harness.now, [shards[0]]) == []
    other.coordinator.begin_loading([shards[0]])
    moved = clients[0].like(harness=other)
    assert moved.commit() is LOADING
    assert moved.heartbeat() is ErrorCode.NONE
    other.coordinator.load(other.now, snapshot, [shards[0]])
    assert moved.heartbeat() is ErrorCode.NONE
    assert other.fetch(group_id="a") == {"t1-0": 5}
    assert clients[0].heartbeat() is ELSEWHERE
    assert clients[1].heartbeat() is ErrorCode.NONE
    assert clients[1].like(harness=other).heartbeat() is ELSEWHERE


@pytest.mark.parametrize("error", [ELSEWHERE, LOADING, NOT_AVAILABLE])
def test_every_request_is_refused_alike(error: ErrorCode) -> None:
    """A shard that is not here or still loads, or a stopped coordinator, refuses all requests."""
    harness = empty_bench()
    if error is LOADING:
        harness.coordinator.begin_loading(range(50))
    if error is NOT_AVAILABLE:
        harness = Harness()
        harness.coordinator.shut_down()
    m1 = harness.client("m1", id="x", generation=1)
    echo = "x" if error is NOT_AVAILABLE else ""
    assert m1.join_now() == JoinCompleted(error=error, member_id=echo)
    assert m1.synced() == SyncCompleted(error=error)
    assert m1.heartbeat() is (ErrorCode.NONE if error is LOADING else error)
    assert m1.leave().error is error
    assert m1.commit() is error
    assert m1.commit_in_transaction() is error
    delete = OffsetDelete(group_id="g", partitions=(tp("t1-0"),))
    assert harness.request(delete, OffsetsDeleted) == OffsetsDeleted(error=error)
    assert harness.request(DeleteGroups(group_ids=("g",)), GroupsDeleted).groups == (
        DeletedGroup(group_id="g", error=error),
    )
    describe = DescribeGroups(version=6, group_ids=("g",))
    assert harness.request(describe, GroupsDescribed).groups[0].error is error
    listed = harness.request(ListGroups(), GroupsListed).error
    assert listed is (ErrorCode.NONE if error is ELSEWHERE else error)
    requested = OffsetFetchGroup(group_id="g", partitions=(tp("t1-0"),))
    assert harness.request(OffsetFetch(version=2, groups=(requested,)), OffsetsFetched).groups == (
        FetchedGroup(group_id="g", error=error),
    )
    refused = FetchedOffset(topic="t1", partition=0, error=error)
    assert harness.request(OffsetFetch(version=1, groups=(requested,)), OffsetsFetched).groups == (
        FetchedGroup(group_id="g", partitions=(refused,)),
    )


def test_old_producers_never_get_the_loading_error() -> None:
    """TxnOffsetCommit before v2 gets COORDINATOR_NOT_AVAILABLE instead."""
    harness = empty_bench()
    harness.coordinator.begin_loading(range(50))
    for version, error in ((1, NOT_AVAILABLE), (2, LOADING)):
        request = TxnOffsetCommit(
            group_id="g", version=version, producer_id=7, offsets=(to_commit("t1-0", 1),)
        )
        assert harness.request(request, OffsetsCommitted).partitions[0].error is error
