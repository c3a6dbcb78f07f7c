"""Which requests share a connection to the coordinator, and which do not delay others."""

from __future__ import annotations

from itertools import pairwise

import trio
from trio.testing import MockClock

from kgroup.generation.states import State
from tests.group.harness import P0, harness
from tests.recovery.observed_member import QUICK, ObservedMember

HELD_BACK = 20.0
INTERVAL = 1.0


async def test_a_slow_commit_delays_no_heartbeat(autojump_clock: MockClock) -> None:
    """While a commit's response is held back, heartbeats are sent and answered in time."""
    async with harness() as here:
        observed = ObservedMember(
            here,
            **{
                **QUICK,
                "heartbeat_interval": INTERVAL,
                "session_timeout": HELD_BACK / 2,
                "request_timeout": HELD_BACK + 5,
                "commit_timeout": HELD_BACK + 5,
            },
        )
        async with observed.group() as group:
            generation = await group.next()
            here.broker.slow(HELD_BACK, "offset_commit", times=1)
            began = here.now
            await generation.commit({P0: 1}, beyond_read=True)
            assert here.now - began == HELD_BACK
            # Two sessions have passed: without heartbeats the membership would have been lost.
            assert generation.state is State.RUNNING
            beats = [
                it.at
                for it in observed.connections.sent
                if it.api == "heartbeat" and it.at >= began
            ]
            gaps = [later - before for before, later in pairwise(beats)]
            assert len(beats) >= HELD_BACK / INTERVAL - 1
            assert max(gaps) <= 1.5 * INTERVAL
        assert await here.committed() == {P0: 1}


async def test_heartbeats_and_commits_have_a_connection_each(
    autojump_clock: MockClock,
) -> None:
    """JoinGroup, heartbeats and the leave share one; commits and SyncGroup share another."""
    async with harness() as here:
        observed = ObservedMember(here, **QUICK)
        async with observed.group() as group:
            generation = await group.next()
            await trio.sleep(group.config.heartbeat_interval * 2)
            await generation.commit({P0: 1}, beyond_read=True)
        connections = {
            api: {it.connection for it in observed.connections.sent if it.api == api}
            for api in ("join_group", "heartbeat", "sync_group", "offset_commit", "leave_group")
        }
        assert connections["join_group"] == connections["heartbeat"] == connections["leave_group"]
        assert connections["sync_group"] == connections["offset_commit"]
        assert len(connections["join_group"]) == len(connections["offset_commit"]) == 1
        assert connections["join_group"] != connections["offset_commit"]
