"""Attempts, pauses and dead letters in threads, and dead letters on trio."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

import kgroup
from kgroup import DeadLetterError, DeadLetters, batch_handler
from kgroup.errors import ArgumentError, CommitFailedError, UsageError
from kgroup.events import (
    DeadLetterTopicMissing,
    Event,
    GenerationEnded,
    ParkingFailed,
    RecordFailed,
    RecordParked,
    RetriesEnded,
)
from kgroup.interfaces import Message
from kgroup.testing import admin
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import Generation, retrying, serve
from tests.brokers import EMBEDDED, Kafka, unique
from tests.test_dead_letters import AWAY, Scripted, letters_by
from tests.test_retries import logged
from tests.threaded.harness import SOON, Harness, RecordedEvents, thread, wait

once = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
"""For tests that are the same on every broker."""
SENT: Final[dict[str, Any]] = {
    "key": b"key",
    "value": b"wrong",
    "headers": [("own", b"header"), ("none", None)],
}


def produced(here: Harness) -> None:
    """Write three records to the only partition; the second one is wrong."""
    admin.create_topic(here.bootstrap_servers, here.topic, 1)
    producer = Producer({"bootstrap.servers": here.bootstrap_servers})
    producer.produce(here.topic, value=b"0")
    producer.produce(here.topic, **SENT)
    producer.produce(here.topic, value=b"2")
    assert producer.flush(SOON) == 0


def producer_for(servers: str) -> Producer:
    """A producer for dead letters; it logs nothing, also when its broker is gone."""
    return Producer({"bootstrap.servers": servers, "log_level": 0})


def letters(here: Harness, topic: str) -> Sequence[Any]:
    """All records of a topic with one partition."""
    consumer = Consumer(
        {"bootstrap.servers": here.bootstrap_servers, "group.id": unique("letters")}
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SOON)
        consumer.assign([TopicPartition(topic, 0, low)])
        return consumer.consume(high - low, SOON)
    finally:
        consumer.close()


def check(here: Harness, topic: str) -> None:
    """Check that the wrong record is the only dead letter, with everything it had."""
    (letter,) = letters(here, topic)
    assert (letter.key(), letter.value()) == (SENT["key"], SENT["value"])
    headers = letter.headers()
    assert isinstance(headers, list)
    assert headers[:2] == SENT["headers"]
    added = dict(headers[2:])
    assert int(added.pop("dead_letter.timestamp")) > 0
    assert added == {
        "dead_letter.topic": here.topic.encode(),
        "dead_letter.partition": b"0",
        "dead_letter.offset": b"1",
        "dead_letter.group_id": here.group_id.encode(),
        "dead_letter.attempts": b"2",
        "dead_letter.error": b"ValueError: it is wrong",
    }
    assert here.committed() == 3


@once
def test_a_seek_past_a_record_that_keeps_failing(kafka: Kafka) -> None:
    """It is not tried again, and the pause in which another thread seeks ends at once."""
    here = Harness(kafka)
    produced(here)
    found: list[int | None] = []

    def handle(generation: Generation, message: Message) -> None:
        found.append(message.offset())
        if message.value() == SENT["value"]:
            threading.Timer(0.0, generation.seek, (here.partition(0), 2)).start()
            raise ValueError("poison")
        if message.offset() == 2:
            group.shutdown(promptly=True)

    with here.group() as group:
        serve(group, retrying(handle, attempts=9, backoff=1e4, backoff_max=1e4))
    assert found == [0, 1, 2]
    assert here.committed() == 3


@once
def test_a_seek_in_a_loop_of_the_programs_own(kafka: Kafka) -> None:
    """What was sought is returned, so that the loop does not commit what was left of the batch."""
    here = Harness(kafka)
    produced(here)
    left: list[int | None] = []
    sought: list[int] = []

    def handle(generation: Generation, message: Message) -> None:
        if message.value() == SENT["value"]:
            generation.seek(here.partition(0), 0)
            sought.append(0)
            raise ValueError("poison")

    process = retrying(handle, backoff=1e4, backoff_max=1e4)

    def read(generation: Generation) -> None:
        for batch in generation.records():
            left.append(process(generation, batch))
            if sought:
                group.shutdown(promptly=True)
                return

    with here.group() as group:
        for generation in group:
            read(generation)
    assert left[-1:] == sought


@once
def test_a_seek_past_a_dead_letter_that_cannot_be_written(kafka: Kafka) -> None:
    """It is not written again from there, nor reported as parked; the partition goes on at once."""
    here = Harness(kafka)
    produced(here)
    producer = Scripted(AWAY)
    current: list[Generation] = []
    recorded: list[RecordParked] = []

    def handle(generation: Generation, message: Message) -> None:
        current[:] = [generation]
        if message.value() == SENT["value"]:
            raise ValueError("poison")
        if message.offset() == 2:
            group.shutdown(promptly=True)

    def on_event(event: Event) -> None:
        if isinstance(event, RecordParked):
            recorded.append(event)
        if isinstance(event, ParkingFailed):
            seek = (current[0].seek, (here.partition(0), 2))
            threading.Timer(0.1, *seek).start()

    with here.group(on_event) as group:
        park = letters_by(producer)
        serve(group, retrying(handle, attempts=1, backoff=1e4, backoff_max=1e4, park=park))
    assert [value for _, value in producer.written] == [SENT["value"]]
    assert not recorded
    assert here.committed() == 3


def test_a_record_that_keeps_failing_becomes_a_dead_letter(kafka: Kafka) -> None:
    """It is delivered before its offset is committed; the partition goes on, in order."""
    here, recorded = Harness(kafka), RecordedEvents()
    produced(here)
    topic = unique("letters")
    admin.create_topic(here.bootstrap_servers, topic, 1)
    found: list[bytes | None] = []

    def handle(_: Generation, message: Message) -> None:
        found.append(message.value())
        if message.value() == b"wrong":
            raise ValueError("it is wrong")
        if message.value() == b"2":
            group.shutdown(promptly=True)

    park = DeadLetters(producer_for(here.bootstrap_servers), topic)
    with here.group(recorded) as group:
        serve(group, retrying(handle, attempts=2, backoff=0.01, park=park))
    assert found == [b"0", b"wrong", b"wrong", b"2"]
    assert [event.pause for event in recorded.of(RecordFailed)] == [0.01]
    assert [event.offset for event in recorded.of(RecordParked)] == [1]
    check(here, topic)


@once
def test_the_log_has_tracebacks(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """It shows where a record failed first and where it failed last, and once each."""
    here, calls = Harness(kafka), list[int]()
    here.create(1, 1)

    def handle(_: Generation, message: Message) -> None:
        calls.append(message.offset())
        raise ValueError(f"attempt {len(calls)}")

    def park(_: Message, __: Exception) -> None:
        group.shutdown(promptly=True)

    with here.group() as group:
        serve(group, retrying(handle, attempts=3, backoff=0.0, park=park))
    assert logged(caplog) == ["attempt 1", "attempt 3"]


def test_a_failure_that_would_come_again_is_parked_at_once(kafka: Kafka) -> None:
    """There is one attempt, which the dead letter has; the partition goes on."""
    here, recorded = Harness(kafka), RecordedEvents()
    produced(here)
    topic = unique("letters")
    admin.create_topic(here.bootstrap_servers, topic, 1)

    def handle(_: Generation, message: Message) -> None:
        if message.value() == b"wrong":
            raise ValueError("it is wrong")
        if message.value() == b"2":
            group.shutdown(promptly=True)

    park = DeadLetters(producer_for(here.bootstrap_servers), topic)
    with here.group(recorded) as group:
        serve(group, retrying(handle, not_retried=(KeyError, ValueError), park=park))
    assert not recorded.of(RecordFailed)
    assert [event.attempts for event in recorded.of(RecordParked)] == [1]
    (letter,) = letters(here, topic)
    headers = letter.headers()
    assert isinstance(headers, list)
    assert ("dead_letter.attempts", b"1") in headers


@once
def test_dead_letters_on_trio(kafka: Kafka) -> None:
    """The same, with an async function; the event loop does not wait for the delivery."""
    here = Harness(kafka)
    produced(here)
    topic = unique("letters")
    admin.create_topic(here.bootstrap_servers, topic, 1)
    park = DeadLetters(producer_for(here.bootstrap_servers), topic)

    async def main() -> None:
        async def handle(_: kgroup.Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.value() == b"wrong":
                raise ValueError("it is wrong")
            if message.value() == b"2":
                group.shutdown(promptly=True)

        async with kgroup.ConsumerGroup(here.config()) as group:
            await kgroup.serve(group, kgroup.retrying(handle, attempts=2, backoff=0.01, park=park))

    trio.run(main)
    check(here, topic)


@once
@pytest.mark.parametrize("why", ["no such topic", "no broker"])
def test_a_dead_letter_that_is_not_delivered(kafka: Kafka, why: str) -> None:
    """The record is not committed, the worker ends, and the error says which record and why."""
    here = Harness(kafka)
    produced(here)
    servers = here.bootstrap_servers if why == "no such topic" else "127.0.0.1:1"
    producer = producer_for(servers)
    park = DeadLetters(producer, "t", timeout=0.5)
    if why == "no such topic":
        park._topic = "no: topic"  # the broker would create one with a valid name

    def handle(_: Generation, message: Message) -> None:
        if message.value() == b"wrong":
            raise ValueError("it is wrong")

    recorded = RecordedEvents()
    with pytest.raises(ExceptionGroup) as raised, here.group(recorded) as group:
        serve(group, retrying(handle, attempts=1, backoff=0.0, park=park), max_records=1)
    assert len(recorded.of(DeadLetterTopicMissing)) == (why == "no such topic")
    (error,) = raised.value.exceptions
    assert isinstance(error, DeadLetterError)
    assert error.__notes__[0].startswith(f"{park!r} raised this for offset 1 of {here.topic}-0")
    assert f"the record at {here.topic}-0 offset 1 could not be written to topic" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert here.committed() == 1
    producer.purge()


@once
def test_a_worker_that_reads_its_dead_letters(kafka: Kafka) -> None:
    """It ends at its first batch, before it has processed anything."""
    here, processed = Harness(kafka), list[Message]()
    produced(here)

    def handle(_: Generation, message: Message) -> None:
        processed.append(message)

    process = retrying(handle, park=DeadLetters(producer_for(here.bootstrap_servers), here.topic))
    with pytest.raises(ExceptionGroup) as raised, here.group() as group:
        serve(group, process)
    assert raised.group_contains(UsageError, match="would read its own dead letters")
    assert raised.value.exceptions[0].__notes__[0].startswith("<DeadLetters ")
    assert processed == []


@once
def test_a_producer_that_is_away_for_a_moment(kafka: Kafka) -> None:
    """The dead letter is written later, and the partition goes on; an event has the reason."""
    here, recorded, producer = Harness(kafka), RecordedEvents(), Scripted(AWAY, AWAY)
    produced(here)

    def handle(_: Generation, message: Message) -> None:
        if message.value() == b"wrong":
            raise ValueError("it is wrong")
        if message.value() == b"2":
            group.shutdown(promptly=True)

    process = retrying(handle, attempts=1, backoff=0.01, park=letters_by(producer))
    with here.group(recorded) as group:
        serve(group, process)
    assert [value for _, value in producer.written] == [b"wrong"] * 3
    assert [event.pause for event in recorded.of(ParkingFailed)] == [0.01, 0.02]
    assert [event.offset for event in recorded.of(RecordParked)] == [1]
    assert here.committed() == 3


@once
def test_a_pause_before_the_next_dead_letter_ends_with_its_generation(kafka: Kafka) -> None:
    """The record is neither parked nor committed, and what came before it is committed."""
    here, recorded, producer = Harness(kafka), RecordedEvents(), Scripted(AWAY)
    produced(here)

    def handle(_: Generation, message: Message) -> None:
        if message.value() == b"wrong":
            raise ValueError("it is wrong")

    park = letters_by(producer)
    with here.group(recorded) as group:

        def close() -> None:
            recorded.wait(ParkingFailed)
            group.shutdown(promptly=True)

        with thread(close):
            process = retrying(handle, attempts=1, backoff=1e4, backoff_max=1e4, park=park)
            serve(group, process)
    assert here.committed() == 1
    assert [event.offset for event in recorded.of(RetriesEnded)] == [1]
    assert recorded.of(RecordParked) == []


@once
def test_a_pause_ends_with_its_generation(kafka: Kafka) -> None:
    """The drain does not wait for it; what came before is committed, and an event says so."""
    here, failed = Harness(kafka), threading.Event()
    recorded = RecordedEvents()
    produced(here)

    def handle(_: Generation, message: Message) -> None:
        if message.value() == b"wrong":
            failed.set()
            raise ValueError("it is wrong")

    with here.group(recorded) as group:

        def close() -> None:
            wait(failed)
            recorded.wait(RecordFailed)
            group.shutdown(promptly=True)

        with thread(close):
            serve(group, retrying(handle, backoff=SOON * 2, backoff_max=SOON * 2))
    assert [event.offset for event in recorded.of(RetriesEnded)] == [1]
    assert here.committed() == 1


@once
@pytest.mark.parametrize("commit", [True, False])
def test_what_takes_long_is_committed_meanwhile(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, *, commit: bool
) -> None:
    """Between two records, and before the pause of one that has failed; unless nothing is to be."""
    monkeypatch.setattr(batch_handler, "COMMIT_INTERVAL", 0.0)
    here = Harness(kafka)
    produced(here)
    found: list[tuple[bytes | None, int | None]] = []
    recorded = RecordedEvents()

    def handle(_: Generation, message: Message) -> None:
        found.append((message.value(), here.committed()))
        if message.value() == b"wrong" and len(found) == 2:
            raise ValueError("it is wrong")
        if message.value() == b"2":
            group.shutdown(promptly=True)

    with here.group(recorded) as group:
        serve(group, retrying(handle, backoff=0.01), commit=commit)
    values = [b"0", b"wrong", b"wrong", b"2"]
    assert found == list(zip(values, (None, 1, 1, 2) if commit else [None] * 4, strict=True))
    assert here.committed() == (3 if commit else None)
    assert [event.attempts for event in recorded.of(RecordFailed)] == [1]


@once
def test_a_function_that_commits_each_record_before_it_processes_it(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What precedes a record that is tried again is committed already: that is no error."""
    monkeypatch.setattr(batch_handler, "COMMIT_INTERVAL", 0.0)
    here = Harness(kafka)
    produced(here)
    found: list[bytes | None] = []

    def handle(generation: Generation, message: Message) -> None:
        generation.commit({here.partition(0): message.offset() + 1})
        found.append(message.value())
        if found == [b"0", b"wrong"]:
            raise ValueError("it is wrong")
        if message.value() == b"2":
            group.shutdown(promptly=True)

    with here.group() as group:
        serve(group, retrying(handle, backoff=0.01))
    assert found == [b"0", b"wrong", b"wrong", b"2"]
    assert here.committed() == 3


