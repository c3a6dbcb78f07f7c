"""An assignor by measured lag: every member has about the same backlog.

    python examples/assign_by_lag.py localhost:9092 orders        (in two terminals)

A rebalance uses the last measurement. Every member measures, because any of them may become leader.
"""

import signal
import sys
from collections.abc import Mapping, Sequence

import confluent_kafka
import trio

from kgroup import ConsumerGroup, GroupConfig, MemberSubscription, TopicInfo, TopicPartition


class ByLag:
    """Gives the largest lag first, each partition to the subscriber with the least lag so far."""

    name = "by-lag"
    lag: Mapping[
        TopicPartition, int
    ] = {}  # replaced, never changed, because assign runs in a thread

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Assign every partition; among equals to the member with the fewest, then by id."""
        lag = self.lag
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        load = dict.fromkeys(given, 0)
        names = [TopicPartition(t.name, n) for t in topics.values() for n in range(t.partitions)]
        for name in sorted(names, key=lambda name: (-lag.get(name, 0), name)):
            takers = [member.member_id for member in members if name.topic in member.topics]
            least = min(takers, key=lambda member: (load[member], len(given[member]), member))
            given[least].append(name)
            load[least] += lag.get(name, 0)
        return given


def measure(servers: str, group_id: str, topic: str) -> Mapping[TopicPartition, int]:
    """Return how many records of each partition the group has not committed. Blocks."""
    client = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group_id})
    numbers = client.list_topics(topic, timeout=10).topics[topic].partitions
    names = [confluent_kafka.TopicPartition(topic, number) for number in sorted(numbers)]
    lag = {}
    for at in client.committed(names, timeout=10):
        first, end = client.get_watermark_offsets(at, timeout=10)
        lag[TopicPartition(topic, at.partition)] = end - max(first, at.offset)
    client.close()
    return lag


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Begin to close the group when SIGTERM comes."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown()


async def main(servers: str, topic: str) -> None:
    """Be a member with this assignor, and measure the lag at the same time."""
    group_id, by_lag = f"{topic}-by-lag", ByLag()

    async def measure_once() -> None:
        try:
            by_lag.lag = await trio.to_thread.run_sync(measure, servers, group_id, topic)
        except confluent_kafka.KafkaException as error:
            print("the last measurement stays in use:", error, file=sys.stderr)

    async def keep_measuring() -> None:
        while True:
            await trio.sleep(10)
            await measure_once()

    config = GroupConfig(
        bootstrap_servers=servers, group_id=group_id, topics=[topic], assignors=[by_lag]
    )
    async with trio.open_nursery() as nursery:
        await measure_once()
        nursery.start_soon(keep_measuring)
        async with ConsumerGroup(config) as group:
            nursery.start_soon(close_at_sigterm, group)
            async for generation in group:
                print("owns", *generation.assignment)
                with generation.scope():
                    async for batch in generation.records():
                        await generation.commit({batch.partition: batch.next_offset})
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    _, servers, topic = sys.argv
    try:
        trio.run(main, servers, topic)
    except* KeyboardInterrupt:
        print("stopped")
