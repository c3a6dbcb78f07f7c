"""Checks whether a commit has arrived late, and what is committed again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Action, Reaction, Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitUnknownError,
    ConnectionLostError,
    RequestTimeoutError,
    StaleGenerationError,
)
from kgroup.events import CommitsRestored
from kgroup.types import Cause, End
from tests.generation.fakes import P0, P1, FakeGeneration, at

PRODUCER: Any = object()
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


async def nothing(*_: object) -> None:
    """A call that succeeds at once."""
    await trio.lowlevel.checkpoint()


async def forever(*_: object) -> None:
    """A request that is never answered."""
    await trio.sleep_forever()


def restored(fake: FakeGeneration) -> list[CommitsRestored]:
    """The events of it."""
    return [one for one in fake.emitter.events if isinstance(one, CommitsRestored)]


async def test_what_a_late_commit_overwrote_is_committed_again(autojump_clock: MockClock) -> None:
    """A check soon after finds it, and it is reported."""
    async with one_unanswered() as fake:
        await trio.sleep(20)
        assert len(fake.coordinator.commits) == 2
        fake.coordinator.stable = {P0: 1}
        await trio.sleep(10)
        assert fake.coordinator.commits[2:] == [at(p0=5)]
        (event,) = restored(fake)
        assert (event.offsets, event.found) == ({P0: 5}, {P0: 1})


async def test_checks_become_rare_and_end(autojump_clock: MockClock) -> None:
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


async def test_without_a_later_commit_nothing_is_checked(autojump_clock: MockClock) -> None:
    """Whatever arrives then is not behind what was acknowledged."""
    fake = FakeGeneration()
    async with fake.lifecycle.open():
        fake.coordinator.replies = [SILENCE]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p0=1)
        await trio.sleep(60)
        fake.lifecycle.end(End(Cause.TASK_RETURNED))
    assert fake.coordinator.fetched == []


async def test_a_commit_during_a_check_is_not_undone(autojump_clock: MockClock) -> None:
    """What a check has fetched is out of date if a commit was acknowledged meanwhile."""
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


async def test_a_check_that_fails_is_repeated(autojump_clock: MockClock) -> None:
    """The failure is reported as one without which the generation continues."""
    async with one_unanswered() as fake:
        fetch = fake.coordinator.fetch_offsets

        async def refused(*_: object) -> object:
            await trio.lowlevel.checkpoint()
            raise broker_error(Request.FETCH_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")

        fake.coordinator.fetch_offsets = refused  # type: ignore[assignment]
        await trio.sleep(10)
        assert fake.lifecycle.recorded_end is None
        assert fake.reports[-1] == (Request.FETCH_OFFSETS, Reaction(Action.IGNORE))
        fake.coordinator.fetch_offsets = fetch  # type: ignore[method-assign]
        fake.coordinator.stable = {P0: 1}
        await trio.sleep(10)
        assert at(p0=5) in fake.coordinator.commits[2:]


async def test_the_last_check_survives_a_broken_connection(autojump_clock: MockClock) -> None:
    """It is the last one, so its request is sent again while there is time."""
    async with one_unanswered() as fake:
        fetch = fake.coordinator.fetch_offsets
        failures = [ConnectionLostError("reset", sent=True)] * 2

        async def broken(*args: Any) -> object:
            if failures:
                await trio.lowlevel.checkpoint()
                raise failures.pop()
            return await fetch(*args)

        fake.coordinator.fetch_offsets = broken  # type: ignore[assignment]
        fake.coordinator.stable = {P0: 1}
        fake.lifecycle.end(End(Cause.TASK_RETURNED))
        await fake.lifecycle.drain(fake.committer.check_late_commits)
        assert fake.coordinator.commits[2:] == [at(p0=5)]


async def test_a_refused_commit_is_not_reported_as_restored(
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


async def test_what_the_end_of_the_generation_has_begun_commits_nothing(
    autojump_clock: MockClock,
) -> None:
    """Once no commit may be sent, a check sends none either."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        fake.lifecycle.end(End(Cause.TASK_RETURNED))
        fake.lifecycle._finish()
        await fake.committer.check_late_commits()
        assert len(fake.coordinator.commits) == 2


async def test_another_unanswered_commit_is_checked_soon(autojump_clock: MockClock) -> None:
    """However rare the checks have become, the next one comes after a heartbeat interval."""
    async with one_unanswered() as fake:
        await trio.sleep(500)
        fake.lease.confirm(trio.current_time())
        fake.coordinator.replies = [SILENCE]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p0=6)
        await fake.commit(p0=7)
        fetched = len(fake.coordinator.fetched)
        await trio.sleep(3.5)
        assert len(fake.coordinator.fetched) == fetched + 1


