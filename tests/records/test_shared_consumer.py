"""Members that share a Consumer: who gets what, who moves out, and when the thread ends."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio
from confluent_kafka import KafkaError

from kgroup.config import GroupConfig
from kgroup.errors import AuthorizationError, FetchError, OffsetOutOfRangeError
from kgroup.records import consumer_thread
from kgroup.records.buffer import BufferLimits
from kgroup.records.fetcher import (
    FetchedItem,
    FetchedRun,
    FetchFailure,
    FetchStart,
    OutOfRange,
    PassedTo,
    Unreadable,
)
from kgroup.records.librdkafka import CONSUMERS, Consumers, LibrdkafkaSource
from kgroup.records.shared_consumer import (
    BUSY_RECORDS,
    MOST_OWN,
    SharedConsumer,
    SharedFetcher,
)
from kgroup.security.credentials import Credentials
from kgroup.security.settings import Security
from kgroup.types import TopicPartition
from tests.records.scripted import ScriptedFetcher, failure, record, run_of, truncation
from tests.records.test_consumer_thread import ScriptedConsumer

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE = 150.0


class Opened:
    """Makes scripted Consumers and keeps them."""

    def __init__(self) -> None:
        self.consumers: list[ScriptedConsumer] = []
        self._changed = threading.Condition()

    def open(self, settings: dict[str, Any]) -> Any:
        """Make one more."""
        with self._changed:
            self.consumers.append(ScriptedConsumer())
            self._changed.notify_all()
            return self.consumers[-1].open(settings)

    async def second(self) -> ScriptedConsumer:
        """Wait for the second one, and until it has partitions."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self.consumers) > 1, PATIENCE)

        await trio.to_thread.run_sync(wait)
        await self.consumers[1].until(lambda: bool(self.consumers[1].calls))
        return self.consumers[1]


@asynccontextmanager
async def members(
    opened: Opened, count: int, *, most_own: int = 0, **settings: Any
) -> AsyncIterator[list[LibrdkafkaSource]]:
    """Sources of as many members, each of a group of its own."""
    CONSUMERS.set(Consumers(most_own=most_own))
    async with AsyncExitStack() as stack:
        with trio.fail_after(PATIENCE):
            yield [
                await stack.enter_async_context(source(opened, f"g{number}", **settings))
                for number in range(count)
            ]


def source(opened: Opened, group_id: str, **settings: Any) -> LibrdkafkaSource:
    """A source that is not entered yet."""
    config = GroupConfig(group_id=group_id, bootstrap_servers="h:1", topics=["t"], **settings)
    return LibrdkafkaSource(config, lambda *_: None, open_consumer=opened.open)


def read(member: LibrdkafkaSource, *partitions: TopicPartition, offset: int = 0) -> None:
    """Begin the member's first generation."""
    member.assign(1, dict.fromkeys(partitions, offset))
    member.open(1, partitions)


async def offsets(member: LibrdkafkaSource, partition: TopicPartition, wanted: int) -> list[int]:
    """The offsets of a partition's next records."""
    found: list[int] = []
    while len(found) < wanted:
        batch = await member.receive(1, [partition], 1000)
        found += [message.offset() for message in batch.messages]
    return found


def threads() -> set[str]:
    """The names of the running threads that read records."""
    return {
        thread.name for thread in threading.enumerate() if thread.name.startswith("kgroup-records")
    }


async def test_only_the_first_members_have_consumers_of_their_own() -> None:
    """However many members an event loop has, so many Consumers and threads are made, plus one."""
    opened = Opened()
    async with members(opened, MOST_OWN + 20, most_own=MOST_OWN):
        assert len(opened.consumers) == MOST_OWN + 1
        own = {f"kgroup-records-g{number}" for number in range(MOST_OWN)}
        assert threads() == own | {"kgroup-records-shared"}
    assert threads() == set()


