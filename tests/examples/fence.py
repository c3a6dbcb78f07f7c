"""What the fence of an exactly-once example has to do, for the tests of both examples."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import final

from tests.brokers import Kafka
from tests.conftest import ROOT
from tests.examples.topic import Record, Topic
from tests.examples.worker import Worker


@final
class Checkout:
    """The tests' own environment, which has psycopg, as the machine of a worker."""

    folder = ROOT
    python = Path(sys.executable)

    def variables(self) -> Mapping[str, str]:
        """The process environment, where the tests can be imported."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}


def check_fence(
    example: str,
    kafka: Kafka,
    database: str,
    in_table: Callable[[Topic], list[Record]],
    folder: Path,
) -> None:
    """Stop a worker before a write; once another has written, it wakes and cannot write.

    The other one has written a part of the records that the stopped one holds, so that only the
    fence keeps it from writing the rest.
    """
    topic = Topic.create(kafka, partitions=1)
    produced = topic.produce(100)
    gates = [folder / f"gate-{name}" for name in ("old", "new")]
    for gate in gates:
        os.mkfifo(gate)

    def start(name: str, records: int, free: int) -> Worker:
        program = "tests/examples/gated_worker.py"
        where = (topic.bootstrap_servers, topic.name, database, name, str(folder / f"gate-{name}"))
        return Worker(Checkout(), program, example, *where, str(records), str(free))

    def at_the_gate(lines: list[str]) -> bool:
        return "at the gate" in lines

    with ExitStack() as stack:
        old = stack.enter_context(start("old", records=10, free=0))
        old.until(at_the_gate)
        old.send(signal.SIGSTOP)
        new = stack.enter_context(start("new", records=5, free=1))
        new.until(at_the_gate)
        written = in_table(topic)
        assert written == produced[:5]
        old.send(signal.SIGCONT)
        gates[0].write_bytes(b"")
        old.until(lambda lines: any(line.startswith("refused: ") for line in lines))
        assert in_table(topic) == written
        old.send(signal.SIGKILL)
        gates[1].write_bytes(b"")
        topic.wait_until_committed(topic.name)
        new.send(signal.SIGTERM)
        assert new.ended() == 0
    assert in_table(topic) == produced
