"""A worker with a pool of threads, which end in the middle of a batch if the generation does.

    python examples/pool_worker.py localhost:9092 orders

Four threads share all partitions, and no two of them have the same partition at a time. At SIGTERM
or Ctrl-C, each finishes one record; what it has processed is committed, and the member leaves.
"""

import sys
import time

import kgroup
from kgroup.threaded import Generation, run


def handle(generation: Generation, batch: kgroup.Batch) -> int | None:
    """Process a batch; when the generation begins to end, return the offset to continue from."""
    for message in batch:
        time.sleep(0.002)  # the work itself
        print(f"{message.topic()} {message.partition()} {message.offset()}\n", end="", flush=True)
        if generation.ending.is_set():
            return message.offset() + 1
    return None


if __name__ == "__main__":
    _, servers, topic = sys.argv
    run(
        kgroup.GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-pool", topics=[topic]),
        handle,
        threads=4,
    )
