"""Programs with values and a store of their own, and what their assertions find."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import pytest
import trio

from kgroup import ArgumentError, ConsumerGroup, UsageError, serve
from kgroup.interfaces import Batch
from kgroup.testing.simulation import (
    Process,
    Scenario,
    SimulationError,
    check,
    generate_plan,
    history,
    simulate,
)
from kgroup.types import TopicPartition

SCENARIO = Scenario(members=2, brokers=1, duration=60.0, faults_per_hour=60.0)


def document(partition: TopicPartition, number: int) -> bytes:
    """A value as programs in production read them."""
    return json.dumps({"partition": partition.partition, "number": number}).encode()


async def reader(process: Process) -> None:
    """Reads JSON, and adds the numbers to the store."""

    async def handle(generation: Any, batch: Batch) -> None:
        for message in batch:
            value = json.loads(message.value() or b"")
            assert value["partition"] == message.partition()
            process.store.append(value["number"])
            await process.process(message)

    async with ConsumerGroup(process.config()) as group:
        await serve(group, handle)


def test_a_program_reads_its_own_values_and_has_a_store_for_each_run() -> None:
    """Every invariant holds, topics that are created again included, and no run sees another's."""
    stores: list[list[int]] = []

    def setup() -> list[int]:
        stores.append([])
        return stores[-1]

    summary = check(SCENARIO, range(3), reader, value=document, setup=setup, processes=1)
    assert summary.processed > 20
    assert len(stores) == 4
    assert stores[0] == []  # it was tried out
    assert all(stores[1:])
    assert min(map(min, stores[1:])) < 10


def test_the_store_is_left_after_each_run() -> None:
    """A context manager is entered before a run and left after it, async or not."""
    events: list[str] = []

    @contextmanager
    def plain() -> Iterator[list[int]]:
        events.append("entered")
        yield []
        events.append("left")

    @asynccontextmanager
    async def in_loop() -> AsyncIterator[list[int]]:
        await trio.lowlevel.checkpoint()
        events.append("entered")
        yield []
        events.append("left")

    async def made() -> list[int]:
        await trio.lowlevel.checkpoint()
        return []

    plan = generate_plan(SCENARIO, 1)
    for setup in (plain, in_loop, made):
        assert not simulate(plan, reader, value=document, setup=setup).violations
    assert events == ["entered", "left"] * 2


async def doubting(process: Process) -> None:
    """Asserts what does not hold."""

    async def handle(generation: Any, batch: Batch) -> None:
        for message in batch:
            await process.process(message)
            process.store.append(message.offset())
        assert len(process.store) < 30, "too many"

    async with ConsumerGroup(process.config()) as group:
        await serve(group, handle)


def test_a_failed_assertion_is_the_result() -> None:
    """It names the program, the text and the line; while it is shrunk each run has a new store."""
    made: list[list[int]] = []

    def setup() -> list[int]:
        made.append([])
        return made[-1]

    with pytest.raises(SimulationError) as caught:
        check(SCENARIO, range(4), doubting, setup=setup, processes=1, most_runs=5)
    text = str(caught.value)
    assert "invariant 14 broken" in text
    assert "AssertionError: too many" in text
    assert "test_workload.py:" in text
    assert "in handle)" in text
    assert 'assert len(process.store) < 30, "too many"\n' in text
    assert "AssertionError: once at" in text
    assert "import doubting as worker\n" in text
    assert "setup = ...  # test_a_failed_assertion_is_the_result.<locals>.setup\n" in text
    assert "outcome = simulate(plan, worker, setup=setup)\n" in text
    assert len(made) > 2
    assert all(len(one) < 100 for one in made)


async def broken(process: Process) -> None:
    """Cannot read what is written."""

    async def handle(generation: Any, batch: Batch) -> None:
        await trio.lowlevel.checkpoint()
        json.loads(f"{batch.messages[0].value()!r}")

    async with ConsumerGroup(process.config()) as group:
        await serve(group, handle)


def test_a_program_that_always_fails_proves_nothing() -> None:
    """The simulation ends, with the program's error, and says how to give it values."""
    wanted = r"30 times in a row.*JSONDecodeError.*`value=`.*`setup="
    with pytest.raises(SimulationError, match=wanted):
        check(SCENARIO, range(2), broken, processes=1, most_runs=0)


async def poisoned(process: Process) -> None:
    """Fails at one record of each partition, after those before it in the batch."""

    async def handle(generation: Any, batch: Batch) -> None:
        for message in batch:
            if message.offset() == 1:
                raise LookupError("poison")
            await process.process(message)

    async with ConsumerGroup(process.config()) as group:
        await serve(group, handle)


def test_records_that_each_start_repeats_are_no_progress() -> None:
    """A record at which every start fails ends the simulation, though those before it succeed."""
    plan = attrs.evolve(
        generate_plan(SCENARIO, 0), topics={"orders": 1}, records_every=1.0, records_at_once=4
    )
    outcome = simulate(plan, poisoned)
    processed = [one.offset for one in outcome.history if isinstance(one, history.Processed)]
    assert processed.count(0) > 1
    assert set(processed) == {0}
    (violation,) = outcome.violations
    assert violation.number == 14
    assert "LookupError: poison" in str(violation)


async def misused(process: Process) -> None:
    """Does what kgroup refuses."""
    async with ConsumerGroup(process.config()) as group:
        group.subscribe(())
        await group.next()


def test_a_program_that_kgroup_refuses_needs_no_values() -> None:
    """The simulation ends with kgroup's own words, and guesses nothing about values."""
    with pytest.raises(SimulationError, match=r"30 times in a row") as raised:
        check(SCENARIO, range(2), misused, processes=1, most_runs=0)
    assert "`value=`" not in str(raised.value)


@pytest.mark.parametrize("wrong", [{"value": 7}, {"setup": []}])
def test_what_is_no_function_is_refused(wrong: dict[str, Any]) -> None:
    """Nothing is simulated."""
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        check(SCENARIO, range(1), reader, **wrong)


def test_values_are_bytes() -> None:
    """What a function returns instead is named."""
    wrong: Any = lambda partition, number: f"{partition} {number}"  # noqa: E731 # as users write it
    with pytest.raises(UsageError, match=r"value\(.*\) returned .*it must return bytes"):
        check(SCENARIO, range(1), reader, value=wrong, setup=list, processes=1)


@pytest.mark.parametrize("name", ["value", "setup"])
def test_an_error_of_a_function_of_the_program_is_raised_bare(name: str) -> None:
    """Its traceback goes from the caller to the program's function, and a note says when."""

    def fails(*_: object) -> bytes:
        raise LookupError("mine")

    given: Any = {name: fails}
    with pytest.raises(LookupError, match="mine") as raised:
        check(SCENARIO, [4], reader, processes=1, **given)
    assert [one.name for one in raised.traceback][-2:] == ["check", "fails"]
    assert raised.value.__notes__ == [
        f"This happened when `{name}` was tried out, before any simulation."
    ]
    assert raised.value.__context__ is None
