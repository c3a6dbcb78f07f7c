"""A driver process that kills itself and its children at a given step, or finishes.

python -m benchmarks.onspark.driver KIND SERVERS TOPIC FOLDER STEP RECORDS
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final, final

from pyspark.sql import DataFrame, SparkSession

from kgroup import GroupConfig
from kgroup.events import BatchDone, Event
from kgroup.spark.threaded import batches
from kgroup.testing.spark import session
from kgroup.testing.spark.jars import kafka_jars
from kgroup.threaded import ConsumerGroup

IN_SINK, BETWEEN, AFTER = "in the sink", "between sink and commit", "after the commit"
STEPS: Final = (IN_SINK, BETWEEN, AFTER)
FINISH: Final = "finish"
KINDS: Final = {
    "stream": "readStream, checkpoint, append to Parquet",
    "kgroup": "kgroup, append to Parquet",
    "replace": "kgroup, a folder for each batch's start",
}
BATCHES: Final = 12
SESSION_TIMEOUT: Final = 6.0


def kill() -> None:
    """Kill all processes at once, as a machine does that loses power."""
    os.killpg(0, signal.SIGKILL)


def end_with_parent() -> None:
    """End when the parent has ended: its end of the pipe is then closed."""
    while os.read(0, 1):
        pass
    kill()


@final
class Fate:
    """Kills the process at its step of the second batch."""

    def __init__(self, step: str) -> None:
        self._step = step

    def at(self, step: str, batch: int) -> None:
        """Report that a batch, counted from 1, has reached a step."""
        if step != self._step or batch != 2:
            return
        if step == IN_SINK:
            threading.Timer(0.1, kill).start()  # somewhere in its job
        else:
            kill()


def write(df: DataFrame, place: str, mode: str = "append") -> None:
    """Write a batch to the sink."""
    df.select("partition", "offset", "value").write.mode(mode).parquet(place)


def stream(
    spark: SparkSession, servers: str, topic: str, place: str, fate: Fate, size: int
) -> None:
    """Run Spark's own source."""
    started = 0

    def each(df: DataFrame, _: int) -> None:
        nonlocal started
        if started:
            fate.at(AFTER, started)
        started += 1
        fate.at(IN_SINK, started)
        write(df, place)
        fate.at(BETWEEN, started)

    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", size)
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", f"{place}-checkpoint")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def kgroup(
    spark: SparkSession,
    servers: str,
    topic: str,
    place: str,
    fate: Fate,
    size: int,
    *,
    replace: bool = False,
) -> None:
    """Run kgroup's batch loop until all records are read."""
    over = threading.Event()

    def look(event: Event) -> None:
        if isinstance(event, BatchDone) and not event.lag:
            over.set()

    config = GroupConfig(
        bootstrap_servers=servers,
        group_id=topic,
        topics=[topic],
        session_timeout=SESSION_TIMEOUT,
    )
    with ConsumerGroup(config, on_event=look) as group:
        for generation in group:
            for batch in batches(generation, spark, max_records=size):
                fate.at(IN_SINK, batch.number)
                if replace:
                    start = "-".join(str(part.start) for part in batch.ranges)
                    batch.run(write, f"{place}/start={start}", "overwrite")
                else:
                    batch.run(write, place)
                fate.at(BETWEEN, batch.number)
                batch.commit()
                fate.at(AFTER, batch.number)
                if over.is_set():
                    return


def main(kind: str, servers: str, topic: str, place: str, step: str, records: str) -> None:
    """Run the driver."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    fate, size = Fate(step), int(records) // BATCHES
    with session(jars=kafka_jars() if kind == "stream" else ()) as spark:
        if kind == "stream":
            stream(spark, servers, topic, place, fate, size)
        else:
            kgroup(spark, servers, topic, place, fate, size, replace=kind == "replace")


if __name__ == "__main__":
    main(*sys.argv[1:])