async def test_members_whose_consumers_would_differ_do_not_share() -> None:
    """Members of different groups share; another login, isolation level or buffer does not."""
    opened = Opened()
    login: dict[str, Any] = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}
    async with members(opened, 2), AsyncExitStack() as stack:
        different: Sequence[dict[str, Any]] = (
            {"isolation_level": "read_committed"},
            {"client_id": "another"},
            {"max_buffered_bytes": 10_000},
            {"rack_id": "r"},
            {"security": Security(credentials=lambda: Credentials("a", "b"), **login)},
            {"security": Security(credentials=lambda: Credentials("c", "d"), **login)},
        )
        for settings in different:
            member = await stack.enter_async_context(source(opened, "g", **settings))
            member.prepare(())
        assert len(CONSUMERS.get().shared) == 1 + len(different)


async def test_nothing_connects_before_the_first_login_was_accepted() -> None:
    """With TLS or a login, a Consumer is made when the member prepares or begins to read."""
    opened = Opened()
    secured = Security(protocol="SSL")
    async with members(opened, 2, most_own=1, security=secured) as (first, second):
        assert not opened.consumers
        assert not threads()
        first.prepare(["t"])
        await first._started.wait()
        read(second, A)
        await second._started.wait()
        assert threads() == {"kgroup-records-g0", "kgroup-records-shared"}
        opened.consumers[-1].feed(record(A, 0))
        assert await offsets(second, A, 1) == [0]
    async with members(opened, 1, security=secured) as (member,):
        pass
    member.prepare(["t"])
    assert not threads()


async def test_topics_of_every_member_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Consumer is not replaced for topics that one member has read and may read again."""
    monkeypatch.setattr(consumer_thread, "MOST_FORMER_TOPICS", 5)
    opened, names = Opened(), [f"topic-{number}" for number in range(10)]
    async with members(opened, 2) as (first, second):
        first.prepare(names)
        for epoch, name in enumerate(names, 1):
            second.prepare(["t"])
            first.assign(epoch, {TopicPartition(name, 0): 0})
            first.open(epoch, [TopicPartition(name, 0)])
            assert first._shared is not None
            for _ in range(2):  # until the thread has done so
                done = threading.Event()
                first._shared.thread._post(done.set)
                assert await trio.to_thread.run_sync(done.wait, PATIENCE)
        assert len(opened.consumers) == 1


async def test_each_member_gets_the_records_of_its_partitions() -> None:
    """One chunk of two members' partitions is divided between them."""
    opened = Opened()
    async with members(opened, 2) as (first, second):
        read(first, A)
        read(second, B)
        opened.consumers[0].feed(record(A, 0), record(B, 0), record(A, 1))
        assert await offsets(first, A, 2) == [0, 1]
        assert await offsets(second, B, 1) == [0]
        assert first._limits.records == second._limits.records == 0


async def test_two_members_at_the_same_offset_share_one_fetch() -> None:
    """Both get each record once, in lists of their own, and one seek does not move the other."""
    opened = Opened()
    async with members(opened, 2) as (first, second):
        read(first, A)
        read(second, A)
        consumer = opened.consumers[0]
        consumer.feed(record(A, 0), record(A, 1))
        batches = [await member.receive(1, [A], 10) for member in (first, second)]
        assert [len(batch) for batch in batches] == [2, 2]
        assert batches[0].messages is not batches[1].messages
        assert [call for call in consumer.calls if call[0] == "assign"] == [("assign", [(0, 0)])]
        first.seek(1, A, 7)
        assert (await opened.second()).calls == [("assign", [(0, 7)])]
        consumer.feed(record(A, 2))
        assert await offsets(second, A, 1) == [2]


async def test_a_member_ahead_of_the_fetch_moves_out() -> None:
    """It reads what another member reads, from its own offset, by a Consumer of its own."""
    opened = Opened()
    async with members(opened, 2) as (first, second):
        read(first, A, offset=5)
        read(second, A, B, offset=6)
        own = await opened.second()
        assert sorted(own.calls[0][1]) == [(0, 6), (1, 6)]
        own.feed(record(A, 6))
        assert await offsets(second, A, 1) == [6]
        opened.consumers[0].feed(record(A, 5))
        assert await offsets(first, A, 1) == [5]


