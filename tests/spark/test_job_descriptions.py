"""Spark's own pages and listeners show a batch's group, generation and ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgroup.config import GroupConfig
from kgroup.spark.threaded import batches
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup
from tests.brokers import unique

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def java_context(spark: SparkSession) -> Any:
    """Spark's own context."""
    context: Any = spark.sparkContext._jsc
    return context.sc()


def jobs_of(spark: SparkSession, group_id: str) -> list[tuple[str, str]]:
    """The job groups and descriptions of a group's jobs, from the store of Spark's pages."""
    store = java_context(spark).statusStore()
    listed = store.jobsList(None)
    described = [
        (job.jobGroup(), job.description()) for job in map(listed.apply, range(listed.size()))
    ]
    return [
        (group.get(), description.get())
        for group, description in described
        if group.isDefined() and group.get().startswith(f"kgroup-{group_id}-")
    ]


def test_jobs_show_their_group_and_batch(spark: SparkSession) -> None:
    """Every job of a batch has a job group and a description of the batch; others have none."""
    topic, group_id = unique("described"), unique("group")

    def count(df: DataFrame) -> int:
        return df.groupBy("value").count().count()

    with EmbeddedKafka() as kafka:
        kafka.create_topic(topic, 2)
        for partition in 0, 1:
            kafka.append(topic, partition, [b"a", b"b"])
        config = GroupConfig(
            bootstrap_servers=kafka.bootstrap_servers, group_id=group_id, topics=[topic]
        )
        with ConsumerGroup(config) as group:
            generation = next(group)
            batch = next(batches(generation, spark))
            assert batch.run(count) == 2
            batch.commit()
    spark.range(1).count()
    java_context(spark).listenerBus().waitUntilEmpty()
    jobs = jobs_of(spark, group_id)
    assert jobs
    assert len({job_group for job_group, _ in jobs}) == 1
    whose = f"kgroup {group_id}, generation {batch.generation_id}, batch {batch.id[:8]}"
    ranges = f"4 offsets, {topic}-0[0:2], {topic}-1[0:2]"
    assert {description for _, description in jobs} == {f"{whose}: {ranges}"}
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
