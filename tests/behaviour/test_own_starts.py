"""Where partitions start by the program's own store, on both brokers."""

from __future__ import annotations

import pytest
import trio

from kgroup.events import Assigned, Event, GenerationDraining, OffsetReset, OwnStartsDelayed
from kgroup.interfaces import Batch
from kgroup.threaded import ConsumerGroup as ThreadedGroup
from kgroup.types import TopicPartition
from kgroup.worker import serve
from tests.behaviour.harness import SOON, Harness, harness, in_thread, numbers
from tests.brokers import Kafka

Partitions = tuple[TopicPartition, ...]


class Store:
    """A store of offsets, and the partitions for which it was asked."""

    def __init__(self, here: Harness, **offsets: int) -> None:
        self.offsets = {here.partition(int(name[1:])): at for name, at in offsets.items()}
        self.asked: list[Partitions] = []

    def __call__(self, partitions: Partitions) -> dict[TopicPartition, int | None]:
        """What ``GroupConfig.starts`` calls."""
        self.asked.append(partitions)
        return {one: self.offsets.get(one) for one in partitions}


async def first_batches(here: Harness, count: int, store: Store) -> dict[int, Batch]:
    """The first batch of each partition, of the first generation of a new member."""
    found: dict[int, Batch] = {}
    with trio.fail_after(SOON):
        async with here.group(starts=store) as group:
            generation = await group.next()
            async for batch in generation.records():
                found.setdefault(batch.partition.partition, batch)
                if len(found) == count:
                    return found
    raise AssertionError(f"only {found}")


async def produced(here: Harness) -> None:
    """Three partitions of ten records; the group has committed 4 of the first and second."""
    await here.create(3)
    for number in range(3):
        await here.produce([str(at) for at in range(10)], number)
    async with here.group() as group:
        generation = await group.next()
        await generation.commit({here.partition(number): 4 for number in (0, 1)}, beyond_read=True)


async def test_the_store_comes_before_commits(kafka: Kafka) -> None:
    """What it has counts, be it behind or past a commit; without it the commit, then the policy."""
    async with harness(kafka) as here:
        await produced(here)
        store = Store(here, p0=2)
        found = await first_batches(here, 3, store)
        starts = {number: batch.start_offset for number, batch in found.items()}
        assert starts == {0: 2, 1: 4, 2: 0}
        assert {number: numbers(batch.messages)[0] for number, batch in found.items()} == starts
        assert store.asked == [tuple(here.partitions(3))]
        store.offsets = {here.partition(0): 7, here.partition(1): 0, here.partition(2): 10}
        found = await first_batches(here, 2, store)
        assert {number: batch.start_offset for number, batch in found.items()} == {0: 7, 1: 0}


async def test_commits_may_follow_the_store(kafka: Kafka) -> None:
    """A commit behind the group's own is no mistake where the store is behind, too."""
    async with harness(kafka) as here:
        await produced(here)
        with trio.fail_after(SOON):
            async with here.group(starts=Store(here, p0=1, p1=9)) as group:
                generation = await group.next()
                await generation.commit(dict(zip(here.partitions(2), (1, 9), strict=True)))
        assert await here.committed(3) == [1, 9, None]


@pytest.mark.parametrize("commit", [True, False])
async def test_each_generation_asks_again(kafka: Kafka, commit: bool) -> None:
    """A worker that keeps its offsets gets each record once, with commits and without."""
    async with harness(kafka) as here:
        await here.create(2)
        for number in range(2):
            await here.produce([str(at) for at in range(300)], number)
        store = Store(here)
        handled: dict[TopicPartition, list[int]] = {one: [] for one in here.partitions(2)}
        begun, rebalanced, finished = trio.Event(), trio.Event(), trio.Event()

        def note(event: Event) -> None:
            if isinstance(event, GenerationDraining):
                rebalanced.set()

        async def handle(_: object, batch: Batch) -> None:
            assert store.offsets.get(batch.partition, 0) == batch.start_offset
            handled[batch.partition] += numbers(batch.messages)
            store.offsets[batch.partition] = batch.next_offset
            if sum(map(len, handled.values())) == 600:
                finished.set()
            if begun.is_set():
                await rebalanced.wait()
            begun.set()

        async def run_one(name: str) -> None:
            async with here.group(on_event=note, starts=store, client_id=name) as group:
                await serve(group, handle, max_records=20, commit=commit)

        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_one, "a")
                await begun.wait()
                nursery.start_soon(run_one, "b")
                await finished.wait()
                nursery.cancel_scope.cancel()
        assert handled == {one: list(range(300)) for one in here.partitions(2)}
        assert sorted(map(len, store.asked)) == [1, 1, 2]
        assert (await here.committed(2) == [None, None]) is not commit