async def test_a_member_far_behind_the_fetch_moves_out() -> None:
    """It has much to read, for which the others do not wait."""
    opened = Opened()
    async with members(opened, 2) as (first, second):
        read(first, A, offset=BUSY_RECORDS + 1)
        read(second, A, offset=0)
        assert (await opened.second()).calls == [("assign", [(0, 0)])]


async def test_members_that_start_behind_one_another_share_one_fetch() -> None:
    """Fifty groups begin to read a topic one after the other: one Consumer, each record once."""
    opened = Opened()
    async with members(opened, 50) as everyone:
        consumer = opened.consumers[0]
        for count, member in enumerate(everyone, 1):
            read(member, A)
            await consumer.until(
                lambda wanted=count: len(consumer.calls) >= 2 * wanted - 1  # type: ignore[misc]
            )
            consumer.feed(record(A, 0), record(A, 1))
            assert await offsets(member, A, 2) == [0, 1]
        consumer.feed(record(A, 2))
        for member in everyone:
            assert await offsets(member, A, 1) == [2]
            assert member._limits.records == 0
        assert len(opened.consumers) == 1


async def test_the_fetch_goes_on_where_the_others_are_once_one_behind_has_left() -> None:
    """What only the leaver wanted is not read again for the others."""
    shared = _Shared()
    _, ahead = shared.reader(FetchStart(1, 100))
    second, behind = shared.reader(FetchStart(1, 90))
    assert shared.thread.fetches[A].offset == 90
    shared.consumer.deliver([run_of(A, shared.thread.fetches[A].fetch_id, [90, 91])])
    assert (len(ahead), len(behind)) == (0, 1)
    assert second.leave() == {A: FetchStart(1, 92)}
    assert shared.thread.fetches[A].offset == 100
    shared.consumer.deliver([run_of(A, shared.thread.fetches[A].fetch_id, [100])])
    assert len(ahead) == 1


async def test_an_offset_that_the_log_lacks_concerns_only_who_wants_it() -> None:
    """The reader behind gets the fault; the one ahead continues at its own offset."""
    shared = _Shared()
    _, ahead = shared.reader(FetchStart(1, 100))
    second, behind = shared.reader(FetchStart(7, 0))
    fault = OutOfRange(A, shared.thread.fetches[A].fetch_id, 0, "r")
    shared.consumer.deliver([fault])
    assert (ahead, behind) == ([], [OutOfRange(A, 7, 0, "r")])
    second.stop([A])
    assert shared.thread.fetches[A].offset == 100


async def test_a_damaged_batch_concerns_only_who_has_not_read_past_it() -> None:
    """The reader ahead goes on at its own offset when the one behind has given up."""
    opened = Opened()
    async with members(opened, 2) as (ahead, behind):
        read(ahead, A, offset=18)
        consumer = opened.consumers[0]
        consumer.feed(record(A, 18), record(A, 19))
        assert await offsets(ahead, A, 2) == [18, 19]
        read(behind, A, offset=5)
        await consumer.until(lambda: consumer.calls[-1] == ("assign", [(0, 5)]))
        consumer.feed(record(A, 5), record(A, 6), failure(A, KafkaError._BAD_MSG, 7))
        assert await offsets(behind, A, 2) == [5, 6]
        with pytest.raises(FetchError, match="t-0 cannot be read"):
            await behind.receive(1, [A], 1)
        await consumer.until(lambda: consumer.calls[-1] == ("assign", [(0, 20)]))
        consumer.feed(record(A, 20))
        assert await offsets(ahead, A, 1) == [20]
        assert len(opened.consumers) == 1


