"""An assignor that gives partitions to members in the same rack, if there are any (KIP-881).

    python examples/assign_by_rack.py localhost:9092 orders east        (and west, elsewhere)

Brokers have their rack in the setting ``broker.rack``, members in ``rack_id``.
"""

import signal
import sys
from collections.abc import Mapping, Sequence

import trio

from kgroup import ConsumerGroup, GroupConfig, MemberSubscription, TopicInfo, TopicPartition


class ByRack:
    """Gives each partition to a member in a rack of its replicas, even if that is unbalanced."""

    name = "by-rack"

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Give each partition to the member with the fewest, in its racks if possible."""
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in topics.values():
            takers = [member for member in members if topic.name in member.topics]
            for number in range(topic.partitions):
                racks = topic.racks[number] if topic.racks else ()
                near = [member for member in takers if member.rack_id in racks]
                least = min(near or takers, key=lambda member: len(given[member.member_id]))
                given[least.member_id].append(TopicPartition(topic.name, number))
        return given


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Begin to close the group when SIGTERM comes."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown()


async def main(servers: str, topic: str, rack: str) -> None:
    """Be a member in a rack, which also fetches from the replica there (KIP-392)."""
    config = GroupConfig(
        bootstrap_servers=servers,
        group_id=f"{topic}-by-rack",
        topics=[topic],
        assignors=[ByRack()],
        rack_id=rack,
    )
    async with trio.open_nursery() as nursery:
        async with ConsumerGroup(config) as group:
            nursery.start_soon(close_at_sigterm, group)
            async for generation in group:
                print(rack, "owns", *generation.assignment)
                with generation.scope():
                    async for batch in generation.records():
                        await generation.commit({batch.partition: batch.next_offset})
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    _, servers, topic, rack = sys.argv
    try:
        trio.run(main, servers, topic, rack)
    except* KeyboardInterrupt:
        print("stopped")
