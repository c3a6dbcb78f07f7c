"""A consumer group beside other services, all in one trio nursery.

    python examples/beside_services.py localhost:9092 orders 8080

A small status page shows the member's partitions. If one service fails, the others end with it.
At SIGTERM the handlers finish and commit the batch they hold, the member leaves, and the page ends.
Ctrl-C cancels all of them: the member leaves, and other members read uncommitted records again.
"""

import signal
import sys
from functools import partial

import trio

from kgroup import ConsumerGroup, Generation, GroupConfig, TopicPartition


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


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Begin to close the group when SIGTERM comes."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown()


async def consume(config: GroupConfig, status: Status) -> None:
    """Run the consumer group until SIGTERM."""
    async with trio.open_nursery() as nursery:
        async with ConsumerGroup(config) as group:
            nursery.start_soon(close_at_sigterm, group)
            async for generation in group:
                status.generation = generation
                for partition in generation.assignment:
                    generation.start_soon(handle, generation, partition, status)
        nursery.cancel_scope.cancel()


async def handle(generation: Generation, partition: TopicPartition, status: Status) -> None:
    """Count the records of one partition."""
    async for batch in generation.records(partition):
        status.handled += len(batch)
        await generation.commit({partition: batch.next_offset})


async def show(status: Status, stream: trio.SocketStream) -> None:
    """Answer one request for the status page."""
    async with stream:
        await stream.receive_some()
        body = status.text()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        await stream.send_all((head + body).encode())


async def main(servers: str, topic: str, port: str) -> None:
    """Run both services until the group is closed, or one of them fails."""
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-services", topics=[topic])
    status = Status()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, host="127.0.0.1")
        nursery.start_soon(serve, partial(show, status), int(port))
        await consume(config, status)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    _, servers, topic, port = sys.argv
    try:
        trio.run(main, servers, topic, port)
    except* KeyboardInterrupt:
        print("stopped")
