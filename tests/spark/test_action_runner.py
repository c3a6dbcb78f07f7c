"""The runner: functions in a thread, cancelled from trio, with jobs that need no Spark."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from kgroup.errors import UsageError
from kgroup.spark.action_runner import ActionRunner, UnfinishedJob
from kgroup.spark.cancellable_jobs import JobGroupCancelledError

T = TypeVar("T")
NUMBER = contextvars.ContextVar("NUMBER", default=0)


class JobError(Exception):
    """The error that a function gets when its job was cancelled."""


class FakeJobs:
    """Jobs as the runner sees them: one group that can be cancelled, and a number of tasks."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.tasks = 0
        self.broken: list[Exception] = []

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Make a plain thread."""
        return threading.Thread(target=target, name=name, daemon=True)

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:  # noqa: ARG002 # the protocol's
        """Call the function, unless its group is cancelled."""
        if self.cancelled.is_set():
            raise JobGroupCancelledError(group)
        return fn(*args)

    def cancel(self, group: str) -> None:  # noqa: ARG002 # the protocol's
        """Let the function fail, or raise."""
        self.cancelled.set()
        if self.broken:
            raise self.broken[0]

    def running_tasks(self, group: str) -> int:  # noqa: ARG002 # the protocol's
        """The number of running tasks, which falls by one at each call."""
        self.tasks -= 1
        return max(0, self.tasks + 1)

    def is_cancellation(self, group: str, error: BaseException) -> bool:  # noqa: ARG002 # the protocol's
        """Whether the error is a job's failure or a refusal."""
        return isinstance(error, JobError | JobGroupCancelledError)


def none_unfinished(job: UnfinishedJob) -> None:
    """Fail the test, because a job still runs after its function."""
    raise AssertionError(job)


async def cancel_once_started(
    jobs: FakeJobs,
    body: Callable[[], object],
    on_unfinished: Callable[[UnfinishedJob], None] = none_unfinished,
    *,
    report_after: float = 60.0,
) -> None:
    """Run a function in a scope that is cancelled as soon as the function has begun."""
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def fn() -> object:
        token.run_sync_soon(begun.set)
        assert jobs.cancelled.wait(60)
        return body()

    async with (
        ActionRunner(jobs, "runner", on_unfinished, report_after=report_after) as runner,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(runner.run, "g", "words", fn)
        await begun.wait()
        nursery.cancel_scope.cancel()


async def test_the_event_loop_runs_beside_a_function() -> None:
    """A function can wait for what the event loop does meanwhile, and its result comes back."""
    ticked = threading.Event()
    async with trio.open_nursery() as nursery:

        async def tick() -> None:
            await trio.lowlevel.checkpoint()
            ticked.set()

        nursery.start_soon(tick)
        async with ActionRunner(FakeJobs(), "runner", none_unfinished) as runner:
            assert await runner.run("g", "words", ticked.wait, 60)


async def test_runs_share_a_thread_with_the_runners_name_and_the_callers_context() -> None:
    """One thread of the given name runs all functions, each in the caller's context."""
    NUMBER.set(7)

    def thread_and_context() -> tuple[int | None, str, int]:
        thread = threading.current_thread()
        return thread.ident, thread.name, NUMBER.get()

    async with ActionRunner(FakeJobs(), "kgroup-orders", none_unfinished) as runner:
        first = await runner.run("a", "words", thread_and_context)
        assert await runner.run("b", "words", thread_and_context) == first
    assert first[1:] == ("kgroup-orders", 7)
    assert "kgroup-orders" not in {thread.name for thread in threading.enumerate()}


async def test_a_functions_exception_is_raised_and_the_runner_continues() -> None:
    """The caller gets a function's exception, and the next function runs."""
    async with ActionRunner(FakeJobs(), "runner", none_unfinished) as runner:
        with pytest.raises(ValueError, match="invalid literal"):
            await runner.run("a", "words", int, "x")
        assert await runner.run("b", "words", int, "1") == 1


async def test_cancelling_waits_for_the_function_and_its_tasks() -> None:
    """Cancelled comes when the function has returned and no task is left, not before."""
    jobs = FakeJobs()
    jobs.tasks = 5
    ended: list[bool] = []

    def fail() -> None:
        ended.append(True)
        raise JobError

    await cancel_once_started(jobs, fail)
    assert ended
    assert jobs.tasks < 0  # the tasks were counted until none was left


async def test_a_function_that_hides_its_jobs_failure_is_cancelled_all_the_same() -> None:
    """A result that a function returns after its jobs were cancelled is not handed out."""
    jobs = FakeJobs()
    handed_out: list[object] = []

    async def collect(runner: ActionRunner) -> None:
        handed_out.append(await runner.run("g", "words", jobs.cancelled.wait, 60))

    async with (
        ActionRunner(jobs, "runner", none_unfinished) as runner,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(collect, runner)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert handed_out == []


async def test_an_error_of_the_functions_own_is_not_lost_by_cancelling() -> None:
    """A cancelled function's own exception is raised instead of Cancelled."""
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="disk full")):
        await cancel_once_started(FakeJobs(), lambda: _raise(ValueError("disk full")))


