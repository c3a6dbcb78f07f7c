"""A member in a process of its own that writes down what it sees; the tests stop and wake it.

Run as ``python worker.py TASK``, where TASK is a `Task` in JSON. Each line of its journal is one
observation in JSON, written before the worker continues. It ends when a generation of its own was
lost, or when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, final

import attrs
import trio

from kgroup import ConsumerGroup, Generation, GroupConfig, KgroupError, TopicPartition
from kgroup.events import CommitRefused, Event
from kgroup.group import default_runtime
from kgroup.runtime import Runtime


@final
@attrs.frozen(kw_only=True)
class Task:
    """The task of a worker.

    Attributes:
        journal: the path of its journal.
        config: the arguments of its `GroupConfig`.
        batch: the most records of a batch.
        seconds: how long each of them takes; it blocks its event loop meanwhile, as work does
            that was not moved to a thread.
        lease: whether its lease ends by its own clock; if not, only the coordinator can stop it.
    """

    journal: str
    config: dict[str, Any]
    batch: int
    seconds: float
    lease: bool = True


@final
class BackwardClock:
    """A clock on which no lease ever ends: every reading is an hour before the last."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds, fewer every time."""
        self._now -= 3600.0
        return self._now


@final
class Journal:
    """Writes observations, each at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, **details: object) -> None:
        """Write one observation."""
        os.write(self._file, json.dumps({"what": what, **details}).encode() + b"\n")

    def event(self, event: Event) -> None:
        """Write down the events that the tests check."""
        if isinstance(event, CommitRefused):
            self.write("refused", reason=event.reason, stale=event.stale, epoch=event.epoch)


async def work(task: Task, journal: Journal) -> None:
    """Be a member until a generation is lost."""
    runtime: Runtime = default_runtime()
    if not task.lease:
        runtime = attrs.evolve(runtime, clock=BackwardClock())
    config = GroupConfig(**task.config)
    group = ConsumerGroup(config, runtime=runtime, on_event=journal.event)
    async with group, trio.open_nursery() as nursery:
        nursery.start_soon(close_at_end_of_input, group)
        async for generation in group:
            journal.write(
                "generation",
                epoch=generation.epoch,
                partitions=[partition.partition for partition in generation.assignment],
            )
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition, task, journal)
            end = await generation.wait_ended()
            journal.write("ended", epoch=generation.epoch, cause=end.cause.value, why=str(end))
            if not end.can_commit:
                break
        nursery.cancel_scope.cancel()


async def handle(
    generation: Generation, partition: TopicPartition, task: Task, journal: Journal
) -> None:
    """Process a partition, and commit each batch."""
    here = {"epoch": generation.epoch, "partition": partition.partition}
    async for batch in generation.records(partition, max_records=task.batch):
        offsets = [message.offset() for message in batch.messages]
        journal.write("received", **here, offsets=offsets)
        for offset in offsets:
            time.sleep(task.seconds)  # noqa: ASYNC251 # see Task.seconds
            journal.write("processed", **here, offset=offset)
        journal.write("committing", **here, offset=batch.next_offset)
        try:
            await generation.commit({partition: batch.next_offset})
        except KgroupError as error:
            journal.write("failed", **here, error=type(error).__name__, why=str(error))
            raise
        journal.write("committed", **here, offset=batch.next_offset)


async def close_at_end_of_input(group: ConsumerGroup) -> None:
    """Close the group when standard input is closed."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
    group.shutdown("the test is over")


if __name__ == "__main__":
    task = Task(**json.loads(sys.argv[1]))
    trio.run(work, task, Journal(Path(task.journal)))
