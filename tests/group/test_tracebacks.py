"""What Python prints of a task's exception, on trio: its note, and no cancellation."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

import kgroup
from kgroup.error_codes import ErrorCode
from kgroup.errors import AuthorizationError
from kgroup.events import GenerationEnded
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.types import TopicPartition
from tests.group.harness import harness

NOTE = (
    "read raised this in generation 1 of group 'group'; it was started with topic-0; its stream"
    " last handed out offsets 0 to 4 of topic-0"
)
SERVED = "handle raised this for offsets 0 to 4 of topic-0, in generation 1 of group 'group'"

Body = Callable[[ConsumerGroup], Awaitable[None]]


async def read(generation: Generation, partition: TopicPartition) -> None:
    """A task that raises for its first batch."""
    async for _ in generation.records(partition):
        fail()


async def handle(_: Generation, batch: Batch) -> None:
    """A worker's function that raises."""
    await trio.lowlevel.checkpoint()
    fail()


def fail() -> None:
    """Raise an exception with a cause of the program's."""
    try:
        raise KeyError("cause")
    except KeyError as error:
        raise ValueError("mine") from error


async def iterate(group: ConsumerGroup) -> None:
    """A body that waits for the next generation."""
    async for generation in group:
        for partition in generation.assignment:
            generation.start_soon(read, generation, partition)


async def wait_elsewhere(group: ConsumerGroup) -> None:
    """A body that is in another call when it is cancelled."""
    generation = await group.next()
    for partition in generation.assignment:
        generation.start_soon(read, generation, partition)
    await trio.sleep_forever()


async def serve(group: ConsumerGroup) -> None:
    """A worker."""
    await kgroup.serve(group, handle)


@pytest.mark.parametrize(
    ("body", "note"),
    [(iterate, NOTE), (wait_elsewhere, NOTE), (serve, SERVED)],
    ids=["iterate", "elsewhere", "serve"],
)
async def test_the_traceback_of_a_task(autojump_clock: MockClock, body: Body, note: str) -> None:
    """It has one note and the program's cause, and no cancellation."""
    async with harness() as here:
        await here.append(5)
        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await body(group)
    printed = "".join(traceback.format_exception(raised.value))
    assert "Cancelled" not in printed
    assert printed.count("raised this") == 1
    assert note in printed
    assert "KeyError: 'cause'" in printed
    assert printed.startswith("  + Exception Group Traceback")


@pytest.mark.parametrize(
    ("body", "end"),
    [
        (iterate, "read raised ValueError('mine'), with offsets 0 to 4 of topic-0"),
        (serve, "handle raised ValueError('mine'), for offsets 0 to 4 of topic-0"),
    ],
)
async def test_the_end_says_which_records_raised(
    autojump_clock: MockClock, body: Body, end: str
) -> None:
    """The log has it when the generation ends; the exception itself may surface much later."""
    async with harness() as here:
        await here.append(5)
        with pytest.RaisesGroup(ValueError):
            async with here.group() as group:
                await body(group)
        assert [event.end.detail for event in here.events_of(GenerationEnded)] == [end]


async def test_what_the_program_handles_outside_is_the_context(autojump_clock: MockClock) -> None:
    """A block within ``except`` raises its tasks' exceptions with that context, as Python does."""
    async with harness() as here:
        await here.append(5)
        with pytest.raises(ExceptionGroup) as raised:
            try:
                raise LookupError("outside")
            except LookupError:
                async with here.group() as group:
                    await iterate(group)
    printed = "".join(traceback.format_exception(raised.value))
    assert printed.startswith("Traceback (most recent call last):")
    assert "LookupError: outside" in printed
    assert "Cancelled" not in printed


async def test_a_group_in_an_exit_stack(autojump_clock: MockClock) -> None:
    """The stack sets contexts itself, and does not bring the cancellation back."""
    async with harness() as here:
        await here.append(5)
        with pytest.raises(ExceptionGroup) as raised:
            async with AsyncExitStack() as stack:
                await iterate(await stack.enter_async_context(here.group()))
    assert "Cancelled" not in "".join(traceback.format_exception(raised.value))


async def test_an_exception_of_the_body_keeps_its_context(autojump_clock: MockClock) -> None:
    """It has no note, because no function that a generation started has raised it."""
    async with harness() as here:
        with pytest.raises(ValueError, match="of the body") as raised:
            async with here.group() as group:
                await group.next()
                try:
                    raise LookupError("its context")
                except LookupError:
                    raise ValueError("of the body")  # noqa: B904 # the context is what is tested
    assert isinstance(raised.value.__context__, LookupError)
    assert not hasattr(raised.value, "__notes__")


async def test_a_scope_keeps_the_cause_of_what_it_raises(autojump_clock: MockClock) -> None:
    """Leaving the stale errors out of a group takes nothing from the group that is left."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        stale = kgroup.LeaseExpiredError("stale", None)
        cause = LookupError("cause")
        with pytest.raises(ExceptionGroup) as raised, generation.scope():
            raise ExceptionGroup("both", [stale, ValueError("mine")]) from cause
        assert raised.value.__cause__ is cause
        assert [str(one) for one in raised.value.exceptions] == ["mine"]
        assert raised.value.__context__ is None


async def test_each_call_raises_what_ended_the_group_with_the_same_traceback(
    autojump_clock: MockClock,
) -> None:
    """A program that goes on calling `next` adds nothing to the exception."""
    lengths: list[int] = []
    async with harness() as here:
        here.broker.inject("join_group", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(AuthorizationError):
            async with here.group() as group:
                for _ in range(10):
                    with pytest.raises(AuthorizationError) as raised:
                        await group.next()
                    lengths.append(len(traceback.extract_tb(raised.value.__traceback__)))
                raise raised.value
    assert len(set(lengths)) == 1
