"""A session of Spark: small, on the Java that was found, and gone when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow
import pytest
from pyspark.sql import SparkSession

from kgroup.errors import UsageError
from kgroup.testing.spark import session


def doubled(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Twice of each id; run by the executors, to which this module is unknown."""
    for batch in batches:
        values = [2 * value.as_py() for value in batch.column("id")]
        yield pyarrow.RecordBatch.from_pydict({"id": values})


def test_executors_run_python_with_arrow(spark: SparkSession) -> None:
    """A function of a test module runs in the executors on Arrow's batches."""
    rows = spark.range(0, 4, 1, 2).mapInArrow(doubled, "id long").collect()
    assert sorted(row["id"] for row in rows) == [0, 2, 4, 6]


def test_a_second_session_is_refused(spark: SparkSession) -> None:
    """A process has one session; a second one would be the first in disguise."""
    with pytest.raises(UsageError, match="this process has a SparkSession"), session():
        pass
