"""kgroup on Spark beside Spark's own Kafka source, on a Kafka that it starts.

    python benchmarks/spark.py [--quick] [--embedded] [--rounds N] [--scale X] [CELL ...]

Cells, all of them by default:

- ``rows``: rows a second, 100 B and 1 KB, 12 partitions, into a noop sink and into Parquet: one
  batch of everything, and a loop of micro-batches;
- ``latency``: 100 records are produced; how long until the sink's function has returned;
- ``idle``: what waiting for records costs: CPU, requests, Spark jobs;
- ``visible``: from the sink's success until a tool sees the committed offset;
- ``rebalance``: a second driver comes and goes; how long until each has its first batch;
- ``cancel``: the membership is lost; how long until no task runs;
- ``kill``: drivers are killed; what is then twice in the sink, and what is missing.

Spark's own source is measured with its default options, and where they cost it most once more as
"prompt": then its consumers do not wait half a second at the end of a log.

Variants that are compared take turns within each round. Every figure is a median with the lowest
and the highest; ratios are of the two in the same round. The load average stands beside each
cell: where it is far above what the cells need themselves, look at the ratios only.

It needs ``kgroup[kafka,spark]``, psutil and, for Spark's source, Maven Central.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Make the cells importable, here and in the processes that are started; run them."""
    root = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, root)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, before]))
    from benchmarks.onspark.cells import run

    run(__doc__ or "")


if __name__ == "__main__":
    main()
