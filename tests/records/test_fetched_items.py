"""What a Consumer's messages and errors become, by a thread with a scripted Consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message

from kgroup.errors import AuthorizationError, FetchError, OffsetOutOfRangeError
from kgroup.records import consumer_fetches, consumer_thread, fetched_items
from kgroup.types import TopicPartition
from tests.records.scripted import failure, record, truncation
from tests.records.test_consumer_thread import A, B, Clock, ScriptedConsumer, obeyed, running


async def test_markers_behind_records_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers that arrive with records belong to their batch; what comes later is no lag."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0, B: 5})
        source.open(1, [A, B])
        await obeyed(source)
        consumer.watermarks, consumer.positions = {0: 3, 1: 6}, {0: 3, 1: 6}
        consumer.feed(record(A, 0), record(B, 5), record(A, 1))
        batches = {
            one.partition: one for one in [await source.receive(1, [A, B], 10) for _ in range(2)]
        }
        assert {name: batch.next_offset for name, batch in batches.items()} == {A: 3, B: 6}
        consumer.positions = {0: 9, 1: 6}
        consumer.watermarks = {0: 9, 1: 6}
        await consumer.until(lambda: source.lag(1) == {A: 0, B: 0})
        consumer.feed(record(A, 9))
        batch = await source.receive(1, [A], 10)
        assert (batch.start_offset, batch.next_offset) == (3, 10)


async def test_what_cannot_be_read_is_not_passed() -> None:
    """librdkafka goes on behind a damaged batch; what it has returned by then is not believed."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        await obeyed(source)
        consumer.watermarks = consumer.positions = {0: 9}
        consumer.feed(record(A, 0), failure(A, KafkaError._BAD_MSG, 1), record(A, 8))
        assert (await source.receive(1, [A], 10)).next_offset == 1
        with pytest.raises(FetchError):
            await source.receive(1, [A], 10)


async def test_high_watermarks_come_from_librdkafkas_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One is read with each run, and now and then without records; before a response, none is."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0, B: 5})
        source.open(1, [A, B])
        await consumer.until(lambda: consumer.polls > 1)
        assert source.lag(1) == {A: None, B: None}
        consumer.watermarks = {0: 9, 1: 5}
        consumer.feed(record(A, 0), record(A, 1))
        batch = await source.receive(1, [A], 10)
        assert batch.high_watermark == 9
        consumer.watermarks_fail = True
        consumer.feed(record(A, 2))
        batch = await source.receive(1, [A], 10)
        assert batch.high_watermark == 9  # the one before
        consumer.watermarks_fail = False
        polls = consumer.polls
        await consumer.until(lambda: consumer.polls > polls + 1)
        assert source.lag(1) == {A: 6, B: 0}
        assert source.lag(2) == {}  # of another generation
        source.assign(2, {B: 7})  # another position, so another fetch
        await obeyed(source)
        assert source.lag(2) == {B: None}


async def test_an_error_out_of_range_is_verified_by_another_fetch() -> None:
    """The first such error starts another fetch; the second one is raised."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 50})
        source.open(1, [A])
        consumer.feed(failure(A, KafkaError._AUTO_OFFSET_RESET, 50))
        await consumer.until(lambda: len(consumer.calls) == 3)
        assert consumer.calls[1:] == [("unassign", [0]), ("assign", [(0, 50)])]
        consumer.feed(failure(A, KafkaError._AUTO_OFFSET_RESET, 50))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await source.receive(1, [A], 1)
        assert (caught.value.partition, caught.value.offset) == (A, 50)


async def test_a_truncation_is_believed_at_once() -> None:
    """Another fetch would succeed in the other log; the error says where the log was cut."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        consumer.feed(*(record(A, at) for at in range(10)))
        assert (await source.receive(1, [A], 10)).next_offset == 10
        consumer.feed(truncation(A, 10, 4))
        with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 4") as caught:
            await source.receive(1, [A], 10)
        assert (caught.value.offset, caught.value.divergent_offset) == (10, 4)
        await consumer.until(lambda: consumer.calls[-1] == ("unassign", [0]))
        assert consumer.calls == [("assign", [(0, 0)]), ("unassign", [0])]


AGAIN: Final = [
    ("pause", [0]),
    ("unassign", [0]),
    ("assign", [(0, 10)]),
    ("pause", [0]),
    ("resume", [0]),
]
"""The calls for a fetch that librdkafka has ended: it is paused until the log is compared."""


