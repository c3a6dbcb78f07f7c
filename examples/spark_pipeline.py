"""A pipeline: raw lines of a topic become windowed counts and an enriched table.

    spark-submit examples/spark_pipeline.py localhost:9092 visits /data/visits

A line is ``2026-11-21T10:15:03Z alice /basket 34``: time, user, page and milliseconds. The folder
gets three tables:

- ``enriched``: the columns of each line, and those of its page in a reference table;
- ``counts``: visits by minute and section. Each batch adds rows, so readers sum over them;
- ``refused``: lines that are not visits, unchanged.

Rows are stored in folders by their partition and by the offset at which their batch began in it. A
batch that was not committed is planned again from the same offset, perhaps with another end. It
then replaces the rows in its folders, so rows that were written twice are stored once. This is not
exactly once: a driver that was evicted may still overwrite newer rows, and if a shorter plan has no
row for a table, the rows of the longer plan remain. A sink that stores offsets with its data has
neither fault.
"""

import signal
import sys
from itertools import chain

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the usual name

from kgroup import GroupConfig
from kgroup.events import BatchDone, Event
from kgroup.spark.threaded import MicroBatch, batches
from kgroup.threaded import ConsumerGroup

LINE = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (\w+) (/\S*) (\d{1,9})$"
PAGES = [("/", "home", 1), ("/basket", "shop", 3), ("/pay", "shop", 9), ("/help", "service", 2)]


def parse(lines: DataFrame, batch: MicroBatch) -> DataFrame:
    """Split lines into columns, null if a line is not a visit, and add the batch's first offset."""
    value = F.col("value").cast("string")

    def part(number: int) -> Column:
        return F.nullif(F.regexp_extract(value, LINE, number), F.lit(""))

    began = chain.from_iterable((one.partition, one.start) for one in batch.ranges)
    return lines.select(
        "partition",
        F.create_map(*map(F.lit, began))[F.col("partition")].alias("began"),
        value.alias("line"),
        F.try_to_timestamp(part(1)).alias("time"),
        part(2).alias("user"),
        part(3).alias("page"),
        part(4).cast("int").alias("milliseconds"),
    )


def write(lines: DataFrame, batch: MicroBatch, folder: str) -> None:
    """Write the batch's part of each table; writing it again changes nothing."""
    spark = lines.sparkSession
    parsed = parse(lines, batch).persist()
    try:
        visits = parsed.where("time IS NOT NULL").drop("line")
        pages = F.broadcast(spark.createDataFrame(PAGES, "page string, section string, weight int"))
        enriched = visits.join(pages, "page", "left")
        minute = F.window("time", "1 minute").start.alias("minute")
        counts = enriched.groupBy("partition", "began", minute, "section").count()
        refused = parsed.where("time IS NULL").select("partition", "began", "line")
        for name, table in ("enriched", enriched), ("counts", counts), ("refused", refused):
            (
                table.write.partitionBy("partition", "began")
                .option("partitionOverwriteMode", "dynamic")
                .mode("overwrite")
                .parquet(f"{folder}/{name}")
            )
    finally:
        parsed.unpersist()


def progress(event: Event) -> None:
    """Print a line for each batch: rows, rows per second, lag."""
    if isinstance(event, BatchDone):
        print(event, flush=True)


def main(servers: str, topic: str, folder: str) -> None:
    """Be a member of the topic's group of pipelines."""
    spark = SparkSession.builder.appName(topic).getOrCreate()
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-pipeline", topics=[topic])
    with ConsumerGroup(config, on_event=progress) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            with generation.scope():
                for batch in batches(
                    generation, spark, max_records=1_000_000, columns=["value", "partition"]
                ):
                    batch.run(write, batch, folder)
                    batch.commit()


if __name__ == "__main__":
    _, servers, topic, folder = sys.argv
    main(servers, topic, folder)
