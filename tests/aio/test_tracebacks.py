"""What Python prints of a task's exception, on asyncio: its note, and no cancellation."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable

import pytest
import trio

from kgroup import aio
from kgroup.interfaces import Batch
from kgroup.types import TopicPartition
from tests.aio.test_group import Here, forever, in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.group.test_tracebacks import fail

pytestmark = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)

NOTE = (
    "read raised this in generation 1 of group '{group}'; it was started with {topic}-0;"
    " its stream last handed out offsets 0 to 4 of {topic}-0"
)
SERVED = "handle raised this for offsets 0 to 4 of {topic}-0, in generation 1 of"

Body = Callable[[aio.ConsumerGroup], Awaitable[None]]


async def read(generation: aio.Generation, partition: TopicPartition) -> None:
    """A task that raises for its first batch."""
    async for _ in generation.records(partition):
        fail()


async def handle(_: aio.Generation, batch: Batch) -> None:
    """A worker's function that raises."""
    await asyncio.sleep(0)
    fail()


async def iterate(group: aio.ConsumerGroup) -> None:
    """A body that waits for the next generation."""
    async for generation in group:
        for partition in generation.assignment:
            generation.start_soon(read, generation, partition)


async def wait_elsewhere(group: aio.ConsumerGroup) -> None:
    """A body that is in another call when it is cancelled."""
    generation = await group.next()
    for partition in generation.assignment:
        generation.start_soon(read, generation, partition)
    await generation.wait_ended()
    await forever()


async def serve(group: aio.ConsumerGroup) -> None:
    """A worker."""
    await aio.serve(group, handle)


@pytest.mark.parametrize(
    ("body", "note"),
    [(iterate, NOTE), (wait_elsewhere, NOTE), (serve, SERVED)],
    ids=["iterate", "elsewhere", "serve"],
)
def test_the_traceback_of_a_task(kafka: Kafka, body: Body, note: str) -> None:
    """It has one note and the program's cause, and no cancellation."""
    here = Here(kafka, 1, 5)
    printed: list[str] = []

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await body(group)
        printed.extend(traceback.format_exception(raised.value))

    in_asyncio(main)
    text = "".join(printed)
    assert "Cancelled" not in text
    assert text.count("raised this") == 1
    assert note.format(group=here.harness.group_id, topic=here.harness.topic) in text
    assert "KeyError: 'cause'" in text
    assert text.startswith("  + Exception Group Traceback")


def test_what_the_program_handles_outside_is_the_context(kafka: Kafka) -> None:
    """A block within ``except`` raises its tasks' exceptions with that context."""
    here = Here(kafka, 1, 5)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            try:
                raise LookupError("outside")
            except LookupError:
                async with here.group() as group:
                    await wait_elsewhere(group)
        assert isinstance(raised.value.__context__, LookupError)

    in_asyncio(main)


def test_the_death_of_the_background_thread(kafka: Kafka) -> None:
    """The cancellation of the body is not the context of the error that the block raises."""
    here = Here(kafka)

    def crash() -> None:
        raise ZeroDivisionError("on purpose")

    async def main() -> None:
        with pytest.raises(trio.TrioInternalError) as raised:
            async with here.group() as group:
                await group.next()
                assert group._loop._token is not None
                group._loop._token.run_sync_soon(crash)
                await forever()
        printed = "".join(traceback.format_exception(raised.value))
        assert "ZeroDivisionError: on purpose" in printed
        assert "CancelledError" not in printed

    in_asyncio(main)


def test_a_function_of_run_has_no_note(kafka: Kafka) -> None:
    """Its exception goes to its caller, whose function gets the note if it does not catch it."""
    here = Here(kafka, 1, 5)

    async def inner() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            with pytest.raises(ValueError, match="mine") as raised:
                await generation.run(inner)
            assert not hasattr(raised.value, "__notes__")

    in_asyncio(main)
