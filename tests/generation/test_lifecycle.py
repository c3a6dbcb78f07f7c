"""The life of a generation: what ends it, and what the drain waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import LeaseExpiredError, StaleGenerationError
from kgroup.events import GenerationDraining
from kgroup.generation.lifecycle import Lifecycle, inside_of
from kgroup.generation.states import State
from kgroup.types import Cause, End
from tests.generation.fakes import MEMBERSHIP, FakeSource, RecordingEmitter, member_context

OWNER = object()
REBALANCE = End(Cause.REBALANCE)
LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")


@final
class Life:
    """A running lifecycle, and the events that it emitted."""

    def __init__(self, limit: float = 10.0) -> None:
        self.emitter = RecordingEmitter()
        self.source = FakeSource()
        member = member_context(
            emitter=self.emitter, source=self.source, group=OWNER, drain_timeout=limit
        )
        self.life = Lifecycle(member, MEMBERSHIP, trio.current_time())
        self.when_done: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    async def run(self) -> None:
        """Run the lifecycle as a generation does."""
        async with self.life.open():
            await self.life.ending.wait()
            if self.life.state is State.DRAINING:
                await self.life.drain(self.when_done)

    async def begin(self, nursery: trio.Nursery) -> Lifecycle:
        """Start the lifecycle in a task."""
        nursery.start_soon(self.run)
        await trio.testing.wait_all_tasks_blocked()
        return self.life

    @property
    def drains(self) -> list[tuple[End, float]]:
        """The end and the seconds of each drain that was reported."""
        return [
            (event.end, event.seconds)
            for event in self.emitter.events
            if isinstance(event, GenerationDraining)
        ]


@pytest.fixture
async def running(nursery: trio.Nursery) -> Life:
    """A lifecycle that runs."""
    life = Life()
    await life.begin(nursery)
    return life


async def test_nothing_is_started_before_a_generation_runs(autojump_clock: MockClock) -> None:
    """Work is refused, a service is left out, and the state stays."""
    life = Life().life
    assert not life.start_work(trio.sleep, (1,))
    life.start_service(trio.sleep, 1)
    assert life.state is State.RUNNING


async def test_a_loss_before_a_generation_runs_ends_it(autojump_clock: MockClock) -> None:
    """The generation ends as soon as it is run."""
    made = Life()
    made.life.end(LOSS)
    await made.run()
    assert made.life.recorded_end is LOSS
    assert made.life.ended.is_set()


async def test_a_task_that_returns_ends_the_generation(
    autojump_clock: MockClock, running: Life
) -> None:
    """The end names the task; tasks that were started beside it may finish."""
    life = running.life
    finished = []

    async def slow() -> None:
        await trio.sleep(5)
        finished.append(life.state)

    async def quick() -> None:
        await trio.sleep(1)

    assert life.start_work(slow, ())
    assert life.start_work(quick, ())
    end = await life.wait_ended()
    assert end.cause is Cause.TASK_RETURNED
    assert end.detail.endswith("quick returned")
    assert finished == [State.DRAINING]
    assert not life.cut_short
    assert running.source.log == [("revoke", MEMBERSHIP.epoch)]
    assert running.drains == [(end, 10)]
    assert life.final_end is end


async def test_a_callable_without_a_name_is_named_by_its_repr(
    autojump_clock: MockClock, running: Life
) -> None:
    """A callable object, such as a partial, has no name of its own."""

    class Handler:
        async def __call__(self) -> None:
            await trio.lowlevel.checkpoint()

        def __repr__(self) -> str:
            return "<a handler>"

    running.life.start_work(Handler(), ())
    end = await running.life.wait_ended()
    assert end.detail == "<a handler> returned"


async def test_the_first_end_is_the_recorded_one(autojump_clock: MockClock, running: Life) -> None:
    """A second revocation changes nothing, and `end` returns the first one."""
    life = running.life
    life.start_work(trio.sleep, (5,))
    assert life.end(REBALANCE) is REBALANCE
    assert life.end(End(Cause.CLOSED)) is REBALANCE
    assert not life.start_work(trio.sleep, (1,))
    assert await life.wait_ended() is REBALANCE
    assert life.end(LOSS) is REBALANCE


@pytest.mark.parametrize(
    ("loss", "cut_short"), [(LOSS, True), (End(Cause.CANCELLED, "by the program"), False)]
)
async def test_a_loss_during_a_drain_replaces_the_revocation(
    autojump_clock: MockClock, running: Life, loss: End, cut_short: bool
) -> None:
    """Tasks are cancelled at once, and so is the drain, unless the program wishes that itself."""
    life = running.life
    life.start_work(trio.sleep_forever, ())
    life.end(REBALANCE)
    await trio.sleep(2)
    before = trio.current_time()
    assert life.end(loss) is loss
    assert await life.wait_ended() is loss
    assert trio.current_time() == before
    assert life.cut_short is cut_short


async def test_a_loss_cuts_nothing_short_without_work(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Tasks have finished in the drain before the loss, or there was no drain."""
    drained, running = Life(), Life()
    for made, seconds in ((drained, 2), (running, 60)):
        (await made.begin(nursery)).start_work(trio.sleep, (seconds,))
    drained.life.hold_body()  # which keeps the drain going
    drained.life.end(REBALANCE)
    await trio.sleep(5)
    assert drained.life.state is State.DRAINING
    drained.life.release_body()
    for made in (drained, running):
        made.life.end(LOSS)
        await made.life.wait_ended()
        assert not made.life.cut_short


