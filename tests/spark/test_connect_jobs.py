"""Job groups of a Spark Connect session, against a server in the JVM of the shared session."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow
import pytest
import trio
from pyspark.sql import SparkSession

from kgroup.errors import UsageError
from kgroup.spark import cancellable_jobs
from kgroup.spark.action_runner import ActionRunner, UnfinishedJob
from kgroup.spark.cancellable_jobs import JobGroupCancelledError
from kgroup.spark.classic_jobs import ClassicJobs
from kgroup.spark.connect_jobs import ConnectJobs, _seconds
from kgroup.spark.frames import frame
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.session import jobs_of

SERVICE: Final = "SparkConnectService$"


def none_unfinished(job: UnfinishedJob) -> None:
    """Fail the test, because a job still runs after its function."""
    raise AssertionError(job)


def connect(url: str) -> Any:
    """A session of a client, made by its own class, so that the process stays a classic one."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    return ConnectSession.builder.remote(url).create()


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[str]:
    """The URL of a server in the JVM of the shared session."""
    jvm: Any = spark._jvm
    # The system chooses the port, so that no other process can take it meanwhile.
    jvm.org.apache.spark.SparkEnv.get().conf().set("spark.connect.grpc.binding.port", "0")
    # Scala's object itself: the Java class lacks a part of its methods.
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, SERVICE), "MODULE$")
    java: Any = spark.sparkContext._jsc
    service.start(java.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        nothing = jvm.scala.Option.empty()
        service.stop(nothing, nothing)


@pytest.fixture(scope="module")
def connected(server: str) -> Iterator[Any]:
    """The session of a client."""
    session = connect(server)
    try:
        yield session
    finally:
        session.client.close()


def test_the_kind_of_session_decides(spark: SparkSession, connected: SparkSession) -> None:
    """Each kind of session gets the jobs made for it."""
    assert isinstance(jobs_of(spark), ClassicJobs)
    assert isinstance(jobs_of(connected), ConnectJobs)


def test_the_last_cancelled_groups_are_remembered(
    connected: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a classic session."""
    monkeypatch.setattr(cancellable_jobs, "MOST_CANCELLED", 3)
    jobs = ConnectJobs(connected)
    for number in range(6):
        jobs.cancel(f"batch-{number}")
    assert list(jobs._cancelled) == ["batch-3", "batch-4", "batch-5"]
    with pytest.raises(JobGroupCancelledError):
        jobs.call("batch-3", "words", pytest.fail, "it was called")


async def test_threads_and_calls_carry_tags(connected: SparkSession) -> None:
    """A call has the creating thread's tags and the group's; its own tags end with it."""
    connected.addTag("nightly")
    try:
        jobs = jobs_of(connected)
    finally:
        connected.clearTags()

    def tags_here() -> set[str]:
        tags = set(connected.getTags())
        connected.addTag("mine")
        return tags

    async with ActionRunner(jobs, "kgroup-test", none_unfinished) as runner:
        assert await runner.run("a,b", "words", tags_here) == {"nightly", "kgroup:a%2Cb"}
        assert await runner.run("c", "words", tags_here) == {"nightly", "kgroup:c"}
    assert connected.getTags() == set()


def test_a_group_cancelled_before_its_call_runs_nothing(connected: SparkSession) -> None:
    """The function is not called, and no task is waited for."""
    jobs = jobs_of(connected)
    jobs.cancel("early")
    with pytest.raises(JobGroupCancelledError, match="'early' was cancelled"):
        jobs.call("early", "words", pytest.fail, "it was called")
    assert jobs.running_tasks("early") == 0
    assert jobs.call("other", "words", lambda: connected.range(3).count()) == 3


async def test_a_python_worker_has_stopped_when_the_cancelled_run_raises(
    connected: SparkSession, tmp_path: Path
) -> None:
    """Its process has ended by then, although a client sees no tasks."""
    path = tmp_path / "written"

    def busy(batches: Iterable[pyarrow.RecordBatch]) -> Iterable[pyarrow.RecordBatch]:

        path.write_text(str(os.getpid()))  # once: a kill during a second write would leave it empty
        for batch in batches:
            while batch is not None:
                time.sleep(0.05)
            yield batch

    def work() -> None:
        connected.range(0, 1, 1, 1).mapInArrow(busy, "id long").collect()

    async with (
        ActionRunner(
            jobs_of(connected), "kgroup-test", none_unfinished, report_after=60.0
        ) as runner,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(runner.run, "python", "words", work)
        while not (path.exists() and path.read_text()):  # noqa: ASYNC110 # no event
            await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(int(path.read_text()))  # a small file


async def test_a_session_that_was_stopped_is_refused_and_waited_for(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error says so; a run of it is cancelled as any other, when its tasks have had time."""
    session = connect(server)
    jobs = ConnectJobs(session)
    scope, token = trio.CancelScope(), trio.lowlevel.current_trio_token()
    cancelled = threading.Event()
    cancel = jobs.cancel

    def cancel_and_note(group: str) -> None:
        cancel(group)
        cancelled.set()

    monkeypatch.setattr(jobs, "cancel", cancel_and_note)

    def stop_and_wait() -> None:
        session.stop()
        token.run_sync_soon(scope.cancel)
        assert cancelled.wait(60)

    with scope:
        async with ActionRunner(jobs, "kgroup-test", none_unfinished, report_after=60) as runner:
            await runner.run("stopped", "words", stop_and_wait)
    assert cancelled.is_set()
    assert scope.cancelled_caught
    called: list[int] = []
    settings = ReaderSettings(bootstrap_servers="127.0.0.1:1")
    for use in (
        lambda: ConnectJobs(session),
        lambda: jobs.call("next", "a batch", called.append, 1),
        lambda: frame(session, [OffsetRange("t", 0, 0, 1)], settings, parallelism=1),
    ):
        with pytest.raises(UsageError, match="was stopped"):
            use()
    assert not called


@pytest.mark.parametrize(
    ("duration", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("1500", 1.5), ("1 min", 60.0)]
)
def test_spark_durations_are_read(duration: str, seconds: float) -> None:
    """As in Spark: a number and a unit, which is milliseconds if it is left out."""
    assert _seconds(duration) == seconds


@pytest.mark.parametrize("duration", ["", "soon", "1.5s", "2 parsecs"])
def test_other_texts_are_not_durations(duration: str) -> None:
    """The error names the setting and its value."""
    with pytest.raises(UsageError, match="killTimeout"):
        _seconds(duration)