async def test_an_offset_that_is_not_in_the_log(kafka: Kafka) -> None:
    """It is reset as any other, and reported: the store has results of another log."""
    async with harness(kafka) as here:
        await produced(here)
        resets: list[OffsetReset] = []

        def note(event: Event) -> None:
            if isinstance(event, OffsetReset) and event.skipped:
                resets.append(event)

        with trio.fail_after(SOON):
            async with here.group(on_event=note, starts=Store(here, p0=99)) as group:
                generation = await group.next()
                batch = await anext(generation.records(here.partition(0)))
        assert (batch.start_offset, numbers(batch.messages)[0]) == (0, 0)
        assert [(event.partition, event.offset) for event in resets] == [(here.partition(0), 0)]


async def test_what_the_store_raises_ends_the_group(kafka: Kafka) -> None:
    """The program gets its own exception from the group, and the member has left."""
    problem = OSError("the store is away")

    def fail(_: Partitions) -> dict[TopicPartition, int]:
        raise problem

    async with harness(kafka) as here:
        await here.create(1)
        with trio.fail_after(SOON), pytest.raises(OSError, match="is away") as caught:
            async with here.group(starts=fail) as group:
                await group.next()
        assert caught.value is problem
        assert here.group_id in problem.__notes__[0]


async def test_a_slow_store_costs_no_membership(kafka: Kafka) -> None:
    """Heartbeats continue for longer than a session while it answers; it is reported meanwhile."""
    events: list[Event] = []
    delayed = trio.Event()

    def note(event: Event) -> None:
        events.append(event)
        if isinstance(event, OwnStartsDelayed):
            delayed.set()

    async def slow(partitions: Partitions) -> dict[TopicPartition, int]:
        await delayed.wait()  # longer than the session
        return dict.fromkeys(partitions, 3)

    async with harness(kafka) as here:
        await here.create(1)
        await here.produce([str(at) for at in range(10)])
        with trio.fail_after(SOON):
            async with here.group(
                on_event=note, starts=slow, session_timeout=6.0, heartbeat_interval=0.2
            ) as group:
                generation = await group.next()
                assert generation.start_offsets == {here.partition(0): 3}
                await generation.commit({here.partition(0): 3})
        (assigned,) = [event for event in events if isinstance(event, Assigned)]
        assert assigned.generation_id == generation.generation_id


async def test_a_rebalance_does_not_wait_for_the_store(kafka: Kafka) -> None:
    """A call that is under way when the generation ends is cancelled, and the next one asks."""
    calls: list[Partitions] = []

    async def load(partitions: Partitions) -> dict[TopicPartition, int]:
        calls.append(partitions)
        if len(partitions) == 2:
            await trio.sleep_forever()
        return {}

    async with harness(kafka) as here:
        await here.create(2)
        with trio.fail_after(SOON):
            async with here.group(starts=load) as group, trio.open_nursery() as nursery:

                async def join_too() -> None:
                    while not calls:  # noqa: ASYNC110 # no event
                        await trio.sleep(0.01)
                    async with here.group() as other:
                        await other.next()
                        await trio.sleep_forever()

                nursery.start_soon(join_too)
                generation = await group.next()
                assert len(generation.assignment) == 1
                nursery.cancel_scope.cancel()
        assert [len(asked) for asked in calls] == [2, 1]


async def test_a_threaded_group_asks_too(kafka: Kafka) -> None:
    """A plain function serves plain programs."""
    async with harness(kafka) as here:
        await produced(here)
        store = Store(here, p0=8, p1=9, p2=7)

        def read() -> dict[int, int]:
            found: dict[int, int] = {}
            with ThreadedGroup(here.config(starts=store)) as group:
                for generation in group:
                    for batch in generation.records():
                        found[batch.partition.partition] = batch.start_offset
                        if len(found) == 3:
                            return found
            raise AssertionError(f"only {found}")

        assert await in_thread(read) == {0: 8, 1: 9, 2: 7}
