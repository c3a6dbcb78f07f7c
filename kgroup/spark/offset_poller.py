"""The offset poller: a batch loop's positions, the partitions' end offsets, and the next plan.

It polls the end offsets of all partitions together, also while a batch runs, so that the next
batch can be planned at once. Without new records there is no plan, and so no Spark job.

INVARIANTS: a position changes only when a plan is returned, or given back because its partition was
paused, when the program seeks, or when ``auto_offset_reset`` moves it because the log has lost it
(an event reports that); no plan is returned once the generation drains, nor without a valid lease;
a plan has no partition that is paused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, final

import attrs
import trio

from kgroup.errors import BrokerError, StaleGenerationError
from kgroup.generation.offset_stream import OffsetStream
from kgroup.spark.batch_limits import Limits, RateLimiter
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.planning import BatchPlan, PositionBeyondEnd, plan_batch
from kgroup.spark.size_estimates import ReadCounts, SizeEstimates
from kgroup.types import IsolationLevel, TopicPartition

POLL_WHILE_RUNNING: Final = 0.25
"""Seconds between polls of the end offsets while a batch runs."""
LOSS_CHECK_INTERVAL: Final = 10.0
"""Seconds between checks whether retention has deleted records at the positions."""
BEYOND_END_TIMEOUT: Final = 5.0
"""Seconds for which a position must be past the end before it counts as lost: right after an
election the new leader may not know the high watermark yet."""
MAX_PAUSE: Final = 5.0
"""The longest pause between polls, in seconds, when leaders do not answer, or for a limit per
second: what that has counted may be corrected meanwhile (`OffsetPoller.record_sizes`)."""


@final
class OffsetPoller:
    """Polls offsets and makes plans for one batch loop; `next` is for one task at a time.

    Args:
        offsets: the offsets of the generation's partitions.
        ending: set when the generation begins to drain.
        limits: the limits of a batch, and of a second.
        max_wait: seconds for which the first record of a batch may wait for more.
        poll_interval: seconds between polls when there are no new records.
        sizes: the estimates of the records' sizes.
    """

    def __init__(
        self,
        offsets: OffsetStream,
        ending: trio.Event,
        limits: Limits,
        *,
        max_wait: float,
        poll_interval: float,
        sizes: SizeEstimates,
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
        self._loss_checked_at = -LOSS_CHECK_INTERVAL
        self._reset_positions: dict[TopicPartition, int] = {}
        self._moves: Counter[TopicPartition] = Counter()
        self._beyond_since: dict[TopicPartition, float] = {}
        self._new_since: float | None = None
        self._unanswered_polls = 0
        self._failure: BrokerError | None = None

    @property
    def lag(self) -> int:
        """Offsets from the positions to the ends, as of the last poll."""
        return sum(
            max(0, end - self._positions[name])
            for name, end in self._ends.items()
            if name in self._positions
        )

    async def next(self) -> BatchPlan | None:
        """Wait until there is a batch to read; return its plan, or None once the generation drains.

        Raises:
            NoOffsetError | OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refused the request, and would refuse it again.

        Cancellation: a search for a position that the log does not have goes on; otherwise the
            positions stay as they are.
        """
        try:
            return await self._next()
        except StaleGenerationError:  # the drain began while a position was requested
            return None

    async def _next(self) -> BatchPlan | None:
        if not self._positions:
            self._positions = dict(await self._offsets.begin())
        while await self._offsets.confirmed():
            await self._check_for_loss()
            ready = self._ready()
            if ready is None:
                await self._poll_ends()
                ready = self._ready()
            if ready is not None and self._offsets.running:
                self._take(ready)
                return ready
            with trio.move_on_after(self._pause()):
                await self._ending.wait()
        return None

    async def keep_polling(self) -> None:
        """Poll the end offsets while a batch runs, until cancelled."""
        try:
            while True:
                await trio.sleep(POLL_WHILE_RUNNING)
                if self._offsets.running:
                    await self._poll_ends()
        except BrokerError as error:  # raised when the program requests the next batch
            self._failure = error
            await trio.sleep_forever()

    def moves(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How often seeks and resets have moved each position; a batch keeps those numbers."""
        return {name: self._moves[name] for name in partitions}

    def still_wanted(
        self, plan: BatchPlan, moves: Mapping[TopicPartition, int]
    ) -> BatchPlan | None:
        """What is left of the last plan, if no batch was made of it; None if nothing is.

        A partition that a seek or a reset has moved is planned again from there, and one that is
        paused when the program resumes it.

        Args:
            plan: the plan that `next` returned last.
            moves: what `moves` returned then.
        """
        self._follow_seeks()
        ranges = []
        for part in plan.ranges:
            name = part.topic_partition
            if moves[name] != self._moves[name]:
                continue
            if self._offsets.is_paused(name):
                self._positions[name] = part.start
            else:
                ranges.append(part)
        return attrs.evolve(plan, ranges=tuple(ranges)) if ranges else None

    def offsets_to_commit(
        self, offsets: Mapping[TopicPartition, int], moves: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offsets to commit when a batch up to these offsets is done.

        If ``auto_offset_reset`` has moved a position since, that position is committed, whether it
        is further or behind: the log has lost the batch's end. After retention the records before
        the position no longer exist. After a truncation, or if the topic was created again, the
        batch's end would skip records of the new log. The same holds if the program has sought: it
        wants the records from there on.

        Args:
            offsets: the ends of the batch.
            moves: what `moves` returned when it was planned.
        """
        self._follow_seeks()
        return {
            name: end if moves[name] == self._moves[name] else self._reset_positions[name]
            for name, end in offsets.items()
        }

    def record_sizes(
        self, ranges: Iterable[OffsetRange], counts: Mapping[TopicPartition, ReadCounts]
    ) -> None:
        """Record how large the records of ranges were, to estimate the next ones."""
        counted = tuple(part for part in ranges if part.topic_partition in counts)
        error = sum(one.bytes for one in counts.values()) - self._sizes.estimated_bytes(counted)
        self._limiter.spend(0, error, trio.current_time())
        self._sizes = self._sizes.after(counted, counts)

    def _ready(self) -> BatchPlan | None:
        """The plan of a batch, if one should begin now."""
        self._follow_seeks()
        now = trio.current_time()
        positions = {
            name: position
            for name, position in self._positions.items()
            if not self._offsets.is_paused(name)
        }
        planned = plan_batch(
            positions, self._ends, self._limiter.budget(now), self._sizes, self._turn
        )
        self._record_beyond(planned.beyond, now)
        if not planned.ranges:
            if not planned.lag:  # a reset may have passed the records that waited for more
                self._new_since = None
            return None
        if self._new_since is None:
            self._new_since = now
        # A lag beyond the plan means that a limit has cut it: waiting would not make it larger.
        if planned.lag or now - self._new_since >= self._max_wait:
            return planned
        return None

    def _take(self, planned: BatchPlan) -> None:
        self._turn += 1
        self._new_since = None
        self._limiter.spend(
            planned.offsets, self._sizes.estimated_bytes(planned.ranges), trio.current_time()
        )
        for part in planned.ranges:
            self._positions[part.topic_partition] = part.end

    def _pause(self) -> float:
        now = trio.current_time()
        pause = min(MAX_PAUSE, self._poll_interval * 2**self._unanswered_polls)
        if self._new_since is not None:
            pause = min(pause, max(0.001, self._new_since + self._max_wait - now))
        return float(max(pause, min(MAX_PAUSE, self._limiter.wait(now))))

    async def _poll_ends(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        ends = await self._offsets.end()
        complete = ends.keys() >= self._offsets.partitions
        self._unanswered_polls = 0 if complete else min(self._unanswered_polls + 1, 10)
        self._ends = {**self._ends, **ends}

    async def _check_for_loss(self) -> None:
        """Find positions that the log no longer has, and reset them."""
        now = trio.current_time()
        if now - self._loss_checked_at >= LOSS_CHECK_INTERVAL:
            self._loss_checked_at = now
            first = await self._offsets.first()
            self._follow_seeks()
            self._reset([name for name in sorted(first) if self._positions[name] < first[name]])
        lost = [
            name for name, since in self._beyond_since.items() if now - since >= BEYOND_END_TIMEOUT
        ]
        if lost:
            # The end that is known may be as old as the first time it was behind, if the leader has
            # not answered since. And under read_committed it is the last stable offset: a position
            # can be past it and still within the log. So the high watermark of now decides.
            ends = await self._offsets.end(IsolationLevel.READ_UNCOMMITTED)
            self._follow_seeks()
            lost = [name for name in lost if ends.get(name, 2**63) < self._positions[name]]
        self._reset(sorted(lost))
        try:
            await self._offsets.wait_until_reset()
        except BrokerError:
            self._loss_checked_at = -math.inf  # what is still lost must not be planned
            raise

    def _reset(self, lost: Collection[TopicPartition]) -> None:
        self._offsets.reset({name: self._positions[name] for name in lost}, self._found)

    def _follow_seeks(self) -> None:
        for name, position in self._offsets.sought().items():
            self._found(name, position)

    def _found(self, name: TopicPartition, position: int) -> None:
        self._beyond_since.pop(name, None)
        self._positions[name] = self._reset_positions[name] = position
        self._moves[name] += 1

    def _record_beyond(self, beyond: Iterable[PositionBeyondEnd], now: float) -> None:
        found = {one.partition for one in beyond}
        self._beyond_since = {name: self._beyond_since.get(name, now) for name in sorted(found)}
