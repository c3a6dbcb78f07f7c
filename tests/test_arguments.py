"""Arguments of the API: checked in the call, with one error class, before anything happens."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import aiokafka
import confluent_kafka
import pytest
import trio
from trio.testing import MockClock

from kgroup import arguments, bounds
from kgroup.aio.group import ConsumerGroup as AioGroup
from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError, UsageError
from kgroup.events import Event
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.spark.offset_ranges import OffsetRange, in_order
from kgroup.threaded.group import ConsumerGroup as ThreadedGroup
from kgroup.types import OffsetAndMetadata, TopicPartition
from tests.group.harness import P0, P1, Harness, harness, values

PACKAGES = tuple(itertools.permutations((ConsumerGroup, ThreadedGroup, AioGroup), 2))


class Indexed:
    """A whole number with ``__index__``, as numpy's are."""

    def __index__(self) -> int:
        return 3


NO_NUMBERS: tuple[Any, ...] = (None, "1", 1.0, 2.5, math.nan, math.inf, True, [], {}, 1j)


def test_an_argument_error_is_a_usage_a_type_and_a_value_error() -> None:
    """A handler of UsageError, TypeError or ValueError catches it."""
    assert issubclass(ArgumentError, UsageError | TypeError)
    assert issubclass(ArgumentError, ValueError)
    error = ArgumentError("limit", "x" * 1000, "it must be an int")
    assert (error.argument, error.allowed) == ("limit", "it must be an int")
    assert len(str(error)) < 300


def test_what_a_signal_handler_raises_is_not_the_argument_s_fault() -> None:
    """It is raised as it is if the value is a number, whose comparison runs no program's code."""

    def interrupted(_: object) -> bool:
        raise OSError("from a signal handler")

    bound = bounds.Bound(interrupted, "it must be a number")
    with pytest.raises(OSError, match="from a signal handler"):
        bound.check("timeout", 1.5, ArgumentError)
    with pytest.raises(ArgumentError, match="it must be a number"):
        bound.check("timeout", Indexed(), ArgumentError)


def test_whole_numbers() -> None:
    """Ints and objects with ``__index__`` are accepted within bounds, and nothing else is."""
    assert arguments.whole("n", 1, 1) == 1
    assert type(arguments.whole("n", Indexed(), 1)) is int
    more: tuple[Any, ...] = (*NO_NUMBERS, 0, -1, 2**63)
    for bad in more:
        with pytest.raises(ArgumentError, match="n=.* refused: it must be a whole number from 1"):
            arguments.whole("n", bad, 1)


def test_an_offset_and_metadata_of_such_numbers() -> None:
    """OffsetAndMetadata accepts the same numbers as a commit, and no bool or float."""
    given: Any = Indexed()
    position = OffsetAndMetadata(given, given)
    assert (type(position.offset), position.leader_epoch) == (int, 3)
    for bad in NO_NUMBERS:
        with pytest.raises(TypeError, match="offset=.* is refused"):
            OffsetAndMetadata(bad)


def test_seconds() -> None:
    """None, or more than a lock can wait, means no time-out; NaN and negatives are refused."""
    assert arguments.seconds("timeout", 1) == 1.0
    assert arguments.seconds("timeout", 0.0) == 0.0
    for forever in (None, math.inf, threading.TIMEOUT_MAX * 2):
        assert arguments.seconds("timeout", forever) is None
    wrong: tuple[Any, ...] = (math.nan, -1, -math.inf, "1", True, [], 1j)
    for bad in wrong:
        with pytest.raises(ArgumentError, match="timeout=.* refused: it must be a number of sec"):
            arguments.seconds("timeout", bad)


def test_a_timeout_in_milliseconds() -> None:
    """An int of whole thousands is refused; an hour, and any float, is accepted."""
    for bad in (5_000, 30_000, 300_000):
        with pytest.raises(ArgumentError, match=f"not milliseconds: did you mean {bad / 1000}"):
            arguments.seconds("timeout", bad)
    for good in (1_000, 3_600, 86_400, 30_000.0):
        assert arguments.seconds("timeout", good) == good


