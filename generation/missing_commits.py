"""Reports records that were handed out and are not committed: most likely a forgotten call.

Such a program works until its first restart, and then processes everything again. It is no concern
of programs that keep their own offsets (``GroupConfig.starts``).
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
    """Report, again and again, the partitions whose records go on without a commit.

    Args:
        positions: those of the generation.
        report: is called with partitions of which records were handed out both before and within
            the last `REPORTED_AFTER` seconds, while no commit has covered the earlier ones.

    Cancellation: at any time.
    """
    while True:
        before = dict(positions.upper_bounds)
        await trio.sleep(REPORTED_AFTER)
        now = dict(positions.upper_bounds)
        late = [
            partition
            for partition, offset in before.items()
            if now.get(partition, 0) > offset and not positions.is_committed(partition, offset)
        ]
        if late:
            report(tuple(sorted(late)))


def never_committed(positions: Positions) -> tuple[TopicPartition, ...]:
    """The partitions of which several batches were handed out, and no commit has succeeded.

    A program that is stopped while it works on its first batch has not forgotten to commit.
    """
    return tuple(
        sorted(
            partition
            for partition, start in positions.start_offsets.items()
            if positions.batches(partition) > 1
            and positions.lower_bound(partition) == start
            and not positions.is_committed(partition, start + 1)
        )
    )
