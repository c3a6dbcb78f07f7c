"""Ranges read from both brokers: to their ends, each record once, or with a precise error."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kgroup.broker import Acl, BrokerSecurity, serve
from kgroup.errors import FetchError, OffsetOutOfRangeError, UsageError
from kgroup.records.librdkafka_messages import ERROR_ACTIONS, ErrorAction
from kgroup.spark import range_reader
from kgroup.spark.columns import ALL
from kgroup.spark.consumer_pool import ConsumerPool
from kgroup.spark.offset_ranges import OffsetRange, split
from kgroup.spark.range_reader import read
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import ReadCounts
from kgroup.types import TopicPartition as Name
from tests.brokers import Kafka, unique
from tests.records.scripted import failure, record

ISOLATION = ("read_committed", "read_uncommitted")
PATIENCE = 120
"""Seconds after which a wait for the broker fails."""


@pytest.fixture
def pool() -> Iterator[ConsumerPool]:
    """A pool that is closed with the test."""
    with closing(ConsumerPool()) as pool:
        yield pool


def make_topic(servers: str, *, partitions: int = 1, stamp: str = "CreateTime") -> str:
    """A topic of the test's own."""
    topic = unique("ranges")
    config = {"message.timestamp.type": stamp}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE)
    return topic


def produce(servers: str, topic: str, values: range, partition: int = 0) -> None:
    """Produce numbers as values."""
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=partition)
    assert producer.flush(PATIENCE) == 0


def in_transaction(servers: str, topic: str, values: range, *, commit: bool | None) -> Producer:
    """Produce numbers as values of one transaction: committed, aborted, or left open (None)."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("tx")})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, b"%d" % value, partition=0)
    assert producer.flush(PATIENCE) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE)
    return producer


def settings(servers: str, **fields: Any) -> ReaderSettings:
    """Settings of a reader with a short time-out."""
    return ReaderSettings(**{"bootstrap_servers": servers, "no_progress_timeout": 60.0, **fields})


def numbers(batches: Any) -> list[int]:
    """The values, in the order in which they arrive."""
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def offsets(batches: Any) -> list[int]:
    """The offsets, in the order in which they arrive."""
    return [value for batch in batches for value in batch.column("offset").to_pylist()]


def test_every_column_is_as_produced(kafka: Kafka, pool: ConsumerPool) -> None:
    """Nulls, empty bytes, tombstones, repeated and null headers, and timestamps are kept."""
    topic = make_topic(kafka.bootstrap_servers)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    pairs: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("ü", b"")]
    producer.produce(topic, b"v", b"k", headers=pairs, timestamp=1_700_000_000_123)
    producer.produce(topic, None, b"gone", timestamp=1)
    producer.produce(topic, b"", None, timestamp=2)
    assert producer.flush(PATIENCE) == 0
    batches = list(
        read([OffsetRange(topic, 0, 0, 3)], settings(kafka.bootstrap_servers), ALL, pool=pool)
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    common = {"topic": topic, "partition": 0, "timestampType": 0}
    stamps = [row.pop("timestamp").timestamp() for row in rows]
    headers = [{"key": key, "value": value} for key, value in pairs]
    assert rows == [
        {"key": b"k", "value": b"v", "offset": 0, "headers": headers, **common},
        {"key": b"gone", "value": None, "offset": 1, "headers": None, **common},
        {"key": None, "value": b"", "offset": 2, "headers": None, **common},
    ]
    assert stamps == [1_700_000_000.123, 0.001, 0.002]
    assert batches[0].schema.names == list(ALL)


def test_the_brokers_time_has_its_own_type(kafka: Kafka, pool: ConsumerPool) -> None:
    """A topic with LogAppendTime gives type 1."""
    topic = make_topic(kafka.bootstrap_servers, stamp="LogAppendTime")
    produce(kafka.bootstrap_servers, topic, range(2))
    (batch,) = read(
        [OffsetRange(topic, 0, 0, 2)],
        settings(kafka.bootstrap_servers),
        ("timestampType",),
        pool=pool,
    )
    assert batch.to_pydict() == {"timestampType": [1, 1]}


@pytest.mark.parametrize("isolation", ISOLATION)
def test_an_end_that_holds_no_record_is_found_by_position(
    kafka: Kafka, pool: ConsumerPool, isolation: str
) -> None:
    """A range may end at an aborted transaction, its marker, the log's end, or before more."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, range(3))
    in_transaction(servers, topic, range(3, 6), commit=False)  # 3 to 5, the marker is 6
    committed = isolation == "read_committed"
    wanted = [0, 1, 2] if committed else [0, 1, 2, 3, 4, 5]
    how = settings(servers, isolation_level=isolation)
    whole = OffsetRange(topic, 0, 0, 7)
    counts: dict[Name, ReadCounts] = {}
    assert numbers(read([whole], how, on_read=counts.update, pool=pool)) == wanted
    assert counts == {Name(topic, 0): ReadCounts(len(wanted), len(wanted))}
    in_transaction(servers, topic, range(7, 9), commit=True)  # the marker is 9
    assert numbers(read([whole], how, pool=pool)) == wanted
    assert numbers(read([OffsetRange(topic, 0, 1, 10)], how, pool=pool)) == [*wanted[1:], 7, 8]
    assert numbers(read([OffsetRange(topic, 0, 6, 7)], how, pool=pool)) == []
    assert pool.created == 1


