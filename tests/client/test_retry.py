"""Requests that are repeated as the error policy says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import final

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.backoff import Backoff
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Action, Reaction, Request, TransportFailure, reaction_to_code
from kgroup.client.retry import find_coordinator, must_wait, until_answered
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    BrokerError,
    ConnectionLostError,
    FatalGroupError,
    RequestTimeoutError,
    TransportError,
)

Error = BrokerError | TransportError


@final
class Script:
    """Requests that fail as given and then succeed, with the times at which they were sent."""

    def __init__(self, request: Request, failures: Sequence[Error] = ()) -> None:
        self.request = request
        self.failures = list(failures)
        self.lost: list[Error] = []
        self.times: list[float] = []
        self.log: list[str] = []

    async def send(self) -> str:
        """The request."""
        return await self._act(self.request.value, self.failures)

    async def find(self) -> None:
        """Look up the coordinator."""
        await self._act("find", self.lost)

    async def _act(self, name: str, failures: list[Error]) -> str:
        await trio.lowlevel.checkpoint()
        self.times.append(trio.current_time())
        self.log.append(name)
        if failures:
            raise failures.pop(0)
        return "answer"


def backoff() -> Backoff:
    """Waits of about 1 s, doubling."""
    return Backoff(1.0, 60.0, random.Random(1))


Reports = list[tuple[Request, Error, Reaction]]


async def send(script: Script, reports: Reports, *, can_find: bool = True) -> str:
    """Send with retries."""
    return await until_answered(
        script.request,
        script.send,
        find=script.find if can_find else None,
        backoff=backoff(),
        report=lambda request, error, reaction: reports.append((request, error, reaction)),
    )


async def test_what_the_table_retries_is_sent_again(autojump_clock: MockClock) -> None:
    """Waits double, each failure is reported with its reaction, and the result is returned."""
    loading = broker_error(Request.COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    script = Script(Request.COMMIT, [loading, loading, loading])
    reports: Reports = []
    assert await send(script, reports) == "answer"
    gaps = [after - before for before, after in zip(script.times, script.times[1:], strict=False)]
    assert [round(gap) for gap in gaps] == [1, 2, 4]
    assert (
        reports == [(Request.COMMIT, loading, reaction_to_code(Request.COMMIT, loading.code))] * 3
    )


async def test_the_coordinator_is_looked_up_if_the_row_says_so(
    autojump_clock: MockClock,
) -> None:
    """After NOT_COORDINATOR there is a lookup and no wait; the second time, also a wait."""
    moved = broker_error(Request.COMMIT, ErrorCode.NOT_COORDINATOR)
    script = Script(Request.COMMIT, [moved, moved])
    assert await send(script, []) == "answer"
    assert script.log == ["OffsetCommit", "find", "OffsetCommit", "find", "OffsetCommit"]
    assert script.times[2] == script.times[0]
    assert 0.8 <= script.times[3] - script.times[2] <= 1.2


async def test_a_request_without_a_coordinator_looks_up_none(autojump_clock: MockClock) -> None:
    """A request that finds its broker itself is sent again without a lookup."""
    lost = ConnectionLostError("gone")
    script = Script(Request.LIST_OFFSETS, [lost])
    assert await send(script, [], can_find=False) == "answer"
    assert script.log == ["ListOffsets", "ListOffsets"]


async def test_other_reactions_are_reported_and_raised(autojump_clock: MockClock) -> None:
    """The same exception is raised, after it was reported."""
    stale = broker_error(Request.COMMIT, ErrorCode.ILLEGAL_GENERATION)
    reports: Reports = []
    with pytest.raises(BrokerError) as caught:
        await send(Script(Request.COMMIT, [stale]), reports)
    assert caught.value is stale
    assert [error for _, error, _ in reports] == [stale]


async def test_a_lookup_is_retried_until_it_succeeds(autojump_clock: MockClock) -> None:
    """Every failure that is not final is retried after a wait."""
    script = Script(Request.FIND_COORDINATOR)
    script.lost = [ConnectionLostError("a"), RequestTimeoutError("b")]
    reports: Reports = []
    await find_coordinator(
        script.find,
        backoff(),
        lambda request, error, reaction: reports.append((request, error, reaction)),
    )
    assert script.log == ["find"] * 3
    assert {request for request, _, _ in reports} == {Request.FIND_COORDINATOR}


async def test_a_lookup_that_cannot_succeed_raises(autojump_clock: MockClock) -> None:
    """A failure that no retry can help is raised as the class of its row."""
    script = Script(Request.FIND_COORDINATOR)
    script.lost = [broker_error(Request.FIND_COORDINATOR, ErrorCode.INVALID_GROUP_ID)]
    with pytest.raises(FatalGroupError):
        await find_coordinator(script.find, backoff(), lambda request, error, reaction: None)


def test_a_wait_if_repeated_begins_with_the_second_failure() -> None:
    """After one lost connection there is no wait; after a second one in a row there is."""
    reaction = reaction_to_code(Request.COMMIT, TransportFailure.LOST)
    assert reaction.action is Action.RETRY
    assert [must_wait(reaction, failures) for failures in (1, 2, 3)] == [False, True, True]
    loading = reaction_to_code(Request.COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert must_wait(loading, 1)
    assert not must_wait(reaction_to_code(Request.SYNC, ErrorCode.REBALANCE_IN_PROGRESS), 5)
