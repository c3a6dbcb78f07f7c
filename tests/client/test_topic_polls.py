"""Metadata polls of several members become one request."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.topic_polls import TopicPolls, polls_of
from kgroup.errors import ConnectionLostError


class Broker:
    """Answers after a second, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[frozenset[str]] = []
        self.fails = False

    async def send(self, topics: frozenset[str]) -> frozenset[str]:
        """See ``TopicPolls.request``; the response is the topics."""
        self.requests.append(topics)
        await trio.sleep(1)
        if self.fails:
            raise ConnectionLostError("gone")
        return topics


async def test_polls_of_one_moment_are_one_request(autojump_clock: MockClock) -> None:
    """Three members that wake together send one request, for the topics of all."""
    broker, polls = Broker(), TopicPolls()
    responses: list[frozenset[str]] = []

    async def poll(*topics: str) -> None:
        await trio.sleep_until(10)
        responses.append(await polls.request(frozenset(topics), broker.send))

    async with trio.open_nursery() as nursery:
        for topics in (("a",), ("a", "b"), ("c",)):
            nursery.start_soon(poll, *topics)
    assert broker.requests == [frozenset("abc")]
    assert responses == [frozenset("abc")] * 3


async def test_a_poll_during_a_request_is_another_request(autojump_clock: MockClock) -> None:
    """A response that was under way may be older than the poll, and lack its topics."""
    broker, polls = Broker(), TopicPolls()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(polls.request, frozenset("a"), broker.send)
        await trio.sleep(0.5)
        assert await polls.request(frozenset("b"), broker.send) == frozenset("b")
    assert broker.requests == [frozenset("a"), frozenset("b")]


@pytest.mark.parametrize("when", [0.0, 0.5])
async def test_if_the_sender_is_cancelled_another_one_sends(
    autojump_clock: MockClock, when: float
) -> None:
    """A member that ends takes no other one's poll with it, before the request or during it."""
    broker, polls = Broker(), TopicPolls()
    responses: list[frozenset[str]] = []

    async def poll(topics: str) -> None:
        responses.append(await polls.request(frozenset(topics), broker.send))

    async with trio.open_nursery() as others, trio.open_nursery() as sender:
        sender.start_soon(polls.request, frozenset("a"), broker.send)
        while polls._gathering is None:
            await trio.lowlevel.checkpoint()
        others.start_soon(poll, "b")
        others.start_soon(poll, "c")
        if when:
            await trio.sleep(when)
        sender.cancel_scope.cancel()
    assert broker.requests[-1] == frozenset("bc")
    assert responses == [frozenset("bc")] * 2
    assert polls._gathering is None


async def test_all_get_the_error(autojump_clock: MockClock) -> None:
    """A request that fails fails for each member, so that each reports it and polls again later."""
    broker, polls = Broker(), TopicPolls()
    broker.fails = True
    failed = []

    async def poll(topics: str) -> None:
        with pytest.raises(ConnectionLostError):
            await polls.request(frozenset(topics), broker.send)
        failed.append(topics)

    async with trio.open_nursery() as nursery:
        for topics in "abc":
            nursery.start_soon(poll, topics)
    assert sorted(failed) == ["a", "b", "c"]
    assert len(broker.requests) == 1


async def test_members_with_the_same_key_share_and_nothing_is_kept() -> None:
    """Polls are shared for as long as a member has them."""
    polls = polls_of("key")
    assert polls_of("key") is polls
    assert polls_of("other") is not polls
    held = weakref.ref(polls)
    del polls
    gc.collect()
    assert held() is None