@once
def test_a_generation_that_ends_during_a_commit_before_a_pause(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is not tried again, although its pause is over; an event reports that."""
    monkeypatch.setattr(batch_handler, "COMMIT_INTERVAL", 0.0)
    here, recorded = Harness(kafka), RecordedEvents()
    produced(here)
    found: list[bytes | None] = []

    def handle(_: Generation, message: Message) -> None:
        found.append(message.value())
        if message.value() == b"wrong":
            group.shutdown(promptly=True)
            raise ValueError("it is wrong")

    with here.group(recorded) as group:
        serve(group, retrying(handle, backoff=0.0))
    assert found == [b"0", b"wrong"]
    assert here.committed() == 1
    assert [event.offset for event in recorded.of(RetriesEnded)] == [1]


def test_a_commit_before_a_pause_that_is_refused() -> None:
    """It ends the worker, and an event reports that the record is not tried again."""
    with EmbeddedKafka({"group.initial.rebalance.delay.ms": 0}) as kafka:
        here, recorded = Harness(Kafka(EMBEDDED, kafka.bootstrap_servers)), RecordedEvents()
        produced(here)
        (node,) = kafka.cluster.nodes.values()
        kafka.call(node.inject, "offset_commit", "OFFSET_METADATA_TOO_LARGE")

        def handle(_: Generation, message: Message) -> None:
            if message.value() == b"wrong":
                raise ValueError("it is wrong")

        with pytest.raises(ExceptionGroup) as raised, here.group(recorded) as group:
            serve(group, retrying(handle, backoff=10.0))
    assert isinstance(raised.value.exceptions[0], CommitFailedError)
    assert [event.offset for event in recorded.of(RetriesEnded)] == [1]


@once
def test_attempts_go_on_after_a_rebalance(kafka: Kafka) -> None:
    """The member has kept the partition, so the next generation does not begin to count again."""
    here, other, parked = Harness(kafka), unique("other"), list[int]()
    recorded = RecordedEvents()
    produced(here)
    admin.create_topic(here.bootstrap_servers, other, 1)
    epochs: list[int] = []

    with here.group(recorded) as group:

        def handle(generation: Generation, message: Message) -> None:
            if message.value() != b"wrong":
                return
            epochs.append(generation.epoch)
            if len(epochs) < 3:  # each attempt but the last ends its generation
                group.subscribe([here.topic, other] if len(epochs) == 1 else [here.topic])
                wait(generation.ending)
            raise ValueError("it is wrong")

        def park(message: Message, _: Exception) -> None:
            parked.append(message.offset())
            group.shutdown(promptly=True)

        serve(group, retrying(handle, attempts=3, backoff=0.01, park=park))
    assert parked == [1]
    assert [event.attempts for event in recorded.of(RecordFailed)] == [1, 2]
    assert len(set(epochs)) == 3


@once
def test_a_thread_that_outlasts_its_generation_parks_nothing(kafka: Kafka) -> None:
    """Another member may own the partition by then, and process the record."""
    here, held, freed, parked = Harness(kafka), threading.Event(), threading.Event(), []
    recorded = RecordedEvents()
    produced(here)

    def handle(_: Generation, __: Message) -> None:
        held.set()
        wait(freed)
        raise ValueError("it is wrong")

    def park(message: Message, _: Exception) -> None:
        parked.append(message.offset())

    with here.group(recorded, drain_timeout=0.1) as group:

        def close() -> None:
            wait(held)
            group.shutdown(promptly=True)
            recorded.wait(GenerationEnded)
            freed.set()

        with thread(close):
            serve(group, retrying(handle, attempts=1, park=park))
    assert parked == []
    assert here.committed() is None


@once
def test_what_was_processed_before_a_failure_is_committed(kafka: Kafka) -> None:
    """The exception is raised all the same."""
    here = Harness(kafka)
    produced(here)

    def handle(_: Generation, message: Message) -> None:
        if message.value() == b"2":
            raise ValueError("it is wrong")

    with pytest.raises(ExceptionGroup) as raised, here.group() as group:
        serve(group, retrying(handle, attempts=1), threads=1)
    assert raised.group_contains(ValueError, match="it is wrong")
    assert here.committed() == 2


@once
def test_without_a_place_to_park_the_worker_ends(kafka: Kafka) -> None:
    """The last attempt's exception ends it, with notes; the record is not committed."""
    here = Harness(kafka)
    produced(here)

    def handle(_: Generation, message: Message) -> None:
        raise ValueError("it is wrong")

    with pytest.raises(ExceptionGroup) as raised, here.group() as group:
        serve(group, retrying(handle, attempts=2, backoff=0.0))
    (error,) = raised.value.exceptions
    assert error.__notes__[0].startswith(f"the record at {here.topic}-0 offset 0 failed 2 times")
    assert here.committed() is None


def test_async_functions() -> None:
    """They are refused, as the function and as the place to park."""

    async def handle(*_: object) -> None:
        """Process nothing."""

    with pytest.raises(ArgumentError, match=r"handle=.* it is an async function; kgroup\.retrying"):
        retrying(handle)
    with pytest.raises(ArgumentError, match="park=.* it is an async function"):
        retrying(print, park=handle)


@once
def test_work_that_has_not_been_done(kafka: Kafka) -> None:
    """A record whose function returns a coroutine, in place of a result, is not committed."""
    here = Harness(kafka)
    produced(here)

    async def handle(*_: object) -> None:
        """Process nothing."""

    def fail(*_: object) -> None:
        raise ValueError

    for function in (
        retrying(lambda *_: handle()),
        retrying(fail, attempts=1, park=lambda *_: handle()),
    ):
        with pytest.raises(ExceptionGroup) as raised, here.group() as group:
            serve(group, function)
        assert raised.group_contains(UsageError, match="returned <coroutine object")
        assert here.committed() is None


def test_wrong_arguments() -> None:
    """They are refused when the function, or the place to park, is made."""
    wrong: list[dict[str, Any]] = [
        {"attempts": 0},
        {"not_retried": "ValueError"},
        {"backoff": float("nan")},
        {"backoff_max": -1},
        {"park": 1},
    ]
    for options in wrong:
        with pytest.raises(ArgumentError, match=next(iter(options))):
            retrying(print, **options)
    with pytest.raises(ArgumentError, match="handle"):
        retrying("handle")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"give kgroup.DeadLetters\(producer, 'o.failed'\)"):
        retrying(print, park="o.failed")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="producer"):
        DeadLetters("localhost:9092", "topic")  # type: ignore[arg-type]
    producer = producer_for("127.0.0.1:1")
    with pytest.raises(ArgumentError, match="topic"):
        DeadLetters(producer, 1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="timeout"):
        DeadLetters(producer, "topic", timeout=-1)
    assert repr(DeadLetters(producer, "topic")) == "<DeadLetters 'topic'>"
