"""The data source "kgroup" and the function of tasks, called here as Spark calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kgroup.errors import ConfigError
from kgroup.spark.columns import DEFAULT
from kgroup.spark.frames import LatestOfTask, ReadTasks
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import ReadCounts
from kgroup.spark.source import KgroupSource, options_of, settings_of
from kgroup.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from kgroup.testing.embedded import EmbeddedKafka

RANGE = OffsetRange("lines", 0, 2, 8)


@pytest.fixture
def settings(embedded_kafka: EmbeddedKafka) -> ReaderSettings:
    """Settings for a topic ``lines`` with ten records."""
    embedded_kafka.create_topic("lines")
    embedded_kafka.append("lines", 0, [b"%d" % n for n in range(10)])
    return ReaderSettings(
        bootstrap_servers=embedded_kafka.bootstrap_servers,
        isolation_level=IsolationLevel.READ_COMMITTED,
        client={"client.rack": "a"},
        secrets={"ssl.key.password": "env:KEY"},
        batch_records=3,
    )


def source_of(settings: ReaderSettings, **others: str) -> KgroupSource:
    """A source with these options."""
    options = options_of([RANGE], settings, columns=DEFAULT, parallelism=2)
    return KgroupSource({**options, **others})


def test_options_are_settings_and_back(settings: ReaderSettings) -> None:
    """All settings can be expressed as options, and secrets by reference."""
    options = options_of([RANGE], settings, columns=DEFAULT, parallelism=None)
    assert settings_of(options) == settings
    assert options["secret.ssl.key.password"] == "env:KEY"


def test_its_tasks_read_the_ranges(
    settings: ReaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are offset ranges; each record of them comes once."""
    monkeypatch.setenv("KEY", "any")
    source = source_of(settings, columns="value, offset")
    assert KgroupSource.name() == "kgroup"
    reader = source.reader(source.schema())
    rows: list[tuple[bytes, int]] = []
    for partition in reader.partitions():
        found: Any = reader.read(partition)
        for batch in found:
            assert batch.num_rows <= 3
            rows += zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    assert sorted(rows) == [(b"%d" % n, n) for n in range(2, 8)]
    assert list(reader.read(object())) == []  # type: ignore[arg-type] # no partition of it


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"ranges": "[1]"}, "ranges"),
        ({"batch_records": "many"}, "batch_records"),
        ({"surprise": "1"}, "surprise"),
        ({"columns": "value,colour"}, "colour"),
    ],
)
def test_invalid_options_are_refused(
    settings: ReaderSettings, others: dict[str, str], named: str
) -> None:
    """The error names the option, when the reader is made."""
    source = source_of(settings, **others)
    with pytest.raises(ConfigError, match=named):
        source.reader(source.schema())


def test_brokers_have_to_be_named() -> None:
    """Without an address of a broker the reader is refused."""
    with pytest.raises(ConfigError, match="bootstrap"):
        settings_of({})


def test_a_schema_of_other_types_is_refused(settings: ReaderSettings) -> None:
    """A column has the type of Spark's own source, or is left out."""
    schema = StructType([StructField("partition", LongType())])
    with pytest.raises(ConfigError, match=r"schema\['partition'\].* it must be int"):
        source_of(settings).reader(schema)


def test_a_task_reads_its_ranges_and_reports_its_counts(
    settings: ReaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function gets a task's id, returns its records, and counts them."""
    monkeypatch.setenv("KEY", "any")
    reports: list[Any] = []

    class Counter:
        def add(self, term: object) -> None:
            reports.append(term)

    tasks = ReadTasks(((RANGE,), ()), settings, ("value",), Counter())
    assert tasks.__name__ == "kgroup_read"
    ids = pyarrow.record_batch([pyarrow.array([0, 1])], names=["id"])
    values = [value for batch in tasks([ids]) for value in batch.column(0).to_pylist()]
    assert values == [b"%d" % n for n in range(2, 8)]
    assert reports == [{0: {TopicPartition("lines", 0): ReadCounts(6, 6)}}, {1: {}}]
    assert list(ReadTasks(((RANGE,),), settings, ("value",))([ids.slice(0, 1)]))


def test_the_last_report_of_a_task_counts() -> None:
    """A task that Spark runs twice is counted once."""
    param = LatestOfTask()
    assert param.addInPlace(param.addInPlace(param.zero({1: 2}), {0: "a"}), {0: "b"}) == {0: "b"}