async def test_a_refusal_and_a_truncation_concern_every_reader() -> None:
    """Both are true wherever it reads: the permission is missing, or its log is another one."""
    shared = _Shared()
    _, ahead = shared.reader(FetchStart(1, 100))
    _, behind = shared.reader(FetchStart(7, 90))
    fetch_id = shared.thread.fetches[A].fetch_id
    shared.consumer.deliver([Unreadable(A, fetch_id, 90, "r", refused=True)])
    shared.consumer.deliver([OutOfRange(A, fetch_id, 90, "r", 50)])
    assert ahead == [Unreadable(A, 1, 90, "r", refused=True), OutOfRange(A, 1, 90, "r", 50)]
    assert behind == [Unreadable(A, 7, 90, "r", refused=True), OutOfRange(A, 7, 90, "r", 50)]


@pytest.mark.parametrize("marker", [False, True])
async def test_a_reader_whose_log_was_cut_ahead_of_the_fetch_moves_out(
    marker: bool,
) -> None:
    """What comes before its offset has a later epoch than what it has read there."""
    shared = _Shared()
    ahead, of_ahead = shared.reader(FetchStart(1, 100, 2))
    behind, of_behind = shared.reader(FetchStart(7, 90, 2))
    unknown, _ = shared.reader(FetchStart(8, 90))
    fetch_id = shared.thread.fetches[A].fetch_id
    kept = run_of(A, fetch_id, [90, 91], 2)
    cut = PassedTo(A, fetch_id, 100, 3) if marker else run_of(A, fetch_id, [92, 101], 3)
    shared.consumer.deliver([kept, cut])
    assert ahead.moved
    assert shared.continued == {A: FetchStart(1, 100, 2)}
    assert of_ahead == []
    assert len(of_behind) == 2
    assert not behind.moved
    assert not unknown.moved


async def test_a_reader_ahead_of_a_new_leader_stays() -> None:
    """Its records are in the log, and what follows them is of a later epoch."""
    shared = _Shared()
    ahead, of_ahead = shared.reader(FetchStart(1, 100, 2))
    shared.reader(FetchStart(7, 90, 2))
    fetch_id = shared.thread.fetches[A].fetch_id
    shared.consumer.deliver([run_of(A, fetch_id, [98, 99], 2), run_of(A, fetch_id, [100], 3)])
    assert not ahead.moved
    assert len(of_ahead) == 1


@pytest.mark.parametrize(
    ("offset", "epoch", "stays"),
    [
        (100, 3, True),
        (100, 2, False),
        (100, 4, False),
        (100, -1, True),
        (99, 2, True),
        (99, 4, False),
    ],
)
async def test_a_member_that_has_read_another_log_than_the_readers_moves_out(
    offset: int,
    epoch: int,
    stays: bool,
) -> None:
    """The leader epochs before two offsets rise with them, if both are of one log."""
    shared = _Shared()
    shared.reader(FetchStart(1, 100, 3))
    member, _ = shared.reader(FetchStart(7, offset, epoch))
    assert member.moved is not stays


async def test_a_truncation_does_not_concern_who_has_read_the_new_log() -> None:
    """The log was compared with what is before the fetch, which was written before it was cut."""
    shared = _Shared()
    _, ahead = shared.reader(FetchStart(1, 100, 3))
    second, behind = shared.reader(FetchStart(7, 90, 2))
    fault = OutOfRange(A, shared.thread.fetches[A].fetch_id, 90, "r", 50)
    shared.consumer.deliver([fault])
    assert (ahead, behind) == ([], [OutOfRange(A, 7, 90, "r", 50)])
    second.stop([A])
    assert attrs.astuple(shared.thread.fetches[A])[1:] == (100, 3)


async def test_each_reader_of_a_truncated_log_goes_on_where_it_was_cut() -> None:
    """One that was given nothing that was cut off reads on; another one gets the fault."""
    opened = Opened()
    async with members(opened, 2) as (slow, quick):
        read(slow, A)
        read(quick, A)
        consumer = opened.consumers[0]
        consumer.feed(*(record(A, at) for at in range(10)))
        assert await offsets(quick, A, 10) == list(range(10))
        assert (await slow.receive(1, [A], 4)).next_offset == 4
        consumer.feed(truncation(A, 10, 6))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await quick.receive(1, [A], 1)
        assert caught.value.divergent_offset == 6
        await consumer.until(lambda: consumer.calls[-1] == ("assign", [(0, 4)]))
        consumer.feed(*(record(A, at) for at in range(4, 7)))
        assert await offsets(slow, A, 3) == [4, 5, 6]
        quick.seek(1, A, 6)
        await consumer.until(lambda: consumer.calls[-1] == ("assign", [(0, 6)]))
        consumer.feed(record(A, 6), record(A, 7))
        assert await offsets(quick, A, 2) == [6, 7]
        assert await offsets(slow, A, 1) == [7]
        assert len(opened.consumers) == 1


