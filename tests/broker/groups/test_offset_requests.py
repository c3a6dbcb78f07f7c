"""Commits, fetches and deletes of offsets."""

from __future__ import annotations

import attrs
import pytest

from kgroup.broker.groups.requests import (
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    FetchedGroup,
    FetchedOffset,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from kgroup.broker.groups.states import COMPLETING, DEAD, EMPTY, PREPARING
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import Client, Harness, subscription, to_commit, tp

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION


def two(harness: Harness, *, synced: bool = True) -> tuple[Client, Client]:
    """A static and a dynamic member in generation 2."""
    m1, m2 = harness.client("m1", instance="i1"), harness.client("m2")
    harness.form(m1, m2, synced=synced)
    return m1, m2


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_commit_matrix(state: str) -> None:
    """Instance, member and generation are checked in this order; in Completing none commits."""
    harness = Harness()
    m1, m2 = two(harness, synced=state != "CompletingRebalance")
    if state == "PreparingRebalance":
        m1.join()
    assert harness.state().value == state
    good = ErrorCode.REBALANCE_IN_PROGRESS if harness.state() is COMPLETING else NONE
    anonymous = harness.client("tool")
    cases = [
        (m1, good, NONE),
        (m2, good, NONE),
        (m1.like(instance=None), good, NONE),
        (m1.like(generation=1), ILLEGAL, ILLEGAL),
        (m1.like(generation=3), ILLEGAL, ILLEGAL),
        (m1.like(generation=-1), ILLEGAL, ILLEGAL),
        (m2.like(id=""), UNKNOWN, UNKNOWN),
        (m2.like(id="ghost", generation=9), UNKNOWN, UNKNOWN),
        (m2.like(id="ghost", generation=-1), UNKNOWN, UNKNOWN),
        (m2.like(instance="i9"), UNKNOWN, UNKNOWN),
        (m2.like(instance="i1"), ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID),
        (anonymous.like(instance="i9"), UNKNOWN, UNKNOWN),
        (anonymous, UNKNOWN, NONE),
    ]
    for client, plain, transactional in cases:
        assert client.commit() is plain, client
        assert client.commit_in_transaction() is transactional, client


def test_commits_in_an_empty_group() -> None:
    """Without a generation id any client may commit; with one, no client is a member."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.form(m1)
    m1.leave()
    assert harness.state() is EMPTY
    assert m1.commit() is UNKNOWN
    for client in (m1, m1.like(instance="i9"), harness.client("tool")):
        assert client.like(generation=-1).commit() is NONE
        assert client.like(generation=-1).commit_in_transaction() is NONE


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_to_an_absent_group(version: int) -> None:
    """With a generation id the group is unknown; without one it is created."""
    harness = Harness()
    ghost = harness.client("ghost", id="ghost", generation=5)
    missed = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL
    assert ghost.commit(version=version) is missed
    assert ghost.commit_in_transaction() is ILLEGAL
    assert harness.state() is DEAD
    assert harness.client("tool").commit(version=version) is NONE
    assert harness.state() is EMPTY
    assert harness.group().protocol_type is None


def test_unknown_partitions_get_3_whatever_the_rest_gets() -> None:
    """Unknown topics and partitions are refused one by one, before the group is checked."""
    harness = Harness()
    m1, _ = two(harness)
    request = OffsetCommit(
        group_id="g",
        version=9,
        generation_id=9,
        member_id=m1.id,
        offsets=tuple(to_commit(one, 1) for one in ("nowhere-0", "t1-0", "t1-3", "t2--1")),
    )
    results = harness.request(request, OffsetsCommitted).partitions
    assert {f"{one.topic}-{one.partition}": one.error.value for one in results} == {
        "nowhere-0": 3,
        "t1-3": 3,
        "t2--1": 3,
        "t1-0": 22,
    }


def test_commit_of_unknown_partitions_only_makes_no_group() -> None:
    """If nothing can be committed, no group is created."""
    harness = Harness()
    assert harness.client("tool").commit("nowhere-0") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.state() is DEAD


def test_commit_of_long_metadata_only_makes_no_group() -> None:
    """A group for which nothing is written is not created."""
    harness = Harness()
    request = OffsetCommit(group_id="g", version=9, offsets=(to_commit("t1-0", 1, "x" * 4097),))
    (result,) = harness.request(request, OffsetsCommitted).partitions
    assert result.error is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert harness.state() is DEAD


def test_long_metadata_is_refused_alone() -> None:
    """The limit in UTF-16 units is inclusive; null metadata counts as empty."""
    harness = Harness()
    request = OffsetCommit(
        group_id="g",
        version=9,
        offsets=(
            to_commit("t1-0", 5, "x" * 4096),
            to_commit("t1-1", 5, "x" * 4097),
            to_commit("t1-2", 5, "\U0001f600" * 2049),
            to_commit("t2-0", 5),
        ),
    )
    results = harness.request(request, OffsetsCommitted).partitions
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert [one.error for one in results] == [NONE, too_large, too_large, NONE]
    assert harness.fetch() == {"t1-0": 5, "t2-0": 5}


# Fetch


def test_fetch_gives_epoch_and_metadata_and_minus_one_for_none() -> None:
    """A partition without an offset, known or not, gets -1."""
    harness = Harness()
    offset = attrs.evolve(to_commit("t1-0", 5, "note"), leader_epoch=3)
    harness.request(OffsetCommit(group_id="g", version=9, offsets=(offset,)), OffsetsCommitted)
    requested = OffsetFetchGroup(group_id="g", partitions=(tp("t1-0"), tp("nowhere-7")))
    request = OffsetFetch(version=9, groups=(requested, OffsetFetchGroup(group_id="absent")))
    assert harness.request(request, OffsetsFetched).groups == (
        FetchedGroup(
            group_id="g",
            partitions=(
                FetchedOffset(topic="t1", partition=0, offset=5, leader_epoch=3, metadata="note"),
                FetchedOffset(topic="nowhere", partition=7),
            ),
        ),
        FetchedGroup(group_id="absent"),
    )


@pytest.mark.parametrize("epoch", [-(2**31), -2, -1, 0, 2**31 - 1])
def test_fetch_gives_any_epoch_as_it_was_committed(epoch: int) -> None:
    """Kafka neither refuses nor changes an impossible leader epoch."""
    harness = Harness()
    offset = attrs.evolve(to_commit("t1-0", 5), leader_epoch=epoch)
    harness.request(OffsetCommit(group_id="g", version=9, offsets=(offset,)), OffsetsCommitted)
    requested = OffsetFetchGroup(group_id="g", partitions=(tp("t1-0"),))
    (group,) = harness.request(OffsetFetch(version=9, groups=(requested,)), OffsetsFetched).groups
    assert [one.leader_epoch for one in group.partitions] == [epoch]


def test_pending_offsets_are_unstable_and_then_committed() -> None:
    """Until the transaction ends, a fetch gets the old offset, or 88 if it requires stable ones."""
    harness = Harness()
    m1, _ = two(harness)
    m1.commit("t1-0", 10)
    m1.commit_in_transaction("t1-0", 11)
    m1.commit_in_transaction("t1-1", 12)
    unstable = "UNSTABLE_OFFSET_COMMIT"
    assert harness.fetch("t1-0", "t1-1") == {"t1-0": 10, "t1-1": -1}
    assert harness.fetch("t1-0", "t1-1", "t1-2", stable=True) == {
        "t1-0": unstable,
        "t1-1": unstable,
        "t1-2": -1,
    }
    assert harness.fetch(stable=True) == {"t1-0": unstable}
    harness.coordinator.complete_transaction(7, committed=True)
    assert harness.fetch(stable=True) == {"t1-0": 11, "t1-1": 12}


def test_aborted_offsets_vanish_and_later_commits_win() -> None:
    """After an abort the old offset holds; a commit made after the pending one is kept."""
    harness = Harness()
    m1, _ = two(harness)
    m1.commit_in_transaction("t1-0", 11)
    harness.coordinator.complete_transaction(7, committed=False)
    assert harness.fetch("t1-0", stable=True) == {"t1-0": -1}
    m1.commit_in_transaction("t1-0", 11)
    m1.commit("t1-0", 20)
    harness.coordinator.complete_transaction(7, committed=True)
    assert harness.fetch("t1-0", stable=True) == {"t1-0": 20}


def test_two_producers_are_kept_apart() -> None:
    """A partition stays unstable until every producer's transaction has ended."""
    harness = Harness()
    for producer_id in (7, 8):
        request = TxnOffsetCommit(
            group_id="g",
            version=3,
            producer_id=producer_id,
            offsets=(to_commit("t1-0", producer_id),),
        )
        harness.request(request, OffsetsCommitted)
    harness.coordinator.complete_transaction(8, committed=True)
    assert harness.fetch("t1-0", stable=True) == {"t1-0": "UNSTABLE_OFFSET_COMMIT"}
    harness.coordinator.complete_transaction(7, committed=True)
    assert harness.fetch("t1-0", stable=True) == {"t1-0": 8}


# Delete


def deleted(harness: Harness, *partitions: str) -> OffsetsDeleted:
    """Send an OffsetDelete; return the errors."""
    request = OffsetDelete(group_id="g", partitions=tuple(tp(one) for one in partitions))
    return harness.request(request, OffsetsDeleted)


def test_offsets_of_subscribed_topics_stay() -> None:
    """Topics of the last completed join are protected, also those of departed members."""
    harness = Harness()
    m1 = harness.client("m1")
    m2 = harness.client("m2", protocols={"range": subscription("t2")})
    harness.form(m1, m2)
    m1.commit("t1-0")
    m1.commit("t2-0")
    results = deleted(harness, "nowhere-0", "t1-0", "t2-0").partitions
    assert [one.error.value for one in results] == [3, 86, 86]
    m2.leave()
    assert harness.state() is PREPARING
    assert deleted(harness, "t2-0").partitions[0].error.value == 86
    m1.join()
    assert deleted(harness, "t2-0", "t2-1").partitions[0].error is NONE
    assert harness.fetch() == {"t1-0": 1}


def test_first_join_protects_everything_until_it_completes() -> None:
    """While a consumer group has no completed join, no offset of it is deleted."""
    harness = Harness(attrs.evolve(Harness().settings, initial_rebalance_delay=1.0))
    harness.client("tool").commit("t2-0")
    harness.client("m1", instance="i1").join()
    assert deleted(harness, "t2-0").partitions[0].error.value == 86
    harness.sleep(1)
    assert deleted(harness, "t2-0").partitions[0].error is NONE


def test_offset_delete_of_other_groups() -> None:
    """Absent: 69; members of another protocol: 68; no members: success; no group id: 24."""
    harness = Harness()
    assert deleted(harness, "t1-0").error is ErrorCode.GROUP_ID_NOT_FOUND
    worker = harness.client("w", protocol_type="connect", protocols={"eager": b"x"})
    harness.form(worker)
    assert deleted(harness, "t1-0").error is ErrorCode.NON_EMPTY_GROUP
    worker.leave()
    assert deleted(harness, "t1-0").error is NONE
    request = OffsetDelete(group_id="", partitions=())
    assert harness.request(request, OffsetsDeleted).error is ErrorCode.INVALID_GROUP_ID


def test_unreadable_metadata_protects_everything() -> None:
    """A consumer whose subscription cannot be read may use any topic."""
    harness = Harness()
    m1 = harness.client("m1", protocols={"range": b"?"})
    harness.form(m1)
    assert harness.group().topics is None
    assert deleted(harness, "t2-0").partitions[0].error.value == 86


def test_delete_takes_pending_offsets_too() -> None:
    """The transaction does not commit the pending offset of a deleted partition."""
    harness = Harness()
    tool = harness.client("tool")
    tool.commit("t1-0")
    tool.commit_in_transaction("t1-0", 9)
    deleted(harness, "t1-0")
    harness.coordinator.complete_transaction(7, committed=True)
    assert harness.fetch("t1-0", stable=True) == {"t1-0": -1}


def test_deleted_topic_takes_its_offsets() -> None:
    """Its offsets are removed in every group, pending ones too."""
    harness = Harness()
    for group_id in ("g", "h"):
        client = harness.client("tool", group_id=group_id)
        client.commit("t1-0")
        client.commit("t2-0")
    harness.client("tool").commit_in_transaction("t1-1", 5)
    harness.coordinator.delete_partitions([tp("t1-0"), tp("t1-1"), tp("t1-2")])
    harness.coordinator.complete_transaction(7, committed=True)
    assert harness.fetch() == harness.fetch(group_id="h") == {"t2-0": 1}
