"""Streams that are closed while a call waits for their next batch, beside the embedded broker."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.generation.record_stream import RecordStream
from tests.group.harness import P0, P1, harness


async def read(stream: RecordStream, seen: list[Any]) -> None:
    """Keep what a stream returns, and its end."""
    async for batch in stream:
        seen.append((batch.partition, batch.start_offset))  # noqa: PERF401 # while it reads
    seen.append("end")


@pytest.mark.parametrize("partitions", [(P0,), (P0, P1)])
async def test_closing_a_stream_ends_a_call_that_waits(
    autojump_clock: MockClock, partitions: Any
) -> None:
    """Nothing need arrive for that, and another stream can read the partitions at once."""
    async with harness(2) as here, here.group() as group:
        generation = await group.next()
        first = generation.records(partitions)
        seen: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, first, seen)
            await trio.sleep(5)
            first.close()
            second = generation.records(partitions)
            later: list[Any] = []
            nursery.start_soon(read, second, later)
            await trio.sleep(5)
            assert seen == ["end"]
            first.close()
            assert [batch async for batch in first] == []
            await here.append(1)
            await trio.sleep(5)
            assert later == [(P0, 0)]
            second.close()
        assert later == [(P0, 0), "end"]
