"""The example that assigns by lag: its assignments, and the lag that it measures."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.assignors.validation import check_assignments
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.examples.loading import load
from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import Worker

EXAMPLE = load("assign_by_lag")
TOPICS = {"t": TopicInfo(name="t", partitions=6)}
MEMBERS = tuple(MemberSubscription(member_id=name, topics=("t",)) for name in "ab")


def divided(*lag: int) -> list[list[int]]:
    """Assign partitions with these lags to two members."""
    assignor = EXAMPLE.ByLag()
    assignor.lag = {TopicPartition("t", number): much for number, much in enumerate(lag)}
    given = assignor.assign(TOPICS, MEMBERS)
    checked = check_assignments(assignor.name, TOPICS, MEMBERS, given)
    assert checked.unassigned == ()
    return [sorted(one.partition for one in checked.assignments[name]) for name in "ab"]


def test_lag_is_even() -> None:
    """A partition far behind counts as much as all others; without lags, the number counts."""
    assert divided(5, 1, 1, 1, 1, 1) == [[0], [1, 2, 3, 4, 5]]
    assert divided(10, 9, 8, 1, 1, 1) == [[0, 3, 4, 5], [1, 2]]
    assert divided() == [[0, 2, 4], [1, 3, 5]]


def test_a_member_without_the_topic_gets_nothing() -> None:
    """Only members that subscribe to a topic get its partitions."""
    members = (MEMBERS[0], MemberSubscription(member_id="b"))
    assert EXAMPLE.ByLag().assign(TOPICS, members)["b"] == []


async def test_it_keeps_measuring(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example measures before it joins, and then every ten seconds."""
    times: list[float] = []

    async def measured(*_: object) -> dict[TopicPartition, int]:
        await trio.lowlevel.checkpoint()
        times.append(trio.current_time() - began)
        return {}

    @asynccontextmanager
    async def group(_: object) -> AsyncIterator[Any]:
        assert times == [0]
        await trio.sleep(100)
        yield

    monkeypatch.setattr(trio.to_thread, "run_sync", measured)
    monkeypatch.setattr(EXAMPLE, "ConsumerGroup", group)
    began = trio.current_time()
    with trio.move_on_after(35):
        await EXAMPLE.main("broker:9092", "t")
    assert times == [0, 10, 20, 30]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs(reader: Reader, topic: Topic, number: signal.Signals) -> None:
    """The lag is the number of uncommitted records, before the join and after more is read.

    At either signal the member leaves.
    """
    group_id = f"{topic.name}-by-lag"
    topic.produce(3)

    def lag() -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = EXAMPLE.measure(
            topic.bootstrap_servers, group_id, topic.name
        )
        return found

    assert lag() == dict.fromkeys(topic.partitions, 3)
    with Worker(reader, "examples/assign_by_lag.py", topic.bootstrap_servers, topic.name) as one:
        one.until(lambda lines: lines)
        assert one.lines == [" ".join(["owns", *map(str, topic.partitions)])]
        topic.wait_until_committed(group_id)
        assert lag() == dict.fromkeys(topic.partitions, 0)
        one.send(number)
        assert one.ended() == 0
        assert one.errors == ""
    assert topic.members(group_id) == []
