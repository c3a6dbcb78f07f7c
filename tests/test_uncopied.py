"""What is neither pickled nor copied, and what Python says of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import ExitStack

import attrs
import pytest
from confluent_kafka import Message
from trio.testing import MockClock

from kgroup import aio, threaded
from kgroup.config import GroupConfig
from kgroup.interfaces import Batch
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.types import TopicPartition
from tests.group.harness import P0, harness, values

WAYS: list[Callable[[object], object]] = [pickle.dumps, copy.deepcopy]
CONFIG = GroupConfig(bootstrap_servers="h:1", group_id="g", topics=["t"])


def check_refused(value: object, in_its_place: str) -> None:
    """Each way raises a TypeError that names the class and what to do; a shallow copy is itself."""
    assert copy.copy(value) is value
    for way in WAYS:
        name = type(value).__name__
        with pytest.raises(TypeError, match=f"a {name} of kgroup cannot be.*; {in_its_place}"):
            way(value)


@pytest.mark.parametrize(
    ("value", "in_its_place"),
    [
        (threaded.ConsumerGroup(CONFIG), "in another process, make a group"),
        (aio.ConsumerGroup(CONFIG), "in another process, make a group"),
        (EmbeddedKafka(), "pass its bootstrap_servers on"),
    ],
)
def test_groups_of_threads_and_asyncio(value: object, in_its_place: str) -> None:
    """A group is refused, and so is the embedded Kafka."""
    check_refused(value, in_its_place)


async def test_a_group_and_what_it_gives(autojump_clock: MockClock) -> None:
    """A group, its broker, generation, streams and batches are refused, and all of them go on."""
    async with harness(partitions=2) as here, here.group() as group:
        await here.append(3)
        generation = await group.next()
        stream = generation.records(P0)
        batch = await anext(stream)
        check_refused(group, "in another process, make a group")
        check_refused(here.broker, "pass its bootstrap_servers on")
        for one in (generation, stream, generation.offsets(TopicPartition("topic", 1))):
            check_refused(one, "pass on what the other process needs")
        check_refused(batch, "pass on what the other process needs")
        assert values(list(batch)) == [0, 1, 2]
        await generation.commit({P0: batch.next_offset})


def test_what_a_generation_of_threads_gives() -> None:
    """The generation, its records and batches are refused; a batch's messages are pickled."""
    with ExitStack() as opened:
        kafka = opened.enter_context(EmbeddedKafka())
        kafka.create_topic("t")
        kafka.append("t", 0, [b"a"])
        config = attrs.evolve(CONFIG, bootstrap_servers=kafka.bootstrap_servers)
        group = opened.enter_context(threaded.ConsumerGroup(config))
        generation = next(group)
        records = generation.records()
        batch = next(records)
        for one in (generation, records):
            check_refused(one, "pass on what the other process needs")
        check_refused(batch, "pass on what the other process needs")
        (message,) = pickle.loads(pickle.dumps(batch.messages))  # noqa: S301 # as for multiprocessing
        assert (message.offset(), message.value()) == (0, b"a")
        assert isinstance(message, Message)
        assert {batch: 1}[batch] == 1


def test_a_batch_of_the_program() -> None:
    """A batch that a program makes has no lease: it is copied and pickled with its messages."""
    batch = Batch(partition=TopicPartition("t", 0), messages=(), next_offset=3, epoch=1)
    assert batch == copy.deepcopy(batch) == pickle.loads(pickle.dumps(batch))  # noqa: S301 # ours
