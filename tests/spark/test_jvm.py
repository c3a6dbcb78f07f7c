"""Spark's own Kafka source as the reader: its consumers are kept and not mixed up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from kgroup.errors import ConfigError
from kgroup.spark.jvm import jvm_frame
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.testing.embedded import EmbeddedKafka
from tests.brokers import unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kept(spark: SparkSession) -> int:
    """The number of consumers that Spark keeps in this executor."""
    jvm: Any = spark._jvm
    consumers = getattr(jvm.org.apache.spark.sql.kafka010.consumer, "KafkaDataConsumer$")
    module = getattr(consumers, "MODULE$")
    pool = module.getClass().getDeclaredField("consumerPool")
    pool.setAccessible(True)
    found = pool.get(module)
    return int(found.getClass().getMethod("size", None).invoke(found, None))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"secrets": {"sasl.password": "env:PASSWORD"}}, "secrets"),
        ({"client": {"socket.keepalive.enable": True}}, "socket.keepalive.enable"),
    ],
)
def test_settings_that_java_s_client_lacks_are_refused(
    spark: SparkSession, settings: dict[str, Any], named: str
) -> None:
    """The error names the setting, before Spark is called."""
    refused = ReaderSettings(bootstrap_servers="127.0.0.1:1", **settings)
    ranges = [OffsetRange("lines", 0, 0, 1)]
    with pytest.raises(ConfigError, match=named):
        jvm_frame(spark, ranges, refused, columns=["value"])


class _Recording:
    """In place of a session: records the options of each source."""

    def __init__(self) -> None:
        self.sources: list[dict[str, str]] = []
        self.read = self

    def format(self, name: str) -> _Recording:
        """The reader of a source."""
        assert name == "kafka"
        return self

    def options(self, **options: str) -> _Recording:
        """Record the options."""
        self.sources.append(options)
        return self

    def load(self) -> _Recording:
        """The frame."""
        return self

    def select(self, *columns: str) -> _Recording:
        """The frame, with these columns only."""
        assert columns == ("value",)
        return self


@pytest.mark.parametrize(
    ("client", "options", "wait"),
    [
        ({}, {}, "10"),
        ({"fetch.wait.max.ms": 300}, {}, "300"),
        ({}, {"kafka.fetch.max.wait.ms": "200"}, "200"),
        ({"fetch.wait.max.ms": 300}, {"kafka.fetch.max.wait.ms": "200"}, "200"),
    ],
)
def test_a_fetch_waits_10_ms_at_the_end_of_a_log_unless_the_program_says_otherwise(
    client: dict[str, int], options: dict[str, str], wait: str
) -> None:
    """The program's settings precede the default, and its options precede both."""
    session = _Recording()
    settings = ReaderSettings(bootstrap_servers="127.0.0.1:1", client=client)
    ranges = [OffsetRange("lines", 0, 0, 1)]
    jvm_frame(cast("Any", session), ranges, settings, columns=["value"], options=options)
    assert [source["kafka.fetch.max.wait.ms"] for source in session.sources] == [wait]


@pytest.mark.timeout(1000)
def test_consumers_are_kept_from_batch_to_batch(
    spark: SparkSession, embedded_kafka: EmbeddedKafka
) -> None:
    """A batch uses the consumers of the one before; other settings get other consumers."""
    topic, group_id = unique("jvm"), unique("group")
    embedded_kafka.create_topic(topic, 1)
    embedded_kafka.append(topic, 0, [b"%d" % n for n in range(30)])
    before = kept(spark)

    def read(start: int, **settings: Any) -> list[bytes]:
        how = ReaderSettings(
            bootstrap_servers=embedded_kafka.bootstrap_servers, group_id=group_id, **settings
        )
        ranges = [OffsetRange(topic, 0, start, start + 10)]
        rows = jvm_frame(spark, ranges, how, columns=["value"]).collect()
        return [bytes(row[0]) for row in rows]

    for start in (0, 10, 20):
        assert read(start) == [b"%d" % n for n in range(start, start + 10)]
    assert kept(spark) == before + 1
    assert len(read(0, isolation_level="read_committed")) == 10
    assert kept(spark) == before + 2
