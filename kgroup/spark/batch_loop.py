"""The batch loop: a generation's partitions as Spark micro-batches, one after the other.

Theory of operation. The driver polls the end offsets and plans a batch (``offset_poller``,
``planning``); an engine makes a DataFrame of its ranges (``engine``); the program runs the batch,
and executors read it (``range_reader``); after the sink has it, the loop commits its end offsets
under the generation's id.

A run is work of the generation (`Generation.run`): the generation cannot end, and the member
cannot rejoin, before all Spark tasks of the batch have stopped. So the next owner of a partition
never reads it while a task of this driver still writes. The lease is checked before each run,
because a driver that was frozen must not start a job for partitions that it has lost.

Batches are committed in order. A commit takes earlier batches that have run along with it, waits
for those that still run (``in_flight`` above 1), and is refused if one of them failed: its records
would be skipped without notice. In a drain commits still succeed, so the same holds there. It only
does not wait for a batch that is not run yet, because nothing may begin to run it any more.

All records of a batch are of one log: a topic that is deleted and created again while a batch runs
has another id afterwards, and the run fails. Neither librdkafka nor Spark's own source sees that;
they go on at their position in the new log. The end of a batch that was planned before a reset is
an offset of the log that was lost, so its commit is the position where reading has continued.

INVARIANTS: at most ``in_flight`` batches are handed out and not yet run, and a bounded number waits
for the commit of an earlier one; offsets are committed in the order of the batches, and no commit
passes a batch that is not processed, whatever the state of the generation; no job starts without a
valid lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import dropwhile, takewhile
from typing import Any, Final, Self, TypeVar, final
from uuid import UUID, uuid4

import attrs
import trio

from kgroup.errors import (
    FetchError,
    LeaseExpiredError,
    StaleGenerationError,
    UsageError,
    in_one_line,
)
from kgroup.events import BatchCancelled, BatchDone, BatchFailed
from kgroup.functions import check_result, is_program_error
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.notifier import Notifier
from kgroup.spark.batch import IN_A_THREAD, PROCESSED, BatchStage, MicroBatch
from kgroup.spark.batch_limits import BatchPace, Limits
from kgroup.spark.engine import BatchEngine, Frame
from kgroup.spark.offset_poller import OffsetPoller
from kgroup.spark.offset_ranges import batch_id
from kgroup.spark.planning import BatchPlan
from kgroup.spark.size_estimates import LEAST, SizeEstimates
from kgroup.types import TopicPartition

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 10.0
"""Seconds that the engine's idle threads may take to end."""
MOST_BEHIND: Final = 8
"""The most batches, for each one in flight, from the first that is not processed on. Those that
have run cannot be committed before it; if it fails, all of them are read again."""


