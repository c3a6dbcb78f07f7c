"""Which task runs the body of a group's block, and how it is cancelled."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kgroup import aio
from kgroup.aio.body import Body, BodyCall
from kgroup.errors import GroupClosedError, UsageError
from kgroup.types import TopicPartition
from tests.aio.test_group import Here, be_cancelled, check_not_cancelled, in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON

on_broker = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)


def in_task(body: Callable[[Body], Awaitable[None]]) -> None:
    """Run a test in a task that does not enter the block: one that has ended does."""

    async def main() -> None:
        async def enter() -> None:
            known.enter()

        known = Body()
        await asyncio.create_task(enter())
        async with asyncio.timeout(SOON):
            await body(known)

    asyncio.run(main())


async def fail() -> None:
    """A handler that raises."""
    raise LookupError("broken handler")


@asynccontextmanager
async def entered_elsewhere(here: Here, error: type[Exception]) -> AsyncIterator[aio.ConsumerGroup]:
    """A group's block that a task enters which has ended; leaving it must raise this error."""
    with pytest.raises(ExceptionGroup) as caught:
        async with AsyncExitStack() as stack:
            group = here.group(drain_timeout=1.0)
            await asyncio.create_task(stack.enter_async_context(group))
            yield group
    assert [type(one) for one in caught.value.exceptions] == [error]


def test_the_task_that_entered_the_block_runs_the_body() -> None:
    """As long as it runs, no call of another task changes that."""

    async def main() -> None:
        known = Body()
        known.enter()
        task = asyncio.current_task()

        async def call() -> None:
            known.called(BodyCall.NEXT)
            assert known.task is task

        await asyncio.create_task(call())
        assert known.task is task

    asyncio.run(main())


def test_of_tasks_that_called_the_last_that_runs_is_taken() -> None:
    """A call in a short task, as `wait_for` of Python 3.11 makes, does not hide the body's task."""

    async def test(known: Body) -> None:
        assert known.task is None
        known.called(BodyCall.NEXT)
        found: list[object] = []

        async def call(*, stay: bool) -> None:
            known.called(BodyCall.NEXT)
            if stay:
                await asyncio.sleep(SOON)

        await asyncio.create_task(call(stay=False))
        found.append(known.task)
        other = asyncio.create_task(call(stay=True))
        await asyncio.sleep(0)
        found.append(known.task)
        other.cancel()
        await asyncio.wait([other])
        found.append(known.task)
        here = asyncio.current_task()
        assert found == [here, other, here]

    in_task(test)


@asynccontextmanager
async def caller(known: Body, *calls: BodyCall) -> AsyncIterator[asyncio.Task[None]]:
    """A task that makes these calls, and then runs until the block ends."""

    async def call_and_wait() -> None:
        for one in calls:
            known.called(one)
        await asyncio.sleep(SOON)

    task = asyncio.create_task(call_and_wait())
    await asyncio.sleep(0)
    yield task
    task.cancel()
    await asyncio.wait([task])


def test_the_task_with_the_surest_call_is_taken() -> None:
    """That is `next`, then `scope`, then `start_soon`, whichever came last."""

    async def test(known: Body) -> None:
        here = asyncio.current_task()
        known.called(BodyCall.START_SOON)
        async with caller(known, BodyCall.START_SOON) as helper:
            assert known.task is helper
            known.called(BodyCall.SCOPE)
            assert known.task is here
            async with caller(known, BodyCall.NEXT, BodyCall.START_SOON) as loop:
                async with caller(known, BodyCall.START_SOON), caller(known, BodyCall.SCOPE):
                    assert known.task is loop
                known.called(BodyCall.NEXT)
                assert known.task is here

    in_task(test)


def test_only_a_running_task_says_whether_the_body_was_cancelled() -> None:
    """A short task that was cancelled does not, for as long as anything refers to it."""

    async def test(known: Body) -> None:
        known.called(BodyCall.NEXT)
        async with caller(known, BodyCall.NEXT) as short:
            pass
        assert short.cancelled()
        found = [known.cancelled]
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        found.append(known.cancelled)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        task.uncancel()
        assert found == [False, True]

    in_task(test)


