"""Measures the time from the sink's success until a tool sees the committed offset."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from benchmarks.onspark.bench import PATIENCE, Bench, Feed, Marks, line, load, spread, title
from benchmarks.onspark.latency import kgroup_running, spark_running

RECORDS: Final = 100


def committed(admin: AdminClient, group: str) -> int:
    """The sum of a group's committed offsets, read as any tool reads them."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(PATIENCE)
    return sum(max(0, at.offset) for at in found.topic_partitions or ())


def groups(admin: AdminClient) -> set[str]:
    """All consumer groups of the cluster."""
    return {group.group_id for group in admin.list_consumer_groups().result(PATIENCE).valid or ()}


def measure(bench: Bench) -> None:
    """Run the cell. The tool polls, so a figure includes up to two of its requests."""
    title("visible: from the return of the sink's function to the offset in a tool's answer")
    admin = AdminClient({"bootstrap.servers": bench.servers})
    before = groups(admin)
    topic, marks = bench.topic(), Marks()
    feed = Feed(bench.servers, topic)
    seen: list[float] = []
    asking: list[float] = []
    group = ""
    with kgroup_running(bench, topic, marks):
        for number in range(1, 4 + bench.times(20, 5)):
            feed.send(RECORDS)
            ended = marks.wait_total("rows", number * RECORDS)
            if number == 1:
                (group,) = groups(admin) - before
            while committed(admin, group) < number * RECORDS:
                if time.perf_counter() - ended > PATIENCE:
                    raise SystemExit("the offset was never seen")
            if number > 3:
                seen.append((time.perf_counter() - ended) * 1000)
                asked = time.perf_counter()
                committed(admin, group)
                asking.append((time.perf_counter() - asked) * 1000)
    line(
        f"kgroup: {spread(seen, '.0f')} ms, of which one question takes {spread(asking, '.0f')} ms"
    )
    before = groups(admin)
    marks = Marks()
    with spark_running(bench, topic, marks):
        marks.wait_total("rows", RECORDS)
        time.sleep(2)
        created = groups(admin) - before
        line(f"readStream: never; groups that it has made: {sorted(created) or 'none'}")
    line(f"({len(seen)} rounds; {load()} at the end)")
