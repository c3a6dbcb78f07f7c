"""Access control: the embedded broker answers as Apache Kafka did, and Kafka still does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, in_memory
from kgroup.broker.authorization import RIGHTS
from tests.conformance.access import (
    DIALOGUES,
    REQUESTS,
    REQUESTS_OF_SEVERAL,
    USERS,
    Access,
    connected,
    play_dialogues,
    play_second,
    play_table,
    read_golden,
    start_kafka,
)
from tests.conformance.golden import compare
from tests.conformance.player import tcp

GOLDEN: Final[Mapping[str, Any]] = read_golden()


@pytest.fixture
async def embedded(autojump_clock: MockClock) -> AsyncIterator[Access]:
    """The embedded broker."""
    security = BrokerSecurity(users=USERS, acls=[], super_users=["root"])
    async with in_memory(security=security) as broker:

        async def open_stream() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            broker.accept(theirs, "127.0.0.1")
            return ours

        async with connected(open_stream, open_stream, "root") as access:
            yield access


async def test_what_a_right_changes(embedded: Access) -> None:
    """Each request is answered as it was recorded, without any right and with each one."""
    assert await play_table(embedded) == GOLDEN["requests"]


async def test_what_is_answered_beside_a_refusal(embedded: Access) -> None:
    """A request that also names something without the right is answered as it was recorded."""
    assert await play_second(embedded) == GOLDEN["second"]


async def test_rules_are_created_described_and_deleted(embedded: Access) -> None:
    """Each dialogue is the recorded one, line by line."""
    check(await play_dialogues(embedded))


def check(played: Mapping[str, list[str]]) -> None:
    """Hold dialogues against those that were recorded."""
    found = {name: compare(GOLDEN["dialogues"].get(name), lines) for name, lines in played.items()}
    assert {name: difference for name, difference in found.items() if difference} == {}


@pytest.mark.real_kafka
async def test_kafka_answers_as_recorded() -> None:
    """The real Kafka still answers all of it in the same way."""
    with start_kafka() as kafka:
        async with connected(tcp(kafka.bootstrap_servers), tcp(kafka.secure_servers)) as access:
            assert await play_table(access) == GOLDEN["requests"]
            assert await play_second(access) == GOLDEN["second"]
            check(await play_dialogues(access))


def test_every_request_that_needs_a_right_is_recorded() -> None:
    """It is with each right alone; those of the new group protocol are refused in any case."""
    recorded = {api for given, api, _, _ in REQUESTS.values() if not given}
    assert set(RIGHTS) - recorded == {"consumer_group_describe", "consumer_group_heartbeat"}


def test_everything_recorded_is_played() -> None:
    """Nothing was recorded that is not played any more."""
    assert set(GOLDEN["requests"]) == set(REQUESTS)
    assert set(GOLDEN["second"]) == set(REQUESTS_OF_SEVERAL)
    assert set(GOLDEN["dialogues"]) == set(DIALOGUES)
