"""The batch loop: which batches it yields, when, and what happens to them at the end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, cast

import pytest
import trio
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    ArgumentError,
    CommitUnknownError,
    ConfigError,
    FetchError,
    KgroupError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import (
    BatchCancelled,
    BatchDone,
    BatchFailed,
    CommitRefused,
    GenerationStarted,
    PartitionsNotRead,
    RequestFailed,
    UnsafeInterruptHandler,
)
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.spark import api, threaded
from kgroup.spark.batch import ALLOWED, DONE, BatchStage, MicroBatch
from kgroup.spark.batch_limits import BatchPace, Limits
from kgroup.spark.batch_loop import MOST_BEHIND, Batches
from kgroup.spark.offset_ranges import OffsetRange, batch_id
from kgroup.spark.size_estimates import LEAST
from kgroup.types import Cause, TopicPartition
from tests.group.harness import Harness, harness
from tests.group.test_stale import evict
from tests.program_exceptions import OwnError, UnprintableError
from tests.spark.fakes import FakeEngine, loop_of

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)
GONE = TopicPartition("gone", 0)

Run: TypeAlias = tuple[float, bool]
"""How long a run takes, and whether its function raises."""


def ranges_of(ranges: tuple[OffsetRange, ...]) -> list[tuple[int, int, int]]:
    """The arguments of a batch's function, in short form."""
    return [(part.partition, part.start, part.end) for part in ranges]


async def test_new_records_are_one_batch_and_without_them_there_is_none(
    autojump_clock: MockClock,
) -> None:
    """A batch spans all new records; without new records no job runs."""
    async with harness(2) as here:
        await here.append(10, 0)
        await here.append(4, 1)
        engine = FakeEngine()
        async with here.group() as group:
            generation = await group.next()
            loop = loop_of(generation, engine)
            batch = await anext(loop)
            assert await batch.run(ranges_of) == [(0, 0, 10), (1, 0, 4)]
            await batch.commit()
            assert await here.committed() == {P0: 10, P1: 4}
            with trio.move_on_after(60):
                await anext(loop)
            assert len(engine.groups) == 1
            await here.append(1, 1)
            batch = await anext(loop)
            assert ranges_of(batch.ranges) == [(1, 4, 5)]
            assert batch.number == 2
            assert not here.events_of(PartitionsNotRead)


async def test_one_poll_is_one_request(autojump_clock: MockClock) -> None:
    """The ends of all partitions come in one request, and the leaders are remembered."""
    async with harness(12) as here, here.group(watch_partition_changes=False) as group:
        loop = loop_of(await group.next(), FakeEngine(), poll_interval=0.5)
        with trio.move_on_after(5):
            await anext(loop)
        since = here.now
        with trio.move_on_after(10):
            await anext(loop)
        requests = [api for api, _ in here.requests_for("list_offsets", "metadata", since=since)]
        assert "metadata" not in requests
        # Twenty polls of the ends, and one request every ten seconds for the logs' beginnings.
        assert 20 <= len(requests) <= 23


async def test_a_batch_waits_for_more(autojump_clock: MockClock) -> None:
    """With ``max_wait`` the first new record waits that long for others, or until a limit."""
    async with harness() as here, here.group() as group:
        limits = Limits(max_records=5)
        loop = loop_of(await group.next(), FakeEngine(), limits, max_wait=10.0)
        await here.append(1)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(later, 4.0, partial(here.append, 2))
            batch = await anext(loop)
        assert ranges_of(batch.ranges) == [(0, 0, 3)]
        assert trio.current_time() - began == pytest.approx(10, abs=0.2)
        await batch.run(ranges_of)
        began = trio.current_time()
        await here.append(9)
        assert ranges_of((await anext(loop)).ranges) == [(0, 3, 8)]
        assert trio.current_time() - began < 1


async def later(seconds: float, fn: object) -> None:
    """Call a function after a while."""
    await trio.sleep(seconds)
    await fn()  # type: ignore[operator]


