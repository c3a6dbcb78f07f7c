"""README's program on Spark runs with only the names of broker and folder changed."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgroup.testing.embedded import EmbeddedKafka
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT = 250.0


def test_the_program_of_readme_runs(
    spark: SparkSession, embedded_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Every record is in the folder once and committed; a shutdown ends the program."""
    embedded_kafka.create_topic("orders", 2)
    for partition in range(2):
        embedded_kafka.append("orders", partition, [b"%d" % n for n in range(10)])
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    *_on_kgroup, program = re.findall(r"^```python\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    program = program.replace("localhost:9092", embedded_kafka.bootstrap_servers)
    program = program.replace("/data/orders", str(tmp_path))
    names: dict[str, Any] = {}

    def end_it() -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and len(embedded_kafka.committed("lake")) < 2:
            time.sleep(0.05)
        names["group"].shutdown()

    watch = threading.Thread(target=end_it)
    watch.start()
    exec(compile(program, "README.md", "exec"), names)  # noqa: S102 # our own text
    watch.join()
    rows = spark.read.parquet(*map(str, tmp_path.iterdir())).select("partition", "offset").collect()
    assert sorted((row[0], row[1]) for row in rows) == [(p, n) for p in range(2) for n in range(10)]
    assert {at.offset for at in embedded_kafka.committed("lake").values()} == {10}
