"""CommitVerifier: which commits are no longer in their logs, and what it costs to find out."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.generation.commit_verifier import FRESH, LONGEST, MANY, CommitVerifier
from kgroup.types import AutoOffsetReset, EpochEnd
from kgroup.wire.codec import RequestFrame
from tests.fake_brokers import SILENCE, metadata
from tests.generation.fakes import P0, P1, P2
from tests.generation.test_lifecycle import LOSS
from tests.generation.test_start_finder import Lookup, Starting, epochs_end

EARLIEST = AutoOffsetReset.EARLIEST


async def test_what_is_not_in_the_log(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """It is where a log of an earlier epoch ends before the commit, or the epoch is not known."""
    it = Starting(nursery, EARLIEST)
    epochs_end(it, {P0: (30, 2), P1: (29, 2), P2: (-1, -1)})
    verifier = CommitVerifier(it.fake.member, it.fake.lifecycle)
    verifier.begin([])
    found = await verifier.not_in_log({P0: 30, P1: 30, P2: 30}, {P0: 2, P1: 2, P2: 2})
    assert {name: cut.end for name, cut in found.items()} == {P1: EpochEnd(29, 2), P2: None}
    errors = {name: cut.error for name, cut in found.items()}
    assert {name: (one.offset, one.divergent_offset) for name, one in errors.items()} == {
        P1: (30, 29),
        P2: (30, None),
    }
    assert "t-1: offset 30 is committed, after a record of leader epoch 2, but the log of that" in (
        str(errors[P1])
    )
    assert "but the log does not know that epoch any more" in str(errors[P2])


async def test_leaders_are_looked_up_in_the_time_of_another_request(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The Metadata request is sent at once; then the leaders of later epochs only are asked."""
    it = Starting(nursery, EARLIEST)
    nodes = it.lookup.nodes
    epochs_end(it, {P0: (30, 2)})
    async with it.life.open():
        verifier = CommitVerifier(it.fake.member, it.life)
        verifier.begin(["t"])
        knew = verifier.knows_leaders
        await trio.testing.wait_all_tasks_blocked()
        assert (knew, verifier.knows_leaders) == (False, True)
        assert [len(nodes.requests("metadata")), nodes.requests("offset_for_leader_epoch")] == [
            1,
            [],
        ]
        assert await verifier.not_in_log({P0: 30, P1: 9}, {P0: 2, P1: 5}) == {}
        (request,) = nodes.requests("offset_for_leader_epoch")
        assert [part.partition for topic in request.topics for part in topic.partitions] == [0]
        assert len(nodes.requests("metadata")) == 1
        it.life.end(LOSS)


async def test_leaders_of_a_large_topic_are_not_looked_up_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The known ones are asked about every commit; one that was replaced says so."""
    it = Starting(nursery, EARLIEST)
    nodes, cluster = it.lookup.nodes, it.fake.member.cluster
    epochs_end(it, {P0: (30, 5), P1: (7, 4)})
    node = it.lookup.node
    node.answers["metadata"] = metadata({1: "a:1"}, {"t": [1] * (MANY + 1)}, leader_epoch=5)
    await cluster.metadata(["t"])
    async with it.life.open():
        verifier = CommitVerifier(it.fake.member, it.life)
        verifier.begin(["t"])
        assert await verifier.not_in_log({P0: 30}, {P0: 5}) == {}
        assert len(nodes.requests("metadata")) == 1
        assert len(nodes.requests("offset_for_leader_epoch")) == 1

        replaced = metadata({1: "a:1"}, {"t": [1] * (MANY + 1)}, leader_epoch=6)
        node.answers["metadata"] = replaced
        answers = node.answers["offset_for_leader_epoch"]

        def fence(request: RequestFrame) -> Any:
            node.answers["offset_for_leader_epoch"] = answers
            (topic,) = request.entity.topics
            assert [part.current_leader_epoch for part in topic.partitions] == [5]
            fenced = {"error_code": ErrorCode.FENCED_LEADER_EPOCH, "partition": 1}
            return {"topics": [{"topic": "t", "partitions": [fenced]}]}

        node.answers["offset_for_leader_epoch"] = fence
        found = await verifier.not_in_log({P1: 30}, {P1: 5})
        assert found[P1].end == EpochEnd(7, 4)
        assert len(nodes.requests("metadata")) == 2
        it.life.end(LOSS)


async def test_a_commit_of_a_later_epoch_than_the_leaders_is_accepted(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The metadata is old: the leader is looked up until it has that epoch, or time is over."""
    it = Starting(nursery, EARLIEST)
    nodes = it.lookup.nodes
    epochs_end(it, {P0: ErrorCode.UNKNOWN_LEADER_EPOCH}, leader_epoch=1)
    verifier = CommitVerifier(it.fake.member, it.fake.lifecycle)
    verifier.begin([])
    began = trio.current_time()
    assert await verifier.not_in_log({P0: 30}, {P0: 2}) == {}
    assert trio.current_time() - began == pytest.approx(LONGEST)
    for request in nodes.requests("offset_for_leader_epoch"):
        (topic,) = request.topics
        assert [part.current_leader_epoch for part in topic.partitions] == [2]
    asked = len(nodes.requests("offset_for_leader_epoch"))
    assert len(nodes.requests("metadata")) == asked > 2
    it.lookup.node.answers["metadata"] = metadata({1: "a:1"}, {"t": [1]}, leader_epoch=2)
    assert await verifier.not_in_log({P0: 30}, {P0: 2}) == {}
    assert trio.current_time() - began < LONGEST + 0.5


