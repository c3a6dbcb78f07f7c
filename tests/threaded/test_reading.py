"""Handler threads take their records themselves, by the rules of the event loop."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic

import pytest

from kgroup.background.event_loop import BackgroundLoop
from kgroup.config import GroupConfig
from kgroup.interfaces import Batch
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup, Generation
from kgroup.threaded.records import Records
from kgroup.types import TopicPartition
from tests.brokers import Kafka
from tests.threaded.harness import QUICK, SOON, Harness, wait

RECORDS = 300
BATCH = 3
FIRST = 4
"""The calls into the event loop with which a stream begins, at most."""


class Reader:
    """A handler that reads to the end, and then what follows until its generation ends."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.batches = 0
        self.read_all = threading.Event()
        self.ended = threading.Event()

    def handle(self, generation: Generation, partition: TopicPartition) -> None:
        """Read."""
        for batch in generation.records(partition, max_records=BATCH):
            self.batches += 1
            self.offsets += [message.offset() for message in batch]
            if batch.next_offset == RECORDS:
                self.read_all.set()
        self.ended.set()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of the thread of each call into an event loop."""
    made: list[str] = []
    submit = BackgroundLoop._submit

    def count(loop: BackgroundLoop, *args: object) -> None:
        made.append(threading.current_thread().name)
        submit(loop, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(BackgroundLoop, "_submit", count)
    return made


def test_batches_need_no_calls_into_the_event_loop(kafka: Kafka, calls: list[str]) -> None:
    """A hundred batches and more take no more calls than one; the wait for the end is one more."""
    here = Harness(kafka)
    here.create(1, RECORDS)
    reader = Reader()
    with here.group() as group:
        generation = group.next(SOON)
        generation.start(reader.handle, generation, here.partition(0))
        wait(reader.read_all)
        made = [name for name in calls if reader.handle.__name__ in name]
        group.shutdown()
        wait(reader.ended)
    assert reader.offsets == list(range(RECORDS))
    assert reader.batches >= RECORDS / BATCH
    assert len(made) <= FIRST


def test_what_other_threads_do_counts_at_once(kafka: Kafka) -> None:
    """After a seek and a pause by another thread, no earlier record is handed out."""
    here = Harness(kafka)
    here.create(1, RECORDS)
    name = here.partition(0)
    seen: list[int] = []

    def handle(generation: Generation, partition: TopicPartition) -> None:
        records = generation.records(partition, max_records=1)

        def read() -> None:
            batch = records.next(SOON)
            assert batch is not None
            seen.append(batch.messages[0].offset())

        for _ in range(5):
            read()
        beside = threading.Thread(target=generation.seek, args=(partition, 200))
        beside.start()
        beside.join()
        read()
        beside = threading.Thread(target=generation.pause, args=(partition,))
        beside.start()
        beside.join()
        with pytest.raises(TimeoutError, match=f"no batch of {name} within 0.01 s"):
            records.next(0.01)
        beside = threading.Thread(target=generation.resume, args=(partition,))
        beside.start()
        beside.join()
        read()
        generation.commit({partition: 202})

    with here.group() as group:
        generation = group.next(SOON)
        generation.start(handle, generation, name)
        generation.wait_ended(SOON)
    assert seen == [0, 1, 2, 3, 4, 200, 201]
    assert here.committed() == 202


def test_closing_a_stream_ends_a_call_that_waits_in_another_thread() -> None:
    """Nothing need arrive for that, and another stream can read the partition at once."""
    with EmbeddedKafka() as kafka:
        here = Harness(Kafka("embedded", kafka.bootstrap_servers))
        here.create(1, 1)
        with here.group() as group:
            generation = group.next(SOON)
            stream = generation.records(here.partition(0))
            assert stream.next(SOON) is not None
            waiting, ended = threading.Event(), threading.Event()

            def read() -> None:
                waiting.set()
                stream.next()
                ended.set()

            thread = threading.Thread(target=read, name="reader")
            thread.start()
            wait(waiting)
            assert not ended.wait(0.5)
            stream.close()
            wait(ended)
            thread.join()
            generation.seek(here.partition(0), 0)
            again = generation.records(here.partition(0)).next(SOON)
            assert again is not None
            assert again.start_offset == 0


def test_calls_that_are_shorter_than_a_broker_takes_to_answer() -> None:
    """A program that polls gets over a position that is not in the log, and over its beginning."""
    with EmbeddedKafka() as kafka:
        kafka.create_topic("topic", 1)
        kafka.append("topic", 0, [b"value"])
        name = TopicPartition("topic", 0)
        config = GroupConfig(
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="group",
            topics=["topic"],
            commit_initial_position=False,
            **QUICK,
        )
        with ConsumerGroup(config) as group:
            generation = group.next(SOON)
            kafka.call(kafka.cluster.nodes[1].slow, 0.2, "ListOffsets")
            generation.seek(name, 100)
            records = generation.records(name)
            assert [message.value() for message in poll(records)] == [b"value"]


def poll(records: Records) -> Batch:
    """Ask for a batch again and again, without waiting for it."""
    until = monotonic() + SOON
    while monotonic() < until:
        with suppress(TimeoutError):
            batch = records.next(0)
            assert batch is not None
            return batch
    raise AssertionError(f"no batch in {SOON:g} s")
