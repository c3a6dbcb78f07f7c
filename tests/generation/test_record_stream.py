"""Streams of records: what they hand out, when they do not, and how they end. Beside fakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, TypeVar, final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthorizationError,
    BrokerError,
    FetchError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    UsageError,
)
from kgroup.generation.lifecycle import Finished
from kgroup.generation.pauses import Pauses
from kgroup.generation.position_searches import PositionSearches
from kgroup.generation.positions import Positions
from kgroup.generation.record_stream import RecordStream
from kgroup.generation.start_finder import SearchResult, StartPosition
from kgroup.generation.states import State
from kgroup.generation.streams import GenerationParts
from kgroup.interfaces import Batch
from kgroup.types import Assignment, AutoOffsetReset, TopicPartition
from tests.generation.fakes import (
    MEMBERSHIP,
    P0,
    P1,
    FakeSource,
    member_context,
)

T = TypeVar("T")

EPOCH = MEMBERSHIP.epoch
REFUSAL = broker_error(Request.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")
TOPIC_0, TOPIC_1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


@final
class FakeLifecycle:
    """A lifecycle whose state and lease the test sets."""

    membership = MEMBERSHIP

    def __init__(self) -> None:
        self.state = State.RUNNING
        self.ending = trio.Event()
        self.lease = SimpleNamespace(left=30.0)
        self.confirmed = trio.Event()
        self.batches: list[float] = []

    def batch_took(self, seconds: float) -> None:
        """See ``Lifecycle``."""
        self.batches.append(seconds)

    def start_service(self, fn: Callable[..., Awaitable[None]], *args: object) -> None:
        """See ``Lifecycle``."""
        trio.lowlevel.spawn_system_task(fn, *args)

    def working(self) -> AbstractContextManager[None]:
        """See ``Lifecycle``."""
        return nullcontext()

    async def until_ending(self, fn: Callable[[], Awaitable[T]]) -> Finished[T]:
        """See ``Lifecycle``."""
        return Finished(await fn())

    async def wait_to_read(self) -> None:
        """See ``Lifecycle``."""
        while self.lease.left <= 0 and self.state is State.RUNNING:
            await self.confirmed.wait()


@final
class Around:
    """The parts that a stream uses, which the test can change."""

    def __init__(self, source: FakeSource | None = None) -> None:
        self.source = source or FakeSource()
        self.member = member_context(source=self.source)
        self.lifecycle: Any = FakeLifecycle()
        self.searched: list[Any] = []
        """The partitions of each search, with their errors."""
        self.refused: BrokerError | None = None
        self.raised: Exception | None = None
        self.answers_after = 0.0
        self.open: set[Any] = set()
        self.made: list[RecordStream] = []
        self.pauses = Pauses(self.source, MEMBERSHIP.epoch)
        self.positions = Positions(MEMBERSHIP)
        self.positions.begin(Assignment((P0, P1)), {})
        self.unlocated_commits: Counter[TopicPartition] = Counter()
        fake: Any = self
        self.searches = PositionSearches(self.member, fake.lifecycle, self.positions, fake, fake)

    def stream(self, *partitions: TopicPartition) -> RecordStream:
        """Make a stream of these partitions, P0 by default."""
        fake: Any = self
        parts = GenerationParts(
            member=self.member,
            lifecycle=self.lifecycle,
            positions=self.positions,
            starts=fake,
            searches=self.searches,
            committer=fake,
            pauses=self.pauses,
        )
        stream = RecordStream(parts, frozenset(partitions or {P0}), self.open, 100)
        self.made.append(stream)
        return stream

    @property
    def closed(self) -> list[RecordStream]:
        """The streams that are closed."""
        return [stream for stream in self.made if stream not in self.open]

    def check_rule(self, partitions: Collection[TopicPartition], *_: object) -> None:
        """See ``StartFinder``."""
        if partitions and self.raised is not None:
            raise self.raised

    async def choose(self, wanted: Mapping[TopicPartition, Any]) -> Mapping[TopicPartition, Any]:
        """See ``StartFinder``."""
        await trio.lowlevel.checkpoint()
        return wanted

    def is_lost(self, _: TopicPartition, __: int) -> bool:
        """See ``StartFinder``."""
        return False

    def by_leader(self, partitions: Collection[TopicPartition]) -> list[list[TopicPartition]]:
        """See ``StartFinder``."""
        return [sorted(partitions)]

    async def search(self, wanted: Mapping[TopicPartition, Any]) -> SearchResult:
        """See ``StartFinder``."""
        self.searched.append(dict(wanted))
        await trio.sleep(self.answers_after)
        if self.refused is not None:
            return SearchResult({}, dict.fromkeys(wanted, self.refused))
        start = StartPosition(0, AutoOffsetReset.EARLIEST, "it is the first")
        return SearchResult(dict.fromkeys(wanted, start), {})

    def emit(self, _: object) -> None:
        """See ``StartFinder``."""

    async def commit_initial(self, _: object) -> None:
        """See ``StartFinder``."""
        await trio.lowlevel.checkpoint()

    def end(self) -> None:
        """Begin the generation's end."""
        self.lifecycle.state = State.DRAINING
        self.lifecycle.ending.set()

    def suspend(self) -> None:
        """Let the lease expire."""
        self.lifecycle.lease.left = 0.0

    def confirm(self) -> None:
        """Renew the lease, as an answered heartbeat does."""
        self.lifecycle.lease.left = 30.0
        self.lifecycle.confirmed.set()


