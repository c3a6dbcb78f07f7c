"""Closing a group gives its record source a deadline."""

from __future__ import annotations

from typing import Any, cast, final

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import in_memory
from kgroup.config import GroupConfig
from kgroup.group import ConsumerGroup
from kgroup.interfaces import RecordSource
from kgroup.records.buffered_source import OnFault
from kgroup.records.memory import MemorySource
from kgroup.testing.memory import config_for, memory_runtime
from tests.closing.harness import AT_ONCE


@final
class Patient:
    """Reads nothing; records at its exit the seconds until the deadline around it."""

    def __init__(self, unused: MemorySource) -> None:
        self._unused = unused
        self.left: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unused, name)

    async def __aenter__(self) -> Patient:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *details: object) -> None:
        self.left = trio.current_effective_deadline() - trio.current_time()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_the_source_has_a_deadline(autojump_clock: MockClock, *, cancelled: bool) -> None:
    """The deadline also holds for a source that shields itself from a cancelled scope.

    Without a deadline, a shielded source could use all of ``close_timeout`` again, after the leave
    has already used it.
    """
    sources = []

    def source(config: GroupConfig, on_fault: OnFault) -> RecordSource:
        sources.append(Patient(MemorySource(config, on_fault, broker.log)))
        return cast("RecordSource", sources[-1])

    async with in_memory(AT_ONCE) as broker:
        await broker.create_topic("topic", 1)
        runtime = attrs.evolve(memory_runtime(broker), record_source=source)
        config = config_for(broker, drain_timeout=0.0)
        with trio.CancelScope() as around:
            async with ConsumerGroup(config, runtime=runtime) as group:
                await group.next()
                if cancelled:
                    around.cancel()
                    await trio.sleep_forever()
    (made,) = sources
    assert made.left is not None
    assert 0 < made.left <= config.longest_close
