"""A program that reads and does not commit gets a warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.events import CommitsMissing, RetriesEnded
from kgroup.generation.generation import Generation
from kgroup.generation.missing_commits import REPORTED_AFTER
from kgroup.interfaces import Message
from kgroup.retries import retrying
from kgroup.types import TopicPartition
from kgroup.worker import serve
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


@pytest.mark.parametrize("minutes", [1, 2])
async def test_a_short_program_that_does_not_commit(
    minutes: int, autojump_clock: MockClock
) -> None:
    """It is reported when the group closes, even after a single batch."""
    async with harness(2) as here:
        await play(here, commits=False, minutes=minutes)
        assert reported(here) == [(P0,)]


async def test_one_batch_of_each_partition(autojump_clock: MockClock) -> None:
    """All partitions are named, again and again, though no more records come."""
    async with harness(2) as here:
        await here.append(5, 0)
        await here.append(5, 1)

        async def handle(generation: Generation) -> None:
            async for _ in generation.records():
                pass

        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(handle, generation)
            await trio.sleep(2.5 * REPORTED_AFTER)
        assert reported(here) == [(P0, P1)] * 2


async def test_work_that_is_sought_again_is_not_finished(autojump_clock: MockClock) -> None:
    """A handler that goes back to try its batch again has not forgotten to commit it."""
    async with harness() as here:
        await here.append(1)

        async def handle(generation: Generation) -> None:
            async for batch in generation.records(P0):
                await trio.sleep(MINUTE)
                generation.seek(P0, batch.start_offset)

        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(handle, generation)
            await trio.sleep(2.5 * REPORTED_AFTER)
        assert reported(here) == []


@pytest.mark.parametrize("drains", [True, False])
async def test_a_batch_that_is_left_unfinished(drains: bool, autojump_clock: MockClock) -> None:
    """Nothing is reported of a batch in hand at the shutdown, whether it is left or cut short."""
    async with harness() as here:
        await here.append(1)

        async def handle(generation: Generation) -> None:
            async for _ in generation.records(P0):
                if drains:
                    await generation.ending.wait()
                else:
                    await trio.sleep_forever()

        async with here.group(drain_timeout=1.0) as group:
            generation = await group.next()
            generation.start_soon(handle, generation)
            await trio.sleep(1)
        assert reported(here) == []


async def test_a_retry_that_a_shutdown_ends(autojump_clock: MockClock) -> None:
    """A worker whose function has processed nothing yet has forgotten nothing."""
    async with harness() as here:
        await here.append(1)

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError

        async with here.group() as group, trio.open_nursery() as nursery:
            nursery.start_soon(serve, group, retrying(handle, backoff=60.0))
            await trio.sleep(5)
            group.shutdown()
        assert here.events_of(RetriesEnded)
        assert reported(here) == []


@pytest.mark.parametrize("known", [True, False])
async def test_own_offsets_need_no_commit(known: bool, autojump_clock: MockClock) -> None:
    """Nothing is reported to programs that keep their own offsets."""
    async with harness(2) as here:
        starts = {P0: 0} if known else {}
        await play(here, commits=False, minutes=20, starts=lambda _: starts)
        assert reported(here) == []