async def test_many_unanswered_commits_put_no_check_off(autojump_clock: MockClock) -> None:
    """A proxy may break a connection every second, in the middle of a commit."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        began = trio.current_time()
        for number in range(10):
            fake.coordinator.replies = [SILENCE]
            with pytest.raises(CommitUnknownError):
                await fake.commit(p1=number + 1)
            await fake.commit(p1=number + 1)
            await trio.sleep(1)
        assert at(p0=5) in fake.coordinator.commits
        assert restored(fake)
        took = trio.current_time() - began
        assert len(fake.coordinator.fetched) == pytest.approx(took / 3, abs=1)


async def test_a_drain_puts_no_check_off_that_is_due(autojump_clock: MockClock) -> None:
    """It comes when it was due, and not a whole interval of the drain later."""
    async with one_unanswered() as fake:
        fetched = len(fake.coordinator.fetched)
        await trio.sleep(2.9)
        fake.lifecycle.start_work(trio.sleep_forever, ())
        fake.lifecycle.end(End(Cause.REBALANCE))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fake.lifecycle.drain, fake.committer.check_late_commits)
            await trio.sleep(0.2)
            assert len(fake.coordinator.fetched) == fetched + 1


async def test_nobody_waits_long_for_what_gets_no_answer(autojump_clock: MockClock) -> None:
    """The program's commits follow after a second, and the commit that was given up is noted."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        fake.coordinator.replies = [trio.sleep_forever]
        await trio.sleep(3.1)
        assert len(fake.coordinator.commits) == 3
        began = trio.current_time()
        await fake.commit(p0=9)
        assert trio.current_time() - began < 1.0
        assert set(fake.committer.late.pending[P0].outdated) == {(1, ""), (5, "")}


@pytest.mark.parametrize("cause", [Cause.TASK_RETURNED, Cause.MEMBERSHIP_LOST])
@pytest.mark.parametrize("hangs", ["fetch", "commit"])
async def test_the_end_does_not_wait_for_a_check(
    autojump_clock: MockClock, hangs: str, cause: Cause
) -> None:
    """A loss cancels the check that is under way; a drain makes one of its own, for a moment."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        if hangs == "commit":
            fake.coordinator.replies = [trio.sleep_forever, trio.sleep_forever]
        else:
            fake.coordinator.fetch_offsets = forever  # type: ignore[assignment]
        await trio.sleep(3.1)
        began = trio.current_time()
        fake.lifecycle.end(End(cause))
        if cause is Cause.TASK_RETURNED:
            await fake.lifecycle.drain(fake.committer.check_late_commits)
    assert trio.current_time() - began <= (2.0 if cause is Cause.TASK_RETURNED else 0.0)


async def test_a_drain_with_long_work_is_checked_meanwhile(autojump_clock: MockClock) -> None:
    """However rare the checks were: if the deadline cuts the work off, there is no last one."""
    async with one_unanswered() as fake:
        await trio.sleep(300)
        fake.lease.confirm(trio.current_time())
        fetched = len(fake.coordinator.fetched)
        fake.coordinator.stable = {P0: 1}
        fake.lifecycle.start_work(trio.sleep_forever, ())
        fake.lifecycle.end(End(Cause.REBALANCE))
        await fake.lifecycle.drain(fake.committer.check_late_commits)
        assert fake.lifecycle.cut_short
        assert fake.coordinator.commits[2:] == [at(p0=5)]
        assert len(fake.coordinator.fetched) - fetched == pytest.approx(8, abs=2)


async def test_the_partitions_that_were_restored_are_reported(autojump_clock: MockClock) -> None:
    """Also if another one of the same commit was refused."""
    async with one_unanswered() as fake:
        fake.coordinator.replies = [SILENCE]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p1=1)
        await fake.commit(p1=5)
        fake.coordinator.stable = {P0: 1, P1: 1}
        fake.coordinator.replies = [{P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}]
        await trio.sleep(3.5)
        (event,) = restored(fake)
        assert event.offsets == {P0: 5}


async def test_a_transaction_takes_over(autojump_clock: MockClock) -> None:
    """Nothing is committed again once a producer has been given offsets of the partition."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        fake.committer._hand_to = nothing  # type: ignore[assignment]
        await fake.committer.commit_in_transaction(PRODUCER, at(p0=9))
        await trio.sleep(20)
        assert len(fake.coordinator.commits) == 2


async def test_a_transaction_follows_a_commit_that_restores(autojump_clock: MockClock) -> None:
    """Otherwise that commit could arrive after those of the producer."""
    async with one_unanswered() as fake:
        fake.coordinator.stable = {P0: 1}
        calls: list[str] = []

        async def slow() -> None:
            await trio.sleep(0.5)
            calls.append("answered")

        async def hand_to(*_: object) -> None:
            await trio.lowlevel.checkpoint()
            calls.append("handed over")

        fake.coordinator.replies = [slow]
        fake.committer._hand_to = hand_to  # type: ignore[assignment]
        await trio.sleep(3.1)
        await fake.committer.commit_in_transaction(PRODUCER, at(p0=9))
        assert calls == ["answered", "handed over"]


async def test_a_transaction_that_waited_too_long(autojump_clock: MockClock) -> None:
    """The producer is given nothing if the generation ends while it waits."""
    handed_over: list[object] = []
    began = trio.Event()

    async def hand_to(*given: object) -> None:
        await trio.lowlevel.checkpoint()
        handed_over.append(given)

    async def commit() -> None:
        with suppress(CommitUnknownError):
            await fake.committer.commit(at(p1=1))

    async def slow() -> None:
        began.set()
        await trio.sleep(9)

    async with one_unanswered() as fake, trio.open_nursery() as nursery:
        fake.coordinator.replies = [slow]
        fake.committer._hand_to = hand_to  # type: ignore[assignment]
        nursery.start_soon(commit)
        await began.wait()
        fake.lifecycle.end(End(Cause.MEMBERSHIP_LOST))
        with pytest.raises(StaleGenerationError):
            await fake.committer.commit_in_transaction(PRODUCER, at(p0=9))
    assert handed_over == []
