"""The subscription: names stay as they are, patterns become the topics that they match."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.subscription import Subscription
from tests.fake_brokers import FakeBrokers, metadata


async def test_names_need_no_broker(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Topics are subscribed to whether they exist or not; the call is a checkpoint."""
    nodes = FakeBrokers(nursery)
    subscription, cluster = Subscription(("b", "a")), nodes.cluster()
    with trio.testing.assert_checkpoints():
        assert await subscription.resolve(cluster) == {"a", "b"}
    assert not subscription.has_patterns
    assert nodes.received == []


@pytest.mark.parametrize(
    ("patterns", "matched"),
    [
        (["orders"], {"orders"}),
        (["orders.*"], {"orders", "orders-2"}),
        (["ord"], set()),
        ([".*"], {"orders", "orders-2", "other"}),
        (["__.*"], set()),
        (["x", "oth.."], {"other"}),
        (["(?i)ORDERS"], {"orders"}),
    ],
)
async def test_patterns_match_whole_names(
    nursery: trio.Nursery, autojump_clock: MockClock, patterns: list[str], matched: set[str]
) -> None:
    """Patterns match existing topics, but never internal ones; names are added unchanged."""
    nodes = FakeBrokers(nursery)
    names = ("orders", "orders-2", "other", "__consumer_offsets")
    nodes.add("a:1", metadata=metadata({1: "a:1"}, {name: [1] for name in names}))
    compiled = tuple(re.compile(pattern) for pattern in patterns)
    subscription, cluster = Subscription(("named", *compiled)), nodes.cluster()
    assert subscription.has_patterns
    assert await subscription.resolve(cluster) == {"named", *matched}
    assert [request.topics for request in nodes.requests("metadata")] == [None]


async def test_a_cluster_of_other_topics_each_time_leaves_no_trace(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Of a thousand topics that have come and gone, only the last one's leader is known."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", metadata=metadata({1: "a:1"}, {}))
    subscription, cluster = Subscription((re.compile("tenant-.*"),)), nodes.cluster()
    for number in range(100):
        names = [f"tenant-{number}-{each}" for each in range(10)]
        node.answers["metadata"] = metadata({1: "a:1"}, {name: [1] for name in names})
        assert await subscription.resolve(cluster) == set(names)
    known = [name.topic for name in cluster._leaders._nodes]
    assert sorted(known) == sorted(names)


async def test_the_matches_of_a_pattern_change(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Each call requests the topics again."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", metadata=metadata({1: "a:1"}, {}))
    subscription, cluster = Subscription((re.compile("orders.*"),)), nodes.cluster()
    assert await subscription.resolve(cluster) == frozenset()
    node.answers["metadata"] = metadata({1: "a:1"}, {"orders-9": [1]})
    assert await subscription.resolve(cluster) == {"orders-9"}
