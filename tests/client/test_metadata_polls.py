"""Members of an event loop poll their topics by one request."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kgroup.client.metadata_polls import MetadataPolls, Send, polls_of
from kgroup.errors import ConnectionLostError


class Broker:
    """Answers after a tenth of a second, and keeps when it was asked for what."""

    def __init__(self) -> None:
        self.requests: list[tuple[float, str]] = []
        self.response: object = object()
        self.fails = False

    async def send(self, topics: frozenset[str]) -> object:
        """See ``Send``."""
        self.requests.append((round(trio.current_time(), 3), "".join(sorted(topics))))
        await trio.sleep(0.1)
        if self.fails:
            raise ConnectionLostError("gone")
        return self.response


def _at_once(broker: Broker) -> Send:
    async def send(topics: frozenset[str]) -> object:
        await trio.lowlevel.checkpoint()
        broker.requests.append((trio.current_time(), "".join(topics)))
        return broker.response

    return send


async def test_one_request_for_all_at_each_interval(autojump_clock: MockClock) -> None:
    """Three members send one request a second, for the topics of all, at whole seconds."""
    broker, polls = Broker(), MetadataPolls(1.0)

    async def member(*topics: str) -> None:
        for _ in range(3):
            assert await polls.wait(frozenset(topics), None, broker.send) is broker.response

    async with trio.open_nursery() as nursery:
        for topics in (("a",), ("a", "b"), ("c",)):
            nursery.start_soon(member, *topics)
    assert broker.requests == [(1.0, "abc"), (2.0, "abc"), (3.0, "abc")]


async def test_rounding_never_skips_the_pause(autojump_clock: MockClock) -> None:
    """Requests are an interval apart, whatever the floats of clock and interval are."""
    broker, polls = Broker(), MetadataPolls(0.1)
    for _ in range(50):
        broker.requests.clear()
        for _ in range(2):
            await polls.wait(frozenset("a"), None, _at_once(broker))
        (first, _), (second, _) = broker.requests
        assert 0.09 <= second - first <= 0.21


async def test_members_sleep_while_the_response_is_the_same(autojump_clock: MockClock) -> None:
    """A member wakes once for each new response, and at once for its first."""
    broker, polls = Broker(), MetadataPolls(1.0)
    woken: list[tuple[float, str]] = []

    async def member(topic: str) -> None:
        known = None
        while True:
            known = await polls.wait(frozenset(topic), known, broker.send)
            woken.append((round(trio.current_time(), 1), topic))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member, "a")
        nursery.start_soon(member, "b")
        await trio.sleep(10.5)
        broker.response = object()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert sorted(woken) == [(1.1, "a"), (1.1, "b"), (11.1, "a"), (11.1, "b")]
    assert len(broker.requests) == 20


async def test_who_begins_during_a_request_gets_the_next_one(autojump_clock: MockClock) -> None:
    """The response under way may lack its topics, or be older than its baseline."""
    broker, polls = Broker(), MetadataPolls(1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(polls.wait, frozenset("a"), None, broker.send)
        await trio.sleep(1.05)
        await polls.wait(frozenset("b"), None, broker.send)
    assert broker.requests == [(1.0, "a"), (2.0, "b")]


@pytest.mark.parametrize("when", [0.5, 1.05])
async def test_if_the_one_that_polls_ends_another_takes_over(
    autojump_clock: MockClock, when: float
) -> None:
    """The others get their response, whether the first ends before its request or within it."""
    broker, polls = Broker(), MetadataPolls(1.0)
    async with trio.open_nursery() as others, trio.open_nursery() as first:
        first.start_soon(polls.wait, frozenset("a"), None, broker.send)
        await wait_all_tasks_blocked()
        for topic in "bc":
            others.start_soon(polls.wait, frozenset(topic), None, broker.send)
        await trio.sleep_until(when)
        first.cancel_scope.cancel()
    assert broker.requests[-1] == (1.0 if when < 1 else 2.0, "bc")
    assert not polls._waiting


async def test_who_comes_as_the_one_that_polls_ends_does_not_poll_too(
    autojump_clock: MockClock,
) -> None:
    """There is one request at each interval, also if a task comes before the successor runs."""
    broker, polls = Broker(), MetadataPolls(1.0)

    async def member(topic: str, first: trio.CancelScope) -> None:
        with first:
            await polls.wait(frozenset(topic), None, broker.send)
        for _ in range(3):
            await polls.wait(frozenset(topic), None, broker.send)

    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()
        nursery.start_soon(member, "a", first)
        await wait_all_tasks_blocked()
        for topic in "bc":
            nursery.start_soon(member, topic, trio.CancelScope(deadline=0.0))
        await trio.sleep(0.5)
        first.cancel()
    assert broker.requests == [(1.0, "abc"), (2.0, "abc"), (3.0, "abc")]


async def test_all_get_the_error_and_the_next_request_follows(autojump_clock: MockClock) -> None:
    """A request that fails is reported by each member; the next one is an interval later."""
    broker, polls = Broker(), MetadataPolls(1.0)
    broker.fails = True
    failed = []

    async def member(topic: str) -> None:
        with pytest.raises(ConnectionLostError):
            await polls.wait(frozenset(topic), None, broker.send)
        failed.append(topic)
        broker.fails = False
        assert await polls.wait(frozenset(topic), None, broker.send) is broker.response

    async with trio.open_nursery() as nursery:
        for topic in "abc":
            nursery.start_soon(member, topic)
    assert sorted(failed) == ["a", "b", "c"]
    assert broker.requests == [(1.0, "abc"), (2.0, "abc")]


async def test_the_one_that_polls_may_be_the_last_to_wake(autojump_clock: MockClock) -> None:
    """A response that is new only for others does not end the polling of the one that polls."""
    broker, polls = Broker(), MetadataPolls(1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(polls.wait, frozenset("a"), broker.response, broker.send)
        await wait_all_tasks_blocked()
        assert await polls.wait(frozenset("b"), None, broker.send) is broker.response
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert broker.requests == [(1.0, "ab"), (2.0, "a"), (3.0, "a")]


async def test_polls_are_shared_while_a_member_has_them() -> None:
    """Members with the same key and interval share the polls; nothing is kept after the last."""
    polls = polls_of("key", 1.0)
    assert polls_of("key", 1.0) is polls
    assert polls_of("key", 2.0) is not polls
    held = weakref.ref(polls)
    del polls
    gc.collect()
    assert held() is None
