"""A worker on trio: one task for each partition.

    python examples/trio_worker.py localhost:9092 orders

Stop it with Ctrl-C or SIGTERM: tasks finish and commit the batch they hold, and the member leaves
the group.
"""

import signal
import sys

import trio

from kgroup import ConsumerGroup, Generation, GroupConfig, Message, TopicPartition


async def process(message: Message) -> None:
    """Process one record: here, print it."""
    print(message.topic(), message.partition(), message.offset(), message.value())
    await trio.lowlevel.checkpoint()


async def handle(generation: Generation, partition: TopicPartition) -> None:
    """Process one partition, batch by batch, until the generation ends."""
    async for batch in generation.records(partition):
        for message in batch:
            await process(message)
        await generation.commit({partition: batch.next_offset})


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Begin to close the group when SIGTERM comes."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown()


async def main(servers: str, topic: str) -> None:
    """Be a member of the topic's group of workers."""
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-trio", topics=[topic])
    async with trio.open_nursery() as nursery:
        async with ConsumerGroup(config) as group:
            nursery.start_soon(close_at_sigterm, group)
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, generation, partition)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    _, servers, topic = sys.argv
    try:
        # This raises Ctrl-C in main, which waits for the next generation, and not in a handler.
        trio.run(main, servers, topic, restrict_keyboard_interrupt_to_checkpoints=True)
    except* KeyboardInterrupt:
        print("stopped")
