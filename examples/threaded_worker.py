"""A worker without an event loop: one thread for each partition, a queue to those who write.

    python examples/threaded_worker.py localhost:9092 orders

Handlers put what they have worked out on a queue, and commit once it has been written. SIGTERM
closes the group: handlers finish what they hold.
"""

import queue
import signal
import sys
import threading

from kgroup import GroupConfig, TopicPartition
from kgroup.threaded import ConsumerGroup, Generation

Job = tuple[list[str], threading.Event]


def write(jobs: "queue.Queue[Job | None]") -> None:
    """Write what handlers worked out, batch by batch, in one thread."""
    while (job := jobs.get()) is not None:
        lines, written = job
        for line in lines:
            print(line)
        written.set()


def handle(
    generation: Generation, partition: TopicPartition, jobs: "queue.Queue[Job | None]"
) -> None:
    """Work through one partition in a thread of its own."""
    for batch in generation.records(partition):
        written = threading.Event()
        jobs.put(([f"{partition} {message.offset()}" for message in batch.messages], written))
        written.wait()
        generation.commit({partition: batch.next_offset})


def main(servers: str, topic: str) -> None:
    """Be a member of the group ``threaded-worker``."""
    jobs: queue.Queue[Job | None] = queue.Queue(maxsize=100)
    writer = threading.Thread(target=write, args=(jobs,), name="writer")
    writer.start()
    config = GroupConfig(bootstrap_servers=servers, group_id="threaded-worker", topics=[topic])
    try:
        with ConsumerGroup(config) as group:
            signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
            for generation in group:
                for partition in generation.assignment:
                    generation.start(handle, generation, partition, jobs)
    finally:
        jobs.put(None)
        writer.join()


if __name__ == "__main__":
    _, servers, topic = sys.argv
    main(servers, topic)