async def offsets(stream: RecordStream, count: int) -> list[int]:
    """Read batches, and return the first offset of each."""
    return [(await anext(stream)).messages[0].offset() for _ in range(count)]


async def read_to_the_end(stream: RecordStream) -> None:
    """Read until the stream ends."""
    async for _ in stream:
        pass


async def test_start_offsets_are_found_before_records_are_read(autojump_clock: MockClock) -> None:
    """Positions are found once, by one search; then the partitions are opened and read."""
    around = Around()
    stream = around.stream(P1, P0)
    assert await offsets(stream, 3) == [0, 1, 2]
    assert around.searched == [{P0: None, P1: None}]
    assert around.source.log == [
        ("seek", EPOCH, P0, 0),
        ("seek", EPOCH, P1, 0),
        ("open", EPOCH, [P0, P1]),
    ]


async def test_partitions_are_read_while_others_have_no_position(
    autojump_clock: MockClock,
) -> None:
    """A leader that is away keeps nothing waiting but its own partitions."""
    around = Around()
    around.answers_after = 1000
    around.positions.begin(Assignment((P0, P1)), {P1: 3})
    stream = around.stream(P0, P1)
    assert [(await anext(stream)).partition for _ in range(3)] == [P1] * 3
    assert around.source.log == [("open", EPOCH, [P1])]


async def test_a_stream_ends_with_its_generation(autojump_clock: MockClock) -> None:
    """From the end on, the stream is closed and returns no batch, whatever the cause."""
    around = Around()
    stream = around.stream()
    await offsets(stream, 1)
    around.lifecycle.state = State.DRAINING
    assert [batch async for batch in stream] == []
    assert [batch async for batch in stream] == []
    assert around.closed == [stream]


async def test_a_revoked_epoch_ends_the_stream(autojump_clock: MockClock) -> None:
    """A StaleGenerationError of the source ends the stream and is not raised."""
    around = Around(FakeSource(error=StaleGenerationError("ended")))
    assert [batch async for batch in around.stream()] == []


async def test_a_fetch_error_is_raised(autojump_clock: MockClock) -> None:
    """The handler gets the error as it is, and may read on."""
    error = FetchError("cannot be read", P0)
    around = Around(FakeSource(error=error))
    stream = around.stream()
    with pytest.raises(FetchError) as caught:
        await anext(stream)
    assert caught.value is error
    assert await offsets(stream, 1) == [0]


