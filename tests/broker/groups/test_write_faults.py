"""Writes to the coordinator's log that fail: the responses, and the state after a failover."""

from __future__ import annotations

import pytest

from kgroup.broker.groups.java_hashing import shard_of
from kgroup.broker.groups.requests import (
    DeleteGroups,
    OffsetCommit,
    OffsetDelete,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    DeletedGroup,
    GroupsDeleted,
    JoinCompleted,
    OffsetsCommitted,
    OffsetsDeleted,
    PartitionResult,
    SyncCompleted,
)
from kgroup.broker.groups.states import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from kgroup.broker.groups.write_faults import WriteFaults
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import Harness, subscription, to_commit, tp
from tests.broker.groups.test_registry import failed_over

TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
WEEK = 7 * 24 * 3600.0


def test_writes_fail_as_often_as_planned() -> None:
    """Writes fail a number of times, always, or no more."""
    write_faults = WriteFaults()
    assert write_faults.append() is ErrorCode.NONE
    write_faults.fail(TOO_FEW, 2)
    assert [write_faults.append() for _ in range(3)] == [TOO_FEW, TOO_FEW, ErrorCode.NONE]
    write_faults.fail(TOO_FEW, None)
    assert [write_faults.append() for _ in range(3)] == [TOO_FEW] * 3
    write_faults.fail(TOO_FEW, 0)
    assert not write_faults.fails
    with pytest.raises(
        ValueError, match=r"NOT_ENOUGH_REPLICAS \(19\).* not with REBALANCE_IN_PROGRESS \(27\)"
    ):
        write_faults.fail(27, 1)


@pytest.mark.parametrize(
    ("error", "of_sync", "of_commit"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_AVAILABLE, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_AVAILABLE, NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, NOT_AVAILABLE, NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            ErrorCode.RECORD_LIST_TOO_LARGE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            ErrorCode.INVALID_FETCH_SIZE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ),
        (
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
    ],
)
def test_errors_are_answered_as_kafka_does(
    error: ErrorCode, of_sync: ErrorCode, of_commit: ErrorCode
) -> None:
    """Errors of the log are answered as errors of the coordinator; others stay as they are."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.form(m1, synced=False)
    harness.coordinator.fail_writes(error)
    assert m1.synced({m1: "x"}).error is of_sync
    tool = harness.client("tool", group_id="simple")
    harness.coordinator.fail_writes(error)
    assert tool.commit() is of_commit


def test_a_group_that_is_too_large_for_its_record_never_syncs() -> None:
    """All syncs get -1 in every generation whose record is too large; a smaller one is written."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2, synced=False)
    for _ in range(2):
        waiting = m2.sync()
        assert m1.synced({m1: "x" * 2**20, m2: "y"}).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert harness.response_to(waiting, SyncCompleted).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert harness.state() is PREPARING
        parked = m1.join()
        m2.join_now()
        m1.take(parked)
    assert m1.synced({m1: "x" * 2**19, m2: "y" * 2**18}).error is ErrorCode.NONE
    assert harness.state() is STABLE


def test_static_member_is_not_replaced_by_one_too_large_for_the_record() -> None:
    """The new process gets -1 and the old one stays, if its metadata no longer fit."""
    harness = Harness()
    s1 = harness.client("s1", instance="i1")
    harness.form(s1)
    new = harness.client(
        "s2", instance="i1", protocols={"range": subscription("t1", user_data="x" * 2**20)}
    )
    assert new.join_now().error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(harness.group().members) == [s1.id]
    assert harness.state() is STABLE


def test_offsets_that_are_too_large_for_a_batch_are_refused_together() -> None:
    """All partitions of the commit get -1, nothing is written, and no group is created."""
    harness = Harness()
    # Measured on Kafka 4.3: 251 offsets with 4096 characters of metadata, and 1595 more.
    sizes = [4096] * 251
    for last, error in (1596, ErrorCode.UNKNOWN_SERVER_ERROR), (1595, ErrorCode.NONE):
        offsets = tuple(to_commit("t1-0", 1, "x" * size) for size in (*sizes, last))
        plain = OffsetCommit(group_id="gggggggggg", version=9, offsets=offsets)
        pending = TxnOffsetCommit(group_id="gggggggggg", version=3, producer_id=1, offsets=offsets)
        for request in plain, pending:
            answer = harness.request(request, OffsetsCommitted)
            assert {one.error for one in answer.partitions} == {error}
        assert (harness.coordinator.group("gggggggggg") is None) is bool(error)


