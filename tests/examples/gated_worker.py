"""A worker with the store of an exactly-once example, which a test stops just before a write.

    python tests/examples/gated_worker.py EXAMPLE SERVERS TOPIC DATABASE NAME GATE RECORDS FREE

It writes FREE batches of RECORDS records. Before the next one it prints a line, and waits until
the test opens the FIFO at GATE. By then it has taken the records out of the batch, which would
refuse to hand them out after a suspension.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kgroup
from kgroup.interfaces import Batch
from kgroup.threaded import Generation, run
from tests.examples.loading import load


def main(
    example: str, servers: str, topic: str, database: str, name: str, gate: str, *numbers: str
) -> None:
    """Run the worker until a signal ends it."""
    records, free = map(int, numbers)
    store = load(example).Store(database)
    writes = 0

    def write(generation: Generation, batch: kgroup.Batch) -> None:
        nonlocal writes
        taken = Batch(
            partition=batch.partition,
            messages=list(batch),
            next_offset=batch.next_offset,
            start_offset=batch.start_offset,
            epoch=batch.epoch,
        )
        if writes == free:
            print("at the gate", flush=True)
            Path(gate).read_bytes()
        writes += 1
        try:
            store.write(generation, taken)
        except kgroup.StaleGenerationError as error:
            print(f"refused: {error}", flush=True)
            raise

    config = kgroup.GroupConfig(
        bootstrap_servers=servers,
        group_id=topic,
        topics=[topic],
        group_instance_id=name,
        session_timeout=6.0,
        heartbeat_interval=1.0,
        starts=store.starts,
    )
    run(config, write, max_records=records)


if __name__ == "__main__":
    main(*sys.argv[1:])
