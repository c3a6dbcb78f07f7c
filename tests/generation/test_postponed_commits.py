"""Commits of topics that the coordinator does not know: which others wait, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import UNKNOWN_FOR
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    KgroupError,
    OffsetBehindCommitError,
    StaleGenerationError,
)
from kgroup.events import Committed
from kgroup.notifier import Notifier
from kgroup.types import Cause, End
from tests.generation.fakes import P0, P1, P2, FakeGeneration, Reply, at

UNKNOWN: Final = {P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class Commits:
    """Commits that run at the same time, and how and when each ended."""

    def __init__(self, *replies: Reply) -> None:
        self.fake = FakeGeneration()
        self.fake.coordinator.replies = list(replies)
        self.began = trio.current_time()
        self.errors: dict[str, Exception] = {}
        self.ended: dict[str, float] = {}
        self._begun = 0
        self._one_ended = Notifier()
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The generation runs; the block ends when all commits have.

        They are called from outside of its tasks, which a loss would cancel.
        """
        async with trio.open_nursery() as self._nursery, self.fake.lifecycle.open():
            yield
            while len(self.ended) < self._begun:
                await self._one_ended.wait()

    async def begin(self, name: str, **offsets: int) -> None:
        """Call a commit, and let the clock run a little."""
        assert self._nursery is not None
        self._begun += 1
        self._nursery.start_soon(self._commit, name, offsets)
        await trio.sleep(0.01)

    async def _commit(self, name: str, offsets: dict[str, int]) -> None:
        try:
            await self.fake.commit(**offsets)
        except (KgroupError, RuntimeError) as error:
            self.errors[name] = error
        self.ended[name] = trio.current_time() - self.began
        self._one_ended.notify()


async def for_a_moment() -> None:
    """A response that takes so long that later commits wait for it."""
    await trio.sleep(0.1)


async def test_only_the_commits_of_an_unknown_topic_wait_for_it(autojump_clock: MockClock) -> None:
    """Other commits are answered at once, whether they share its request or come later."""
    commits = Commits(for_a_moment, *[UNKNOWN] * 100)
    async with commits.running():
        await commits.begin("first", p2=1)
        await commits.begin("unknown", p1=1)
        await commits.begin("shares its request", p0=1)
        await trio.sleep(1)
        await commits.begin("later", p0=2)
    assert commits.fake.coordinator.commits[1] == at(p0=1, p1=1)
    assert commits.ended["shares its request"] < 0.2
    assert commits.ended["later"] < 1.2
    assert commits.ended["unknown"] == pytest.approx(UNKNOWN_FOR, abs=0.2)
    assert commits.errors.keys() == {"unknown"}
    assert isinstance(commits.errors["unknown"], CommitFailedError)


async def test_each_partition_of_an_unknown_topic_waits_for_itself(
    autojump_clock: MockClock,
) -> None:
    """Their waits do not add up, however their commits follow each other."""
    unknown = {P0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **UNKNOWN}
    commits = Commits(*[unknown] * 100)
    async with commits.running():
        await commits.begin("one", p0=1)
        await trio.sleep(2)
        await commits.begin("two", p1=1)
        await commits.begin("another topic", p2=1)
    assert commits.ended["another topic"] < 2.1
    assert commits.ended["one"] == pytest.approx(UNKNOWN_FOR)
    assert commits.ended["two"] == pytest.approx(UNKNOWN_FOR + 2, abs=0.1)


async def test_a_topic_that_becomes_known_does_not_wait_for_another_one(
    autojump_clock: MockClock,
) -> None:
    """Neither does its commit, nor one behind that, though one request had all of them."""
    both = {P0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **UNKNOWN}
    commits = Commits(for_a_moment, both, *[UNKNOWN] * 100)
    async with commits.running():
        await commits.begin("first", p2=1)
        await commits.begin("known soon", p0=1)
        await commits.begin("unknown", p1=1)
        await trio.sleep(0.1)
        await commits.begin("behind it", p0=2)
    assert commits.ended["known soon"] < 1
    assert commits.ended["behind it"] < 1
    assert commits.ended["unknown"] == pytest.approx(UNKNOWN_FOR, abs=0.2)
    assert commits.errors.keys() == {"unknown"}
    assert [refused for refused, _, _ in commits.fake.refused] == [{P1: 1}]


async def test_a_topic_that_becomes_known(autojump_clock: MockClock) -> None:
    """The commit succeeds, without the offsets of it that were stored at once."""
    commits = Commits(*[UNKNOWN] * 3)
    async with commits.running():
        await commits.begin("unknown", p0=1, p1=1)
    assert commits.errors == {}
    assert commits.fake.coordinator.commits == [at(p0=1, p1=1), *[at(p1=1)] * 3]
    assert commits.fake.committed == [{P0: 1}, {P1: 1}]


