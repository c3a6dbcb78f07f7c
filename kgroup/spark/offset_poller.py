"""What a batch loop reads next: its positions, how far it can read, and when that makes a batch.

It looks at the ends of all partitions at once, also while a batch runs, so that the next batch
can be planned the moment that it is asked for. Nothing new means no plan_batch, and so no Spark
job.

INVARIANTS: positions only move by `take`, or by ``auto_offset_reset`` where the log has lost them
(which is told as an event); no plan is given out once the generation's end has begun, nor without
a valid lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

import trio

from kgroup.errors import BrokerError, StaleGenerationError
from kgroup.generation.offset_stream import OffsetStream
from kgroup.spark.batch_limits import Limits, RateLimiter
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.planning import BatchPlan, Beyond, plan_batch
from kgroup.spark.size_estimates import Seen, Sizes
from kgroup.types import IsolationLevel, TopicPartition

LOOK_WHILE_RUNNING: Final = 0.25
"""Seconds between looks at the ends while a batch runs."""
LOOK_FOR_LOSS: Final = 10.0
"""Seconds between looks at whether retention has passed the positions."""
BEYOND_FOR: Final = 5.0
"""Seconds for which a position must be past the end before it counts as lost: right after a
change of leaders the new one may not know yet how far the log is committed."""
LONGEST_PAUSE: Final = 5.0
"""Seconds between looks when leaders do not answer."""


@final
class OffsetPoller:
    """Looks ahead for one batch loop. One task at a time asks for plans.

    Args:
        offsets: of the generation.
        ending: set when the generation's end begins.
        limits: of a batch, and of a second.
        max_wait: seconds for which the first record of a batch may wait for more.
        poll_interval: seconds between looks when there is nothing new.
        sizes: what is known of the records' sizes.
    """

    def __init__(
        self,
        offsets: OffsetStream,
        ending: trio.Event,
        limits: Limits,
        *,
        max_wait: float,
        poll_interval: float,
        sizes: Sizes,
    ) -> None:
        self._offsets = offsets
        self._ending = ending
        self._max_wait = max_wait
        self._poll_interval = poll_interval
        self._limiter = RateLimiter(limits, trio.current_time())
        self._sizes = sizes
        self._turn = 0
        self._positions: dict[TopicPartition, int] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._looked_for_loss = -LOOK_FOR_LOSS
        self._began_anew: dict[TopicPartition, int] = {}
        self._beyond_since: dict[TopicPartition, float] = {}
        self._new_since: float | None = None
        self._silent = 0
        self._failure: BrokerError | None = None

    @property
    def lag(self) -> int:
        """Offsets from the positions to the ends, as of the last look."""
        return sum(
            max(0, end - self._positions[name])
            for name, end in self._ends.items()
            if name in self._positions
        )

    async def next(self) -> BatchPlan | None:
        """Wait until there is a batch to read; None once the generation's end has begun.

        Raises:
            NoOffsetError | OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.

        Cancellation: nothing is taken.
        """
        try:
            return await self._next()
        except StaleGenerationError:  # the end began while a leader was asked for a position
            return None

    async def _next(self) -> BatchPlan | None:
        if not self._positions:
            self._positions = dict(await self._offsets.begin())
        while await self._offsets.confirmed():
            await self._look_for_loss()
            ready = self._ready()
            if ready is None:
                await self._look()
                ready = self._ready()
            if ready is not None and self._offsets.running:
                self._take(ready)
                return ready
            with trio.move_on_after(self._pause()):
                await self._ending.wait()
        return None

    async def keep_looking(self) -> None:
        """Look at the ends now and then, while a batch runs, until cancelled."""
        try:
            while True:
                await trio.sleep(LOOK_WHILE_RUNNING)
                if self._offsets.running:
                    await self._look()
        except BrokerError as error:  # for the program, when it asks for the next batch
            self._failure = error
            await trio.sleep_forever()

    def passed(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """What to commit when batches up to these offsets are done.

        Where ``auto_offset_reset`` has moved a position since, that is further on: what is
        between is gone.
        """
        return {name: max(end, self._began_anew.get(name, 0)) for name, end in offsets.items()}

    def learn(self, ranges: Iterable[OffsetRange], seen: Mapping[TopicPartition, Seen]) -> None:
        """What reading ranges has brought, for the estimates of those to come."""
        told = tuple(part for part in ranges if part.topic_partition in seen)
        wrong_by = sum(one.bytes for one in seen.values()) - self._sizes.bytes_of(told)
        self._limiter.spend(0, wrong_by, trio.current_time())
        self._sizes = self._sizes.after(told, seen)

    def _ready(self) -> BatchPlan | None:
        """A plan that is worth a batch now."""
        now = trio.current_time()
        planned = plan_batch(
            self._positions, self._ends, self._limiter.budget(now), self._sizes, self._turn
        )
        self._note_beyond(planned.beyond, now)
        if not planned.ranges:
            return None
        if self._new_since is None:
            self._new_since = now
        # What is left over was left by a limit: waiting would not make this batch any larger.
        if planned.lag or now - self._new_since >= self._max_wait:
            return planned
        return None

    def _take(self, planned: BatchPlan) -> None:
        self._turn += 1
        self._new_since = None
        self._limiter.spend(
            planned.offsets, self._sizes.bytes_of(planned.ranges), trio.current_time()
        )
        for part in planned.ranges:
            self._positions[part.topic_partition] = part.end

    def _pause(self) -> float:
        now = trio.current_time()
        pause = min(LONGEST_PAUSE, self._poll_interval * 2**self._silent)
        if self._new_since is not None:
            pause = min(pause, max(0.001, self._new_since + self._max_wait - now))
        return float(max(pause, self._limiter.wait(now)))

    async def _look(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        ends = await self._offsets.end()
        complete = ends.keys() >= self._offsets.partitions
        self._silent = 0 if complete else min(self._silent + 1, 10)
        self._ends = {**self._ends, **ends}

    async def _look_for_loss(self) -> None:
        """Find positions that are not in the log any more, and decide where to go on."""
        now = trio.current_time()
        if now - self._looked_for_loss >= LOOK_FOR_LOSS:
            self._looked_for_loss = now
            for name, first in sorted((await self._offsets.first()).items()):
                if self._positions[name] < first:
                    await self._reset(name)
        lost = [name for name, since in self._beyond_since.items() if now - since >= BEYOND_FOR]
        if lost and self._offsets.config.isolation_level is IsolationLevel.READ_COMMITTED:
            # The last stable offset may be behind a position that is well within the log.
            ends = await self._offsets.end(IsolationLevel.READ_UNCOMMITTED)
            lost = [name for name in lost if ends.get(name, 2**63) < self._positions[name]]
        for name in sorted(lost):
            await self._reset(name)

    async def _reset(self, name: TopicPartition) -> None:
        self._beyond_since.pop(name, None)
        position = await self._offsets.reset(name, self._positions[name])
        self._positions[name] = self._began_anew[name] = position

    def _note_beyond(self, beyond: Iterable[Beyond], now: float) -> None:
        found = {one.partition for one in beyond}
        self._beyond_since = {name: self._beyond_since.get(name, now) for name in sorted(found)}