def test_if_no_task_runs_that_may_be_the_body_a_cancelled_one_counts() -> None:
    """Also if nothing else refers to it, and until another task calls."""

    async def test(known: Body) -> None:
        async with caller(known, BodyCall.NEXT):
            pass
        gc.collect()
        found = [known.cancelled]
        known.called(BodyCall.START_SOON)
        found.append(known.cancelled)
        assert found == [True, False]

    in_task(test)


def test_a_body_that_is_not_known_is_not_cancelled() -> None:
    """Neither then nor when it calls later, and a cancellation by others is one of theirs."""

    async def test(known: Body) -> None:
        known.cancel()
        known.called(BodyCall.NEXT)
        known.cancel()
        await asyncio.sleep(0)
        assert not known.leave(asyncio.CancelledError())

    in_task(test)


def test_a_cancellation_by_others_at_the_same_time_is_not_lost() -> None:
    """The block does not absorb it."""

    async def test(known: Body) -> None:
        known.called(BodyCall.NEXT)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        known.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await asyncio.sleep(SOON)
        assert not known.leave(caught.value)
        assert task.uncancel() == 0

    in_task(test)


def test_a_block_that_was_left_is_not_cancelled() -> None:
    """A failure that comes later cancels nothing."""

    async def test(known: Body) -> None:
        known.called(BodyCall.NEXT)
        assert not known.leave(None)
        known.cancel()
        await asyncio.sleep(0)

    in_task(test)


async def next_here(group: aio.ConsumerGroup, fail: Callable[..., Any]) -> None:
    """The body calls `next` itself."""
    (await group.next()).start_soon(fail)


async def start_here(group: aio.ConsumerGroup, fail: Callable[..., Any]) -> None:
    """The body starts its tasks itself."""
    (await asyncio.create_task(group.next())).start_soon(fail)


async def scope_here(group: aio.ConsumerGroup, fail: Callable[..., Any]) -> None:
    """The body opens a scope itself."""

    async def begin() -> aio.Generation:
        generation = await group.next()
        generation.start_soon(fail)
        return generation

    with (await asyncio.create_task(begin())).scope():
        await asyncio.sleep(0)


async def nothing_here(group: aio.ConsumerGroup, fail: Callable[..., Any]) -> None:
    """Another task makes all calls, and ends."""
    await asyncio.create_task(next_here(group, fail))


@on_broker
@pytest.mark.parametrize("begin", [next_here, start_here, scope_here])
def test_a_failure_cancels_the_body_of_a_block_that_an_ended_task_has_entered(
    kafka: Kafka, begin: Callable[[aio.ConsumerGroup, Callable[..., Any]], Awaitable[None]]
) -> None:
    """`asyncio.wait_for` of Python 3.11 enters it in a task of its own."""
    here = Here(kafka)
    reached: list[str] = []
    may_fail = asyncio.Event()

    async def fail_when_allowed() -> None:
        await may_fail.wait()
        await fail()

    async def main() -> None:
        async with entered_elsewhere(here, LookupError) as group:
            await begin(group, fail_when_allowed)
            may_fail.set()
            await be_cancelled(reached)
        await check_not_cancelled()

    in_asyncio(main)
    assert reached == ["cancelled"]


@on_broker
def test_a_failure_does_not_cancel_a_helper_that_starts_tasks(kafka: Kafka) -> None:
    """The task that got the generation from `next` is cancelled, although another called later."""
    here = Here(kafka)
    helped: list[str] = []

    async def help_it(generation: aio.Generation, finished: asyncio.Event) -> None:
        generation.start_soon(fail)
        await finished.wait()
        helped.append("to its end")

    async def main() -> None:
        finished = asyncio.Event()
        async with entered_elsewhere(here, LookupError) as group:
            helper = asyncio.create_task(help_it(await group.next(), finished))
            async with asyncio.timeout(SOON):
                await asyncio.Event().wait()
        finished.set()
        await helper

    in_asyncio(main)
    assert helped == ["to its end"]


