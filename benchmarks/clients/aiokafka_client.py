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


class Poll:
    """The call that waits for records; it gives up when the client shall end.

    Without that, the end would have to wait for a record, or for the call's timeout.
    """

    def __init__(self, consumer: AIOKafkaConsumer, job: Job, ended: Ended) -> None:
        self._consumer, self._most, self._ended = consumer, job.batch, ended
        self._task, loop = asyncio.current_task(), asyncio.get_running_loop()
        self._waits = False
        ended.call(lambda: loop.call_soon_threadsafe(self._stop))

    def _stop(self) -> None:
        if self._waits and self._task is not None:
            self._task.cancel()

    async def __call__(self) -> dict[Any, Any]:
        """Wait for records; return none after a second, or at the end."""
        self._waits = True
        try:
            found: dict[Any, Any] = await self._consumer.getmany(
                timeout_ms=1000, max_records=self._most
            )
        except asyncio.CancelledError:
            if not self._ended or self._task is None:
                raise
            self._task.uncancel()
            return {}
        else:
            return found
        finally:
            self._waits = False


def run(job: Job, note: Note, ended: Ended) -> None:
    """Run all members in one event loop."""

    async def member(group: str) -> None:
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
            poll = Poll(consumer, job, ended)
            while not ended:
                fetched = await poll()
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
        await asyncio.gather(*map(member, job.groups()))

    asyncio.run(main())
