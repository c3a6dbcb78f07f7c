"""Groups of asyncio: how their blocks end, and what is asyncio's own. On the embedded broker."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pytest
import trio
from confluent_kafka import Producer

import kgroup
from kgroup import aio
from kgroup.aio.bridge import Bridge
from kgroup.background.group import _OPEN
from kgroup.errors import (
    GroupClosedError,
    LeaseExpiredError,
    NotOwnedError,
    OffsetBeyondReadError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import (
    BodyStillRunning,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Left,
    TaskStillRunning,
)
from kgroup.generation.states import State
from kgroup.group import default_runtime
from kgroup.interfaces import Message
from kgroup.monitors import HealthMonitor, Monitors
from kgroup.runtime import default_runtime_factory
from kgroup.status import Phase
from kgroup.types import Cause, TopicPartition
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON, Harness

pytestmark = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)

E = TypeVar("E", bound=Event)


class Here:
    """One test's topic and group, and the events of a member."""

    def __init__(self, kafka: Kafka, partitions: int = 1, records: int = 10) -> None:
        self.harness = Harness(kafka)
        self.harness.create(partitions, records)
        self.events: list[Event] = []
        self.threads: set[int] = set()
        self.changed = asyncio.Event()

    def group(self, **settings: object) -> aio.ConsumerGroup:
        """A member."""
        return aio.ConsumerGroup(self.harness.config(**settings), on_event=self.on_event)

    def on_event(self, event: Event) -> None:
        """Note an event."""
        self.events.append(event)
        self.threads.add(threading.get_ident())
        self.changed.set()

    async def event(self, kind: type[E]) -> E:
        """Wait for an event of a kind."""
        while not (found := self.of(kind)):
            self.changed.clear()
            await self.changed.wait()
        return found[0]

    def of(self, kind: type[E]) -> list[E]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


async def be_cancelled(reached: list[str]) -> None:
    """Wait until the group cancels this task, and note that it did."""
    try:
        await asyncio.sleep(SOON)
    except asyncio.CancelledError:
        reached.append("cancelled")
        raise


async def check_not_cancelled() -> None:
    """After the block, no cancellation of this task is left or pending."""
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


