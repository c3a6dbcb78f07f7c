"""The life of a generation: what ends it, what the drain waits for, and what surfaces."""

from __future__ import annotations

from typing import final

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import CommitUnknownError, LeaseExpiredError, StaleGenerationError
from kgroup.events import GenerationDraining
from kgroup.generation.lifecycle import Lifecycle, State, inside_of, without_stale_errors
from kgroup.types import Cause, End
from tests.generation.bench import MEMBERSHIP, FakeSource, RecordingEmitter, member_context

OWNER = object()
REBALANCE = End(Cause.REBALANCE)
LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")
#: The end of another generation: equal to ``LOSS``, and not the same object.
EQUAL_LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")


@final
class Life:
    """A lifecycle that runs, and what it emitted."""

    def __init__(self, limit: float = 10.0) -> None:
        self.emitter = RecordingEmitter()
        self.source = FakeSource()
        member = member_context(
            emitter=self.emitter, source=self.source, group=OWNER, drain_timeout=limit
        )
        self.life = Lifecycle(member, MEMBERSHIP, trio.current_time())

    async def run(self) -> None:
        """Run it, as a generation does."""
        async with self.life.open():
            await self.life.ending.wait()
            if self.life.state is State.DRAINING:
                await self.life.drain()

    async def begin(self, nursery: trio.Nursery) -> Lifecycle:
        """Run it until a signal comes."""
        nursery.start_soon(self.run)
        await trio.testing.wait_all_tasks_blocked()
        return self.life

    @property
    def drains(self) -> list[tuple[End, float]]:
        """The drains that were reported, and their seconds."""
        return [
            (event.end, event.deadline)
            for event in self.emitter.events
            if isinstance(event, GenerationDraining)
        ]


@pytest.fixture
async def running(nursery: trio.Nursery) -> Life:
    """One that runs."""
    life = Life()
    await life.begin(nursery)
    return life


async def test_before_it_runs_nothing_is_started(autojump_clock: MockClock) -> None:
    """Nor does it break."""
    life = Life().life
    assert not life.start_work(trio.sleep, (1,))
    life.start_service(trio.sleep, 1)
    assert life.state is State.RUNNING


async def test_a_loss_before_it_runs_ends_it(autojump_clock: MockClock) -> None:
    """`run` then comes back at once."""
    made = Life()
    made.life.end(LOSS)
    await made.run()
    assert made.life.recorded_end is LOSS
    assert made.life.ended.is_set()


async def test_a_task_that_returns_ends_it(autojump_clock: MockClock, running: Life) -> None:
    """By its name; what was started beside it may finish."""
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
    """Such as a partial."""

    class Handler:
        async def __call__(self) -> None:
            await trio.lowlevel.checkpoint()

        def __repr__(self) -> str:
            return "<a handler>"

    running.life.start_work(Handler(), ())
    end = await running.life.wait_ended()
    assert end.detail == "<a handler> returned"


async def test_the_first_end_is_the_recorded_one(autojump_clock: MockClock, running: Life) -> None:
    """A second planned one changes nothing, and returns the first."""
    life = running.life
    life.start_work(trio.sleep, (5,))
    assert life.end(REBALANCE) is REBALANCE
    assert life.end(End(Cause.CLOSED)) is REBALANCE
    assert not life.start_work(trio.sleep, (1,))
    assert await life.wait_ended() is REBALANCE
    assert life.end(LOSS) is REBALANCE


async def test_a_loss_while_it_drains_takes_its_place(
    autojump_clock: MockClock, running: Life
) -> None:
    """Tasks are cancelled at once, which is no drain that was too short."""
    life = running.life
    life.start_work(trio.sleep_forever, ())
    life.end(REBALANCE)
    await trio.sleep(2)
    before = trio.current_time()
    assert life.end(LOSS) is LOSS
    assert await life.wait_ended() is LOSS
    assert trio.current_time() == before
    assert not life.cut_short


async def test_a_drain_has_one_deadline(autojump_clock: MockClock, running: Life) -> None:
    """Work that outlasts it is cancelled, and it says so."""
    life = running.life
    life.start_work(trio.sleep_forever, ())
    life.start_work(trio.sleep, (4,))
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() - before == pytest.approx(10)
    assert life.cut_short


@pytest.mark.parametrize("limit", [0.0, -5.0])
async def test_a_drain_without_time(
    nursery: trio.Nursery, autojump_clock: MockClock, limit: float
) -> None:
    """A heartbeat that was last answered long ago leaves none: it is 0 and not negative."""
    made = Life()
    life = await made.begin(nursery)
    await trio.sleep(100.0 - limit)
    life.start_work(trio.sleep_forever, ())
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() == before
    assert made.drains == [(REBALANCE, 0.0)]


async def test_the_body_is_work(
    autojump_clock: MockClock, running: Life, nursery: trio.Nursery
) -> None:
    """The drain waits until it is released, or for its deadline."""
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


async def test_waiting_for_the_end_is_no_work(autojump_clock: MockClock, running: Life) -> None:
    """A body that does nothing else does not hold its own drain up."""
    life = running.life
    life.hold_body()
    before = trio.current_time()
    life.end(REBALANCE)
    await life.wait_ended()
    assert trio.current_time() == before


