"""A worker without an event loop: a thread for each partition, and a queue to one writing thread.

    python examples/threaded_worker.py localhost:9092 orders

Handlers put their results on a queue, and commit after the results have been written. SIGTERM and
Ctrl-C close the group, and handlers finish the batch they hold.
"""

import queue
import signal
import sys
import threading
from concurrent.futures import Future

from kgroup import GroupConfig, Message, TopicPartition
from kgroup.threaded import ConsumerGroup, Generation

Job = tuple[list[str], Future[None]]
Jobs = queue.Queue[Job | None]


def write(jobs: Jobs) -> None:
    """Write the results of all handlers, batch by batch, in one thread."""
    while (job := jobs.get()) is not None:
        lines, written = job
        try:
            print(*lines, sep="\n", flush=True)
        except Exception as error:  # noqa: BLE001 # raised in the handler, so that it does not commit
            written.set_exception(error)
        else:
            written.set_result(None)


def process(message: Message) -> str:
    """Process one record: here, return its position."""
    return f"{message.topic()} {message.partition()} {message.offset()}"


def handle(generation: Generation, partition: TopicPartition, jobs: Jobs) -> None:
    """Process one partition, in its own thread."""
    for batch in generation.records(partition):
        written: Future[None] = Future()
        jobs.put(([process(message) for message in batch], written))
        written.result()
        generation.commit({partition: batch.next_offset})


def main(servers: str, topic: str) -> None:
    """Be a member of the topic's group of threaded workers."""
    jobs: Jobs = queue.Queue()
    writer = threading.Thread(target=write, args=(jobs,), name="writer")
    writer.start()
    config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-threaded", topics=[topic])
    try:
        with ConsumerGroup(config) as group:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: group.shutdown())
            for generation in group:
                for partition in generation.assignment:
                    generation.start(handle, generation, partition, jobs)
    finally:
        jobs.put(None)
        writer.join()


if __name__ == "__main__":
    _, servers, topic = sys.argv
    main(servers, topic)
