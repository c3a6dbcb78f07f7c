"""Ranges as DataFrames, compared with Spark's own Kafka source row by row."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from kgroup.errors import ConfigError, UsageError
from kgroup.spark.columns import ALL, DEFAULT, spark_schema
from kgroup.spark.frames import frame, read_counter, read_ranges
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import ReadCounts
from kgroup.types import TopicPartition
from tests.brokers import unique

Read = Callable[..., DataFrame]
RECORDS = 1500
PATIENCE = 120


@pytest.fixture(scope="module")
def topic(real_kafka: Any) -> str:
    """Two partitions with keys, tombstones and headers, and an aborted transaction."""
    servers = real_kafka.bootstrap_servers
    name = unique("frames")
    admin = AdminClient({"bootstrap.servers": servers})
    forever = {"retention.ms": "-1"}  # the records have old timestamps
    admin.create_topics([NewTopic(name, 2, 1, config=forever)])[name].result(PATIENCE)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("tx")})
    producer.init_transactions(PATIENCE)
    for first, abort in ((0, False), (600, True), (1200, False)):
        producer.begin_transaction()
        for number in range(first, min(first + 600, RECORDS)):
            producer.produce(
                name,
                None if number % 7 == 0 else b"%d" % number,
                None if number % 3 == 0 else b"k%d" % number,
                partition=number % 2,
                timestamp=1_600_000_000_001 + number,
                headers=[("h", b"1"), ("h", None)] if number % 5 == 0 else None,
            )
        assert producer.flush(PATIENCE) == 0  # an abort would drop unsent records
        (producer.abort_transaction if abort else producer.commit_transaction)(PATIENCE)
    return name


def rows(frame: DataFrame) -> list[Any]:
    """All rows in the order of the log."""
    return frame.orderBy("partition", "offset").collect()


@pytest.mark.parametrize("ranges", [[], [OffsetRange("t", 0, 0, 1)]])
def test_the_types_do_not_depend_on_the_session(
    spark: SparkSession, ranges: list[OffsetRange]
) -> None:
    """A timestamp is that of Spark's own source, whatever ``timestamp`` means in its SQL."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        settings = ReaderSettings(bootstrap_servers="127.0.0.1:1")
        assert frame(spark, ranges, settings, columns=ALL).schema == spark_schema(ALL)
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_a_frame_of_a_stopped_session_is_refused() -> None:
    """The error says what happened; PySpark's is about an attribute of None."""
    stopped: Any = SimpleNamespace(_sc=SimpleNamespace(_jsc=None))
    settings = ReaderSettings(bootstrap_servers="127.0.0.1:1")
    for make in (frame, read_ranges):
        with pytest.raises(UsageError, match="the Spark session was stopped; make a new one"):
            make(stopped, [OffsetRange("t", 0, 0, 1)], settings, parallelism=1)


@pytest.mark.parametrize(
    ("isolation", "zone"), [("read_committed", "America/New_York"), ("read_uncommitted", "UTC")]
)
def test_all_ways_give_what_spark_s_own_source_gives(
    spark: SparkSession, real_kafka: Any, topic: str, isolation: str, zone: str
) -> None:
    """Rows and types are the same, whatever the session's time zone."""
    how = ReaderSettings(bootstrap_servers=real_kafka.bootstrap_servers, isolation_level=isolation)
    ranges = [
        OffsetRange(topic, 0, 0, 100),
        OffsetRange(topic, 0, 180, 753),
        OffsetRange(topic, 1, 5, 753),
    ]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        own = frame(spark, ranges, how, columns=ALL, backend="jvm")
        wanted = rows(own)
        mapped = frame(spark, ranges, how, columns=ALL)
        sourced = read_ranges(spark, ranges, how, columns=ALL)
        assert len(wanted) > 600
        assert rows(mapped) == wanted
        assert rows(sourced) == wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    types = [(field.name, field.dataType.simpleString()) for field in own.schema]
    for other in (mapped.schema, sourced.schema, spark_schema(ALL)):
        assert [(field.name, field.dataType.simpleString()) for field in other] == types


def test_what_tasks_read_is_counted_once(spark: SparkSession, real_kafka: Any, topic: str) -> None:
    """Rows and bytes by partition are the same after a second use of the frame."""
    how = ReaderSettings(bootstrap_servers=real_kafka.bootstrap_servers)
    counter = read_counter(spark)
    ranges = [OffsetRange(topic, 0, 0, 4), OffsetRange(topic, 1, 0, 2)]
    read = frame(spark, ranges, how, columns=("value",), counter=counter)
    for _ in range(2):
        assert read.count() == 6
        assert counter is not None
        counted = counter.total()
        assert {name: counts.records for name, counts in counted.items()} == {
            TopicPartition(topic, 0): 4,
            TopicPartition(topic, 1): 2,
        }
        assert all(isinstance(counts, ReadCounts) for counts in counted.values())


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession) -> None:
    """Without ranges no request is sent, and the columns are the same."""
    how = ReaderSettings(bootstrap_servers="127.0.0.1:1")
    empty = [OffsetRange("t", 0, 3, 3)]
    for nothing in (frame(spark, empty, how), read_ranges(spark, empty, how)):
        assert nothing.columns == list(DEFAULT)
        assert nothing.collect() == []


def test_no_plan_shows_a_secret_or_where_it_is(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """``explain`` shows neither settings nor references."""
    how = ReaderSettings(
        bootstrap_servers="127.0.0.1:1", secrets={"sasl.password": "env:KGROUP_HIDDEN"}
    )
    ranges = [OffsetRange("t", 0, 0, 1)]
    for read in (frame(spark, ranges, how), read_ranges(spark, ranges, how)):
        read.explain(extended=True)
    printed = capsys.readouterr().out
    assert "Physical Plan" in printed
    assert "KGROUP_HIDDEN" not in printed


def test_a_schema_of_fewer_columns_reads_those(
    spark: SparkSession, real_kafka: Any, topic: str
) -> None:
    """The data source reads only the columns of its schema, and refuses other types."""
    read_ranges(spark, [], ReaderSettings(bootstrap_servers="127.0.0.1:1"))  # registers it
    source = spark.read.format("kgroup").options(
        **{
            "kafka.bootstrap.servers": real_kafka.bootstrap_servers,
            "ranges": f'[["{topic}", 0, 0, 3]]',
        }
    )
    assert source.schema("offset bigint").load().collect() == [(0,), (1,), (2,)]
    with pytest.raises(Exception, match="as in Spark's own source"):
        source.schema("offset string").load().collect()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"columns": ("x",)}, "columns"),
        ({"backend": "x"}, "backend"),
        ({"options": {"a": "b"}}, "o"),
    ],
)
def test_wrong_arguments_are_refused(
    spark: SparkSession, arguments: dict[str, Any], named: str
) -> None:
    """The error is raised before any job runs."""
    with pytest.raises(ConfigError, match=named):
        frame(spark, [], ReaderSettings(bootstrap_servers="a:1"), **arguments)