def in_asyncio(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test, and check that none of its threads and tasks is left."""
    before = set(threading.enumerate())

    async def limited() -> None:
        async with asyncio.timeout(SOON):
            await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(limited())
    left = [one.name for one in set(threading.enumerate()) - before]
    # trio keeps the threads of `trio.to_thread` for ten seconds, for further calls.
    assert [name for name in left if not name.startswith("Trio thread")] == []


async def forever(*_: object) -> None:
    """A handler that never returns."""
    await asyncio.sleep(SOON)


def test_events_come_in_asyncios_thread(kafka: Kafka) -> None:
    """Handlers of events run in the event loop, all of them before the block has been left."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            await group.next()
        assert len(here.of(Left)) == 1

    in_asyncio(main)
    assert here.threads == {threading.get_ident()}


def test_an_event_of_the_program(kafka: Kafka) -> None:
    """It has the member and the generation; wrong fields are raised, and end nothing."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            with pytest.raises(TypeError, match="unexpected"):
                generation.emit(Left, reason="its own", notified=False, unexpected=1)
            generation.emit(Left, reason="its own", notified=False)
            event = await here.event(Left)
            assert (event.reason, event.member_id) == ("its own", generation.member_id)
            assert event.generation_id == generation.generation_id

    in_asyncio(main)


def test_an_event_handler_that_raises_ends_nothing(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first exception is logged."""
    here = Here(kafka)

    def raises(event: Event) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with aio.ConsumerGroup(here.harness.config(), on_event=raises) as group:
            await group.next()

    in_asyncio(main)
    assert len([one for one in caplog.records if one.exc_info is not None]) == 1


def test_contextvars_reach_handlers(kafka: Kafka) -> None:
    """A task has a copy of the context in which it was started."""
    here = Here(kafka)
    name = contextvars.ContextVar("name", default="none")
    found: list[str] = []

    async def handle() -> None:
        await asyncio.sleep(0)
        found.append(name.get())
        name.set("changed")

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            name.set("set")
            assert generation.start_soon(handle)
            await generation.ending.wait()
            assert name.get() == "set"

    in_asyncio(main)
    assert found == ["set"]


def test_a_handlers_exception_cancels_the_body(kafka: Kafka) -> None:
    """The body is cancelled where it waits; the block raises the exceptions, without a cancel."""
    here = Here(kafka, 2)
    reached: list[str] = []

    async def fail(generation: aio.Generation, partition: TopicPartition) -> None:
        await asyncio.sleep(0)
        if partition.partition == 0:
            raise LookupError("broken handler")
        await generation.ending.wait()
        await generation.commit({partition: 5}, beyond_read=True)
        raise KeyError("in the drain")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            # The body holds the generation, too, until the drain's deadline.
            async with here.group(drain_timeout=1.0) as group:
                generation = await group.next()
                for partition in generation.assignment:
                    generation.start_soon(fail, generation, partition)
                await be_cancelled(reached)
        assert sorted(type(error).__name__ for error in caught.value.exceptions) == [
            "KeyError",
            "LookupError",
        ]
        await check_not_cancelled()

    in_asyncio(main)
    assert reached == ["cancelled"]
    assert here.harness.committed(1) == 5


def test_the_bodys_exception_is_raised_after_the_drain(kafka: Kafka) -> None:
    """It is raised bare, or beside those of handlers."""
    here = Here(kafka)

    async def finish(generation: aio.Generation) -> None:
        await generation.ending.wait()
        await generation.commit({here.harness.partition(0): 4}, beyond_read=True)

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(finish, generation)
                raise ZeroDivisionError
        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                generation = await group.next()

                async def fail() -> None:
                    await generation.ending.wait()
                    raise LookupError

                generation.start_soon(fail)
                raise ZeroDivisionError
        assert [type(one) for one in caught.value.exceptions] == [LookupError, ZeroDivisionError]

    in_asyncio(main)
    assert here.harness.committed() == 4


def test_a_cancelled_body_leaves_without_a_drain(kafka: Kafka) -> None:
    """Handlers are cancelled at once, the member leaves, and the cancellation is raised."""
    here = Here(kafka)
    begun, cancelled = asyncio.Event(), list[str]()

    async def handle() -> None:
        begun.set()
        try:
            await forever()
        finally:
            cancelled.append("handler")

    async def member() -> None:
        async with here.group() as group:
            async for generation in group:
                generation.start_soon(handle)

    async def main() -> None:
        task = asyncio.create_task(member())
        await begun.wait()
        task.cancel("from outside")
        with pytest.raises(asyncio.CancelledError, match="from outside"):
            await task
        assert here.of(GenerationEnded)[0].end.cause is Cause.CANCELLED
        assert len(here.of(Left)) == 1

    in_asyncio(main)
    assert cancelled == ["handler"]


def test_a_cancellation_before_the_block(kafka: Kafka) -> None:
    """A task that is cancelled as it enters the group has started no thread; it may enter again."""
    here = Here(kafka)

    async def main() -> None:
        group = here.group()

        async def member(*, cancelled: bool) -> None:
            task = asyncio.current_task()
            assert task is not None
            if cancelled:
                task.cancel()  # raised at its next wait, which is in the entry
            async with group:
                await group.next()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(member(cancelled=True))
        assert group.status().phase is Phase.NOT_ENTERED
        await member(cancelled=False)

    in_asyncio(main)


def test_a_cancellation_ends_the_drain(kafka: Kafka) -> None:
    """A task that is cancelled while it leaves the block leaves at once, and raises it then."""
    here = Here(kafka)

    async def member() -> None:
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(forever)

    async def main() -> None:
        task = asyncio.create_task(member())
        await here.event(GenerationDraining)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(here.of(Left)) == 1

    in_asyncio(main)


def test_a_handlers_exception_and_a_cancellation(kafka: Kafka) -> None:
    """The exception is raised, and the cancellation at the next wait: neither is lost."""
    here = Here(kafka)
    steps: list[str] = []
    begun = asyncio.Event()

    async def fail() -> None:
        begun.set()
        try:
            await forever()
        finally:
            raise LookupError

    async def member() -> None:
        try:
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(fail)
                await forever()
        except* LookupError:
            steps.append("exception")
        try:
            await forever()
        except asyncio.CancelledError:
            steps.append("cancellation")
            raise

    async def main() -> None:
        task = asyncio.create_task(member())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_asyncio(main)
    assert steps == ["exception", "cancellation"]


WAYS: list[Callable[[Awaitable[Any]], Awaitable[Any]]] = [
    asyncio.ensure_future,
    lambda call: asyncio.wait_for(call, SOON),
]
"""How a program waits for a call; ``wait_for`` of Python 3.11 drops results."""


async def cancel_as_it_arrives(
    group: aio.ConsumerGroup,
    owner: object,
    method: str,
    call: Callable[[], Awaitable[Any]],
    way: Callable[[Awaitable[Any]], Awaitable[Any]],
) -> None:
    """Cancel a task after the call that it waits for has its result in the background thread."""
    arrived, may_return, fetch = asyncio.Event(), trio.Event(), getattr(owner, method)
    bridge = group._program_tasks().bridge

    async def held() -> object:
        result: object = await fetch()
        bridge.post(arrived.set)
        with trio.CancelScope(shield=True):
            await may_return.wait()
        return result

    async def wait() -> object:
        return await way(call())

    setattr(owner, method, held)
    task = asyncio.create_task(wait())
    await arrived.wait()
    setattr(owner, method, fetch)
    task.cancel()
    await asyncio.sleep(0)  # the call is cancelled, and has its result
    group._loop.post(may_return.set)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_a_cancelled_task_does_not_get_is_the_next_one(
    kafka: Kafka, way: Callable[[Awaitable[Any]], Awaitable[Any]]
) -> None:
    """The next iteration returns it, and until then it does not count as handed out."""
    here = Here(kafka, records=5)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records(max_records=2)
            assert offsets(await anext(records)) == [0, 1]
            (partition,) = generation.assignment
            await cancel_as_it_arrives(group, records, "_next", lambda: anext(records), way)
            with pytest.raises(OffsetBeyondReadError):
                await generation.commit({partition: 4})
            assert offsets(await anext(records)) == [2, 3]
            await generation.commit({partition: 4})

    in_asyncio(main)


@pytest.mark.parametrize("way", WAYS)
def test_a_generation_that_a_cancelled_task_does_not_get_is_the_next_one(
    kafka: Kafka, way: Callable[[Awaitable[Any]], Awaitable[Any]]
) -> None:
    """The next call returns it; it is the one that runs, and there is no other."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            await cancel_as_it_arrives(group, group, "_next_generation", group.next, way)
            generation = await group.next()
            assert generation.state is State.RUNNING
            assert len(here.of(GenerationStarted)) == 1
            assert offsets(await anext(generation.records(max_records=2))) == [0, 1]

    in_asyncio(main)


def test_a_generation_that_nobody_got_may_end(kafka: Kafka) -> None:
    """If it has ended before the next call, that call waits for another one."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            way = asyncio.ensure_future
            await cancel_as_it_arrives(group, group, "_next_generation", group.next, way)
            group.subscribe([here.harness.topic, "another"])
            await here.event(GenerationDraining)
            assert (await group.next()).epoch > here.of(GenerationStarted)[0].epoch

    in_asyncio(main)


def test_a_generation_that_nobody_got_may_be_released(kafka: Kafka) -> None:
    """Its drain waits for no body, so the next call waits for another one, as for any released."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            way = asyncio.ensure_future
            await cancel_as_it_arrives(group, group, "_next_generation", group.next, way)
            group.release()
            following = asyncio.ensure_future(group.next())
            for _ in range(3):
                await asyncio.sleep(0)
            assert not following.done()
            group.subscribe([here.harness.topic, "another"])
            assert (await following).epoch > here.of(GenerationStarted)[0].epoch

    in_asyncio(main)


def test_a_generation_that_nobody_got_holds_no_drain(kafka: Kafka) -> None:
    """It ends at once, because no body works in it, and the next call waits for another one."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group(drain_timeout=40.0) as group:
            way = asyncio.ensure_future
            await cancel_as_it_arrives(group, group, "_next_generation", group.next, way)
            group.subscribe([here.harness.topic, "another"])
            async with asyncio.timeout(SOON / 2):
                await here.event(GenerationEnded)
                assert (await group.next()).epoch > here.of(GenerationStarted)[0].epoch

    in_asyncio(main)


@pytest.mark.parametrize("way", [*WAYS, asyncio.create_task])
def test_the_body_is_known_whatever_task_has_called_next(
    kafka: Kafka, way: Callable[[Any], Awaitable[aio.Generation]]
) -> None:
    """Where it waits for the end, or closes the group, the drain does not wait for it."""
    here = Here(kafka)

    async def main() -> None:
        async with asyncio.timeout(SOON / 2), here.group(drain_timeout=40.0) as group:
            generation = await way(group.next())
            group.subscribe([here.harness.topic, "another"])
            await generation.wait_ended()
            await way(group.next())
            await group.aclose(promptly=True)

    in_asyncio(main)


def test_time_outs_lose_nothing(kafka: Kafka) -> None:
    """A next(), a batch and a wait for the end that are given up can be continued."""
    here = Here(kafka, records=3)

    async def main() -> None:
        async with here.group() as group:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.next(), 0.0001)
            generation = await group.next()
            records = generation.records(max_records=2)
            assert offsets(await anext(records)) == [0, 1]
            generation.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.01)
            generation.resume()
            assert offsets(await anext(records)) == [2]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(generation.wait_ended(), 0.01)
            group.shutdown("enough")
            assert (await generation.wait_ended()).detail == "enough"
            with pytest.raises(GroupClosedError):
                await group.next()

    in_asyncio(main)