async def test_the_same_ranges_have_the_same_id(autojump_clock: MockClock) -> None:
    """Records without a commit come again, with the same id and another job group."""
    async with harness() as here:
        await here.append(10)
        ids, groups = [], []
        for _ in range(2):
            engine = FakeEngine()
            async with here.group() as group:
                batch = await anext(loop_of(await group.next(), engine))
                await batch.run(ranges_of)
                ids.append(batch.id)
                groups += engine.groups
                assert "topic-0[0:10]" in engine.descriptions[0]
                assert "kgroup group" in engine.descriptions[0]
        assert ids[0] == ids[1] == batch_id("group", [OffsetRange("topic", 0, 0, 10)])
        assert len(set(groups)) == 2  # although both are run 1 of epoch 1


async def test_loops_of_one_generation_share_no_job_group(autojump_clock: MockClock) -> None:
    """A batch that a second loop runs again has another job group: the first may be cancelled."""
    async with harness() as here:
        await here.append(10)
        engine = FakeEngine(lasts=100.0)
        async with here.group() as group:
            generation = await group.next()
            for seconds in (1.0, 200.0):
                loop = loop_of(generation, engine)
                batch = await anext(loop)
                with trio.move_on_after(seconds):
                    await batch.run(ranges_of)
                await loop.aclose()
        assert len(engine.groups) == len(set(engine.groups)) == 2


@pytest.mark.parametrize("error", [LookupError, OwnError, UnprintableError])
async def test_a_failed_run_is_not_skipped(
    autojump_clock: MockClock, error: type[BaseException]
) -> None:
    """The caller gets its error; until it is resolved there is no next batch and no commit."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(), Limits(max_records=4))
            batch = await anext(loop)

            def fail(_: object) -> None:
                raise error("the sink is away")

            with pytest.raises(error):
                await batch.run(fail)
            text = "" if error is UnprintableError else ": the sink is away"
            assert here.events_of(BatchFailed)[0].reason == f"{error.__name__}{text}"
            with pytest.raises(UsageError, match=r"run it again, or call batch.skip\(\)"):
                await batch.commit()
            with pytest.raises(
                UsageError, match=r"batch 1 .* is failed, but the loop was advanced"
            ):
                await anext(loop)
            await batch.run(ranges_of)
            await batch.commit()
            batch = await anext(loop)
            with pytest.raises(error):
                await batch.run(fail)
            await batch.skip()
            assert await here.committed() == {P0: 8}
            assert ranges_of((await anext(loop)).ranges) == [(0, 8, 10)]


async def asynchronous(_: object) -> None:
    """A function for a batch that nothing awaits."""


def generating(_: object) -> Iterator[int]:
    """A function for a batch of which a call runs nothing."""
    yield 1


@pytest.mark.parametrize("fn", [asynchronous, generating, partial(asynchronous), "write", pow])
async def test_a_function_that_would_do_nothing_is_refused(
    autojump_clock: MockClock, fn: Any
) -> None:
    """It is refused before the batch runs, so that nothing can be committed for it."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            engine = FakeEngine()
            batch = await anext(loop_of(await group.next(), engine))
            with pytest.raises(ArgumentError, match="^fn="):
                await batch.run(fn)
            assert batch.stage is BatchStage.NEW
            assert not engine.groups


