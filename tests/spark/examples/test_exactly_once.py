"""The exactly-once examples: killed at every step, and one frozen past its session and woken.

All sinks share one story, because each driver has to start a JVM. The first driver freezes while it
holds a batch. Three others take over, one after the other, and each is killed (kill -9) at another
step. Then the first one is woken, and does the rest. Before each of them records are produced, so
that no two have the same ranges. Then the tests check the contents of the sinks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import attrs
import psutil
import psycopg
import pyarrow.parquet
import pytest

from kgroup.testing.postgres import Postgres
from kgroup.types import TopicPartition
from tests.brokers import EMBEDDED, Kafka, embedded_broker
from tests.conftest import ROOT
from tests.examples.topic import Record, Topic
from tests.examples.worker import Worker
from tests.spark.examples.driver import AFTER, BEFORE, BETWEEN, FREEZE, KILL, REFUSED, load

# One process runs the story; its first test waits for all of it.
pytestmark = [pytest.mark.xdist_group("spark-exactly-once"), pytest.mark.timeout(1500)]

DRIVER: Final = Path(__file__).with_name("driver.py")
TIMEOUT: Final = 300.0
"""Seconds for one step of a driver and its processes; a step takes about 10."""
GROUPS: Final = {
    "spark_postgres": "postgres",
    "spark_delta": "delta",
    "spark_parquet_manifest": "parquet",
}
"""The name of an example's group, after that of its topic."""
every_example = pytest.mark.parametrize("example", GROUPS)


@final
@attrs.frozen
class Machine:
    """The machine on which drivers run."""

    folder: Path = ROOT
    python: Path = Path(sys.executable)

    def variables(self) -> Mapping[str, str]:
        """The process environment."""
        return os.environ


@final
@attrs.frozen
class Story:
    """The results of the story.

    Attributes:
        produced: every record.
        sinks: for each example a function that reads what it has written.
        woken: the output of the frozen driver, before and after it was woken.
        committed: the committed offsets of each example's group in the end.
        ends: the end offsets of the topic.
    """

    produced: list[Record]
    sinks: Mapping[str, Callable[[], list[Record]]]
    woken: list[str]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    ends: Mapping[TopicPartition, int]


@pytest.fixture(scope="module")
def story(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Run the story."""
    folder = tmp_path_factory.mktemp("sinks")
    places = {
        "spark_postgres": postgres.url,
        "spark_delta": str(folder / "delta"),
        "spark_parquet_manifest": str(folder / "parquet"),
    }
    with embedded_broker() as servers:
        topic = Topic.create(Kafka(EMBEDDED, servers), partitions=2)
        sinks = [f"{example}={place}" for example, place in places.items()]

        def driver(step: str, action: str) -> Worker:
            arguments = (step, action, servers, topic.name, *sinks)
            return Worker(Machine(), DRIVER, *arguments, timeout=TIMEOUT)

        produced = topic.produce(10)
        with driver(BEFORE, FREEZE) as frozen:
            frozen.until(all_reached(BEFORE))
            for step in (BEFORE, BETWEEN, AFTER):
                produced += topic.produce(1)
                with driver(step, KILL) as killed:
                    assert killed.ended() == -signal.SIGKILL
            produced += topic.produce(1)
            wake(frozen.pid)
            frozen.until(all_reached(AFTER))
            for group in GROUPS.values():
                topic.wait_until_committed(f"{topic.name}-{group}", TIMEOUT)
        yield Story(
            produced,
            {
                "spark_postgres": lambda: in_postgres(postgres.url, topic.name),
                "spark_delta": lambda: in_files(delta_files(folder / "delta")),
                "spark_parquet_manifest": lambda: in_files(
                    load("spark_parquet_manifest").published(places["spark_parquet_manifest"])
                ),
            },
            frozen.lines,
            {
                example: topic.committed(f"{topic.name}-{group}")
                for example, group in GROUPS.items()
            },
            topic.ends(),
        )


def all_reached(step: str) -> Callable[[list[str]], bool]:
    """Whether every example has reached a step."""
    return lambda lines: {f"{example}: {step}" for example in GROUPS} <= set(lines)


def wake(pid: int) -> None:
    """Let a frozen process and its children continue."""
    process = psutil.Process(pid)
    for one in (*process.children(recursive=True), process):
        with suppress(psutil.NoSuchProcess):  # a Python worker that was just ending
            one.resume()


def in_postgres(url: str, topic: str) -> list[Record]:
    """The records in the table."""
    with psycopg.connect(url) as connection:
        query = 'SELECT topic, partition, "offset" FROM lines WHERE topic = %s'
        rows = connection.execute(query, [topic]).fetchall()
    return [(TopicPartition(topic, partition), offset) for topic, partition, offset in rows]


def delta_files(table: Path) -> list[str]:
    """The files that the log of a Delta table has added; the examples remove none."""
    actions = [
        json.loads(line)
        for commit in sorted((table / "_delta_log").glob("*.json"))
        for line in commit.read_text().splitlines()
    ]
    assert not any("remove" in action for action in actions)
    return [str(table / action["add"]["path"]) for action in actions if "add" in action]


def in_files(files: list[str]) -> list[Record]:
    """The records in Parquet files."""
    found: list[Record] = []
    for name in files:
        table = pyarrow.parquet.ParquetFile(name).read(["topic", "partition", "offset"])
        found += [
            (TopicPartition(row["topic"], row["partition"]), row["offset"])
            for row in table.to_pylist()
        ]
    return found


@every_example
def test_every_record_is_in_the_sink_once(story: Story, example: str) -> None:
    """No record is missing or repeated after the kills and the frozen driver."""
    assert sorted(story.sinks[example]()) == sorted(story.produced)


@every_example
def test_the_sink_refuses_the_driver_that_was_frozen(story: Story, example: str) -> None:
    """Its batch overlaps with others and is not written; its next batch is."""
    steps_of_woken = [line for line in story.woken if line.startswith(f"{example}: ")]
    steps = BEFORE, REFUSED, BEFORE, BETWEEN, AFTER
    assert steps_of_woken == [f"{example}: {step}" for step in steps]


@every_example
def test_kafka_has_the_offsets_too(story: Story, example: str) -> None:
    """The groups' committed offsets are the end offsets: no lag is left."""
    assert story.committed[example] == story.ends
