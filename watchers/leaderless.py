"""``LeaderlessPartitions``: reports the partitions that have had no leader for some time.

Without a leader a partition cannot be read, and librdkafka waits for one without an error. A member
notices that by itself only if no broker has answered since it began to read the partition
(``kgroup.records.fetched_items``). The polls of the partition watcher say which partitions have no
leader, so this sends no requests. The watcher does not see a poll whose response is the same as the
last one. So the time without a leader is measured here, and not by polls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Final, NoReturn, final

import trio

from kgroup.notifier import Notifier
from kgroup.types import TopicPartition

LEADERLESS_AFTER: Final = 30.0
"""Seconds without a leader after which a partition is reported. A new leader is chosen much sooner,
unless no broker that may lead the partition is there."""
REPEATED_AFTER: Final = 300.0
"""Seconds after which the partitions that still have no leader are reported again."""


@final
class LeaderlessPartitions:
    """Since when which partitions have no leader.

    Args:
        report: is called with all partitions that have had none for `LEADERLESS_AFTER`: once there
            is another one of them, and every `REPEATED_AFTER`.
    """

    def __init__(self, report: Callable[[tuple[TopicPartition, ...]], None]) -> None:
        self._report = report
        self._since: dict[TopicPartition, float] = {}
        self._reported = frozenset[TopicPartition]()
        self._reported_at = 0.0
        self._changed = Notifier()

    def found(self, partitions: Collection[TopicPartition]) -> None:
        """Take in a poll, which has found no leader of these."""
        now = trio.current_time()
        self._since = {name: self._since.get(name, now) for name in partitions}
        self._reported = self._reported.intersection(partitions)
        self._changed.notify()

    async def watch(self) -> NoReturn:
        """Report them whenever it is due.

        Cancellation: at any time.
        """
        while True:
            with trio.move_on_at(self._due_at()):
                await self._changed.wait()
                continue
            now = trio.current_time()
            lasting = sorted(
                name for name, since in self._since.items() if since + LEADERLESS_AFTER <= now
            )
            if lasting:  # at this very moment a poll may have found leaders of all
                self._reported, self._reported_at = frozenset(lasting), now
                self._report(tuple(lasting))

    def _due_at(self) -> float:
        first = min(
            (since for name, since in self._since.items() if name not in self._reported),
            default=math.inf,
        )
        repeated = self._reported_at + REPEATED_AFTER if self._reported else math.inf
        return min(first + LEADERLESS_AFTER, repeated)