async def test_commits_of_one_partition_stay_in_order(autojump_clock: MockClock) -> None:
    """One of a partition that waits for its topic waits too; so does one behind that."""
    commits = Commits(*[UNKNOWN] * 2)
    async with commits.running():
        await commits.begin("unknown", p1=1)
        await commits.begin("behind it", p0=5, p1=2)
        await commits.begin("behind that", p0=6, p2=1)
    assert commits.errors == {}
    assert commits.fake.coordinator.commits == [*[at(p1=1)] * 3, at(p0=6, p1=2, p2=1)]


async def test_a_commit_behind_a_postponed_one_may_be_cancelled(autojump_clock: MockClock) -> None:
    """Nothing of it is sent, and the ones behind it are."""
    commits = Commits(*[UNKNOWN] * 2)
    async with commits.running():
        await commits.begin("unknown", p1=1)
        with trio.move_on_after(0.01) as scope:
            await commits.fake.commit(p0=5, p1=2)
        assert scope.cancelled_caught
        await commits.begin("another", p0=6)
    assert commits.errors == {}
    assert at(p0=6) in commits.fake.coordinator.commits
    assert commits.fake.coordinator.commits[-1] == at(p1=1)


async def test_a_commit_behind_a_cancelled_one_does_not_wait_for_its_topic(
    autojump_clock: MockClock,
) -> None:
    """What was behind a commit that takes its offsets back is sent at once."""
    commits = Commits(*[UNKNOWN] * 100)
    async with commits.running(), trio.open_nursery() as nursery:
        await commits.begin("unknown", p1=1)
        await trio.sleep(2)
        nursery.start_soon(partial(commits.fake.commit, p0=1, p1=2))
        await trio.sleep(0.01)
        await commits.begin("behind", p0=2)
        nursery.cancel_scope.cancel()
    assert commits.ended["behind"] < 2.1


async def test_a_postponed_commit_may_end_while_one_behind_it_sends_others(
    autojump_clock: MockClock,
) -> None:
    """The one behind it is sent after those others, and waits for nothing more."""
    commits = Commits(UNKNOWN, partial(trio.sleep, 7), partial(trio.sleep, 5))
    with trio.fail_after(100):
        async with commits.running():
            await commits.begin("unknown", p1=1)
            await commits.begin("in flight", p2=1)
            await commits.begin("behind", p1=2)
            await commits.begin("in its turn", p0=1)
    assert commits.ended["unknown"] == pytest.approx(commits.fake.commit_timeout)
    assert commits.ended["behind"] == pytest.approx(7 + 5, abs=0.1)
    assert commits.errors.keys() == {"unknown"}


async def test_a_commit_that_was_answered_waits_for_no_later_request(
    autojump_clock: MockClock,
) -> None:
    """Its caller, whose turn would come after a postponed commit's, gets the outcome at once."""
    later = partial(trio.sleep, 5)
    commits = Commits(UNKNOWN, partial(trio.sleep, 1), for_a_moment, later)
    async with commits.running():
        await commits.begin("unknown", p1=1)
        await commits.begin("in flight", p2=1)
        await commits.begin("sends both", p0=1)
        await trio.sleep(0.5)
        await commits.begin("shares its request", p0=2)
    assert commits.fake.coordinator.commits[2:] == [at(p0=2), at(p1=1)]
    assert commits.ended["shares its request"] < 1.2
    assert commits.ended["unknown"] > 5


async def test_a_postponed_commit_gives_its_outcome_in_a_cancelled_scope(
    autojump_clock: MockClock,
) -> None:
    """It was sent, so its caller gets its outcome."""
    commits = Commits(*[UNKNOWN] * 2)
    async with commits.fake.lifecycle.open():
        with trio.move_on_after(0.05) as scope:
            await commits.fake.commit(p1=1)
        assert scope.cancel_called
        assert not scope.cancelled_caught
    assert commits.fake.committed == [{P1: 1}]


@pytest.mark.parametrize("cause", [Cause.MEMBERSHIP_LOST, Cause.REBALANCE])
async def test_an_end_does_not_wait_for_an_unknown_topic(
    autojump_clock: MockClock, cause: Cause
) -> None:
    """After a loss the commits of it are refused at once, and in a drain soon."""
    commits = Commits(*[UNKNOWN] * 100)
    async with commits.running():
        await commits.begin("unknown", p1=1)
        await commits.begin("behind it", p1=2)
        await trio.sleep(1)
        commits.fake.lifecycle.end(End(cause))
    wanted = StaleGenerationError if cause is Cause.MEMBERSHIP_LOST else CommitFailedError
    assert [type(error) for error in commits.errors.values()] == [wanted] * 2
    assert max(commits.ended.values()) < 1.1 + (0 if cause is Cause.MEMBERSHIP_LOST else 1.0)


