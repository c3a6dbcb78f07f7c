"""Jars that Spark does not ship, from Maven Central: its Kafka source, Delta Lake, PostgreSQL.

Each function returns a list for ``spark.jars``: the jars and their dependencies, without those that
PySpark ships, because with two versions of a class on one class path either may be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kgroup.testing.java import KafkaUnavailableError, jars
from kgroup.testing.spark.java import SparkUnavailableError, spark_version

DELTA: Final[Mapping[tuple[int, int], str]] = {
    (4, 0): "io.delta:delta-spark_2.13:4.0.1",
    (4, 1): "io.delta:delta-spark_4.1_2.13:4.4.0",
    (4, 2): "io.delta:delta-spark_4.2_2.13:4.4.0",
}
"""The Delta Lake for each minor version of Spark; a Delta Lake works with one of them only."""
DELTA_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    # A test's table is small: by default reading its snapshot is a job of fifty tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""The settings that a session needs with the jars, and one that makes tests fast."""
POSTGRES: Final = "org.postgresql:postgresql:42.7.8"


def kafka_jars() -> list[Path]:
    """Spark's own Kafka source, of the version of this PySpark.

    Raises:
        SparkUnavailableError: no PySpark, no such version, or Maven Central cannot be reached.
    """
    version = spark_version()
    return _fetch(
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        f"Spark's Kafka source {version}",
    )


def delta_jars() -> list[Path]:
    """Delta Lake for this PySpark; a session needs ``DELTA_SETTINGS`` with them.

    Raises:
        SparkUnavailableError: no PySpark, no Delta Lake for it, or Maven Central cannot be reached.
    """
    version = spark_version()
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) not in DELTA:
        known = ", ".join(f"{major}.{minor}" for major, minor in DELTA)
        raise SparkUnavailableError(
            f"kgroup knows no Delta Lake for PySpark {version}, only for {known}; install one of"
            " these"
        )
    return _fetch(DELTA[major, minor], "Delta Lake")


def postgres_jars() -> list[Path]:
    """PostgreSQL's JDBC driver, ``org.postgresql.Driver``.

    Raises:
        SparkUnavailableError: no PySpark, or Maven Central cannot be reached.
    """
    return _fetch(POSTGRES, "PostgreSQL's JDBC driver")


def all_jars() -> tuple[list[Path], list[SparkUnavailableError]]:
    """The jars of all three that can be downloaded, and the errors of the others.

    A new version of Spark is on PyPI before the others have followed; then only the tests that
    need a missing jar fail.
    """
    found: list[Path] = []
    missing: list[SparkUnavailableError] = []
    for fetch in (kafka_jars, delta_jars, postgres_jars):
        try:
            found += fetch()
        except SparkUnavailableError as error:
            missing.append(error)
    return found, missing


def spark_folder() -> Path:
    """PySpark's folder, with Spark's ``bin`` and ``jars``.

    Raises:
        SparkUnavailableError: PySpark is not installed.
    """
    spark_version()
    import pyspark

    return Path(pyspark.__file__).parent


def shipped() -> frozenset[str]:
    """The ids of the artifacts that PySpark ships: its jars' names without the versions."""
    return frozenset(map(artifact_of, (spark_folder() / "jars").glob("*.jar")))


def artifact_of(jar: Path) -> str:
    """The id of a jar's artifact: its name without the version."""
    return re.split(r"-(?=\d+\.)", jar.stem, maxsplit=1)[0]


def _fetch(endpoint: str, what: str) -> list[Path]:
    endpoints: Sequence[str] = [endpoint]
    try:
        return jars(endpoints, what, without=shipped())
    except KafkaUnavailableError as error:
        raise SparkUnavailableError(str(error)) from error
