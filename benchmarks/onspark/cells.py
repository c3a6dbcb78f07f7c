"""Runs the requested cells one after the other, on one Kafka and one Spark session."""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import confluent_kafka
import pyarrow
import pyspark
import trio

from benchmarks.onspark import cancel, idle, kill, latency, rebalance, rows, visible
from benchmarks.onspark.bench import Bench, load
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.kafka import RealKafka
from kgroup.testing.spark import session
from kgroup.testing.spark.jars import kafka_jars

CELLS: Final[dict[str, Callable[[Bench], None]]] = {
    "rows": rows.measure,
    "latency": latency.measure,
    "idle": idle.measure,
    "visible": visible.measure,
    "rebalance": rebalance.measure,
    "cancel": cancel.measure,
    "kill": kill.measure,
}
SETTINGS: Final = {
    # The fixtures' are for JVMs that live for seconds; here code is to be compiled well.
    "spark.driver.extraJavaOptions": "-Dkgroup=benchmark",
    "spark.executor.extraJavaOptions": "-Dkgroup=benchmark",
    "spark.driver.memory": "1500m",
}


def run(about: str) -> None:
    """Parse the arguments, start Kafka and Spark, and measure."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("cells", nargs="*", metavar="CELL", help=", ".join(CELLS))
    parser.add_argument("--quick", action="store_true", help="few records, two rounds")
    parser.add_argument("--rounds", type=int, help="of each variant")
    parser.add_argument("--scale", type=float, default=1.0, help="of the records of rows")
    parser.add_argument("--embedded", action="store_true", help="kgroup's broker, not Apache's")
    arguments = parser.parse_args()
    if unknown := set(arguments.cells) - CELLS.keys():
        parser.error(f"no cell {', '.join(sorted(unknown))}; there are {', '.join(CELLS)}")
    names = arguments.cells or list(CELLS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kgroup-bench-")))
        if arguments.embedded:
            servers = stack.enter_context(EmbeddedKafka()).bootstrap_servers
        else:
            servers = stack.enter_context(RealKafka(heap="1g", java_options=())).bootstrap_servers
        spark = stack.enter_context(
            session(jars=kafka_jars(), settings=SETTINGS, log_path=folder / "spark.log")
        )
        print(
            f"PySpark {pyspark.__version__}, spark-sql-kafka-0-10 {pyspark.__version__},"
            f" Python {platform.python_version()}, confluent-kafka {confluent_kafka.__version__},"
            f" pyarrow {pyarrow.__version__}, trio {trio.__version__},"
            f" Java {spark.sparkContext._jvm.System.getProperty('java.version')}\n"  # type: ignore[union-attr] # noqa: SLF001
            f"{'embedded broker' if arguments.embedded else 'Apache Kafka, one node'},"
            f" Spark {spark.sparkContext.master}, {platform.platform()}, {load()}"
        )
        bench = Bench(
            servers=servers,
            spark=spark,
            folder=folder,
            rounds=arguments.rounds,
            quick=arguments.quick,
            scale=arguments.scale,
            real=not arguments.embedded,
        )
        for name in names:
            CELLS[name](bench)