def test_a_range_without_any_record_ends(kafka: Kafka, pool: ConsumerPool) -> None:
    """If all records are aborted there is no batch; an empty range needs no consumer."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    assert list(read([OffsetRange(topic, 0, 5, 5)], settings(servers), pool=pool)) == []
    assert pool.created == 0
    in_transaction(servers, topic, range(5), commit=False)
    how = settings(servers, isolation_level="read_committed")
    counts: dict[Name, ReadCounts] = {}
    part = OffsetRange(topic, 0, 0, 6)
    assert list(read([part], how, on_read=counts.update, pool=pool)) == []
    assert counts == {Name(topic, 0): ReadCounts(0, 0)}


def test_the_error_of_a_stuck_range(kafka: Kafka, pool: ConsumerPool) -> None:
    """At an open transaction it names partition, offsets, position, seconds and reason."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, range(2))
    producer = in_transaction(servers, topic, range(2, 4), commit=None)
    how = settings(servers, isolation_level="read_committed", no_progress_timeout=6.0)
    reader = read([OffsetRange(topic, 0, 0, 4)], how, pool=pool)
    assert numbers([next(reader)]) == [0, 1]
    with pytest.raises(FetchError) as raised:
        next(reader)
    text = str(raised.value)
    for word in (
        f"{topic}-0[0:4]",
        "6 s",
        "at offset 2",
        "2 offsets before",
        "stable offset of its log is 2",
        "open there",
    ):
        assert word in text
    assert raised.value.partition == Name(topic, 0)
    producer.abort_transaction(PATIENCE)


def test_a_range_past_the_logs_end_is_an_error(kafka: Kafka, pool: ConsumerPool) -> None:
    """The error says that the log is shorter than planned; no record is returned."""
    topic = make_topic(kafka.bootstrap_servers)
    produce(kafka.bootstrap_servers, topic, range(2))
    how = settings(kafka.bootstrap_servers, no_progress_timeout=0.3)
    with pytest.raises(FetchError, match="its log ends at 2: it was truncated"):
        list(read([OffsetRange(topic, 0, 0, 5)], how, pool=pool))


def test_deleted_records_are_an_error(kafka: Kafka, pool: ConsumerPool) -> None:
    """A range that starts before the log gets the log's bounds as an error, and no record."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, range(10))
    admin = AdminClient({"bootstrap.servers": servers})
    for removed in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        removed.result(PATIENCE)
    rows: list[int] = []
    with pytest.raises(OffsetOutOfRangeError, match="no offset 2 .*has 4 to 10") as raised:
        rows += numbers(read([OffsetRange(topic, 0, 2, 8)], settings(servers), pool=pool))
    assert rows == []
    assert (raised.value.partition, raised.value.offset) == (Name(topic, 0), 2)
    whole = OffsetRange(topic, 0, 4, 8)
    assert numbers(read([whole], settings(servers), pool=pool)) == [4, 5, 6, 7]


@pytest.mark.parametrize("partition", [0, 3])
def test_a_partition_that_does_not_exist_is_named(
    kafka: Kafka, pool: ConsumerPool, partition: int
) -> None:
    """An unknown topic, and an unknown partition of a topic, are errors without a long wait."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers) if partition else unique("absent")
    part = OffsetRange(topic, partition, 0, 1)
    with pytest.raises(FetchError, match=f"has no partition {topic}-{partition}"):
        list(read_range_of(part, servers, pool))