@pytest.mark.parametrize("seeks_fail", [0, 1, 3, 1000])
async def test_a_fetch_that_begins_behind_a_later_epoch_compares_the_log(
    monkeypatch: pytest.MonkeyPatch, seeks_fail: int
) -> None:
    """Nothing is handed out before that; afterwards all is, whether or not it could be compared."""
    monkeypatch.setattr(consumer_fetches, "MOST_SEEKS", 5)
    consumer = ScriptedConsumer()
    consumer.seeks_fail = seeks_fail
    async with running(consumer) as source:
        source.assign(1, {A: 10, B: 10}, {A: 2, B: 3})
        source.open(1, [A, B])
        consumer.feed(*(record(one, at, leader_epoch=3) for one in (A, B) for at in (10, 11)))
        assert (await source.receive(1, [A, B], 10)).partition == B
        tries = 1 + min(seeks_fail, 5)
        await consumer.until(lambda: consumer.compared == tries * [(0, 10, 2)])
        await obeyed(source)
        assert consumer.calls[1:] == (AGAIN if seeks_fail else [])
        consumer.feed(*(record(A, at, leader_epoch=3) for at in (10, 11)))
        assert (await source.receive(1, [A], 10)).next_offset == 12
        consumer.feed(record(A, 12, leader_epoch=4))  # librdkafka compares when a leader changes
        assert (await source.receive(1, [A], 10)).next_offset == 13
        assert len(consumer.compared) == tries


async def test_many_fetches_that_have_ended_begin_again_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call ends all and one begins them; the attempts to seek are those of one partition."""
    waits: list[float] = []
    monkeypatch.setattr(consumer_fetches, "MOST_SEEKS", 5)
    monkeypatch.setattr(consumer_fetches, "time", SimpleNamespace(sleep=waits.append))
    consumer = ScriptedConsumer()
    consumer.seeks_fail = 1000
    async with running(consumer) as source:
        source.assign(1, {A: 10, B: 20}, {A: 2, B: 2})
        source.open(1, [A, B])
        consumer.feed(*(failure(one, KafkaError._AUTO_OFFSET_RESET, 50) for one in (A, B)))
        await consumer.until(lambda: len(consumer.compared) == 2 * 6)
        await obeyed(source)
        assert consumer.calls[1:] == [
            ("pause", [0, 1]),
            ("unassign", [0, 1]),
            ("assign", [(0, 10), (1, 20)]),
            ("pause", [0, 1]),
            ("resume", [0, 1]),
        ]
        assert len(waits) == 5


async def test_a_fetch_that_begins_behind_a_marker_of_a_later_epoch_compares_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log may have been cut there as well as where records follow."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 10}, {A: 2})
        source.open(1, [A])
        await obeyed(source)
        consumer.position_epoch = 3
        consumer.watermarks = consumer.positions = {0: 11}
        await consumer.until(lambda: consumer.compared == [(0, 10, 2)])
        consumer.positions = {}
        consumer.feed(truncation(A, 10, 4))
        with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 4"):
            await source.receive(1, [A], 10)


@pytest.mark.parametrize("record_before", [False, True])
@pytest.mark.parametrize("cut", [False, True])
async def test_what_cannot_be_read_where_a_fetch_begins_is_compared_first(
    record_before: bool, cut: bool
) -> None:
    """A log may have been cut before that: a program that passes it would skip the other log."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 10}, {A: 2})
        source.open(1, [A])
        await obeyed(source)
        sound = [record(A, 10, leader_epoch=3)] if record_before else []
        damaged = [*sound, failure(A, KafkaError._BAD_MSG, 10 + len(sound))]
        with consumer.changed:  # in one chunk
            consumer.feed(*damaged)
        await consumer.until(lambda: consumer.compared == [(0, 10, 2)])
        await obeyed(source)
        consumer.feed(*([truncation(A, 10, 4)] if cut else damaged))
        if cut:
            with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 4"):
                await source.receive(1, [A], 10)
            return
        if record_before:
            assert (await source.receive(1, [A], 10)).next_offset == 11
        with pytest.raises(FetchError, match=f"at offset {10 + len(sound)}: _BAD_MSG"):
            await source.receive(1, [A], 10)
        assert consumer.compared == [(0, 10, 2)]