async def test_metadata_is_not_taken_for_that_of_now_after_a_second(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If the commits came late, the leader may have been replaced meanwhile: it is asked."""
    it = Starting(nursery, EARLIEST)
    nodes = it.lookup.nodes
    epochs_end(it, {P0: (30, 5)})
    async with it.life.open():
        verifier = CommitVerifier(it.fake.member, it.life)
        verifier.begin(["t"])
        await trio.testing.wait_all_tasks_blocked()
        assert await verifier.not_in_log({P0: 30}, {P0: 5}) == {}
        assert nodes.requests("offset_for_leader_epoch") == []
        await trio.sleep(FRESH + 0.1)
        assert await verifier.not_in_log({P0: 30}, {P0: 5}) == {}
        assert len(nodes.requests("offset_for_leader_epoch")) == 1
        it.life.end(LOSS)


async def test_a_leader_that_is_silent_is_looked_up_next_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Also of a large topic, whose metadata is not requested in each rebalance."""
    it = Starting(nursery, EARLIEST)
    epochs_end(it, {})
    cluster = it.fake.member.cluster
    it.lookup.node.answers["metadata"] = metadata(
        {1: "a:1"}, {"t": [1] * (MANY + 1)}, leader_epoch=5
    )
    await cluster.metadata(["t"])
    it.lookup.node.answers["offset_for_leader_epoch"] = SILENCE
    verifier = CommitVerifier(it.fake.member, it.fake.lifecycle)
    verifier.begin(["t"])
    assert cluster.cached_partitions("t") > MANY
    assert await verifier.not_in_log({P0: 30}, {P0: 2}) == {}
    assert cluster.cached_partitions("t") == 0


async def test_failures_of_one_kind_are_reported_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A leader change may concern hundreds of partitions."""
    it = Starting(nursery, EARLIEST)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    epochs_end(it, {P0: refused, P1: refused, P2: ErrorCode.INVALID_REQUEST})
    verifier = CommitVerifier(it.fake.member, it.fake.lifecycle)
    verifier.begin([])
    assert await verifier.not_in_log({P0: 9, P1: 9, P2: 9}, {P0: 2, P1: 2, P2: 2}) == {}
    assert it.lookup.reports == [Request.EPOCH_ENDS] * 2


async def test_nothing_to_verify_waits_for_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A commit without an epoch begins at once, although no broker answers about the leaders."""
    it = Lookup(nursery, EARLIEST)
    it.node.answers["metadata"] = SILENCE
    async with it.fake.lifecycle.open():
        verifier = CommitVerifier(it.fake.member, it.fake.lifecycle)
        verifier.begin(["t"])
        began = trio.current_time()
        assert await verifier.not_in_log({P0: 3}, {}) == {}
        assert trio.current_time() == began
        it.fake.lifecycle.end(LOSS)


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1),
        (ErrorCode.UNSUPPORTED_VERSION, 1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 5),
        (SILENCE, 1),
    ],
)
async def test_a_commit_that_cannot_be_verified_is_accepted(
    nursery: trio.Nursery, autojump_clock: MockClock, answer: Any, attempts: int
) -> None:
    """It is reported, and takes two seconds at most; the source still receives the epoch."""
    it = Starting(nursery, EARLIEST)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    it.lookup.coordinator.epochs = {P0: 2, P1: 2}
    epochs_end(it, {P0: (30, 2), P1: answer if isinstance(answer, ErrorCode) else (40, 2)})
    if answer is SILENCE:
        it.lookup.node.answers["offset_for_leader_epoch"] = SILENCE
    began = trio.current_time()
    assert await it.before() == {P0: 30, P1: 40}
    assert trio.current_time() - began <= LONGEST
    asked = len(it.lookup.nodes.requests("offset_for_leader_epoch"))
    assert asked == 1 if attempts == 1 else asked >= attempts
    assert it.fake.source.leader_epochs == {P0: 2, P1: 2}
    assert set(it.lookup.reports) == (set() if answer is SILENCE else {Request.EPOCH_ENDS})
    assert it.events == []


@pytest.mark.parametrize("api", ["offset_for_leader_epoch", "metadata"])
async def test_a_broker_that_has_no_such_request_verifies_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock, api: str
) -> None:
    """Reading begins at the commits."""
    it = Starting(nursery, EARLIEST)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    it.lookup.coordinator.epochs = {P0: 2}
    epochs_end(it, {P0: (7, 2)})
    it.lookup.node.ranges[api] = (0, 2)
    assert await it.before() == {P0: 30, P1: 40}
