"""A folder for Spark: its processes find there what they share."""

from __future__ import annotations

from pathlib import Path

from kgroup.testing.spark.home import SparkHome


def test_processes_that_start_together_share_folders_that_exist() -> None:
    """None of them has to create one: where two do at once, Spark's worker goes on without it."""
    with SparkHome() as home:
        variables = home.environment()
        for name in "JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS":
            assert Path(variables[name]).is_dir(), name
    assert not home.folder.exists()