async def test_what_a_drain_does_last(autojump_clock: MockClock, running: Life) -> None:
    """It happens when no work is left; what begins meanwhile is waited for."""
    order: list[str] = []

    async def work() -> None:
        await trio.sleep(2)
        order.append("work")

    async def when_done() -> None:
        order.append("when done")
        assert running.life.state is State.DRAINING
        nursery.start_soon(running.life.run_within, work)
        await trio.sleep(1)

    running.when_done = when_done
    running.life.start_work(work, ())
    async with trio.open_nursery() as nursery:
        running.life.end(REBALANCE)
        await running.life.ended.wait()
        assert order == ["work", "when done", "work"]


async def test_a_loss_ends_what_a_drain_does_last(autojump_clock: MockClock, running: Life) -> None:
    """So does its deadline; nothing is cut short, because no work of the program was left."""
    for lose in (True, False):
        made = Life()
        made.when_done = trio.sleep_forever
        async with trio.open_nursery() as nursery:
            await made.begin(nursery)
            began = trio.current_time()
            made.life.end(REBALANCE)
            await trio.sleep(1)
            if lose:
                made.life.end(LOSS)
        assert trio.current_time() - began == pytest.approx(1 if lose else 10)
        assert not made.life.cut_short


async def test_an_error_of_what_a_drain_does_last_surfaces(
    autojump_clock: MockClock, running: Life
) -> None:
    """Like that of any service; the recorded end stays."""

    async def when_done() -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a bug")

    running.when_done = when_done
    running.life.end(REBALANCE)
    await running.life.ended.wait()
    assert [str(one) for one in running.life.errors] == ["a bug"]
    assert running.life.recorded_end is REBALANCE


async def test_a_drain_has_one_deadline(autojump_clock: MockClock, running: Life) -> None:
    """Work that still runs at the deadline is cancelled, and `cut_short` is set."""
    life = running.life
    life.start_work(trio.sleep_forever, ())
    life.start_work(trio.sleep, (4,))
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() - before == pytest.approx(10)
    assert life.cut_short


@pytest.mark.parametrize("lost", [False, True])
async def test_a_body_that_still_works_is_cut_short(
    autojump_clock: MockClock, running: Life, lost: bool
) -> None:
    """The body of the loop counts as work, at the deadline and at a loss in the drain."""
    life = running.life
    life.hold_body()
    life.end(REBALANCE)
    await trio.sleep(1)
    if lost:
        life.end(LOSS)
    await life.ended.wait()
    assert life.cut_short


@pytest.mark.parametrize("lost", [False, True])
async def test_how_long_the_end_took(autojump_clock: MockClock, running: Life, lost: bool) -> None:
    """It lasts from the first end until the last task has ended, also if a loss came between."""

    async def finish() -> None:
        try:
            await trio.sleep(3)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    life = running.life
    life.start_work(finish, ())
    await trio.sleep(2)
    assert life.ended_within == 0
    life.end(REBALANCE)
    await trio.sleep(0.5)
    if lost:
        life.end(LOSS)
    await life.ended.wait()
    assert life.ended_within == pytest.approx(1.5 if lost else 2.0)


@pytest.mark.parametrize("limit", [0.0, -5.0])
async def test_a_drain_without_time(
    nursery: trio.Nursery, autojump_clock: MockClock, limit: float
) -> None:
    """If no heartbeat was answered for too long, the drain has 0 seconds, not fewer."""
    made = Life()
    life = await made.begin(nursery)
    await trio.sleep(100.0 - limit)
    life.start_work(trio.sleep_forever, ())
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() == before
    assert made.drains == [(REBALANCE, 0.0)]


async def test_the_loop_body_is_work(
    autojump_clock: MockClock, running: Life, nursery: trio.Nursery
) -> None:
    """The drain waits until the body releases the generation, or for its deadline."""
    life = running.life

    async def body() -> None:
        life.hold_body()
        await trio.sleep(6)
        life.release_body()

    nursery.start_soon(body)
    await trio.sleep(1)
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() - before == pytest.approx(5)
    assert not life.cut_short


