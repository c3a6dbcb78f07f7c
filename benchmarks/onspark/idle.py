"""Measures the cost of waiting for records: CPU, requests to Kafka, Spark jobs.

It uses a separate Kafka that logs its requests; the embedded broker has no such log.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from functools import partial
from typing import Any, Final

import attrs

from benchmarks.onspark.bench import Bench, Feed, Marks, cpu_seconds, line, load, spread, title
from benchmarks.onspark.latency import RECORDS, Running, kgroup_running, spark_running
from kgroup.testing.kafka import RealKafka

LOGGED: Final = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
REQUEST: Final = re.compile(r'"requestApiKeyName":"(\w+)"')
QUIET: Final = {"log_level": 0}
"""The cell's Kafka ends before the idle consumers of Spark's Python workers do."""
SETTLED: Final = 2.0
"""Seconds after the last batch from which it counts as waiting."""
VARIANTS: Final[dict[str, Running]] = {
    "readStream + foreachBatch": spark_running,
    "kgroup": partial(kgroup_running, client=QUIET),
    "kgroup, poll_interval=1": partial(kgroup_running, client=QUIET, poll_interval=1.0),
}


def jobs(bench: Bench) -> int:
    """The number of jobs that this Spark has run."""
    java: Any = bench.spark.sparkContext._jsc  # noqa: SLF001 # the tracker forgets old ones
    return int(java.sc().dagScheduler().nextJobId())


def measure(bench: Bench) -> None:
    """Run the cell."""
    seconds = 3.0 if bench.quick else 10.0
    title(f"idle: {seconds:g} s of waiting, 12 partitions without a new record")
    with RealKafka(java_options=[LOGGED]) as kafka:
        own = attrs.evolve(bench, servers=kafka.bootstrap_servers)
        cpu: dict[str, list[float]] = {name: [] for name in VARIANTS}
        requests: dict[str, list[Counter[str]]] = {name: [] for name in VARIANTS}
        ran: dict[str, int] = dict.fromkeys(VARIANTS, 0)
        for _ in range(bench.times(3, 1)):
            for name, running in VARIANTS.items():
                topic, marks = own.topic(), Marks()
                Feed(own.servers, topic).send(RECORDS)
                with running(own, topic, marks):
                    marks.wait_total("rows", RECORDS)
                    time.sleep(SETTLED)
                    used, logged, had = cpu_seconds(), len(kafka.log_path.read_text()), jobs(own)
                    time.sleep(seconds)
                    cpu[name].append((cpu_seconds() - used) / seconds * 1000)
                    log = kafka.log_path.read_text()[logged:]
                    ran[name] += jobs(own) - had
                    requests[name].append(Counter(REQUEST.findall(log)))
        for name in VARIANTS:
            each = [sum(found.values()) / seconds for found in requests[name]]
            most = ", ".join(kind for kind, _ in requests[name][0].most_common(4))
            line(
                f"{name:27} CPU {spread(cpu[name], '.0f')} ms a second,"
                f" {spread(each, '.1f')} requests a second ({most}), {ran[name]} Spark jobs"
            )
        line(f"({load()} at the end)")
