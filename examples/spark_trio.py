"""Spark micro-batches in a program on trio, beside its other tasks.

    spark-submit examples/spark_trio.py localhost:9092 orders /data/orders

``foreach_batch`` runs a function for each batch in a thread, and commits the batch after the
function has returned. Each batch is a line in the log. SIGTERM and Ctrl-C close the group: the
current batch is finished and committed.
"""

import logging
import signal
import sys

import trio
from pyspark.sql import DataFrame, SparkSession

from kgroup import ConsumerGroup, GroupConfig
from kgroup.spark import MicroBatch, foreach_batch


async def close_at_signal(group: ConsumerGroup) -> None:
    """Wait for a signal, then close the group."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            group.shutdown("a signal")


async def main(servers: str, topic: str, folder: str) -> None:
    """Be a member of the topic's group of Spark drivers."""

    def write(df: DataFrame, batch: MicroBatch) -> None:
        df.write.mode("overwrite").parquet(f"{folder}/batch={batch.id}")

    spark = SparkSession.builder.appName(topic).getOrCreate()
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-spark", topics=[topic])
    async with trio.open_nursery() as nursery:
        async with ConsumerGroup(config) as group:
            nursery.start_soon(close_at_signal, group)
            async for generation in group:
                await foreach_batch(generation, spark, write, max_records=1_000_000)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    _, servers, topic, folder = sys.argv
    trio.run(main, servers, topic, folder)
