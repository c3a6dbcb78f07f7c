"""A program with two groups that read the same partitions."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable

import pytest
import trio

from kgroup.errors import UsageError
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.testing.simulation import Process, history, simulate
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.summary import Summary
from kgroup.types import TopicPartition
from tests.testing.simulation.samples import a_plan

NAMES = ("one", "two")


def with_two_groups(process_batch: Callable[[Process, str, Batch], Awaitable[None]]) -> Worker:
    """A program that reads every record in two groups."""

    async def read(process: Process, name: str) -> None:
        async with ConsumerGroup(process.config(group_id=name)) as group:
            async for generation in group:
                async for batch in generation.records():
                    await process_batch(process, name, batch)
                    await generation.commit({batch.partition: batch.next_offset})

    async def program(process: Process) -> None:
        async with trio.open_nursery() as nursery:
            for name in NAMES:
                nursery.start_soon(read, process, name)

    return program


async def _process_all(process: Process, _: str, batch: Batch) -> None:
    for message in batch.messages:
        await process.process(message)


def test_each_group_has_its_own_records() -> None:
    """No invariant is broken if each group processes every record once."""
    outcome = simulate(a_plan(), with_two_groups(_process_all))
    assert outcome.violations == ()
    summary = Summary.of(outcome.history)
    assert summary.written == summary.processed > 0
    assert summary.repeated == 0
    done = [one for one in outcome.history if isinstance(one, history.Processed)]
    assert len(done) == 2 * summary.processed
    assert {one.group_id for one in done} == set(NAMES)


def test_what_one_group_loses_the_other_does_not_excuse() -> None:
    """A record that only one of the groups has processed is lost for the other one."""

    async def process_some(process: Process, name: str, batch: Batch) -> None:
        for message in batch.messages[name == "two" :]:
            await process.process(message)

    outcome = simulate(a_plan(), with_two_groups(process_some))
    assert {one.number for one in outcome.violations} == {7}


@pytest.mark.parametrize("reads_twice", [False, True])
def test_what_may_be_of_either_group_is_refused(*, reads_twice: bool) -> None:
    """A copy of a record, and a skip that names no group, are refused where two groups read it."""
    refused: dict[str, str] = {}
    wrong: dict[str, Callable[[Process, Batch], None]] = {
        "the very message": lambda process, batch: process.processed(copy.copy(batch.messages[0])),
        "group_id": lambda process, batch: process.skipped(batch.partition, batch.next_offset),
    }

    async def report(process: Process, name: str, batch: Batch) -> None:
        for words, call in wrong.items():
            try:
                call(process, batch)
            except UsageError as error:
                refused[words] = str(error)
        process.skipped(batch.partition, batch.next_offset, name)

    async def one_group(process: Process) -> None:
        async with ConsumerGroup(process.config()) as group:
            async for generation in group:
                async for batch in generation.records():
                    await report(process, "group", batch)
                    await generation.commit({batch.partition: batch.next_offset})

    outcome = simulate(a_plan(), with_two_groups(report) if reads_twice else one_group)
    assert outcome.violations == ()
    assert set(refused) == (set(wrong) if reads_twice else set())
    for words, error in refused.items():
        assert words in error
        assert "'one', 'two'" in error
    assert any(
        isinstance(one, history.RecordsSkipped) and one.partition == TopicPartition("orders", 0)
        for one in outcome.history
    )
