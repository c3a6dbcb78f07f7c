"""How far a generation's readers are behind, in virtual time."""

from __future__ import annotations

from typing import Self

import attrs
import pytest
from trio.testing import MockClock

from kgroup.config import GroupConfig
from kgroup.group import ConsumerGroup
from kgroup.interfaces import RecordSource
from kgroup.records.memory import MemorySource
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from tests.group.harness import P0, harness

P1 = TopicPartition("topic", 1)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
async def test_a_generation_knows_how_far_its_readers_are_behind(
    isolation_level: str, autojump_clock: MockClock
) -> None:
    """The lag is the high watermark less the position, known once a stream reads, and no longer."""
    async with harness(2) as here:
        await here.append(50)
        async with here.group(isolation_level=isolation_level) as group:
            generation = await group.next()
            assert generation.lag() == {P0: None, P1: None}
            records = generation.records(P0, max_records=20)
            batch = await anext(records)
            assert (batch.high_watermark, batch.next_offset) == (50, 20)
            assert generation.lag() == {P0: 30, P1: None}
            requests = len(here.requests_for("list_offsets", "metadata"))
            await here.append(10)
            assert generation.lag() == {P0: 40, P1: None}
            assert len(here.requests_for("list_offsets", "metadata")) == requests
            generation.seek(P0, 60)
            assert generation.lag() == {P0: 0, P1: None}
        assert generation.lag() == {P0: None, P1: None}


class _WithoutLag:
    """A record source of the program's own that has only what a source must have."""

    def __init__(self, source: RecordSource) -> None:
        for name in ("assign", "open", "receive", "pause", "resume", "seek", "revoke"):
            setattr(self, name, getattr(source, name))
        self._source = source

    async def __aenter__(self) -> Self:
        await self._source.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._source.__aexit__(*details)


async def test_a_source_need_not_know_the_lag(autojump_clock: MockClock) -> None:
    """With a source that has no ``lag`` it is not known."""
    async with harness() as here:
        await here.append(5)

        def source(config: GroupConfig, on_fault: object) -> RecordSource:
            inner = MemorySource(config, on_fault, here.broker.log)  # type: ignore[arg-type]
            return _WithoutLag(inner)  # type: ignore[return-value]

        runtime = attrs.evolve(memory_runtime(here.broker), record_source=source)
        async with ConsumerGroup(here.config(), runtime=runtime) as group:
            generation = await group.next()
            await anext(generation.records())
            assert generation.lag() == {P0: None}
