"""The simplest worker: everything in the loop's body, no task of its own.

    python examples/simplest_worker.py localhost:9092 orders

The work done between two generations counts as work of the generation: no new one is asked for
before it is finished. ``generation.scope()`` ends the block when the partitions are lost, so that
there is no error to handle. Ctrl-C ends the work at its next ``await``; the member still leaves.
"""

import sys

import trio

from kgroup import ConsumerGroup, GroupConfig


async def main(servers: str, topic: str) -> None:
    """Be a member of the topic's group of simplest workers."""
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-simplest", topics=[topic])
    async with ConsumerGroup(config) as group:
        async for generation in group:
            with generation.scope():
                async for batch in generation.records():
                    for message in batch.messages:
                        print(message.topic(), message.partition(), message.offset())
                    await generation.commit({batch.partition: batch.next_offset})


if __name__ == "__main__":
    _, servers, topic = sys.argv
    try:
        trio.run(main, servers, topic, restrict_keyboard_interrupt_to_checkpoints=True)
    except* KeyboardInterrupt:
        print("stopped")