@pytest.mark.parametrize(
    "fn",
    [
        lambda df: asynchronous([df]),
        lambda df: generating([df]),
        lambda df: [asynchronous(df)],
    ],
)
async def test_a_result_that_is_undone_work_fails_the_run(
    autojump_clock: MockClock, fn: Callable[[object], object]
) -> None:
    """What a lambda returns shows only then: the batch is not committed."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            batch = await anext(loop_of(await group.next(), FakeEngine()))
            with pytest.raises(UsageError, match="returned"):
                await batch.run(fn)
            assert here.events_of(BatchFailed)
            with pytest.raises(UsageError, match="run it again"):
                await batch.commit()
        assert await here.committed() == {}


@pytest.mark.parametrize("foreach", [api.foreach_batch, threaded.foreach_batch])
@pytest.mark.parametrize("fn", [asynchronous, partial(generating, None), len])
async def test_foreach_batch_checks_its_function_first(foreach: Any, fn: Any) -> None:
    """A function that cannot process batches is refused before a loop begins."""
    with pytest.raises(ArgumentError, match="^fn="):
        call = foreach(None, None, fn)
        await call


def of_pyspark(*_: object) -> None:
    """A handler of SIGINT, as a SparkContext sets it."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "reported"), [("pyspark.core.context", 1), ("pyspark.context", 1), ("__main__", 0)]
)
async def test_pyspark_s_handler_of_ctrl_c_is_reported(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, module: str, reported: int
) -> None:
    """Beside it trio does not protect the event loop; a program's own handler is its own affair."""
    monkeypatch.setattr(of_pyspark, "__module__", module)
    jobs: Any = SimpleNamespace(running_tasks=len)
    spark: Any = None
    before = signal.signal(signal.SIGINT, of_pyspark)
    try:
        async with harness() as here:
            async with here.group() as group:
                api.batches(await group.next(), spark, backend="jvm", jobs=jobs)
            assert len(here.events_of(UnsafeInterruptHandler)) == reported
    finally:
        signal.signal(signal.SIGINT, before)


