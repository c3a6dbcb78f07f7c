"""The examples on Spark, run as their reader runs them."""

from __future__ import annotations

import re
import runpy
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from kgroup.spark import OffsetRange
from kgroup.testing import admin
from tests.brokers import Kafka, embedded_broker, unique
from tests.conftest import ROOT
from tests.examples.topic import Topic
from tests.examples.worker import Worker
from tests.spark.machine import PATIENCE, SparkMachine, spark_machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN: Final = datetime(2026, 11, 21, 10, 15, tzinfo=UTC)
PAGES: Final = {"/": "home", "/basket": "shop", "/pay": "shop", "/help": "service", "/new": None}
NO_VISITS: Final = ("", "no visit", "2026-11-21T10:15:03Z alice /basket soon", "2026-21-11T")

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def machine() -> Iterator[SparkMachine]:
    """Where the examples run."""
    with spark_machine() as machine:
        yield machine


def visits(count: int) -> list[str]:
    """Lines for three minutes of visits; every tenth is none."""
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
    """What rows are sorted by: some columns may be null."""
    return list(map(str, row))


def table(folder: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table, read without Spark."""
    from pyarrow.dataset import dataset

    rows = dataset(folder / name, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted((tuple(row[column] for column in columns) for row in rows), key=words)


def check_tables(folder: Path, lines: list[str]) -> None:
    """Each table is what a direct computation makes of the lines."""
    expected = enriched_of(lines)
    assert table(folder, "enriched", "time", "user", "page", "milliseconds", "section") == expected
    counted: Counter[tuple[Any, ...]] = Counter()
    for minute, section, count in table(folder, "counts", "minute", "section", "count"):
        counted[minute, section] += count
    assert counted == Counter((at.replace(second=0), section) for at, _, _, _, section in expected)
    refused = [line for (line,) in table(folder, "refused", "line")]
    assert sorted(refused) == sorted(line for line in lines if line in NO_VISITS)


def test_the_pipeline(kafka: Kafka, machine: SparkMachine, tmp_path: Path) -> None:
    """Its tables are what is computed directly; a line tells of each batch; all is committed."""
    topic = Topic.create(kafka, partitions=3)
    lines = visits(900)
    admin.produce(topic.bootstrap_servers, topic.name, lines[:600])
    program = "examples/spark_pipeline.py"
    arguments = (topic.bootstrap_servers, topic.name, str(tmp_path))

    def rows(told: Iterable[str]) -> int:
        found = (re.search(r"([\d,]+) rows of .* rows/s.*, lag [\d,]+", line) for line in told)
        return sum(int(match[1].replace(",", "")) for match in found if match)

    with Worker(machine, program, *arguments, patience=PATIENCE) as worker:
        worker.until(lambda told: rows(told) == 600)
        admin.produce(topic.bootstrap_servers, topic.name, lines[600:])
        worker.until(lambda told: rows(told) == 900)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
    check_tables(tmp_path, lines)
    assert topic.committed(f"{topic.name}-pipeline") == topic.ends()


def test_a_batch_of_the_pipeline_that_is_planned_again_replaces_what_it_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Planned twice with other ends, and then the batch after it: all is there once."""
    write = runpy.run_path(str(ROOT / "examples" / "spark_pipeline.py"))["write"]
    lines = visits(60)

    def frame(first: int, end: int) -> DataFrame:
        rows = [(line.encode(), number % 2) for number, line in enumerate(lines)][first:end]
        return spark.createDataFrame(rows, "value binary, partition int")

    for first, end in (0, 40), (0, 30), (30, 60):
        ranges = tuple(OffsetRange("visits", part, first // 2, end // 2) for part in (0, 1))
        write(frame(first, end), SimpleNamespace(ranges=ranges), str(tmp_path))
    check_tables(tmp_path, lines)


def test_a_plain_script_and_one_on_trio_share_a_topic(
    machine: SparkMachine, tmp_path: Path
) -> None:
    """The two shortest programs are one group: together they write every record once."""
    with embedded_broker() as bootstrap_servers:
        topic = Topic.create(Kafka("embedded", bootstrap_servers), partitions=4)
        arguments = (bootstrap_servers, topic.name, str(tmp_path / unique("rows")))
        placed = topic.produce(100)
        group_id = f"{topic.name}-spark"

        def started(name: str) -> Worker:
            return Worker(machine, f"examples/spark_{name}.py", *arguments, patience=PATIENCE)

        with started("threaded") as plain, started("trio") as on_trio:
            topic.wait_until_members(group_id, 2, PATIENCE)
            placed += topic.produce(100)
            topic.wait_until_committed(group_id, PATIENCE)
            for worker in plain, on_trio:
                worker.send(signal.SIGTERM)
                assert worker.ended() == 0
            assert "rows/s" in on_trio.errors
        written = table(Path(arguments[2]), "", "topic", "partition", "offset")
        assert written == sorted(
            ((name.topic, name.partition, at) for name, at in placed), key=words
        )
        assert topic.committed(group_id) == topic.ends()