async def test_a_refusal_is_not_compared() -> None:
    """It says nothing of the log, and a comparison would be refused too."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 10}, {A: 2})
        source.open(1, [A])
        consumer.feed(failure(A, KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(AuthorizationError):
            await source.receive(1, [A], 10)
        assert consumer.compared == []


async def test_an_offset_past_the_end_is_verified_by_a_comparison() -> None:
    """A log that was cut and has not grown past the offset yet was cut, and is not another one."""
    consumer = ScriptedConsumer()
    consumer.seeks_fail = 1  # librdkafka has ended the fetch
    async with running(consumer) as source:
        source.assign(1, {A: 50}, {A: 2})
        source.open(1, [A])
        consumer.feed(failure(A, KafkaError._AUTO_OFFSET_RESET, 50))
        await consumer.until(lambda: consumer.compared == 2 * [(0, 50, 2)])
        consumer.feed(truncation(A, 50, 30))
        with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 30"):
            await source.receive(1, [A], 1)


async def test_a_log_without_any_known_epoch_leaves_it_to_the_policy() -> None:
    """It is believed at once too, but there is no offset at which reading could go on."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 10})
        source.open(1, [A])
        consumer.feed(truncation(A, 10, -1))
        with pytest.raises(OffsetOutOfRangeError, match="outside of the log") as caught:
            await source.receive(1, [A], 10)
        assert (caught.value.offset, caught.value.divergent_offset) == (10, None)


@pytest.mark.parametrize("end", [4, 70])
async def test_a_truncation_of_another_fetch_is_not_raised(end: int) -> None:
    """One that an earlier fetch met, or that cut off nothing that arrived, is fetched past."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 60})
        source.open(1, [A])
        for turn in range(1, 3):
            consumer.feed(truncation(A, 59 if end == 4 else 100, end))
            await consumer.until(lambda turn=turn: len(consumer.calls) == 1 + 2 * turn)  # type: ignore[misc]
            assert consumer.calls[-2:] == [("unassign", [0]), ("assign", [(0, 60)])]
        consumer.feed(record(A, 60))
        assert (await source.receive(1, [A], 10)).next_offset == 61


@pytest.mark.parametrize("offsets", [[0, 1, 2, 1, 2, 3], [0, 1, 2, 2], [0, 1, 2, 0, 3]])
async def test_records_out_of_order_are_not_handed_out(offsets: list[int]) -> None:
    """What librdkafka makes of a malformed batch is an error from the first such record on."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        consumer.feed(*(record(A, at) for at in offsets), record(B, 0), record(A, 1))
        assert [m.offset() for m in (await source.receive(1, [A], 10)).messages] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(FetchError, match="3 was next") as caught:
                await source.receive(1, [A], 10)
            assert caught.value.partition == A
        assert (await source.receive(1, [B], 10)).next_offset == 1


async def test_records_before_an_unreadable_one_come_first_and_none_after_it() -> None:
    """A corrupt batch fails its partition; no record after it is handed out."""
    consumer = ScriptedConsumer()
    async with running(consumer) as source:
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        consumer.feed(record(A, 0), failure(A, KafkaError._BAD_MSG, 1), record(A, 2), record(B, 0))
        assert (await source.receive(1, [A], 10)).next_offset == 1
        for _ in range(2):
            with pytest.raises(FetchError, match="t-0 cannot be read at offset 1: ") as caught:
                await source.receive(1, [A], 10)
            assert caught.value.partition == A
        assert (await source.receive(1, [B], 10)).next_offset == 1


async def test_a_fault_that_passes_is_reported_once_and_raises_nothing() -> None:
    """Errors that are retried are reported once, not each time that librdkafka repeats them."""
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        report = consumer.settings["error_cb"]
        for _ in range(3):
            report(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
            report(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "t [0]: topic does not exist"))
        consumer.feed(record(A, 0))
        await source.receive(1, [A], 1)
        consumer.feed(record(A, 1))
        await source.receive(1, [A], 1)
    assert [partition for partition, _ in faults] == [None, A]
    assert "brokers are down" in faults[0][1]


