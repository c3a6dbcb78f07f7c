"""The command ``python -m benchmarks start``: from nothing to the first record, and the end.

In one process, a member of a new group is made, joins and reads a record that waits for it; then it
is closed. This is repeated; imports do not count. kgroup also says when it had its partitions.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.arguments import count
from benchmarks.clients.job import Job
from benchmarks.clients.roster import Client, present
from benchmarks.report.results import Results
from benchmarks.single import add_clients, grouped, in_turns, started, topic_with, warm_up
from kgroup.testing.kafka import RealKafka

CLIENTS: Final = (
    "kgroup",
    "kgroup-threads",
    "confluent-eager",
    "confluent-kip848",
    "aiokafka",
    "kafka-go",
    "franz-go",
    "java",
)
EACH: Final = 30.0
"""Seconds that one start and stop may take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_clients(parser, CLIENTS, rounds=1, able=grouped)
    parser.add_argument("--repeats", type=count, default=10, help="in one process")


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Measure."""
    there = present(arguments.clients)
    settings = {name: getattr(arguments, name) for name in ("rounds", "repeats")}
    results = Results.begin("start", settings, there, folder)
    with RealKafka(java_options=()) as kafka:
        warm_up(kafka.bootstrap_servers)
        servers = kafka.bootstrap_servers
        topic = topic_with(servers, 1, 1)
        measure = partial(durations, servers, topic, arguments.repeats)
        in_turns(results, there, arguments.rounds, [""], measure)
    return results


def durations(
    servers: str, topic: str, repeats: int, client: Client, case: str
) -> Mapping[str, Any]:
    """Run one process."""
    del case
    job = Job(
        servers=servers,
        topic=topic,
        group="",
        partitions=1,
        commit=False,
        rounds=repeats,
        sink="first",
    )
    with started(client, job) as (process, journal):
        process.result(EACH * repeats)
        lines = [line.split() for line in journal.read_text().splitlines()]
    if len(lines) < repeats:
        raise process.failure(f"read a record in {len(lines)} of {repeats} runs")
    return {
        "start": [_milliseconds(start) for start, *_ in lines],
        "stop": [_milliseconds(stop) for _, stop, *_ in lines],
        "join": [_milliseconds(join) for _, _, *joins in lines for join in joins],
    }


def _milliseconds(seconds: str) -> float:
    return round(1000 * float(seconds), 1)