def offsets(batch: kgroup.Batch) -> list[int | None]:
    """The offsets in a batch."""
    return [message.offset() for message in batch]


def test_what_is_on_its_way_when_the_program_changes_its_mind(kafka: Kafka) -> None:
    """A batch that arrives after a seek, a pause or the lease's end is not handed out."""
    here = Here(kafka, records=6)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            partition = here.harness.partition(0)
            records = generation.records(max_records=2)
            found: list[int | None] = []

            async def read() -> None:
                found.extend(offsets(await anext(records)))

            async def arrived() -> asyncio.Task[None]:
                """A task whose batch has left the background thread, and which does not run."""
                in_hand: Any = records._stream._in_hand
                before = in_hand.get(partition)
                task = asyncio.create_task(read())
                await asyncio.sleep(0)
                while (now := in_hand.get(partition)) is None or now is before:
                    time.sleep(0.001)  # noqa: ASYNC251 # asyncio's loop is to be busy
                return task

            await read()
            task = await arrived()
            generation.seek(partition, 5)
            await task
            assert found == [0, 1, 5]
            generation.seek(partition, 2)
            task = await arrived()
            generation.pause()
            await asyncio.sleep(0.02)
            assert not task.done()
            generation.resume()
            await task
            assert found == [0, 1, 5, 2, 3]
            task = await arrived()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(records, "_may_hand_out", lambda: False)
                await asyncio.sleep(0.02)
                assert not task.done()
            await task
            assert found == [0, 1, 5, 2, 3, 4, 5]

    in_asyncio(main)


