"""The batch loop on a real Spark, called with threads and on trio."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.accumulators import _accumulatorRegistry

from kgroup import (
    ArgumentError,
    ConfigError,
    ConsumerGroup,
    GroupConfig,
    StaleGenerationError,
    TopicPartition,
    UsageError,
)
from kgroup import threaded as kgroup_threaded
from kgroup.events import BatchCancelled, BatchDone, Event
from kgroup.spark import BatchStage, MicroBatch, batches, foreach_batch
from kgroup.spark import threaded as spark_threaded
from kgroup.testing.embedded import EmbeddedKafka
from tests.group.test_stale import evict_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kgroup.spark.frames import Backend

COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
    ("headers", "array<struct<key:string,value:binary>>"),
]
"""The columns of Spark's own Kafka source with ``includeHeaders``."""


@pytest.fixture
def config(embedded_kafka: EmbeddedKafka) -> GroupConfig:
    """The config of a group on a topic ``lines`` with two partitions of 100 records each."""
    embedded_kafka.create_topic("lines", 2)
    for partition in range(2):
        embedded_kafka.append("lines", partition, [str(n).encode() for n in range(100)])
    return GroupConfig(
        bootstrap_servers=embedded_kafka.bootstrap_servers,
        group_id="spark",
        topics=["lines"],
        heartbeat_interval=0.1,
    )


def rows_of(df: DataFrame) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of each row."""
    found = df.select("partition", "offset", "value").collect()
    return [(row[0], row[1], bytes(row[2])) for row in found]


EVERYTHING = [(p, n, str(n).encode()) for p in range(2) for n in range(100)]


def test_a_plain_script(
    spark: SparkSession, config: GroupConfig, embedded_kafka: EmbeddedKafka
) -> None:
    """Each record is in one batch; what was committed is where the next driver begins.

    PySpark keeps accumulators for ever: a loop makes one, and empties it, however many batches.
    """
    kept = set(_accumulatorRegistry)
    rows: list[tuple[int, int, bytes]] = []
    events: list[Event] = []
    with kgroup_threaded.ConsumerGroup(config, on_event=events.append) as group:
        generation = next(group)
        for batch in spark_threaded.batches(generation, spark, max_records=80):
            assert [(name, kind) for name, kind in batch.df.dtypes] == COLUMNS
            assert sum(part.offsets for part in batch.ranges) <= 80
            assert "kgroup spark" in batch.description
            assert (batch.group_id, batch.generation_id) == ("spark", generation.generation_id)
            assert str(batch).startswith(f"batch {batch.number} ({batch.id[:8]}) of group 'spark'")
            assert repr(batch).endswith(f"{batch.stage.value}>")
            rows += batch.run(rows_of)
            batch.commit()
            if len(rows) == 200:
                break
    assert sorted(rows) == EVERYTHING
    done = [event for event in events if isinstance(event, BatchDone)]
    assert [event.rows for event in done] == [80, 80, 40]
    assert [event.lag for event in done] == [120, 40, 0]
    sizes = [event.bytes for event in done]
    assert sum(size for size in sizes if size is not None) == sum(len(v) for *_, v in EVERYTHING)
    assert {at.offset for at in embedded_kafka.committed("spark").values()} == {100}
    (made,) = _accumulatorRegistry.keys() - kept
    assert _accumulatorRegistry[made].value == {}


def test_foreach_batch(spark: SparkSession, config: GroupConfig) -> None:
    """The function gets each batch; the call ends with its generation, or raises its error."""
    rows: list[tuple[int, int, bytes]] = []

    def write(df: DataFrame, batch: spark_threaded.MicroBatch) -> None:
        rows.extend(rows_of(df))
        assert batch.offsets == {TopicPartition("lines", n): 100 for n in range(2)}
        group.shutdown()

    with kgroup_threaded.ConsumerGroup(config) as group:
        spark_threaded.foreach_batch(
            next(group), spark, write, columns=["value", "offset", "partition"]
        )
    assert sorted(rows) == EVERYTHING

    def fail(df: DataFrame, batch: object) -> None:
        raise LookupError("no sink")

    other = GroupConfig(
        bootstrap_servers=config.bootstrap_servers, group_id="other", topics=["lines"]
    )
    with (
        pytest.raises(LookupError, match="no sink"),
        kgroup_threaded.ConsumerGroup(other) as group,
    ):
        spark_threaded.foreach_batch(next(group), spark, fail)


def test_a_batch_that_is_skipped(
    spark: SparkSession, config: GroupConfig, embedded_kafka: EmbeddedKafka
) -> None:
    """A batch can be committed without a job; a closed loop gives its partitions up."""
    with kgroup_threaded.ConsumerGroup(config) as group:
        generation = next(group)
        loop = spark_threaded.batches(generation, spark)
        batch = next(loop)
        batch.skip()
        assert batch.stage is BatchStage.SKIPPED
        loop.close()
        spark_threaded.batches(generation, spark).close()
    assert {at.offset for at in embedded_kafka.committed("spark").values()} == {100}


async def test_on_trio(spark: SparkSession, config: GroupConfig) -> None:
    """The loop runs as a task of the generation, or in the loop's body."""
    rows: list[tuple[int, int, bytes]] = []

    def write(df: DataFrame, batch: MicroBatch) -> None:
        rows.extend(rows_of(df))
        if len(rows) == 200:
            trio.from_thread.run_sync(group.shutdown, trio_token=token)

    token = trio.lowlevel.current_trio_token()
    async with ConsumerGroup(config) as group:
        async for generation in group:
            assert generation.start_soon(
                functools.partial(foreach_batch, max_records=150), generation, spark, write
            )
            await generation.wait_ended()
    assert sorted(rows) == EVERYTHING