async def test_of_the_errors_of_an_outage_one_of_each_kind_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand errors that nothing takes along become one item of each code and partition."""
    clock = Clock(monkeypatch)
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    poll = consumer.poll

    def poll_with_errors(timeout: float) -> Message | None:
        for number in range(1000):
            for text in (f"attempt {number}", f"t [1]: attempt {number}"):
                consumer.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, text))
        consumer.settings["error_cb"](KafkaError(KafkaError._RESOLVE, "no such host"))
        return poll(timeout)

    async with running(consumer, faults) as source:
        consumer.poll = poll_with_errors  # type: ignore[method-assign] # of this one
        clock.seconds += consumer_thread.IDLE_POLL
        await obeyed(source)
        assert len(source._thread._items._callback_errors) == 3
        consumer.poll = poll  # type: ignore[method-assign] # as it was
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        consumer.feed(record(A, 0))
        await source.receive(1, [A], 10)
    assert [partition for partition, _ in faults] == [None, B, None]
    assert faults[0][1].endswith("attempt 999")


async def test_an_error_of_a_partition_that_is_not_read_any_more_is_not_reported() -> None:
    """librdkafka may say late, in another generation, that a deleted topic does not exist."""
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    async with running(consumer, faults) as source:
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        await obeyed(source)
        source.revoke(1)
        source.assign(2, {A: 0})
        source.open(2, [A])
        await obeyed(source)
        for text in ("t [1]: topic does not exist", "t [0]: topic does not exist"):
            consumer.settings["error_cb"](KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, text))
        consumer.feed(record(A, 0))
        await source.receive(2, [A], 10)
    assert [partition for partition, _ in faults] == [A]


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
async def test_a_partition_that_stands_still_is_reported_once(
    isolation_level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log goes on and nothing arrives without an error, an event says where and what for."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    consumer.watermarks = {0: 5, 1: 7}
    async with running(consumer, faults, isolation_level=isolation_level) as source:
        source.assign(1, {A: 0, B: 7})
        source.open(1, [A, B])
        await consumer.until(lambda: consumer.polls > 3 * fetched_items.STANDSTILL)
        await obeyed(source)
        ((partition, reason),) = faults
        assert partition == A
        assert "nothing has arrived from offset 0 on" in reason
        assert "the log goes on to 5: " in reason
        assert ("a transaction is open there" in reason) == (isolation_level == "read_committed")


async def test_a_partition_without_any_answer_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka says nothing of a leader that refuses each Fetch; later it may stand still."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    consumer.watermarks = {1: 7}
    async with running(consumer, faults) as source:
        source.assign(1, {A: 3, B: 7})
        source.open(1, [A, B])
        await consumer.until(lambda: consumer.polls > 3 * fetched_items.STANDSTILL)
        await obeyed(source)
        ((partition, reason),) = faults
        assert partition == A
        assert "no broker has answered a Fetch from offset 3 on" in reason
        for watermark, reported in ((3, 1), (5, 2)):
            consumer.watermarks = {0: watermark, 1: 7}
            polls = consumer.polls
            await consumer.until(lambda: consumer.polls > polls + 3 * fetched_items.STANDSTILL)  # noqa: B023
            await obeyed(source)
            assert len(faults) == reported
    assert "the log goes on to 5: " in faults[1][1]


async def test_between_generations_no_partition_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is polled then, so that nothing can arrive."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    monkeypatch.setattr(fetched_items, "WATERMARKS_PER_SECOND", 1_000_000)
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    consumer.watermarks = {0: 5}
    async with running(consumer, faults) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        await consumer.until(lambda: consumer.polls > 3)
        source.revoke(1)
        for _ in range(3 * fetched_items.STANDSTILL):
            await obeyed(source)
    assert faults == []


async def test_a_partition_that_waits_for_its_turn_does_not_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition whose records come now and then, or whose fetch is held back, has no fault."""
    monkeypatch.setattr(fetched_items, "WATERMARKS", 0.0)
    consumer = ScriptedConsumer()
    faults: list[tuple[TopicPartition | None, str]] = []
    consumer.watermarks = {0: 1000, 1: 1000}
    async with running(consumer, faults) as source:
        source.assign(1, {A: 0, B: 0})
        source.open(1, [A, B])
        await obeyed(source)
        source._thread.hold([B])
        almost = fetched_items.STANDSTILL - 5

        async def wait_and_read(offset: int) -> None:
            before = consumer.polls
            await consumer.until(lambda: consumer.polls > before + almost)
            consumer.feed(record(A, offset))
            await source.receive(1, [A], 10)

        for offset in range(5):
            await wait_and_read(offset)
        await obeyed(source)
    assert faults == []
