"""Drivers of one group share a topic; one is stopped, one frozen, one killed.

Their sink is plain, so that repeated records can be seen. No record may be lost, and only records
that the frozen or the killed driver had not committed may be repeated.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import psutil
import pytest
from confluent_kafka import KafkaError, Message, Producer

from kgroup.testing.kafka import KafkaAddress
from kgroup.testing.tools import run_tool
from tests.brokers import REAL, Kafka, unique
from tests.conftest import ROOT
from tests.examples.topic import PAUSE, Topic
from tests.examples.worker import Worker
from tests.spark.machine import TIMEOUT, SparkMachine, spark_machine

DRIVER: Final = ROOT / "tests" / "spark" / "driver.py"
PARTITIONS: Final = 4
WORK: Final = "0.8"
"""Seconds that a task works."""
BEAT: Final = 0.2
"""Seconds between two rounds of one record for each partition."""

Place = tuple[int, int]
"""Partition and offset of a record."""

pytestmark = pytest.mark.timeout(1000)


@final
class Produced:
    """A producer that runs in a thread until the block is left."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: KafkaError | None = None
        self.places: set[Place] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop producing, and wait for all acknowledgements."""
        self._over.set()
        self._thread.join()
        assert self._error is None

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._topic.bootstrap_servers})
        while not self._over.wait(BEAT):
            for partition in range(PARTITIONS):
                producer.produce(
                    self._topic.name, b"record", partition=partition, on_delivery=self._placed
                )
            producer.poll(0)
        producer.flush(30)

    def _placed(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self._error = error
        else:
            self.places.add((partition, offset))


@pytest.fixture(scope="module")
def machine() -> Iterator[SparkMachine]:
    """The machine on which drivers run."""
    with spark_machine() as machine:
        yield machine


def places(line: str) -> set[Place]:
    """The records of the ranges in a driver's line."""
    found = re.findall(r"-(\d+)\[(\d+):(\d+)\]", line)
    return {(int(part), at) for part, first, end in found for at in range(int(first), int(end))}


def all_places(lines: list[str], what: str) -> list[Place]:
    """The records of all lines of one kind."""
    return list(chain.from_iterable(places(line) for line in lines if line.startswith(what)))


def following(driver: Worker, what: str, seen: int | None = None) -> str:
    """The next line of a kind that a driver prints, after so many lines or from now on."""
    seen = driver.catch_up() if seen is None else seen
    driver.until(lambda lines: any(line.startswith(what) for line in lines[seen:]))
    return next(line for line in driver.lines[seen:] if line.startswith(what))


def working(folder: Path, began: str, tasks: int = 1) -> list[str]:
    """Wait until tasks work on a driver's batch; return for each how often it was tried before."""
    place = began.rsplit(maxsplit=1)[-1]
    deadline = time.monotonic() + TIMEOUT
    while True:
        with suppress(FileNotFoundError):
            lines = (folder / "working").read_text().splitlines()
            tried = [line.split()[-1] for line in lines if line.startswith(f"{place} ")]
            if len(tried) >= tasks:
                return tried
        assert time.monotonic() < deadline, f"not {tasks} tasks work on {place}"
        time.sleep(PAUSE)


def wait_for_work(driver: Worker, folder: Path) -> set[Place]:
    """Wait until tasks work on a driver's next batch, and return its places."""
    began = following(driver, "began")
    working(folder, began)
    return places(began)


def wait_until_held(hold: Path) -> str:
    """Make a file that holds a driver up, and wait until it does; return the line that it adds."""
    hold.touch()
    deadline = time.monotonic() + TIMEOUT
    while not (held := hold.read_text().splitlines()):
        assert time.monotonic() < deadline, "nothing is held"
        time.sleep(PAUSE)
    return held[0]


def hold_work(driver: Worker, hold: Path) -> set[Place]:
    """Let the work on a driver's batch last until this file is gone; return the batch's places."""
    began = f" {wait_until_held(hold)}"
    driver.until(lambda lines: any(line.endswith(began) for line in lines))
    return next(places(line) for line in driver.lines if line.endswith(began))


def has(driver: Worker, partitions: int, after: str = "") -> None:
    """Wait until a driver has a generation, begun after a line, with this many partitions."""
    driver.catch_up()
    since = driver.lines.index(after) if after else 0

    def so(lines: list[str]) -> bool:
        handed = [line for line in lines[since:] if line.startswith("generation")]
        return bool(handed) and len(handed[-1].split()) == 1 + partitions

    driver.until(so)


@contextmanager
def frozen(driver: Worker) -> Iterator[None]:
    """Freeze a driver with its JVM and its Python workers."""
    process = psutil.Process(driver.pid)
    process.suspend()
    children = process.children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):  # a Python worker that was just ending
            child.suspend()
    try:
        yield
    finally:
        for one in *reversed(children), process:
            with suppress(psutil.NoSuchProcess):
                one.resume()