def test_partitions() -> None:
    """One partition, any iterable of them, or None for all."""
    assert arguments.partitions("partitions", None) is None
    assert arguments.partitions("partitions", P0) == frozenset([P0])
    assert arguments.partitions("partitions", iter([P0, P1])) == frozenset([P0, P1])
    odd: Any = 0.0
    for bad in (
        "topic-0",
        b"x",
        5,
        ["topic-0"],
        [("topic", 0)],
        [None],
        [TopicPartition("t", odd)],
    ):
        with pytest.raises(ArgumentError, match="partitions="):
            arguments.partitions("partitions", bad)


@pytest.fixture
async def running(autojump_clock: MockClock) -> AsyncIterator[tuple[Harness, Generation]]:
    """A generation with three records to read."""
    async with harness() as here:
        await here.append(3)
        async with here.group() as group:
            yield here, await group.next()


WRONG: list[Callable[[Generation, Any], object]] = [
    lambda generation, bad: generation.seek(P0, bad),
    lambda generation, bad: generation.records(max_records=bad),
    lambda generation, bad: generation.seek(bad, 1),
    lambda generation, bad: generation.records(bad or [bad]),
    lambda generation, bad: generation.offsets(bad or [bad]),
    lambda generation, bad: generation.pause(bad or [bad]),
    lambda generation, bad: generation.resume(bad or [bad]),
    lambda generation, bad: generation.start_soon(bad),
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_argument_changes_nothing(
    running: tuple[Harness, Generation], wrong: Callable[[Generation, Any], object]
) -> None:
    """After an argument of a wrong type, the generation continues as before."""
    here, generation = running
    for bad in NO_NUMBERS:
        with pytest.raises(ArgumentError):
            wrong(generation, bad)
    batch = await anext(generation.records())
    assert values(batch.messages) == [0, 1, 2]
    await generation.commit({P0: batch.next_offset})
    assert await here.committed() == {P0: 3}


async def test_a_wrong_commit_sends_nothing(running: tuple[Harness, Generation]) -> None:
    """One wrong item is enough, also in `commit_in_transaction`."""
    here, generation = running
    producer: Any = object()
    commits: list[Any] = [*NO_NUMBERS, {P0: None}, {P0: 1.0}, {P0: -1}, {None: 1}, {"topic-0": 1}]
    commits.remove({})
    for bad in commits:
        with pytest.raises(ArgumentError):
            await generation.commit(bad)
        with pytest.raises(ArgumentError):
            await generation.commit_in_transaction(producer, bad)
    other: Any = {"topic-0": 1}
    with pytest.raises(ArgumentError, match="its key 'topic-0' must be a kgroup.TopicPartition"):
        await generation.commit(other)
    foreign: Any = aiokafka.TopicPartition(P0.topic, P0.partition)
    librdkafkas: Any = confluent_kafka.TopicPartition(P0.topic, P0.partition)
    libraries = {foreign: "aiokafka.structs", librdkafkas: "confluent_kafka"}
    for name, library in libraries.items():
        with pytest.raises(ArgumentError, match=f"; this is {library}.TopicPartition; nothing"):
            await generation.commit({name: 1})
        with pytest.raises(ArgumentError, match=f"; this is {library}.TopicPartition; nothing"):
            generation.records(name)
    position: Any = aiokafka.structs.OffsetAndMetadata(1, "")
    with pytest.raises(ArgumentError, match="kgroup.OffsetAndMetadata; this is aiokafka"):
        await generation.commit({P0: position})
    with pytest.raises(ArgumentError, match="producer="):
        await generation.commit_in_transaction(producer, {P0: 0})
    truthy: Any = "yes"
    transactional: Any = SimpleNamespace(send_offsets_to_transaction=print)
    with pytest.raises(ArgumentError, match="beyond_read='yes' is refused"):
        await generation.commit({P0: 0}, beyond_read=truthy)
    with pytest.raises(ArgumentError, match="beyond_read='yes' is refused"):
        await generation.commit_in_transaction(transactional, {P0: 0}, beyond_read=truthy)
    assert here.requests_for("offset_commit") == []
    await generation.commit({})


async def test_a_coroutine_is_not_a_function(running: tuple[Harness, Generation]) -> None:
    """The error says how to pass the function; Python does not warn of the coroutine."""
    _, generation = running

    async def handle(seconds: float) -> None:
        await trio.sleep(seconds)

    handler: Any = handle(1)
    with pytest.raises(ArgumentError, match="pass its arguments beside it"):
        generation.start_soon(handler)
    with pytest.raises(ArgumentError):
        await generation.run(None)  # type: ignore[arg-type]


async def test_what_cannot_be_a_task_starts_nothing(running: tuple[Harness, Generation]) -> None:
    """A plain function, and arguments that do not fit, are refused; the generation goes on."""
    _, generation = running

    def plain(partition: TopicPartition) -> None:
        """Do nothing."""

    async def handle(partition: TopicPartition) -> None:
        await trio.sleep_forever()

    start: Any = generation.start_soon
    with pytest.raises(ArgumentError, match="plain.* is not an async function; make it one, or"):
        start(plain, P0)
    with pytest.raises(ArgumentError, match="handle.* called with no arguments, but missing"):
        start(handle)
    with pytest.raises(ArgumentError, match="handle.* called with 2 arguments, but too many"):
        start(handle, generation, P0)
    with pytest.raises(ArgumentError, match="handle.* called with no arguments, but missing"):
        await generation.run(handle)  # type: ignore[arg-type]
    assert generation.end is None
    assert start(handle, P0)


async def on_event_async(event: Event) -> None:
    """An async function, which no group can call with events."""


async def test_wrong_arguments_of_a_group(autojump_clock: MockClock) -> None:
    """A group refuses them in the constructor; the reason of a close must be a str."""
    async with harness() as here:
        config: Any = here.config()
        for kind in (ConsumerGroup, ThreadedGroup, AioGroup):
            wrongs: tuple[Any, ...] = ({}, None, "group")
            for wrong in wrongs:
                with pytest.raises(ArgumentError, match="it must be a kgroup GroupConfig"):
                    kind(wrong)
            with pytest.raises(ArgumentError, match="on_event="):
                kind(config, on_event=5)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError, match="on_event=.* nothing awaits it"):
                kind(config, on_event=on_event_async)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError, match="runtime="):
                kind(config, runtime=5)  # type: ignore[arg-type]
        async with here.group() as group:
            await group.next()
            with pytest.raises(ArgumentError, match="reason="):
                await group.aclose(None)  # type: ignore[arg-type]
            await group.aclose("odd \ud800 text")
        (leave,) = [request for _, request in here.requests_for("leave_group")]
        assert leave.members[0].reason == "odd ? text"


@pytest.mark.parametrize(("taken", "given"), PACKAGES)
def test_a_group_of_another_package(taken: type, given: type[Any]) -> None:
    """The error says which package has the function for it."""
    group = given(GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"]))
    package = given.__module__.removesuffix(".group")
    with pytest.raises(ArgumentError, match=f"it is a {package}.ConsumerGroup; .* {package}.serve"):
        arguments.group(group, taken)
    assert arguments.group(group, given) is group
    with pytest.raises(ArgumentError, match="must be a kgroup ConsumerGroup"):
        arguments.group(5, given)


def test_offset_ranges_are_checked() -> None:
    """Spark's functions refuse anything else in place of offset ranges."""
    part = OffsetRange("t", 0, 0, 5)
    assert in_order([part]) == (part,)
    for bad in (None, 5, [None], ["t-0"], [(0, 5)]):
        wrong: Any = bad
        with pytest.raises(ArgumentError, match="ranges="):
            in_order(wrong)