def read_range_of(part: OffsetRange, servers: str, pool: ConsumerPool) -> Iterator[Any]:
    """Read a range with a reader that would wait for long."""
    return read([part], settings(servers), pool=pool)


def test_pieces_of_a_hot_partition_give_each_record_once(kafka: Kafka, pool: ConsumerPool) -> None:
    """Pieces in any order, with small batches, return each record once."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, range(5000))
    how = settings(servers, batch_records=300)
    pieces = split([OffsetRange(topic, 0, 0, 5000)], max_span=700)
    found = [offsets(read([piece], how, pool=pool)) for piece in reversed(pieces)]
    assert [one for piece in reversed(found) for one in piece] == list(range(5000))
    assert pool.created == 2  # the first piece was read before the records' size was known


def test_many_ranges_of_one_task_are_read_at_once(kafka: Kafka, pool: ConsumerPool) -> None:
    """Partitions are read at the same time, ranges of one partition in order."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers, partitions=3)
    for number in range(3):
        produce(servers, topic, range(1000), partition=number)
    ranges = [
        OffsetRange(topic, 0, 10, 20),
        OffsetRange(topic, 0, 500, 600),
        OffsetRange(topic, 0, 600, 700),
        OffsetRange(topic, 1, 0, 1000),
        OffsetRange(topic, 2, 999, 1000),
    ]
    how = settings(servers, batch_records=64)
    found: dict[int, list[int]] = {}
    for batch in read(ranges, how, ("partition", "offset"), pool=pool):
        assert batch.num_rows <= 64
        for row in batch.to_pylist():
            found.setdefault(row["partition"], []).append(row["offset"])
    assert found == {0: [*range(10, 20), *range(500, 700)], 1: list(range(1000)), 2: [999]}
    with pytest.raises(UsageError, match="overlap"):
        list(read([ranges[1], OffsetRange(topic, 0, 599, 601)], how, pool=pool))


def test_a_reader_that_is_dropped_leaves_a_usable_consumer(
    kafka: Kafka, pool: ConsumerPool
) -> None:
    """After a task that stopped early, the same consumer reads other ranges correctly."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, range(3000))
    how = settings(servers, batch_records=10)
    for start in (0, 1500, 700):
        reader = read([OffsetRange(topic, 0, start, 3000)], how, ("offset",), pool=pool)
        assert next(reader).column("offset").to_pylist() == list(range(start, start + 10))
        assert gc.isenabled()
        reader.close()  # type: ignore[attr-defined] # it is a generator
    last = OffsetRange(topic, 0, 5, 2500)
    assert offsets(read([last], how, pool=pool)) == list(range(5, 2500))
    assert pool.created == 1


def test_little_is_fetched_beyond_a_range(kafka: Kafka, pool: ConsumerPool) -> None:
    """Brokers send fewer bytes from behind a small range than the range has."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 10})
    for _ in range(3000):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(PATIENCE) == 0
    how = settings(servers, no_progress_timeout=8.0)  # statistics come every 2 s
    parts = [OffsetRange(topic, 0, start, start + 100) for start in range(0, 1000, 100)]
    for part in parts:
        assert offsets(read([part], how, pool=pool)) == list(range(part.start, part.end))
    assert pool.created == 1
    with pool.borrow(how, parts[:1]) as consumer:
        fetched = 0
        while not fetched:
            consumer.poll(1, 0.05)
            fetched = json.loads(consumer._statistics).get("rxmsgs", 0)
    assert 1000 <= fetched < 2000


def test_large_records_make_small_batches(kafka: Kafka, pool: ConsumerPool) -> None:
    """Batches keep to about batch_bytes once the size of records is known."""
    servers = kafka.bootstrap_servers
    topic = make_topic(servers)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(40):
        producer.produce(topic, b"x" * 50_000)
    assert producer.flush(PATIENCE) == 0
    how = settings(servers, batch_records=10, batch_bytes=100_000)
    rows = [batch.num_rows for batch in read([OffsetRange(topic, 0, 0, 40)], how, pool=pool)]
    assert sum(rows) == 40
    assert max(rows[1:]) <= 2