def wait_for_owners(topic: Topic, group_id: str, *names: str) -> None:
    """Wait until Kafka's own tool shows these owners of partitions, and each partition's lag.

    During a rebalance it shows no owner.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        tool = run_tool(
            topic.bootstrap_servers, "kafka-consumer-groups", "--describe", f"--group={group_id}"
        )
        header, *rows = (line.split() for line in tool.stdout.splitlines() if line.strip())
        lag, owner = header.index("LAG"), header.index("CLIENT-ID")
        assert len(rows) == PARTITIONS
        found = {row[owner] for row in rows}
        if found.issuperset(names) and all(row[lag].isdigit() for row in rows):
            return
        assert time.monotonic() < deadline, tool.stdout


def wait_for_takeover(driver: Worker, topic: Topic, group_id: str) -> None:
    """Wait until the driver ``dies`` has all partitions, and has committed a batch of them."""
    has(driver, PARTITIONS)
    following(driver, "committed")
    wait_for_owners(topic, group_id, "dies")


def sink(folder: Path) -> dict[str, list[Place]]:
    """The records that each driver has written."""
    written: dict[str, list[Place]] = {}
    for file in folder.glob("driver=*/attempt=*/part-*.json"):
        rows = map(json.loads, file.read_text().splitlines())
        name = file.parts[-3].removeprefix("driver=")
        written.setdefault(name, []).extend((row["partition"], row["offset"]) for row in rows)
    return written


def check_all_committed(stopped: Worker, held: set[Place]) -> None:
    """Check that a stopped driver has committed all of its batches, with the one that it held."""
    assert held <= set(all_places(stopped.lines, "committed"))
    assert all_places(stopped.lines, "began") == all_places(stopped.lines, "committed")


def test_drivers_come_and_go(
    real_kafka: KafkaAddress, machine: SparkMachine, tmp_path: Path
) -> None:
    """No record is lost; only uncommitted ones of a frozen or killed driver are repeated."""
    topic = Topic.create(Kafka(REAL, real_kafka.bootstrap_servers), PARTITIONS)
    group_id = unique("drivers")

    def driver(name: str) -> Worker:
        place = (topic.bootstrap_servers, topic.name, group_id, str(tmp_path))
        return Worker(machine, DRIVER, *place, name, WORK, timeout=TIMEOUT)

    def freeze(outcome: str, hold: Path) -> None:
        """Freeze one driver until the other has all partitions; wait for its batch's outcome."""
        with frozen(freezes):
            seen = freezes.catch_up()
            wait_for_takeover(dies, topic, group_id)
            if outcome == "refused":
                hold.unlink()
        woken = following(freezes, outcome, seen)
        has(freezes, 2, after=woken)
        has(dies, 2)

    with driver("stops") as stops, driver("freezes") as freezes, Produced(topic) as produced:
        has(stops, 2)
        has(freezes, 2)
        with driver("dies") as dies:
            following(stops, "committed")
            following(freezes, "committed")
            # The third may have joined by then.
            wait_for_owners(topic, group_id, "stops", "freezes")
            stopped = wait_for_work(stops, tmp_path)
            stops.send(signal.SIGTERM)
            assert stops.ended() == 0
            has(dies, 2)
            # First during the work, then between the write to the sink and the commit.
            cancelled = hold_work(freezes, hold := tmp_path / "hold-freezes")
            freeze("cancelled", hold)
            hold.unlink()
            refused = places(wait_until_held(hold := tmp_path / "uncommitted-freezes"))
            freeze("refused", hold)
            killed = places(wait_until_held(tmp_path / "uncommitted-dies"))
            dies.send(signal.SIGKILL)
            dies.ended()
        has(freezes, PARTITIONS)
        produced.stop()
        topic.wait_until_committed(group_id, TIMEOUT)
        freezes.send(signal.SIGTERM)
        assert freezes.ended() == 0

    check_all_committed(stops, stopped)
    # The cancelled batch wrote nothing; the refused one had been written.
    written = sink(tmp_path)
    assert sorted(refused) == sorted(all_places(freezes.lines, "refused"))
    committed = all_places(freezes.lines, "committed")
    assert sorted(written["freezes"]) == sorted([*committed, *refused])
    assert set(cancelled).isdisjoint(written["freezes"])
    # Each record is there; twice only if a driver had written it without a commit.
    counted = Counter(chain.from_iterable(written.values()))
    assert counted.keys() == produced.places
    assert {place for place, times in counted.items() if times > 1} == killed.union(refused)
    assert max(counted.values()) == 2
