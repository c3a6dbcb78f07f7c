"""A follower learns from the broker, and not only when it leads, that it may not read a topic."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import AuthorizationError
from tests.group.harness import Harness, harness


async def lead(here: Harness, nursery: trio.Nursery) -> None:
    """Start a member that reads ``topic`` and leads the group."""
    leading = trio.Event()

    async def run() -> None:
        async with here.group() as group:
            async for generation in group:
                assert generation.leader
                leading.set()
                await generation.wait_ended()

    nursery.start_soon(run)
    await leading.wait()


def names(request: Any) -> set[str]:
    """The topics of a Metadata request."""
    return {str(topic.name) for topic in request.topics or ()}


async def test_a_follower_that_may_not_read_its_topic_fails(autojump_clock: MockClock) -> None:
    """It fails as it would as leader, in place of being idle until the leader goes."""
    async with harness() as here, trio.open_nursery() as nursery:
        await lead(here, nursery)
        here.broker.inject(
            "metadata",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            match=lambda request: names(request) == {"secret"},
        )
        with pytest.raises(AuthorizationError, match="grant the user READ"):
            async with here.group(topics=["secret"]) as group:
                await group.next()
        nursery.cancel_scope.cancel()


async def test_a_follower_asks_once(autojump_clock: MockClock) -> None:
    """One Metadata request is the cost, and none for topics of which it has a partition."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        await lead(here, nursery)
        async with here.group(topics=["topic", "later"]) as group:
            for _ in range(3):
                generation = await group.next()
                assert not generation.leader
                generation.start_soon(trio.lowlevel.checkpoint)
        asked = [names(request) for _, request in here.requests_for("metadata")]
        assert [one for one in asked if one == {"later"}] == [{"later"}]
        nursery.cancel_scope.cancel()
