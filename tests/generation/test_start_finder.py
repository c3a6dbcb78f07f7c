"""Where partitions start: the requests for start offsets, and when they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.cluster import LATEST as END_OF_LOG
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthorizationError,
    CommitFailedError,
    ConnectionLostError,
    NoOffsetError,
    OffsetOutOfRangeError,
)
from kgroup.events import CommitRefused, Committed, Event, OffsetReset
from kgroup.generation.late_commits import LateCommits
from kgroup.generation.position_searches import PositionSearches
from kgroup.generation.read_epochs import ReadEpochs
from kgroup.generation.start_finder import StartFinder, StartPosition
from kgroup.types import Assignment, OffsetAndMetadata, TopicPartition
from kgroup.types import AutoOffsetReset as Rule
from kgroup.wire.codec import RequestFrame
from tests.client.test_cluster import offsets_of
from tests.fake_brokers import SILENCE, FakeBrokers, metadata
from tests.generation.fakes import P0, P1, P2, FakeCoordinator, FakeGeneration, at, find
from tests.generation.test_lifecycle import LOSS
from tests.generation.test_positions import batch_to
from tests.generation.test_read_epochs import batch_of

LATEST, EARLIEST, ERROR = Rule.LATEST, Rule.EARLIEST, Rule.ERROR
ALONE = {1: "a:1"}


class Lookup:
    """StartFinder beside one broker that leads three partitions of topic t."""

    def __init__(self, nursery: trio.Nursery, reset: Rule, **settings: Any) -> None:
        self.nodes = FakeBrokers(nursery)
        self.node = self.nodes.add(
            "a:1", metadata=metadata(ALONE, {"t": [1, 1, 1]}), list_offsets=offsets_of
        )
        self.coordinator = FakeCoordinator()
        self.fake = FakeGeneration(
            coordinator=self.coordinator,
            cluster=self.nodes.cluster(),
            owned=(P0, P1),
            settings={"auto_offset_reset": reset, **settings},
        )
        fake = self.fake
        self.starts = StartFinder(fake.member, fake.lifecycle, fake.positions, fake.committer)

    @property
    def reports(self) -> list[Request]:
        """The requests whose failures were reported."""
        return [request for request, _ in self.fake.reports]


class Starting:
    """The starts of t-0 and t-1; the log of t-n ends at 10 * n + 5."""

    def __init__(self, nursery: trio.Nursery, rule: Rule, *, commit_latest: bool = True) -> None:
        self.lookup = Lookup(nursery, rule, commit_initial_position=commit_latest)
        self.fake = self.lookup.fake
        self.starts = self.lookup.starts
        self.life = self.fake.lifecycle
        self.life._nursery = nursery  # as in `Lifecycle.open`
        self.searches = PositionSearches(
            self.fake.member, self.life, self.fake.positions, self.starts, self.fake.committer
        )
        self.own: dict[TopicPartition, int] = {}

    async def before(self) -> dict[TopicPartition, int]:
        """Do what happens before the hand-over."""
        found = await self.starts.begin(Assignment((P0, P1)), self.own)
        await self.starts.commit_initial(found)
        self.fake.source.log.clear()
        return dict(self.fake.positions.start_offsets)

    async def locate(
        self, *partitions: TopicPartition, error: OffsetOutOfRangeError | None = None
    ) -> None:
        """Do what happens after the hand-over."""
        unlocated = self.fake.positions.unlocated.intersection(partitions)
        wanted = {error.partition: error} if error is not None else dict.fromkeys(unlocated)
        self.starts.check_rule(wanted, error)
        await find(self.searches, wanted)

    @property
    def events(self) -> list[Event]:
        """The events, without those of commits."""
        return [
            event
            for event in self.fake.emitter.events
            if not isinstance(event, Committed | CommitRefused)
        ]

    @property
    def seeks(self) -> list[tuple[TopicPartition, int]]:
        """Where the source had to seek after the hand-over."""
        return [entry[2:] for entry in self.fake.source.log if entry[0] == "seek"]

    def resets(self) -> list[tuple[TopicPartition, int, bool]]:
        """The resets that were reported."""
        return [
            (event.partition, event.offset, event.skipped)
            for event in self.events
            if isinstance(event, OffsetReset)
        ]


# The requests.


async def test_committed_offsets(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A partition without a commit has None; for no partitions no request is sent."""
    it = Lookup(nursery, EARLIEST)
    it.coordinator.stable = {P0: 7}
    assert await it.starts.requests.committed([P0, P1]) == {P0: OffsetAndMetadata(7), P1: None}
    with trio.testing.assert_checkpoints():
        assert await it.starts.requests.committed([]) == {}


