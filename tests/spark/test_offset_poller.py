"""The offset poller: positions that are not in the log, and leaders that do not respond."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from itertools import count
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.cluster import EARLIEST
from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, OffsetOutOfRangeError
from kgroup.events import OffsetReset, RequestFailed
from kgroup.spark.batch_limits import Limits
from kgroup.spark.engine import Frame
from kgroup.spark.offset_poller import BEYOND_END_TIMEOUT, LOSS_CHECK_INTERVAL, MAX_PAUSE
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.types import TopicPartition
from tests.group.harness import Harness, harness
from tests.spark.fakes import FakeEngine, loop_of

P0, P1, P2 = (TopicPartition("topic", number) for number in range(3))


async def commit(here: Harness, offset: int) -> None:
    """Commit an offset."""
    async with here.group() as group:
        await (await group.next()).commit({P0: offset}, beyond_read=True)


async def test_retention_passes_a_position_while_it_is_read(autojump_clock: MockClock) -> None:
    """An event reports records deleted before they were planned; reading continues after them."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            engine = FakeEngine(lasts=30.0)
            loop = loop_of(await group.next(), engine, Limits(max_records=3))
            batch = await anext(loop)
            here.broker.cluster.topics.log("topic", 0).delete_before(8)
            await batch.run(len)
            batch = await anext(loop)
            assert [(part.start, part.end) for part in batch.ranges] == [(8, 10)]
            await batch.run(len)
            await batch.commit()
            assert await here.committed() == {P0: 10}
            (reset,) = [event for event in here.events_of(OffsetReset) if event.skipped]
            assert (reset.partition, reset.offset) == (P0, 8)


async def test_records_that_are_lost_while_they_wait_for_more(autojump_clock: MockClock) -> None:
    """The poller goes on at its usual pace, and the next record waits for as long as any."""
    async with harness() as here:
        await here.append(3)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(), max_wait=30.0, poll_interval=1.0)
            with trio.move_on_after(5):
                await anext(loop)
            here.broker.cluster.topics.log("topic", 0).delete_before(3)
            with trio.move_on_after(60):
                await anext(loop)
            since = here.now
            with trio.move_on_after(10):
                await anext(loop)
            assert len(here.requests_for("list_offsets", since=since)) <= 15
            await here.append(1)
            began = trio.current_time()
            assert (await anext(loop)).span == 1
            assert trio.current_time() - began >= 29


async def delete_records(here: Harness) -> None:
    """Retention deletes the records that the first batch had, and more."""
    await here.append(10)
    here.broker.cluster.topics.log("topic", 0).delete_before(55)


async def create_again(here: Harness) -> None:
    """The topic is deleted and created again, with fewer records."""
    await here.broker.delete_topic("topic")
    await here.broker.create_topic("topic", 1)
    await here.append(10)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("lose", "position", "end"), [(delete_records, 55, 60), (create_again, 0, 10)]
)
async def test_a_batch_from_before_a_reset_commits_where_reading_goes_on(
    autojump_clock: MockClock,
    lose: Callable[[Harness], Awaitable[None]],
    position: int,
    end: int,
    together: bool,
) -> None:
    """Its own end is an offset of the log that was lost; later batches commit theirs."""
    async with harness() as here:
        await here.append(50)
        async with here.group(watch_partition_changes=False) as group:
            loop = loop_of(await group.next(), FakeEngine(), Limits(max_records=50))
            first = await anext(loop)
            await first.run(len)
            await lose(here)
            await trio.sleep(LOSS_CHECK_INTERVAL)
            second = await anext(loop)
            assert [(part.start, part.end) for part in second.ranges] == [(position, end)]
            if not together:
                await first.commit()
                assert await here.committed() == {P0: position}
            await second.run(len)
            await second.commit()
            assert await here.committed() == {P0: end}


async def test_a_reset_that_passes_a_batch_in_flight(autojump_clock: MockClock) -> None:
    """A batch before one that is not processed is committed with that one, at the new position."""
    async with harness() as here:
        await here.append(30)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(), Limits(max_records=5), in_flight=2)
            first, second = await anext(loop), await anext(loop)
            await first.run(len)
            here.broker.cluster.topics.log("topic", 0).delete_before(20)
            await trio.sleep(LOSS_CHECK_INTERVAL)
            third = await anext(loop)
            assert [(part.start, part.end) for part in third.ranges] == [(20, 25)]
            await first.commit()
            assert await here.committed() == {}
            await second.run(len)
            await second.commit()
            assert await here.committed() == {P0: 20}
            await third.run(len)
            await third.commit()
            assert await here.committed() == {P0: 25}


@pytest.mark.parametrize("offset", [2, 20])
async def test_the_program_seeks(autojump_clock: MockClock, offset: int) -> None:
    """The next plan begins there, and the batch from before commits that offset."""
    async with harness() as here:
        await here.append(30)
        async with here.group() as group:
            generation = await group.next()
            loop = loop_of(generation, FakeEngine(), Limits(max_records=5))
            first = await anext(loop)
            await first.run(len)
            generation.seek(P0, offset)
            await first.commit()
            assert await here.committed() == {P0: offset}
            second = await anext(loop)
            assert [(part.start, part.end) for part in second.ranges] == [(offset, offset + 5)]
            await second.run(len)
            await second.commit()
            assert await here.committed() == {P0: offset + 5}


