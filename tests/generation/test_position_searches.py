"""Searches for positions: which share their requests, how long they wait, and how they end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from random import Random
from typing import Any, final

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import OffsetOutOfRangeError
from kgroup.generation.commits import Committer
from kgroup.generation.offset_requests import OffsetRequests
from kgroup.generation.position_searches import PositionSearch, PositionSearches
from kgroup.generation.start_finder import SearchResult, StartPosition
from kgroup.types import Assignment, AutoOffsetReset, TopicPartition
from tests.generation.fakes import FakeGeneration, at, find
from tests.generation.test_lifecycle import LOSS

MANY = [TopicPartition("t", number) for number in range(40)]
P0, P1, P2 = MANY[:3]
REFUSAL = broker_error(Request.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")


async def _hand_over(*_: object) -> None:
    """See ``Committer``; without a thread, which would be slower than the clock of a test."""
    await trio.lowlevel.checkpoint()


def gone(partition: TopicPartition) -> OffsetOutOfRangeError:
    """The error of a position that is not in the log."""
    return OffsetOutOfRangeError("gone", partition, 7)


@final
class Searching:
    """The searches of a generation of `MANY` beside starts that a test controls."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.fake = FakeGeneration(owned=MANY)
        self.life = self.fake.lifecycle
        self.life._nursery = nursery  # as in `Lifecycle.open`
        self.requests = OffsetRequests(self.fake.member, self.life.membership)
        self.next_generation()
        self.asked: list[tuple[float, list[TopicPartition]]] = []
        """When each search was made, and for which partitions."""
        self.away: set[TopicPartition] = set()
        self.silent: set[TopicPartition] = set()
        self.refused: dict[TopicPartition, Exception] = {}
        self.raised: Exception | None = None
        self.commit_raises: Exception | None = None
        self.over: list[tuple[TopicPartition, Exception | None]] = []
        self.commits: list[list[TopicPartition]] = []
        self.commit_takes = 0.0

    def begin(
        self, partition: TopicPartition, error: OffsetOutOfRangeError | None
    ) -> PositionSearch:
        """Begin a search, as a stream does."""
        return self.searches.begin(
            partition, error, lambda raised: self.over.append((partition, raised))
        )

    def reset(self, partitions: Collection[TopicPartition]) -> list[PositionSearch]:
        """Begin searches for positions that are not in the logs."""
        return [self.begin(name, gone(name)) for name in partitions]

    async def add_to_transaction(self, offset: int) -> None:
        """Commit P0 in a transaction, whose producer takes it at once."""
        producer: Any = None
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(Committer, "_hand_to", _hand_over)
            await self.fake.committer.commit_in_transaction(producer, at(p0=offset))

    def next_generation(self) -> None:
        """Go on with the searches of another generation of the same member."""
        starts: Any = self
        fake = self.fake
        self.searches = PositionSearches(
            fake.member, self.life, fake.positions, starts, fake.committer
        )

    @property
    def seeks(self) -> list[TopicPartition]:
        """The partitions that were moved."""
        return [entry[2] for entry in self.fake.source.log if entry[0] == "seek"]

    async def choose(self, wanted: Mapping[TopicPartition, Any]) -> Mapping[TopicPartition, Any]:
        """See ``StartFinder``."""
        await trio.lowlevel.checkpoint()
        if self.raised is not None:
            raise self.raised
        return wanted

    def is_lost(self, _: TopicPartition, __: int) -> bool:
        """See ``StartFinder``."""
        return False

    def by_leader(self, partitions: Collection[TopicPartition]) -> list[list[TopicPartition]]:
        """See ``StartFinder``."""
        others = sorted(name for name in partitions if name not in self.silent)
        silent = sorted(self.silent.intersection(partitions))
        return [names for names in (silent, others) if names]

    async def search(self, wanted: Mapping[TopicPartition, Any]) -> SearchResult:
        """See ``StartFinder``."""
        self.asked.append((trio.current_time(), sorted(wanted)))
        if self.silent.intersection(wanted):
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        start = StartPosition(3, AutoOffsetReset.EARLIEST, "it is the first")
        found = wanted.keys() - self.away - self.refused.keys()
        refused: Any = {name: self.refused[name] for name in self.refused.keys() & wanted.keys()}
        return SearchResult(dict.fromkeys(sorted(found), start), refused)

    def emit(self, _: object) -> None:
        """See ``StartFinder``."""

    async def commit_initial(self, starts: Mapping[TopicPartition, StartPosition]) -> None:
        """See ``StartFinder``."""
        self.commits.append(sorted(starts))
        await trio.sleep(self.commit_takes)
        if self.commit_raises is not None:
            raise self.commit_raises