async def test_a_member_moves_out_once_if_a_fault_and_its_records_both_make_it() -> None:
    """With much to read again and much that has come, it gets one Consumer of its own."""
    opened = Opened()
    async with members(opened, 2) as (far, near):
        read(far, A)
        read(near, A)
        consumer = opened.consumers[0]
        some = BUSY_RECORDS + 1
        consumer.feed(*(record(A, at) for at in range(some)), truncation(A, some, 6))
        own = await opened.second()
        assert ("assign", [(0, 0)]) in own.calls
        own.feed(record(A, 0))
        assert await offsets(far, A, 1) == [0]


async def test_a_member_that_reads_much_moves_out_where_its_records_continue() -> None:
    """It gets each record once, in order; the other members stay where they are."""
    opened = Opened()
    async with members(opened, 2) as (busy, quiet):
        read(busy, A)
        read(quiet, B)
        some = BUSY_RECORDS + 1
        opened.consumers[0].feed(*(record(A, at) for at in range(some)), record(B, 0))
        assert await offsets(busy, A, some) == list(range(some))
        own = await opened.second()
        assert own.calls == [("assign", [(0, some)])]
        assert own.settings["group.id"] == "g0"
        own.feed(record(A, some))
        opened.consumers[0].feed(record(A, some), record(A, some + 1))  # fetched before the move
        assert await offsets(busy, A, 1) == [some]
        assert await offsets(quiet, B, 1) == [0]
        assert busy._limits.records == 0


async def test_a_member_whose_buffer_is_full_moves_out() -> None:
    """A member that does not read cannot make the shared thread buffer more and more for it."""
    opened = Opened()
    async with members(opened, 1, max_buffered_records=40) as (member,):
        read(member, A)
        opened.consumers[0].feed(*(record(A, at) for at in range(10)))
        own = await opened.second()
        own.feed(record(A, 10))
        assert await offsets(member, A, 11) == list(range(11))
        own.feed(record(A, 11))
        assert await offsets(member, A, 1) == [11]
        shared = opened.consumers[0]
        await shared.until(lambda: ("close", None) in shared.calls)


async def test_a_member_that_moves_out_while_another_gets_its_share() -> None:
    """A handler of the other's fault seeks: what had arrived for the member by then is not lost."""
    CONSUMERS.set(Consumers(most_own=0))
    opened = Opened()
    moving = source(opened, "g1")
    config = GroupConfig(group_id="g0", bootstrap_servers="h:1", topics=["t"])

    def seek(*_: object) -> None:
        moving.seek(1, A, 10_000)

    other = LibrdkafkaSource(config, seek, open_consumer=opened.open)
    with trio.fail_after(PATIENCE):
        async with other, moving:
            read(other, A)
            read(moving, A, B)
            shared = opened.consumers[0]
            await shared.until(lambda: {(0, 0), (1, 0)} <= assigned(shared))
            shared.feed(failure(None, KafkaError._TRANSPORT), record(B, 0), record(B, 1))
            own = await opened.second()
            own.feed(record(B, 2))
            assert await offsets(moving, B, 3) == [0, 1, 2]
            assert moving._limits.records == 0


def assigned(consumer: ScriptedConsumer) -> set[Any]:
    """What has been assigned to a Consumer so far."""
    return {one for name, ones in consumer.calls if name == "assign" for one in ones}


