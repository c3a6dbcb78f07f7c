"""Exactly once into plain Parquet files: only what a manifest names is there.

    spark-submit examples/spark_parquet_manifest.py localhost:9092 lines /data/lines

    spark.read.parquet(*published("/data/lines"))          # how it is read

Executors write a batch into a folder of its own. The driver then makes it visible with one more
manifest: a numbered file, made at once or not at all, that names the batch's files, and for every
partition how far the manifests up to it go. A batch that does not start there is refused.

The manifests' folder is one that all drivers see and that can link files, such as NFS. On an
object store the same is a conditional write: If-None-Match on S3 and Azure, ifGenerationMatch=0
on Google's; on HDFS a rename. Nothing else changes.
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
"""What comes before the first manifest."""


class SinkMovedError(Exception):
    """The sink is not where the batch starts: another driver has written, or records are lost."""


def manifest(base: str, number: int) -> Path:
    """Where a manifest is."""
    return Path(base, "manifests", f"{number:020d}.json")


def manifests(base: str) -> Iterator[dict[str, Any]]:
    """What was published, in order."""
    for number in itertools.count(1):
        try:
            yield json.loads(manifest(base, number).read_text())
        except FileNotFoundError:
            return


def published(base: str) -> list[str]:
    """The files that readers read."""
    return [str(Path(base, name)) for entry in manifests(base) for name in entry["files"]]


def last(base: str) -> dict[str, Any]:
    """The newest manifest."""
    paths = sorted(Path(base, "manifests").glob("*.json"))
    found: dict[str, Any] = json.loads(paths[-1].read_text()) if paths else FIRST
    return found


def go_on_from_sink(generation: Generation, base: str) -> None:
    """Start each partition where the sink is: Kafka's offsets may lag behind it."""
    reached = last(base)["offsets"]
    mine = {name: reached[str(name)] for name in generation.assignment if str(name) in reached}
    for name, offset in mine.items():
        generation.seek(name, offset)
    if mine:
        generation.commit(mine)


def write(df: DataFrame, batch: MicroBatch, base: str) -> None:
    """Write one batch, or nothing that can be seen of it."""
    # A folder for each attempt: one that was left behind may still write into its own.
    folder = Path(base, "data", f"{batch.id}-{uuid.uuid4().hex[:8]}")
    lines = df.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
    lines.write.parquet(str(folder))
    publish(batch, [str(path.relative_to(base)) for path in sorted(folder.glob("*.parquet"))], base)


def publish(batch: MicroBatch, files: list[str], base: str) -> None:
    """Make the files visible by the next manifest; it is the fence.

    Raises:
        SinkMovedError: the sink is elsewhere; nothing was published.
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
        # Another driver has published: other partitions, or these, which the next look tells.


def create(path: Path, text: str) -> bool:
    """Make a file with all of its text at once; False if there is one already."""
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
    """Be a driver of the topic's group; one that is refused ends, and can be started again."""
    Path(base, "manifests").mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.appName("lines to Parquet").getOrCreate()
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-parquet", topics=[topic])
    with ConsumerGroup(config) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            with generation.scope():
                go_on_from_sink(generation, base)
                foreach_batch(generation, spark, partial(write, base=base))


if __name__ == "__main__":
    main(*sys.argv[1:])
