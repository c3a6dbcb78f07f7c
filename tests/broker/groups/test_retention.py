"""Offsets and groups that are removed after their retention."""

from __future__ import annotations

import attrs

from kgroup.broker.groups.requests import OffsetCommit, OffsetDelete
from kgroup.broker.groups.responses import OffsetsCommitted, OffsetsDeleted
from kgroup.broker.groups.states import DEAD, EMPTY, STABLE
from tests.broker.groups.harness import SETTINGS, Harness, subscription, to_commit, tp

WEEK = 7 * 24 * 3600.0
FOREVER = attrs.evolve(SETTINGS, max_session_timeout=3 * WEEK)


def test_simple_groups_offsets_expire_one_by_one() -> None:
    """In a group that never had members each offset expires by its age, then the group."""
    harness = Harness()
    tool = harness.client("tool")
    tool.commit("t1-0")
    harness.sleep(3600)
    tool.commit("t1-1")
    harness.sleep(WEEK - 3000)
    assert harness.fetch() == {"t1-1": 1}
    harness.sleep(3600)
    assert harness.state() is DEAD
    assert harness.fetch() == {}


def test_emptied_group_keeps_its_offsets_for_the_retention() -> None:
    """All offsets are kept for a week after a group became Empty, however old they are."""
    harness = Harness(FOREVER)
    m1 = harness.client("m1", session=3 * WEEK, protocols={"range": subscription("t1")})
    harness.form(m1)
    m1.commit("t1-0")
    harness.sleep(2 * WEEK)
    assert harness.fetch() == {"t1-0": 1}
    m1.leave()
    harness.sleep(WEEK - 601)
    assert harness.fetch() == {"t1-0": 1}
    harness.sleep(1300)
    assert harness.state() is DEAD


def test_stable_consumers_lose_offsets_of_topics_they_do_not_use() -> None:
    """In a Stable group of consumers only topics without a subscriber expire."""
    harness = Harness(FOREVER)
    m1 = harness.client("m1", session=3 * WEEK)
    harness.form(m1)
    m1.commit("t1-0")
    m1.commit("t2-0")
    harness.sleep(WEEK + 601)
    assert harness.fetch() == {"t1-0": 1}
    assert harness.state() is STABLE


def test_other_groups_with_members_keep_everything() -> None:
    """If the topics of the members are unknown, no offset expires."""
    harness = Harness(FOREVER)
    worker = harness.client("w", session=3 * WEEK, protocol_type="connect")
    harness.form(worker)
    worker.commit("t1-0")
    harness.sleep(2 * WEEK)
    assert harness.fetch() == {"t1-0": 1}


def test_open_transaction_keeps_group_and_offset() -> None:
    """A partition with a pending offset, and its group, are kept until the transaction ends."""
    harness = Harness()
    tool = harness.client("tool")
    tool.commit("t1-0")
    tool.commit_in_transaction("t1-0", 2)
    harness.sleep(2 * WEEK)
    assert harness.fetch() == {"t1-0": 1}
    harness.coordinator.complete_transaction(7, committed=False)
    harness.sleep(601)
    assert harness.state() is DEAD


def test_group_with_only_a_pending_offset_stays() -> None:
    """The next check deletes a group without offsets, but not during a transaction."""
    harness = Harness()
    harness.client("tool").commit_in_transaction("t1-0", 2)
    harness.client("m1", group_id="h", session=1800.0).enlist()
    assert harness.state("h") is EMPTY
    harness.sleep(601)
    assert harness.state("g") is EMPTY
    assert harness.state("h") is DEAD


def test_transaction_whose_offsets_were_deleted_keeps_nothing() -> None:
    """A deleted pending offset leaves its transaction, and its group can be deleted."""
    harness = Harness()
    harness.client("tool").commit_in_transaction("t1-0", 2)
    harness.request(OffsetDelete(group_id="g", partitions=(tp("t1-0"),)), OffsetsDeleted)
    assert harness.fetch("t1-0", stable=True) == {"t1-0": -1}
    harness.sleep(601)
    assert harness.state() is DEAD


def test_retention_time_of_old_commits() -> None:
    """OffsetCommit v2 to v4 may say how long an offset is kept."""
    harness = Harness()
    for kept, partition in ((60.0, "t1-0"), (5 * WEEK, "t1-1")):
        request = OffsetCommit(
            group_id="g", version=2, retention_time=kept, offsets=(to_commit(partition, 1),)
        )
        harness.request(request, OffsetsCommitted)
    harness.sleep(601)
    assert harness.fetch() == {"t1-1": 1}
    harness.sleep(4 * WEEK)
    assert harness.fetch() == {"t1-1": 1}