async def test_the_program_seeks_or_pauses_before_a_planned_batch_is_handed_out(
    autojump_clock: MockClock,
) -> None:
    """A plan whose batch a time-out has kept back follows them; the other partitions stay in it."""

    class SlowFrames:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        async def frame(self, ranges: Collection[OffsetRange]) -> Frame:
            await trio.sleep(5)
            return await engine.frame(ranges)

    engine = FakeEngine()
    async with harness(3) as here:
        for number in range(3):
            await here.append(5, number)
        async with here.group() as group:
            generation = await group.next()
            loop = loop_of(generation, cast("FakeEngine", SlowFrames()))
            for change in (partial(generation.seek, P0, 3), partial(generation.pause, P1)):
                with trio.move_on_after(2):
                    await anext(loop)
                change()
            batch = await anext(loop)
            assert {part.topic_partition: part.start for part in batch.ranges} == {P2: 0}
            await batch.run(len)
            await batch.commit()
            generation.resume(P1)
            batch = await anext(loop)
            assert {part.topic_partition: part.start for part in batch.ranges} == {P0: 3, P1: 0}
            await batch.run(len)
            await batch.commit()
        assert await here.committed() == {P0: 5, P1: 5, P2: 5}


async def test_the_program_pauses_a_partition(autojump_clock: MockClock) -> None:
    """No batch has it until the program resumes it."""
    async with harness(2) as here:
        await here.append(3, 0)
        await here.append(3, 1)
        async with here.group() as group:
            generation = await group.next()
            generation.pause(P0)
            loop = loop_of(generation, FakeEngine())
            batch = await anext(loop)
            assert batch.offsets == {P1: 3}
            await batch.run(len)
            with trio.move_on_after(60) as waiting:
                await anext(loop)
            assert waiting.cancelled_caught
            generation.resume(P0)
            assert (await anext(loop)).offsets == {P0: 3}


async def test_a_batch_that_is_committed_before_its_log_is_known_to_be_lost(
    autojump_clock: MockClock,
) -> None:
    """Its own end is committed only until the reset: the new log may grow past it."""
    async with harness() as here:
        await here.append(50)
        async with here.group(watch_partition_changes=False) as group:
            loop = loop_of(await group.next(), FakeEngine())
            first = await anext(loop)
            await first.run(len)
            await create_again(here)
            await first.commit()
            assert await here.committed() == {P0: 50}
            second = await anext(loop)
            assert [(part.start, part.end) for part in second.ranges] == [(0, 10)]
            assert await here.committed() == {P0: 0}


async def test_a_position_past_the_end(autojump_clock: MockClock) -> None:
    """After a while, the reset policy replaces a position past the end of the log."""
    async with harness() as here:
        await here.append(10)
        await commit(here, 50)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine())
            began = trio.current_time()
            batch = await anext(loop)
            assert BEYOND_END_TIMEOUT <= trio.current_time() - began <= BEYOND_END_TIMEOUT + 1
            assert [(part.start, part.end) for part in batch.ranges] == [(0, 10)]
            assert here.events_of(OffsetReset)[-1].skipped