async def test_a_batch_that_is_not_run_is_not_skipped(autojump_clock: MockClock) -> None:
    """Advancing the loop then raises; after a commit of the batch it succeeds."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(), Limits(max_records=4))
            batch = await anext(loop)
            with pytest.raises(UsageError, match="is not run, but the loop was advanced"):
                await anext(loop)
            await batch.commit()
            for what in ("run", "commit", "skip"):
                with pytest.raises(
                    UsageError, match="the batch is committed; continue with the next"
                ):
                    batch.check_allowed(what)
            await anext(loop)


async def test_a_commit_includes_earlier_batches(autojump_clock: MockClock) -> None:
    """A program may commit once for several batches: all of their partitions are committed."""
    async with harness(2) as here:
        await here.append(4, 0)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine())
            first = await anext(loop)
            await first.run(ranges_of)
            await here.append(3, 1)
            second = await anext(loop)
            await second.run(ranges_of)
            assert ranges_of(second.ranges) == [(1, 0, 3)]
            await second.commit()
            assert await here.committed() == {P0: 4, P1: 3}
            assert first.stage is BatchStage.COMMITTED


async def test_several_batches_in_flight(autojump_clock: MockClock) -> None:
    """They run at the same time and are committed in order, whichever ends first."""
    async with harness() as here:
        await here.append(6)
        async with here.group() as group:
            engine = FakeEngine()
            loop = loop_of(await group.next(), engine, Limits(max_records=2), in_flight=2)
            order = []

            async def work(batch: MicroBatch, seconds: float) -> None:
                engine.lasts = seconds
                await batch.run(ranges_of)
                await batch.commit()
                order.append((batch.number, await here.committed()))

            async with trio.open_nursery() as nursery:
                for seconds in (5.0, 1.0, 1.0):
                    nursery.start_soon(work, await anext(loop), seconds)
                    await trio.testing.wait_all_tasks_blocked()
            assert sorted(number for number, _ in order) == [1, 2, 3]
            assert all(committed[P0] >= 2 * number for number, committed in order)
            assert await here.committed() == {P0: 6}


async def test_one_slow_batch_bounds_those_behind_it(autojump_clock: MockClock) -> None:
    """While a batch runs, a limited number of later ones runs; none of them can be committed."""
    async with harness() as here:
        await here.append(100)
        engine = FakeEngine()
        async with here.group() as group:
            loop = loop_of(await group.next(), engine, Limits(max_records=1), in_flight=2)
            slow = await anext(loop)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_once, engine, slow, (1000.0, False))
                await trio.testing.wait_all_tasks_blocked()
                with trio.move_on_after(900):
                    async for batch in loop:
                        await run_once(engine, batch, (1.0, False))
                assert len(engine.groups) == 2 * MOST_BEHIND
            batch = await anext(loop)
            assert batch.number == 2 * MOST_BEHIND + 1
            await run_once(engine, batch, (1.0, False))
            await batch.commit()
            assert await here.committed() == {P0: batch.number}


async def test_a_batch_that_the_program_forgot_is_named(autojump_clock: MockClock) -> None:
    """Nothing would ever end the wait for room: the program has neither run nor skipped it."""
    async with harness() as here:
        await here.append(3 * MOST_BEHIND)
        engine = FakeEngine()
        async with here.group() as group:
            generation = await group.next()
            loop = loop_of(generation, engine, Limits(max_records=1), in_flight=2)
            forgotten = await anext(loop)
            with pytest.raises(UsageError, match=f"{forgotten.id[:8]}.* is not run"):
                async for batch in loop:
                    await run_once(engine, batch, (1.0, False))


@pytest.mark.parametrize("runs", [[5000.0], [5000.0, 5.0], [5.0, 5000.0], [5000.0, 15.0, 15.0]])
async def test_a_stuck_batch_is_noticed_beside_others(
    autojump_clock: MockClock, runs: list[float]
) -> None:
    """``max_processing_time`` counts for each batch in flight, also when others end or begin."""
    async with harness() as here:
        await here.append(3)
        engine = FakeEngine()
        async with here.group(max_processing_time=20.0, drain_timeout=5.0) as group:
            generation = await group.next()
            loop = loop_of(generation, engine, Limits(max_records=1), in_flight=2)
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for seconds in runs:
                    nursery.start_soon(run_once, engine, await anext(loop), (seconds, False))
                    await trio.testing.wait_all_tasks_blocked()
                await generation.ending.wait()
                assert generation.end is not None
                assert generation.end.cause is Cause.PROCESSING_STUCK
                assert trio.current_time() - began < 30


@pytest.mark.parametrize(
    ("first", "waits", "committed"),
    [
        pytest.param(None, 0.5, {}, id="not run"),
        pytest.param((3.0, True), 2.0, {}, id="fails"),
        pytest.param((100.0, False), 5.5, {}, id="cancelled at the deadline"),
        pytest.param((4.0, False), 3.0, {P0: 6}, id="done before the deadline"),
    ],
)
async def test_a_commit_in_a_drain_skips_no_batch(
    autojump_clock: MockClock,
    first: Run | None,
    waits: float,
    committed: dict[TopicPartition, int],
) -> None:
    """It waits for an earlier batch that runs, and is refused if one fails or is not run."""
    async with harness() as here:
        await here.append(6)
        engine = FakeEngine()
        async with here.group(drain_timeout=5.0) as group:
            generation = await group.next()
            loop = loop_of(generation, engine, Limits(max_records=3), in_flight=2)
            one, two = await anext(loop), await anext(loop)
            async with trio.open_nursery() as nursery:
                if first is not None:
                    nursery.start_soon(run_once, engine, one, first)
                    await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(later, 1.5, as_async(group.shutdown))
                await run_once(engine, two, (1.0, False))
                assert generation.end is None
                began = trio.current_time()
                with generation.scope():
                    await two.commit()
                assert trio.current_time() - began == pytest.approx(waits, abs=0.2)
        assert await here.committed() == committed


async def run_once(engine: FakeEngine, batch: MicroBatch, run: Run) -> bool:
    """Run a batch; whether its function has returned."""
    seconds, fails = run

    def work(_: object) -> None:
        if fails:
            raise LookupError("the sink is away")

    engine.lasts = seconds
    try:
        await batch.run(work)
    except (LookupError, StaleGenerationError):
        return False
    return True


@pytest.mark.parametrize("method", ["commit", "skip"])
@pytest.mark.parametrize("later_one", [False, True])
async def test_a_batch_is_not_run_while_it_is_committed(
    autojump_clock: MockClock, method: str, later_one: bool
) -> None:
    """A run that would begin while the commit is sent is refused, also of a batch taken along."""
    async with harness() as here:
        await here.append(4)
        engine = FakeEngine(lasts=10.0)
        async with here.group() as group:
            loop = loop_of(await group.next(), engine, Limits(max_records=2), in_flight=2)
            one, two = await anext(loop), await anext(loop)
            for batch in (one, two):
                await batch.run(len)
            committed = two if later_one else one
            here.broker.slow(3.0, "offset_commit", 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(getattr(committed, method))
                await trio.sleep(1)
                with pytest.raises(UsageError, match=r"batch 1 .*offsets are being committed"):
                    await one.run(len)
            assert one.stage in DONE
            assert len(engine.groups) == 2
        assert await here.committed() == {P0: 4 if later_one else 2}


async def test_a_batch_whose_commit_failed_can_run_again(autojump_clock: MockClock) -> None:
    """Once the commit has ended without success, the batch is the program's again."""
    async with harness() as here:
        await here.append(2)
        async with here.group(commit_timeout=2.0, request_timeout=1.0) as group:
            batch = await anext(loop_of(await group.next(), FakeEngine()))
            await batch.run(len)
            slow = here.broker.slow(30.0, "offset_commit")
            with pytest.raises(CommitUnknownError):
                await batch.commit()
            slow.cancel()
            assert await batch.run(len) == 1
            await batch.commit()
        assert await here.committed() == {P0: 2}


