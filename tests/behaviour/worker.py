"""A member in a process of its own that writes down what it sees; the tests stop and wake it.

Run as ``python worker.py TASK``, where TASK is a `Task` in JSON. Each line of its journal is one
observation in JSON, written before the worker continues. It ends when a generation of its own was
lost, or when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import attrs
import trio

from kgroup import (
    ConsumerGroup,
    Generation,
    GroupConfig,
    KgroupError,
    TopicPartition,
    aio,
    threaded,
)
from kgroup.events import CommitRefused, Event
from kgroup.group import default_runtime
from kgroup.runtime import Runtime
from kgroup.types import End

BLOCKING: Final = "blocking"
"""A task for each partition; a record blocks the event loop, as work that is in no thread does."""
TASKS: Final = "tasks"
"""A task for each partition; all of them process a record at the same time."""
ASYNCIO: Final = "asyncio"
"""A task of asyncio for each partition, by `kgroup.aio`."""
THREADS: Final = "threads"
"""A thread for each partition, by `kgroup.threaded`."""


MembershipOf = Generation | threaded.Generation | aio.Generation


@final
@attrs.frozen(kw_only=True)
class Task:
    """The task of a worker.

    Attributes:
        journal: the path of its journal.
        config: the arguments of its `GroupConfig`.
        batch: the most records of a batch.
        seconds: how long each of them takes.
        lease: whether its lease ends by its own clock; if not, only the coordinator can stop it.
        work: `BLOCKING`, `TASKS`, `ASYNCIO` or `THREADS`.
    """

    journal: str
    config: dict[str, Any]
    batch: int
    seconds: float
    lease: bool = True
    work: str = BLOCKING


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

    def begun(self, generation: MembershipOf) -> None:
        """Write down that a generation has begun."""
        partitions = [partition.partition for partition in generation.assignment]
        self.write("generation", epoch=generation.epoch, partitions=partitions)

    def ended(self, generation: MembershipOf, end: End) -> None:
        """Write down why a generation has ended."""
        self.write("ended", epoch=generation.epoch, cause=end.cause.value, why=str(end))

    @contextmanager
    def failures(self, **here: int) -> Iterator[None]:
        """Write down what kgroup raises in the block."""
        try:
            yield
        except KgroupError as error:
            self.write("failed", **here, error=type(error).__name__, why=str(error))
            raise


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
            journal.begun(generation)
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition, task, journal)
            end = await generation.wait_ended()
            journal.ended(generation, end)
            if not end.can_commit:
                break
        nursery.cancel_scope.cancel()


async def handle(
    generation: Generation | aio.Generation,
    partition: TopicPartition,
    task: Task,
    journal: Journal,
) -> None:
    """Process a partition, and commit each batch."""
    here = {"epoch": generation.epoch, "partition": partition.partition}
    async for batch in generation.records(partition, max_records=task.batch):
        offsets = [message.offset() for message in batch.messages]
        journal.write("received", **here, offsets=offsets)
        with journal.failures(**here):
            for message in batch:
                if task.work == BLOCKING:
                    time.sleep(task.seconds)  # noqa: ASYNC251 # see BLOCKING
                elif task.work == ASYNCIO:
                    await asyncio.sleep(task.seconds)
                else:
                    await trio.sleep(task.seconds)
                journal.write("processed", **here, offset=message.offset())
            journal.write("committing", **here, offset=batch.next_offset)
            await generation.commit({partition: batch.next_offset})
        journal.write("committed", **here, offset=batch.next_offset)


async def work_in_asyncio(task: Task, journal: Journal) -> None:
    """Be a member until a generation is lost, with asyncio."""
    loop = asyncio.get_running_loop()
    async with aio.ConsumerGroup(GroupConfig(**task.config), on_event=journal.event) as group:
        loop.add_reader(sys.stdin.fileno(), group.shutdown, "the test is over")
        async for generation in group:
            journal.begun(generation)
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition, task, journal)
            end = await generation.wait_ended()
            journal.ended(generation, end)
            if not end.can_commit:
                break
        loop.remove_reader(sys.stdin.fileno())


def work_in_threads(task: Task, journal: Journal) -> None:
    """Be a member until a generation is lost, with threads."""
    config = GroupConfig(**task.config)
    with threaded.ConsumerGroup(config, on_event=journal.event) as group:
        threading.Thread(target=shut_down_at_end_of_input, args=(group,), daemon=True).start()
        for generation in group:
            journal.begun(generation)
            for partition in generation.assignment:
                generation.start(handle_in_thread, generation, partition, task, journal)
            end = generation.wait_ended()
            journal.ended(generation, end)
            if not end.can_commit:
                break


def handle_in_thread(
    generation: threaded.Generation, partition: TopicPartition, task: Task, journal: Journal
) -> None:
    """Process a partition in a thread, and commit each batch."""
    here = {"epoch": generation.epoch, "partition": partition.partition}
    for batch in generation.records(partition, max_records=task.batch):
        offsets = [message.offset() for message in batch.messages]
        journal.write("received", **here, offsets=offsets)
        with journal.failures(**here):
            for message in batch:
                time.sleep(task.seconds)
                journal.write("processed", **here, offset=message.offset())
            journal.write("committing", **here, offset=batch.next_offset)
            generation.commit({partition: batch.next_offset})
        journal.write("committed", **here, offset=batch.next_offset)


async def close_at_end_of_input(group: ConsumerGroup) -> None:
    """Close the group when standard input is closed."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
    group.shutdown("the test is over")


def shut_down_at_end_of_input(group: threaded.ConsumerGroup) -> None:
    """Close the group when standard input is closed."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    group.shutdown("the test is over")


def main() -> None:
    """Do the task that the command line gives."""
    task = Task(**json.loads(sys.argv[1]))
    journal = Journal(Path(task.journal))
    if task.work == THREADS:
        work_in_threads(task, journal)
    elif task.work == ASYNCIO:
        asyncio.run(work_in_asyncio(task, journal))
    else:
        trio.run(work, task, journal)


if __name__ == "__main__":
    main()