def test_failed_write_of_the_assignment_starts_over() -> None:
    """All syncs get the error, no member has an assignment, and all must join again."""
    harness = Harness()
    m1, m2, m3 = (harness.client(label, session=10.0) for label in ("m1", "m2", "m3"))
    harness.form(m1, m2, m3, synced=False)
    waiting = m2.sync()
    harness.sleep(9)
    harness.coordinator.fail_writes(TOO_FEW)
    assert m1.synced({m1: "x", m2: "y"}).error is NOT_AVAILABLE
    assert harness.response_to(waiting, SyncCompleted) == SyncCompleted(error=NOT_AVAILABLE)
    assert harness.state() is PREPARING
    assert all(member.assignment == b"" for member in harness.group().members.values())
    harness.sleep(9)
    assert set(harness.group().members) == {m1.id, m2.id}
    parked = m1.join()
    second = m2.join_now()
    assert second.generation_id == m1.generation + 1
    m1.take(parked)
    assert m1.synced({m1: "x"}).error is ErrorCode.NONE
    assert harness.state() is STABLE


def test_failover_after_a_failed_write_finds_what_was_before() -> None:
    """The assignment that could not be written is not loaded."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.form(m1)
    parked = m1.join()
    m1.take(parked)
    assert m1.generation == 2
    harness.coordinator.fail_writes(TOO_FEW)
    m1.synced({m1: "new"})
    other = failed_over(harness)
    assert (other.state(), other.group().generation_id) == (STABLE, 1)
    assert other.group().members[m1.id].assignment == b"m1"


def test_group_that_cannot_be_written_is_not_made() -> None:
    """An old client's first join gets the error and no id, and no group exists."""
    harness = Harness()
    harness.coordinator.fail_writes(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response = harness.client("m1").join_now(version=3)
    assert response == JoinCompleted(error=ErrorCode.NOT_COORDINATOR)
    assert harness.state() is DEAD
    harness.sleep(3600)
    again = harness.client("m1").join_now(version=3)
    assert (again.error, again.generation_id) == (ErrorCode.NONE, 1)


def test_id_of_a_group_that_cannot_be_written_is_void() -> None:
    """The id was given out before the write failed, and no client knows it."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.coordinator.fail_writes(TOO_FEW)
    m1.enlist()
    assert m1.id
    assert m1.join_now().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_refusal_of_a_first_join_stands() -> None:
    """A join that is refused anyway gets its own error, and not the log's."""
    harness = Harness()
    harness.coordinator.fail_writes(TOO_FEW)
    response = harness.client("m1", protocols={}).join_now()
    assert response.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.state() is DEAD


@pytest.mark.parametrize("version", [8, 9])
def test_static_member_that_cannot_be_replaced_keeps_its_place(version: int) -> None:
    """The new process gets the error and no id; the old one stays, and its session starts again."""
    harness = Harness()
    m1 = harness.client("m1", instance="i1", session=10.0)
    m2 = harness.client("m2", session=1000.0)
    harness.form(m1, m2)
    harness.sleep(9)
    harness.coordinator.fail_writes(TOO_FEW)
    changed = m1.like(id="", protocols={"range": subscription("t2")}, session=99.0)
    assert changed.join_now(version) == JoinCompleted(
        error=NOT_AVAILABLE,
        generation_id=m1.generation,
        protocol_type="consumer",
        protocol_name="range",
        leader=m1.id,
    )
    assert harness.state() is STABLE
    harness.sleep(9)
    assert m1.heartbeat() is ErrorCode.NONE
    assert m1.synced().assignment == b"m1"
    assert harness.group().members[m1.id].metadata("range") == subscription("t1")
    harness.sleep(11)
    assert harness.state() is PREPARING


def test_last_leaver_of_a_group_that_cannot_be_written_gets_the_error() -> None:
    """The leaver is removed all the same, but a failover finds it in its old generation."""
    harness = Harness()
    m1 = harness.client("m1")
    harness.form(m1)
    harness.coordinator.fail_writes(TOO_FEW)
    response = m1.leave()
    assert (response.error, response.members) == (NOT_AVAILABLE, ())
    assert (harness.state(), harness.group().generation_id) == (EMPTY, 2)
    other = failed_over(harness)
    assert (other.state(), other.group().generation_id) == (STABLE, 1)
    assert m1.like(harness=other).heartbeat() is ErrorCode.NONE


def test_group_that_empties_by_itself_reports_no_failed_write() -> None:
    """A write that fails when the last session expires is reported to no client."""
    harness = Harness()
    m1 = harness.client("m1", session=10.0)
    harness.form(m1)
    harness.coordinator.fail_writes(TOO_FEW)
    harness.sleep(10)
    assert (harness.state(), harness.group().generation_id) == (EMPTY, 2)
    assert failed_over(harness).state() is STABLE
    assert harness.client("m2", group_id="h").commit() is ErrorCode.NONE


def test_commit_that_cannot_be_written_changes_nothing() -> None:
    """Each partition gets the error, also with too long metadata; the session is extended."""
    harness = Harness()
    m1 = harness.client("m1", session=10.0)
    harness.form(m1)
    harness.sleep(9)
    harness.coordinator.fail_writes(TOO_FEW, 2)
    request = OffsetCommit(
        group_id="g",
        version=9,
        generation_id=m1.generation,
        member_id=m1.id,
        offsets=(to_commit("t1-0", 1), to_commit("t1-1", 1, "x" * 4097), to_commit("gone-0", 1)),
    )
    by_partition = {
        f"{one.topic}-{one.partition}": one.error
        for one in harness.request(request, OffsetsCommitted).partitions
    }
    assert by_partition == {
        "gone-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "t1-0": NOT_AVAILABLE,
        "t1-1": NOT_AVAILABLE,
    }
    assert m1.commit_in_transaction() is NOT_AVAILABLE
    assert harness.fetch("t1-0", stable=True) == {"t1-0": -1}
    harness.sleep(9)
    assert m1.commit() is ErrorCode.NONE


def test_commit_without_a_good_offset_writes_nothing() -> None:
    """If every metadata is too long, no write can fail."""
    harness = Harness()
    harness.coordinator.fail_writes(TOO_FEW)
    request = OffsetCommit(group_id="g", version=9, offsets=(to_commit("t1-0", 1, "x" * 4097),))
    assert harness.request(request, OffsetsCommitted).partitions == (
        PartitionResult(topic="t1", partition=0, error=ErrorCode.OFFSET_METADATA_TOO_LARGE),
    )
    assert harness.client("m1").commit() is NOT_AVAILABLE


def test_simple_group_that_cannot_be_written_is_not_made() -> None:
    """A first commit that fails creates no group; a later one changes nothing."""
    harness = Harness()
    tool = harness.client("tool")
    harness.coordinator.fail_writes(TOO_FEW, 2)
    assert tool.commit() is NOT_AVAILABLE
    assert harness.state() is DEAD
    assert tool.commit_in_transaction() is NOT_AVAILABLE
    assert harness.state() is DEAD
    assert tool.commit() is ErrorCode.NONE
    assert harness.state() is EMPTY


def test_old_producers_never_get_the_loading_error() -> None:
    """TxnOffsetCommit before v2 gets "not available" where others get "loading"."""
    harness = Harness()
    harness.coordinator.fail_writes(ErrorCode.NETWORK_EXCEPTION, 2)
    errors = []
    for version in (1, 2):
        request = TxnOffsetCommit(
            group_id="g", version=version, producer_id=7, offsets=(to_commit("t1-0", 1),)
        )
        errors.append(harness.request(request, OffsetsCommitted).partitions[0].error)
    assert errors == [NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_offset_delete_that_cannot_be_written() -> None:
    """The request fails as a whole; without an offset to delete nothing is written."""
    harness = Harness()
    harness.client("tool").commit()
    harness.coordinator.fail_writes(TOO_FEW)
    nothing = OffsetDelete(group_id="g", partitions=(tp("t1-1"),))
    assert harness.request(nothing, OffsetsDeleted).error is ErrorCode.NONE
    request = OffsetDelete(group_id="g", partitions=(tp("t1-0"),))
    assert harness.request(request, OffsetsDeleted) == OffsetsDeleted(error=NOT_AVAILABLE)
    assert harness.fetch() == {"t1-0": 1}


def test_groups_of_one_shard_are_deleted_together_or_not() -> None:
    """All named groups of a shard share its failed write; other shards do not."""
    harness = Harness()
    shard = shard_of("g", 50)
    beside = next(f"n{i}" for i in range(1000) if shard_of(f"n{i}", 50) == shard)
    apart = next(f"n{i}" for i in range(1000) if shard_of(f"n{i}", 50) != shard)
    for name in ("g", apart):
        harness.client("tool", group_id=name).commit()
    harness.coordinator.fail_writes(TOO_FEW)
    request = DeleteGroups(group_ids=("g", beside, apart))
    assert harness.request(request, GroupsDeleted).groups == (
        DeletedGroup(group_id="g", error=NOT_AVAILABLE),
        DeletedGroup(group_id=beside, error=NOT_AVAILABLE),
        DeletedGroup(group_id=apart),
    )
    assert harness.state() is EMPTY
    assert harness.fetch() == {"t1-0": 1}


def test_what_cannot_be_dropped_stays_until_the_next_check() -> None:
    """If its write fails, a retention check removes nothing; the next one does."""
    harness = Harness()
    harness.client("tool").commit()
    harness.sleep(WEEK - 1)
    harness.coordinator.fail_writes(TOO_FEW, 1)
    harness.sleep(600)
    assert harness.fetch() == {"t1-0": 1}
    harness.sleep(600)
    assert harness.state() is DEAD


def test_failed_writes_leave_other_states_alone() -> None:
    """Joins and syncs that write nothing succeed."""
    harness = Harness()
    m1, m2 = harness.client("m1"), harness.client("m2")
    harness.form(m1, m2, synced=False)
    harness.coordinator.fail_writes(TOO_FEW, None)
    assert harness.is_parked(m2.sync())
    assert m2.heartbeat() is ErrorCode.NONE
    assert harness.state() is COMPLETING
    harness.coordinator.fail_writes(TOO_FEW, 0)
    assert m1.synced({m1: "x"}).error is ErrorCode.NONE