async def test_partitions_that_are_reset_together_share_one_search(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Also if some milliseconds are between them, and in later rounds."""
    it = Searching(nursery)
    for name in MANY:
        it.reset([name])
        await trio.sleep(0.0002)
    await trio.sleep(1)
    assert [names for _, names in it.asked] == [MANY]
    assert sorted(it.over) == [(name, None) for name in MANY]
    assert it.commits == [MANY]
    it.reset(MANY)
    await trio.sleep(10)
    assert [names for _, names in it.asked] == [MANY] * 2


async def test_a_partition_that_gives_no_record_waits_longer_each_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The waits of all such partitions are the same, so that they go on sharing requests."""
    it = Searching(nursery)
    began = trio.current_time()
    while trio.current_time() < began + 600:
        it.reset([name for name in MANY if name not in it.searches._current])
        await trio.sleep(0.05)
    assert len(it.asked) < 150  # of 40 partitions in ten minutes
    assert all(names == MANY for _, names in it.asked)
    times = [at for at, _ in it.asked]
    assert times[0] - began < 0.1
    assert times[1] - times[0] < 0.3
    assert times[-1] - times[-2] > 3


async def test_after_a_record_a_reset_is_immediate_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A log whose beginning is deleted again and again costs no rising waits."""
    it = Searching(nursery)
    for _ in range(100):
        began = trio.current_time()
        it.reset([P0])
        await trio.sleep(0.1)
        assert it.asked[-1][0] - began < 0.05
        it.searches.arrived(P0)
        await trio.sleep(60)


async def test_records_between_errors_do_not_lift_the_limit(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A broker that alternates between both causes about a search a second, in every generation."""
    it, random = Searching(nursery), Random(1)
    began = trio.current_time()
    while trio.current_time() < began + 100:
        if trio.current_time() > began + 50:
            it.next_generation()
        if random.random() < 0.5:
            for name in MANY:
                it.searches.arrived(name)
        it.reset([name for name in MANY if name not in it.searches._current])
        await trio.sleep(0.03)
    assert 50 < len(it.asked) < 115


async def test_a_search_without_an_answer_is_repeated(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What was found is over at once; the rest is searched for until it is found."""
    it = Searching(nursery)
    it.away = {P1}
    it.reset([P0, P1])
    await trio.sleep(10)
    assert it.over == [(P0, None)]
    assert [names for _, names in it.asked[:3]] == [[P0, P1], [P1], [P1]]
    assert len(it.asked) < 10
    it.away.clear()
    await trio.sleep(10)
    assert it.over == [(P0, None), (P1, None)]


async def test_a_leader_that_is_silent_delays_no_later_search(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Nor what other leaders answer in the same round, nor a search of the other kind."""
    it = Searching(nursery)
    it.silent = {P0}
    it.reset([P0, MANY[3]])
    it.begin(P1, None)
    await trio.sleep(0.1)
    it.reset([P2])
    await trio.sleep(0.1)
    assert sorted(it.over) == [(P1, None), (P2, None), (MANY[3], None)]


async def test_a_refusal_concerns_its_partition_only(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The others of the search are found; the next search of the refused one is a first one."""
    it = Searching(nursery)
    it.refused = {P1: REFUSAL}
    it.reset([P0, P1, P2])
    await trio.sleep(1)
    assert it.over == [(P1, REFUSAL), (P0, None), (P2, None)]
    assert it.seeks == [P0, P2]
    before = trio.current_time()
    it.reset([P1])
    await trio.sleep(1)
    assert it.asked[-1][0] - before < 0.05


async def test_what_a_search_raises_is_the_result_of_all_its_partitions(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It does not end the generation; the streams raise it."""
    it = Searching(nursery)
    it.raised = ValueError("of the program's own store")
    it.begin(P0, None)
    it.begin(P1, None)
    await trio.sleep(1)
    assert it.over == [(P0, it.raised), (P1, it.raised)]
    assert it.life.recorded_end is None


async def test_a_commit_that_raises_concerns_only_what_was_found(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The streams of those partitions raise it; the others are searched for again."""
    it = Searching(nursery)
    it.commit_raises = REFUSAL
    it.away = {P1}
    it.reset([P0, P1])
    await trio.sleep(1)
    assert it.over == [(P0, REFUSAL)]
    it.away.clear()
    it.commit_raises = None
    await trio.sleep(10)
    assert it.over == [(P0, REFUSAL), (P1, None)]
    assert it.life.recorded_end is None


async def test_a_drain_waits_for_the_commit_of_what_was_found(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Under ``latest`` the next owner would otherwise begin further on."""
    it = Searching(nursery)
    it.commit_takes = 1.0
    it.reset([P0])
    await trio.sleep(0.5)
    assert it.commits == [[P0]]
    assert it.life._is_working
    await trio.sleep(1)
    assert not it.life._is_working


async def test_what_the_program_commits_meanwhile_stands(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A partition whose start is not known begins there, as the next member would."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    it.begin(P0, None)
    it.begin(P1, None)
    it.begin(P2, None)
    await it.fake.commit(p0=500, p2=0)
    await trio.sleep(1)
    assert sorted(entry[2:] for entry in it.fake.source.log) == [(P0, 500), (P1, 3), (P2, 0)]
    assert it.commits == [[P1]]
    assert sorted(it.over) == [(P0, None), (P1, None), (P2, None)]
    assert it.fake.coordinator.fetched == []


async def test_a_commit_that_is_on_its_way_stands(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What was found is not committed over it; other partitions do not wait for it."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    answered = trio.Event()
    it.fake.coordinator.replies = [answered.wait]
    nursery.start_soon(partial(it.fake.commit, p0=500))
    await trio.lowlevel.checkpoint()
    it.begin(P0, None)
    it.begin(P1, None)
    await trio.sleep(5)
    assert it.over == [(P1, None)]
    it.fake.coordinator.stable = {P0: 500}
    answered.set()
    await trio.sleep(5)
    assert [entry[2:] for entry in it.fake.source.log] == [(P1, 3), (P0, 500)]
    assert it.commits == [[P1]]
    assert it.over == [(P1, None), (P0, None)]


async def test_a_commit_that_is_called_while_the_coordinator_is_asked_stands(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the coordinator has answered may be older than that commit."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    fetch, stable = it.fake.coordinator.fetch_offsets, it.fake.coordinator.stable

    async def commit_meanwhile(*args: Any) -> Any:
        answer = await fetch(*args)
        if stable[P0] == 500:
            stable[P0] = 600
            await it.add_to_transaction(600)
        return answer

    monkeypatch.setattr(it.fake.coordinator, "fetch_offsets", commit_meanwhile)
    await it.add_to_transaction(500)
    stable[P0] = 500
    it.begin(P0, None)
    await trio.sleep(5)
    assert [entry[2:] for entry in it.fake.source.log] == [(P0, 600)]
    assert (it.commits, it.over) == ([], [(P0, None)])


async def test_a_commit_that_ends_while_the_coordinator_is_asked_stands(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer has a connection of its own, so that the answer may be older."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    handed_over = trio.Event()
    fetch, stable = it.fake.coordinator.fetch_offsets, it.fake.coordinator.stable

    async def commit_meanwhile(*args: Any) -> Any:
        answer = await fetch(*args)
        stable[P0] = 500
        handed_over.set()
        await trio.sleep(0.01)
        return answer

    async def hand_over(*_: object) -> None:
        await handed_over.wait()

    monkeypatch.setattr(it.fake.coordinator, "fetch_offsets", commit_meanwhile)
    monkeypatch.setattr(Committer, "_hand_to", hand_over)
    await it.add_to_transaction(0)  # which is decided, so that the coordinator is asked
    producer: Any = None
    nursery.start_soon(it.fake.committer.commit_in_transaction, producer, at(p0=500))
    it.begin(P0, None)
    it.begin(P1, None)
    await trio.sleep(1)
    assert it.over == [(P1, None)]
    handed_over.set()
    stable[P0] = 500
    await trio.sleep(5)
    assert [entry[2:] for entry in it.fake.source.log] == [(P1, 3), (P0, 500)]
    assert it.commits == [[P1]]


@pytest.mark.parametrize("how", ["seek", "withdrawn", "end"])
async def test_what_happens_while_the_coordinator_is_asked_ends_the_search(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its answer moves the partition only if that has the same search and the generation runs."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    await it.add_to_transaction(500)
    it.fake.coordinator.stable = {P0: 500}
    fetch = it.fake.coordinator.fetch_offsets

    async def meanwhile(*args: Any) -> Any:
        answer = await fetch(*args)
        if how == "seek":
            it.searches.sought(P0)
        elif how == "withdrawn":
            it.searches.withdraw([search])
        else:
            it.life._nursery = None  # the test's own, which is not to be cancelled
            it.life.end(LOSS)
        return answer

    monkeypatch.setattr(it.fake.coordinator, "fetch_offsets", meanwhile)
    search = it.begin(P0, None)
    await trio.sleep(5)
    assert it.seeks == []
    assert it.over == ([(P0, None)] if how == "seek" else [])


async def test_a_drain_waits_for_the_commit_of_an_undecided_start(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """As for every start that is found after the hand-over."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    await it.add_to_transaction(500)  # which is aborted
    it.commit_takes = 1.0
    it.begin(P0, None)
    await trio.sleep(0.5)
    assert it.commits == [[P0]]
    assert it.life._is_working


async def test_a_reset_asks_for_no_commit(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """What was committed before the start was known says nothing of an offset that is gone."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    await it.add_to_transaction(500)
    it.fake.positions.move(P0, 500)
    it.fake.coordinator.stable = {P0: 500}
    it.reset([P0])
    await trio.sleep(5)
    assert [entry[2:] for entry in it.fake.source.log] == [(P0, 3)]
    assert it.fake.coordinator.fetched == []


@pytest.mark.parametrize(("stable", "start"), [({P0: 500}, 500), ({}, 3)])
async def test_the_outcome_of_a_transaction_decides(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    stable: dict[TopicPartition, int],
    start: int,
) -> None:
    """It says only later whether the offset was committed; the coordinator waits for that."""
    it = Searching(nursery)
    it.fake.positions.begin(Assignment(MANY), {})
    await it.add_to_transaction(500)
    it.fake.coordinator.stable = stable
    it.begin(P0, None)
    await trio.sleep(5)
    assert [entry[2:] for entry in it.fake.source.log] == [(P0, start)]
    assert it.commits == ([] if stable else [[P0]])
    assert it.over == [(P0, None)]


async def test_after_the_end_nothing_is_moved(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Not even if the leaders answer in the moment in which the end begins."""
    it = Searching(nursery)
    search = it.search

    async def end_first(wanted: Mapping[TopicPartition, Any]) -> SearchResult:
        result = await search(wanted)
        it.life._nursery = None  # the test's own, which is not to be cancelled
        it.life.end(LOSS)
        return result

    it.search = end_first  # type: ignore[method-assign]
    it.reset([P0])
    await trio.sleep(1)
    assert (it.seeks, it.over) == ([], [])


async def test_generations_that_end_before_they_search_use_no_limit(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Only what is sent counts."""
    it = Searching(nursery)
    for _ in range(100):
        it.next_generation()
        it.searches.withdraw(it.reset([P0]))
        await trio.sleep(0.5)
    it.reset([P0])
    await trio.sleep(0.1)
    assert it.over == [(P0, None)]


@pytest.mark.parametrize("after", [0.0, 0.5])
async def test_a_seek_ends_a_search(
    nursery: trio.Nursery, autojump_clock: MockClock, after: float
) -> None:
    """Before its round and during it; what is found moves nothing any more."""
    it = Searching(nursery)
    it.commit_takes = 1.0
    it.reset([P0, P1])
    await trio.sleep(after)
    it.searches.sought(P0)
    assert it.over == [(P0, None)]
    await trio.sleep(10)
    assert it.over == [(P0, None), (P1, None)]
    assert it.seeks == ([P0, P1] if after else [P1])


async def test_a_withdrawn_search_has_no_result(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Another search for the same partition may have begun by then."""
    it = Searching(nursery)
    it.searches.withdraw(it.reset([P0]))
    await trio.sleep(1)
    assert (it.over, it.asked) == ([], [])
    it.silent = {P0}
    silent = it.reset([P0])
    await trio.sleep(1)
    it.searches.withdraw(silent)
    it.silent.clear()
    it.reset([P0])
    it.searches.withdraw(silent)
    await trio.sleep(1)
    assert it.over == [(P0, None)]


async def test_a_seek_in_the_handler_of_the_event(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The position that was found is not committed then, so that the program may go back."""
    it = Searching(nursery)

    def seek(_: object) -> None:
        it.fake.positions.seek(P0, 0)
        it.searches.sought(P0)

    it.emit = seek  # type: ignore[method-assign]
    it.reset([P0, P1])
    await trio.sleep(1)
    assert it.commits == [[P1]]
    await it.fake.commit(p0=1)


async def test_streams_of_one_partition_each_share_searches(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """So a program with a task a partition costs as many requests as one with a single stream."""
    it = Searching(nursery)
    async with trio.open_nursery() as inner:
        for name in MANY:
            inner.start_soon(find, it.searches, {name: gone(name)})
    assert [names for _, names in it.asked] == [MANY]
