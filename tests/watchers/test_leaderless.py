"""Which partitions without a leader are reported, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.types import TopicPartition
from kgroup.watchers.leaderless import LEADERLESS_AFTER, REPEATED_AFTER, LeaderlessPartitions

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
Reports = list[tuple[float, Collection[TopicPartition]]]


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[LeaderlessPartitions, Reports]]:
    """What is watched, and each report with the seconds since the beginning."""
    began = trio.current_time()
    reports: Reports = []
    partitions = LeaderlessPartitions(
        lambda names: reports.append((round(trio.current_time() - began, 6), names))
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partitions.watch)
        await trio.testing.wait_all_tasks_blocked()
        yield partitions, reports
        nursery.cancel_scope.cancel()


async def test_one_that_has_no_leader_for_long(autojump_clock: MockClock) -> None:
    """It is reported after half a minute, and then every five minutes, without another poll."""
    async with watched() as (partitions, reports):
        partitions.found({A})
        await trio.sleep(LEADERLESS_AFTER + 2 * REPEATED_AFTER + 1)
        first = LEADERLESS_AFTER
        assert reports == [
            (first, (A,)),
            (first + REPEATED_AFTER, (A,)),
            (first + 2 * REPEATED_AFTER, (A,)),
        ]
        partitions.found(())
        await trio.sleep(2 * REPEATED_AFTER)
        assert len(reports) == 3


async def test_another_one(autojump_clock: MockClock) -> None:
    """It is reported at its own time, with those that were reported before."""
    async with watched() as (partitions, reports):
        partitions.found({B})
        await trio.sleep(10)
        partitions.found({A, B})
        await trio.sleep(LEADERLESS_AFTER + REPEATED_AFTER + 1)
        assert reports == [
            (LEADERLESS_AFTER, (B,)),
            (LEADERLESS_AFTER + 10, (A, B)),
            (LEADERLESS_AFTER + 10 + REPEATED_AFTER, (A, B)),
        ]


@pytest.mark.parametrize("reported", [False, True])
async def test_one_that_gets_a_leader(autojump_clock: MockClock, *, reported: bool) -> None:
    """It is reported no more; the next time without a leader counts by itself."""
    async with watched() as (partitions, reports):
        for _ in range(3):
            partitions.found({A})
            await trio.sleep(LEADERLESS_AFTER + (1 if reported else -1))
            partitions.found(())
            await trio.sleep(5)
        assert [names for _, names in reports] == [(A,)] * 3 * reported


async def test_one_that_gets_a_leader_at_the_very_moment(autojump_clock: MockClock) -> None:
    """A report names at least one partition, in whatever order trio runs its tasks."""
    for _ in range(20):
        async with watched() as (partitions, reports):
            partitions.found({A})
            await trio.sleep(LEADERLESS_AFTER)
            partitions.found(())
            await trio.sleep(REPEATED_AFTER)
            assert [names for _, names in reports] in ([], [(A,)])
