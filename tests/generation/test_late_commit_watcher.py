"""Looking for commits that arrive late, and committing again what they have put back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import Request, broker_error
from kgroup.error_codes import ErrorCode
from kgroup.errors import CommitUnknownError, RequestTimeoutError
from kgroup.events import CommitsRestored
from kgroup.types import Cause, End
from tests.generation.fakes import P0, FakeGeneration, at

SILENCE = RequestTimeoutError("no response", sent=True)


@asynccontextmanager
async def one_unanswered() -> AsyncIterator[FakeGeneration]:
    """A running generation whose commit of 1 got no answer, and whose commit of 5 was stored."""
    fake = FakeGeneration(settings={"heartbeat_interval": 3.0})
    fake.coordinator.stores = True
    async with fake.lifecycle.open():
        fake.coordinator.replies = [SILENCE]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p0=1)
        await fake.commit(p0=5)
        yield fake
        fake.lifecycle.end(End(Cause.TASK_RETURNED))


def restored(fake: FakeGeneration) -> list[CommitsRestored]:
    """The events of it."""
    return [one for one in fake.emitter.events if isinstance(one, CommitsRestored)]


async def test_what_a_late_commit_put_back_is_committed_again(autojump_clock: MockClock) -> None:
    """It is found by a look soon after, and reported."""
    async with one_unanswered() as fake:
        await trio.sleep(20)
        assert len(fake.coordinator.commits) == 2
        fake.coordinator.stable = {P0: 1}
        await trio.sleep(10)
        assert fake.coordinator.commits[2:] == [at(p0=5)]
        (event,) = restored(fake)
        assert (event.offsets, event.found) == ({P0: 5}, {P0: 1})


async def test_looks_become_rare_and_end(autojump_clock: MockClock) -> None:
    """A commit that never arrives costs some tens of requests in all."""
    async with one_unanswered() as fake:
        await trio.sleep(60)
        assert len(fake.coordinator.fetched) == pytest.approx(12, abs=3)
        await trio.sleep(700)
        fetched = len(fake.coordinator.fetched)
        assert fetched < 40
        await trio.sleep(3600)
        assert len(fake.coordinator.fetched) == fetched
        # And again after the next one.
        fake.lease.confirm(trio.current_time())
        fake.coordinator.replies = [SILENCE]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p0=6)
        await fake.commit(p0=7)
        await trio.sleep(10)
        assert len(fake.coordinator.fetched) > fetched


async def test_without_a_later_commit_nothing_is_looked_up(autojump_clock: MockClock) -> None:
    """Whatever arrives then is not behind what was acknowledged."""
    fake = FakeGeneration()
    async with fake.lifecycle.open():
        fake.coordinator.replies = [SILENCE]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p0=1)
        await trio.sleep(60)
        fake.lifecycle.end(End(Cause.TASK_RETURNED))
    assert fake.coordinator.fetched == []


async def test_a_commit_while_it_looks_is_not_undone(autojump_clock: MockClock) -> None:
    """What a look has found is out of date if a commit was acknowledged meanwhile."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        fetch = fake.coordinator.fetch_offsets

        async def slow_fetch(*args: object) -> object:
            found = await fetch(*args)  # type: ignore[arg-type]
            await fake.commit(p0=8)
            return found

        fake.coordinator.fetch_offsets = slow_fetch  # type: ignore[assignment]
        await trio.sleep(3.5)
        fake.coordinator.fetch_offsets = fetch  # type: ignore[method-assign]
        await trio.sleep(60)
        assert fake.coordinator.commits[2:] == [at(p0=8)]


async def test_a_seek_back_since_is_not_undone(autojump_clock: MockClock) -> None:
    """The program may commit from where it has sought, after what was committed again."""
    async with one_unanswered() as fake:
        fake.positions.move(P0, 2)
        fake.coordinator.stable = {P0: 1}
        await trio.sleep(3.5)
        assert fake.coordinator.commits[2:] == [at(p0=5)]
        await fake.commit(p0=3)
        assert fake.coordinator.commits[3:] == [at(p0=3)]


async def test_a_look_that_fails_is_repeated(autojump_clock: MockClock) -> None:
    """The failure is reported, and ends nothing."""
    async with one_unanswered() as fake:
        fetch = fake.coordinator.fetch_offsets

        async def refused(*_: object) -> object:
            await trio.lowlevel.checkpoint()
            raise broker_error(Request.FETCH_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")

        fake.coordinator.fetch_offsets = refused  # type: ignore[assignment]
        await trio.sleep(10)
        assert fake.lifecycle.recorded_end is None
        assert Request.FETCH_OFFSETS in {request for request, _ in fake.reports}
        fake.coordinator.fetch_offsets = fetch  # type: ignore[method-assign]
        fake.coordinator.stable = {P0: 1}
        await trio.sleep(10)
        assert at(p0=5) in fake.coordinator.commits[2:]


async def test_what_is_refused_is_no_longer_reported_as_restored(
    autojump_clock: MockClock,
) -> None:
    """A refusal of the second commit is an event like that of any commit."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        fake.coordinator.replies = [{P0: ErrorCode.OFFSET_METADATA_TOO_LARGE}]
        await trio.sleep(3.5)
        assert [offsets for offsets, _, _ in fake.refused] == [{P0: 1}, {P0: 5}]
        assert restored(fake) == []


async def test_nothing_is_committed_past_the_lease(autojump_clock: MockClock) -> None:
    """Like any commit; once a heartbeat has confirmed the membership, it is."""
    async with one_unanswered() as fake:
        await trio.sleep(31)
        fake.coordinator.stable = {P0: 1}
        await trio.sleep(20)
        assert len(fake.coordinator.commits) == 2
        fake.lease.confirm(trio.current_time())
        await trio.sleep(20)
        assert fake.coordinator.commits[2:] == [at(p0=5)]
