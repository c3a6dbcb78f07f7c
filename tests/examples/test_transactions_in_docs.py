"""The programs of docs/transactions.md: each result once, whatever is killed, aborted or frozen."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final, final

import attrs
import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position

from tests.brokers import EMBEDDED, REAL, Kafka
from tests.conftest import ROOT
from tests.examples.reader import Reader
from tests.examples.topic import TIMEOUT, Record, Topic
from tests.examples.worker import Worker, wait_until

THREADS, TRIO = re.findall(
    r"^```python\n(.+?)^```$",
    (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
PRICE: Final = '''
import pathlib
import time


def wait_for(path):
    """Wait until a test makes a file."""
    while not pathlib.Path(path).exists():
        time.sleep(0.01)


def say(event):
    """Print that the worker has begun: from then on, SIGTERM does not kill it."""
    if type(event).__name__ == "GenerationStarted":
        print("started", flush=True)


def price(message):
    """The function that the page leaves to its reader: the result says what it is of."""
    return f"{message.partition()} {message.offset()}".encode()


'''
PROGRAMS: Final = {
    "threads": PRICE + THREADS,
    "trio": PRICE.replace("def price", "async def price") + TRIO,
}
SHORT_SESSION: Final = "group_instance_id=name,\n    session_timeout=6.0,"
ADD_OFFSETS: Final = re.compile(r"^( +)(?:await )?generation\.commit_in_transaction", re.MULTILINE)
COMMIT: Final = re.compile(
    r"^( +)(?:await .+, |finish\()producer\.commit_transaction", re.MULTILINE
)
IN_THE_MIDDLE: Final = "in the middle"
BACKLOG: Final = 1000
"""Records of each partition that are produced before each kill."""
KILLS: Final = 2

# Each program on one of the brokers: tests/behaviour has the transactions themselves on both.
pytestmark = pytest.mark.parametrize(
    ("kafka", "kind"), [(REAL, "threads"), (EMBEDDED, "trio")], indirect=["kafka"]
)


def with_line(program: str, line: str, before: re.Pattern[str]) -> str:
    """The program with a further line in its transaction, once the results were written."""
    added = rf"\1producer.flush(); print('{IN_THE_MIDDLE}', flush=True); {line}" + "\n"
    changed, count = before.subn(lambda found: found.expand(added) + found[0], program)
    assert count == 1
    return changed


@final
@attrs.frozen
class Pricing:
    """The program, between two topics.

    Attributes:
        reader: the machine on which it runs.
        orders: the topic that it reads.
        prices: the topic of the results, with one partition.
        text: the program.
    """

    reader: Reader
    orders: Topic
    prices: Topic
    text: str

    def start(self, name: str, text: str | None = None) -> Worker:
        """Start it as the worker of this name, as it is or changed."""
        program = self.text if text is None else text
        file = self.reader.folder / f"{self.prices.name}-{name}.py"
        for old, new in (
            ("localhost:9092", self.orders.bootstrap_servers),
            ('"orders"', f'"{self.orders.name}"'),
            ('"prices"', f'"{self.prices.name}"'),
            ('"pricing"', f'"{self.group_id}"'),
            ("commit=False", "commit=False, on_event=say"),
        ):
            assert old in program
            program = program.replace(old, new)
        file.write_text(program, encoding="utf-8")
        return Worker(self.reader, file, f"{self.prices.name}-{name}")

    @property
    def group_id(self) -> str:
        """The group."""
        return f"{self.orders.name}-pricing"

    def results(self, isolation: str = "read_committed") -> list[Record]:
        """Which records the results are of, in the order in which readers get the results."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.prices.bootstrap_servers,
                "group.id": "none",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        found: list[Record] = []
        try:
            consumer.assign([Position(self.prices.name, 0, 0)])
            while True:
                message = consumer.poll(TIMEOUT)
                assert message is not None
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    return found
                partition, offset = map(int, (message.value() or b"").split())
                found.append((self.orders.partitions[partition], offset))
        finally:
            consumer.close()

    def finish(self, *names: str) -> None:
        """Let workers process all that is left, and end them."""
        with ExitStack() as stack:
            workers = [stack.enter_context(self.start(name)) for name in names]
            for worker in workers:
                worker.until(lambda lines: "started" in lines)
            self.orders.wait_until_committed(self.group_id)
            for worker in workers:
                worker.send(signal.SIGTERM)
                assert worker.ended() == 0, worker.errors


@pytest.fixture
def pricing(reader: Reader, topic: Topic, kafka: Kafka, kind: str) -> Pricing:
    """One of the programs, with the topics of a test, on each of the two brokers."""
    return Pricing(reader, topic, Topic.create(kafka, partitions=1), PROGRAMS[kind])


def test_workers_that_are_killed(pricing: Pricing) -> None:
    """Two workers are killed again and again; each result is there once, in its order."""
    produced: list[Record] = []
    for _ in range(KILLS):
        before = len(pricing.results())
        produced += pricing.orders.produce(BACKLOG)
        with pricing.start("a") as a, pricing.start("b") as b:
            wait_until(lambda: len(pricing.results()) > before)  # noqa: B023 # called at once
            a.send(signal.SIGKILL)
            b.send(signal.SIGKILL)
            assert (a.ended(), b.ended()) == (-signal.SIGKILL, -signal.SIGKILL)
    pricing.finish("a", "b")
    results = pricing.results()
    assert sorted(results) == sorted(produced)
    for partition in pricing.orders.partitions:
        offsets = [offset for name, offset in results if name == partition]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize(
    ("line", "status"),
    [("wait_for('nothing')", -signal.SIGKILL), ("1 / 0", 1)],
    ids=["killed", "raises"],
)
def test_the_end_in_the_middle_of_a_transaction(pricing: Pricing, line: str, status: int) -> None:
    """Readers of committed results get nothing of it, and later each result once."""
    produced = pricing.orders.produce(20)
    with pricing.start("a", with_line(pricing.text, line, COMMIT)) as worker:
        worker.until(lambda lines: IN_THE_MIDDLE in lines)
        if status < 0:
            worker.send(signal.SIGKILL)
        assert worker.ended() == status
    assert pricing.results("read_uncommitted")
    assert pricing.results() == []
    pricing.finish("a")
    assert sorted(pricing.results()) == sorted(produced)
    assert len(pricing.results("read_uncommitted")) > len(produced)


def test_a_worker_that_was_left_behind(pricing: Pricing, tmp_path: Path) -> None:
    """It wakes in a transaction when another one has its partitions: it aborts, and goes on."""
    gate = tmp_path / "gate"
    text = pricing.text.replace("group_instance_id=name,", SHORT_SESSION)
    text = text.replace("20_000", "120_000")  # only the generation may refuse it
    waits = with_line(text, f"wait_for({str(gate)!r})", ADD_OFFSETS)
    produced = pricing.orders.produce(20)
    with pricing.start("old", waits) as old:
        old.until(lambda lines: IN_THE_MIDDLE in lines)
        old.send(signal.SIGSTOP)
        with pricing.start("new", text) as new:
            pricing.orders.wait_until_committed(pricing.group_id)
            gate.touch()
            old.send(signal.SIGCONT)
            wait_until(lambda: len(pricing.results()) == len(produced))
            new.send(signal.SIGTERM)
            assert new.ended() == 0
        produced += pricing.orders.produce(20)
        pricing.orders.wait_until_committed(pricing.group_id)
        old.send(signal.SIGTERM)
        assert old.ended() == 0
        assert "StaleGenerationError" not in old.errors
    assert sorted(pricing.results()) == sorted(produced)
    assert len(pricing.results("read_uncommitted")) > len(produced)
