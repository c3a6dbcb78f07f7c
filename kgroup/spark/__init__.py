"""Spark reads a generation's partitions as micro-batches, which are committed after the sink.

A sink is the program's own function; this package has no code for sinks. ``examples/spark_*.py``
and docs/spark_sinks.md show which sinks get each record exactly once.

``batches`` and ``foreach_batch`` are for programs on trio; their twins in ``kgroup.spark.threaded``
are for plain scripts. ``read_ranges`` reads offset ranges without a group. The modules that
executors import (``range_reader`` and what it needs) import neither trio nor the group.
"""

import typing

import kgroup.lazy

if typing.TYPE_CHECKING:
    from kgroup.spark.api import batches, foreach_batch
    from kgroup.spark.batch import BatchStage, MicroBatch
    from kgroup.spark.batch_loop import Batches
    from kgroup.spark.frames import read_ranges
    from kgroup.spark.offset_ranges import OffsetRange, batch_id
    from kgroup.spark.reader_settings import ReaderSettings

__all__ = (
    "BatchStage",
    "Batches",
    "MicroBatch",
    "OffsetRange",
    "ReaderSettings",
    "batch_id",
    "batches",
    "foreach_batch",
    "read_ranges",
)

if not typing.TYPE_CHECKING:  # a type checker would take every name for one of this package
    __getattr__, __dir__ = kgroup.lazy.lazy_names(
        __name__,
        __all__,
        # Of these only frames needs PySpark.
        ("offset_ranges", "reader_settings", "batch", "batch_loop", "api", "frames"),
    )
