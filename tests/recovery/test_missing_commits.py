"""A program that reads and does not commit gets a warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.events import CommitsMissing
from kgroup.generation.generation import Generation
from kgroup.generation.missing_commits import REPORTED_AFTER
from kgroup.types import TopicPartition
from tests.group.harness import P0, P1, Harness, harness

MINUTE = 60.0


async def play(here: Harness, *, commits: bool, minutes: int, **settings: Any) -> None:
    """Read a record a minute from two partitions; commit those of the second one, or of both."""

    async def handle(generation: Generation, partition: TopicPartition) -> None:
        async for batch in generation.records(partition):
            if commits or partition == P1:
                await generation.commit({partition: batch.next_offset})

    async with here.group(**settings) as group:
        generation = await group.next()
        for partition in generation.assignment:
            generation.start_soon(handle, generation, partition)
        for _ in range(minutes):
            await here.append(1, 0)
            await here.append(1, 1)
            await trio.sleep(MINUTE)


def reported(here: Harness) -> Sequence[tuple[TopicPartition, ...]]:
    """The partitions of each event."""
    return [event.partitions for event in here.events_of(CommitsMissing)]


async def test_records_flow_and_nothing_is_committed(autojump_clock: MockClock) -> None:
    """It is a warning every five minutes from the second look on, and once more at the close."""
    async with harness(2) as here:
        minutes = int(3.5 * REPORTED_AFTER / MINUTE)
        await play(here, commits=False, minutes=minutes)
        assert reported(here) == [(P0,)] * 3


async def test_records_that_are_committed(autojump_clock: MockClock) -> None:
    """Nothing is reported."""
    async with harness(2) as here:
        await play(here, commits=True, minutes=20)
        assert reported(here) == []


async def test_a_record_that_takes_long(autojump_clock: MockClock) -> None:
    """A handler that works on one batch for an hour has not forgotten to commit."""
    async with harness() as here:
        await here.append(1)

        async def handle(generation: Generation) -> None:
            async for batch in generation.records(P0):
                await trio.sleep(60 * MINUTE)
                await generation.commit({P0: batch.next_offset})
                group.shutdown()

        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(handle, generation)
            await trio.sleep(61 * MINUTE)
        assert reported(here) == []


async def test_a_short_program_that_does_not_commit(autojump_clock: MockClock) -> None:
    """It is reported when the group closes, unless it was stopped in its first batch."""
    async with harness(2) as here:
        await play(here, commits=False, minutes=1)
        assert reported(here) == []
    async with harness(2) as here:
        await play(here, commits=False, minutes=2)
        assert reported(here) == [(P0,)]


@pytest.mark.parametrize("known", [True, False])
async def test_own_offsets_need_no_commit(known: bool, autojump_clock: MockClock) -> None:
    """Nothing is reported to programs that keep their own offsets."""
    async with harness(2) as here:
        starts = {P0: 0} if known else {}
        await play(here, commits=False, minutes=20, starts=lambda _: starts)
        assert reported(here) == []
