"""The command ``python -m benchmarks records``: how fast a backlog is read.

Each client reads the same topic, from the first record to the last one wanted, without commits.
"raw" is confluent-kafka without a group, the measure for all others. In the second case, value and
offset of each record are read too. The figures of CPU are those of the whole process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.arguments import count
from benchmarks.clients.job import Job
from benchmarks.clients.roster import Client, present
from benchmarks.processes import FailedError
from benchmarks.report.results import Results
from benchmarks.single import add_clients, in_turns, started, topic_with, warm_up
from kgroup.testing.kafka import RealKafka

RAW: Final = "confluent-raw"
CLIENTS: Final = (
    "confluent-checked",
    "kgroup-source",
    "kgroup-batches",
    "kgroup",
    "kgroup-threads",
    "confluent-eager",
    "aiokafka",
    "kafka-go",
    "franz-go",
    "java",
)
CASES: Final[Mapping[str, bool]] = {"batches alone": False, "each record read": True}
BATCH: Final = 1000
"""The most records of a batch: kgroup's default, for all."""
SLOWEST: Final = 5000
"""Records per second below which a client counts as failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_clients(parser, CLIENTS, rounds=5)
    parser.add_argument("--records", type=count, nargs="+", default=[2_000_000, 1_000_000])
    parser.add_argument("--sizes", type=count, nargs="+", default=[100, 1000], help="in bytes")
    parser.add_argument("--partitions", type=count, default=12)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Measure size by size.

    Raises:
        FailedError: the options do not give each size its number of records.
    """
    if len(arguments.sizes) != len(arguments.records):
        raise FailedError(
            f"--sizes has {len(arguments.sizes)} values and --records {len(arguments.records)}:"
            " give each size its number of records"
        )
    there = present(dict.fromkeys([RAW, *arguments.clients]))
    names = ("rounds", "records", "sizes", "partitions")
    results = Results.begin(
        "records", {name: getattr(arguments, name) for name in names}, there, folder
    )
    with RealKafka(java_options=()) as kafka:
        warm_up(kafka.bootstrap_servers)
        servers = kafka.bootstrap_servers
        for size, records in zip(arguments.sizes, arguments.records, strict=True):
            topic = topic_with(servers, arguments.partitions, records, size)
            job = Job(
                servers=servers,
                topic=topic,
                group="",
                partitions=arguments.partitions,
                batch=BATCH,
                commit=False,
                sink="meter",
                records=records,
            )
            cases = [f"{size} B, {case}" for case in arguments.cases]
            in_turns(results, there, arguments.rounds, cases, partial(speed, job))
    return results


def speed(job: Job, client: Client, case: str) -> Mapping[str, Any]:
    """Run one worker in one of the cases."""
    return read_all(attrs.evolve(job, each=CASES[case.partition(", ")[2]]), client)


def read_all(job: Job, client: Client) -> Mapping[str, Any]:
    """Run one worker to its end: records per second, and nanoseconds of CPU per record."""
    with started(client, job) as (process, journal):
        process.result(30 + job.records / SLOWEST)
        text = journal.read_text()
    found: Mapping[str, Any] = json.loads(text)
    return {name: round(value, 1) for name, value in found.items()}