@contextmanager
def no_more_threads() -> Iterator[None]:
    """A block in which no thread that reads records can be started."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("kgroup-records"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


async def test_a_member_cannot_move_out_for_want_of_a_thread() -> None:
    """It alone fails, until its next generation; the event loop and the other members go on."""
    opened = Opened()
    async with members(opened, 2) as (busy, quiet):
        read(busy, A)
        read(quiet, B)
        many = [record(A, at) for at in range(BUSY_RECORDS + 1)]
        with no_more_threads():
            opened.consumers[0].feed(*many, record(B, 0))
            with pytest.raises(FetchError, match="kgroup-records-g0 could not be started"):
                await offsets(busy, A, len(many) + 1)
            assert await offsets(quiet, B, 1) == [0]
        busy.assign(2, {A: 1000})
        busy.open(2, [A])
        shared = opened.consumers[0]
        await shared.until(lambda: ("assign", [(0, 1000)]) in shared.calls)
        shared.feed(record(A, 1000))
        batch = await busy.receive(2, [A], 1)
        assert batch.next_offset == 1001


@pytest.mark.parametrize("most_own", [0, 1])
async def test_a_member_cannot_start_for_want_of_a_thread(most_own: int) -> None:
    """It fails, and leaves nothing behind for the members that start later."""
    consumers = Consumers(most_own=most_own)
    CONSUMERS.set(consumers)
    with no_more_threads(), pytest.raises(FetchError, match="started: can't start new thread"):
        await source(Opened(), "g").__aenter__()
    assert not consumers.own
    assert not consumers.shared


async def test_records_between_generations_wait_for_the_next_one() -> None:
    """What arrives for a kept partition between two generations is handed out, each record once."""
    opened = Opened()
    async with members(opened, 1) as (member,):
        read(member, A)
        consumer = opened.consumers[0]
        consumer.feed(record(A, 0))
        assert await offsets(member, A, 1) == [0]
        member.revoke(1)
        consumer.feed(record(A, 1))
        await consumer.until(lambda: not consumer.messages)
        member.assign(2, {A: 1})
        member.open(2, [A])
        batch = await member.receive(2, [A], 10)
        assert [message.offset() for message in batch.messages] == [1]
        assert [call for call in consumer.calls if call[0] == "assign"] == [("assign", [(0, 0)])]


async def test_the_last_member_ends_the_thread() -> None:
    """Members come and go; the Consumer is closed by the last one, and a later one gets another."""
    opened = Opened()
    CONSUMERS.set(Consumers(most_own=0))
    first, second = source(opened, "g0"), source(opened, "g1")
    with trio.fail_after(PATIENCE):
        await first.__aenter__()
        async with second:
            read(first, A)
            await opened.consumers[0].until(lambda: bool(opened.consumers[0].calls))
            await first.__aexit__()
            assert ("close", None) not in opened.consumers[0].calls
            assert threads() == {"kgroup-records-shared"}
        assert opened.consumers[0].calls == [
            ("assign", [(0, 0)]),
            ("unassign", [0]),
            ("close", None),
        ]
        assert threads() == set()
        async with source(opened, "g2"):
            assert len(opened.consumers) == 2


async def test_when_the_shared_consumer_breaks_all_continue_with_another() -> None:
    """Each reader gets the error; from the next generation on they share a Consumer again."""
    opened = Opened()
    async with members(opened, 2) as both:
        for member, partition in zip(both, (A, B), strict=True):
            read(member, partition)
        opened.consumers[0].feed(failure(None, KafkaError._FATAL))
        for member, partition in zip(both, (A, B), strict=True):
            with pytest.raises(FetchError):
                await member.receive(1, [partition], 1)
        for member, partition in zip(both, (A, B), strict=True):
            member.assign(2, {partition: 0})
            member.open(2, [partition])
        await opened.consumers[0].until(lambda: ("close", None) in opened.consumers[0].calls)
        opened.consumers[1].feed(record(A, 0), record(B, 0))
        for member, partition in zip(both, (A, B), strict=True):
            assert len(await member.receive(2, [partition], 1)) == 1
        assert len(opened.consumers) == 2


async def test_a_consumer_that_cannot_be_made_fails_whoever_enters() -> None:
    """Each member gets the error of librdkafka, and no thread is left."""
    CONSUMERS.set(Consumers(most_own=0))

    def refuse(_: dict[str, Any]) -> Any:
        raise ValueError("impossible settings")

    config = GroupConfig(group_id="g", bootstrap_servers="h:1", topics=["t"])
    for _ in range(2):
        with pytest.raises(FetchError, match="impossible settings"):
            await LibrdkafkaSource(config, lambda *_: None, open_consumer=refuse).__aenter__()
    assert threads() == set()


async def test_a_shared_consumer_gets_the_addresses_that_its_members_know() -> None:
    """One that replaces it can connect to each broker that a member knows which still uses it."""
    opened = Opened()
    async with members(opened, 3) as (first, second, third):
        first.use_addresses(lambda: {"gone:1"})
        second.use_addresses(lambda: {"h:1", "moved:2"})
        third.use_addresses(lambda: {"moved:2", "new:3"})
        await first.__aexit__(None, None, None)
        assert second._shared is not None
        thread = second._shared.thread
        thread._post(partial(thread._replace_consumer, "NO_BROKER", "as scripted"))
        read(second, A)
        replaced = await opened.second()
        assert replaced.settings["bootstrap.servers"] == "h:1,moved:2,new:3"


async def test_a_member_whose_topic_was_created_again_moves_out() -> None:
    """The other members keep the Consumer that they share."""
    opened = Opened()
    async with members(opened, 2) as (first, second):
        ids = {A.topic: UUID(int=1)}
        first.use_topic_ids(lambda: ids)
        read(first, A)
        read(second, A)
        ids = {A.topic: UUID(int=2)}
        first.assign(2, {A: 0})
        first.open(2, [A])
        own = await opened.second()
        own.feed(record(A, 0))
        assert (await first.receive(2, [A], 1)).next_offset == 1
        assert first._shared is None
        assert second._shared is not None


class _Shared:
    """A ``SharedConsumer`` over a scripted thread, and members that record what they get."""

    def __init__(self) -> None:
        self.thread = _ScriptedThread(BufferLimits(1000, 10**6))
        self.consumer = SharedConsumer(self.thread, self.thread.limits)
        self.continued: Mapping[TopicPartition, FetchStart] = {}
        """What the last member that has moved out was fetching."""

    def member(self, got: list[Any]) -> SharedFetcher:
        """One more member, and where its items go."""

        def take_in(items: Sequence[FetchedItem]) -> None:
            got.extend(items)

        def move_out(_: object) -> None:
            self.continued = member.leave()

        member = SharedFetcher(self.consumer, BufferLimits(1000, 10**6), take_in, move_out)
        return member

    def reader(self, start: FetchStart) -> tuple[SharedFetcher, list[Any]]:
        """A member that reads partition A, and what it gets."""
        got: list[Any] = []
        member = self.member(got)
        member.start({A: start})
        return member, got


class _ScriptedThread(ScriptedFetcher):
    def prepare(self, topics: object, subscribed: object) -> None:
        """Do nothing."""


async def test_what_an_ended_fetch_still_brings_reaches_no_member() -> None:
    """Records that were on their way when a partition changed hands are dropped and counted."""
    shared = _Shared()
    got: list[Any] = []
    old, new = shared.member(got), shared.member(got)
    old.start({A: FetchStart(1, 0)})
    late = run_of(A, shared.thread.fetches[A].fetch_id, [0, 1])
    old.stop([A])
    assert A not in shared.thread.fetches
    new.start({A: FetchStart(1, 100)})
    shared.thread.limits.count_delivered(2, 2)
    shared.consumer.deliver([late])
    assert got == []
    assert shared.thread.limits.records == 0
    shared.consumer.deliver([run_of(A, shared.thread.fetches[A].fetch_id, [100])])
    assert [(run.fetch_id, len(run.messages)) for run in got] == [(1, 1)]


async def test_whoever_goes_on_alone_knows_the_leader_epoch_of_what_it_has_read() -> None:
    """It moves out with that epoch, and the others' fetch begins again with theirs."""
    shared = _Shared()
    first, _ = shared.reader(FetchStart(7, 90, 2))
    assert shared.thread.fetches[A].leader_epoch == 2
    second, _ = shared.reader(FetchStart(8, 90, 2))
    shared.consumer.deliver([run_of(A, shared.thread.fetches[A].fetch_id, [90, 91], 3)])
    third, _ = shared.reader(FetchStart(9, 80, 1))
    assert attrs.astuple(shared.thread.fetches[A])[1:] == (80, 1)
    assert first.leave() == {A: FetchStart(7, 92, 3)}
    assert third.leave() == {A: FetchStart(9, 80, 1)}
    assert attrs.astuple(shared.thread.fetches[A])[1:] == (92, 3)
    shared.consumer.deliver([PassedTo(A, shared.thread.fetches[A].fetch_id, 95, 4)])
    assert second.leave() == {A: FetchStart(8, 95, 4)}


