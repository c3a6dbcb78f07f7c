"""A generation whose partitions Spark reads: micro-batches, committed when the sink has them.

``batches`` and ``foreach_batch`` are for programs on trio, those of ``kgroup.spark.threaded`` for
plain scripts; ``read_ranges`` reads ranges without a group. What executors import of this package
imports neither an event loop nor the group.
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

__getattr__, __dir__ = kgroup.lazy.lazy_names(
    __name__,
    __all__,
    ("offset_ranges", "reader_settings", "frames", "batch", "batch_loop", "api"),
)
