"""The runtime of a group: the default one, the one of tests, and observers."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.clocks import SuspendAwareClock, TrioClock, WallClock
from kgroup.config import GroupConfig
from kgroup.errors import ConfigError, UsageError
from kgroup.events import Event, GenerationEnded, GenerationStarted
from kgroup.group import ConsumerGroup, default_runtime
from kgroup.interfaces import Batch
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.records.memory import MemorySource
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, Membership, TopicPartition
from kgroup.wire.byte_streams import open_tcp
from tests.group.harness import P0, P1, Harness, harness, values

CONFIG = GroupConfig(group_id="g", bootstrap_servers="localhost:9", topics=["t"])


class Onlooker:
    """An observer that records everything."""

    def __init__(self) -> None:
        self.shutdowns: list[Callable[[str], None]] = []
        self.events: list[Event] = []
        self.batches: list[tuple[Membership, Batch]] = []
        self.seeks: list[tuple[int, TopicPartition, int]] = []

    def opened(self, shutdown: Callable[[str], None]) -> None:
        """See ``Observer``."""
        self.shutdowns.append(shutdown)

    def event(self, event: Event) -> None:
        """See ``Observer``."""
        self.events.append(event)

    def handed_out(self, membership: Membership, batch: Batch) -> None:
        """See ``Observer``."""
        self.batches.append((membership, batch))

    def sought(self, membership: Membership, partition: TopicPartition, offset: int) -> None:
        """See ``Observer``."""
        self.seeks.append((membership.epoch, partition, offset))


def watched(here: Harness, onlooker: Onlooker) -> ConsumerGroup:
    """A group on this broker with an observer, whose events are recorded too."""
    runtime = attrs.evolve(memory_runtime(here.broker), observer=onlooker)
    return ConsumerGroup(here.config(), runtime=runtime, on_event=here.events.append)


def test_the_default_runtime() -> None:
    """It has TCP, two real clocks, real random numbers and librdkafka, and opens nothing yet."""
    real = default_runtime()
    assert real.open_stream is open_tcp
    assert isinstance(real.clock, SuspendAwareClock)
    assert isinstance(real.wall_clock, WallClock)
    assert isinstance(real.random, random.Random)
    assert isinstance(real.record_source(CONFIG, lambda *_: None), LibrdkafkaSource)


def test_a_group_has_the_default_runtime() -> None:
    """Without another runtime a group gets the default one; two groups share no Random."""
    one, two = ConsumerGroup(CONFIG), ConsumerGroup(CONFIG)
    assert one._runtime.random is not two._runtime.random
    assert isinstance(one._runtime.clock, SuspendAwareClock)


async def test_in_memory_there_is_one_clock(autojump_clock: MockClock) -> None:
    """Both clocks are trio's, and the same seed gives the same random numbers."""
    async with harness() as here:
        one, two = (memory_runtime(here.broker, seed=5) for _ in range(2))
        assert isinstance(one.clock, TrioClock)
        assert one.random.random() == two.random.random()
        assert isinstance(one.record_source(CONFIG, lambda *_: None), MemorySource)


def test_a_runtime_is_a_value() -> None:
    """A test can change one part and keep the rest; no part has a default."""
    real = default_runtime()
    changed = attrs.evolve(real, clock=TrioClock())
    assert changed.open_stream is open_tcp
    with pytest.raises(TypeError):
        Runtime()  # type: ignore[call-arg]


def test_the_default_factory_is_for_groups_that_are_given_no_runtime() -> None:
    """Each such group gets a runtime of its own; outside of the context nothing changes."""
    made = list[Runtime]()

    def make() -> Runtime:
        made.append(attrs.evolve(default_runtime(), clock=TrioClock()))
        return made[-1]

    def within() -> None:
        default_runtime_factory.set(make)
        one, two = ConsumerGroup(CONFIG), ConsumerGroup(CONFIG)
        assert [one._runtime, two._runtime] == made
        given = default_runtime()
        assert ConsumerGroup(CONFIG, runtime=given)._runtime is given
        assert len(made) == 2

    copy_context().run(within)
    assert isinstance(ConsumerGroup(CONFIG)._runtime.clock, SuspendAwareClock)


