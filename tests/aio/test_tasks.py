"""The program's functions as tasks of asyncio, for which trio waits."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kgroup.aio import tasks as tasks_module
from kgroup.aio.body import Body
from kgroup.aio.ending import Ending
from kgroup.aio.tasks import GRACE, ProgramTask, Tasks
from kgroup.errors import UsageError
from kgroup.events import Event, ProgramLoopBlocked, TaskStillRunning
from tests.aio.test_bridge import SOON, Running, running


class Program:
    """Functions of a program, and the tasks that run them."""

    def __init__(self, here: Running) -> None:
        self.here = here
        self.tasks = Tasks(here.bridge, here.loop, Body())
        self.tasks.body.enter()
        self.begun = asyncio.Event()
        self.stragglers: list[Event] = []

    def task(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> ProgramTask[Any]:
        """A task that has started."""
        task: ProgramTask[Any] = ProgramTask(self.tasks, contextvars.copy_context(), fn, *args)
        task.start()
        return task

    async def wait(self, task: ProgramTask[Any]) -> Any:
        """Wait for a task in trio."""
        return await self.here.bridge.call(partial(task.wait, self.report))

    def report(self, kind: type[Event], **fields: Any) -> None:
        """Note that a task continues."""
        self.stragglers.append(kind(group_id="g", **fields))

    def pass_time(self, clock: MockClock, seconds: float) -> None:
        """Let time pass in the background thread, and wait until that has nothing left to do."""
        self.here.loop.run_sync(partial(clock.jump, seconds))
        self.here.loop.run(wait_all_tasks_blocked, SOON)

    async def forever(self) -> None:
        """Never return."""
        self.begun.set()
        await asyncio.sleep(SOON)


def in_asyncio(test: Callable[[Program], Awaitable[None]]) -> None:
    """Run a test in asyncio."""

    async def main() -> None:
        async with asyncio.timeout(SOON), running() as here:
            await test(Program(here))

    asyncio.run(main())


def test_trio_gets_what_the_function_returns_or_raises() -> None:
    """The task of trio ends as the function does."""

    async def test(program: Program) -> None:
        async def double(number: int) -> int:
            await asyncio.sleep(0)
            return 2 * number

        async def fail() -> None:
            await asyncio.sleep(0)
            raise ZeroDivisionError

        assert await program.wait(program.task(double, 4)) == 8
        with pytest.raises(ZeroDivisionError):
            await program.wait(program.task(fail))
        assert not program.tasks.running

    in_asyncio(test)


def test_a_function_that_is_not_async() -> None:
    """A function that returns nothing to await is a mistake, which the error names."""

    async def test(program: Program) -> None:
        with pytest.raises(UsageError, match="plain is not an async function"):
            await program.wait(program.task(plain))

    in_asyncio(test)


def plain() -> Any:
    """Return at once."""


def test_trios_cancellation_cancels_the_function() -> None:
    """When trio's task is cancelled, the function is, and trio waits for its end."""

    async def test(program: Program) -> None:
        task = program.task(program.forever)
        waiting = asyncio.create_task(program.wait(task))
        await program.begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not program.stragglers
        assert asyncio.all_tasks() == {asyncio.current_task()}

    in_asyncio(test)


def test_a_result_in_spite_of_the_cancellation() -> None:
    """A function that ends with a result or an exception although it was cancelled is heard."""

    async def test(program: Program) -> None:
        async def cleaned_up() -> str:
            try:
                await program.forever()
            except asyncio.CancelledError:
                return "clean"
            return "never"

        async def broken() -> None:
            try:
                await program.forever()
            finally:
                raise KeyError("in the clean-up")

        for fn, wanted in ((cleaned_up, "clean"), (broken, KeyError)):
            program.begun.clear()
            waiting = asyncio.create_task(program.wait(program.task(fn)))
            await program.begun.wait()
            waiting.cancel()
            outcome: Any = (await asyncio.gather(waiting, return_exceptions=True))[0]
            assert outcome == wanted or type(outcome) is wanted

    in_asyncio(test)