async def test_a_body_that_waits_for_the_end_is_not_work(
    autojump_clock: MockClock, running: Life
) -> None:
    """The drain does not wait for a body that only waits for the end."""
    life = running.life
    life.hold_body()
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() == before


async def test_a_service_that_returns_nothing_ends_nothing(
    autojump_clock: MockClock, running: Life
) -> None:
    """Only a service that returns an end ends the generation."""

    async def brings() -> End:
        await trio.sleep(3)
        return REBALANCE

    running.life.start_service(trio.sleep, 1)
    running.life.start_service(brings)
    await trio.sleep(2)
    assert running.life.state is State.RUNNING
    assert await running.life.wait_ended() is REBALANCE


async def test_services_run_through_the_drain(autojump_clock: MockClock, running: Life) -> None:
    """Heartbeats continue in the drain; no service is started after the end has begun."""
    life = running.life
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(trio.current_time())
            await trio.sleep(1)

    life.start_service(beat)
    life.start_work(trio.sleep, (7.5,))
    await trio.sleep(1)
    life.end(REBALANCE)
    life.start_service(trio.sleep_forever)
    await life.wait_ended()
    assert len(beats) == 8


async def test_an_exception_of_a_service_surfaces(autojump_clock: MockClock, running: Life) -> None:
    """The exception is kept, and ends the generation after a drain."""
    life = running.life
    error = RuntimeError("a mistake of kgroup's")

    async def fails() -> End:
        await trio.sleep(1)
        raise error

    life.start_work(trio.sleep, (3,))
    life.start_service(fails)
    end = await life.wait_ended()
    assert end.cause is Cause.TASK_RAISED
    assert end.error is error
    assert life.errors == [error]


async def test_exceptions_are_kept_and_the_siblings_drain(
    autojump_clock: MockClock, running: Life
) -> None:
    """The exceptions of all tasks are kept in their order."""
    life = running.life
    errors = [ValueError("one"), KeyError("two")]

    async def fails(number: int) -> None:
        await trio.sleep(1 + number)
        raise errors[number]

    life.start_work(fails, (0,))
    life.start_work(fails, (1,))
    end = await life.wait_ended()
    assert life.errors == errors
    assert end.error is errors[0]
    assert "fails raised ValueError('one')" in end.detail


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_stale_error_of_this_generation_is_no_failure(
    autojump_clock: MockClock, running: Life, grouped: bool
) -> None:
    """A task that raises it, alone or in an exception group, ends the generation quietly."""
    life = running.life

    async def commits() -> None:
        await life.ending.wait()
        error = StaleGenerationError("gone", life.recorded_end)
        raise ExceptionGroup("of a nursery", [error]) if grouped else error

    life.start_work(commits, ())
    life.end(REBALANCE)
    await life.wait_ended()
    assert life.errors == []


async def test_stale_errors_of_several_tasks_at_the_end_of_a_drain(
    autojump_clock: MockClock, running: Life
) -> None:
    """They name the recorded end, which stays: it is no loss, and none of them is a failure."""
    life, cut_off = running.life, trio.Event()

    async def commits() -> None:
        await life.ending.wait()
        error = StaleGenerationError("the drain is over", life.recorded_end)
        await cut_off.wait()
        raise error

    life.start_work(commits, ())
    life.start_work(commits, ())
    life.end(REBALANCE)
    await trio.testing.wait_all_tasks_blocked()
    cut_off.set()
    await life.wait_ended()
    assert life.recorded_end is REBALANCE
    assert life.errors == []


async def test_other_errors_beside_a_stale_error_are_kept(
    autojump_clock: MockClock, running: Life
) -> None:
    """Only the stale error is taken out of the exception group."""
    life = running.life

    async def commits() -> None:
        await life.ending.wait()
        raise ExceptionGroup(
            "both", [StaleGenerationError("gone", life.recorded_end), ValueError("mine")]
        )

    life.start_work(commits, ())
    life.end(REBALANCE)
    await life.wait_ended()
    (kept,) = life.errors
    assert isinstance(kept, ExceptionGroup)
    assert [type(error) for error in kept.exceptions] == [ValueError]


async def test_a_failure_beside_the_cancellation_is_kept(
    autojump_clock: MockClock, running: Life
) -> None:
    """What a cancelled task's nursery raises is a failure as if the task itself had raised it."""
    life = running.life

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    async def task() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)

    life.start_work(task, ())
    await trio.testing.wait_all_tasks_blocked()
    life.end(LOSS)
    await life.wait_ended()
    (kept,) = life.errors
    assert isinstance(kept, ExceptionGroup)
    assert [type(error) for error in kept.exceptions] == [ValueError]
    assert "task raised this in generation" in kept.__notes__[0]


