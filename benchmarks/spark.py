"""Compares kgroup on Spark with Spark's own Kafka source, on a Kafka that it starts.

    python benchmarks/spark.py [--quick] [--embedded] [--rounds N] [--scale X] [CELL ...]

Cells, all of them by default:

- ``rows``: rows per second, 100 B and 1 KB, 12 partitions, into a noop sink and into Parquet, as
  one batch of all records and as a loop of micro-batches;
- ``latency``: the time from producing 100 records until the sink's function has returned;
- ``idle``: CPU, requests and Spark jobs while waiting for records;
- ``visible``: the time from the sink's success until a tool sees the committed offset;
- ``rebalance``: a second driver joins and leaves; the time until each driver has its first batch;
- ``cancel``: the membership is lost; the time until no task runs;
- ``kill``: drivers are killed; which records are then twice in the sink, and which are missing.

Spark's own source is measured with its default options. Where these cost it most, it is also
measured as "prompt", with consumers that do not wait half a second at the end of a log.

Variants that are compared take turns within each round. Every figure is a median with the lowest
and the highest; a ratio compares two figures of the same round. The load average is printed beside
each cell: if it is much higher than the cell itself needs, look at the ratios only.

The benchmark needs ``kgroup[kafka,spark]``, psutil and, for Spark's source, Maven Central.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Make the cells importable, here and in child processes, and run them."""
    root = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, root)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, before]))
    from benchmarks.onspark.cells import run

    run(__doc__ or "")


if __name__ == "__main__":
    main()
