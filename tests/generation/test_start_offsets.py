"""How a generation's partitions find where they start, before and after the hand-over."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    ConnectionLostError,
    NoOffsetError,
    OffsetOutOfRangeError,
    StaleGenerationError,
)
from kgroup.events import CommitRefused, Committed, Event, OffsetReset
from kgroup.types import Assignment, TopicPartition
from kgroup.types import AutoOffsetReset as Rule
from tests.generation.bench import P0, P1, P2, at
from tests.generation.test_lifecycle import LOSS
from tests.generation.test_position_lookup import Lookup
from tests.nodes import SILENCE

LATEST, EARLIEST, ERROR = Rule.LATEST, Rule.EARLIEST, Rule.ERROR


class Starting:
    """Starts of t-0 and t-1, of whose leader every partition n ends at 10 * n + 5."""

    def __init__(self, nursery: trio.Nursery, rule: Rule, *, commit_latest: bool = True) -> None:
        self.lookup = Lookup(nursery, rule, commit_initial_position=commit_latest)
        self.bench = self.lookup.bench
        self.starts = self.lookup.starts
        self.life = self.bench.lifecycle

    async def before(self) -> dict[TopicPartition, int]:
        """Up to the hand-over."""
        found = await self.starts.begin(Assignment((P0, P1)))
        await self.starts.commit_latest(found)
        self.bench.source.log.clear()
        return dict(self.bench.positions.start)

    async def locate(
        self, *partitions: TopicPartition, error: OffsetOutOfRangeError | None = None
    ) -> None:
        """After it."""
        await self.starts.locate(partitions, error)

    @property
    def events(self) -> list[Event]:
        """The events but for those of commits."""
        return [
            event
            for event in self.bench.emitter.events
            if not isinstance(event, Committed | CommitRefused)
        ]

    @property
    def seeks(self) -> list[tuple[TopicPartition, int]]:
        """Where the source had to seek after the hand-over."""
        return [entry[2:] for entry in self.bench.source.log if entry[0] == "seek"]

    def resets(self) -> list[tuple[TopicPartition, int, bool]]:
        """The resets that were reported."""
        return [
            (event.partition, event.offset, event.skipped)
            for event in self.events
            if isinstance(event, OffsetReset)
        ]


@pytest.mark.parametrize("rule", list(Rule))
async def test_what_is_committed_needs_no_rule(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule
) -> None:
    """Nothing is reported, committed or left to find."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 3, P1: 4}
    assert await it.before() == {P0: 3, P1: 4}
    await it.locate(P0, P1)
    assert (it.events, it.seeks, it.bench.coordinator.commits) == ([], [], [])


@pytest.mark.parametrize("commit_latest", [True, False])
async def test_the_end_of_the_log_is_committed_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock, *, commit_latest: bool
) -> None:
    """So that a restart before the first record skips nothing; unless a setting forbids it."""
    it = Starting(nursery, LATEST, commit_latest=commit_latest)
    assert await it.before() == {P0: 5, P1: 15}
    assert it.bench.coordinator.commits == ([at(p0=5, p1=15)] if commit_latest else [])
    assert it.resets() == [(P0, 5, False), (P1, 15, False)]


async def test_the_beginning_is_not_committed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A restart finds it again, and what comes before the first commit counts anyway."""
    it = Starting(nursery, EARLIEST)
    assert await it.before() == {P0: 0, P1: 10}
    assert it.bench.coordinator.commits == []


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionLostError("gone"),
        {P0: ErrorCode.OFFSET_METADATA_TOO_LARGE},
        {P0: ErrorCode.UNKNOWN_MEMBER_ID},
    ],
)
async def test_a_commit_of_the_end_that_fails_harms_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock, failure: Any
) -> None:
    """The committer reports it; the program's first commit makes up for it."""
    it = Starting(nursery, LATEST)
    it.bench.coordinator.replies = [failure] * 500
    assert await it.before() == {P0: 5, P1: 15}


async def test_a_leader_that_is_silent_is_found_when_it_is_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The hand-over waits a moment only; then the floor is set and the source is sent there."""
    it = Starting(nursery, LATEST)
    answers = it.lookup.node.answers["list_offsets"]
    it.lookup.node.answers["list_offsets"] = SILENCE
    began = trio.current_time()
    assert await it.before() == {}
    assert trio.current_time() - began == pytest.approx(2)
    it.lookup.node.answers["list_offsets"] = answers
    await it.locate(P0)
    await it.locate(P0)
    assert it.seeks == [(P0, 5)]
    assert it.bench.positions[P0] == 5
    assert it.bench.coordinator.commits == [at(p0=5)]
    await it.locate(P1, P2)
    assert it.seeks == [(P0, 5), (P1, 15)]
    assert it.resets() == [(P0, 5, False), (P1, 15, False)]


async def test_without_a_rule_it_fails_where_it_is_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The hand-over does not: partitions with an offset can be worked on."""
    it = Starting(nursery, ERROR)
    it.lookup.coordinator.stable = {P0: 3}
    assert await it.before() == {P0: 3}
    await it.locate(P0)
    for _ in range(2):
        with pytest.raises(NoOffsetError, match="t-1"):
            await it.locate(P1)
    assert it.seeks == []


@pytest.mark.parametrize(
    ("rule", "offset", "commits"), [(EARLIEST, 10, []), (LATEST, 15, [at(p1=15)])]
)
async def test_a_position_that_is_gone_is_reported_as_skipped(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    rule: Rule,
    offset: int,
    commits: list[Any],
) -> None:
    """The floor follows the rule, also back; records were skipped, which is a warning."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 3, P1: 999}
    await it.before()
    it.bench.positions.move(P1, 999)
    await it.locate(P1, error=OffsetOutOfRangeError("gone", P1, 999))
    assert it.seeks == [(P1, offset)]
    assert it.bench.positions[P1] == offset
    assert it.bench.coordinator.commits == commits
    assert it.resets() == [(P1, offset, True)]


@pytest.mark.parametrize("error", [None, OffsetOutOfRangeError("gone", P0, 999)])
async def test_the_end_ends_the_look_up_of_a_position(
    nursery: trio.Nursery, autojump_clock: MockClock, error: OffsetOutOfRangeError | None
) -> None:
    """The error names the end; no floor is moved, and no look-up begins after the end."""
    it = Starting(nursery, LATEST)
    it.lookup.node.answers["list_offsets"] = SILENCE
    await it.before()
    began = trio.current_time()

    async def end() -> None:
        await trio.sleep(3)
        it.life.end(LOSS)

    nursery.start_soon(end)
    for _ in range(2):
        with pytest.raises(StaleGenerationError, match="membership lost: forgotten") as caught:
            await it.locate(P0, error=error)
        assert caught.value.end == LOSS
        assert trio.current_time() == began + 3
    assert (it.events, it.seeks, it.bench.coordinator.commits) == ([], [], [])
    assert it.bench.positions.moves([P0]) == {P0: 0}
