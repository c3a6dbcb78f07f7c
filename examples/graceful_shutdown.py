"""Graceful shutdown on SIGTERM and SIGINT, as orchestrators request it.

    python examples/graceful_shutdown.py localhost:9092 orders

The signal closes the group: streams end, handlers finish and commit the batch they hold, and the
member leaves. The other members continue without a pause and without repeated records. A second
signal does not wait for that.
"""

import signal
import sys

import trio

from kgroup import ConsumerGroup, Generation, GroupConfig, TopicPartition


async def close_on_signal(group: ConsumerGroup) -> None:
    """Wait for the first signal, then begin to close."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            print("closing because of", signal.Signals(number).name)
            group.shutdown("the process was asked to stop")
            return


async def handle(generation: Generation, partition: TopicPartition) -> None:
    """Process long batches; when the generation begins to end, commit part of the batch."""
    async for batch in generation.records(partition, max_records=500):
        for message in batch:
            await trio.sleep(0.01)  # the work itself
            print(message.topic(), message.partition(), message.offset())
            if generation.ending.is_set():
                await generation.commit({partition: message.offset() + 1})
                return
        await generation.commit({partition: batch.next_offset})


async def main(servers: str, topic: str) -> None:
    """Be a member of the topic's group of graceful workers."""
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-graceful", topics=[topic])
    async with ConsumerGroup(config) as group, trio.open_nursery() as nursery:
        nursery.start_soon(close_on_signal, group)
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition)
    print("left the group")


if __name__ == "__main__":
    _, servers, topic = sys.argv
    trio.run(main, servers, topic)