async def test_what_is_no_record_is_passed_by_those_who_have_not() -> None:
    """Each reader learns of it under its fetch id, unless it is further on already."""
    shared = _Shared()
    first, of_first = shared.reader(FetchStart(7, 0))
    _, of_second = shared.reader(FetchStart(8, 0))
    of_thread = shared.thread.fetches[A].fetch_id
    shared.consumer.deliver([PassedTo(A, of_thread, 3), PassedTo(A, of_thread, 3)])
    assert (of_first, of_second) == ([PassedTo(A, 7, 3)], [PassedTo(A, 8, 3)])
    assert first.leave() == {A: FetchStart(7, 3)}
    shared.consumer.deliver([PassedTo(A, of_thread - 1, 5)])
    assert of_second == [PassedTo(A, 8, 3)]


async def test_faults_reach_those_whom_they_concern() -> None:
    """A partition's fault reaches its readers, under their fetch ids; a broker's reaches all."""
    shared = _Shared()
    got: dict[str, list[Any]] = {"first": [], "second": []}
    first = shared.member(got["first"])
    shared.member(got["second"])
    first.start({A: FetchStart(7, 0)})
    of_thread = shared.thread.fetches[A].fetch_id
    down = FetchFailure(None, "_TRANSPORT", "refused")
    shared.consumer.deliver([OutOfRange(A, of_thread, 0, "r"), FetchFailure(A, "X", "r"), down])
    assert got["first"] == [OutOfRange(A, 7, 0, "r"), FetchFailure(A, "X", "r"), down]
    assert got["second"] == [down]