async def test_a_result_that_was_there_before_the_cancellation_is_handed_out() -> None:
    """If the function has returned when its scope is cancelled, the caller gets its result."""
    jobs = FakeJobs()
    idle = threading.Event()

    class Watched(queue.SimpleQueue[Any]):
        counted = 0

        def get(self, *args: Any, **options: Any) -> Any:
            self.counted += 1
            if self.counted == 2:
                idle.set()
            return super().get(*args, **options)

    async with ActionRunner(jobs, "runner", none_unfinished) as runner:
        runner._calls = Watched()
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:

            def cancel_when_it_has_returned() -> None:
                idle.wait()
                scope.cancel()

            def fn() -> str:
                token.run_sync_soon(cancel_when_it_has_returned)
                return "result"

            result = await runner.run("g", "words", fn)
            assert result == "result"
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
    assert not jobs.cancelled.is_set()


async def test_a_function_that_does_not_return_is_reported_with_its_stack() -> None:
    """The report names the thread and its stack, and is repeated until the thread ends."""
    reported: list[UnfinishedJob] = []
    enough = threading.Event()

    def report(job: UnfinishedJob) -> None:
        reported.append(job)
        # On a loaded machine, the first reports may come before the function waits.
        if len(reported) >= 2 and "enough.wait()" in (job.stack or ""):
            enough.set()

    def stubborn() -> None:
        enough.wait()

    await cancel_once_started(FakeJobs(), stubborn, report, report_after=0.01)
    assert [job.seconds for job in reported[:2]] == [0.01, 0.02]
    assert {job.thread for job in reported} == {"runner"}
    assert any("enough.wait()" in (job.stack or "") for job in reported)


async def test_tasks_that_run_on_after_their_function_are_reported() -> None:
    """The function has returned, so the report has no stack, but the number of tasks."""
    reported: list[UnfinishedJob] = []

    class Endless(FakeJobs):
        def running_tasks(self, group: str) -> int:  # noqa: ARG002 # the protocol's
            # The first report may be too early for a number.
            return 0 if any(one.stack is None and one.tasks == 3 for one in reported) else 3

    jobs = Endless()
    await cancel_once_started(jobs, lambda: _raise(JobError()), reported.append, report_after=0.05)
    assert any(one.stack is None and one.tasks == 3 for one in reported)


async def test_spark_out_of_reach_is_an_error_once_the_function_is_gone() -> None:
    """If Spark cannot report the tasks, its error is raised after the function has ended."""
    jobs = FakeJobs()
    jobs.broken.append(ConnectionError("no JVM"))
    with pytest.RaisesGroup(pytest.RaisesExc(ConnectionError, match="no JVM")) as raised:
        await cancel_once_started(jobs, lambda: _raise(JobError()))
    assert raised.value.exceptions[0].__notes__ == [
        "it is unknown whether tasks of job group 'g' still run"
    ]


async def test_a_scope_that_is_cancelled_already_starts_nothing() -> None:
    """If the caller is cancelled before, the function is not called."""
    called: list[bool] = []
    async with ActionRunner(FakeJobs(), "runner", none_unfinished) as runner:
        with trio.CancelScope() as scope:
            scope.cancel()
            await runner.run("g", "words", called.append, True)
    assert called == []


async def test_a_runner_runs_one_function_at_a_time_and_none_after_its_block() -> None:
    """A second function meanwhile, or one after the end, is refused by name."""
    free = threading.Event()
    async with (
        ActionRunner(FakeJobs(), "runner", none_unfinished) as runner,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(runner.run, "a", "words", free.wait)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="already runs a function"):
            await runner.run("b", "words", int)
        free.set()
    with pytest.raises(UsageError, match="its block was left"):
        await runner.run("c", "words", int)


async def test_a_cancelled_group_is_refused() -> None:
    """Running under a cancelled group raises, and the function is not called."""
    jobs = FakeJobs()
    jobs.cancel("g")
    with pytest.raises(JobGroupCancelledError, match="'g' was cancelled") as raised:
        async with ActionRunner(jobs, "runner", none_unfinished) as runner:
            await runner.run("g", "words", int)
    assert raised.value.group == "g"


def _raise(error: Exception) -> None:
    raise error
