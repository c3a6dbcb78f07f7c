"""Exactly once into Delta Lake: the table's own transaction knows how far each partition is.

    spark-submit --packages io.delta:delta-spark_2.13:4.0.1 \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
        examples/spark_delta.py localhost:9092 lines /data/lines

A commit to the table brings a batch's files and, for each of its ranges, a transaction id (the
group and the partition) with its version (the range's end). It counts only if the last version
was the range's start. The options txnAppId and txnVersion cannot say that: they skip what is not
newer than the last, and a driver that was left behind may hold [0, 150) where [0, 100) was
written. So this calls what is below them, as Delta's own streaming sink does; Spark Connect, where
the driver's JVM is out of reach, cannot.
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
    """The table is not where the batch starts: another driver has written, or records are lost."""


def go_on_from_sink(generation: Generation, spark: SparkSession, path: str) -> None:
    """Start each partition where the table is: Kafka's offsets may lag behind it."""
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
    """Write one batch, or nothing of it."""
    txn = begin(df.sparkSession, path)
    for part in batch.ranges:
        # Asked within the transaction: it fails if another one sets the version meanwhile.
        reached = txn.txnVersion(transaction_id(batch.group_id, part.topic_partition))
        if reached not in {-1, part.start}:
            raise SinkMovedError(f"{batch}: the table is at {reached}, not at the start of {part}")
    lines = df.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
    # By the executors; nobody reads them yet.
    files = txn.writeFiles(lines._jdf)  # noqa: SLF001 # the frame, as the JVM has it
    publish(batch, df.sparkSession, txn, files)


def publish(batch: MicroBatch, spark: SparkSession, txn: Any, actions: Any) -> None:
    """Commit the files and the versions together; with the checks before it is the fence.

    Raises:
        SinkMovedError: the table is elsewhere; nothing was written.
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
    """Name what Delta says where another transaction has set the version of one of ours."""
    try:
        yield
    except Py4JJavaError as error:
        if "ConcurrentTransactionException" not in error.java_exception.getClass().getName():
            raise
        raise SinkMovedError(f"{batch}: another driver has written meanwhile") from error


def begin(spark: SparkSession, path: str) -> Any:
    """Begin a transaction on the table as it is now."""
    log = in_jvm(spark).org.apache.spark.sql.delta.DeltaLog
    session = spark._jsparkSession  # noqa: SLF001 # the session, as the JVM has it
    return log.forTable(session, path).startTransaction()


def transaction_id(group_id: str, name: TopicPartition) -> str:
    """What the table calls a partition as the group reads it."""
    return f"kgroup/{group_id}/{name.topic}/{name.partition}"


def in_jvm(spark: SparkSession) -> Any:
    """Java's classes, as the driver's JVM has them."""
    return spark._jvm  # noqa: SLF001 # no public name says so


def main(servers: str, topic: str, path: str) -> None:
    """Be a driver of the topic's group; one that is refused ends, and can be started again."""
    spark = SparkSession.builder.appName("lines to Delta Lake").getOrCreate()
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({LINES}) USING delta")
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-delta", topics=[topic])
    with ConsumerGroup(config) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            with generation.scope():
                go_on_from_sink(generation, spark, path)
                foreach_batch(generation, spark, partial(write, path=path))


if __name__ == "__main__":
    main(*sys.argv[1:])
