"""Spark reads a generation's partitions as micro-batches, which are committed after the sink.

A sink is the program's own function; this package has no code for sinks. ``examples/spark_*.py``
and docs/spark_sinks.md show which sinks get each record exactly once.

``batches`` and ``foreach_batch`` are for programs on trio; their counterparts in
``kgroup.spark.threaded`` are for plain scripts. ``read_ranges`` reads offset ranges without a
group. The modules that executors import (``range_reader`` and what it needs) import neither trio
nor the group.
``__init__.pyi`` lists the public names.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