async def test_the_shared_thread_resumes_once_its_deliveries_are_taken_in() -> None:
    """Only what the event loop has not taken in yet stops the thread, and not for longer."""
    shared = _Shared()
    member = shared.member([])
    member.start({A: FetchStart(1, 0)})
    run: FetchedRun = run_of(A, shared.thread.fetches[A].fetch_id, range(400))
    shared.thread.count(run)
    limits = shared.thread.limits
    states = [limits.stopped]
    shared.consumer.deliver([run])
    states.append(limits.stopped)
    assert states == [True, False]
    assert shared.thread.resumed == 1


@pytest.mark.parametrize("most_own", [0, 1])
async def test_a_refusal_is_raised_once_and_reading_resumes(most_own: int) -> None:
    """Who may not read a topic gets one error that says so, and later the records, if it may."""
    opened = Opened()
    async with members(opened, 1, most_own=most_own) as (member,):
        read(member, A)
        consumer = opened.consumers[0]
        consumer.feed(failure(A, KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(
            AuthorizationError, match="t-0 cannot be read: .* grant the user READ on topic 't'"
        ):
            await member.receive(1, [A], 10)
        with trio.move_on_after(0.1) as waiting:
            await member.receive(1, [A], 10)
        assert waiting.cancelled_caught
        consumer.feed(failure(A, KafkaError.TOPIC_AUTHORIZATION_FAILED), record(A, 0))
        assert await offsets(member, A, 1) == [0]
