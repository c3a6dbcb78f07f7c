"""Commits past the records handed out are refused, unless the program skips on purpose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import OffsetBeyondReadError
from kgroup.events import CommitRefused
from kgroup.types import OffsetAndMetadata
from tests.group.harness import P0, P1, harness


async def test_records_that_were_never_handed_out_cannot_be_skipped(
    autojump_clock: MockClock,
) -> None:
    """With 3 of 8 records handed out, 3 is committed and 8 is refused; nothing is lost."""
    async with harness() as here:
        await here.append(8)
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(generation.records(max_records=3))
            for far in (8, 4, OffsetAndMetadata(4)):
                with pytest.raises(OffsetBeyondReadError, match="given the records up to 3 only"):
                    await generation.commit({P0: far})
            producer: Any = SimpleNamespace(send_offsets_to_transaction=pytest.fail)
            with pytest.raises(OffsetBeyondReadError):
                await generation.commit_in_transaction(producer, {P0: 4})
            assert here.requests_for("offset_commit") == []
            await generation.commit({P0: batch.next_offset})
        assert await here.committed() == {P0: 3}
        assert here.events_of(CommitRefused) == []


async def test_a_program_may_skip_records_on_purpose(autojump_clock: MockClock) -> None:
    """It may pass beyond_read=True, seek first, or read by other means."""
    async with harness(2) as here:
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({P0: 5}, beyond_read=True)
            generation.seek(P0, 9)
            await generation.commit({P0: 9})
            with pytest.raises(OffsetBeyondReadError):
                await generation.commit({P0: 10})
            with generation.scope():
                stream = generation.offsets(P1)
                stream.close()
                await generation.commit({P1: 70})
        assert await here.committed() == {P0: 9, P1: 70}


async def test_two_streams_and_one_that_was_never_opened(autojump_clock: MockClock) -> None:
    """Each partition has its own upper bound; without a stream it is the start position."""
    async with harness(2) as here:
        await here.append(4)
        await here.append(4, 1)
        async with here.group() as group:
            generation = await group.next()
            first = generation.records(P0, max_records=3)
            assert (await anext(first)).next_offset == 3
            first.close()
            with pytest.raises(OffsetBeyondReadError, match="it was given none yet"):
                await generation.commit({P0: 3, P1: 1})
            await generation.commit({P0: 3, P1: 0})
            assert (await anext(generation.records(P0))).next_offset == 4
            await generation.commit({P0: 4})


async def test_a_kept_partition_keeps_its_upper_bound(autojump_clock: MockClock) -> None:
    """A program that keeps results over a rebalance may commit them in the next generation."""
    async with harness() as here:
        await here.append(8)
        async with here.group() as group:
            before = await group.next()
            assert (await anext(before.records(max_records=6))).next_offset == 6
            await before.commit({P0: 2})
            await here.broker.add_partitions("topic", 2)
            after = await group.next()
            assert after.start_offsets[P0] == 2
            with pytest.raises(OffsetBeyondReadError):
                await after.commit({P0: 7})
            await after.commit({P0: 6})
            here.broker.inject("heartbeat", 25)
            await after.ending.wait()
            lost = await group.next()
            with pytest.raises(OffsetBeyondReadError, match="it was given none yet"):
                await lost.commit({P0: 7})


async def test_past_the_latest_position(autojump_clock: MockClock) -> None:
    """kgroup commits a start position by ``latest``, and it is the upper bound."""
    async with harness() as here:
        await here.append(5)
        async with here.group(auto_offset_reset="latest") as group:
            generation = await group.next()
            await generation.commit({P0: 5})
            with pytest.raises(OffsetBeyondReadError):
                await generation.commit({P0: 6})
            await trio.sleep(1)
        assert await here.committed() == {P0: 5}