async def test_a_position_out_of_range_is_reset(autojump_clock: MockClock) -> None:
    """The reset policy applies; reading continues without opening the partition again."""
    error = OffsetOutOfRangeError("gone", P0, 7)
    around = Around(FakeSource(error=error))
    assert await offsets(around.stream(), 1) == [0]
    assert around.searched == [{P0: None}, {P0: error}]
    assert [what for what, *_ in around.source.log] == ["seek", "open", "seek"]


async def test_repeated_resets_have_rising_waits(autojump_clock: MockClock) -> None:
    """During the waits other partitions are read."""
    around = Around(FakeSource(lost=P0, pause_between=1.0))
    began = trio.current_time()
    stream = around.stream(P0, P1)
    for _ in range(100):
        assert (await anext(stream)).partition == P1
    assert trio.current_time() - began < 150
    assert 15 < len(around.searched) < 40


async def test_a_seek_replaces_a_reset_that_waits(autojump_clock: MockClock) -> None:
    """The stream reads from the program's position at once, and the reset is dropped."""
    around = Around(FakeSource(lost=P0))
    stream = around.stream()
    with trio.move_on_after(20):  # by now the waits are seconds long
        await anext(stream)
    resets, began = len(around.searched), trio.current_time()
    around.source.lost = None
    seek(around, P0, 5)
    assert await offsets(stream, 2) == [0, 1]
    assert trio.current_time() == began
    assert len(around.searched) == resets


