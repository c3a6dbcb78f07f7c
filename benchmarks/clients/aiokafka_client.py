"""aiokafka, as its documentation recommends: ``getmany``, process, commit what was processed.

A rebalance listener waits until the batch in hand is committed, so that it is not read again. See
https://aiokafka.readthedocs.io/en/stable/consumer.html.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError

from benchmarks.clients.job import Ended, Job, Note


class WaitForBatch(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Lets a rebalance wait for the batch in hand."""

    def __init__(self) -> None:
        self.batch = asyncio.Lock()

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, revoked: Any
    ) -> None:
        """Wait until nothing is in hand."""
        del revoked
        async with self.batch:
            pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Do nothing."""


def run(job: Job, note: Note, ended: Ended) -> None:
    """Run all members in one event loop."""

    async def member(group: str, stopped: asyncio.Event) -> None:
        listener = WaitForBatch()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=job.servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **job.python_timeouts(),
        )
        consumer.subscribe([job.topic], listener=listener)
        async with consumer:
            while not stopped.is_set():
                fetched = await consumer.getmany(timeout_ms=1000, max_records=job.batch)
                async with listener.batch:
                    await process(consumer, fetched)

    async def process(consumer: AIOKafkaConsumer, fetched: dict[Any, Any]) -> None:
        if not fetched:
            return
        if job.work:
            await asyncio.sleep(job.work)
        records = [record for several in fetched.values() for record in several]
        note(len(records), ((one.partition, one.offset, one.value) for one in records))
        if job.commit:
            offsets = {one: several[-1].offset + 1 for one, several in fetched.items()}
            try:
                await consumer.commit(offsets)
            except CommitFailedError as error:
                print(f"commit refused: {error}", file=sys.stderr)

    async def main() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        ended.call(lambda: loop.call_soon_threadsafe(stopped.set))
        await asyncio.gather(*(member(group, stopped) for group in job.groups()))

    asyncio.run(main())
