"""Rows and lag with an aborted transaction: rows are counted as read, lag by offsets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kgroup.client.cluster import EARLIEST, LATEST, Cluster
from kgroup.config import GroupConfig
from kgroup.spark.batch_limits import Budget
from kgroup.spark.consumer_pool import ConsumerPool
from kgroup.spark.planning import BatchPlan, plan_batch
from kgroup.spark.range_reader import read
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import UNKNOWN_BYTES, ReadCounts, SizeEstimates
from kgroup.types import IsolationLevel, TopicPartition
from kgroup.wire.byte_streams import open_tcp
from tests.brokers import embedded_broker, unique

KEPT, ABORTED, OPEN, VALUE = 7, 20, 3, b"v" * 200
PATIENCE = 120


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """The address of this module's own broker."""
    with embedded_broker() as address:
        yield address


@pytest.fixture
def partition(bootstrap_servers: str) -> Iterator[TopicPartition]:
    """A partition with a committed, an aborted and an open transaction."""
    name = TopicPartition(unique("counted"), 0)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name.topic, 1, 1)])[name.topic].result(PATIENCE)
    for records, end in ((KEPT, "commit"), (ABORTED, "abort"), (OPEN, "")):
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": unique("writer")}
        )
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(name.topic, VALUE)
        assert producer.flush(PATIENCE) == 0
        if end == "commit":
            producer.commit_transaction(PATIENCE)
        elif end == "abort":
            producer.abort_transaction(PATIENCE)
    yield name
    producer.abort_transaction(PATIENCE)


async def ends_of(
    bootstrap_servers: str, name: TopicPartition, level: IsolationLevel
) -> Mapping[TopicPartition, int]:
    """The end offset as a leader reports it."""
    config = GroupConfig(bootstrap_servers=bootstrap_servers, group_id="g", topics=[name.topic])
    cluster = Cluster(config, open_tcp, random.Random(1))
    try:
        first = await cluster.list_offsets([name], EARLIEST)
        assert first == {name: 0}
        ends = await cluster.list_offsets([name], LATEST, isolation_level=level, use_cached=True)
        return {name: end for name, end in ends.items() if isinstance(end, int)}
    finally:
        await cluster.aclose()


def brought(bootstrap_servers: str, planned: BatchPlan, level: IsolationLevel) -> ReadCounts:
    """The rows that were read, and the bytes of their values."""
    settings = ReaderSettings(bootstrap_servers=bootstrap_servers, isolation_level=level)
    pool = ConsumerPool()
    try:
        batches = list(read(planned.ranges, settings, ("value",), pool=pool))
    finally:
        pool.close()
    values = [value.as_py() for batch in batches for value in batch.column("value")]
    return ReadCounts(len(values), sum(map(len, values)))


@pytest.mark.parametrize(
    ("level", "rows", "offsets"),
    [
        # Each transaction that ended has a marker, which is an offset and no row.
        (IsolationLevel.READ_COMMITTED, KEPT, KEPT + ABORTED + 2),
        (IsolationLevel.READ_UNCOMMITTED, KEPT + ABORTED + OPEN, KEPT + ABORTED + OPEN + 2),
    ],
)
async def test_rows_count_records_and_lag_counts_offsets(
    bootstrap_servers: str,
    partition: TopicPartition,
    level: IsolationLevel,
    rows: int,
    offsets: int,
) -> None:
    """For readers of committed records, an open transaction does not count as lag."""
    ends = await ends_of(bootstrap_servers, partition, level)
    assert ends == {partition: offsets}
    sizes, position, seen, lags = SizeEstimates(), 0, ReadCounts(0, 0), []
    for turn in range(10):
        planned = plan_batch(
            {partition: position}, ends, Budget(10, 5 * UNKNOWN_BYTES), sizes, turn
        )
        if not planned.ranges:
            break
        here = brought(bootstrap_servers, planned, level)
        assert here.records <= planned.offsets
        seen = ReadCounts(seen.records + here.records, seen.bytes + here.bytes)
        sizes = sizes.after(planned.ranges, {partition: here})
        position += planned.offsets
        lags.append(planned.lag)
    assert seen == ReadCounts(rows, rows * len(VALUE))
    assert position == offsets
    assert lags == sorted(lags, reverse=True)
    assert lags[0] == offsets - 5
    assert lags[-1] == 0
    # The size estimates lie between an eighth of a record's size and the whole size.
    assert len(VALUE) // 8 <= sizes.offset_bytes(partition) <= len(VALUE)
