"""Exactly once into Delta Lake: the table's transactions hold the offsets of each partition.

    spark-submit --packages io.delta:delta-spark_2.13:4.0.1 \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
        examples/spark_delta.py localhost:9092 lines /data/lines

A commit to the table adds a batch's files and, for each of its ranges, a transaction id (the group
and the partition) with a version (the end of the range). It succeeds only if the last version was
the range's start. The options txnAppId and txnVersion cannot express that: they skip versions that
are not newer than the last, and a driver that was left behind may hold [0, 150) after another one
has written [0, 100). So this program calls the classes below those options, as Delta's own
streaming sink does. Spark Connect has no access to the driver's JVM, so this does not work there.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from kgroup import GroupConfig, TopicPartition
from kgroup.spark.threaded import MicroBatch, foreach_batch
from kgroup.threaded import ConsumerGroup, Generation

LINES = "topic STRING, partition INT, offset BIGINT, value STRING"


class SinkMovedError(Exception):
    """The table is not at the batch's start: another driver wrote, or records are lost."""


def start_at_sink(generation: Generation, spark: SparkSession, path: str) -> None:
    """Start each partition at the offset in the table: Kafka's offsets may be behind it."""
    txn = begin(spark, path)
    reached = {
        name: txn.txnVersion(transaction_id(generation.group_id, name))
        for name in generation.assignment
    }
    mine = {name: offset for name, offset in reached.items() if offset >= 0}
    for name, offset in mine.items():
        generation.seek(name, offset)
    if mine:
        generation.commit(mine)


def write(df: DataFrame, batch: MicroBatch, path: str) -> None:
    """Write one batch completely, or not at all."""
    txn = begin(df.sparkSession, path)
    for part in batch.ranges:
        # Read in the transaction, which fails if another one sets the version in the meantime.
        reached = txn.txnVersion(transaction_id(batch.group_id, part.topic_partition))
        if reached not in {-1, part.start}:
            raise SinkMovedError(f"{batch}: the table is at {reached}, not at the start of {part}")
    lines = df.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
    # Executors write the files; they become visible with the commit.
    files = txn.writeFiles(lines._jdf)  # noqa: SLF001 # the data frame in the JVM
    publish(batch, df.sparkSession, txn, files)


def publish(batch: MicroBatch, spark: SparkSession, txn: Any, actions: Any) -> None:
    """Commit the files and the versions together; with the checks before, this fences drivers.

    Raises:
        SinkMovedError: the table's offsets have moved; nothing was written.
    """
    delta, nothing = in_jvm(spark).org.apache.spark.sql.delta, in_jvm(spark).scala.Option.empty()
    for part in batch.ranges:
        name = transaction_id(batch.group_id, part.topic_partition)
        actions = actions.appended(delta.actions.SetTransaction(name, part.end, nothing))
    append = in_jvm(spark).org.apache.spark.sql.streaming.OutputMode.Append()
    how = getattr(delta, "DeltaOperations$StreamingUpdate")
    with moved_if_concurrent(batch):
        txn.commit(actions, how(append, batch.group_id, batch.number, nothing))


@contextmanager
def moved_if_concurrent(batch: MicroBatch) -> Iterator[None]:
    """Raise SinkMovedError if another transaction has set a version of ours."""
    try:
        yield
    except Py4JJavaError as error:
        if "ConcurrentTransactionException" not in error.java_exception.getClass().getName():
            raise
        raise SinkMovedError(f"{batch}: another driver has written in the meantime") from error


def begin(spark: SparkSession, path: str) -> Any:
    """Begin a transaction on the table's current state."""
    log = in_jvm(spark).org.apache.spark.sql.delta.DeltaLog
    session = spark._jsparkSession  # noqa: SLF001 # the session in the JVM
    return log.forTable(session, path).startTransaction()


def transaction_id(group_id: str, name: TopicPartition) -> str:
    """The table's transaction id for a partition that the group reads."""
    return f"kgroup/{group_id}/{name.topic}/{name.partition}"


def in_jvm(spark: SparkSession) -> Any:
    """The Java classes of the driver's JVM."""
    return spark._jvm  # noqa: SLF001 # it has no public name


def main(servers: str, topic: str, path: str) -> None:
    """Be a driver of the topic's group. A refused driver ends, and can be started again."""
    spark = SparkSession.builder.appName("lines to Delta Lake").getOrCreate()
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({LINES}) USING delta")
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-delta", topics=[topic])
    with ConsumerGroup(config) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            with generation.scope():
                start_at_sink(generation, spark, path)
                foreach_batch(generation, spark, partial(write, path=path))


if __name__ == "__main__":
    main(*sys.argv[1:])