@pytest.mark.parametrize("kept", [True, False])
async def test_a_late_commit_of_the_generation_before(
    nursery: trio.Nursery, autojump_clock: MockClock, kept: bool
) -> None:
    """A kept partition starts at what was acknowledged after it; one that others had does not."""
    before = LateCommits({})
    before.begin([], {})
    before.unanswered(at(p0=1))
    before.acknowledged(at(p0=5), {P0: 0})
    it = Starting(nursery, EARLIEST)
    it.fake.committer.late = LateCommits(before.left_for_next)
    it.lookup.coordinator.stable = {P0: 1, P1: 3}
    await it.starts.begin(Assignment((P0, P1), (P0,) if kept else ()), {})
    assert it.fake.positions.start_offsets == {P0: 5 if kept else 1, P1: 3}
    assert set(it.fake.committer.late.pending) == ({P0} if kept else set())


@pytest.mark.parametrize(
    ("reset", "committed", "offsets"),
    [
        (EARLIEST, {}, {P0: 0, P1: 10}),
        (EARLIEST, {P2: 1}, {P0: 0, P1: 10}),
        (LATEST, {}, {P0: 5, P1: 15}),
        # The group has begun with the topic: these two were added later.
        (LATEST, {P2: 1}, {P0: 0, P1: 10}),
    ],
)
async def test_without_a_commit_the_reset_policy_decides(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    reset: Rule,
    committed: dict[Any, int],
    offsets: dict[Any, int],
) -> None:
    """Each start names the policy that was followed, and its reason."""
    it = Lookup(nursery, reset)
    it.coordinator.stable = committed
    found: dict[TopicPartition, StartPosition] = {}
    await it.starts.find_without_commit([P0, P1], found)
    assert {name: start.offset for name, start in found.items()} == offsets
    late = reset is LATEST and committed
    for start in found.values():
        assert start.rule is (EARLIEST if late else reset)
        assert ("added later" in start.reason) is bool(late)
        assert "no offset is committed" in start.reason


async def test_the_policy_error_raises(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The error names the partitions and the member, and says what to do."""
    it = Lookup(nursery, ERROR)
    with pytest.raises(NoOffsetError, match=r"'m-1'.* for t-0, t-1, and .*'earliest' or 'latest'"):
        await it.starts.find_without_commit([P1, P0], {})
    error = OffsetOutOfRangeError("gone", P0, 99)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        it.starts.check_rule([P0], error)
    assert caught.value is error


@pytest.mark.parametrize(("at", "words"), [(99, "offset 99 is"), (-1, "its position is")])
async def test_an_offset_out_of_range(
    nursery: trio.Nursery, autojump_clock: MockClock, at: int, words: str
) -> None:
    """The reset policy chooses the offset, and the reason names the one out of range."""
    it = Lookup(nursery, LATEST)
    chosen = await it.starts.choose({P1: OffsetOutOfRangeError("gone", P1, at)})
    result = await it.starts.search(chosen)
    start = result.found[P1]
    assert (start.offset, start.rule) == (15, LATEST)
    assert start.reason == f"{words} not in the log, so auto_offset_reset chose the latest offset"


async def test_only_missing_offsets_are_requested_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A partition whose leader fails is requested until it is answered; others are not."""
    it = Lookup(nursery, EARLIEST)
    left = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE]

    def answer(request: RequestFrame) -> dict[str, Any]:
        offsets = offsets_of(request)
        if left:
            offsets["topics"][0]["partitions"][-1]["error_code"] = int(left.pop(0))
        return offsets

    it.node.answers["list_offsets"] = answer
    found: dict[TopicPartition, StartPosition] = {}
    await it.starts.find_without_commit([P0, P1], found)
    assert {name: start.offset for name, start in found.items()} == {P0: 0, P1: 10}
    sent = [
        [part.partition_index for part in request.topics[0].partitions]
        for request in it.nodes.requests("list_offsets")
    ]
    assert sent == [[0, 1], [1], [1]]
    assert it.reports == [Request.LIST_OFFSETS, Request.LIST_OFFSETS]


