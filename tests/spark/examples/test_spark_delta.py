"""The Delta Lake example: which writes the table accepts, and which it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.spark.examples.driver import load
from tests.spark.examples.fake_batch import FakeBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_TASKS: Final = "spark.databricks.delta.snapshotPartitions"
"""The number of tasks that read a table's log; the default of 50 costs seconds each time."""
LINE: Final = ("'lines' topic", "0 partition", "id offset", "CAST('a' AS BINARY) value")


@pytest.fixture
def example() -> Any:
    """A module of this test's own."""
    return load("spark_delta")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, example: Any) -> Iterator[str]:
    """An empty table."""
    spark.conf.set(LOG_TASKS, "1")
    path = str(tmp_path / "lines")
    spark.sql(f"CREATE TABLE delta.`{path}` ({example.LINES}) USING delta")
    yield path
    spark.conf.unset(LOG_TASKS)


def write(example: Any, spark: SparkSession, table: str, batch: FakeBatch) -> None:
    """Write a batch of one range with the example."""
    (part,) = batch.ranges
    example.write(spark.range(part.start, part.end, 1, 1).selectExpr(*LINE), batch, table)


def count(spark: SparkSession, table: str) -> int:
    """The number of rows in the table."""
    return spark.read.format("delta").load(table).count()


def test_only_what_begins_at_the_tables_end_is_written(
    example: Any, spark: SparkSession, table: str
) -> None:
    """A longer range with the same start, and one that starts within written ones, are not."""
    write(example, spark, table, FakeBatch.of(0, 0, 10))
    for start, end in ((0, 10), (0, 15), (5, 15), (11, 15)):
        with pytest.raises(example.SinkMovedError, match=f"lines-0\\[{start}:{end}\\]"):
            write(example, spark, table, FakeBatch.of(0, start, end))
    write(example, spark, table, FakeBatch.of(0, 10, 15))
    assert count(spark, table) == 15


@pytest.mark.parametrize(("other", "refused"), [(0, True), (1, False)])
def test_what_another_driver_writes_meanwhile_matters_where_it_is_the_same_partition(
    example: Any,
    spark: SparkSession,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    other: int,
    refused: bool,
) -> None:
    """Concurrent writes conflict only if one driver's range is already written."""
    publish = example.publish

    def late(*args: Any) -> None:
        monkeypatch.setattr(example, "publish", publish)
        write(example, spark, table, FakeBatch.of(other, 0, 15))
        publish(*args)

    monkeypatch.setattr(example, "publish", late)
    if refused:
        with pytest.raises(example.SinkMovedError, match="written in the meantime"):
            write(example, spark, table, FakeBatch.of(0, 0, 10))
    else:
        write(example, spark, table, FakeBatch.of(0, 0, 10))
    assert count(spark, table) == (15 if refused else 25)
