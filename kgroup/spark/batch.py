"""One micro-batch: ranges of offsets as a frame, run under its own job group, then committed.

The table `ALLOWED` says which method may be called in which stage. The batch loop keeps the order
of commits: every commit goes through it.

INVARIANTS: a batch is committed once, and never while it runs or while an earlier batch could
still be lost; a batch whose run failed is not committed unless the program skips it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar, final

from kgroup.errors import UsageError
from kgroup.functions import check_arguments, check_plain
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.types import TopicPartition

T = TypeVar("T")

_MAX_DESCRIPTION: Final = 1000
"""Characters of a job's description; hundreds of partitions would fill the jobs page of Spark's
UI."""

IN_A_THREAD: Final = "it is called in a thread, where nothing awaits it; make it a plain function"
"""What a program should do with an async function for batches."""
ON_FRAME: Final = ("df", "batch")
"""What the function of ``foreach_batch`` is called with."""


@final
class BatchStage(enum.Enum):
    """How far a batch has come."""

    NEW = "not run"
    RUNNING = "running"
    RAN = "run"
    FAILED = "failed"
    COMMITTED = "committed"
    SKIPPED = "skipped"


DONE: Final = frozenset({BatchStage.COMMITTED, BatchStage.SKIPPED})
"""The offsets are committed: the batch cannot be lost any more."""
PROCESSED: Final = DONE | {BatchStage.RAN}
"""The sink has the batch, or it was given up: later batches may be committed."""
ALLOWED: Final[Mapping[str, frozenset[BatchStage]]] = {
    "run": frozenset({BatchStage.NEW, BatchStage.RAN, BatchStage.FAILED}),
    "commit": frozenset({BatchStage.NEW, BatchStage.RAN}),
    "skip": frozenset({BatchStage.NEW, BatchStage.RAN, BatchStage.FAILED}),
}
"""The stages in which each method of a batch may be called."""
_ADVICE: Final = {
    BatchStage.RUNNING: "wait until its run has ended",
    BatchStage.FAILED: "run it again, or call batch.skip() to give up its records",
    BatchStage.COMMITTED: "continue with the next batch",
    BatchStage.SKIPPED: "continue with the next batch",
}


class BatchLoop(Protocol):
    """The methods of a loop that its batches call; ``batch_loop.Batches`` implements them."""

    async def run_batch(self, batch: MicroBatch, fn: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a function as the batch's job."""
        ...

    async def refuse_if_ended(self) -> None:
        """Raise StaleGenerationError if the generation has ended."""
        ...

    async def commit_batch(self, batch: MicroBatch, method: str) -> None:
        """Commit the batch's end offsets, once all earlier batches are processed."""
        ...

    def stage_changed(self) -> None:
        """Wake the tasks that wait for a change of a batch's stage."""
        ...


@final
class MicroBatch:
    """Some new records of a generation's partitions. `batches` makes it.

    Attributes:
        id: a hash of the group and the ranges. The same ranges have the same id in every
            generation and driver, so that a sink can remember which batches it has.
        number: the batch's number in its loop, from 1.
        ranges: one range for each partition that has new records, sorted.
        df: the records as a Spark DataFrame with the columns of Spark's own Kafka source. Each
            action reads them from Kafka again; cache it if several actions use it.
        generation_id: the id of the generation.
        group_id: the group.
        stage: how far the batch has come.
    """

    def __init__(
        self,
        loop: BatchLoop,
        *,
        id: str,  # noqa: A002 # what it is called
        number: int,
        ranges: tuple[OffsetRange, ...],
        df: Any,
        group_id: str,
        generation_id: int,
    ) -> None:
        self._loop = loop
        self.id = id
        self.number = number
        self.ranges = ranges
        self.df = df
        self.group_id = group_id
        self.generation_id = generation_id
        self.stage = BatchStage.NEW

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition after this batch; `commit` commits these."""
        return {part.topic_partition: part.end for part in self.ranges}

    @property
    def span(self) -> int:
        """How many offsets the batch spans: the most rows that it can have."""
        return sum(part.offsets for part in self.ranges)

    @property
    def description(self) -> str:
        """The description of its jobs in Spark's UI and listeners."""
        text = (
            f"kgroup {self.group_id}, generation {self.generation_id}, batch {self.id[:8]}:"
            f" {self.span} offsets, {', '.join(map(str, self.ranges))}"
        )
        return text if len(text) <= _MAX_DESCRIPTION else f"{text[:_MAX_DESCRIPTION]}..."

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(batch.df, *args)`` in a thread, as one cancellable Spark job group.

        Heartbeats continue meanwhile. When the generation drains, the function may run until the
        drain's deadline. After that, or at once if membership is lost, its jobs are cancelled and
        no new one can start; the generation ends only when all its tasks have stopped.

        Returns:
            What the function returned.

        Raises:
            StaleGenerationError: the generation ended before or during the run.
            FetchError: a topic was deleted and created again meanwhile; nothing was committed.
            BrokerError: a broker refused the request for the topics' ids.
            UsageError: the batch runs already, is being committed, or was committed or skipped; or
                the function returned work that is not done, such as a coroutine or a generator.
            ArgumentError: ``fn`` is async, a generator function, or takes other arguments.
            Exception: raised by the function; run the batch again, `skip` it, or let the
                exception end the generation.

        Cancellation: the jobs are cancelled, and the call returns when they have stopped.
        """
        check_plain("fn", fn, None, instead=IN_A_THREAD)
        check_arguments("fn", fn, (self.df, *args))
        self.check_allowed("run")
        return await self._loop.run_batch(self, fn, args)

    async def commit(self) -> None:
        """Commit the ends of the ranges under the generation's id, after the sink has the records.

        Raises:
            UsageError: the batch runs, its run failed, or an earlier batch was neither run,
                committed nor skipped; nothing was sent.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.

        Cancellation: as ``Generation.commit``.
        """
        await self._loop.refuse_if_ended()
        self.check_allowed("commit")
        await self._loop.commit_batch(self, "commit")
        self.set_stage(BatchStage.COMMITTED)

    async def skip(self) -> None:
        """Commit the ends of the ranges although the run failed: the records are given up.

        Raises:
            UsageError: the batch runs, or was committed or skipped.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.
        """
        await self._loop.refuse_if_ended()
        self.check_allowed("skip")
        await self._loop.commit_batch(self, "skip")
        self.set_stage(BatchStage.SKIPPED)

    def check_allowed(self, method: str) -> None:
        """Refuse a method that may not be called in the batch's stage.

        Raises:
            UsageError: it may not; the text says what to do instead.
        """
        if self.stage not in ALLOWED[method]:
            raise UsageError(
                f"{self}: {method}() is refused, because the batch is {self.stage.value};"
                f" {_ADVICE[self.stage]}"
            )

    def set_stage(self, stage: BatchStage) -> None:
        """Set the stage and notify the loop; only the loop calls this."""
        self.stage = stage
        self._loop.stage_changed()

    def __str__(self) -> str:
        return (
            f"batch {self.number} ({self.id[:8]}) of group {self.group_id!r}, generation"
            f" {self.generation_id}"
        )

    def __repr__(self) -> str:
        return f"<MicroBatch {self.number} {self.id[:8]}, {self.span} offsets, {self.stage.value}>"
