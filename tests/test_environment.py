"""What a group stands on by default, and in a test."""

from __future__ import annotations

import random

import attrs
import pytest
from trio.testing import MockClock

from kgroup.clocks import SuspendAwareClock, TrioClock
from kgroup.config import GroupConfig
from kgroup.environment import Environment
from kgroup.group import ConsumerGroup, default_environment
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.records.memory import MemorySource
from kgroup.testing.memory import memory_environment
from kgroup.wire.streams import open_tcp
from tests.group.world import world

CONFIG = GroupConfig(group_id="g", bootstrap_servers="localhost:9", topics=["t"])


def test_the_default_is_the_real_world() -> None:
    """TCP, a clock that counts suspended time, chance, and librdkafka; nothing is opened yet."""
    real = default_environment()
    assert real.open_stream is open_tcp
    assert isinstance(real.clock, SuspendAwareClock)
    assert isinstance(real.random, random.Random)
    assert isinstance(real.record_source(CONFIG, lambda *_: None), LibrdkafkaSource)


def test_a_group_takes_it_unless_told() -> None:
    """And two groups share no source of chance, nor one with the program."""
    one, two = ConsumerGroup(CONFIG), ConsumerGroup(CONFIG)
    assert one._environment.random is not two._environment.random
    assert isinstance(one._environment.clock, SuspendAwareClock)


async def test_in_memory_there_is_one_clock(autojump_clock: MockClock) -> None:
    """Trio's, and the same seed makes the same choices."""
    async with world() as here:
        one, two = (memory_environment(here.broker, seed=5) for _ in range(2))
        assert isinstance(one.clock, TrioClock)
        assert one.random.random() == two.random.random()
        assert isinstance(one.record_source(CONFIG, lambda *_: None), MemorySource)


def test_it_is_a_value() -> None:
    """A test changes one thing of it and keeps the rest."""
    real = default_environment()
    changed = attrs.evolve(real, clock=TrioClock())
    assert changed.open_stream is open_tcp
    with pytest.raises(TypeError):
        Environment()  # type: ignore[call-arg]
