"""Topics that are created, extended and deleted, and the creation that a record belongs to."""

from __future__ import annotations

from kgroup.broker import in_memory_cluster
from kgroup.records.memory import LogMessage
from kgroup.testing.simulation import history
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.types import TopicPartition

P0 = TopicPartition("orders", 0)


async def test_a_record_knows_its_creation(autojump_clock: object) -> None:
    """A record read before its topic was deleted belongs to the first creation."""
    async with in_memory_cluster(1) as cluster:
        recorder = Recorder()
        topics = SimulatedTopics(cluster, recorder)
        await topics.create("orders", 1)
        topics.append(P0, 2)
        (first, second) = cluster.log.read(P0, 0, 10).records
        await topics.delete("orders")
        assert topics.partitions("orders") == 0
        await topics.create("orders", 2)
        topics.append(P0, 1)
        (third,) = cluster.log.read(P0, 0, 10).records
        messages = [LogMessage(P0, record) for record in (first, second, third)]
        assert [topics.creation_of(one) for one in messages] == [1, 1, 2]
        await topics.grow("orders", 3)
        changed = [one for one in recorder.history if isinstance(one, history.TopicChanged)]
        assert [(one.partitions, one.creation) for one in changed] == [
            (1, 1),
            (0, 1),
            (2, 2),
            (3, 2),
        ]
