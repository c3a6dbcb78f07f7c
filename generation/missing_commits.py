"""Reports records that were handed out and are not committed: most likely a forgotten call.

Such a program works until its first restart, and then processes everything again. It is no concern
of programs that keep their own offsets (``GroupConfig.starts``).

A batch counts once the program is done with it: it has asked for the next one while the generation
ran. A program that works on its first batch has forgotten nothing, and neither has one that leaves
a batch unfinished because its generation ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from kgroup.generation.positions import Positions
from kgroup.types import TopicPartition

REPORTED_AFTER: Final = 300.0
"""Seconds between two looks at the commits."""


async def report_missing_commits(
    positions: Positions, report: Callable[[tuple[TopicPartition, ...]], None]
) -> None:
    """Report, again and again, the partitions of which finished records are not committed.

    Args:
        positions: those of the generation.
        report: is called with the partitions of which records were finished before the last
            `REPORTED_AFTER` seconds, while no commit has covered them.

    Cancellation: at any time.
    """
    while True:
        before = positions.finished_ranges
        await trio.sleep(REPORTED_AFTER)
        now = positions.finished_ranges
        late = [
            partition
            for partition, (_, end) in before.items()
            if partition in now and not positions.is_committed(partition, end)
        ]
        if late:
            report(tuple(sorted(late)))


def never_committed(positions: Positions) -> tuple[TopicPartition, ...]:
    """The partitions of which records were finished, and not one of these was committed."""
    return tuple(
        sorted(
            partition
            for partition, (first, _) in positions.finished_ranges.items()
            if not positions.is_committed(partition, first + 1)
        )
    )
