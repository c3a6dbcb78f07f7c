"""Exactly once into PostgreSQL: one transaction writes the rows and their offsets.

    spark-submit --packages org.postgresql:postgresql:42.7.8 \
        examples/spark_postgres.py localhost:9092 lines postgresql://me:secret@localhost/mine

Executors write each batch into a separate staging table by JDBC. A transaction of the driver then
moves the rows to the target table and the partitions' offsets from the batch's start to its end. If
the offsets are not at the batch's start, it does nothing. Kafka refuses the commits of a driver
that was left behind; this transaction refuses its rows.
"""

import signal
import sys
import time
import uuid
from functools import partial

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, SparkSession

from kgroup import GroupConfig, TopicPartition
from kgroup.spark.threaded import MicroBatch, foreach_batch
from kgroup.threaded import ConsumerGroup, Generation

TABLES = """
    SELECT pg_advisory_xact_lock(1);  -- drivers start at the same time
    CREATE TABLE IF NOT EXISTS lines (topic text, partition int, "offset" bigint, value text);
    CREATE TABLE IF NOT EXISTS line_offsets (
        group_id text, topic text, partition int, next_offset bigint NOT NULL,
        PRIMARY KEY (group_id, topic, partition)
    );
    CREATE SCHEMA IF NOT EXISTS staging;
"""
DAY = 86_400.0


class SinkMovedError(Exception):
    """The sink is not at the batch's start: another driver wrote, or records are lost."""


def prepare(url: str) -> None:
    """Create the tables, and drop staging tables that killed drivers have left."""
    with psycopg.connect(url) as connection:
        connection.execute(TABLES)
        old = "SELECT tablename FROM pg_tables WHERE schemaname = 'staging' AND tablename < %s"
        for (name,) in connection.execute(old, [f"s{time.time() - DAY:.0f}"]).fetchall():
            drop(connection, Identifier("staging", name))


def drop(connection: psycopg.Connection, staging: Identifier) -> None:
    """Remove a staging table."""
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging))


def start_at_sink(generation: Generation, url: str) -> None:
    """Start each partition at the offset in the sink: Kafka's offsets may be behind it."""
    query = "SELECT topic, partition, next_offset FROM line_offsets WHERE group_id = %s"
    with psycopg.connect(url) as connection:
        rows = connection.execute(query, [generation.group_id]).fetchall()
    reached = {TopicPartition(topic, partition): offset for topic, partition, offset in rows}
    mine = {name: reached[name] for name in generation.assignment if name in reached}
    for name, offset in mine.items():
        generation.seek(name, offset)
    if mine:
        generation.commit(mine)


def write(df: DataFrame, batch: MicroBatch, url: str) -> None:
    """Write one batch completely, or not at all."""
    # Each attempt has its own table: one that was left behind may still write into it.
    staging = Identifier("staging", f"s{time.time():.0f}_{uuid.uuid4().hex}")
    try:
        stage(df, staging, url)
        publish(batch, staging, url)
    finally:
        with psycopg.connect(url) as connection:
            drop(connection, staging)


def stage(df: DataFrame, staging: Identifier, url: str) -> None:
    """Write the rows to the staging table, in the executors."""
    address = conninfo_to_dict(url)
    lines = df.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
    lines.write.jdbc(
        f"jdbc:postgresql://{address['host']}:{address.get('port', 5432)}/{address['dbname']}",
        staging.as_string(),
        properties={
            "driver": "org.postgresql.Driver",
            "user": str(address["user"]),
            "password": str(address.get("password", "")),
        },
    )


def publish(batch: MicroBatch, staging: Identifier, url: str) -> None:
    """Move the rows and the offsets in one transaction, which fences other drivers.

    Raises:
        SinkMovedError: the offsets are not at the batch's start; nothing was written.
    """
    with psycopg.connect(url) as connection:
        # A driver that freezes in this transaction must not hold its locks forever.
        connection.execute("SET idle_in_transaction_session_timeout = '10s'")
        for part in batch.ranges:  # sorted, so that two drivers never wait for each other
            key = (batch.group_id, part.topic, part.partition)
            connection.execute(
                "INSERT INTO line_offsets VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (*key, part.start),
            )
            moved = connection.execute(
                "UPDATE line_offsets SET next_offset = %s WHERE group_id = %s"
                " AND topic = %s AND partition = %s AND next_offset = %s",
                (part.end, *key, part.start),
            )
            if moved.rowcount != 1:
                raise SinkMovedError(f"{batch}: the sink is not at the start of {part}")
        # A task that Spark ran twice may have staged its rows twice.
        rows = SQL('SELECT DISTINCT ON (topic, partition, "offset") * FROM {}').format(staging)
        connection.execute(SQL("INSERT INTO lines {}").format(rows))
        drop(connection, staging)


def main(servers: str, topic: str, url: str) -> None:
    """Be a driver of the topic's group. A refused driver ends, and can be started again."""
    prepare(url)
    spark = SparkSession.builder.appName("lines to PostgreSQL").getOrCreate()
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-postgres", topics=[topic])
    with ConsumerGroup(config) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            with generation.scope():
                start_at_sink(generation, url)
                foreach_batch(generation, spark, partial(write, url=url))


if __name__ == "__main__":
    main(*sys.argv[1:])