@on_broker
def test_a_handler_that_cancels_itself_is_an_error_whatever_else_was_cancelled(
    kafka: Kafka,
) -> None:
    """A short task that has called last, and was cancelled, is not the body."""
    here = Here(kafka)

    async def cancel_itself(short: asyncio.Task[None]) -> None:
        await asyncio.wait([short])
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(SOON)

    async def start(generation: aio.Generation) -> None:
        task = asyncio.current_task()
        assert task is not None
        generation.start_soon(cancel_itself, task)
        task.cancel()
        await asyncio.sleep(SOON)

    async def main() -> None:
        async with entered_elsewhere(here, UsageError) as group:
            short = asyncio.create_task(start(await group.next()))
            await asyncio.wait([short])
            await asyncio.sleep(SOON)
        assert short.cancelled()

    in_asyncio(main)


@on_broker
def test_a_body_that_is_not_known_learns_of_the_failure_at_its_next_call(kafka: Kafka) -> None:
    """No task is cancelled; `next` raises, and leaving the block raises the exception."""
    here = Here(kafka)

    async def main() -> None:
        async with entered_elsewhere(here, LookupError) as group:
            await nothing_here(group, fail)
            await asyncio.create_task(group.wait_closed())
            await asyncio.sleep(0.1)  # a cancellation would be raised here
            with pytest.raises(GroupClosedError):
                await group.next()

    in_asyncio(main)


@on_broker
def test_a_body_in_another_task_than_the_one_that_leaves_the_block(kafka: Kafka) -> None:
    """The task that waits for it gets its CancelledError, of which the block raises none."""
    here = Here(kafka)

    async def consume(group: aio.ConsumerGroup) -> None:
        await next_here(group, fail)
        await asyncio.sleep(SOON)

    async def main() -> None:
        async with entered_elsewhere(here, LookupError) as group:
            await asyncio.create_task(consume(group))

    in_asyncio(main)


@on_broker
def test_a_handler_may_be_cancelled_with_such_a_body(kafka: Kafka) -> None:
    """As at the end of `asyncio.run`, where all tasks are: that is no error of the program's."""
    here = Here(kafka)
    handlers: list[asyncio.Task[Any] | None] = []
    begun = asyncio.Event()

    async def handle(_: TopicPartition) -> None:
        handlers.append(asyncio.current_task())
        begun.set()
        await asyncio.sleep(SOON)

    async def member() -> None:
        async with AsyncExitStack() as stack:
            group = here.group()
            await asyncio.create_task(stack.enter_async_context(group))
            generation = await group.next()
            generation.start_soon(handle, here.harness.partition(0))
            await asyncio.sleep(SOON)

    async def main() -> None:
        body = asyncio.create_task(member())
        await begun.wait()
        for task in (*handlers, body):
            assert task is not None
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await body

    in_asyncio(main)


@on_broker
def test_tasks_may_take_their_first_step_at_once(kafka: Kafka) -> None:
    """With Python 3.12's eager tasks, a function that fails in `start_soon` cancels the body."""
    here = Here(kafka)
    partition = here.harness.partition(0)
    steps: list[str] = []

    async def commit(generation: aio.Generation) -> None:
        steps.append("first")
        generation.start_soon(fail)
        await generation.ending.wait()
        await generation.commit({partition: 3}, beyond_read=True)

    async def fail() -> None:
        steps.append("second")
        raise LookupError("broken handler")

    async def main() -> None:
        if sys.version_info >= (3, 12):
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        with pytest.raises(ExceptionGroup) as caught:
            async with here.group(drain_timeout=1.0) as group:
                generation = await group.next()
                generation.start_soon(commit, generation)
                await asyncio.sleep(SOON)
        assert [type(error) for error in caught.value.exceptions] == [LookupError]

    in_asyncio(main)
    assert steps == ["first", "second"]
    assert here.harness.committed() == 3