def test_a_blocked_loop_stops_no_heartbeats(kafka: Kafka) -> None:
    """While a handler blocks asyncio's loop, heartbeats renew the lease again and again."""
    here = Here(kafka)

    async def block(generation: aio.Generation) -> None:
        await asyncio.sleep(0)
        before, renewals = generation.lease, 0
        while renewals < 3:
            time.sleep(0.01)  # noqa: ASYNC251 # it blocks the loop
            lease = generation.lease
            renewals += lease > before
            before = lease

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(block, generation)
            assert (await generation.wait_ended()).cause is Cause.TASK_RETURNED

    in_asyncio(main)


def test_the_lease_ends_within_a_batch(kafka: Kafka) -> None:
    """Past the lease, ``for message in batch`` hands out no further record, and says so."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(generation.records())
            read: list[Message] = []
            with pytest.raises(LeaseExpiredError, match="8 of the 10"):
                for message in batch:
                    read.append(message)
                    if len(read) == 2:
                        generation._generation._lifecycle.lease.revoke()
            assert (await generation.wait_ended()).cause is Cause.COORDINATOR_LOST
            assert generation.ending.is_set()

    in_asyncio(main)


def test_a_blocks_scope(kafka: Kafka) -> None:
    """Work in the body's scope is cancelled at the drain's deadline; the loop goes on."""
    here = Here(kafka)
    reached: list[str] = []

    async def main() -> None:
        async with here.group(drain_timeout=0.05) as group:
            first = await group.next()
            with first.scope():
                reached.append("before")
            with first.scope():
                first.start_soon(asyncio.sleep, 0)
                await asyncio.sleep(SOON)
                reached.append("never")
            assert first.end is not None
            with first.scope():
                await first.commit({here.harness.partition(0): 1}, beyond_read=True)
                reached.append("never")
            with first.scope():
                await asyncio.sleep(SOON)
                reached.append("never")
            with pytest.raises(KeyError), first.scope():
                raise KeyError
            second = await group.next()
            assert second.epoch == 2

    in_asyncio(main)
    assert reached == ["before"]


def test_work_beside_the_handlers(kafka: Kafka) -> None:
    """``run`` runs a function as work: its result is returned, its end ends no generation."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()

            async def work() -> str:
                await asyncio.sleep(0)
                with pytest.raises(UsageError, match="called by a task of one of its own"):
                    await group.next()
                await group.aclose("by work")
                return "done"

            async def cancelled() -> None:
                raise asyncio.CancelledError

            async def fails_when_cancelled() -> None:
                try:
                    await forever()
                finally:
                    raise LookupError

            with pytest.raises(asyncio.CancelledError):
                await generation.run(cancelled)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(generation.run(forever), 0.01)
            with pytest.raises(LookupError):
                await asyncio.wait_for(generation.run(fails_when_cancelled), 0.01)
            assert generation.state is State.RUNNING
            assert await generation.run(work) == "done"
            await group.aclose()
            assert generation.end is not None
            assert generation.end.detail == "by work"
            with pytest.raises(StaleGenerationError):
                await generation.run(work)
            assert not generation.start_soon(forever)

    in_asyncio(main)


