"""Splits what ``Consumer.consume`` returned into runs of one partition.

There are no queues per partition in Python, so the owner thread splits, and it must cost little
for each record. Partition numbers are read in one pass at C speed; then the end of a run is found
by galloping over the numbers, and every stretch jumped over is proven by counting. (A proof by
offsets alone, "as far apart in the log as in the list", would be wrong: a gap that a
transaction's marker left can be exactly as long as another partition's records in between.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Message


def has_errors(chunk: Sequence[Message]) -> bool:
    """Whether any of these is an error and no record."""
    return any(map(Message.error, chunk))


def runs(chunk: Sequence[Message], *, topics: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each run of one partition in a chunk without errors, in order.

    Args:
        chunk: what was consumed.
        topics: how many topics are being fetched; names are compared only if there are several.
    """
    numbers = list(map(Message.partition, chunk))
    names = list(map(Message.topic, chunk)) if topics > 1 else None
    start = 0
    while start < len(numbers):
        end = run_end(numbers, start, len(numbers))
        if names is not None:
            end = run_end(names, start, end)
        yield start, end
        start = end


def run_end(keys: Sequence[Any], start: int, stop: int) -> int:
    """Where the run of equal keys that begins at ``start`` ends, at most ``stop``."""
    key, end, step = keys[start], start + 1, 1
    growing = True
    while end < stop and step:
        step = min(step, stop - end)
        if keys[end : end + step].count(key) == step:
            end += step
            step = step * 2 if growing else step
        else:
            growing = False
            step //= 2
    return end