@pytest.mark.parametrize(
    "answer", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", None]
)
async def test_foreach_batch_commits_however_long_the_coordinator_is_away(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    """The commit is sent again until it is answered, and no batch runs twice because of it."""
    ran: list[int] = []
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(2)
        away = (
            here.broker.slow(600.0, "offset_commit")
            if answer is None
            else here.broker.inject("OffsetCommit", answer, times=None)
        )

        def write(_: object, batch: MicroBatch) -> None:
            ran.append(batch.number)

        async with here.group(commit_timeout=3.0, request_timeout=1.0) as group:
            generation = await group.next()
            loop: Any = loop_of(generation, FakeEngine())
            monkeypatch.setattr(api, "batches", lambda *_: loop)
            nursery.start_soon(api.foreach_batch, generation, loop, write)
            await trio.sleep(12)
            assert len(here.events_of(CommitRefused)) >= 2
            away.cancel()
            await here.append(2)
            await trio.sleep(12)
            assert ran == [1, 2]
            assert await here.committed() == {P0: 4}
        assert len(here.events_of(GenerationStarted)) == 1


async def test_foreach_batch_goes_on_when_a_topic_was_deleted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing left to commit of it; the generation ends, and the program goes on."""
    async with harness() as here, trio.open_nursery() as nursery:

        async def delete() -> None:
            await trio.sleep(0.5)
            await here.broker.delete_topic("gone")

        await here.broker.create_topic("gone", 1)
        await here.broker.append("gone", 0, [b"0"])
        await here.append(2)
        nursery.start_soon(delete)
        monkeypatch.setattr(api, "batches", lambda given, *_: loop_of(given, FakeEngine()))
        async with here.group(topics=["gone", "topic"]) as group:
            generation, spark = await group.next(), cast("Any", None)
            await api.foreach_batch(generation, spark, lambda df, batch: None)
            assert generation.end is not None
            assert generation.end.cause is Cause.PARTITIONS_CHANGED
            assert [list(one.offsets) for one in here.events_of(CommitRefused)] == [[GONE]]
        assert await here.committed() == {P0: 2}


async def test_a_batch_that_fails_its_task_is_no_misuse(autojump_clock: MockClock) -> None:
    """The nursery of a program with several batches in flight raises what the sink raised only."""
    async with harness() as here:
        await here.append(3)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(), Limits(max_records=1), in_flight=2)

            def fail(_: object) -> None:
                raise LookupError("the sink is away")

            with pytest.raises(ExceptionGroup) as raised:
                async with trio.open_nursery() as nursery:
                    async for batch in loop:
                        nursery.start_soon(batch.run, fail)
            assert {type(error) for error in raised.value.exceptions} == {LookupError}


@pytest.mark.parametrize("size", [1, LEAST])
async def test_records_of_any_allowed_size_are_estimated(
    autojump_clock: MockClock, size: int
) -> None:
    """Without counts a record is assumed to be as large as the program says, but not tiny."""

    class Uncounted:
        counts_reads = False

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

    engine = FakeEngine()
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(
                await group.next(),
                cast("FakeEngine", Uncounted()),
                Limits(max_bytes=4 * LEAST),
                record_bytes=size,
            )
            assert (await anext(loop)).span == 4


ENDS: Final[Mapping[str, Callable[[Harness, ConsumerGroup, Generation], Awaitable[object]]]] = {
    "shutdown": lambda here, group, generation: as_async(group.shutdown)(),
    "a task returns": lambda here, group, generation: as_async(
        lambda: generation.start_soon(trio.lowlevel.checkpoint)
    )(),
    "lost": lambda here, group, generation: evict(here, generation.member_id),
    "close": lambda here, group, generation: group.aclose(),
}
"""How a generation ends."""


@given(
    runs=st.lists(
        st.none() | st.tuples(st.sampled_from([0.0, 1.0, 3.0, 50.0]), st.booleans()),
        min_size=2,
        max_size=5,
    ),
    in_flight=st.integers(1, 3),
    end=st.sampled_from(sorted(ENDS)),
    ends_after=st.sampled_from([0.0, 0.5, 2.0, 10.0]),
)
@hypothesis_settings(max_examples=100)
def test_no_commit_passes_a_batch_that_did_not_run(
    runs: list[Run | None], in_flight: int, end: str, ends_after: float
) -> None:
    """Every batch below the committed offset ran, whatever fails and however the group ends."""

    async def scenario() -> None:
        ran: set[int] = set()
        async with harness() as here:
            await here.append(len(runs))
            engine = FakeEngine()

            async def work(batch: MicroBatch, run: Run) -> None:
                if await run_once(engine, batch, run):
                    ran.add(batch.number)
                    with suppress(KgroupError):
                        await batch.commit()

            async with here.group(drain_timeout=5.0) as group, trio.open_nursery() as nursery:
                generation = await group.next()
                loop = loop_of(generation, engine, Limits(max_records=1), in_flight=in_flight)
                nursery.start_soon(later, ends_after, partial(ENDS[end], here, group, generation))
                with suppress(UsageError, StopAsyncIteration):
                    for run in runs:
                        batch = await anext(loop)
                        if run is not None:
                            nursery.start_soon(work, batch, run)
                            await trio.testing.wait_all_tasks_blocked()
                await generation.wait_ended()
            assert set(range(1, (await here.committed()).get(P0, 0) + 1)) <= ran

    trio.run(scenario, clock=MockClock(autojump_threshold=0))


async def test_a_run_continues_in_the_drain_and_is_committed(autojump_clock: MockClock) -> None:
    """When the generation drains, the running batch ends and commits; no other begins."""
    async with harness() as here:
        await here.append(10)
        engine = FakeEngine(lasts=8.0)
        async with here.group() as group:
            generation = await group.next()
            loop = loop_of(generation, engine)
            batch = await anext(loop)
            await here.append(10)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(later, 1.0, as_async(group.shutdown))
                await batch.run(ranges_of)
            assert generation.state is State.DRAINING
            await batch.commit()
            assert [one async for one in loop] == []
            assert engine.closed >= 1
        assert await here.committed() == {P0: 10}


def as_async(fn: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    """Make an awaitable function of a plain one."""

    async def call() -> None:
        fn()

    return call


@pytest.mark.parametrize("in_body", [True, False])
async def test_a_run_past_the_drain_is_cancelled(autojump_clock: MockClock, in_body: bool) -> None:
    """At the drain's deadline the jobs are cancelled; the end waits until they have stopped."""
    async with harness() as here:
        await here.append(10)
        engine = FakeEngine(lasts=1000.0, stops_in=3.0)
        async with here.group(drain_timeout=5.0) as group:
            generation = await group.next()

            async def work() -> None:
                with generation.scope():
                    batch = await anext(loop_of(generation, engine))
                    await batch.run(ranges_of)

            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(later, 1.0, as_async(group.shutdown))
                if in_body:
                    await work()
                else:
                    assert generation.start_soon(work)
                    await generation.wait_ended()
            assert engine.running == 0
            assert engine.stopped == [pytest.approx(began + 1 + 5 + 3, abs=0.5)]
            assert [event.reason for event in here.events_of(BatchCancelled)] == [
                str(generation.end)
            ]
            assert not here.events_of(BatchFailed)
        assert await here.committed() == {}


async def test_a_lost_membership_cancels_at_once(autojump_clock: MockClock) -> None:
    """Without a drain, the generation ends when the tasks have stopped; a commit is stale."""
    async with harness() as here:
        await here.append(10)
        engine = FakeEngine(lasts=1000.0, stops_in=3.0)
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(loop_of(generation, engine))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(later, 5.0, partial(evict, here, generation.member_id))
                with pytest.raises(StaleGenerationError):
                    await batch.run(ranges_of)
            assert engine.running == 0
            assert len(engine.stopped) == 1
            assert batch.stage is BatchStage.FAILED
            end = await generation.wait_ended()
            assert end.cause in (Cause.FENCED, Cause.MEMBERSHIP_LOST)
            with pytest.raises(KgroupError):
                await batch.commit()
        assert await here.committed() == {}


async def test_a_programs_own_cancellation(autojump_clock: MockClock) -> None:
    """A time limit around a run cancels it and waits; the batch can run again."""
    async with harness() as here:
        await here.append(10)
        engine = FakeEngine(lasts=100.0, stops_in=2.0)
        async with here.group() as group:
            batch = await anext(loop_of(await group.next(), engine))
            with trio.move_on_after(10) as scope:
                await batch.run(ranges_of)
            assert scope.cancelled_caught
            assert engine.running == 0
            engine.lasts = 1.0
            await batch.run(ranges_of)
            await batch.commit()
            assert len(set(engine.groups)) == 2
        assert await here.committed() == {P0: 10}


async def test_a_cancelled_wait_loses_nothing(autojump_clock: MockClock) -> None:
    """After a cancelled wait for a batch, the next one has the same records."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine())
            for _ in range(3):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await anext(loop)
            assert ranges_of((await anext(loop)).ranges) == [(0, 0, 10)]


async def test_two_tasks_cannot_iterate(autojump_clock: MockClock) -> None:
    """Only one task at a time may iterate over a loop."""
    async with harness() as here, here.group() as group:
        loop = loop_of(await group.next(), FakeEngine())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.__anext__)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(UsageError, match="two tasks iterate"):
                await anext(loop)
            nursery.cancel_scope.cancel()


async def test_deleted_records_are_reported(autojump_clock: MockClock) -> None:
    """A position before the log's beginning is reset by auto_offset_reset, and an event says so."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            await (await group.next()).commit({P0: 2}, beyond_read=True)
        here.broker.cluster.topics.log("topic", 0).delete_before(6)
        async with here.group() as group:
            batch = await anext(loop_of(await group.next(), FakeEngine()))
            assert ranges_of(batch.ranges) == [(0, 6, 10)]


async def recreate(here: Harness) -> None:
    """Delete the topic, and create it again with more records than it had."""
    await here.broker.delete_topic("topic")
    await here.broker.create_topic("topic", 1)
    await here.append(20)


@asynccontextmanager
async def a_long_batch() -> AsyncIterator[tuple[Harness, MicroBatch]]:
    """A batch of the ten records of P0, each of whose runs lasts 10 s."""
    async with harness() as here:
        await here.append(10)
        async with here.group(watch_partition_changes=False) as group:
            yield here, await anext(loop_of(await group.next(), FakeEngine(lasts=10.0)))


async def test_a_topic_that_is_created_again_while_a_batch_runs(
    autojump_clock: MockClock,
) -> None:
    """The run fails and names the range, and nothing is committed; it may be run again."""
    async with a_long_batch() as (here, batch):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(later, 5.0, partial(recreate, here))
            with pytest.raises(FetchError, match=r"created again .* topic-0\[0:10\]") as raised:
                await batch.run(len)
        assert raised.value.partition == P0
        assert batch.stage is BatchStage.FAILED
        (failed,) = here.events_of(BatchFailed)
        assert "created again" in failed.reason
        with pytest.raises(UsageError, match="run it again"):
            await batch.commit()
        assert await here.committed() == {}
        await batch.run(len)
        await batch.commit()
        assert await here.committed() == {P0: 10}


async def test_a_topic_that_is_deleted_after_it_was_read(autojump_clock: MockClock) -> None:
    """Without another topic of its name the records are of one log, and the run succeeds."""
    async with a_long_batch() as (here, batch):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(later, 5.0, partial(here.broker.delete_topic, "topic"))
            assert await batch.run(len) == 1
        assert batch.stage is BatchStage.RAN


async def test_a_run_waits_until_the_topics_ids_are_known(
    autojump_clock: MockClock,
) -> None:
    """While brokers refuse Metadata, it is not known that the topic is still the same."""
    async with a_long_batch() as (here, batch):

        async def refuse() -> None:
            away = here.broker.inject("metadata", ErrorCode.UNKNOWN_SERVER_ERROR, times=None)
            await trio.sleep(15.0)
            away.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later, 5.0, refuse)
            began = trio.current_time()
            await batch.run(len)
            assert trio.current_time() - began >= 20
        assert here.events_of(RequestFailed)


