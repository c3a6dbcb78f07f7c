"""A worker without an event loop: one thread for each partition, a queue to the one that writes.

    python examples/threaded_worker.py localhost:9092 orders

Handlers put what they have worked out on a queue, and commit once it has been written. SIGTERM
and Ctrl-C close the group: handlers finish what they hold.
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
    """Write what handlers worked out, batch by batch, in one thread."""
    while (job := jobs.get()) is not None:
        lines, written = job
        try:
            print(*lines, sep="\n", flush=True)
        except Exception as error:  # noqa: BLE001 # raised in the handler, which must not commit
            written.set_exception(error)
        else:
            written.set_result(None)


def work_out(message: Message) -> str:
    """The work itself; here only the record's place."""
    return f"{message.topic()} {message.partition()} {message.offset()}"


def handle(generation: Generation, partition: TopicPartition, jobs: Jobs) -> None:
    """Work through one partition in a thread of its own."""
    for batch in generation.records(partition):
        written: Future[None] = Future()
        jobs.put(([work_out(message) for message in batch.messages], written))
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
