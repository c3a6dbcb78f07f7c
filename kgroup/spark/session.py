"""The engine of a real Spark session: frames by ``frames``, runs by ``runner``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs
import trio

from kgroup.errors import ConfigError
from kgroup.spark.columns import DEFAULT, checked
from kgroup.spark.engine import Frame
from kgroup.spark.frames import BACKENDS, Backend, count_seen, frame
from kgroup.spark.offset_ranges import PARALLELISM, OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.session_jobs import CancellableJobs, Outstay, Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def _known(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in BACKENDS:
        known = " or ".join(map(repr, BACKENDS))
        raise ConfigError(attribute.name, value, f"it must be {known}")


@final
@attrs.frozen(kw_only=True)
class Reading:
    """How executors read.

    Attributes:
        settings: of the readers.
        columns: which columns of Spark's own Kafka source; others are not read.
        backend: ``"python"`` or ``"jvm"``.
        parallelism: how many tasks read; what Spark can run at once by default.

    Raises:
        ConfigError: an unknown column or backend; too many tasks.
    """

    settings: ReaderSettings
    columns: Sequence[str] = attrs.field(default=DEFAULT, converter=checked)
    backend: Backend = attrs.field(default="python", validator=_known)
    parallelism: int | None = attrs.field(default=None, validator=PARALLELISM)


@final
class SparkEngine:
    """An ``Engine`` on a session.

    Args:
        spark: the session.
        jobs: the session's; threads inherit what Spark keeps for the thread that made it.
        reading: how executors read.
        name: of the threads in which actions run.
        outstayed: is told, in the event loop, of what goes on after it was cancelled.
    """

    def __init__(
        self,
        spark: SparkSession,
        jobs: CancellableJobs,
        reading: Reading,
        name: str,
        outstayed: Callable[[Outstay], None],
    ) -> None:
        self._spark = spark
        self._reading = reading
        self._name = name
        self._outstayed = outstayed
        self._jobs = jobs
        self._count = count_seen(spark) if reading.backend == "python" else None
        self._idle: list[Runner] = []
        self._made = 0

    @property
    def counts(self) -> bool:
        """Whether its frames tell what was read: not over Connect, nor where the JVM reads."""
        return self._count is not None

    async def frame(self, ranges: Collection[OffsetRange]) -> Frame:
        """A DataFrame over ranges; made in a thread, because the JVM is asked."""
        return await trio.to_thread.run_sync(partial(self._frame, tuple(ranges)))

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread that is kept for the next one; see ``Runner.run``."""
        runner = self._idle.pop() if self._idle else self._another()
        try:
            return await runner.run(group, description, fn, *args)
        finally:
            self._idle.append(runner)

    async def aclose(self) -> None:
        """End the threads that are idle; all are, when nothing runs."""
        idle, self._idle = self._idle, []
        for runner in idle:
            await runner.__aexit__()
        await trio.lowlevel.checkpoint()

    def _another(self) -> Runner:
        self._made += 1
        return Runner(self._jobs, f"{self._name}-{self._made}", self._outstayed)

    def _frame(self, ranges: tuple[OffsetRange, ...]) -> Frame:
        count = self._count = self._count and self._count.another()
        df = frame(
            self._spark,
            ranges,
            self._reading.settings,
            columns=self._reading.columns,
            parallelism=self._reading.parallelism,
            backend=self._reading.backend,
            seen=count,
        )
        if count is None:
            return Frame(df, lambda: None, lambda: None)
        return Frame(df, count.total, count.forget)
