"""Batches, and which objects conform to the Protocols."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from kgroup.assignors import BUILTIN
from kgroup.clocks import SuspendAwareClock, TrioClock
from kgroup.interfaces import Assignor, Batch, Clock, Random
from kgroup.types import TopicPartition


def test_a_batch_is_as_long_as_its_messages() -> None:
    """The length of a batch is the number of messages; its repr does not show them."""
    messages: list[Any] = [SimpleNamespace(value="secret", offset=lambda: 0)] * 3
    batch = Batch(partition=TopicPartition("t", 0), messages=messages, next_offset=3, epoch=1)
    assert len(batch) == 3
    assert "<3 messages>" in repr(batch)
    assert "secret" not in repr(batch)


def test_a_batch_that_a_program_makes_knows_no_lease() -> None:
    """Iterating over it is iterating over its messages; it cannot be indexed."""
    messages: list[Any] = [SimpleNamespace(offset=lambda: 4), SimpleNamespace(offset=lambda: 5)]
    batch = Batch(partition=TopicPartition("t", 0), messages=messages, next_offset=6, epoch=1)
    assert batch.start_offset == 4
    assert list(batch) == list(batch) == messages
    assert not hasattr(batch, "__getitem__")


def test_a_batch_is_hashable() -> None:
    """It can be a key of a dict, also if its messages cannot be; equal ones are one key."""
    messages: list[Any] = [SimpleNamespace(offset=lambda: 2)]
    made = [
        Batch(partition=TopicPartition("t", 0), messages=messages, next_offset=3, epoch=1)
        for _ in range(2)
    ]
    assert len(set(made)) == 1


def test_which_objects_conform() -> None:
    """Built-in assignors, both clocks and Python's ``Random`` conform to their Protocols."""
    assert all(isinstance(assignor, Assignor) for assignor in BUILTIN.values())
    assert not isinstance(object(), Assignor)
    clocks: list[Clock] = [SuspendAwareClock(), TrioClock()]
    generator: Random = random.Random(1)
    assert clocks[0].now() > 0
    assert 0 <= generator.random() < 1
