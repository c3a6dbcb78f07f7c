"""Where partitions start by the program's own store: calls of the function, and its results."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import ArgumentError
from kgroup.events import Event, OwnStartsDelayed
from kgroup.generation.own_starts import REPORTED_AFTER, OwnStarts
from kgroup.types import TopicPartition
from kgroup.worker_thread import WorkerThread
from tests.generation.fakes import P0, P1, P2, FakeGeneration, member_context

Starts = dict[TopicPartition, Any]


def stored(partitions: tuple[TopicPartition, ...]) -> Starts:
    """The offsets of a store that knows two partitions."""
    assert partitions == (P0, P1)
    return {P0: 7, P1: 0}


async def stored_async(partitions: tuple[TopicPartition, ...]) -> Starts:
    """The same by an async function."""
    await trio.lowlevel.checkpoint()
    return stored(partitions)


class Store:
    """A store whose method is async, and one that can be called."""

    async def load(self, partitions: tuple[TopicPartition, ...]) -> Starts:
        """An async method."""
        return await stored_async(partitions)

    def __call__(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[Starts]:
        """A call that returns an awaitable."""
        return stored_async(partitions)


async def load(function: Callable[..., object], fake: FakeGeneration | None = None) -> Starts:
    """What the generation gets by this function for two partitions, given in any order."""
    it = fake or FakeGeneration(settings={"starts": function})
    async with it.lifecycle.open():
        found = await OwnStarts(it.member, it.lifecycle).load({P1, P0})
    return dict(found)


@pytest.mark.parametrize("function", [stored, stored_async, Store().load, Store()])
async def test_every_kind_of_function(
    autojump_clock: MockClock, function: Callable[..., object]
) -> None:
    """It gets the partitions as a sorted tuple; offset 0 is an offset."""
    assert await load(function) == {P0: 7, P1: 0}


async def test_without_a_function_nothing_is_loaded(autojump_clock: MockClock) -> None:
    """Nothing is called without a function, or without partitions."""
    fake = FakeGeneration()
    assert await OwnStarts(fake.member, fake.lifecycle).load([P0]) == {}
    fake = FakeGeneration(settings={"starts": lambda _: 1 / 0})
    assert await OwnStarts(fake.member, fake.lifecycle).load([]) == {}


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ({}, {}),
        ({P0: None}, {}),
        ({P0: None, P1: 3}, {P1: 3}),
        ({P0: 1, P1: 2, P2: 3}, {P0: 1, P1: 2}),
    ],
)
async def test_what_the_store_does_not_know_is_left_out(
    autojump_clock: MockClock, returned: Starts, found: Starts
) -> None:
    """None and a missing entry mean that the store has none; other partitions are ignored."""
    assert await load(lambda _: returned) == found


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (None, "what the function of GroupConfig.starts returned.*a mapping of kgroup.TopicPart"),
        ([(P0, 1)], "it must be a mapping"),
        ({("t", 0): 1}, "must be a kgroup.TopicPartition"),
        ({"t-0": 1}, "must be a kgroup.TopicPartition"),
        ({P0: -1}, "t-0: the offset in what the function of GroupConfig.starts returned"),
        ({P0: -1}, "librdkafka's OFFSET_END return the end of the log"),
        ({P0: -2}, "librdkafka's OFFSET_BEGINNING return the first offset"),
        ({P0: -1000}, "librdkafka's OFFSET_STORED return None, for the group's committed offset"),
        ({P0: -1001}, "librdkafka's OFFSET_INVALID return None"),
        ({P0: -3}, "t-0: the offset"),
        ({P0: 1.0}, "t-0: the offset"),
        ({P0: True}, "t-0: the offset"),
        ({P0: 2**63}, "t-0: the offset"),
        ({P0: "7"}, "t-0: the offset"),
    ],
)
async def test_a_wrong_result_is_refused(
    autojump_clock: MockClock, returned: object, error: str
) -> None:
    """The error says what was returned, and its note by which function and in which generation."""
    with pytest.raises(ArgumentError, match=error) as caught:
        await refused(lambda _: returned)
    (note,) = caught.value.__notes__
    assert "<lambda>, the function of GroupConfig.starts" in note
    assert "2 partitions in generation 7 of group 'g'; nothing was read" in note


async def refused(function: Callable[..., object]) -> None:
    """Load, and raise the very exception."""
    fake = FakeGeneration(settings={"starts": function})
    raised: Exception | None = None
    async with fake.lifecycle.open():
        try:
            await OwnStarts(fake.member, fake.lifecycle).load([P0, P1])
        except (ArgumentError, OSError) as error:
            raised = error
    assert raised is not None, "nothing was refused"
    raise raised


async def test_what_the_function_raises_is_the_programs(autojump_clock: MockClock) -> None:
    """Its exception is raised as it is, with a note."""
    problem = OSError("no such store")

    def fail(_: object) -> Starts:
        raise problem

    with pytest.raises(OSError, match="no such store") as caught:
        await refused(fail)
    assert caught.value is problem
    assert "function of GroupConfig.starts" in problem.__notes__[0]


async def test_a_function_that_takes_long_is_reported(autojump_clock: MockClock) -> None:
    """It is reported again and again until it returns, and not after that."""

    async def slowly(partitions: tuple[TopicPartition, ...]) -> Starts:
        await trio.sleep(2.5 * REPORTED_AFTER)
        return stored(partitions)

    fake = FakeGeneration(settings={"starts": slowly})
    async with fake.lifecycle.open():
        await OwnStarts(fake.member, fake.lifecycle).load([P0, P1])
        await trio.sleep(5 * REPORTED_AFTER)
    events: list[Event] = fake.emitter.events
    delays = [event for event in events if isinstance(event, OwnStartsDelayed)]
    assert [event.waited for event in delays] == [REPORTED_AFTER, 2 * REPORTED_AFTER]
    assert all(event.partitions == 2 for event in delays)
    assert delays[0].function.endswith("slowly")


async def test_a_function_of_the_program_blocks_no_event_loop() -> None:
    """A function that is not async runs in a thread with a name, while other tasks run."""
    names: list[str] = []
    may_return = threading.Event()

    def blocking(_: object) -> Starts:
        names.append(threading.current_thread().name)
        assert may_return.wait(60)
        return {P0: 1}

    fake = FakeGeneration(settings={"starts": blocking})
    fake.member = member_context(starts=blocking, starts_thread=WorkerThread())
    async with fake.lifecycle.open(), trio.open_nursery() as nursery:

        async def let_go() -> None:
            while not names:  # noqa: ASYNC110 # a thread sets it
                await trio.sleep(0.01)
            may_return.set()

        nursery.start_soon(let_go)
        assert await OwnStarts(fake.member, fake.lifecycle).load([P0]) == {P0: 1}
    assert names == ["kgroup-starts g"]
