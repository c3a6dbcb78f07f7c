"""The batch loop: a generation's partitions as Spark micro-batches, one after the other.

The driver looks how far the partitions can be read and plans a batch; executors read it; when the
sink has it, its end is committed under the generation's id. Generation and job are one: a batch
runs as work of the generation, which does not end before the batch's tasks have stopped.

INVARIANTS: at most ``in_flight`` batches are handed out and not yet run; offsets are committed in
the order of the batches, so that none is passed over unseen; no job starts without a valid lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import Any, Final, Self, TypeVar, final

import attrs
import trio

from kgroup import bounds
from kgroup.errors import LeaseExpiredError, StaleGenerationError, UsageError
from kgroup.events import BatchCancelled, BatchDone, BatchFailed
from kgroup.generation.generation import Generation
from kgroup.spark.batch import PASSED, BatchStage, MicroBatch
from kgroup.spark.batch_limits import Limits
from kgroup.spark.engine import Engine, Frame
from kgroup.spark.offset_poller import OffsetPoller
from kgroup.spark.offset_ranges import batch_id
from kgroup.spark.planning import BatchPlan
from kgroup.spark.size_estimates import Sizes
from kgroup.types import INT32_MAX, TopicPartition

T = TypeVar("T")

MOST_IN_FLIGHT: Final = 1000
"""Batches that may be handed out and not yet run."""
_CLOSING: Final = 10.0
"""Seconds that the engine's idle thread may take to end."""


@final
@attrs.frozen(kw_only=True)
class BatchPace:
    """When a batch is made.

    Attributes:
        max_wait: seconds for which the first new record may wait for more, so that batches are
            larger; 0 makes a batch as soon as there is something.
        poll_interval: seconds between looks at the ends when there is nothing new.
        in_flight: how many batches may be handed out and not yet run.
        record_bytes: how large a record is taken to be where nobody counts what was read.

    Raises:
        ConfigError: a value is not allowed.
    """

    max_wait: float = attrs.field(default=0.0, validator=bounds.seconds(0))
    poll_interval: float = attrs.field(default=0.05, validator=bounds.seconds())
    in_flight: int = attrs.field(default=1, validator=bounds.whole(1, MOST_IN_FLIGHT))
    record_bytes: int = attrs.field(default=1024, validator=bounds.whole(1, INT32_MAX))


