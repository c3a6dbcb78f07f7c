"""A custom assignor: even partitions for one half of the members, odd ones for the other half.

    python examples/custom_assignor.py localhost:9092 orders        (in two terminals)

All members of the group must offer the assignor. The leader calls it for the whole group.
"""

import signal
import sys
from collections.abc import Mapping, Sequence

import trio

from kgroup import ConsumerGroup, GroupConfig, MemberSubscription, TopicInfo, TopicPartition


class EvenAndOdd:
    """Every second member gets even partitions; the members in between get odd ones."""

    name = "even-and-odd"

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Give each partition to the next member of its half.

        The result does not depend on the leader, because members are sorted by id.
        """
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in topics.values():
            takers = [member.member_id for member in members if topic.name in member.topics]
            halves = takers[::2], takers[1::2] or takers
            for number in range(topic.partitions):
                half = halves[number % 2]
                given[half[number // 2 % len(half)]].append(TopicPartition(topic.name, number))
        return given


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Begin to close the group when SIGTERM comes."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown()


async def main(servers: str, topic: str) -> None:
    """Be a member of the topic's group with this assignor, and print each assignment."""
    config = GroupConfig(
        bootstrap_servers=servers,
        group_id=f"{topic}-even-and-odd",
        topics=[topic],
        assignors=[EvenAndOdd()],
    )
    async with trio.open_nursery() as nursery:
        async with ConsumerGroup(config) as group:
            nursery.start_soon(close_at_sigterm, group)
            async for generation in group:
                owned = ", ".join(map(str, generation.assignment)) or "nothing"
                print(f"generation {generation.generation_id} by {generation.assignor}: {owned}")
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