@final
class Batches:
    """The batches of one generation; an async iterator for one task at a time. See `batches`.

    The iteration ends when the generation begins to drain. No record stream of the generation can
    have the partitions until the loop is closed: by its end, by `aclose`, or with the generation.
    """

    def __init__(
        self,
        generation: Generation,
        engine: BatchEngine,
        limits: Limits,
        pace: BatchPace,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
    ) -> None:
        self._generation = generation
        self._engine = engine
        self._in_flight = pace.in_flight
        self._offsets = generation.offsets(partitions)
        self._poller = OffsetPoller(
            self._offsets,
            generation.ending,
            limits,
            max_wait=pace.max_wait,
            poll_interval=pace.poll_interval,
            sizes=SizeEstimates()
            if engine.counts_reads
            else SizeEstimates(unknown=max(LEAST, pace.record_bytes)),
        )
        self._plan: BatchPlan | None = None
        self._plan_moves: Mapping[TopicPartition, int] = {}
        self._open_batches: list[MicroBatch] = []
        self._batch_count = 0
        self._token = uuid4().hex[:12]
        """Tells this loop's job groups from those of all others that Spark remembers."""
        self._runs = 0
        self._waiting = False
        self._committing = trio.StrictFIFOLock()
        self._in_request: tuple[MicroBatch, ...] = ()
        """The batches whose ends are being committed now."""
        self._changed = Notifier()
        self._details: dict[MicroBatch, _Details] = {}
        self._closed = False
        self._offsets.serve(self._close_with_generation)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MicroBatch:
        """Wait for new records, and return the next batch.

        Raises:
            StopAsyncIteration: the generation has begun to drain, or the loop was closed.
            UsageError: the previous batch was neither run, committed nor skipped; or another task
                is waiting for the next batch.
            NoOffsetError | OffsetOutOfRangeError: a position does not exist and
                ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refused the request, and would refuse it again.

        Cancellation: nothing is lost; the next call returns the same records.
        """
        if self._waiting:
            raise UsageError(
                "two tasks iterate over one batch loop; let one task iterate, and pass its batches"
                " to others"
            )
        self._waiting = True
        try:
            await trio.lowlevel.checkpoint()
            await self._wait_for_room()
            batch = await self._next()
        finally:
            self._waiting = False
        if batch is None:
            await self.aclose()
            raise StopAsyncIteration
        return batch

    async def aclose(self) -> None:
        """Release the partitions, and end the threads that run Spark actions. Idempotent.

        A batch that is running continues, and can be committed.
        """
        self._offsets.close()
        self._closed = True
        await self._close_engine()
        await trio.lowlevel.checkpoint()

    # The methods of the protocol `BatchLoop`, which batches call.

    async def run_batch(self, batch: MicroBatch, fn: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a function as the batch's job; see `MicroBatch.run`."""
        if batch in self._in_request:
            raise UsageError(
                f"{batch}: run() is refused, because its offsets are being committed; wait until"
                " the commit has ended"
            )
        self._runs += 1
        # Each run has a job group of its own: a cancelled group never accepts another job. Epochs
        # and runs are counted anew in each ConsumerGroup and loop, on one Spark session.
        group = f"kgroup-{batch.group_id}-{batch.id[:12]}-{self._token}-{self._runs}"
        began = trio.current_time()
        batch.set_stage(BatchStage.RUNNING)
        self._offsets.hold(batch, working=True)
        try:
            value = await self._generation.run(
                partial(self._run_while_polling, group, batch, partial(_call, fn, batch.df, *args))
            )
        except (StaleGenerationError, trio.Cancelled):
            reason = str(self._generation.end or "the program cancelled it")
            self._emit_failure(BatchCancelled, batch, began, reason)
            raise
        except BaseException as error:
            if is_program_error(error):
                self._emit_failure(BatchFailed, batch, began, in_one_line(error))
            raise
        else:
            self._record_run(batch, began)
            batch.set_stage(BatchStage.RAN)
            return value
        finally:
            self._offsets.hold(batch, working=False)
            if self._closed:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_TIMEOUT):
                    await self._close_engine()

    async def refuse_if_ended(self) -> None:
        """Raise StaleGenerationError if the generation has ended."""
        await self._generation.commit({})

    async def commit_batch(self, batch: MicroBatch, method: str) -> None:
        """Commit this batch's end, and those of earlier batches; see `MicroBatch.commit`."""
        async with self._committing:
            before = list(takewhile(lambda one: one is not batch, self._open_batches))
            await self._wait_until_processed(batch, before)
            if batch not in self._open_batches:  # a later batch's commit took it along meanwhile
                return
            batch.check_allowed(method)  # another task may have begun to run it meanwhile
            began = trio.current_time()
            together = (*before, batch)
            offsets: dict[TopicPartition, int] = {}
            for one in together:
                moves = self._details[one].moves
                offsets.update(self._poller.offsets_to_commit(one.offsets, moves))
            self._keep_before(self._open_batches[len(together) :], offsets)
            self._in_request = together
            try:
                await self._generation.commit(offsets)
            finally:
                self._in_request = ()
            for one in before:
                one.set_stage(BatchStage.COMMITTED)
            self._open_batches = [one for one in self._open_batches if one not in together]
            for one in together:
                self._emit_done(one, trio.current_time() - began)

    def stage_changed(self) -> None:
        """Wake the tasks that wait for a change of a batch's stage."""
        self._changed.notify()

    async def _next(self) -> MicroBatch | None:
        if self._plan is not None:  # the program was cancelled before it got its batch
            self._plan = self._poller.still_wanted(self._plan, self._plan_moves)
        if self._plan is None:
            self._plan = await self._poller.next()
            if self._plan is not None:
                parts = [part.topic_partition for part in self._plan.ranges]
                self._plan_moves = self._poller.moves(parts)
        if self._plan is None:
            return None
        began = trio.current_time()
        frame = await self._engine.frame(self._plan.ranges)
        planned, self._plan = self._plan, None
        if not self._offsets.running:
            return None
        self._batch_count += 1
        batch = MicroBatch(
            self,
            id=batch_id(self._generation.group_id, planned.ranges),
            number=self._batch_count,
            ranges=planned.ranges,
            df=frame.df,
            group_id=self._generation.group_id,
            generation_id=self._generation.generation_id,
        )
        self._open_batches.append(batch)
        self._details[batch] = _Details(
            frame, self._plan_moves, planning=trio.current_time() - began
        )
        return batch

    async def _wait_for_room(self) -> None:
        """Wait until another batch may be handed out.

        Raises:
            UsageError: the program would wait for ever, because it has not run the last batch.
        """
        while True:
            ahead = [one for one in self._open_batches if one.stage not in PROCESSED]
            behind = list(dropwhile(lambda one: one.stage in PROCESSED, self._open_batches))
            full = len(behind) >= self._in_flight * MOST_BEHIND
            # Nothing else would end the wait than the batch that the program has forgotten.
            forgotten = len(ahead) >= self._in_flight == 1 or (
                full and all(one.stage is BatchStage.NEW for one in ahead)
            )
            stuck = [
                one
                for one in ahead
                if one.stage is BatchStage.FAILED or (one.stage is BatchStage.NEW and forgotten)
            ]
            if stuck and self._generation.end is None:
                raise UsageError(
                    f"{stuck[0]} is {stuck[0].stage.value}, but the loop was advanced to the next"
                    " batch: run it first, or call batch.skip() to give up its records"
                )
            room = len(ahead) < self._in_flight and not full
            if room or self._generation.end is not None:
                return
            await self._changed.wait()
            # A task that raises what failed its batch cancels this one now, as a rule: that error
            # is the cause, and the failed batch no mistake of the program's.
            await trio.lowlevel.checkpoint()

    def _keep_before(
        self, following: Iterable[MicroBatch], offsets: dict[TopicPartition, int]
    ) -> None:
        """Keep the offsets of a commit from passing later batches that are not processed."""
        moves = self._poller.moves(offsets)
        for later in following:
            if later.stage in PROCESSED:
                continue
            planned = self._details[later].moves
            for part in later.ranges:
                name = part.topic_partition
                if part.start >= offsets.get(name, 0):
                    continue
                if planned[name] == moves[name]:  # a reset has moved the position into it
                    offsets[name] = part.start
                else:
                    # A reset has moved the position past it, and nothing before that can be
                    # committed any more. The commit of that batch includes this one's.
                    del offsets[name]

    async def _wait_until_processed(self, batch: MicroBatch, before: list[MicroBatch]) -> None:
        """Wait until the earlier batches are processed.

        Raises:
            UsageError: the commit would skip an earlier batch that the sink does not have.
            StaleGenerationError: it would, and the generation ends.
        """
        while self._generation.state is not State.ENDED:  # then the coordinator refuses the commit
            missing = [one for one in before if one.stage not in PROCESSED]
            if not missing:
                return
            for one in missing:
                self._refuse_to_skip(one, batch)
            await self._changed.wait()

    def _refuse_to_skip(self, missing: MicroBatch, batch: MicroBatch) -> None:
        """Refuse a commit if the earlier batch that it would skip may never be processed."""
        end, stage = self._generation.end, missing.stage
        if end is not None and stage in (BatchStage.FAILED, BatchStage.NEW):
            raise StaleGenerationError(
                f"{batch}: nothing was committed, because the generation ends ({end}), and the"
                f" commit would skip {missing}, which is {stage.value}. The next owners of the"
                " partitions read the records of both again; continue with the next generation",
                end,
            )
        if stage is BatchStage.FAILED or self._in_flight == 1:
            raise UsageError(
                f"{batch}: its commit would skip {missing}, which is {stage.value};"
                " nothing was sent: run that batch, or call its skip() to give up its records"
            )

    async def _run_while_polling(self, group: str, batch: MicroBatch, fn: Callable[[], T]) -> T:
        topics = {part.topic for part in batch.ranges}
        ids = await self._offsets.topic_ids(topics)
        if self._generation.lease <= 0:
            await self._offsets.confirmed()
        if self._generation.lease <= 0:
            raise LeaseExpiredError(
                f"{batch} was not run: the lease has expired and no heartbeat could confirm the"
                " membership; the next owners of the partitions will read its records",
                self._generation.end,
            )
        returned: list[T] = []
        error: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._poller.keep_polling)
            try:
                returned.append(await self._engine.run(group, batch.description, fn))
            except BaseException as raised:
                if not is_program_error(raised):
                    raise
                error = raised  # raised below, outside of trio's group
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error
        _refuse_recreated(batch, ids, await self._offsets.topic_ids(topics))
        return returned[0]

    def _record_run(self, batch: MicroBatch, began: float) -> None:
        """Record how long the run took, and how large its records were."""
        details = self._details[batch]
        details.running = trio.current_time() - began
        counts = details.frame.read_counts()
        if counts is not None:
            self._poller.record_sizes(batch.ranges, counts)

    def _emit_done(self, batch: MicroBatch, committing: float) -> None:
        details = self._details.pop(batch)
        counts = details.frame.read_counts()
        self._generation.emit(
            BatchDone,
            batch_id=batch.id,
            ranges={part.topic_partition: (part.start, part.end) for part in batch.ranges},
            rows=batch.span if counts is None else sum(one.records for one in counts.values()),
            bytes=None if counts is None else sum(one.bytes for one in counts.values()),
            planning=details.planning,
            running=details.running,
            committing=committing,
            lag=self._poller.lag,
        )
        details.frame.discard_counts()

    def _emit_failure(
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
        batch.set_stage(BatchStage.FAILED)

    async def _close_engine(self) -> None:
        """End the engine's threads, unless a batch still runs."""
        if not any(one.stage is BatchStage.RUNNING for one in self._open_batches):
            await self._engine.aclose()

    async def _close_with_generation(self) -> None:
        try:
            await self._generation.ending.wait()
            self._changed.notify()
            await trio.sleep_forever()
        finally:
            self._changed.notify()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_TIMEOUT):
                await self.aclose()


def _call(fn: Callable[..., T], *args: Any) -> T:
    """Call the program's function, in its thread, and check what it returned.

    Raises:
        UsageError: the result is work that has not been done; it must not be committed.
    """
    returned = fn(*args)
    check_result(fn, returned, IN_A_THREAD)
    return returned


def _refuse_recreated(
    batch: MicroBatch, before: Mapping[str, UUID], after: Mapping[str, UUID]
) -> None:
    for part in batch.ranges:
        known, now = before.get(part.topic), after.get(part.topic)
        if known is not None and now is not None and known != now:
            raise FetchError(
                f"{batch}: topic {part.topic!r} was deleted and created again while the batch ran,"
                f" so that the records of {part} may be of both topics; nothing was committed. Run"
                " the batch again to read that range of the new topic, or call batch.skip() to give"
                " it up",
                part.topic_partition,
            )


@final
@attrs.define
class _Details:
    """What the loop keeps of one batch: how often resets had moved its partitions, and seconds."""

    frame: Frame
    moves: Mapping[TopicPartition, int]
    planning: float
    running: float = 0.0