def not_authorized(request: RequestFrame) -> dict[str, Any]:
    """An answer that refuses the first partition of the request."""
    offsets = offsets_of(request)
    offsets["topics"][0]["partitions"][0]["error_code"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return offsets


async def test_a_request_that_is_not_authorized_is_not_repeated(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The authorization error is raised after one request."""
    it = Lookup(nursery, EARLIEST)
    it.node.answers["list_offsets"] = not_authorized
    with pytest.raises(AuthorizationError, match="t-0"):
        await it.starts.find_without_commit([P0, P1], {})
    assert len(it.nodes.requests("list_offsets")) == 1


async def test_list_offsets_sends_one_request_each_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Leaders are fetched once, however often the ends are requested."""
    it = Lookup(nursery, EARLIEST)
    for _ in range(3):
        assert await it.starts.requests.list_offsets([P2, P0], END_OF_LOG) == {P0: 5, P2: 25}
    assert len(it.nodes.requests("list_offsets")) == 3
    assert len(it.nodes.requests("metadata")) == 1


async def test_list_offsets_leaves_out_leaders_that_do_not_answer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A transport failure is reported once for all of a leader's partitions."""
    it = Lookup(nursery, EARLIEST)
    answer = metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2, 2]})
    it.node.answers["metadata"] = answer
    away = it.nodes.add("b:1", metadata=answer, list_offsets=lambda _: None)
    assert await it.starts.requests.list_offsets([P0, P1, P2], END_OF_LOG) == {P0: 5}
    assert it.reports == [Request.LIST_OFFSETS]
    away.answers["list_offsets"] = offsets_of
    assert await it.starts.requests.list_offsets([P0, P1, P2], END_OF_LOG) == {
        P0: 5,
        P1: 15,
        P2: 25,
    }


async def test_list_offsets_is_empty_if_no_leader_answers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The failure is reported, and the caller may try again later."""
    it = Lookup(nursery, EARLIEST)
    it.node.up = False
    assert await it.starts.requests.list_offsets([P0, P1], END_OF_LOG) == {}
    assert it.reports == [Request.LIST_OFFSETS]


async def test_list_offsets_that_is_not_authorized_raises(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The error is raised after one request, because a later one would be refused too."""
    it = Lookup(nursery, EARLIEST)
    it.node.answers["list_offsets"] = not_authorized
    with pytest.raises(AuthorizationError, match="t-0"):
        await it.starts.requests.list_offsets([P0, P1], END_OF_LOG)


# Before and after the hand-over.


@pytest.mark.parametrize("rule", list(Rule))
async def test_committed_partitions_need_no_reset_policy(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule
) -> None:
    """For committed partitions no reset is reported, nothing is committed or searched for."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 3, P1: 4}
    assert await it.before() == {P0: 3, P1: 4}
    await it.locate(P0, P1)
    assert (it.events, it.seeks, it.fake.coordinator.commits) == ([], [], [])


async def test_the_programs_store_comes_first(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The commits of partitions that it has are not requested; offset 0 is an offset."""
    it = Starting(nursery, ERROR)
    it.own = {P0: 0, P1: 40}
    it.fake.coordinator.stable = {P0: 7, P1: 8}
    assert await it.before() == {P0: 0, P1: 40}
    assert it.fake.coordinator.fetched == []
    it.own = {P1: 3}
    assert await it.before() == {P0: 7, P1: 3}
    assert it.fake.coordinator.fetched == [(P0,)]