@final
class Batches:
    """Batches of one generation; an async iterator, for one task at a time. See `batches`.

    It ends when the generation's end begins. Its partitions are no record stream's until it is
    closed, by its end, by `aclose`, or with the generation.
    """

    def __init__(
        self,
        generation: Generation,
        engine: Engine,
        limits: Limits,
        pace: BatchPace,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
    ) -> None:
        self._generation = generation
        self._engine = engine
        self._in_flight = pace.in_flight
        self._offsets = generation.offsets(partitions)
        self._lookout = OffsetPoller(
            self._offsets,
            generation.ending,
            limits,
            max_wait=pace.max_wait,
            poll_interval=pace.poll_interval,
            sizes=Sizes() if engine.counts else Sizes(unknown=pace.record_bytes),
        )
        self._planned: BatchPlan | None = None
        self._open: list[MicroBatch] = []
        self._made = 0
        self._runs = 0
        self._asking = False
        self._committing = trio.StrictFIFOLock()
        self._changed = trio.Event()
        self._figures: dict[MicroBatch, _Figures] = {}
        self._closed = False
        self._offsets.serve(self._close_with_generation)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MicroBatch:
        """The next batch, as soon as there is something new.

        Raises:
            StopAsyncIteration: the generation's end has begun, or the loop was closed.
            UsageError: the batch before was neither run, nor committed, nor skipped; or another
                task waits here.
            NoOffsetError | OffsetOutOfRangeError: a position does not exist and
                ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.

        Cancellation: loses nothing; the next call goes on where this one was.
        """
        if self._asking:
            raise UsageError("two tasks iterate over one batch loop; hand batches on instead")
        self._asking = True
        try:
            await trio.lowlevel.checkpoint()
            await self._room()
            batch = await self._next()
        finally:
            self._asking = False
        if batch is None:
            await self.aclose()
            raise StopAsyncIteration
        return batch

    async def aclose(self) -> None:
        """Give the partitions up, and end the thread of Spark's actions. Idempotent.

        A batch that runs goes on, and can be committed.
        """
        self._offsets.close()
        self._closed = True
        await self._close_engine()
        await trio.lowlevel.checkpoint()

    # For its batches.

    async def run_batch(self, batch: MicroBatch, fn: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a function as the batch's job; see `MicroBatch.run`."""
        self._runs += 1
        # A run of its own group: one that was cancelled takes no job ever after.
        group = f"kgroup-{batch.group_id}-{self._generation.epoch}-{batch.id[:12]}-{self._runs}"
        began = trio.current_time()
        batch.to(BatchStage.RUNNING)
        self._offsets.hold(working=True)
        try:
            value = await self._generation.run(
                partial(self._run_and_look, group, batch, partial(fn, batch.df, *args))
            )
        except (StaleGenerationError, trio.Cancelled):
            reason = str(self._generation.end or "the program cancelled it")
            self._emit_of_failure(BatchCancelled, batch, began, reason)
            raise
        except Exception as error:
            self._emit_of_failure(BatchFailed, batch, began, f"{type(error).__name__}: {error}")
            raise
        else:
            self._note(batch, began)
            batch.to(BatchStage.RAN)
            return value
        finally:
            self._offsets.hold(working=False)
            if self._closed:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING):
                    await self._close_engine()

    async def refuse_if_ended(self) -> None:
        """Raise StaleGenerationError if the generation has ended."""
        await self._generation.commit({})

    async def commit_batch(self, batch: MicroBatch) -> None:
        """Commit this batch's end, and those of earlier batches; see `MicroBatch.commit`."""
        async with self._committing:
            before = list(takewhile(lambda one: one is not batch, self._open))
            await self._until_passed(batch, before)
            if batch not in self._open:  # one after it has taken it along meanwhile
                return
            began = trio.current_time()
            together = (*before, batch)
            offsets = {name: end for one in together for name, end in one.offsets.items()}
            await self._generation.commit(self._lookout.passed(offsets))
            for one in before:
                one.to(BatchStage.COMMITTED)
            self._open = [one for one in self._open if one not in together]
            for one in together:
                self._emit_of(one, trio.current_time() - began)

    def moved(self) -> None:
        """A batch has come further."""
        self._changed.set()
        self._changed = trio.Event()

    async def _next(self) -> MicroBatch | None:
        if self._planned is None:
            self._planned = await self._lookout.next()
        if self._planned is None:
            return None
        began = trio.current_time()
        frame = await self._engine.frame(self._planned.ranges)
        planned, self._planned = self._planned, None
        if not self._offsets.running:
            return None
        self._made += 1
        batch = MicroBatch(
            self,
            id=batch_id(self._generation.group_id, planned.ranges),
            number=self._made,
            ranges=planned.ranges,
            df=frame.df,
            group_id=self._generation.group_id,
            generation_id=self._generation.generation_id,
        )
        self._open.append(batch)
        self._figures[batch] = _Figures(frame, planning=trio.current_time() - began)
        return batch

    async def _room(self) -> None:
        """Wait until another batch may be handed out."""
        while True:
            ahead = [one for one in self._open if one.stage not in PASSED]
            stuck = [
                one
                for one in ahead
                if one.stage is BatchStage.FAILED
                or (one.stage is BatchStage.NEW and len(ahead) >= self._in_flight == 1)
            ]
            if stuck and self._generation.end is None:
                raise UsageError(
                    f"{stuck[0]} is {stuck[0].stage.value}, and the next one was asked for: run"
                    " it, or say batch.skip() to give its records up"
                )
            if len(ahead) < self._in_flight or self._generation.end is not None:
                return
            await self._changed.wait()

    async def _until_passed(self, batch: MicroBatch, before: list[MicroBatch]) -> None:
        """Wait for the batches before; refuse what would pass over one that the sink lacks."""
        while self._generation.end is None:
            missing = [one for one in before if one.stage not in PASSED]
            if not missing:
                return
            first = missing[0]
            if first.stage is BatchStage.FAILED or self._in_flight == 1:
                raise UsageError(
                    f"{batch}: its commit would pass over {first}, which is {first.stage.value};"
                    " nothing was sent: run that one, or say skip() to give its records up"
                )
            await self._changed.wait()

    async def _run_and_look(self, group: str, batch: MicroBatch, fn: Callable[[], T]) -> T:
        if self._generation.lease <= 0:
            await self._offsets.confirmed()
        if self._generation.lease <= 0:
            raise LeaseExpiredError(
                f"{batch} was not run: the lease has ended and no heartbeat could confirm"
                " membership; its records will be read by whoever owns the partitions",
                self._generation.end,
            )
        returned: list[T] = []
        error: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._lookout.keep_looking)
            try:
                returned.append(await self._engine.run(group, batch.description, fn))
            except Exception as raised:  # noqa: BLE001 # it is the caller's, not in a group
                error = raised
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error
        return returned[0]

    def _note(self, batch: MicroBatch, began: float) -> None:
        """What the run has brought."""
        figures = self._figures[batch]
        figures.running = trio.current_time() - began
        seen = figures.frame.seen()
        if seen is not None:
            self._lookout.learn(batch.ranges, seen)

    def _emit_of(self, batch: MicroBatch, committing: float) -> None:
        figures = self._figures.pop(batch)
        seen = figures.frame.seen()
        self._generation.emit(
            BatchDone,
            batch_id=batch.id,
            ranges={part.topic_partition: (part.start, part.end) for part in batch.ranges},
            rows=batch.span if seen is None else sum(one.records for one in seen.values()),
            bytes=None if seen is None else sum(one.bytes for one in seen.values()),
            planning=figures.planning,
            running=figures.running,
            committing=committing,
            lag=self._lookout.lag,
        )
        figures.frame.forget()

    def _emit_of_failure(
        self,
        kind: type[BatchFailed | BatchCancelled],
        batch: MicroBatch,
        began: float,
        reason: str,
    ) -> None:
        self._generation.emit(
            kind,
            batch_id=batch.id,
            ranges={part.topic_partition: (part.start, part.end) for part in batch.ranges},
            running=trio.current_time() - began,
            reason=reason,
        )
        batch.to(BatchStage.FAILED)

    async def _close_engine(self) -> None:
        """End the engine's thread, unless it still has something to do."""
        if not any(one.stage is BatchStage.RUNNING for one in self._open):
            await self._engine.aclose()

    async def _close_with_generation(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING):
                await self.aclose()


@final
@attrs.define
class _Figures:
    """What is measured of one batch; seconds."""

    frame: Frame
    planning: float
    running: float = 0.0
