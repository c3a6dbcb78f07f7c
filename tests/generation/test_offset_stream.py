"""Streams of offsets: where partitions begin, how far they can be read, when they are over."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import NoOffsetError, NotOwnedError, OffsetOutOfRangeError, UsageError
from kgroup.events import PartitionsNotRead
from kgroup.types import TopicPartition
from tests.group.world import world

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


async def test_begin_and_end(autojump_clock: MockClock) -> None:
    """A committed partition begins there, another where the rule says; the end is the log's."""
    async with world(2) as here:
        await here.append(10, 0)
        await here.append(4, 1)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({P0: 7}, beyond_read=True)
        async with here.group() as group:
            offsets = (await group.next()).offsets()
            assert offsets.partitions == {P0, P1}
            assert await offsets.begin() == {P0: 7, P1: 0}
            assert await offsets.end() == {P0: 10, P1: 4}
            assert await offsets.first() == {P0: 0, P1: 0}
            before = len(here.requests)
            await offsets.end()
            sent = [api for _, api, _ in here.requests[before:]]
            assert sent.count("list_offsets") == 1


async def test_the_partitions_count_as_read(autojump_clock: MockClock) -> None:
    """They are no other stream's while it is open, and no warning names them."""
    async with world(2) as here, here.group() as group:
        generation = await group.next()
        offsets = generation.offsets()
        with pytest.raises(UsageError, match="topic-0: another stream"):
            generation.records(P0)
        with pytest.raises(NotOwnedError):
            generation.offsets(TopicPartition("topic", 2))
        await trio.sleep(60)
        assert not here.events_of(PartitionsNotRead)
        offsets.close()
        assert not offsets.running
        generation.records(P0)


async def test_an_offset_that_is_gone(autojump_clock: MockClock) -> None:
    """The rule decides where to continue, and a commit from there is not behind the floor."""
    async with world() as here:
        await here.append(10)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({P0: 9}, beyond_read=True)
            assert await generation.offsets().reset(P0, 9) == 0
            await generation.commit({P0: 3})
        async with here.group(auto_offset_reset="error") as group:
            offsets = (await group.next()).offsets()
            with pytest.raises(OffsetOutOfRangeError, match="offset 3 of topic-0 is not in"):
                await offsets.reset(P0, 3)


async def test_no_offset_at_all(autojump_clock: MockClock) -> None:
    """With the rule ``error`` the program gets the error, and decides."""
    async with world() as here, here.group(auto_offset_reset="error") as group:
        with pytest.raises(NoOffsetError):
            await (await group.next()).offsets().begin()


async def test_a_generation_that_ends(autojump_clock: MockClock) -> None:
    """It is confirmed while it runs, and never again once its end has begun."""
    async with world() as here, here.group() as group:
        offsets = (await group.next()).offsets()
        assert await offsets.confirmed()
        group.shutdown()
        assert not await offsets.confirmed()


async def test_working_for_too_long(autojump_clock: MockClock) -> None:
    """``max_processing_time`` counts from when the program says that it works."""
    async with world() as here, here.group(max_processing_time=5.0) as group:
        generation = await group.next()
        offsets = generation.offsets()
        await trio.sleep(20)
        assert generation.end is None
        offsets.hold(working=True)
        await trio.sleep(3)
        offsets.hold(working=False)
        await trio.sleep(3)
        assert generation.end is None
        offsets.hold(working=True)
        await generation.ending.wait()
        assert offsets.held_for == pytest.approx(5.0, abs=1.5)
        assert "5" in str(generation.end)