async def test_a_seek_wakes_a_stream_that_waits_for_a_search(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The partition is opened, and its records are handed out without another call."""
    around = Around()
    around.answers_after = 1000
    stream = around.stream()
    batches: list[Batch] = []

    async def read() -> None:
        batches.append(await anext(stream))

    nursery.start_soon(read)
    await trio.sleep(1)
    assert batches == []
    seek(around, P0, 5)
    await wait_all_tasks_blocked()
    assert len(batches) == 1
    assert around.source.log == [("open", EPOCH, [P0])]
    await trio.sleep(2000)
    assert around.source.log == [("open", EPOCH, [P0])]  # what is found later changes nothing


def seek(around: Around, partition: TopicPartition, offset: int) -> None:
    """Do what ``Generation.seek`` does, beside the source."""
    around.positions.seek(partition, offset)
    around.searches.sought(partition)


async def test_a_wait_for_a_reset_ends_with_the_generation(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The drain does not wait for a reset."""
    around = Around(FakeSource(lost=P0))
    stream = around.stream()
    with trio.move_on_after(20):
        await anext(stream)
    nursery.start_soon(read_to_the_end, stream)
    await trio.testing.wait_all_tasks_blocked()
    assert around.closed == []
    around.end()
    await trio.testing.wait_all_tasks_blocked()
    assert around.closed == [stream]


async def test_an_error_of_the_reset_policy_is_raised(autojump_clock: MockClock) -> None:
    """The handler gets it before the partition is opened; the next call tries again."""
    around = Around()
    around.raised = OffsetOutOfRangeError("gone", P0, 7)
    stream = around.stream()
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await anext(stream)
        assert caught.value is around.raised
    assert around.source.log == around.searched == []
    around.raised = None
    assert await offsets(stream, 1) == [0]


async def test_a_reset_that_is_refused_is_raised(autojump_clock: MockClock) -> None:
    """Each call raises the refusal of a search; other partitions are not lost by that."""
    around = Around(FakeSource(lost=P0))
    around.positions.begin(Assignment((P0, P1)), {P0: 0, P1: 0})
    around.refused = REFUSAL
    stream = around.stream(P0)
    for count in range(1, 4):
        with pytest.raises(AuthorizationError):
            await anext(stream)
        assert len(around.searched) == count
    around.refused = around.source.lost = None
    assert await offsets(stream, 1) == [0]


async def first_of_short_calls(stream: RecordStream, seconds: float) -> Batch:
    """Call a stream until it returns a batch; each call is given up after some seconds."""
    for _ in range(1000):
        with trio.move_on_after(seconds):
            return await anext(stream)
    raise AssertionError(f"{stream} returned nothing")


async def test_calls_that_are_shorter_than_the_search_for_a_position(
    autojump_clock: MockClock,
) -> None:
    """The search goes on between the calls, so that they get a batch; it is made once."""
    around = Around()
    around.answers_after = 1.0
    batch = await first_of_short_calls(around.stream(), 0.03)
    assert batch.start_offset == 0
    assert around.searched == [{P0: None}]
    assert trio.current_time() < 1.1


async def test_calls_that_are_shorter_than_a_reset(autojump_clock: MockClock) -> None:
    """A reset that a call began ends, and later calls read from the new position."""
    error = OffsetOutOfRangeError("gone", P0, 7)
    around = Around(FakeSource(error=error))
    stream = around.stream()
    around.answers_after = 1.0
    await first_of_short_calls(stream, 0.03)
    assert around.searched == [{P0: None}, {P0: error}]
    assert trio.current_time() < 2.2


async def test_calls_that_are_shorter_than_later_resets(autojump_clock: MockClock) -> None:
    """Resets that wait end too, and others are read meanwhile."""
    around = Around(FakeSource(lost=P0, pause_between=0.1))
    stream = around.stream(P0, P1)
    around.answers_after = 1.0
    for _ in range(600):
        assert (await first_of_short_calls(stream, 0.3)).partition == P1
    assert 10 < len(around.searched) < 40


async def test_an_error_of_a_search_whose_call_was_given_up(autojump_clock: MockClock) -> None:
    """The next call raises it; the call after that searches again."""
    around = Around()
    around.answers_after = 1.0
    around.refused = REFUSAL
    stream = around.stream()
    with trio.move_on_after(0.1):
        await anext(stream)
    await trio.sleep(5)
    with pytest.raises(AuthorizationError):
        await anext(stream)
    around.refused = None
    assert await offsets(stream, 1) == [0]


async def test_a_search_ends_with_its_stream(autojump_clock: MockClock) -> None:
    """What it finds later moves nothing: another stream may read the partition."""
    around = Around()
    around.answers_after = 1.0
    stream = around.stream()
    with trio.move_on_after(0.1):
        await anext(stream)
    stream.close()
    await trio.sleep(5)
    assert around.source.log == []
    assert [batch async for batch in stream] == []
    assert await offsets(around.stream(), 1) == [0]


async def test_a_stream_that_is_closed_twice_harms_no_other(autojump_clock: MockClock) -> None:
    """Another stream may search for the same partition by then."""
    around = Around()
    around.answers_after = 1.0
    first = around.stream()
    with trio.move_on_after(0.1):
        await anext(first)
    first.close()
    second = around.stream()
    with trio.move_on_after(0.1):
        await anext(second)
    first.close()
    assert [batch async for batch in first] == []
    assert await offsets(second, 1) == [0]


@pytest.mark.parametrize("steps", range(8))
async def test_a_stream_that_is_closed_as_it_begins_harms_no_other(
    autojump_clock: MockClock, steps: int
) -> None:
    """Another stream reads the partition only once its own search has found the position."""
    around = Around()
    around.answers_after = 5.0
    first = around.stream()

    async def read_another() -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        first.close()
        assert await offsets(around.stream(), 1) == [0]

    began = trio.current_time()
    async with trio.open_nursery() as inner:
        inner.start_soon(read_to_the_end, first)
        inner.start_soon(read_another)
    assert trio.current_time() - began >= 5


async def test_closing_a_stream_wakes_a_call_that_waits_for_a_search(
    autojump_clock: MockClock,
) -> None:
    """The call ends as at the end of the generation."""
    around = Around()
    around.answers_after = 1000
    stream = around.stream()
    with trio.fail_after(10):
        async with trio.open_nursery() as inner:
            inner.start_soon(read_to_the_end, stream)
            await trio.sleep(1)
            stream.close()


async def test_a_refusal_that_comes_while_the_lease_is_over(autojump_clock: MockClock) -> None:
    """It is raised once the lease is valid; no partition is read before it is opened."""
    around = Around()
    around.positions.begin(Assignment((P0, P1)), {P1: 0})
    around.answers_after, around.refused = 1.0, REFUSAL
    stream = around.stream(P0, P1)
    assert (await anext(stream)).partition == P1
    around.suspend()
    with trio.move_on_after(5):
        await anext(stream)
    around.confirm()
    with pytest.raises(AuthorizationError):
        await anext(stream)
    around.refused = None
    around.answers_after = 0.0
    assert (await anext(stream)).partition == P1
    await trio.sleep(1)
    assert (await anext(stream)).partition == P0


async def test_many_refusals_are_one_error(autojump_clock: MockClock) -> None:
    """Later ones may be old when the program asks again: it searches again."""
    around = Around()
    around.refused = REFUSAL
    stream = around.stream(P0, P1)
    with pytest.raises(AuthorizationError):
        await anext(stream)
    around.refused = None
    assert await offsets(stream, 2) == [0, 1]


async def test_a_refusal_is_not_raised_after_a_seek(autojump_clock: MockClock) -> None:
    """The position that could not be found is not needed any more."""
    around = Around()
    around.answers_after, around.refused = 1.0, REFUSAL
    stream = around.stream()
    with trio.move_on_after(0.1):
        await anext(stream)
    await trio.sleep(5)
    seek(around, P0, 5)
    assert await offsets(stream, 1) == [0]


async def test_past_the_lease_nothing_is_handed_out(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The stream waits for a heartbeat, and then continues at the same offset."""
    around = Around()
    stream = around.stream()
    await offsets(stream, 2)
    around.suspend()
    seen: list[int] = []

    async def read() -> None:
        seen.extend(await offsets(stream, 1))

    nursery.start_soon(read)
    await trio.sleep(10)
    assert seen == []
    assert around.source.position == 2
    around.confirm()
    await trio.sleep(1)
    assert seen == [2]


async def test_a_lease_that_expires_while_a_stream_waits_for_records(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Records that arrive then go back to the source: none is skipped."""
    around = Around(FakeSource(end=0))
    stream = around.stream()

    async def read(patience: float) -> list[int]:
        with trio.move_on_after(patience):
            return await offsets(stream, 1)
        return []

    async def freeze() -> None:
        await trio.sleep(1)
        around.suspend()
        around.source.end = 5
        around.source.grown.set()

    nursery.start_soon(freeze)
    assert await read(5) == []
    assert around.source.position == 0
    around.confirm()
    assert await read(5) == [0]


async def test_a_stream_closed_by_another_task_gives_its_records_back(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The partition's next stream begins with the records that were not handed out."""
    around = Around(FakeSource(end=0))
    first = around.stream()
    batches: list[list[Batch]] = []

    async def read() -> None:
        batches.append([batch async for batch in first])

    nursery.start_soon(read)
    await trio.sleep(1)
    await first.aclose()
    around.source.end = 5
    around.source.grown.set()
    await trio.sleep(1)
    assert batches == [[]]
    assert await offsets(around.stream(), 2) == [0, 1]
    first.close()
    assert around.closed == [first]


async def test_a_batch_that_did_not_reach_the_program(autojump_clock: MockClock) -> None:
    """It is read again, unless the program has sought; it counts neither as read nor as held."""
    around = Around()
    stream = around.stream()
    first, second = await anext(stream), await anext(stream)
    around.source.log.clear()
    stream.undo_hand_out(second)
    assert stream.held_for == 0
    assert around.positions.upper_bounds == {P0: first.next_offset}
    assert await offsets(stream, 1) == [1]
    assert around.positions.finished_ranges == {P0: (0, 1)}
    stream.close()
    third = await anext(around.stream())
    around.positions.seek(P0, 7)
    stream.undo_hand_out(third)
    assert [entry for entry in around.source.log if entry[0] == "seek"] == [("seek", 3, P0, 1)]


async def test_a_partition_with_a_batch_in_hand(autojump_clock: MockClock) -> None:
    """Its next batch comes after `processing`, and after a pause of the program's as well."""
    around = Around(FakeSource(end=3))
    stream = around.stream()
    stream.share_in_turn()

    def switches() -> list[str]:
        names = [entry[0] for entry in around.source.log if entry[-1] in ([P0], [])]
        around.source.log.clear()
        return [name for name in names if name != "open"]

    with stream.processing(await anext(stream)):
        assert switches() == ["pause"]
    await wait_all_tasks_blocked()
    assert switches() == ["resume"]
    with stream.processing(await anext(stream)):
        around.pauses.pause([P0])
    await wait_all_tasks_blocked()
    assert switches() == ["pause", "pause"]
    around.pauses.resume([P0])
    assert around.source.log == [("resume", 3, [P0])]
    stream.undo_hand_out(await anext(stream))
    assert around.source.log[1:] == [("pause", 3, [P0]), ("seek", 3, P0, 2), ("resume", 3, [P0])]


async def test_a_resumed_partition_with_a_batch_in_hand(autojump_clock: MockClock) -> None:
    """If the program resumes it, the source goes on only after `processing`."""
    around = Around()
    stream = around.stream()
    stream.share_in_turn()
    with stream.processing(await anext(stream)):
        around.source.log.clear()
        around.pauses.pause([P0, P1])
        around.pauses.resume([P0, P1])
        assert around.source.log == [("pause", 3, [P0, P1]), ("resume", 3, [P1])]
    await wait_all_tasks_blocked()
    assert around.source.log[-1] == ("resume", 3, [P0])


async def test_two_tasks_on_one_stream(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """The second task gets an error; the first continues."""
    around = Around(FakeSource(end=0))
    stream = around.stream()
    nursery.start_soon(offsets, stream, 1)
    await trio.sleep(1)
    with pytest.raises(UsageError, match="two tasks iterate over one record stream"):
        await anext(stream)
    around.source.end = 1
    around.source.grown.set()


async def test_how_long_batches_of_a_shared_stream_are_held(autojump_clock: MockClock) -> None:
    """Each batch counts while it is processed, whoever takes the next one meanwhile."""
    around = Around(FakeSource(end=1))
    stream = around.stream()
    stream.share()
    first = await anext(stream)
    around.source.end = 2
    with stream.processing(first):
        await trio.sleep(7)
        await anext(stream)
        assert stream.held_for == pytest.approx(7)
    assert stream.held_for == 0


async def test_how_long_a_batch_is_held(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """`held_for` counts from a batch's hand-over until the program takes the next one."""
    around = Around(FakeSource(end=1))
    stream = around.stream()
    assert stream.held_for == 0
    await offsets(stream, 1)
    await trio.sleep(7)
    assert stream.held_for == pytest.approx(7)
    nursery.start_soon(offsets, stream, 1)
    await trio.sleep(3)
    assert stream.held_for == 0
    around.source.end = 9
    around.source.grown.set()


async def test_monitors_learn_of_batches(autojump_clock: MockClock) -> None:
    """Of each when it is handed out, and when the next one is requested; without any, of none."""
    around = Around()
    stream = around.stream()
    emitter: Any = around.member.emitter
    await offsets(stream, 1)
    await trio.sleep(7)
    assert emitter.batches == [(P0, 1, None)]
    emitter.monitored = False
    await offsets(stream, 1)
    await offsets(stream, 1)
    assert emitter.batches == [(P0, 1, None), (P0, 1, pytest.approx(7))]


async def test_repr_of_a_record_stream(autojump_clock: MockClock) -> None:
    """The repr names the partitions, and says whether the stream is closed."""
    stream = Around().stream(P1, P0)
    assert repr(stream) == "<RecordStream of t-0, t-1>"
    assert aiter(stream) is stream
    stream.close()
    assert repr(stream) == "<RecordStream of t-0, t-1, closed>"
