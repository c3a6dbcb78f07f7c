"""The partition watcher: what counts as a change, and after how many polls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import final
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import LOGIN_INTERVAL, Action, Reaction, Request
from kgroup.client.metadata import Metadata
from kgroup.errors import AuthenticationError, BrokerError, ConnectionLostError, TransportError
from kgroup.types import Cause, End, TopicInfo, TopicPartition
from kgroup.watchers.partitions import changes, has_grown, partition_watcher

OLD, NEW = UUID(int=1), UUID(int=2)


def topic(partitions: int, topic_id: UUID | None = None, name: str = "t") -> dict[str, TopicInfo]:
    """One topic, by its name."""
    return {name: TopicInfo(name=name, partitions=partitions, topic_id=topic_id)}


@pytest.mark.parametrize(
    ("before", "now", "words", "grown"),
    [
        (topic(1), topic(1), [], False),
        ({}, {}, [], False),
        (topic(1), topic(3), ["topic t has 3 partitions, not 1"], True),
        (topic(3), topic(1), ["topic t has 1 partitions, not 3"], False),
        ({}, topic(2), ["topic t appeared with 2 partitions"], True),
        (topic(2), {}, ["topic t was deleted"], False),
        (topic(2, OLD), topic(2, NEW), ["topic t was deleted and created again"], False),
        (topic(2, OLD), topic(2, None), [], False),
        (topic(2, None), topic(2, NEW), [], False),
        (
            {**topic(1), **topic(1, name="a")},
            {**topic(2, name="a"), **topic(5, name="z")},
            [
                "topic a has 2 partitions, not 1",
                "topic t was deleted",
                "topic z appeared with 5 partitions",
            ],
            True,
        ),
    ],
)
def test_what_is_a_change(
    before: Mapping[str, TopicInfo], now: Mapping[str, TopicInfo], words: list[str], grown: bool
) -> None:
    """Topics and partition counts are compared, and ids if both are known."""
    assert changes(before, now) == words
    assert has_grown(before, now) is grown


def test_moved_replicas_are_no_change() -> None:
    """Replicas that move do not end a generation."""
    moved = {"t": TopicInfo(name="t", partitions=1, racks=(("east",),))}
    assert changes(topic(1), moved) == []


@final
class Polls:
    """The results of the polls, in order; the last one is repeated.

    Attributes:
        leaderless: the partitions that have no leader.
        found_leaderless: what the watcher has passed on of them.
    """

    def __init__(self, *polls: Mapping[str, TopicInfo] | Exception) -> None:
        self.polls = list(polls)
        self.leaderless: frozenset[TopicPartition] = frozenset()
        self.found_leaderless: list[Collection[TopicPartition]] = []
        self.made = 0
        self.quiet: list[bool] = []
        self.reports: list[Reaction] = []

    async def poll(self) -> Metadata:
        """The next result."""
        await trio.lowlevel.checkpoint()
        self.made += 1
        found = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
        if isinstance(found, Exception):
            raise found
        return Metadata(topics=found, leaders={}, leaderless=self.leaderless)

    def report(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        """See ``Report``."""
        assert request is Request.METADATA
        del error
        self.reports.append(reaction)


async def watch(polls: Polls, baseline: Mapping[str, TopicInfo], interval: float) -> End:
    """Run the watcher, with a poll after each interval."""

    async def poll(*, only_changed: bool) -> Metadata:
        polls.quiet.append(only_changed)
        await trio.sleep(interval)
        return await polls.poll()

    return await partition_watcher(
        poll, baseline, interval, polls.report, polls.found_leaderless.append
    )


async def test_only_what_is_no_change_may_pass_unseen(autojump_clock: MockClock) -> None:
    """After a suspicion the next response is compared, also if it is the same as the last one."""
    polls = Polls(topic(1), {}, topic(1), {}, {})
    await watch(polls, topic(1), 5.0)
    assert polls.quiet == [True, True, False, True, False]


async def test_growth_counts_after_one_poll(autojump_clock: MockClock) -> None:
    """An added partition ends the generation at the first poll, one interval after the start."""
    polls = Polls(topic(1), topic(2))
    before = trio.current_time()
    end = await watch(polls, topic(1), 5.0)
    assert str(end) == "partitions changed: topic t has 2 partitions, not 1"
    assert end.cause is Cause.PARTITIONS_CHANGED
    assert trio.current_time() - before == pytest.approx(10)


async def test_a_topic_counts_as_deleted_after_two_polls(autojump_clock: MockClock) -> None:
    """A starting broker may not know all topics; two different results in a row do not count."""
    both = {**topic(1), **topic(1, name="a")}
    polls = Polls(topic(1), both, topic(1), topic(1, name="a"), topic(1), topic(1))
    end = await watch(polls, both, 5.0)
    assert str(end) == "partitions changed: topic a was deleted"
    assert polls.made == 6


async def test_no_topic_is_deleted_within_a_few_seconds(autojump_clock: MockClock) -> None:
    """A starting broker may lack metadata for that long, so frequent polls change nothing."""
    polls = Polls({})
    before = trio.current_time()
    await watch(polls, topic(1), 1.0)
    assert trio.current_time() - before == pytest.approx(6)


async def test_a_failed_poll_is_reported_and_repeated(autojump_clock: MockClock) -> None:
    """It neither ends the generation nor counts as a poll without the topic."""
    lost = ConnectionLostError("gone")
    polls = Polls(lost, {}, lost, {})
    end = await watch(polls, topic(1), 5.0)
    assert end.detail == "topic t was deleted"
    assert polls.made == 4
    assert [reaction.action for reaction in polls.reports] == [Action.RETRY, Action.RETRY]


async def test_a_failure_that_lasts_is_reported_once(autojump_clock: MockClock) -> None:
    """A topic that may not be described is one event, and another one after it was described."""
    refused = BrokerError(29, "TOPIC_AUTHORIZATION_FAILED", "Metadata", "refused")
    lost = ConnectionLostError("gone")
    polls = Polls(refused, refused, refused, lost, refused, topic(1), refused, topic(2))
    await watch(polls, topic(1), 1.0)
    assert len(polls.reports) == 4


async def test_a_refused_login_is_not_repeated_each_second(autojump_clock: MockClock) -> None:
    """An account may be locked after a few logins with a wrong password; certificates lock none."""
    wrong = AuthenticationError(58, "SASL_AUTHENTICATION_FAILED", "SASL login", "wrong password")
    polls = Polls(wrong, wrong, AuthenticationError.in_tls("expired"), topic(2))
    began = trio.current_time()
    await watch(polls, topic(1), 1.0)
    assert trio.current_time() - began == pytest.approx(4 + 2 * LOGIN_INTERVAL)


async def test_partitions_without_a_leader_are_passed_on(autojump_clock: MockClock) -> None:
    """They are no change that ends a generation, and a poll that fails says nothing of them."""
    polls = Polls(topic(1), ConnectionLostError("gone"), topic(2))
    polls.leaderless = frozenset({TopicPartition("t", 0)})
    await watch(polls, topic(1), 5.0)
    assert polls.found_leaderless == [polls.leaderless] * 2
