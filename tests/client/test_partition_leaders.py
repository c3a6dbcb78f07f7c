"""The cache of partition leaders, what removes an entry, and requests to several leaders."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import REACTIONS, Request
from kgroup.client.partition_leaders import PartitionLeaders, request_all
from kgroup.error_codes import ErrorCode
from kgroup.errors import ConnectionLostError, KgroupError, UsageError
from kgroup.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def known() -> PartitionLeaders:
    """Two leaders; the first has partitions of both topics."""
    leaders = PartitionLeaders()
    leaders.replace({"t", "u"}, {T0: 1, T1: 2, U0: 1})
    return leaders


def of(leaders: PartitionLeaders) -> list[int | None]:
    """The leaders of the three partitions."""
    return [leaders.of(name) for name in (T0, T1, U0)]


def test_new_metadata_of_a_topic_replaces_its_leaders() -> None:
    """A partition that has lost its leader has none; other topics are unchanged."""
    leaders = known()
    leaders.replace({"t"}, {T1: 3})
    assert of(leaders) == [None, 3, 1]
    leaders.replace({"t"}, {})
    assert of(leaders) == [None, None, 1]


def test_leader_epochs_are_replaced_with_the_leaders() -> None:
    """Those of other topics are unchanged; a partition without a leader may have one."""
    leaders = known()
    leaders.replace({"t", "u"}, {T0: 1, U0: 1}, {T0: 3, T1: 4, U0: 5})
    leaders.replace({"t"}, {T0: 2, T1: 2}, {T1: 6})
    assert [leaders.epoch_of(name) for name in (T0, T1, U0)] == [None, 6, 5]
    assert [leaders.count(topic) for topic in ("t", "u", "v")] == [2, 1, 0]
    leaders.replace({"t", "u"}, {T1: 2})
    assert [leaders.count(topic) for topic in ("t", "u", "v")] == [1, 0, 0]


def test_new_metadata_of_all_topics_replaces_everything() -> None:
    """A topic that the cluster does not list any more is forgotten, with its epochs."""
    leaders = known()
    leaders.replace({"t"}, {T0: 1, T1: 2}, {T0: 3})
    leaders.replace(None, {U0: 4}, {U0: 5})
    assert of(leaders) == [None, None, 4]
    assert [leaders.epoch_of(name) for name in (T0, U0)] == [None, 5]
    assert [leaders.count(topic) for topic in ("t", "u")] == [0, 1]


def test_topics_that_nobody_asks_for_are_forgotten() -> None:
    """What is known of the others stays."""
    leaders = known()
    leaders.replace({"t", "u"}, {T0: 1, U0: 1}, {T0: 3, U0: 5})
    leaders.forget_others({"u", "v"})
    assert of(leaders) == [None, None, 1]
    assert [leaders.epoch_of(name) for name in (T0, U0)] == [None, 5]
    assert [leaders.count(topic) for topic in ("t", "u")] == [0, 1]


@pytest.mark.parametrize(
    "code", sorted(c for c in REACTIONS[Request.LIST_OFFSETS] if type(c) is ErrorCode)
)
def test_the_table_says_which_errors_make_a_leader_forgotten(code: ErrorCode) -> None:
    """Only that partition is removed: the broker still leads the others."""
    leaders = known()
    error = broker_error(Request.LIST_OFFSETS, code, "t-0")
    leaders.forget_failed(Request.LIST_OFFSETS, {T0: error, T1: 5, U0: 7})
    assert of(leaders) == [None if REACTIONS[Request.LIST_OFFSETS][code].find else 1, 2, 1]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ],
)
def test_a_leader_that_has_moved_is_looked_up(code: ErrorCode) -> None:
    """Every code that means another leader asks for a lookup."""
    leaders = known()
    leaders.forget_failed(Request.LIST_OFFSETS, {T0: broker_error(Request.LIST_OFFSETS, code)})
    assert leaders.of(T0) is None


def test_a_leader_that_does_not_answer_is_forgotten_for_all_it_led() -> None:
    """All partitions of the leader are removed."""
    leaders = known()
    leaders.forget_failed(Request.LIST_OFFSETS, {T0: ConnectionLostError("gone"), T1: 5})
    assert of(leaders) == [None, 2, None]


async def later(seconds: float, answer: int | KgroupError) -> int:
    """Return a result, or raise an error, after some time."""
    await trio.sleep(seconds)
    if isinstance(answer, KgroupError):
        raise answer
    return answer


async def test_all_requests_are_sent_at_the_same_time(autojump_clock: MockClock) -> None:
    """The call takes as long as the slowest; failures and refusals are results like the others."""
    lost, refused = ConnectionLostError("gone"), broker_error(Request.LIST_OFFSETS, 29)
    before = trio.current_time()
    results = await request_all(
        [
            partial(later, 3, 1),
            partial(later, 1, lost),
            partial(later, 2, 3),
            partial(later, 1, refused),
        ]
    )
    assert results == [1, lost, 3, refused]
    assert trio.current_time() - before == pytest.approx(3)
    assert await request_all([]) == []


async def test_another_error_is_raised_bare_when_all_have_ended(autojump_clock: MockClock) -> None:
    """The first error in the order of the requests, not of the responses, is raised."""
    first, second = UsageError("one"), UsageError("two")
    before = trio.current_time()
    with pytest.raises(UsageError) as raised:
        await request_all(
            [partial(later, 5, 1), partial(later, 2, first), partial(later, 1, second)]
        )
    assert raised.value is first
    assert trio.current_time() - before == pytest.approx(5)


async def test_a_cancelled_call_cancels_all_requests(autojump_clock: MockClock) -> None:
    """No request continues after the call."""
    with trio.move_on_after(1) as scope:
        await request_all([partial(later, 9, 1), partial(later, 8, 2)])
    assert scope.cancelled_caught