def test_a_task_that_continues_is_reported_and_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that swallows its cancellation is named once, and cancelled again until it ends."""
    monkeypatch.setattr(tasks_module, "GRACE", 0.01)

    async def test(program: Program) -> None:
        cancelled = 0

        async def stubborn() -> None:
            nonlocal cancelled
            while cancelled < 4:
                try:
                    await program.forever()
                except asyncio.CancelledError:
                    cancelled += 1

        waiting = asyncio.create_task(program.wait(program.task(stubborn)))
        await program.begun.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        (event,) = (one for one in program.stragglers if isinstance(one, TaskStillRunning))
        assert event.task.endswith("stubborn")
        assert "await program.forever()" in event.stack

    in_asyncio(test)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """The time of the background thread, which passes when the test says so."""
    clock = MockClock()
    monkeypatch.setattr(trio, "run", partial(trio.run, clock=clock))
    return clock


async def cancel_all(
    program: Program, tasks: list[ProgramTask[Any]], scope: trio.CancelScope
) -> None:
    """Wait for tasks in trio until the scope is cancelled, and they have ended."""

    async def wait() -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(task.wait, program.report)

    await program.here.bridge.call(wait)


@pytest.mark.parametrize("cleans_up", [False, True])
def test_a_loop_that_is_blocked_is_reported(clock: MockClock, cleans_up: bool) -> None:
    """Once, with the stack of its thread; the tasks that it keeps from ending are not blamed."""

    async def test(program: Program) -> None:
        scope, loop = trio.CancelScope(), program.here.loop

        async def block() -> None:
            await asyncio.sleep(0)  # trio waits for it by then, whatever the task factory
            loop.post(scope.cancel)
            try:
                if cleans_up:
                    await program.forever()
            finally:
                while not program.stragglers:
                    program.pass_time(clock, GRACE)  # it blocks asyncio's loop
                for _ in range(10):
                    program.pass_time(clock, GRACE)

        tasks = [program.task(program.forever), program.task(program.forever)]
        await program.begun.wait()
        await cancel_all(program, [*tasks, program.task(block)], scope)
        (event,) = program.stragglers
        assert isinstance(event, ProgramLoopBlocked)
        assert "in block" in event.stack

    in_asyncio(test)


def test_a_process_that_was_frozen_has_no_blocked_loop(clock: MockClock) -> None:
    """Neither the loop nor a task is blamed if the background thread did not run either."""

    async def test(program: Program) -> None:
        scope, loop = trio.CancelScope(), program.here.loop

        async def freeze() -> None:
            await asyncio.sleep(0)  # trio waits for it by then, whatever the task factory
            loop.post(scope.cancel)
            try:
                await program.forever()
            finally:
                for _ in range(10):
                    program.pass_time(clock, 10 * GRACE)

        await cancel_all(program, [program.task(freeze)], scope)
        assert not program.stragglers

    in_asyncio(test)


def test_a_blocked_loop_takes_no_time_from_a_cleanup(clock: MockClock) -> None:
    """A task has its time from the moment at which asyncio's loop could cancel it."""

    async def test(program: Program) -> None:
        scope, loop, cleaned = trio.CancelScope(), program.here.loop, list[bool]()

        async def clean_up() -> None:
            try:
                await program.forever()
            finally:
                for _ in range(20):  # more turns of both loops than are waited for
                    await program.here.bridge.call(trio.lowlevel.checkpoint)
                cleaned.append(True)

        async def block() -> None:
            await asyncio.sleep(0)  # trio waits for it by then, whatever the task factory
            loop.post(scope.cancel)
            while not program.stragglers:
                program.pass_time(clock, GRACE)  # it blocks asyncio's loop

        cleaning = program.task(clean_up)
        await program.begun.wait()
        await cancel_all(program, [cleaning, program.task(block)], scope)
        assert cleaned == [True]
        assert not any(isinstance(one, TaskStillRunning) for one in program.stragglers)

    in_asyncio(test)


