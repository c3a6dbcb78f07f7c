"""The command ``python -m benchmarks memory``: a slow consumer of a topic with a long backlog.

The consumer takes a batch of 100 records of 1 KB a second, all others wait. Clients fetch ahead as
far as their settings let them; the memory of the process is sampled from outside.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.arguments import count, seconds
from benchmarks.clients.job import Job
from benchmarks.clients.roster import Client, present
from benchmarks.report.results import Results
from benchmarks.single import add_clients, grouped, in_turns, started, topic_with, warm_up
from kgroup.testing.kafka import RealKafka

CLIENTS: Final = (
    "kgroup-batches",
    "kgroup",
    "confluent-eager",
    "aiokafka",
    "kafka-go",
    "franz-go",
    "java",
)
SIZE: Final = 1000
PARTITIONS: Final = 12
WORK: Final = 1.0
EVERY: Final = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_clients(parser, CLIENTS, rounds=1, able=grouped)
    parser.add_argument("--records", type=count, default=400_000)
    parser.add_argument("--seconds", type=seconds, default=30.0)


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Measure."""
    there = present(arguments.clients)
    settings = {name: getattr(arguments, name) for name in ("rounds", "records", "seconds")}
    results = Results.begin("memory", settings, there, folder)
    with RealKafka(java_options=()) as kafka:
        warm_up(kafka.bootstrap_servers)
        servers = kafka.bootstrap_servers
        topic = topic_with(servers, PARTITIONS, arguments.records, SIZE)
        measure = partial(samples, servers, topic, arguments.seconds)
        in_turns(results, there, arguments.rounds, [""], measure)
    return results


def samples(
    servers: str, topic: str, seconds: float, client: Client, case: str
) -> Mapping[str, Any]:
    """Sample the memory of one process, in MiB."""
    del case
    job = Job(servers=servers, topic=topic, group="", partitions=PARTITIONS, work=WORK)
    with started(client, job) as (process, journal):
        known, began = psutil.Process(process.pid), time.monotonic()
        points = list[tuple[float, float]]()
        while (at := time.monotonic() - began) < seconds:
            process.check()
            points.append((round(at, 2), round(known.memory_info().rss / 2**20, 1)))
            time.sleep(EVERY)
        records = len(journal.read_text().splitlines())
    if not records:
        raise process.failure("processed nothing")
    return {"records": records, "peak": max(rss for _, rss in points), "curve": points}
