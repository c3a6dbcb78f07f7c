"""Batches whose records are handed out one by one: only within the lease, in any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, final, overload

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import LeaseExpiredError, StaleGenerationError
from kgroup.generation.leased_batches import LeasedBatches
from kgroup.generation.states import State
from kgroup.interfaces import Batch, Message
from kgroup.types import Cause, End
from tests.generation.fakes import P0, P1, FakeGeneration
from tests.generation.test_generation import Made

LOSS = End(Cause.MEMBERSHIP_LOST, "forgotten")
PLANNED = End(Cause.REBALANCE)


def messages(count: int) -> list[Any]:
    """This many messages, with offsets from 0 on."""
    return [SimpleNamespace(offset=lambda number=number: number) for number in range(count)]


def a_batch(of: Sequence[Any]) -> Batch:
    """A batch of t-0, as a source makes it."""
    return Batch(partition=P0, messages=of, next_offset=len(of), epoch=3)


def leased(fake: FakeGeneration, of: Sequence[Any]) -> Batch:
    """A batch of t-0, as a stream returns it."""
    assert fake.lease.left > 0  # read in the event loop, as a stream does before it returns one
    return LeasedBatches(fake.lifecycle, fake.member.clock).bind(a_batch(of), seeks=0)


def take(rest: Iterator[Message], count: int) -> list[int]:
    """The offsets of the next records."""
    return [next(rest).offset() for _ in range(count)]


async def test_within_the_lease_it_is_the_source_s_batch(autojump_clock: MockClock) -> None:
    """Every iteration hands out all messages in their order; len, truth and equality stay."""
    made = messages(3)
    batch = leased(FakeGeneration(), made)
    assert list(batch) == made
    assert list(batch) == made
    assert batch == a_batch(tuple(made))
    assert repr(batch) == repr(a_batch(made))
    assert batch.messages == tuple(made)
    assert len(batch) == 3
    assert batch


async def test_past_the_lease_nothing_more_is_handed_out(autojump_clock: MockClock) -> None:
    """Each further record raises an error with all details; `messages` can still be read."""
    fake = FakeGeneration()
    batch = leased(fake, messages(5))
    rest = iter(batch)
    assert take(rest, 3) == [0, 1, 2]
    await trio.sleep(30)
    with pytest.raises(LeaseExpiredError) as caught:
        next(rest)
    assert str(caught.value) == (
        "member 'm-1' of group 'g' in generation 7: the lease has ended, so that 2 of the 5"
        " messages of a batch of t-0 were not handed out: another member may own the partition by"
        " now. The generation ends; its next owner reads the records after the last commit again."
        " Continue with the next generation"
    )
    with pytest.raises(StaleGenerationError, match="2 of the 5 messages"):
        next(rest)
    with pytest.raises(StaleGenerationError, match="5 of the 5 messages"):
        list(batch)
    assert len(batch.messages) == 5


async def test_a_refused_record_ends_the_generation(autojump_clock: MockClock) -> None:
    """Without that, no member would read its partitions; a late heartbeat changes nothing."""
    fake = FakeGeneration()
    rest = iter(leased(fake, messages(5)))
    await trio.sleep(31)
    with pytest.raises(LeaseExpiredError) as caught:
        next(rest)
    end = fake.lifecycle.recorded_end
    assert end is not None
    assert caught.value.end is end
    assert end.cause is Cause.COORDINATOR_LOST
    assert end.detail == "the lease ended while the program processed a batch of t-0"
    assert fake.lifecycle.state is State.ENDED
    fake.lease.confirm(trio.current_time())
    with pytest.raises(StaleGenerationError, match="the generation has ended"):
        next(rest)


async def test_an_extended_lease_lets_the_iteration_continue(autojump_clock: MockClock) -> None:
    """A batch may be held for many sessions while heartbeats are answered."""
    fake = FakeGeneration()
    rest = iter(leased(fake, messages(9)))
    for number in range(9):
        assert take(rest, 1) == [number]
        await trio.sleep(29)
        fake.lease.confirm(trio.current_time())


async def test_a_lost_generation_hands_out_nothing(autojump_clock: MockClock) -> None:
    """Even if the lease had time left, the next record raises, with the generation's end."""
    fake = FakeGeneration()
    rest = iter(leased(fake, messages(5)))
    assert take(rest, 1) == [0]
    fake.lifecycle.end(LOSS)
    with pytest.raises(StaleGenerationError) as caught:
        next(rest)
    assert type(caught.value) is StaleGenerationError
    assert caught.value.end is LOSS
    assert str(caught.value) == (
        "member 'm-1' of group 'g' in generation 7: the generation has ended (membership lost:"
        " forgotten), so that 4 of the 5 messages of a batch of t-0 were not handed out. The next"
        " owner of the partition reads the records after the last commit again; continue with the"
        " next generation"
    )


