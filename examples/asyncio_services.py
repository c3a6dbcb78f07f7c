"""A consumer group beside other services, all in one asyncio task group.

    python examples/asyncio_services.py localhost:9092 orders 8080

A small status page shows the member's partitions. If one service fails, the others end with it.
At SIGTERM the handlers finish and commit the batch they hold, the member leaves, and the page ends.
Ctrl-C cancels all of them: the member leaves, and other members read uncommitted records again.
"""

import asyncio
import signal
import sys
from contextlib import suppress

from kgroup import GroupConfig, TopicPartition
from kgroup.aio import ConsumerGroup, Generation

PATIENCE = 5.0  # seconds for a request of the page


class Status:
    """The contents of the status page."""

    def __init__(self) -> None:
        self.generation: Generation | None = None
        self.handled = 0

    def text(self) -> str:
        """The page, as one line."""
        if self.generation is None:
            return "no generation\n"
        owned = ", ".join(map(str, self.generation.assignment))
        number, state = self.generation.generation_id, self.generation.state.value
        return f"generation {number} ({state}): {owned}; {self.handled} handled\n"

    async def show(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request for the status page."""
        # Since Python 3.12 a server that ends waits for its connections, idle ones among them.
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await reader.readline()
                body = self.text()
                head = (
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write((head + body).encode())
                await writer.drain()
        writer.close()


async def consume(config: GroupConfig, status: Status) -> None:
    """Run the consumer group until SIGTERM."""
    async with ConsumerGroup(config) as group:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, group.shutdown)
        async for generation in group:
            status.generation = generation
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition, status)


async def handle(generation: Generation, partition: TopicPartition, status: Status) -> None:
    """Count the records of one partition."""
    async for batch in generation.records(partition):
        status.handled += len(batch)
        await generation.commit({partition: batch.next_offset})


async def answer(status: Status, port: int) -> None:
    """Serve the status page."""
    async with await asyncio.start_server(status.show, "127.0.0.1", port) as server:
        await server.serve_forever()


async def main(servers: str, topic: str, port: str) -> None:
    """Run both services until the group is closed, or one of them fails."""
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-services", topics=[topic])
    status = Status()
    async with asyncio.TaskGroup() as services:
        page = services.create_task(answer(status, int(port)))
        await consume(config, status)
        page.cancel()


if __name__ == "__main__":
    _, servers, topic, port = sys.argv
    try:
        asyncio.run(main(servers, topic, port))
    except KeyboardInterrupt:
        print("stopped")