async def test_a_partition_added_later_by_the_store(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If the store has others of its topic, it is read from its beginning even with ``latest``."""
    asked: list[tuple[TopicPartition, ...]] = []

    def load(partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        asked.append(partitions)
        return {P2: 5}

    it = Lookup(nursery, LATEST, starts=load)
    found: dict[TopicPartition, StartPosition] = {}
    await it.starts.find_without_commit([P0, P1], found)
    assert {name: start.offset for name, start in found.items()} == {P0: 0, P1: 10}
    assert asked == [(P0, P1, P2)]


@pytest.mark.parametrize("commit_latest", [True, False])
async def test_the_end_of_the_log_is_committed_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock, *, commit_latest: bool
) -> None:
    """A restart before the first record then skips nothing; a setting can forbid the commit."""
    it = Starting(nursery, LATEST, commit_latest=commit_latest)
    assert await it.before() == {P0: 5, P1: 15}
    assert it.fake.coordinator.commits == ([at(p0=5, p1=15)] if commit_latest else [])
    assert it.resets() == [(P0, 5, False), (P1, 15, False)]


async def test_the_beginning_is_not_committed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A restart finds the beginning again, so that a commit is not needed."""
    it = Starting(nursery, EARLIEST)
    assert await it.before() == {P0: 0, P1: 10}
    assert it.fake.coordinator.commits == []


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
    """The committer reports the failure; the program's first commit has the same effect."""
    it = Starting(nursery, LATEST)
    it.fake.coordinator.replies = [failure] * 500
    assert await it.before() == {P0: 5, P1: 15}


async def test_a_start_without_an_answer_is_found_at_the_first_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The hand-over waits for two seconds only; a reader finds the start later and seeks there."""
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
    assert it.fake.positions.lower_bound(P0) == 5
    assert it.fake.coordinator.commits == [at(p0=5)]
    await it.locate(P1, P2)
    assert it.seeks == [(P0, 5), (P1, 15)]
    assert it.resets() == [(P0, 5, False), (P1, 15, False)]


@pytest.mark.parametrize("rule", [EARLIEST, LATEST])
async def test_a_leader_without_an_answer_keeps_no_other_from_being_believed(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule
) -> None:
    """What the others have answered is where their partitions start, and is committed if needed."""
    it = Starting(nursery, rule)

    def answer(request: RequestFrame) -> dict[str, Any]:
        offsets = offsets_of(request)
        for part in offsets["topics"][0]["partitions"]:
            if part["partition_index"] == P1.partition:
                part["error_code"] = int(ErrorCode.LEADER_NOT_AVAILABLE)
        return offsets

    it.lookup.node.answers["list_offsets"] = answer
    if rule is LATEST:
        assert await it.before() == {P0: 5}
        assert it.fake.coordinator.commits == [at(p0=5)]
    else:
        assert await it.before() == {P0: 0, P1: 0}
    reasons = [event.reason for event in it.events if isinstance(event, OffsetReset)]
    assert "auto_offset_reset chose" in reasons[0]
    assert ["does not answer" in reason for reason in reasons] == [False, True][: len(reasons)]


async def test_the_policy_error_raises_at_the_first_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The hand-over succeeds, because other partitions have a committed offset."""
    it = Starting(nursery, ERROR)
    it.lookup.coordinator.stable = {P0: 3}
    assert await it.before() == {P0: 3}
    await it.locate(P0)
    for _ in range(2):
        with pytest.raises(NoOffsetError, match="t-1"):
            await it.locate(P1)
    assert it.seeks == []


@pytest.mark.parametrize(
    ("rule", "lost", "offset", "commits"),
    [(EARLIEST, 5, 10, []), (EARLIEST, 999, 10, [at(p1=10)]), (LATEST, 999, 15, [at(p1=15)])],
)
async def test_a_reset_is_reported_as_skipped_records(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    rule: Rule,
    lost: int,
    offset: int,
    commits: list[Any],
) -> None:
    """The position follows the reset policy; one that goes back is committed; an event warns."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 3, P1: lost}
    await it.before()
    it.fake.positions.move(P1, lost)
    await it.locate(P1, error=OffsetOutOfRangeError("gone", P1, lost))
    assert it.seeks == [(P1, offset)]
    assert it.fake.positions.lower_bound(P1) == offset
    assert it.fake.coordinator.commits == commits
    assert it.resets() == [(P1, offset, True)]


@pytest.mark.parametrize("rule", [EARLIEST, LATEST])
async def test_a_truncated_log_is_read_on_where_it_was_cut(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule
) -> None:
    """Whatever the policy; what was committed is past it, so the position is committed at once."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 3, P1: 999}
    await it.before()
    it.fake.positions.handed_out(batch_to(P1, 999))
    await it.locate(P1, error=OffsetOutOfRangeError("cut", P1, 999, 7))
    assert it.seeks == [(P1, 7)]
    assert it.fake.positions.lower_bound(P1) == it.fake.positions.upper_bounds[P1] == 7
    assert it.fake.coordinator.commits == [at(p1=7)]
    assert it.resets() == [(P1, 7, True)]
    (event,) = it.events
    assert "truncated there; what was read from there up to 999 is no longer" in str(event)


async def test_a_truncated_log_is_an_error_where_the_policy_is_error(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Nothing is sought or committed; the program gets the error, which names the offset."""
    it = Starting(nursery, ERROR)
    it.lookup.coordinator.stable = {P0: 3, P1: 999}
    await it.before()
    error = OffsetOutOfRangeError("cut", P1, 999, 7)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await it.locate(P1, error=error)
    assert caught.value is error
    assert (it.seeks, it.fake.coordinator.commits, it.events) == ([], [], [])


def epochs_end(
    it: Starting, ends: dict[TopicPartition, tuple[int, int] | ErrorCode], *, leader_epoch: int = 5
) -> None:
    """Let the broker lead all partitions under an epoch, and say where earlier ones end."""
    node = it.lookup.node
    node.answers["metadata"] = metadata(ALONE, {"t": [1, 1, 1]}, leader_epoch=leader_epoch)

    def answer(request: RequestFrame) -> dict[str, Any]:
        topics = []
        for topic in request.entity.topics:
            parts = []
            for part in topic.partitions:
                end = ends[TopicPartition(topic.topic, part.partition)]
                known = (-1, -1) if isinstance(end, ErrorCode) else end
                parts.append(
                    {
                        "error_code": end if isinstance(end, ErrorCode) else 0,
                        "partition": part.partition,
                        "end_offset": known[0],
                        "leader_epoch": known[1],
                    }
                )
            topics.append({"topic": topic.topic, "partitions": parts})
        return {"topics": topics}

    node.answers["offset_for_leader_epoch"] = answer


@pytest.mark.parametrize("rule", [EARLIEST, LATEST])
async def test_a_log_that_was_cut_while_no_member_read_it(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule
) -> None:
    """The partition starts where the log of the commit's epoch ends, and that is committed."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    it.lookup.coordinator.epochs = {P0: 2, P1: 3}
    epochs_end(it, {P0: (30, 2), P1: (17, 1)})
    assert await it.before() == {P0: 30, P1: 17}
    assert it.fake.source.leader_epochs == {P0: 2, P1: 1}
    assert it.fake.coordinator.commits == [{P1: OffsetAndMetadata(17, 1)}]
    assert it.resets() == [(P1, 17, True)]
    assert it.fake.positions.check({P0: 30, P1: 17}) == {
        P0: OffsetAndMetadata(30, 2),
        P1: OffsetAndMetadata(17, 1),
    }


async def test_a_log_that_was_cut_is_an_error_at_the_first_read_where_the_policy_is_error(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It names both offsets, is raised until the program seeks, and is about one partition only."""
    it = Starting(nursery, ERROR)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    it.lookup.coordinator.epochs = {P0: 2, P1: 3}
    epochs_end(it, {P0: (30, 2), P1: (17, 1)})
    assert await it.before() == {P0: 30}
    for _ in range(2):
        with pytest.raises(
            OffsetOutOfRangeError, match=r"t-1: offset 40 .* epoch 3, .* ends at 17.*seek\(\)"
        ) as caught:
            await it.locate(P0, P1)
        assert (caught.value.offset, caught.value.divergent_offset) == (40, 17)
    await it.locate(P0)
    it.fake.positions.move(P1, 17)
    await it.locate(P0, P1)
    assert (it.seeks, it.fake.coordinator.commits, it.events) == ([], [], [])


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize(("rule", "offset"), [(EARLIEST, 10), (LATEST, 15)])
async def test_a_log_that_does_not_know_the_epoch_of_the_commit(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule, offset: int, *, commits: bool
) -> None:
    """The first reader resets the position by the policy, also after a commit that is refused."""
    it = Starting(nursery, rule)
    it.lookup.coordinator.stable = {P0: 3, P1: 4}
    it.lookup.coordinator.epochs = {P0: 9, P1: 8}
    epochs_end(it, {P1: (-1, -1)}, leader_epoch=9)
    assert await it.before() == {P0: 3}
    if commits:
        it.fake.coordinator.replies = [{P1: ErrorCode.UNKNOWN_SERVER_ERROR}]
        with pytest.raises(CommitFailedError):
            await it.fake.commit(p1=5)
    await it.locate(P0, P1)
    assert it.seeks == [(P1, offset)]
    assert it.resets() == [(P1, offset, True)]
    (event,) = it.events
    assert "what was read before offset 4 is not in the log" in str(event)


def read_to(offset: int, leader_epoch: int) -> ReadEpochs:
    """What the generation before knows if it has read one record of t-0, before an offset."""
    read = ReadEpochs()
    read.handed_out(batch_of([(offset - 1, leader_epoch)]))
    return read


async def test_a_members_own_commit_is_not_verified_while_it_keeps_the_partition(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """librdkafka has watched its log since; nor is a commit without an epoch, or one not used."""
    it = Starting(nursery, EARLIEST)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    it.lookup.coordinator.epochs = {P0: 2}
    epochs_end(it, {})
    it.fake.positions.read_epochs = read_to(30, 2)
    await it.starts.begin(Assignment((P0, P1), (P0,)), {})
    assert it.fake.source.leader_epochs == {P0: 2}
    await it.starts.begin(Assignment((P0, P1)), {P0: 1})
    assert it.fake.source.leader_epochs == {}
    assert it.lookup.nodes.requests("metadata") == []


async def test_the_source_learns_what_other_members_may_have_owned(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Also of partitions that the generation before had: their topics may be others by now."""
    it = Starting(nursery, EARLIEST)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    await it.starts.begin(Assignment((P0, P1), (P0, P1), (P0,)), {})
    assert it.fake.source.added == [P1]


@pytest.mark.parametrize(
    ("assignment", "last_read"),
    [
        (Assignment((P0, P1), (P0, P1)), ReadEpochs()),
        (Assignment((P0, P1), (P0, P1)), read_to(17, 2)),
        (Assignment((P0, P1), (P0, P1)), read_to(40, 3)),
        (Assignment((P0, P1), (P0, P1), ()), read_to(30, 2)),
    ],
    ids=["never read", "reset, and not committed", "read past it again", "lost meanwhile"],
)
async def test_a_commit_that_is_not_the_members_own_is_verified(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    assignment: Assignment,
    last_read: ReadEpochs,
) -> None:
    """It was found past the log's end before, and no commit has replaced it, or others had it."""
    it = Starting(nursery, EARLIEST)
    it.lookup.coordinator.stable = {P0: 30, P1: 40}
    it.lookup.coordinator.epochs = {P0: 2}
    epochs_end(it, {P0: (17, 2)})
    it.fake.positions.handed_out(batch_to(P0, 40))
    it.fake.positions.read_epochs = last_read
    found = await it.starts.begin(assignment, {})
    assert {name: start.offset for name, start in found.items()} == {P0: 17}
    assert it.fake.positions.upper_bounds == {}  # what was read before is not in the log any more


@pytest.mark.parametrize("rule", [EARLIEST, LATEST])
@pytest.mark.parametrize("at_beginning", [True, False])
async def test_a_topic_that_is_refused_keeps_no_other_from_being_found(
    nursery: trio.Nursery, autojump_clock: MockClock, rule: Rule, *, at_beginning: bool
) -> None:
    """Metadata refuses the whole request because of one topic."""
    it = Starting(nursery, rule)
    secret = TopicPartition("secret", 0)
    topics: dict[str, Any] = {"t": [1, 1, 1], "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    def answer(request: RequestFrame) -> Mapping[str, Any]:
        return metadata(ALONE, {one.name: topics[one.name] for one in request.entity.topics})

    it.lookup.node.answers["metadata"] = answer
    it.fake.positions.begin(Assignment((P1, secret)), {})
    wanted = {
        name: None if at_beginning else OffsetOutOfRangeError("gone", name, 999)
        for name in (P1, secret)
    }
    with pytest.raises(AuthorizationError, match="secret"):
        await find(it.searches, wanted)
    assert it.seeks == [(P1, 10 if rule is EARLIEST else 15)]


@pytest.mark.parametrize("error", [None, OffsetOutOfRangeError("gone", P0, 999)])
async def test_the_end_cancels_the_search_for_a_position(
    nursery: trio.Nursery, autojump_clock: MockClock, error: OffsetOutOfRangeError | None
) -> None:
    """No position is changed, and no search begins after the end."""
    it = Starting(nursery, LATEST)
    it.lookup.node.answers["list_offsets"] = SILENCE
    await it.before()
    began = trio.current_time()

    async def end() -> None:
        await trio.sleep(3)
        it.life.end(LOSS)

    nursery.start_soon(end)
    for _ in range(2):
        assert await it.life.until_ending(partial(it.locate, P0, error=error)) is None
        assert trio.current_time() == began + 3
    assert (it.events, it.seeks, it.fake.coordinator.commits) == ([], [], [])
    assert it.fake.positions.moves([P0]) == {P0: 0}
