"""A driver on a real cluster whose executor and worker are killed during a batch."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kgroup.errors import UsageError
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.spark import SparkCluster
from tests.brokers import EMBEDDED, Kafka, unique
from tests.examples.topic import Topic
from tests.examples.worker import Worker
from tests.spark.machine import TIMEOUT, spark_machine
from tests.spark.test_drivers import DRIVER, all_places, following, places, sink, working

PARTITIONS: Final = 4
RECORDS: Final = 30
TASKS: Final = 2
"""Tasks that work at the same time: one on each executor."""


@pytest.mark.timeout(1000)
def test_spark_repeats_the_tasks_of_a_lost_executor_and_worker(
    own_spark_cluster: Callable[..., SparkCluster], tmp_path: Path
) -> None:
    """One batch loses its executor, the next its worker; each record is in the sink once."""
    cluster = own_spark_cluster()
    with pytest.raises(UsageError, match="has no executor"):
        cluster.kill_executor()
    with EmbeddedKafka() as kafka, spark_machine(cluster.url) as machine:
        topic = Topic.create(Kafka(EMBEDDED, kafka.bootstrap_servers), PARTITIONS)
        group_id = unique("cluster")
        place = (topic.bootstrap_servers, topic.name, group_id, str(tmp_path))
        hold = tmp_path / "hold-driver"

        async def append() -> None:
            """Append to all partitions, before the driver can ask for the end of one of them."""
            broker = kafka.cluster.nodes[1]
            broker.set_reachable(reachable=False)
            for partition in range(PARTITIONS):
                await kafka.cluster.append(topic.name, partition, [b"record"] * RECORDS)
            broker.set_reachable(reachable=True)

        with Worker(machine, DRIVER, *place, "driver", "0", timeout=TIMEOUT) as driver:
            kafka.call(append)
            following(driver, "committed", 0)
            for kill in cluster.kill_executor, cluster.kill_worker:
                # The tasks work until they are lost, and each executor has one.
                topic.wait_until_committed(group_id, TIMEOUT)
                hold.touch()
                seen = driver.catch_up()
                kafka.call(append)
                began = following(driver, "began", seen)
                assert set(working(tmp_path, began, TASKS)) == {"0"}
                kill()
                hold.unlink()
                assert places(following(driver, "committed", seen)) == places(began)
                assert "1" in working(tmp_path, began)
            cluster.start_worker()
            topic.wait_until_committed(group_id, TIMEOUT)
            deadline = time.monotonic() + TIMEOUT
            while len(cluster.executors()) < 2:
                assert time.monotonic() < deadline, "the new worker has got no executor"
                time.sleep(0.05)
            driver.send(signal.SIGTERM)
            assert driver.ended() == 0
        assert topic.committed(group_id) == topic.ends()
    written = Counter(sink(tmp_path)["driver"])
    assert written.keys() == set(all_places(driver.lines, "committed"))
    assert set(written.values()) == {1}
    assert len(written) == 3 * PARTITIONS * RECORDS
