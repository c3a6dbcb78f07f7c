"""How much time the archive of Spark's classes saves for a session and a few small jobs.

    python benchmarks/archive.py [ROUNDS]

The variants, with and without the archive, take turns, each in a separate process. A figure is the
median with the lowest and the highest. CPU is that of the JVMs and of the Python workers.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from kgroup.testing.spark.archive import make_archive

PROGRAM = """
import resource, time
began = time.perf_counter()
from kgroup.testing.spark import session
with session("local[1]") as spark:
    started = time.perf_counter()
    spark.range(9).selectExpr("id % 2 as half").groupBy("half").count().collect()
    spark.createDataFrame([(1, "a")], "number int, word string").orderBy("word").collect()
    ended = time.perf_counter()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(started - began, ended - started, used.ru_utime + used.ru_stime)
"""


def once(cache: str | None) -> list[float]:
    """Return the seconds of the session's start, of the jobs, and of CPU."""
    environment = {**os.environ, **({"XDG_CACHE_HOME": cache} if cache else {})}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
    )
    return [float(word) for word in ended.stdout.split()[-3:]]


def main() -> None:
    """Measure both variants and print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{make_archive()}: {make_archive().stat().st_size / 2**20:.0f} MiB")
    found: dict[str, list[list[float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as nothing:
        for number in range(1 + rounds):
            for name, cache in ("without", nothing), ("with", None):
                took = once(cache)
                if number:  # the first round only fills the page cache
                    found[name].append(took)
    for name, all_took in found.items():
        columns = zip(("start", "jobs", "CPU"), zip(*all_took, strict=True), strict=True)
        figures = (
            f"{what} {statistics.median(x):.1f} ({min(x):.1f} to {max(x):.1f}) s"
            for what, x in columns
        )
        print(f"{name:8} {', '.join(figures)}")


if __name__ == "__main__":
    main()
