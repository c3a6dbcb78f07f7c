"""Ctrl-C in a program on plain trio, which has no handler of its own for the signal."""

from __future__ import annotations

import gc
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any, final

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.events import Event, GenerationDraining
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from tests.group.harness import Harness, harness

PARTITIONS = 3
RECORDS = 4
SECONDS = 1.7
"""How long the program works on each batch."""
SAMPLES = 40


@final
class Moments:
    """What kgroup does, counted; at one of these moments Ctrl-C is pressed."""

    def __init__(self, pressed_at: int | None) -> None:
        self.pressed_at = pressed_at
        self.count = 0

    def pass_one(self) -> None:
        """Note one more."""
        self.count += 1
        if self.count == self.pressed_at:
            signal.raise_signal(signal.SIGINT)


@final
@attrs.frozen
class ObservedStream(trio.abc.Stream):
    """A connection on which a moment passes before and after each call."""

    inner: trio.abc.Stream
    moments: Moments

    async def send_all(self, data: Any) -> None:
        """Send."""
        self.moments.pass_one()
        await self.inner.send_all(data)
        self.moments.pass_one()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait."""
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive."""
        self.moments.pass_one()
        received = await self.inner.receive_some(max_bytes)
        self.moments.pass_one()
        return received

    async def aclose(self) -> None:
        """Close."""
        await self.inner.aclose()


@final
@attrs.frozen
class ObservedClock:
    """A clock; whenever it is read, a moment passes."""

    read: Callable[[], float]
    moments: Moments

    def now(self) -> float:
        """The time."""
        self.moments.pass_one()
        return self.read()


def observed_group(here: Harness, moments: Moments) -> ConsumerGroup:
    """A group whose connections and clock tell the moments."""
    runtime = memory_runtime(here.broker)

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        return ObservedStream(await runtime.open_stream(host, port), moments)

    return ConsumerGroup(
        here.config(),
        runtime=attrs.evolve(
            runtime, open_stream=open_stream, clock=ObservedClock(runtime.clock.now, moments)
        ),
        on_event=here.events.append,
    )


async def program(moments: Moments, processed: Counter[TopicPartition]) -> Harness:
    """Process all records in tasks, and commit them; then leave the group."""
    async with harness(PARTITIONS) as here:
        for number in range(PARTITIONS):
            await here.append(RECORDS, number)
        group = observed_group(here, moments)

        async def handle(generation: Any, partition: TopicPartition) -> None:
            async for batch in generation.records(partition):
                await trio.sleep(SECONDS)
                processed[partition] = batch.next_offset
                await generation.commit({partition: batch.next_offset})

        interrupted = False
        try:
            async with group:
                async for generation in group:
                    for partition in generation.assignment:
                        generation.start_soon(handle, generation, partition)
                    with trio.move_on_after(2 * SECONDS):
                        await generation.wait_ended()
                    group.shutdown()
        except* KeyboardInterrupt:
            interrupted = True
        assert interrupted is (moments.pressed_at is not None)
        assert await here.committed() == dict(processed)
        assert [member for found in await here.broker.groups() for member in found.members] == []
        return here


def played(pressed_at: int | None) -> tuple[int, Counter[TopicPartition]]:
    """Run the program; return how many moments it had, and what it processed."""
    moments = Moments(pressed_at)
    processed: Counter[TopicPartition] = Counter()
    trio.run(program, moments, processed, clock=MockClock(autojump_threshold=0))
    return moments.count, processed


def test_ctrl_c_is_the_programs_whatever_kgroup_does_at_that_moment(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """It surfaces from the block; tasks finish and commit their batches, and the member leaves."""
    total, processed = played(None)
    assert set(processed.values()) == {RECORDS}
    for pressed_at in range(1, total, total // SAMPLES):
        played(pressed_at)
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_ctrl_c_in_the_drain_shows_what_the_body_has_raised() -> None:
    """The body's exception is the context of what surfaces from the block."""
    clock = MockClock(autojump_threshold=0)
    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(interrupted_as_its_body_raised, clock=clock)
    assert caught.value.subgroup(KeyboardInterrupt) is not None
    assert isinstance(caught.value.__context__, ValueError)


async def interrupted_as_its_body_raised() -> None:
    """Raise in the body of a group; Ctrl-C is pressed when it begins to drain."""

    def press(event: Event) -> None:
        if isinstance(event, GenerationDraining):
            signal.raise_signal(signal.SIGINT)

    async with harness() as here:
        runtime = memory_runtime(here.broker)
        async with ConsumerGroup(here.config(), runtime=runtime, on_event=press) as group:
            generation = await group.next()
            generation.start_soon(trio.sleep, SECONDS)
            raise ValueError("of the body")