async def test_the_observer_gets_events_in_place_of_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The observer and the program's own handler get each event, and nothing is logged."""
    caplog.set_level(logging.DEBUG, "kgroup")
    async with harness() as here:
        onlooker = Onlooker()
        async with watched(here, onlooker) as group:
            await group.next()
        assert here.events_of(GenerationStarted)
        assert onlooker.events == here.events
        assert caplog.records == []
        async with here.group() as group:
            await group.next()
        logged = [record.__dict__["event"] for record in caplog.records]
        assert logged == here.events[len(onlooker.events) :]


async def test_the_observer_can_shut_a_group_down(autojump_clock: MockClock) -> None:
    """The observer gets the shutdown function of an entered group, and can close it by that."""
    async with harness() as here:
        onlooker = Onlooker()
        unopened = watched(here, onlooker)
        assert onlooker.shutdowns == []
        async with unopened as group:
            (shutdown,) = onlooker.shutdowns
            generation = await group.next()
            shutdown("a test closes it")
            with trio.fail_after(100):
                end = await generation.wait_ended()
                assert [one async for one in group] == []
        assert (end.cause, end.detail) == (Cause.CLOSED, "a test closes it")
        assert [event.end for event in here.events_of(GenerationEnded)] == [end]
        assert len(onlooker.shutdowns) == 1


async def test_the_observer_sees_each_batch_before_the_handler(autojump_clock: MockClock) -> None:
    """The observer gets the batch and its membership first, and the handler the same batch."""
    async with harness(2) as here:
        await here.append(3)
        await here.append(3, partition=1)
        onlooker, got = Onlooker(), list[Batch]()
        async with watched(here, onlooker) as group:
            generation = await group.next()
            async for batch in generation.records(max_records=2):
                got.append(batch)
                assert onlooker.batches[-1][1] is batch
                assert len(onlooker.batches) == len(got)
                if sum(map(len, got)) == 6:
                    break
        assert {membership for membership, _ in onlooker.batches} == {generation._membership}
        read = {
            partition: [
                n for one in got if one.partition == partition for n in values(one.messages)
            ]
            for partition in (P0, P1)
        }
        assert read == {P0: [0, 1, 2], P1: [0, 1, 2]}


async def test_an_observer_that_lacks_a_method_is_refused(autojump_clock: MockClock) -> None:
    """The runtime refuses it when it is made, and not at the program's first seek."""
    observer: Any = Onlooker()
    observer.sought = None
    async with harness(1) as here:
        with pytest.raises(ConfigError, match=r"observer=.*sought\(\)"):
            attrs.evolve(memory_runtime(here.broker), observer=observer)


async def test_the_observer_sees_where_the_program_seeks(autojump_clock: MockClock) -> None:
    """The observer sees the program's seeks, and none of the source's own starts."""
    async with harness() as here:
        await here.append(3)
        onlooker = Onlooker()
        async with watched(here, onlooker) as group:
            generation = await group.next()
            generation.seek(P0, 2)
            batch = await anext(generation.records(P0))
            assert values(batch.messages) == [2]
        assert onlooker.seeks == [(generation.epoch, P0, 2)]


async def test_a_group_with_real_connections_is_refused_under_a_clock_that_jumps(
    autojump_clock: MockClock,
) -> None:
    """The error names the runtime of memory; the group may be entered where time does not jump."""
    group = ConsumerGroup(CONFIG)
    with pytest.raises(UsageError, match=r"group 'g' .*memory_runtime\(broker\)"):
        await group.__aenter__()
    autojump_clock.autojump_threshold = math.inf
    async with group:
        pass
