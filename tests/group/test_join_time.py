"""What lies between the response of a JoinGroup and the generation, counted in round trips."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.coordinator import OPENING_GRACE
from kgroup.errors import ConnectionLostError
from kgroup.events import Event, GenerationStarted, Joined, Joining, RequestFailed
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.wire.broker_connection import BrokerConnection
from tests.group.harness import P0, P1, Harness, harness

ROUND_TRIP = 0.25
"""Seconds of virtual time that each response takes."""
DELAY = {"group.initial.rebalance.delay.ms": "3000"}
"""So long are the JoinGroups of a new group parked."""


async def join_together(here: Harness) -> list[dict[type[Event], float]]:
    """Let two members join a group that has offsets; return when each of their events came."""
    async with here.group() as group:
        await (await group.next()).commit({P0: 0, P1: 0})
    here.broker.slow(ROUND_TRIP)
    members: list[dict[type[Event], float]] = []

    async def member(at: dict[type[Event], float], seed: int) -> None:
        def note(event: Event) -> None:
            at.setdefault(type(event), here.now)

        runtime = memory_runtime(here.broker, seed=seed)
        async with ConsumerGroup(here.config(), runtime=runtime, on_event=note) as group:
            await group.next()

    async with trio.open_nursery() as nursery:
        for seed in range(2):
            members.append({})
            nursery.start_soon(member, members[-1], seed)
    return members


async def test_the_hand_over_comes_three_round_trips_after_the_join(
    autojump_clock: MockClock,
) -> None:
    """The leader's Metadata, SyncGroup and OffsetFetch: all connections are open by then."""
    async with harness(2, **DELAY) as here:
        for at in await join_together(here):
            assert at[GenerationStarted] - at[Joined] == pytest.approx(3 * ROUND_TRIP)


async def test_a_join_does_not_fail_with_the_connection_that_it_opens(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request on that connection tries again, and no failure is reported."""

    async def fail(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ConnectionLostError("on purpose")

    monkeypatch.setattr(BrokerConnection, "open", fail)
    async with harness(2, **DELAY) as here:
        for at in await join_together(here):
            assert at[GenerationStarted] - at[Joined] == pytest.approx(4 * ROUND_TRIP)
            assert RequestFailed not in at


async def test_a_connection_that_does_not_open_delays_a_join_by_a_moment_only(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation, and with it the heartbeats, begin ``OPENING_GRACE`` later."""

    async def hang(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    async def durations() -> list[float]:
        async with harness(2, **DELAY) as here:
            return [at[Joined] - at[Joining] for at in await join_together(here)]

    usual = await durations()
    monkeypatch.setattr(BrokerConnection, "open", hang)
    assert await durations() == pytest.approx([seconds + OPENING_GRACE for seconds in usual])
