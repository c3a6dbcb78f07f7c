"""Commits of many tasks at random, while topics come and go and answers are lost, until an end.

What each call returns or raises agrees with what the coordinator has applied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any, final

import pytest
import trio

from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    ConnectionLostError,
    KgroupError,
    RequestTimeoutError,
    StaleGenerationError,
)
from kgroup.generation.states import State
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.types import Cause, End, TopicPartition
from tests.generation.fakes import P0, P1, P2, FakeGeneration

RUNS = 60
WAITS = ((0.0, 0.05, 0.3), (0.0, 1.0, 2.9))
"""Seconds that quick and slow coordinators take."""
ENDS = (Cause.REBALANCE, Cause.CLOSED, Cause.MEMBERSHIP_LOST)
Commit = tuple[TopicPartition, int]


@final
class Play:
    """One run: its calls with their outcomes, and what the coordinator was sent and applied."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fake = FakeGeneration(
            commit_timeout=random.choice([3.0, 8.0]),
            session_timeout=3600.0,
            settings={"drain_timeout": 2.0},
        )
        self.fake.coordinator.commit = self._answer  # type: ignore[assignment, method-assign]
        self.calls: list[tuple[Mapping[TopicPartition, int], Any]] = []
        self.sent: dict[Commit, float] = {}
        self.applied: set[Commit] = set()
        self._unknown: set[TopicPartition] = set()
        self._waits = random.choice(WAITS)
        self._sending = False
        self._begun = 0

    async def run(self) -> None:
        """Commit at random until the generation has ended, and wait for all calls."""
        lifecycle, end = self.fake.lifecycle, End(self.random.choice(ENDS))
        with trio.fail_after(100):
            async with trio.open_nursery() as calls, lifecycle.open():
                for _ in range(self.random.randint(20, 80)):
                    await trio.sleep(self.random.choice([0.01, 0.05, 0.3, 0.5]))
                    if self.random.random() < 0.1:
                        self._unknown = set(self.random.sample([P1, P2], self.random.randint(0, 2)))
                    calls.start_soon(self._call)
                lifecycle.end(end)
                if lifecycle.state is State.DRAINING:
                    await lifecycle.drain(self.fake.committer.check_late_commits)

    async def _call(self) -> None:
        self._begun += 1
        names = self.random.sample([P0, P1, P2], self.random.choice([1, 1, 2, 3]))
        offsets, outcome = dict.fromkeys(names, self._begun), None
        with trio.CancelScope() as scope:
            if self.random.random() < 0.2:
                scope.deadline = trio.current_time() + self.random.choice([0.01, 0.5, 4.0])
            try:
                await self.fake.committer.commit(self.fake.positions.check(offsets))
            except KgroupError as error:
                outcome = error
        self.calls.append((offsets, "cancelled" if scope.cancelled_caught else outcome))
        sent = [self.sent[one] for one in offsets.items() if one in self.sent]
        assert trio.current_time() - min(sent, default=math.inf) <= self.fake.commit_timeout + 0.01

    async def _answer(self, _: object, offsets: Any, on_sent: Any, on_lost: object) -> Any:
        del on_lost
        assert not self._sending  # one request at a time
        self._sending = True
        try:
            await trio.sleep(self.random.choice(self._waits))
            await trio.lowlevel.checkpoint_if_cancelled()
            assert self.fake.lifecycle.state is not State.ENDED
            on_sent()
            return await self._respond({name: at.offset for name, at in offsets.items()})
        finally:
            self._sending = False

    async def _respond(self, offsets: Mapping[TopicPartition, int]) -> Any:
        for one in offsets.items():
            self.sent.setdefault(one, trio.current_time())
        fault = self.random.random()
        codes = {name: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in self._unknown}
        if fault > 0.1:
            self.applied |= {one for one in offsets.items() if one[0] not in codes}
        await trio.sleep(self.random.choice(self._waits))
        if fault < 0.2:
            raise ConnectionLostError("made up", sent=True)
        if fault < 0.25:
            await trio.sleep(10)
            raise RequestTimeoutError("made up", sent=True)
        return {name: codes.get(name, 0) for name in offsets}

    def check(self) -> None:
        """Compare the outcomes with what was sent and applied."""
        assert len(self.calls) == self._begun
        for offsets, outcome in self.calls:
            applied = [name for name in offsets if (name, offsets[name]) in self.applied]
            if outcome is None:
                assert all(self._is_covered(one) for one in offsets.items())
            elif isinstance(outcome, CommitFailedError):
                assert not outcome.partitions.keys() & set(applied)
            elif isinstance(outcome, StaleGenerationError):
                named = str(outcome).partition(" was committed")[0]
                assert all(str(name) in named for name in applied)
            elif not isinstance(outcome, CommitUnknownError):  # cancelled, or behind another one
                assert not self.sent.keys() & offsets.items()

    def _is_covered(self, commit: Commit) -> bool:
        name, offset = commit
        return any(it == name and applied >= offset for it, applied in self.applied)


@pytest.mark.parametrize("seed", range(RUNS))
def test_commits_at_random(seed: int) -> None:
    """Each outcome is true, comes within commit_timeout of the sending, and nothing hangs."""

    async def scenario() -> None:
        play = Play(Random(seed))
        await play.run()
        play.check()

    run_virtual(seed, scenario)