async def test_the_end_of_a_generation_closes_the_engine(autojump_clock: MockClock) -> None:
    """The engine is closed even if the program has left the loop by ``break``."""
    async with harness() as here:
        await here.append(10)
        engine = FakeEngine()
        async with here.group() as group:
            async for _ in loop_of(await group.next(), engine):
                break
        assert engine.closed >= 1


async def test_progress_is_reported(autojump_clock: MockClock) -> None:
    """Each committed batch is an event with its rows and the lag."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(lasts=2.0), Limits(max_records=4))
            batch = await anext(loop)
            await batch.run(ranges_of)
            await batch.commit()
            assert len(loop._engine.forgotten) == 1  # type: ignore[attr-defined]
        (done,) = here.events_of(BatchDone)
        assert (done.batch_id, done.rows, done.lag) == (batch.id, 4, 6)
        assert done.running == pytest.approx(2.0)


def test_every_stage_can_be_left() -> None:
    """Every stage but a final one allows a method, and a final one allows none."""
    settled = {BatchStage.COMMITTED, BatchStage.SKIPPED, BatchStage.RUNNING}
    for stage in BatchStage:
        ways = {what for what, stages in ALLOWED.items() if stage in stages}
        assert bool(ways) == (stage not in settled)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_wait", -1), ("poll_interval", 0), ("in_flight", 0), ("in_flight", True)],
)
def test_an_invalid_pace_is_refused(field: str, value: object) -> None:
    """The error names the argument."""
    with pytest.raises(ConfigError, match=field):
        BatchPace(**{field: value})  # type: ignore[arg-type]


def test_a_loop_is_an_async_iterator() -> None:
    """A type checker accepts the loop as one."""
    assert hasattr(Batches, "__anext__")