@pytest.mark.parametrize("end", [None, End(Cause.REBALANCE)])
async def test_a_stale_error_of_another_generation_is_a_failure(
    autojump_clock: MockClock, running: Life, end: End | None
) -> None:
    """A task that commits under an old generation is a mistake of the program."""
    life = running.life

    async def commits() -> None:
        await trio.lowlevel.checkpoint()
        raise StaleGenerationError("gone", end)

    life.start_work(commits, ())
    assert (await life.wait_ended()).cause is Cause.TASK_RAISED
    assert len(life.errors) == 1


async def test_a_lease_expired_error_of_a_task_is_a_loss(
    autojump_clock: MockClock, running: Life
) -> None:
    """The membership cannot be confirmed any more, so the generation is lost."""
    error = LeaseExpiredError("too late")

    async def commits() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    running.life.start_work(commits, ())
    end = await running.life.wait_ended()
    assert (end.cause, end.error) == (Cause.MEMBERSHIP_LOST, error)
    assert running.life.errors == []


async def test_work_is_marked_as_inside_of_the_group(
    autojump_clock: MockClock, running: Life
) -> None:
    """A task of the program, and what it starts, is inside of the group; a service is not."""
    seen: dict[str, bool] = {}

    async def note(name: str) -> None:
        seen[name] = OWNER in inside_of.get()
        await trio.sleep(1)

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, "child")
            await note("work")

    running.life.start_service(note, "service")
    running.life.start_work(work, ())
    await running.life.wait_ended()
    assert seen == {"child": True, "work": True, "service": False}
    assert OWNER not in inside_of.get()


async def test_a_cancellation_from_outside_skips_the_drain(autojump_clock: MockClock) -> None:
    """All tasks are cancelled, and the recorded cause is the cancellation."""
    made = Life()
    async with trio.open_nursery() as nursery:
        life = await made.begin(nursery)
        life.start_work(trio.sleep_forever, ())
        nursery.cancel_scope.cancel()
    assert life.recorded_end is not None
    assert life.recorded_end.cause is Cause.CANCELLED
    assert life.state is State.ENDED
    assert life.ended.is_set()
    assert made.drains == []


async def test_scope_ends_with_the_tasks(autojump_clock: MockClock, running: Life) -> None:
    """At the drain's deadline the block is cancelled without an exception."""
    life = running.life
    life.hold_body()
    before = trio.current_time()
    life.end(REBALANCE)
    with life.scope():
        await trio.sleep(3600)
    assert trio.current_time() - before == pytest.approx(10)


async def test_scope_after_the_end_is_cancelled(autojump_clock: MockClock, running: Life) -> None:
    """A block that begins after a loss is cancelled at its first checkpoint."""
    running.life.end(LOSS)
    reached = []
    with running.life.scope():
        await trio.lowlevel.checkpoint()
        reached.append(1)
    assert reached == []


async def test_scope_raises_all_but_stale_errors(autojump_clock: MockClock, running: Life) -> None:
    """A stale error ends the block quietly; the rest of an exception group is raised."""
    life = running.life

    def block(error: Exception) -> None:
        with life.scope():
            raise error

    with pytest.raises(ValueError, match="mine"):
        block(ValueError("mine"))
    life.end(LOSS)
    stale = StaleGenerationError("gone", LOSS)
    block(stale)
    block(ExceptionGroup("one", [stale]))
    with pytest.raises(ExceptionGroup) as caught:
        block(ExceptionGroup("two", [stale, ValueError("mine")]))
    assert [type(error) for error in caught.value.exceptions] == [ValueError]


async def test_a_scope_that_was_left_is_not_cancelled(
    autojump_clock: MockClock, running: Life
) -> None:
    """After the block, the end cancels nothing in the body."""
    with running.life.scope():
        await trio.lowlevel.checkpoint()
    running.life.end(LOSS)
    await trio.sleep(1)


async def test_closing_bounds_commits_even_after_a_loss(
    autojump_clock: MockClock, running: Life
) -> None:
    """The first end stays, and no commit is awaited for longer than a drain may take."""
    life = running.life
    life.end(LOSS)
    life.close(End(Cause.CLOSED))
    assert life.recorded_end is LOSS
    assert life.commit_deadline() == trio.current_time() + 10.0


async def test_the_drain_waits_for_work_of_a_service(
    autojump_clock: MockClock, running: Life
) -> None:
    """The drain lasts until the block of `working` is left; other services continue meanwhile."""
    life = running.life
    beats = []

    async def beat() -> None:
        while True:
            beats.append(trio.current_time())
            await trio.sleep(1)

    async def commit() -> None:
        with life.working():
            await trio.sleep(5)

    began = trio.current_time()
    life.start_service(beat)
    life.start_service(commit)
    await trio.testing.wait_all_tasks_blocked()
    life.end(REBALANCE)
    await life.ended.wait()
    assert trio.current_time() - began == 5
    assert len(beats) >= 5
    assert not life.cut_short
