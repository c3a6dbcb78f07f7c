"""Requests for start offsets: which are repeated until they are answered, and which are not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.cluster import LATEST
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthorizationError,
    NoOffsetError,
    OffsetOutOfRangeError,
)
from kgroup.generation.start_offsets import StartOffsets
from kgroup.types import AutoOffsetReset, OffsetAndMetadata
from kgroup.wire.codec import RequestFrame
from tests.client.test_cluster import T0, T1, T2, offsets_of
from tests.generation.bench import P0, P1, Bench, FakeCoordinator
from tests.nodes import Nodes, metadata

ALONE = {1: "a:1"}


class Lookup:
    """Positions beside one broker of topic t with three partitions."""

    def __init__(self, nursery: trio.Nursery, reset: AutoOffsetReset, **settings: Any) -> None:
        self.nodes = Nodes(nursery)
        self.node = self.nodes.add(
            "a:1", metadata=metadata(ALONE, {"t": [1, 1, 1]}), list_offsets=offsets_of
        )
        self.coordinator = FakeCoordinator()
        self.bench = Bench(
            coordinator=self.coordinator,
            cluster=self.nodes.cluster(),
            owned=(P0, P1),
            settings={"auto_offset_reset": reset, **settings},
        )
        bench = self.bench
        self.starts = StartOffsets(bench.member, bench.lifecycle, bench.positions, bench.committer)

    @property
    def reports(self) -> list[Request]:
        """The requests whose failures were reported."""
        return [request for request, _ in self.bench.reports]


async def test_committed_offsets(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """None where there is none; for no partitions nothing is sent."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)
    it.coordinator.stable = {T0: 7}
    assert await it.starts.committed([T0, T1]) == {T0: OffsetAndMetadata(7), T1: None}
    with trio.testing.assert_checkpoints():
        assert await it.starts.committed([]) == {}


@pytest.mark.parametrize(
    ("reset", "committed", "offsets"),
    [
        (AutoOffsetReset.EARLIEST, {}, {T0: 0, T1: 10}),
        (AutoOffsetReset.EARLIEST, {T2: 1}, {T0: 0, T1: 10}),
        (AutoOffsetReset.LATEST, {}, {T0: 5, T1: 15}),
        # The group has begun with the topic: these two were added later.
        (AutoOffsetReset.LATEST, {T2: 1}, {T0: 0, T1: 10}),
    ],
)
async def test_without_a_commit_the_rule_decides(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    reset: AutoOffsetReset,
    committed: dict[Any, int],
    offsets: dict[Any, int],
) -> None:
    """Each with the rule that was followed, and its reason in words."""
    it = Lookup(nursery, reset)
    it.coordinator.stable = committed
    found = await it.starts.without_commit([T0, T1])
    assert {name: start.offset for name, start in found.items()} == offsets
    late = reset is AutoOffsetReset.LATEST and committed
    for start in found.values():
        assert start.rule is (AutoOffsetReset.EARLIEST if late else reset)
        assert ("added later" in start.reason) is bool(late)
        assert "no offset is committed" in start.reason


async def test_without_a_rule_it_is_an_error(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It names the partitions, the member, and what to do."""
    it = Lookup(nursery, AutoOffsetReset.ERROR)
    with pytest.raises(NoOffsetError, match=r"'m-1'.* for t-0, t-1, and .*'earliest' or 'latest'"):
        await it.starts.without_commit([T1, T0])
    error = OffsetOutOfRangeError("gone", T0, 99)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await it.starts.out_of_range(error)
    assert caught.value is error


@pytest.mark.parametrize(("at", "words"), [(99, "offset 99 is"), (-1, "its position is")])
async def test_out_of_range(
    nursery: trio.Nursery, autojump_clock: MockClock, at: int, words: str
) -> None:
    """By the rule, and it says from where."""
    it = Lookup(nursery, AutoOffsetReset.LATEST)
    start = await it.starts.out_of_range(OffsetOutOfRangeError("gone", T1, at))
    assert (start.offset, start.rule) == (15, AutoOffsetReset.LATEST)
    assert start.reason == f"{words} not in the log, so auto_offset_reset chose the latest offset"


async def test_only_what_is_not_known_yet_is_requested_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A leader that is not there costs the others nothing; the request is repeated until it is."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)
    left = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE]

    def answer(request: RequestFrame) -> dict[str, Any]:
        offsets = offsets_of(request)
        if left:
            offsets["topics"][0]["partitions"][-1]["error_code"] = int(left.pop(0))
        return offsets

    it.node.answers["list_offsets"] = answer
    found = await it.starts.without_commit([T0, T1])
    assert {name: start.offset for name, start in found.items()} == {T0: 0, T1: 10}
    sent = [
        [part.partition_index for part in request.topics[0].partitions]
        for request in it.nodes.requests("list_offsets")
    ]
    assert sent == [[0, 1], [1], [1]]
    assert it.reports == [Request.LIST_OFFSETS, Request.LIST_OFFSETS]


async def test_a_leader_that_refuses_for_good(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The request is not repeated."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)

    def refuse(request: RequestFrame) -> dict[str, Any]:
        offsets = offsets_of(request)
        offsets["topics"][0]["partitions"][0]["error_code"] = int(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        return offsets

    it.node.answers["list_offsets"] = refuse
    with pytest.raises(AuthorizationError, match="t-0"):
        await it.starts.without_commit([T0, T1])
    assert len(it.nodes.requests("list_offsets")) == 1


async def test_offsets_of_now_are_one_request_each_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Leaders are fetched once, however often the ends are."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)
    for _ in range(3):
        assert await it.starts.list_offsets([T2, T0], LATEST) == {T0: 5, T2: 25}
    assert len(it.nodes.requests("list_offsets")) == 3
    assert len(it.nodes.requests("metadata")) == 1


async def test_offsets_of_now_leave_out_leaders_that_do_not_answer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The others' are there, and a transport failure is reported once for all of its partitions."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)
    answer = metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2, 2]})
    it.node.answers["metadata"] = answer
    away = it.nodes.add("b:1", metadata=answer, list_offsets=lambda _: None)
    assert await it.starts.list_offsets([T0, T1, T2], LATEST) == {T0: 5}
    assert it.reports == [Request.LIST_OFFSETS]
    away.answers["list_offsets"] = offsets_of
    assert await it.starts.list_offsets([T0, T1, T2], LATEST) == {T0: 5, T1: 15, T2: 25}


async def test_offsets_of_now_are_none_where_no_leader_answers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It is reported, and the caller tries again later."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)
    it.node.up = False
    assert await it.starts.list_offsets([T0, T1], LATEST) == {}
    assert it.reports == [Request.LIST_OFFSETS]


async def test_offsets_of_now_are_refused_for_good(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A later attempt would be refused too."""
    it = Lookup(nursery, AutoOffsetReset.EARLIEST)

    def refuse(request: RequestFrame) -> dict[str, Any]:
        offsets = offsets_of(request)
        offsets["topics"][0]["partitions"][0]["error_code"] = int(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        return offsets

    it.node.answers["list_offsets"] = refuse
    with pytest.raises(AuthorizationError, match="t-0"):
        await it.starts.list_offsets([T0, T1], LATEST)
