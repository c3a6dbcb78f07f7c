"""The simplest worker: a function that processes a batch, and one call.

    python examples/simplest_worker.py localhost:9092 orders

``kgroup.run`` calls the function for each batch, in one task for each partition, and commits what
it has processed. At SIGTERM or Ctrl-C, the function can finish its batches, and the member leaves.
"""

import sys

import trio

import kgroup


async def handle(_generation: kgroup.Generation, batch: kgroup.Batch) -> None:
    """Process a batch: here, print where its records come from."""
    for message in batch:
        await trio.lowlevel.checkpoint()  # the work itself
        print(message.topic(), message.partition(), message.offset())


if __name__ == "__main__":
    _, servers, topic = sys.argv
    kgroup.run(
        kgroup.GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-simplest", topics=[topic]),
        handle,
    )
