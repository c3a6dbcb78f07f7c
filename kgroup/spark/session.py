"""A real Spark session: its jobs, and the engine that makes frames and runs functions on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs
import trio

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.records.librdkafka_settings import with_known
from kgroup.spark.action_runner import ActionRunner, UnfinishedJob
from kgroup.spark.cancellable_jobs import CancellableJobs
from kgroup.spark.columns import DEFAULT, check_columns
from kgroup.spark.engine import Frame
from kgroup.spark.frames import BACKENDS, Backend, frame, read_counter
from kgroup.spark.offset_ranges import PARALLELISM, OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.worker_thread import unlimited_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def _check_backend(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in BACKENDS:
        known = " or ".join(map(repr, BACKENDS))
        raise ConfigError(attribute.name, value, f"it must be {known}")


@final
@attrs.frozen(kw_only=True)
class ReadOptions:
    """How executors read the batches of one loop.

    Attributes:
        settings: the readers' settings.
        columns: columns of Spark's own Kafka source; other columns are not read.
        backend: ``"python"`` or ``"jvm"``.
        parallelism: how many tasks read; by default as many as Spark runs at once.

    Raises:
        ConfigError: an unknown column or backend; too many tasks.
    """

    settings: ReaderSettings
    columns: Sequence[str] = attrs.field(default=DEFAULT, converter=check_columns)
    backend: Backend = attrs.field(default="python", validator=_check_backend)
    parallelism: int | None = attrs.field(default=None, validator=PARALLELISM)


@final
class SparkEngine:
    """The ``BatchEngine`` of a Spark session.

    Args:
        spark: the session.
        jobs: the session's; threads inherit what Spark keeps for the thread that made it.
        reading: how executors read.
        name: of the threads in which actions run.
        on_unfinished: is called in the event loop for what still runs after it was cancelled.
        addresses: returns the brokers' addresses as the driver knows them by now; it is called in
            any thread.
    """

    def __init__(
        self,
        spark: SparkSession,
        jobs: CancellableJobs,
        reading: ReadOptions,
        name: str,
        on_unfinished: Callable[[UnfinishedJob], None],
        addresses: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._spark = spark
        self._reading = reading
        self._settings = reading.settings
        self._addresses = addresses
        self._name = name
        self._on_unfinished = on_unfinished
        self._jobs = jobs
        self._count = read_counter(spark) if reading.backend == "python" else None
        self._idle: list[ActionRunner] = []
        self._runners = 0
        self._limiter = unlimited_threads()

    @property
    def counts_reads(self) -> bool:
        """Whether its frames count what was read: not on Connect, nor with the JVM backend."""
        return self._count is not None

    async def frame(self, ranges: Collection[OffsetRange]) -> Frame:
        """Make a DataFrame of ranges; in a thread, because it calls the JVM."""
        frame = partial(self._frame, tuple(ranges))
        return await trio.to_thread.run_sync(frame, limiter=self._limiter)

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread that is kept for the next run; see ``ActionRunner.run``."""
        runner = self._idle.pop() if self._idle else self._new_runner()
        try:
            return await runner.run(group, description, fn, *args)
        finally:
            self._idle.append(runner)

    async def aclose(self) -> None:
        """End the idle threads: all of them, if no function runs."""
        idle, self._idle = self._idle, []
        for runner in idle:
            await runner.__aexit__()
        await trio.lowlevel.checkpoint()

    def _new_runner(self) -> ActionRunner:
        self._runners += 1
        return ActionRunner(self._jobs, f"{self._name}-{self._runners}", self._on_unfinished)

    def _frame(self, ranges: tuple[OffsetRange, ...]) -> Frame:
        count = self._count = self._count and self._count.for_next_frame()
        df = frame(
            self._spark,
            ranges,
            self._current_settings(),
            columns=self._reading.columns,
            parallelism=self._reading.parallelism,
            backend=self._reading.backend,
            counter=count,
        )
        if count is None:
            return Frame(df, lambda: None, lambda: None)
        return Frame(df, count.total, count.discard)

    def _current_settings(self) -> ReaderSettings:
        """The readers' settings, with all brokers that the driver knows by now.

        A generation may last longer than the bootstrap servers, and an executor begins with what
        its task names. The settings stay the same object until an address has changed: to make
        them is not cheap, and a worker's consumers are kept as long as they are equal.
        """
        first = self._reading.settings.bootstrap_servers
        servers = with_known({"bootstrap.servers": ",".join(first)}, self._addresses())
        named = tuple(servers["bootstrap.servers"].split(","))[: bounds.MOST_SERVERS]
        if named != self._settings.bootstrap_servers:
            self._settings = attrs.evolve(self._reading.settings, bootstrap_servers=named)
        return self._settings


def jobs_of(spark: SparkSession) -> CancellableJobs:
    """The jobs of a session, classic or Spark Connect.

    Raises:
        UsageError: the session cannot separate the jobs of threads, or was stopped.
    """
    # The class is recognised by its module's name: importing Spark Connect's classes needs
    # packages that a classic program may lack.
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        from kgroup.spark.connect_jobs import ConnectJobs

        return ConnectJobs(spark)

    from kgroup.spark.classic_jobs import ClassicJobs

    return ClassicJobs(spark)