async def test_a_service_that_returns_nothing_ends_nothing(
    autojump_clock: MockClock, running: Life
) -> None:
    """One that returns an end brings it."""

    async def brings() -> End:
        await trio.sleep(3)
        return REBALANCE

    running.life.start_service(trio.sleep, 1)
    running.life.start_service(brings)
    await trio.sleep(2)
    assert running.life.state is State.RUNNING
    assert await running.life.wait_ended() is REBALANCE


async def test_services_run_through_the_drain(autojump_clock: MockClock, running: Life) -> None:
    """Heartbeats must, and none is started once the end has begun."""
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


async def test_a_service_that_raises_is_no_silent_end(
    autojump_clock: MockClock, running: Life
) -> None:
    """What no table knows ends the generation with its cause, after a drain, and is kept."""
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
    """All that raise are kept, in their order."""
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
async def test_its_own_stale_error_is_no_failure(
    autojump_clock: MockClock, running: Life, grouped: bool
) -> None:
    """A task that lets the stale commit out ends quietly, alone or out of a nursery."""
    life = running.life

    async def commits() -> None:
        await life.ending.wait()
        error = StaleGenerationError("gone", life.recorded_end)
        raise ExceptionGroup("of a nursery", [error]) if grouped else error

    life.start_work(commits, ())
    life.end(REBALANCE)
    await life.wait_ended()
    assert life.errors == []


async def test_what_is_with_it_in_a_group_is_kept(autojump_clock: MockClock, running: Life) -> None:
    """Only the stale error is taken out."""
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


@pytest.mark.parametrize("end", [None, End(Cause.REBALANCE)])
async def test_a_stale_error_of_another_generation_is_a_failure(
    autojump_clock: MockClock, running: Life, end: End | None
) -> None:
    """A task that commits under an old generation has a mistake in it."""
    life = running.life

    async def commits() -> None:
        await trio.lowlevel.checkpoint()
        raise StaleGenerationError("gone", end)

    life.start_work(commits, ())
    assert (await life.wait_ended()).cause is Cause.TASK_RAISED
    assert len(life.errors) == 1


async def test_a_lease_that_is_over_ends_it_as_lost(
    autojump_clock: MockClock, running: Life
) -> None:
    """A task that lets it out says that membership cannot be confirmed."""
    error = LeaseExpiredError("too late")

    async def commits() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    running.life.start_work(commits, ())
    end = await running.life.wait_ended()
    assert (end.cause, end.error) == (Cause.MEMBERSHIP_LOST, error)
    assert running.life.errors == []


async def test_tasks_know_whose_they_are(autojump_clock: MockClock, running: Life) -> None:
    """A task, and what it starts, is inside of the group; a service is not."""
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


async def test_cancelled_from_outside_it_does_not_drain(autojump_clock: MockClock) -> None:
    """All tasks are cancelled; the cause says so; nothing outlives it."""
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


async def test_a_block_in_the_body_ends_with_the_tasks(
    autojump_clock: MockClock, running: Life
) -> None:
    """At the deadline of the drain it is cancelled, quietly."""
    life = running.life
    life.hold_body()
    before = trio.current_time()
    life.end(REBALANCE)
    with life.scope():
        await trio.sleep(3600)
    assert trio.current_time() - before == pytest.approx(10)


async def test_a_block_that_begins_after_the_end_is_over(
    autojump_clock: MockClock, running: Life
) -> None:
    """Its first checkpoint ends it."""
    running.life.end(LOSS)
    reached = []
    with running.life.scope():
        await trio.lowlevel.checkpoint()
        reached.append(1)
    assert reached == []


async def test_a_block_lets_other_exceptions_out(autojump_clock: MockClock, running: Life) -> None:
    """A stale error ends it quietly; the rest of an exception group comes out without it."""
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


async def test_a_block_that_is_left_is_cancelled_no_more(
    autojump_clock: MockClock, running: Life
) -> None:
    """The body continues after it."""
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


async def test_what_a_service_does_as_work_is_waited_for(
    autojump_clock: MockClock, running: Life
) -> None:
    """The drain lasts until it is done, and services continue meanwhile."""
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


# Stale errors are separated from failures of the program.


@pytest.mark.parametrize(
    "error",
    [
        StaleGenerationError("refused", LOSS),
        CommitUnknownError("unanswered, then refused", LOSS),
        LeaseExpiredError("not confirmed"),
        ExceptionGroup("both", [StaleGenerationError("refused", LOSS), LeaseExpiredError("over")]),
    ],
    ids=repr,
)
def test_a_stale_error_leaves_nothing(error: Exception) -> None:
    """What says that this very generation is over is no failure."""
    assert without_stale_errors(error, LOSS) is None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        StaleGenerationError("of another generation", EQUAL_LOSS),
        CommitUnknownError("while the generation runs"),
    ],
    ids=repr,
)
def test_everything_else_stays(error: Exception) -> None:
    """A failure of the program's, and the stale error of another generation."""
    assert without_stale_errors(error, LOSS) is error
    mixed = ExceptionGroup("mixed", [error, StaleGenerationError("refused", LOSS)])
    rest = without_stale_errors(mixed, LOSS)
    assert rest is not None
    assert rest.exceptions == (error,)