def test_calls_after_the_block(kafka: Kafka) -> None:
    """What is over says so: commits and streams raise, and nothing is started."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records()
            assert "of 'threaded-" in repr(generation)
            assert generation.config is group.config
            assert generation.member_id.encode() in generation.transaction_metadata()
            with pytest.raises(NotOwnedError):
                generation.seek(here.harness.partition(5), 1)
        assert [batch async for batch in records] == []
        await records.aclose()
        for call in (generation.records, generation.pause, generation.resume):
            said = "closed: the block was left.*nothing was done; its group is closed"
            with pytest.raises(StaleGenerationError, match=said):
                call()
        with pytest.raises(StaleGenerationError):
            await generation.commit({here.harness.partition(0): 1})
        assert not generation.start_soon(forever)
        with pytest.raises(GroupClosedError):
            await group.next()
        await group.aclose()
        assert repr(group).startswith("<aio ConsumerGroup")

    in_asyncio(main)


def test_calls_after_the_generation(kafka: Kafka) -> None:
    """While the group goes on, they say to take the next generation."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(asyncio.sleep, 0)
            await generation.wait_ended()
            name = here.harness.partition(0)
            assert [batch async for batch in generation.records(name)] == []
            calls = (generation.pause, generation.records, partial(generation.seek, name, 1))
            for call in calls:
                with pytest.raises(StaleGenerationError, match="continue with the next generation"):
                    call()

    in_asyncio(main)


def test_a_task_that_continues_is_named(kafka: Kafka) -> None:
    """A handler that swallows its cancellation is reported; the member waits for it."""
    here = Here(kafka)

    async def stubborn() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            await forever()

    async def main() -> None:
        async with here.group(drain_timeout=0.01) as group:
            generation = await group.next()
            generation.start_soon(stubborn)
            generation.start_soon(asyncio.sleep, 0)
            assert (await here.event(TaskStillRunning)).task.endswith("stubborn")
            assert generation.state is State.ENDED
            reasons = group.health(hanging_after=0.0, stuck_after=0.0).reasons
            assert "stubborn" in reasons[0]
            assert (await group.next()).epoch == 2

    in_asyncio(main)


@pytest.mark.parametrize("blocks", [False, True])
def test_a_body_that_does_not_return(kafka: Kafka, blocks: bool) -> None:
    """An event has its stack, also if it blocks the loop; the member joins at the next call."""
    here, told = Here(kafka), threading.Event()

    def note(event: Event) -> None:
        if isinstance(event, BodyStillRunning):
            here.events.append(event)
            told.set()

    async def stay() -> None:
        if blocks:
            told.wait(SOON)
        else:
            await asyncio.to_thread(told.wait, SOON)

    async def main() -> None:
        config = here.harness.config(drain_timeout=0.1, session_timeout=6.0)
        # A monitor is called in the background thread.
        async with aio.ConsumerGroup(config, on_event=Monitors(note)) as group:
            generation = await group.next()
            generation.start_soon(asyncio.sleep, 0)
            await asyncio.wait_for(generation.ending.wait(), SOON)
            await stay()
            assert "in stay" in here.of(BodyStillRunning)[0].stack
            assert (await group.next()).epoch == 2

    in_asyncio(main)


