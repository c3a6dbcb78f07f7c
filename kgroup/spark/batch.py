"""One micro-batch: ranges of offsets as a frame, run under its own job group, then committed.

What may be done with it when is a table; the order of batches is kept by the loop, which is asked
before anything is committed.

INVARIANTS: a batch is committed once, only when nothing of it runs, and never while a batch
before it could still be lost; a run that failed is not committed unless the program says so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar, final

from kgroup.errors import UsageError
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.types import TopicPartition

T = TypeVar("T")

_LONGEST_DESCRIPTION: Final = 1000
"""Characters of a job's description; hundreds of partitions would fill Spark's page of jobs."""


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
"""Nothing of the batch can be lost any more."""
PASSED: Final = DONE | {BatchStage.RAN}
"""The batches after it may be committed: the sink has it."""
ALLOWED: Final[Mapping[str, frozenset[BatchStage]]] = {
    "run": frozenset({BatchStage.NEW, BatchStage.RAN, BatchStage.FAILED}),
    "commit": frozenset({BatchStage.NEW, BatchStage.RAN}),
    "skip": frozenset({BatchStage.NEW, BatchStage.RAN, BatchStage.FAILED}),
}
"""In which stages each can be done."""
_ADVICE: Final = {
    BatchStage.RUNNING: "wait until its run has ended",
    BatchStage.FAILED: "run it again, or say batch.skip() to give its records up",
    BatchStage.COMMITTED: "go on with the next batch",
    BatchStage.SKIPPED: "go on with the next batch",
}


class Keeper(Protocol):
    """The loop, as its batches see it."""

    async def run_batch(self, batch: MicroBatch, fn: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a function as the batch's job."""
        ...

    async def refuse_if_ended(self) -> None:
        """Raise StaleGenerationError if the generation has ended."""
        ...

    async def commit_batch(self, batch: MicroBatch) -> None:
        """Commit where the batch ends, once those before it are through."""
        ...

    def moved(self) -> None:
        """A batch has come further."""
        ...


@final
class MicroBatch:
    """Some new records of a generation's partitions. Made by `batches`.

    Attributes:
        id: from the group and the ranges: the same ranges have the same id, in whichever
            generation and driver; for a sink that remembers what it has.
        number: of the batch in its loop, from 1.
        ranges: one for each partition that has something new, sorted.
        df: the records as a Spark DataFrame with the columns of Spark's own Kafka source. It
            reads them anew for each action; cache it for several.
        generation_id: of the generation.
        group_id: the group.
        stage: how far it has come.
    """

    def __init__(
        self,
        keeper: Keeper,
        *,
        id: str,  # noqa: A002 # what it is called
        number: int,
        ranges: tuple[OffsetRange, ...],
        df: Any,
        group_id: str,
        generation_id: int,
    ) -> None:
        self._keeper = keeper
        self.id = id
        self.number = number
        self.ranges = ranges
        self.df = df
        self.group_id = group_id
        self.generation_id = generation_id
        self.stage = BatchStage.NEW

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where each partition goes on after this batch: what is committed."""
        return {part.topic_partition: part.end for part in self.ranges}

    @property
    def span(self) -> int:
        """How many offsets it has: the most rows that it can have."""
        return sum(part.offsets for part in self.ranges)

    @property
    def description(self) -> str:
        """What Spark's UI and listeners show of its jobs."""
        text = (
            f"kgroup {self.group_id}, generation {self.generation_id}, batch {self.id[:8]}:"
            f" {self.span} offsets, {', '.join(map(str, self.ranges))}"
        )
        return text if len(text) <= _LONGEST_DESCRIPTION else f"{text[:_LONGEST_DESCRIPTION]}..."

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(batch.df, *args)`` in a thread, as one cancellable Spark job group.

        Heartbeats go on meanwhile. On a planned end of the generation it has until the drain's
        deadline; then, and at once where membership is lost, its jobs are cancelled and none
        starts any more, and the generation's end waits until its tasks have really stopped.

        Returns:
            what the function returned.

        Raises:
            StaleGenerationError: the generation has ended before or meanwhile.
            UsageError: it runs already, or was committed.
            Exception: what the function raised; run it again, `skip` it, or let the exception
                end the generation.

        Cancellation: the jobs are cancelled, and it is waited until they have stopped.
        """
        self.check("run")
        return await self._keeper.run_batch(self, fn, args)

    async def commit(self) -> None:
        """Commit the ends of the ranges under the generation's id, now that the sink has them.

        Raises:
            UsageError: it runs, its run failed, or a batch before it is neither run, committed
                nor skipped: nothing was sent.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.

        Cancellation: as ``Generation.commit``.
        """
        await self._keeper.refuse_if_ended()
        self.check("commit")
        await self._keeper.commit_batch(self)
        self.to(BatchStage.COMMITTED)

    async def skip(self) -> None:
        """Commit past this batch although its run failed: its records are given up, on purpose.

        Raises:
            UsageError: it runs, or was committed.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.
        """
        await self._keeper.refuse_if_ended()
        self.check("skip")
        await self._keeper.commit_batch(self)
        self.to(BatchStage.SKIPPED)

    def check(self, what: str) -> None:
        """Refuse what cannot be done with the batch in its stage.

        Raises:
            UsageError: it says what can be done instead.
        """
        if self.stage not in ALLOWED[what]:
            raise UsageError(
                f"{self}: {what}() is refused, because the batch is {self.stage.value};"
                f" {_ADVICE[self.stage]}"
            )

    def to(self, stage: BatchStage) -> None:
        """It has come so far; for the loop."""
        self.stage = stage
        self._keeper.moved()

    def __str__(self) -> str:
        return (
            f"batch {self.number} ({self.id[:8]}) of group {self.group_id!r}, generation"
            f" {self.generation_id}"
        )

    def __repr__(self) -> str:
        return f"<MicroBatch {self.number} {self.id[:8]}, {self.span} offsets, {self.stage.value}>"
