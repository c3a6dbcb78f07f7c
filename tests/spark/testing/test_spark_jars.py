"""The jars beside Spark's own: each once, and an error if there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kgroup.testing.java import KafkaUnavailableError
from kgroup.testing.kafka import KafkaAddress
from kgroup.testing.spark import SparkUnavailableError, jars


def test_no_jar_is_there_twice() -> None:
    """Jars that PySpark ships are not downloaded; the Kafka source has those that it lacks."""
    found, missing = jars.all_jars()
    assert missing == []
    fetched = {jars.artifact_of(path) for path in found}
    assert len(fetched) == len(found)
    assert not fetched & jars.shipped()
    assert {"kafka-clients", "commons-pool2", "delta-storage", "postgresql"} <= fetched


@pytest.mark.parametrize(
    ("jar", "artifact"),
    [
        ("spark-sql-kafka-0-10_2.13-4.0.0", "spark-sql-kafka-0-10_2.13"),
        ("commons-pool2-2.12.0", "commons-pool2"),
        ("netty-transport-native-epoll-4.1.118.Final-linux-x86_64", "netty-transport-native-epoll"),
        ("jpam-1.1", "jpam"),
        ("RoaringBitmap-1.3.0", "RoaringBitmap"),
    ],
)
def test_the_artifact_of_a_jar(jar: str, artifact: str) -> None:
    """A jar's name without its version is its artifact's id, even if that has digits."""
    assert jars.artifact_of(Path(f"{jar}.jar")) == artifact


def test_delta_writes_a_transaction_once(spark: SparkSession, tmp_path: Path) -> None:
    """A batch is not written again under the same version of its application."""
    for _ in range(2):
        batch = spark.range(3).write.format("delta").mode("append")
        batch.option("txnAppId", "orders").option("txnVersion", 1).save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 3


def test_spark_reads_kafka(spark: SparkSession, real_kafka: KafkaAddress) -> None:
    """Spark's own source reads the records of Spark's own sink."""
    options = {"kafka.bootstrap.servers": real_kafka.bootstrap_servers}
    topic = {"topic": "spark-jars", "kafka.allow.auto.create.topics": "false"}
    real_kafka.run_tool("kafka-topics", "--create", "--topic", "spark-jars", "--partitions", "2")
    values = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    values.write.format("kafka").options(**options, **topic).save()
    read = spark.read.format("kafka").options(**options, subscribe="spark-jars").load()
    assert sorted(bytes(row["value"]) for row in read.collect()) == [b"0", b"1", b"2"]


def test_a_spark_without_delta_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no Delta Lake is known for a Spark, the error names the Sparks that have one."""
    monkeypatch.setattr(jars, "spark_version", lambda: "4.9.0")
    with pytest.raises(SparkUnavailableError, match=r"PySpark 4\.9\.0, only for 4\.0, 4\.1"):
        jars.delta_jars()


def test_jars_that_cannot_be_downloaded_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of jar that cannot be fetched is an error of its own."""

    def out_of_reach(*_: object, **__: object) -> list[Path]:
        raise KafkaUnavailableError("no route")

    monkeypatch.setattr(jars, "jars", out_of_reach)
    found, missing = jars.all_jars()
    assert found == []
    assert [str(error) for error in missing] == ["no route"] * 3