def test_a_loop_that_is_closed_inside_the_block(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member leaves, and its thread ends, although nothing has left the block."""
    monkeypatch.setattr("kgroup.aio.group._POLL", 0.02)
    here = Here(kafka)
    loop = asyncio.new_event_loop()
    group = here.group()

    async def enter() -> None:
        generation = await (await group.__aenter__()).next()
        generation.start_soon(forever)
        await asyncio.sleep(0)

    loop.run_until_complete(enter())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined] # as a program's last words
        coroutine: Any = task.get_coro()
        coroutine.close()
    loop.close()
    assert group._loop.ended.wait(SOON)
    group._loop.join()
    assert group not in _OPEN
    with here.harness.group() as other:
        assert len(other.next(SOON).assignment) == 1


@pytest.mark.parametrize("runs", [False, True])
def test_a_block_that_is_left_in_another_loop(kafka: Kafka, runs: bool) -> None:
    """It is refused and does not wait; the member leaves, and its thread ends."""
    here = Here(kafka)
    group = here.group()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)

    async def enter() -> None:
        await (await group.__aenter__()).next()

    async def leave() -> None:
        with pytest.raises(UsageError, match="was entered in another event loop"):
            await group.__aexit__(None, None, None)

    if runs:
        thread.start()
        asyncio.run_coroutine_threadsafe(enter(), loop).result(SOON)
    else:
        loop.run_until_complete(enter())
        loop.close()
    in_asyncio(leave)
    assert group._loop.ended.wait(SOON)
    group._loop.join()
    if runs:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SOON)
        loop.close()
    assert group not in _OPEN


def test_two_loops_in_two_threads(kafka: Kafka) -> None:
    """Each loop has members of its own, and they share the partitions."""
    here = Here(kafka, 2)
    both = threading.Barrier(2)
    owned: list[tuple[int, TopicPartition]] = []

    async def member() -> None:
        async with aio.ConsumerGroup(here.harness.config()) as group:
            async for generation in group:
                if len(generation.assignment) == 1:
                    (only,) = generation.assignment
                    owned.append((threading.get_ident(), only))
                    await asyncio.to_thread(both.wait, SOON)
                    return
                await generation.ending.wait()

    threads = [threading.Thread(target=asyncio.run, args=(member(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert len({thread for thread, _ in owned}) == len({name for _, name in owned}) == 2


def test_async_functions_of_the_settings_run_in_asyncio(kafka: Kafka) -> None:
    """``starts`` may use asyncio, also where it is no async function but returns a coroutine."""
    here = Here(kafka)
    threads: list[int] = []

    async def load(partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        await asyncio.sleep(0)
        threads.append(threading.get_ident())
        return dict.fromkeys(partitions, 7)

    async def main() -> None:
        functions: list[Any] = [load, lambda partitions: load(partitions), lambda _: {}]  # noqa: PLW0108
        for starts in functions:
            async with here.group(starts=starts) as group:
                generation = await group.next()
                assert set(generation.start_offsets.values()) <= {0, 7}
                assert group.config.starts is starts

    in_asyncio(main)
    assert threads == [threading.get_ident()] * 2


def test_what_such_a_function_raises_names_it(kafka: Kafka) -> None:
    """Its exception ends the group, with the note that trio's has; so does a cancellation."""
    here = Here(kafka)

    async def load(_: object) -> dict[TopicPartition, int]:
        await asyncio.sleep(0)
        raise LookupError("no store")

    async def cancelled(_: object) -> dict[TopicPartition, int]:
        raise asyncio.CancelledError

    async def main() -> None:
        for starts, kind in ((load, LookupError), (cancelled, GroupClosedError)):
            with pytest.raises(kind) as caught:
                async with here.group(starts=starts) as group:
                    await group.next()
            assert starts.__qualname__ in caught.value.__notes__[0]

    in_asyncio(main)


def test_groups_on_the_wrong_loop_say_which_to_take(kafka: Kafka) -> None:
    """Each of the groups names the other one; a group is entered once, and before it is used."""
    config = Harness(kafka).config()

    async def enter(group: Any) -> None:
        async with group:
            pass

    with pytest.raises(UsageError, match=r"use kgroup\.aio\.ConsumerGroup"):
        asyncio.run(enter(kgroup.ConsumerGroup(config)))
    with pytest.raises(UsageError, match=r"in a trio program, use kgroup\.ConsumerGroup"):
        trio.run(enter, aio.ConsumerGroup(config))
    with pytest.raises(UsageError, match=r"use kgroup\.threaded\.ConsumerGroup"):
        enter(aio.ConsumerGroup(config)).send(None)

    async def main() -> None:
        group = aio.ConsumerGroup(config)
        assert repr(group).endswith("not entered>")
        with pytest.raises(UsageError, match="is not open"):
            await group.next()
        await group.aclose("before it was entered")
        await enter(group)
        with pytest.raises(UsageError, match="entered only once"):
            await enter(group)

    in_asyncio(main)


def test_a_call_from_another_event_loop_does_nothing(kafka: Kafka) -> None:
    """Calls of the group are refused before they do anything, aclose() and release() too."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()

            def elsewhere() -> None:
                for call in (group.aclose, group.next, group.wait_closed, generation.wait_ended):
                    with pytest.raises(UsageError, match="another event loop.* nothing was done"):
                        asyncio.run(call())
                with pytest.raises(UsageError, match="another event loop.* nothing was done"):
                    group.release()

            await asyncio.to_thread(elsewhere)
            assert group.status().phase is Phase.RUNNING
            assert generation.end is None

    in_asyncio(main)


def test_a_function_that_lets_anothers_cancellation_through(kafka: Kafka) -> None:
    """It is an error, with its traceback: nothing has cancelled the function's own task."""
    here = Here(kafka)

    async def handle(generation: aio.Generation, batch: object) -> None:
        waiting = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await waiting

    async def main() -> None:
        with pytest.RaisesGroup(
            pytest.RaisesExc(UsageError, match="raised CancelledError, and nothing has cancelled")
        ) as raised:
            async with here.group() as group:
                await aio.serve(group, handle)
        (error,) = raised.value.exceptions
        assert isinstance(error.__cause__, asyncio.CancelledError)
        ends = [event.end for event in here.events if isinstance(event, GenerationEnded)]
        assert [end.cause for end in ends] == [Cause.TASK_RAISED]

    in_asyncio(main)


def test_a_function_that_cancels_itself_below_a_task_that_was_cancelled_once(kafka: Kafka) -> None:
    """It is an error, too, if the owner of the block had a cancellation before it entered."""
    here = Here(kafka, records=1)

    async def cancel(generation: aio.Generation, batch: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        # As a failed TaskGroup of Python 3.11 leaves behind, also in tasks that catch its error.
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        matching = pytest.RaisesExc(UsageError, match="cancelled, and not by kgroup")
        with pytest.RaisesGroup(matching):
            async with here.group() as group:
                await aio.serve(group, cancel)
        task.uncancel()

    in_asyncio(main)


def test_a_group_that_was_not_entered_cannot_be_left(kafka: Kafka) -> None:
    """It is refused, and nothing waits; so in kgroup.threaded."""
    config = Harness(kafka).config()

    async def main() -> None:
        with pytest.raises(UsageError, match="is not open"):
            await aio.ConsumerGroup(config).__aexit__(None, None, None)

    in_asyncio(main)
    with pytest.raises(UsageError, match="is not open"):
        kgroup.threaded.ConsumerGroup(config).__exit__(None, None, None)


def test_a_simulation_is_refused(kafka: Kafka) -> None:
    """It uses threads, so it cannot be simulated."""
    config = Harness(kafka).config()
    token = default_runtime_factory.set(default_runtime)
    try:
        with pytest.raises(UsageError, match=r"kgroup\.aio uses threads"):
            aio.ConsumerGroup(config)
    finally:
        default_runtime_factory.reset(token)


def test_a_background_thread_that_dies(kafka: Kafka) -> None:
    """The body is cancelled, handlers learn of it, and the block raises the reason."""
    here = Here(kafka)

    def crash() -> None:
        raise ZeroDivisionError("on purpose")

    async def main() -> None:
        with pytest.raises(trio.TrioInternalError):
            async with here.group() as group:
                generation = await group.next()
                assert group._loop._token is not None
                group._loop._token.run_sync_soon(crash)
                await generation.ending.wait()
                with pytest.raises(StaleGenerationError):
                    await generation.commit({here.harness.partition(0): 1})
                await forever()

    in_asyncio(main)


def test_a_background_thread_that_dies_and_an_exception_of_the_body(kafka: Kafka) -> None:
    """The block raises both: that of the body only follows from the other, and does not name it."""
    here = Here(kafka)

    def crash() -> None:
        raise ZeroDivisionError("on purpose")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as both:
            async with here.group() as group:
                generation = await group.next()
                assert group._loop._token is not None
                group._loop._token.run_sync_soon(crash)
                try:
                    await forever()
                finally:
                    await generation.commit({here.harness.partition(0): 1})
        crashed, stale = both.value.exceptions
        assert isinstance(crashed, trio.TrioInternalError)
        assert isinstance(stale, StaleGenerationError)

    in_asyncio(main)


def test_an_interrupt_in_a_handler(kafka: Kafka) -> None:
    """A KeyboardInterrupt of a handler ends asyncio's loop, and the member leaves."""
    here = Here(kafka)

    async def interrupted() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    async def main() -> None:
        async with here.group() as group:
            async for generation in group:
                generation.start_soon(interrupted)

    with pytest.raises(KeyboardInterrupt):
        in_asyncio(main)
    assert len(here.of(Left)) == 1


def test_an_interrupt_while_a_task_is_started(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation does not wait for the task, which never begins."""
    here = Here(kafka)
    call_sync = Bridge.call_sync

    def interrupted(bridge: Bridge, fn: Callable[[], object]) -> object:
        call_sync(bridge, fn)
        raise KeyboardInterrupt

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Bridge, "call_sync", interrupted)
                generation.start_soon(forever)
            end = await generation.wait_ended()
            assert end.cause is Cause.TASK_RETURNED

    in_asyncio(main)


def test_a_coroutine_that_is_closed_inside_the_block(kafka: Kafka) -> None:
    """It cannot wait: the member leaves without it, and the thread ends by itself."""
    here = Here(kafka)

    async def main() -> None:
        group = here.group()

        async def member() -> None:
            async with group:
                await asyncio.sleep(SOON)

        task = asyncio.create_task(member())
        await asyncio.sleep(0.01)
        coroutine: Any = task.get_coro()
        task.cancel()
        coroutine.close()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(group._loop.join)

    in_asyncio(main)


def test_a_transaction(kafka: Kafka) -> None:
    """Offsets are added to a producer's transaction without blocking the event loop."""
    here = Here(kafka)
    producer = Producer(
        {
            "bootstrap.servers": here.harness.bootstrap_servers,
            "transactional.id": here.harness.group_id,
        }
    )
    producer.init_transactions(SOON)
    mine = here.harness.partition(0)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            producer.begin_transaction()
            await generation.commit_in_transaction(producer, {mine: 2}, beyond_read=True)
            producer.commit_transaction(SOON)
            with pytest.raises(NotOwnedError):
                await generation.commit_in_transaction(producer, {here.harness.partition(1): 2})

    in_asyncio(main)
    assert here.harness.committed() == 2


def test_logins_are_looked_up_in_asyncio(kafka: Kafka) -> None:
    """Async functions of ``Security`` run in asyncio's loop; the group shows the given settings."""
    here = Here(kafka)
    found: list[int] = []

    async def look_up() -> kgroup.Credentials:
        await asyncio.sleep(0)
        found.append(threading.get_ident())
        return kgroup.Credentials("worker", "secret")

    security = kgroup.Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=look_up)

    async def main() -> None:
        # The broker has no logins, and says so.
        with pytest.raises(kgroup.AuthenticationError, match="has no login"):
            async with here.group(security=security) as group:
                assert group.config.security.credentials is look_up
                await group.next()

    in_asyncio(main)
    assert set(found) == {threading.get_ident()}


def test_health_lag_and_monitors(kafka: Kafka) -> None:
    """They are as in the trio group; a monitor is called in the background thread."""
    here = Here(kafka, records=10)
    threads: set[str] = set()

    def note(_: Event) -> None:
        threads.add(threading.current_thread().name)

    async def main() -> None:
        monitor = HealthMonitor()
        both = Monitors(monitor, note)
        group = aio.ConsumerGroup(here.harness.config(), on_event=both)
        assert group.status().phase is Phase.NOT_ENTERED
        async with group:
            generation = await group.next()
            assert await asyncio.to_thread(lambda: monitor.health().ready)
            await anext(generation.records(max_records=4))
            assert generation.lag() == {here.harness.partition(0): 6}
            await group.aclose(promptly=True)
        assert group.status().phase is Phase.CLOSED
        assert group.health().reasons

        async def cancelled() -> None:
            async with here.group() as inside:
                groups.append(inside)
                raise asyncio.CancelledError

        groups: list[aio.ConsumerGroup] = []
        with pytest.raises(asyncio.CancelledError):
            await cancelled()
        assert groups[0].status().phase is Phase.CLOSED

    in_asyncio(main)
    assert threads == {f"kgroup-{here.harness.group_id}"}


def test_a_broker_gets_the_class_of_the_body_s_exception_only(kafka: Kafka) -> None:
    """The reason of LeaveGroup, which brokers log, has no text of what the body raised."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            await group.next()
            raise RuntimeError("hunter2")

    with pytest.raises(RuntimeError, match="hunter2"):
        in_asyncio(main)
    assert [left.reason for left in here.of(Left)] == ["the block was left by RuntimeError"]