def test_a_task_that_others_cancel() -> None:
    """A function that the program itself cancels ends trio's task without an exception."""

    async def test(program: Program) -> None:
        task = program.task(program.forever)
        await program.begun.wait()
        for other in asyncio.all_tasks() - {asyncio.current_task()}:
            other.cancel()
        assert await program.wait(task) is None
        assert task.cancelled

    in_asyncio(test)


def test_a_task_that_is_cancelled_before_it_starts() -> None:
    """A function that trio has given up before asyncio could start it is not called."""

    async def test(program: Program) -> None:
        task: ProgramTask[Any] = ProgramTask(
            program.tasks, contextvars.copy_context(), program.forever
        )
        waiting = asyncio.create_task(program.wait(task))
        while not program.tasks.running:  # noqa: ASYNC110 # it is another thread's
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        task.start()
        await asyncio.sleep(0)
        assert not program.begun.is_set()

    in_asyncio(test)


def test_a_task_that_cannot_be_made() -> None:
    """An exception of the loop's task factory ends trio's task, as one of the function does."""

    def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError("no more tasks")

    async def test(program: Program) -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(refuse)
        task = program.task(program.forever)
        loop.set_task_factory(None)
        with pytest.raises(RuntimeError, match="no more tasks"):
            await program.wait(task)

    in_asyncio(test)


def test_an_interrupt_as_a_task_is_made() -> None:
    """It is raised at once, as that of an eager task's first step; trio waits for no such task."""

    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    async def test(program: Program) -> None:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        task: ProgramTask[Any] = ProgramTask(program.tasks, context, program.forever)
        loop.set_task_factory(interrupt)
        with pytest.raises(KeyboardInterrupt):
            task.start()
        loop.set_task_factory(None)
        assert await program.wait(task) is None
        assert task.cancelled

    in_asyncio(test)


def test_tasks_of_a_closed_loop_are_given_up() -> None:
    """When asyncio's loop was closed, trio waits for none of its tasks, nor for later ones."""
    loop = asyncio.new_event_loop()

    async def make() -> tuple[Running, Program, ProgramTask[Any]]:
        here = Running()
        here.loop.start()
        program = Program(here)
        task = program.task(program.forever)
        await program.begun.wait()
        return here, program, task

    here, program, task = loop.run_until_complete(make())
    left = asyncio.all_tasks(loop)
    loop.close()

    async def cancelled() -> bool:
        with trio.move_on_after(0) as scope:
            await task.wait(program.report)
        return scope.cancelled_caught

    async def abandoned() -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task.wait)
            await trio.testing.wait_all_tasks_blocked()
            program.tasks.abandon()
        return task.cancelled

    async def later() -> bool:
        another: ProgramTask[Any] = ProgramTask(
            program.tasks, contextvars.copy_context(), program.forever
        )
        await another.wait()
        return another.cancelled

    assert here.loop.run(cancelled, SOON)
    assert here.loop.run(abandoned, SOON)
    assert here.loop.run(later, SOON)
    here.loop.post(here.stop.set)
    here.loop.join()
    for one in left:
        one._log_destroy_pending = False  # type: ignore[attr-defined] # as a program's last words
        one.get_coro().close()


def test_the_event_of_the_end() -> None:
    """It is set as soon as the end has begun, wakes those who wait, and stays set."""

    async def main() -> None:
        begun: list[int] = []
        ending = Ending(lambda: bool(begun))
        waiting = asyncio.create_task(ending.wait())
        await asyncio.sleep(0)
        begun.append(1)
        assert ending.is_set()
        assert await ending.wait()
        assert not waiting.done()
        ending.set()
        assert await waiting
        with pytest.raises(UsageError, match="stays set"):
            ending.clear()

    asyncio.run(main())