@pytest.mark.parametrize("backend", ["python", "jvm"])
async def test_one_column(spark: SparkSession, config: GroupConfig, backend: Backend) -> None:
    """Columns that are not selected are not in the frame, with either backend."""
    async with ConsumerGroup(config) as group:
        loop = batches(await group.next(), spark, columns="value", backend=backend)
        batch = await anext(loop)
        assert batch.df.columns == ["value"]
        assert await batch.run(lambda df: df.count()) == 200
        await batch.commit()


async def test_a_lost_membership(spark: SparkSession, config: GroupConfig) -> None:
    """The job is cancelled, and no task runs once the generation has ended."""
    events: list[Event] = []

    def endless(df: DataFrame) -> None:
        df.mapInArrow(slowly, "value binary").write.format("noop").mode("append").save()

    async with ConsumerGroup(config, on_event=events.append) as group:
        generation = await group.next()
        batch = await anext(batches(generation, spark, columns=["value"]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_evict_when_running, spark, config, generation.member_id)
            with pytest.raises(StaleGenerationError):
                await batch.run(endless)
        assert running(spark) == 0
        end = await generation.wait_ended()
        assert not end.can_commit
        with pytest.raises(StaleGenerationError):
            await batch.commit()
    assert any(isinstance(event, BatchCancelled) for event in events)


def slowly(found: Any) -> Any:
    """Take far too long, in a Python worker."""
    import time

    for batch in found:
        time.sleep(60)
        yield batch


def running(spark: SparkSession) -> int:
    """The number of tasks that run, as Spark reports it."""
    tracker = spark.sparkContext.statusTracker()
    return sum(
        info.numActiveTasks
        for info in map(tracker.getStageInfo, tracker.getActiveStageIds())
        if info is not None
    )


async def _evict_when_running(spark: SparkSession, config: GroupConfig, member_id: str) -> None:
    while not await trio.to_thread.run_sync(running, spark):  # noqa: ASYNC110 # Spark has no event for it
        await trio.sleep(0.05)
    await evict_by(config, member_id)


def test_jobs_of_another_kind_are_refused() -> None:
    """The error says where they come from, before anything of the session or the group is used."""
    wrong: Any = 3
    with pytest.raises(ArgumentError, match="the result of kgroup.spark.session.jobs_of"):
        batches(wrong, wrong, jobs=wrong)


def test_an_unknown_backend_is_refused(spark: SparkSession, config: GroupConfig) -> None:
    """The error names the backend."""
    with (
        kgroup_threaded.ConsumerGroup(config) as group,
        pytest.raises(ConfigError, match="backend='go' .* 'python' or 'jvm'"),
    ):
        spark_threaded.batches(next(group), spark, backend="go")


async def test_a_partition_is_read_once(spark: SparkSession, config: GroupConfig) -> None:
    """Two loops, or a loop and a record stream, cannot share a partition."""
    async with ConsumerGroup(config) as group:
        generation = await group.next()
        one = batches(generation, spark, partitions=TopicPartition("lines", 0))
        with pytest.raises(UsageError, match="lines-0: another stream"):
            batches(generation, spark)
        other = batches(generation, spark, partitions=TopicPartition("lines", 1))
        for loop in (one, other):
            batch = await anext(loop)
            assert len(batch.ranges) == 1
            await loop.aclose()