async def test_an_end_that_was_behind_once_is_requested_again(autojump_clock: MockClock) -> None:
    """It says nothing of the log if the leader has not answered since."""
    async with harness() as here:
        await here.append(10)
        await commit(here, 12)
        async with here.group(watch_partition_changes=False) as group:
            loop = loop_of(await group.next(), FakeEngine())
            with trio.move_on_after(0.1):
                await anext(loop)
            away = here.broker.inject("list_offsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
            with trio.move_on_after(BEYOND_END_TIMEOUT - 1):
                await anext(loop)
            away.cancel()
            await here.append(2)  # a new leader did not know them as committed at first
            await trio.sleep(2)
            with trio.move_on_after(60):
                await anext(loop)
            assert not [event for event in here.events_of(OffsetReset) if event.skipped]


async def test_a_position_past_the_end_where_the_program_decides(
    autojump_clock: MockClock,
) -> None:
    """With ``auto_offset_reset`` as ``error`` the program gets the error."""
    async with harness() as here:
        await here.append(10)
        await commit(here, 50)
        async with here.group(auto_offset_reset="error") as group:
            loop = loop_of(await group.next(), FakeEngine())
            with pytest.raises(OffsetOutOfRangeError, match="offset 50 of topic-0 is not"):
                await anext(loop)


async def test_a_leader_that_does_not_answer(autojump_clock: MockClock) -> None:
    """It is polled less and less often; each failure is an event; later records are read."""
    async with harness() as here:
        await here.append(10)
        async with here.group(watch_partition_changes=False) as group:
            generation = await group.next()
            loop = loop_of(generation, FakeEngine())
            batch = await anext(loop)
            await batch.run(len)
            await batch.commit()
            await here.append(1)
            fault = here.broker.inject("list_offsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
            since = here.now
            with trio.move_on_after(60):
                await anext(loop)
            requests = here.requests_for("list_offsets", since=since)
            assert 60 / MAX_PAUSE <= len(requests) <= 60
            assert here.events_of(RequestFailed)
            fault.cancel()
            batch = await anext(loop)
            assert [(part.start, part.end) for part in batch.ranges] == [(10, 11)]


async def test_an_unauthorized_request_raises(autojump_clock: MockClock) -> None:
    """The program gets the error, also if it came while a batch ran."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(lasts=5.0))
            batch = await anext(loop)
            here.broker.inject("list_offsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
            await batch.run(len)
            await batch.commit()
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await anext(loop)


async def test_a_batch_before_the_gap_is_committed_after_it(
    autojump_clock: MockClock,
) -> None:
    """The log's new beginning is committed, because records before it were read or deleted."""
    async with harness(2) as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(lasts=30.0), Limits(max_records=3))
            batch = await anext(loop)
            await batch.run(len)
            here.broker.cluster.topics.log("topic", 0).delete_before(10)
            await here.append(1, 1)
            later = await anext(loop)
            assert later.offsets == {P1: 1}
            await batch.commit()
            assert await here.committed() == {P0: 10}


async def test_a_rate(autojump_clock: MockClock) -> None:
    """This many records a second are read, and no job runs in between."""
    async with harness() as here:
        await here.append(100)
        async with here.group() as group:
            engine = FakeEngine(lasts=0.1)
            loop = loop_of(await group.next(), engine, Limits(max_records_per_second=10))
            began = trio.current_time()
            rows = 0
            while rows < 50:
                batch = await anext(loop)
                rows += await batch.run(lambda ranges: sum(part.offsets for part in ranges))
                await batch.commit()
            assert trio.current_time() - began == pytest.approx(4.0, abs=1.5)


async def test_a_rate_is_not_waited_for_longer_than_it_has_to_be(autojump_clock: MockClock) -> None:
    """The first record was estimated at 1 MiB, which would be a quarter of an hour's worth."""
    async with harness() as here:
        await here.append(100)
        async with here.group() as group:
            limits = Limits(max_bytes_per_second=1000)
            loop = loop_of(await group.next(), FakeEngine(), limits, in_flight=2)
            began = trio.current_time()
            first = await anext(loop)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.run, len)
                await anext(loop)  # begins to wait before the size of a record is known
            assert trio.current_time() - began <= MAX_PAUSE


async def test_a_lookup_of_a_position_ends_with_the_generation(
    autojump_clock: MockClock,
) -> None:
    """A loop that waits for a leader's start offset ends when the end begins."""
    async with harness() as here:
        away = here.broker.inject("list_offsets", ErrorCode.LEADER_NOT_AVAILABLE, times=None)
        async with here.group(auto_offset_reset="latest", drain_timeout=20.0) as group:
            generation = await group.next()
            loop = loop_of(generation, FakeEngine())
            generation.start_soon(trio.sleep, 10)
            began = trio.current_time()
            assert [batch async for batch in loop] == []
            assert trio.current_time() - began == 10
            away.cancel()


def second_search_for_the_beginning() -> Callable[[Any], bool]:
    """Whether a request is the second for the first offsets: a reset's, after the loss check's."""
    seen = count(1)

    def matches(request: Any) -> bool:
        wanted = {part.timestamp for topic in request.topics for part in topic.partitions}
        return wanted == {EARLIEST} and next(seen) == 2

    return matches


@pytest.mark.parametrize("later", [0.0, 20.0])
async def test_a_call_that_is_given_up_during_a_reset(
    autojump_clock: MockClock, later: float
) -> None:
    """What the search finds later counts for the next plan, and for the commit of the batch."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            loop = loop_of(
                await group.next(), FakeEngine(lasts=30.0), Limits(max_records=3), in_flight=2
            )
            first = await anext(loop)
            here.broker.cluster.topics.log("topic", 0).delete_before(8)
            await first.run(len)
            here.broker.slow(5.0, "list_offsets", match=second_search_for_the_beginning())
            with trio.move_on_after(2) as scope:
                await anext(loop)
            assert scope.cancelled_caught
            await trio.sleep(later)
            second = await anext(loop)
            assert [(part.start, part.end) for part in second.ranges] == [(8, 10)]
            await first.commit()
            assert await here.committed() == {P0: 8}


async def test_a_refused_reset_is_made_again_before_anything_is_planned(
    autojump_clock: MockClock,
) -> None:
    """A program that goes on after the error gets no range that the log does not have."""
    async with harness(2) as here:
        for partition in range(2):
            await here.append(10, partition)
        async with here.group() as group:
            loop = loop_of(await group.next(), FakeEngine(lasts=30.0), Limits(max_records=6))
            first = await anext(loop)
            for partition in range(2):
                here.broker.cluster.topics.log("topic", partition).delete_before(8)
            await first.run(len)
            here.broker.inject(
                "list_offsets",
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                match=second_search_for_the_beginning(),
            )
            with pytest.raises(BrokerError):
                await anext(loop)
            assert {part.start for part in (await anext(loop)).ranges} == {8}
