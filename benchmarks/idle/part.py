"""The command ``python -m benchmarks idle``: many members in one process, with nothing to read.

Each member is in a group of its own. It has read one record, so that it is known to have joined;
then processor time, memory, threads and descriptors of the process are measured from outside.
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

CLIENTS: Final = ("kgroup", "kgroup-threads", "confluent-eager", "aiokafka", "kafka-go", "franz-go")
PATIENCE: Final = 120.0
SETTLE: Final = 5.0
MINUTE: Final = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_clients(parser, (*CLIENTS, "java"), rounds=1, able=grouped)
    parser.add_argument("--members", type=count, default=50)
    parser.add_argument("--seconds", type=seconds, default=60.0)
    parser.add_argument("--partitions", type=count, default=1)


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Measure."""
    there = present(arguments.clients)
    names = ("rounds", "members", "seconds", "partitions")
    settings = {name: getattr(arguments, name) for name in names}
    results = Results.begin("idle", settings, there, folder)
    with RealKafka(java_options=()) as kafka:
        warm_up(kafka.bootstrap_servers)
        measure = partial(cost, kafka.bootstrap_servers, arguments)
        in_turns(results, there, arguments.rounds, [""], measure)
    return results


def cost(
    servers: str, arguments: argparse.Namespace, client: Client, case: str
) -> Mapping[str, Any]:
    """Measure one process."""
    del case
    topic = topic_with(servers, arguments.partitions, 1)
    job = Job(
        servers=servers,
        topic=topic,
        group="",
        partitions=arguments.partitions,
        commit=False,
        members=arguments.members,
    )
    with started(client, job) as (process, journal):
        deadline = time.monotonic() + PATIENCE
        began = time.monotonic()
        while (read := len(journal.read_text().splitlines())) < arguments.members:
            process.check()
            if time.monotonic() > deadline:
                raise process.failure(f"has only {read} members after {PATIENCE:g} s")
            time.sleep(0.02)
        joined = time.monotonic() - began
        time.sleep(SETTLE)
        process.check()
        known = psutil.Process(process.pid)
        before = known.cpu_times()
        time.sleep(arguments.seconds)
        process.check()
        after = known.cpu_times()
        used = after.user + after.system - before.user - before.system
        return {
            "cpu": round(used * MINUTE / arguments.seconds, 3),
            "rss": round(known.memory_info().rss / 2**20, 1),
            "threads": known.num_threads(),
            "descriptors": known.num_fds(),
            "joined": round(joined, 3),
        }