async def test_a_drain_does_not_stop_the_iteration(autojump_clock: MockClock) -> None:
    """A batch may be finished until the drain is over; then the next record raises."""
    fake = FakeGeneration()
    batch = leased(fake, messages(5))
    rest = iter(batch)
    async with fake.lifecycle.open():
        fake.lifecycle.end(PLANNED)
        assert take(rest, 2) == [0, 1]
        assert len(list(batch)) == 5
    with pytest.raises(StaleGenerationError, match="3 of the 5 messages") as caught:
        next(rest)
    assert caught.value.end is PLANNED


async def test_past_the_lease_a_drain_becomes_a_loss(autojump_clock: MockClock) -> None:
    """What was not handed out cannot be committed either, so the drain has nothing to wait for."""
    fake = FakeGeneration()
    rest = iter(leased(fake, messages(5)))
    fake.lifecycle.end(PLANNED)
    await trio.sleep(31)
    with pytest.raises(LeaseExpiredError):
        next(rest)
    end = fake.lifecycle.final_end
    assert end is not None
    assert end.cause is Cause.COORDINATOR_LOST


async def test_after_the_last_record_the_lease_does_not_matter(autojump_clock: MockClock) -> None:
    """The iteration ends, because nothing is withheld; the commit that follows waits or fails."""
    fake = FakeGeneration()
    rest = iter(leased(fake, messages(2)))
    assert take(rest, 2) == [0, 1]
    await trio.sleep(31)
    assert list(rest) == []
    assert fake.lifecycle.state is State.RUNNING


@final
class Lazy(Sequence[Any]):
    """A sequence that is no list, from a program's own source."""

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        """See ``Sequence``."""
        return messages(4)[index]

    def __len__(self) -> int:
        """See ``Sequence``."""
        return 4


async def test_messages_may_be_any_sequence(autojump_clock: MockClock) -> None:
    """If a source's messages are no list, the error still counts those that were left."""
    rest = iter(leased(FakeGeneration(), Lazy()))
    assert take(rest, 1) == [0]
    await trio.sleep(31)
    with pytest.raises(LeaseExpiredError, match="3 of the 4 messages"):
        next(rest)


async def test_every_stream_gives_its_lease(autojump_clock: MockClock) -> None:
    """Batches have no lease in the source, and have one in every stream."""
    made = Made()
    made.generation.seek(P1, 0)
    for stream in (made.generation.records(P0), made.generation.records([P1])):
        batch = await anext(stream)
        assert [message.offset() for message in batch] == [batch.next_offset - 1]
        stream.close()
    batch = await anext(made.generation.records())
    made.life.end(LOSS)
    with pytest.raises(StaleGenerationError, match="1 of the 1 messages"):
        list(batch)


async def test_another_thread_is_stopped_too(autojump_clock: MockClock) -> None:
    """The thread gets the error, and the event loop ends the generation."""
    fake = FakeGeneration()
    rest = iter(leased(fake, messages(5)))
    assert await trio.to_thread.run_sync(take, rest, 2) == [0, 1]
    await trio.sleep(31)
    with pytest.raises(LeaseExpiredError, match="3 of the 5 messages"):
        await trio.to_thread.run_sync(next, rest)
    await fake.lifecycle.ending.wait()
    end = fake.lifecycle.final_end
    assert end is not None
    assert end.cause is Cause.COORDINATOR_LOST


async def test_threads_that_share_an_iteration_get_each_record_once() -> None:
    """A pool of threads can take the records of one iterator, and no record is given twice."""
    rest = iter(leased(FakeGeneration(), messages(2000)))

    def drain() -> list[int]:
        return [message.offset() for message in rest]

    def in_a_pool() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            taken = [pool.submit(drain) for _ in range(4)]
            return sorted(offset for one in taken for offset in one.result())

    assert await trio.to_thread.run_sync(in_a_pool) == list(range(2000))
