"""Exactly once into plain Parquet files: readers read only the files that manifests list.

    spark-submit examples/spark_parquet_manifest.py localhost:9092 lines /data/lines

    spark.read.parquet(*published("/data/lines"))          # how to read it

Executors write each batch into a separate folder. The driver then makes it visible with the next
manifest: a numbered file, created atomically, that lists the batch's files and, for each partition,
the offset that the manifests have reached. A batch that does not start at that offset is refused.

All drivers need access to the manifests' folder, and its file system must support links, as NFS
does. On an object store, use a conditional write (If-None-Match on S3 and Azure,
ifGenerationMatch=0 on Google's), and on HDFS a rename. The rest of the program stays the same.
"""

import itertools
import json
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kgroup import GroupConfig
from kgroup.spark.threaded import MicroBatch, foreach_batch
from kgroup.threaded import ConsumerGroup, Generation

FIRST: dict[str, Any] = {"number": 0, "offsets": {}, "batch": None, "files": []}
"""The state before the first manifest."""


class SinkMovedError(Exception):
    """The sink is not at the batch's start: another driver wrote, or records are lost."""


def manifest(base: str, number: int) -> Path:
    """The path of a manifest."""
    return Path(base, "manifests", f"{number:020d}.json")


def manifests(base: str) -> Iterator[dict[str, Any]]:
    """All manifests, in order."""
    for number in itertools.count(1):
        try:
            yield json.loads(manifest(base, number).read_text())
        except FileNotFoundError:
            return


def published(base: str) -> list[str]:
    """The files that readers may read."""
    return [str(Path(base, name)) for entry in manifests(base) for name in entry["files"]]


def last(base: str) -> dict[str, Any]:
    """The newest manifest."""
    paths = sorted(Path(base, "manifests").glob("*.json"))
    found: dict[str, Any] = json.loads(paths[-1].read_text()) if paths else FIRST
    return found


def start_at_sink(generation: Generation, base: str) -> None:
    """Start each partition at the offset in the sink: Kafka's offsets may be behind it."""
    reached = last(base)["offsets"]
    mine = {name: reached[str(name)] for name in generation.assignment if str(name) in reached}
    for name, offset in mine.items():
        generation.seek(name, offset)
    if mine:
        generation.commit(mine)


def write(df: DataFrame, batch: MicroBatch, base: str) -> None:
    """Write one batch and publish it; if that fails, readers see nothing of it."""
    # Each attempt has its own folder: one that was left behind may still write into it.
    folder = Path(base, "data", f"{batch.id}-{uuid.uuid4().hex[:8]}")
    lines = df.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
    lines.write.parquet(str(folder))
    publish(batch, [str(path.relative_to(base)) for path in sorted(folder.glob("*.parquet"))], base)


def publish(batch: MicroBatch, files: list[str], base: str) -> None:
    """Make the files visible by the next manifest, which fences other drivers.

    Raises:
        SinkMovedError: the offsets are not at the batch's start; nothing was published.
    """
    while True:
        before = last(base)
        for part in batch.ranges:
            reached = before["offsets"].get(str(part.topic_partition), part.start)
            if reached != part.start:
                raise SinkMovedError(
                    f"{batch}: the sink is at {reached}, not at the start of {part}"
                )
        ends = {str(part.topic_partition): part.end for part in batch.ranges}
        entry = {
            "number": before["number"] + 1,
            "offsets": before["offsets"] | ends,
            "batch": batch.id,
            "files": files,
        }
        if create(manifest(base, before["number"] + 1), json.dumps(entry)):
            return
        # Another driver has published; the next round finds out whether these partitions moved.


def create(path: Path, text: str) -> bool:
    """Create a file with all of its text atomically; return False if it exists."""
    draft = path.with_name(f"draft-{uuid.uuid4().hex}")
    try:
        with draft.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def main(servers: str, topic: str, base: str) -> None:
    """Be a driver of the topic's group. A refused driver ends, and can be started again."""
    Path(base, "manifests").mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.appName("lines to Parquet").getOrCreate()
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-parquet", topics=[topic])
    with ConsumerGroup(config) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            with generation.scope():
                start_at_sink(generation, base)
                foreach_batch(generation, spark, partial(write, base=base))


if __name__ == "__main__":
    main(*sys.argv[1:])