@pytest.mark.parametrize("fenced", [False, True])
async def test_a_loss_after_a_part_was_committed(autojump_clock: MockClock, fenced: bool) -> None:
    """The error names that part; the error of a commit with no such part names nothing."""
    late: Reply = {P1: ErrorCode.ILLEGAL_GENERATION} if fenced else UNKNOWN
    commits = Commits(for_a_moment, UNKNOWN, *[late] * 100)
    async with commits.running():
        await commits.begin("first", p2=1)
        await commits.begin("in part", p0=1, p1=1)
        await commits.begin("not at all", p1=2)
        await trio.sleep(1)
        commits.fake.lifecycle.end(End(Cause.MEMBERSHIP_LOST))
    assert commits.fake.committed == [{P2: 1}, {P0: 1}]
    errors = {name: str(error) for name, error in commits.errors.items()}
    assert "nothing but t-0 was committed" in errors["in part"]
    assert "nothing was committed" in errors["not at all"]
    assert all(isinstance(error, StaleGenerationError) for error in commits.errors.values())


async def test_a_postponed_commit_keeps_its_deadline(autojump_clock: MockClock) -> None:
    """With the attempts before and after its wait, it lasts for commit_timeout and no longer."""
    commits = Commits(*[UNKNOWN] * 2, trio.sleep_forever)
    timeout = commits.fake.commit_timeout

    async def open_slowly() -> None:
        await trio.sleep(timeout - 1)

    commits.fake.coordinator.openings = [open_slowly]
    async with commits.running():
        await commits.begin("unknown", p1=1)
    assert isinstance(commits.errors["unknown"], CommitUnknownError)
    assert commits.ended["unknown"] == pytest.approx(timeout)


async def test_a_commit_that_begins_in_a_drain_is_not_postponed(autojump_clock: MockClock) -> None:
    """A drain is short, and what kgroup started may be cancelled at its end."""
    commits = Commits(*[UNKNOWN] * 100)
    async with commits.running():
        commits.fake.lifecycle.end(End(Cause.REBALANCE))
        await commits.begin("unknown", p1=1)
        await commits.begin("another", p0=1)
    assert commits.ended["unknown"] == pytest.approx(0.5)
    assert commits.errors.keys() == {"unknown"}


async def test_past_the_lease_a_postponed_commit_is_not_sent(autojump_clock: MockClock) -> None:
    """It waits for a heartbeat to confirm the membership, as any commit."""
    commits = Commits(*[UNKNOWN] * 100)
    lease = commits.fake.lease
    async with commits.running():
        await trio.sleep(lease.left - 1)
        await commits.begin("unknown", p1=1)
        await trio.sleep(1)
        assert lease.left <= 0
        sent = len(commits.fake.coordinator.commits)
        await trio.sleep(3)
        assert len(commits.fake.coordinator.commits) == sent
        lease.confirm(trio.current_time())
    assert len(commits.fake.coordinator.commits) > sent


async def test_an_event_handler_that_raises_acknowledges_no_postponed_commit(
    autojump_clock: MockClock,
) -> None:
    """The caller gets the exception, and later commits of the partition are sent."""
    commits = Commits(*[UNKNOWN] * 2)
    emit = commits.fake.emitter.emit

    def explode(kind: object, **fields: object) -> None:
        if kind is Committed and fields["offsets"] == {P1: 1}:
            raise RuntimeError("an event handler")
        emit(kind, **fields)  # type: ignore[arg-type]

    commits.fake.emitter.emit = explode  # type: ignore[method-assign]
    async with commits.running():
        await commits.begin("unknown", p1=1)
        await commits.begin("behind it", p1=2)
    assert commits.errors.keys() == {"unknown"}
    assert isinstance(commits.errors["unknown"], RuntimeError)
    assert commits.fake.committed == [{P1: 2}]


async def test_a_refused_commit_does_not_wait_for_an_unknown_topic(
    autojump_clock: MockClock,
) -> None:
    """A commit that is refused before it is sent ends at once, though it names the topic."""
    commits = Commits(for_a_moment, *[UNKNOWN] * 100)
    async with commits.running():
        await commits.begin("first", p2=1)
        await commits.begin("unknown", p1=2)
        await commits.begin("behind", p1=1)
    assert isinstance(commits.errors["behind"], OffsetBehindCommitError)
    assert commits.ended["behind"] < 0.2
    assert commits.ended["unknown"] == pytest.approx(UNKNOWN_FOR, abs=0.2)