def test_a_broker_that_restarts_midway_is_waited_for(
    own_kafka: Callable[..., Any], pool: ConsumerPool
) -> None:
    """The records before and after the restart are the whole range, none repeated."""
    broker = own_kafka()
    servers = broker.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, range(20_000))
    how = settings(servers, batch_records=500, max_buffered_bytes=1024)
    reader = read([OffsetRange(topic, 0, 0, 20_000)], how, ("offset",), pool=pool)
    found = offsets([next(reader)])
    broker.restart()
    found += offsets(reader)
    assert found == list(range(20_000))


def test_the_defaults_are_the_processes_pool_and_sparks_columns(kafka: Kafka) -> None:
    """Without a pool and columns, the process's pool and Spark's columns are used."""
    topic = make_topic(kafka.bootstrap_servers)
    produce(kafka.bootstrap_servers, topic, range(3))
    found = list(read([OffsetRange(topic, 0, 1, 3)], settings(kafka.bootstrap_servers)))
    assert numbers(found) == [1, 2]
    assert found[0].schema.names == [name for name in ALL if name != "headers"]


async def test_a_missing_permission_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the range and what to grant, and does not wait for the time-out."""
    monkeypatch.setenv("ALICE", "a")
    security = BrokerSecurity(users={"alice": "a"}, acls=[Acl("alice", "describe", "topic", "t")])
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
    }

    def read_all(servers: str) -> list[int]:
        given = settings(servers, client=login, secrets={"sasl.password": "env:ALICE"})
        with closing(ConsumerPool()) as pool:
            return numbers(read([OffsetRange("t", 0, 0, 1)], given, pool=pool))

    async with serve(security=security) as broker:
        await broker.create_topic("t", 1)
        await broker.append("t", 0, [b"0"])
        with pytest.raises(
            FetchError, match="t-0.* cannot be read .*grant the user READ on topic 't'"
        ):
            await trio.to_thread.run_sync(read_all, broker.bootstrap_servers)


P0, P1 = Name("t", 0), Name("t", 1)
EOF = KafkaError._PARTITION_EOF
OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET


class ScriptedConsumer:
    """A Consumer that returns scripted messages, and records where fetches start."""

    def __init__(self, chunks: Sequence[Sequence[Message]]) -> None:
        self.chunks = [list(chunk) for chunk in chunks]
        self.starts: list[tuple[int, int]] = []

    def incremental_assign(self, starts: Sequence[TopicPartition]) -> None:
        """Record the partitions and offsets."""
        self.starts += [(start.partition, start.offset) for start in starts]

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop what is left of the chunk, as librdkafka drops messages of outdated fetches."""
        numbers = {partition.partition for partition in partitions}
        self.chunks[:1] = [
            [message for message in chunk if message.partition() not in numbers]
            for chunk in self.chunks[:1]
        ]

    def poll(self, timeout: float) -> Message | None:
        """Return the first message of a chunk; None between two chunks, and at the end."""
        del timeout
        if self.chunks and not self.chunks[0]:
            del self.chunks[0]
            return None
        return self.chunks[0].pop(0) if self.chunks else None

    def consume(self, most: int, timeout: float) -> list[Message]:
        """Return more of the chunk."""
        assert not timeout
        chunk = self.chunks[0][:most]
        del self.chunks[0][:most]
        return chunk

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """Return a log that has all offsets."""
        del partition, timeout
        return (0, 1000)

    def unassign(self) -> None:
        """Take the end of a task."""

    def close(self) -> None:
        """Take the end of a failed task."""


def records(*offsets: int, partition: int = 0) -> list[Message]:
    """Records at these offsets."""
    return [record(Name("t", partition), at) for at in offsets]


