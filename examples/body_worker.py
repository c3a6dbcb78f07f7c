"""A worker without tasks: all work is done in the body of the loop.

    python examples/body_worker.py localhost:9092 orders

The body of the loop belongs to its generation: the member joins again only when the body has ended.
``generation.scope()`` ends the block when the partitions are lost, so there is no error to handle.
Ctrl-C ends the work at its next ``await``, and the member still leaves the group. SIGTERM kills the
process; ``graceful_shutdown.py`` handles it.
"""

import sys

import trio

from kgroup import ConsumerGroup, GroupConfig


async def main(servers: str, topic: str) -> None:
    """Be a member of the topic's group of workers without tasks."""
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-body", topics=[topic])
    async with ConsumerGroup(config) as group:
        async for generation in group:
            with generation.scope():
                async for batch in generation.records():
                    for message in batch:
                        print(message.topic(), message.partition(), message.offset())
                    await generation.commit({batch.partition: batch.next_offset})


if __name__ == "__main__":
    _, servers, topic = sys.argv
    try:
        trio.run(main, servers, topic, restrict_keyboard_interrupt_to_checkpoints=True)
    except* KeyboardInterrupt:
        print("stopped")
