"""Programs that keep offsets in a store of their own are simulated as others are."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from kgroup import ConsumerGroup, serve
from kgroup.generation.start_finder import StartFinder
from kgroup.interfaces import Batch
from kgroup.testing.simulation import Process, Scenario, SimulationError, check, generate_plan
from kgroup.testing.simulation.faults import TopicDeleted
from kgroup.types import TopicPartition

SCENARIO = Scenario(duration=300.0, faults_per_hour=200.0, deletes_topics=False)


class Store:
    """The part of the programs' shared store that one of them writes, as a transaction would."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next = process.store

    def starts(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int | None]:
        """For ``GroupConfig.starts``."""
        return {one: self._next.get(one) for one in partitions}

    async def write(self, generation: Any, batch: Batch) -> int | None:
        """Process each record that the store does not have, and store the offset with it."""
        for message in batch:
            if generation.ending.is_set():
                return message.offset()
            await trio.sleep(self._process.random.uniform(0.0, 0.1))
            if message.offset() >= self._next.get(batch.partition, 0):
                self._process.processed(message)
                self._next[batch.partition] = message.offset() + 1
        return None


async def program(process: Process, *, commit: bool) -> None:
    """A worker whose store says where it starts."""
    store = Store(process)
    async with ConsumerGroup(process.config(starts=store.starts)) as group:
        await serve(group, store.write, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_a_store_breaks_no_invariant(commit: bool) -> None:
    """With commits and without, it starts where it should, and each record is processed once."""
    summary = check(SCENARIO, range(4), partial(program, commit=commit), processes=1)
    assert summary.generations > 6
    assert summary.processed > 500
    assert summary.repeated == 0


async def wrong(process: Process, *, by: int) -> None:
    """Its `starts` returns offsets before or after those of its store."""
    store = Store(process)

    def starts(partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        return {one: max(0, at + by) if at else 0 for one, at in store.starts(partitions).items()}

    async def handle(generation: Any, batch: Batch) -> None:
        for message in batch:
            process.processed(message)
            process.store[batch.partition] = message.offset() + 1
        await trio.lowlevel.checkpoint()

    async with ConsumerGroup(process.config(starts=starts)) as group:
        await serve(group, handle)


def test_a_store_that_returns_old_offsets_is_found() -> None:
    """The report says who processed the record before, and what `starts` returned."""
    with pytest.raises(SimulationError) as raised:
        check(SCENARIO, range(3), partial(wrong, by=-3), processes=1, most_runs=0)
    assert re.search(
        r"invariant 15 broken at .*: m\d in generation \d+ processed the record at offset \d+ of"
        r" \S+ again, which m\d in generation \d+ had processed at \S+ s; its"
        r" `starts` had returned \d+\. ",
        str(raised.value),
    )


def test_a_store_that_returns_later_offsets_is_found() -> None:
    """The report of the lost record says whose `starts` passed it."""
    with pytest.raises(SimulationError) as raised:
        check(SCENARIO, range(3), partial(wrong, by=1), processes=1, most_runs=0)
    assert re.search(
        r"invariant 7 broken at .*the record at offset \d+ has not been processed: m\d in"
        r" generation \d+ began at \d+, which its `starts` had returned",
        str(raised.value),
    )


def test_a_store_may_process_at_least_once() -> None:
    """If the scenario says so, repeated records are counted only."""
    scenario = attrs.evolve(SCENARIO, exactly_once=False)
    assert check(scenario, range(3), partial(wrong, by=-3), processes=1).repeated > 0


def test_any_program_can_be_required_to_process_once() -> None:
    """The example worker, which processes at least once, fails then."""
    scenario = attrs.evolve(SCENARIO, exactly_once=True)
    with pytest.raises(SimulationError, match=r"invariant 15 broken .* had started the partition"):
        check(scenario, range(10), processes=1, most_runs=0)


async def seeking(process: Process, *, commit: bool) -> None:
    """As docs/spark_sinks.md: a generation seeks to the store's offsets and commits them."""
    store = Store(process)

    async def handle(generation: Any, partition: TopicPartition) -> None:
        async for batch in generation.records(partition):
            returned = await store.write(generation, batch)
            if commit:
                await generation.commit({partition: returned or batch.next_offset})
            if returned is not None:
                return

    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            own = {
                one: at for one, at in store.starts(generation.assignment.partitions).items() if at
            }
            for partition, offset in own.items():
                generation.seek(partition, offset)
            if commit and own:
                await generation.commit(own)
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition)


@pytest.mark.parametrize("commit", [True, False])
def test_seeking_to_a_store_breaks_no_invariant(commit: bool) -> None:
    """It starts at what it sought, and each record is processed once, with commits and without."""
    scenario = attrs.evolve(SCENARIO, exactly_once=True)
    summary = check(scenario, range(3), partial(seeking, commit=commit), processes=1)
    assert summary.generations > 6
    assert summary.processed > 200
    assert summary.repeated == 0


def test_a_start_that_is_not_the_stores_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If kgroup started elsewhere than the store says, an invariant would say so."""
    begin = StartFinder.begin

    async def begin_late(self: StartFinder, assignment: Any, own: Any) -> Any:
        return await begin(self, assignment, {name: at + 1 for name, at in own.items()})

    monkeypatch.setattr(StartFinder, "begin", begin_late)
    with pytest.raises(SimulationError, match="its program's store has"):
        check(SCENARIO, range(12), partial(program, commit=True), processes=1, most_runs=0)


def test_without_deleted_topics_a_plan_is_otherwise_the_same() -> None:
    """The other faults of a seed stay where they were, unless the deletion chose the program."""
    deleted = 0
    for seed in range(60):
        plan = generate_plan(Scenario(), seed)
        without = generate_plan(Scenario(deletes_topics=False), seed)
        others = tuple(fault for fault in plan.faults if not isinstance(fault, TopicDeleted))
        deleted += len(plan.faults) - len(others)
        assert without.faults == others
    assert deleted > 5