def read_scripted(
    chunks: Sequence[Sequence[Message]], *ranges: tuple[int, int], partitions: int = 1
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Read ranges of each partition; return (partition, offset) of the rows and of the fetches."""
    consumer = ScriptedConsumer(chunks)
    how = settings("nowhere:1", no_progress_timeout=0.1)
    parts = [
        OffsetRange("t", number, start, end)
        for start, end in ranges
        for number in range(partitions)
    ]
    with closing(ConsumerPool(lambda _: consumer)) as pool:
        batches = list(read(parts, how, ("partition", "offset"), pool=pool))
    rows = [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]
    return rows, consumer.starts


class RefusingConsumer(ScriptedConsumer):
    """A Consumer to which a broker answers with an error each time, after its chunks."""

    def __init__(self, chunks: Sequence[Sequence[Message]], code: int) -> None:
        super().__init__(chunks)
        self._error = failure(P0, code)
        self._polls = 0

    def poll(self, timeout: float) -> Message | None:
        """Return the next message, or the error."""
        if self.chunks and self.chunks[0]:
            return super().poll(timeout)
        self._polls += 1
        assert self._polls < 300, "the task still waits"
        time.sleep(0.01)
        return self._error

    def consume(self, most: int, timeout: float) -> list[Message]:
        """Return more of the chunk."""
        return super().consume(most, timeout) if self.chunks else []

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return a cluster without this topic."""
        del topic, timeout
        return SimpleNamespace(topics={})


WAITS = [code for code, action in ERROR_ACTIONS.items() if action is ErrorAction.WAIT]
NOT_LISTED = [KafkaError.FETCH_SESSION_ID_NOT_FOUND, KafkaError.POLICY_VIOLATION]


@pytest.mark.parametrize("code", [*WAITS[:6], KafkaError.UNKNOWN, *NOT_LISTED])
@pytest.mark.parametrize("read_before", [(), (0, 1)])
def test_an_error_that_is_repeated_is_no_progress(code: int, read_before: tuple[int, ...]) -> None:
    """The rows before it are handed out, and ``no_progress_timeout`` fails the task."""
    consumer = RefusingConsumer([records(*read_before)], code)
    how = settings("nowhere:1", no_progress_timeout=0.1)
    rows = 0
    with (
        closing(ConsumerPool(lambda _: consumer)) as pool,
        pytest.raises(FetchError, match=r"t-0\[0:5\].*no progress for 0.1 s.*the last error was"),
    ):
        for batch in read([OffsetRange("t", 0, 0, 5)], how, pool=pool):
            rows += batch.num_rows
    assert rows == len(read_before)


def test_a_partition_that_is_gone_is_noticed_beside_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a partition exists is checked although librdkafka repeats an error."""
    monkeypatch.setattr(range_reader, "CHECK_AFTER", 0.05)
    consumer = RefusingConsumer([], KafkaError.INCONSISTENT_TOPIC_ID)
    with (
        closing(ConsumerPool(lambda _: consumer)) as pool,
        pytest.raises(FetchError, match="the cluster has no partition t-0"),
    ):
        list(read([OffsetRange("t", 0, 0, 5)], settings("nowhere:1"), pool=pool))


@pytest.mark.parametrize(
    "beside", [{"key": b"k" * 1000}, {"headers": [("trace", b"t" * 1000), ("none", None)]}]
)
def test_keys_and_headers_count_as_bytes(beside: dict[str, Any]) -> None:
    """Records that are large beside their values make small batches, whatever the first one has."""
    chunk = [record(P0, 0)] + [
        Message(topic="t", partition=0, offset=at, value=b"v", **beside) for at in range(1, 2000)
    ]
    how = settings("nowhere:1", batch_bytes=100_000)
    counts: dict[Name, ReadCounts] = {}
    with closing(ConsumerPool(lambda _: ScriptedConsumer([chunk]))) as pool:
        parts = [OffsetRange("t", 0, 0, 2000)]
        sizes = [batch.num_rows for batch in read(parts, how, on_read=counts.update, pool=pool)]
    assert sum(sizes) == 2000
    assert max(sizes[1:]) < 150
    assert counts[P0].bytes == pytest.approx(2_000_000, rel=0.15)


class StartingConsumer(RefusingConsumer):
    """A Consumer whose first request for a topic is answered by a broker that does not know it."""

    def __init__(self) -> None:
        super().__init__([], KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._answers = [{}, {"t": SimpleNamespace(error=None, partitions={0: None})}]
        self.requests = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return the topic from the second time on, and then the records."""
        super().list_topics(topic, timeout)
        self.chunks = [records(0, 1, 2, 3, 4)] if self.requests else []
        self.requests += 1
        return SimpleNamespace(topics=self._answers.pop(0))


def test_a_broker_that_does_not_know_the_topic_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is gone only if the cluster does not have it twice in a row."""
    monkeypatch.setattr(range_reader, "CHECK_AFTER", 0.05)
    consumer = StartingConsumer()
    with closing(ConsumerPool(lambda _: consumer)) as pool:
        assert offsets(read([OffsetRange("t", 0, 0, 5)], settings("nowhere:1"), pool=pool)) == [
            *range(5)
        ]
    assert consumer.requests == 2


class SilentConsumer(ScriptedConsumer):
    """A Consumer to which no broker answers; it counts the seconds that its callers waited."""

    waited = 0.0

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Wait, and raise."""
        del topic
        self.waited += timeout
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """Raise."""
        del partition, timeout
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_many_partitions_do_not_multiply_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request shows that no broker answers; ``no_progress_timeout`` counts for all."""
    monkeypatch.setattr(range_reader, "CHECK_AFTER", 0.05)
    consumer = SilentConsumer([])
    parts = [OffsetRange(f"t{number % 3}", number, 0, 5) for number in range(30)]
    how = settings("nowhere:1", no_progress_timeout=0.2)
    with (
        closing(ConsumerPool(lambda _: consumer)) as pool,
        pytest.raises(FetchError, match="no broker answers for it; 29 more partitions"),
    ):
        list(read(parts, how, pool=pool))
    assert consumer.waited <= range_reader.QUERY_TIMEOUT


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.MSG_SIZE_TOO_LARGE,
    ],
)
def test_a_damaged_record_is_not_skipped(code: int) -> None:
    """An error in the middle of a chunk fails the range, also if the range's end follows in it."""
    chunk = [*records(0, 1), failure(P0, code, 2), *records(3, 4)]
    with pytest.raises(FetchError, match=r"t-0\[0:5\] cannot be read at offset 2: ") as raised:
        read_scripted([chunk], (0, 5))
    assert raised.value.partition == P0


def test_a_damaged_record_behind_a_range_is_not_its_own() -> None:
    """An error behind the last record of a range is ignored, one of another partition is not."""
    damage = failure(P0, KafkaError._BAD_MSG, 2)
    chunk = [*records(0, 1), damage, *records(3), *records(0, 1, partition=1)]
    rows, _ = read_scripted([chunk], (0, 2), partitions=2)
    assert rows == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(FetchError, match=r"t-1\[0:2\] cannot be read at offset 1"):
        read_scripted(
            [
                [
                    *records(0, 1),
                    *records(0, partition=1),
                    failure(P1, KafkaError._BAD_MSG, 1),
                    *records(2, 3, partition=1),
                ]
            ],
            (0, 2),
            partitions=2,
        )


def test_a_damaged_record_behind_a_gap_fails_the_range() -> None:
    """Where the end of the range is not proven by a record, a damaged one may be in the range."""
    with pytest.raises(FetchError, match="at offset 2"):
        read_scripted([[*records(0, 1), failure(P0, KafkaError._BAD_MSG, 7)]], (0, 5))


def test_a_later_range_does_not_inherit_an_error() -> None:
    """An error behind the first range's end does not fail the next one, which is fetched again."""
    chunk = [*records(0, 1), failure(P0, KafkaError._BAD_MSG, 2), *records(0, 1, partition=1)]
    later = [*records(5, 6), *records(5, 6, partition=1)]
    rows, starts = read_scripted([chunk, later], (0, 2), (5, 7), partitions=2)
    assert sorted(rows) == [(number, at) for number in (0, 1) for at in (0, 1, 5, 6)]
    assert starts == [(0, 0), (1, 0), (0, 5), (1, 5)]


@pytest.mark.parametrize(
    "chunks",
    [
        [records(0, 1, 2, 1, 2, 3, 4)],
        [records(0, 1, 2, 2, 4)],  # as many as the offsets that they span
        [records(0, 1, 2), records(1, 2, 3, 4)],
        [records(0, 3, 1, 2, 4)],
        [records(0, 1000, 2, 3, 4)],  # past the range's end, which would make it complete
        [records(0, 1), [*records(2), failure(P0, EOF, 3)], records(2, 3, 4)],
    ],
)
def test_records_out_of_order_fail_the_range(chunks: list[list[Message]]) -> None:
    """A malformed batch repeats or displaces records; no row is doubled or lost in silence."""
    with pytest.raises(FetchError, match=r"t-0\[0:5\] cannot be read: .* a record at offset [12] "):
        read_scripted(chunks, (0, 5))


def test_records_before_the_start_fail_the_range() -> None:
    """librdkafka returns none, so that one shows that something is wrong."""
    with pytest.raises(FetchError, match="offset 3 where one past 4 had to follow"):
        read_scripted([records(3, 4, 5)], (5, 6))


def test_gaps_of_compaction_and_markers_are_legal() -> None:
    """Offsets without a record are no error: at the start, in the middle, and at the end."""
    rows, _ = read_scripted([records(2, 5), [failure(P0, EOF, 9)]], (0, 9))
    assert rows == [(0, 2), (0, 5)]
    rows, _ = read_scripted([records(1, 8, 12)], (0, 9))
    assert rows == [(0, 1), (0, 8)]


def test_a_log_that_is_cut_in_the_middle_of_a_range_fails_it() -> None:
    """The rest is not fetched from a log that may have other records by now."""
    chunks = [[*records(0, 1), failure(P0, OUT_OF_RANGE)], records(2, 3, 4)]
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0\[0:5\].* truncated below offset 2, "):
        read_scripted(chunks, (0, 5))


def test_an_outdated_error_at_the_start_is_verified() -> None:
    """The start is fetched once more; a second error is believed, and a record disproves it."""
    gone = failure(P0, OUT_OF_RANGE)
    rows, starts = read_scripted([[gone], records(5, 6)], (5, 7))
    assert (rows, starts) == ([(0, 5), (0, 6)], [(0, 5), (0, 5)])
    rows, starts = read_scripted([[gone, *records(5)], records(6)], (5, 7))
    assert (rows, starts) == ([(0, 5), (0, 6)], [(0, 5)])
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0\[5:7\]"):
        read_scripted([[gone], [gone]], (5, 7))


def test_an_end_before_the_range_is_complete_is_no_end() -> None:
    """If the log ends before the range, the range fails and is not answered with less."""
    with pytest.raises(FetchError, match=r"t-0\[0:5\].* at offset 2, 3 offsets before the end"):
        read_scripted([[*records(0, 1), failure(P0, EOF, 2)]], (0, 5))


logs = st.lists(st.sampled_from(["record", "gap", "damaged", "moved"]), min_size=1, max_size=8)


@hypothesis_settings(max_examples=200)
@given(logs, st.lists(st.booleans()), st.data())
def test_a_range_is_answered_in_full_or_not_at_all(
    log: list[str], cuts: list[bool], data: st.DataObject
) -> None:
    """Whatever lies in a log and however it is cut into chunks, no record is left out."""
    start = data.draw(st.integers(0, len(log) - 1))
    end = data.draw(st.integers(start + 1, len(log)))
    chunks: list[list[Message]] = [[]]
    for at, (kind, cut) in enumerate(zip(log, [*cuts, *[False] * len(log)], strict=False)):
        if cut and chunks[-1]:
            chunks.append([])
        if at >= start and kind == "damaged":
            chunks[-1].append(failure(P0, KafkaError._BAD_MSG, at))
        elif at >= start and kind != "gap":
            if kind == "moved":  # librdkafka goes on by itself
                chunks[-1].append(failure(P0, KafkaError.NOT_LEADER_FOR_PARTITION, at))
            chunks[-1].append(record(P0, at))
    chunks[-1].append(failure(P0, EOF, len(log)))
    wanted = [at for at in range(start, end) if log[at] != "gap"]
    hidden = [at for at in range(end, len(log)) if log[at] != "gap"][:1]
    try:
        rows, _ = read_scripted([chunk for chunk in chunks if chunk], (start, end))
    except FetchError:
        # Also one behind the end, if no record shows that it is behind.
        assert "damaged" in {log[at] for at in [*wanted, *hidden]}
    else:
        assert [at for _, at in rows] == wanted
        assert "damaged" not in {log[at] for at in wanted}
