"""The command ``python -m benchmarks latency``: from the producer to the handler.

A producer writes at a steady rate, each record with its time; one worker notes when it gets it. It
has no work to do and commits nothing. Seconds of the start are left out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.arguments import count, seconds
from benchmarks.clients.job import Job
from benchmarks.clients.roster import Client, present
from benchmarks.handover import judge
from benchmarks.handover.stage import Stage
from benchmarks.processes import FailedError
from benchmarks.report.markdown import percentile
from benchmarks.report.results import Results
from benchmarks.single import add_clients, in_turns, warm_up
from kgroup.testing.kafka import RealKafka

CLIENTS: Final = (
    "confluent-raw",
    "kgroup-batches",
    "kgroup",
    "kgroup-threads",
    "confluent-eager",
    "aiokafka",
    "kafka-go",
    "franz-go",
    "java",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_clients(parser, CLIENTS, rounds=3)
    parser.add_argument("--rate", type=count, default=1000, help="records per second")
    parser.add_argument("--seconds", type=seconds, default=10.0)
    parser.add_argument("--partitions", type=count, default=12)


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Measure."""
    there = present(arguments.clients)
    settings = {name: getattr(arguments, name) for name in ("rounds", "rate", "seconds")}
    results = Results.begin(
        "latency", {**settings, "partitions": arguments.partitions}, there, folder
    )
    with RealKafka(java_options=()) as kafka:
        warm_up(kafka.bootstrap_servers)
        measure = partial(latencies, kafka.bootstrap_servers, arguments)
        in_turns(results, there, arguments.rounds, [""], measure)
    return results


def latencies(
    servers: str, arguments: argparse.Namespace, client: Client, case: str
) -> Mapping[str, Any]:
    """Run one worker beside a producer."""
    del case
    partitions = arguments.partitions
    job = Job(servers=servers, topic="", group="", partitions=partitions, commit=False)
    stage = Stage((client,), job, arguments.rate)
    with stage.running():
        stage.be(1)
        began = time.monotonic()
        time.sleep(arguments.seconds)
        ended = time.monotonic()
        stage.finish()
        (records,) = stage.journals().values()
        left = judge.unread(records, stage.ends())
    (faults,) = judge.faults_of([records], [-math.inf])
    if left or faults != judge.Faults():
        raise FailedError(f"{client.name} left {left} records unread at the end; {faults}")
    took = [1000 * (one.done - one.sent) for one in records if began <= one.sent < ended]
    if len(took) < arguments.rate * arguments.seconds / 2:
        raise FailedError(f"{client.name} got only {len(took)} records")
    return {name: round(percentile(took, share), 3) for name, share in SHARES.items()}


SHARES: Final[Mapping[str, int]] = {"median": 50, "p99": 99, "longest": 100}
