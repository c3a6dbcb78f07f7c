"""A stale generation ends its tasks quietly, whichever task notices first."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.cluster import Cluster
from kgroup.client.coordinator import CoordinatorClient
from kgroup.config import GroupConfig
from kgroup.errors import StaleGenerationError
from kgroup.events import CommitRefused
from kgroup.generation.generation import Generation
from kgroup.group import default_runtime
from kgroup.runtime import Runtime
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause
from tests.group.harness import P0, Harness, harness


async def evict(here: Harness, member_id: str) -> None:
    """Remove a member from the group, as an administrator does."""
    await evict_by(here.config(), member_id, memory_runtime(here.broker))


async def evict_by(config: GroupConfig, member_id: str, runtime: Runtime | None = None) -> None:
    """Remove a member from a group, over TCP by default."""
    runtime = runtime or default_runtime()
    cluster = Cluster(config, runtime.open_stream, runtime.random)
    coordinator = CoordinatorClient(cluster, config)
    await coordinator.leave(member_id, None, "an administrator")
    await coordinator.aclose()
    await cluster.aclose()


@pytest.mark.parametrize("slow", ["heartbeat", "offset_commit"])
async def test_a_heartbeat_and_a_commit_find_out_at_once(
    autojump_clock: MockClock, slow: str
) -> None:
    """A commit in flight while a heartbeat finds the loss reports that loss; no task has failed."""
    async with harness() as here, here.group(heartbeat_interval=1.0) as group:
        refused = []

        async def commits(generation: Generation) -> None:
            await trio.sleep(10)
            await evict(here, generation.member_id)
            here.broker.slow(3.0, slow)
            try:
                await generation.commit({P0: 1}, beyond_read=True)
            except StaleGenerationError as error:
                refused.append(error)
                raise

        first = await group.next()
        first.start_soon(commits, first)
        second = await group.next()
        assert first.end is not None
        assert first.end.cause is Cause.MEMBERSHIP_LOST
        assert [error.end for error in refused] == [first.end]
        assert refused[0].end is first.end
        assert [event.stale for event in here.events_of(CommitRefused)] == [True]
        assert second.member_id != first.member_id
