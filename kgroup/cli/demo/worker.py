"""A worker of the demo: a member of the group that counts the words of the lines it reads.

This is how a program uses kgroup. What is there for the demo only: the journal, in which the
worker writes down what it does, and the sleep, in place of what work usually waits for.

Run as ``python -m kgroup.cli.demo.worker TASK``, where TASK is a `Task` in JSON. It ends when it
gets SIGTERM, or when its standard input is closed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final, final

import attrs
import trio

from kgroup.cli.demo import parent_watch
from kgroup.cli.demo.journal import Journal
from kgroup.cli.demo.text import words_of
from kgroup.config import GroupConfig
from kgroup.errors import CommitUnknownError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.types import TopicPartition

BATCH: Final = 200
"""Lines that are committed together, at most."""
GRACE: Final = 5.0
"""Seconds that the process gets to end after its group may have taken to close."""


@final
@attrs.frozen(kw_only=True)
class Task:
    """What a worker is told.

    Attributes:
        name: its name; names the client.
        bootstrap_servers: where the cluster is.
        topic: what to read.
        group_id: in which group.
        session_timeout: the group's, in seconds.
        seconds_per_line: how long the work on a line waits for something else.
        journal: the path of its journal.
    """

    name: str
    bootstrap_servers: str
    topic: str
    group_id: str
    session_timeout: float
    seconds_per_line: float
    journal: str


def config_of(task: Task) -> GroupConfig:
    """The settings of a member that has this task."""
    return GroupConfig(
        bootstrap_servers=task.bootstrap_servers,
        group_id=task.group_id,
        topics=[task.topic],
        client_id=task.name,
        session_timeout=task.session_timeout,
        partition_watch_interval=1.0,
    )


async def work(task: Task, journal: Journal) -> None:
    """Join the group, and in each generation count the words of every partition's lines."""
    async with (
        ConsumerGroup(config_of(task), on_event=journal.event) as group,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(close_when_told, group)
        async for generation in group:
            journal.started(generation)
            for partition in generation.assignment:
                generation.start_soon(count_words, generation, partition, task, journal)
        nursery.cancel_scope.cancel()


async def count_words(
    generation: Generation, partition: TopicPartition, task: Task, journal: Journal
) -> None:
    """Count the words of one partition's lines, and commit batch by batch."""
    async for batch in generation.records(partition, max_records=BATCH):
        first, after = batch.messages[0].offset(), batch.next_offset
        journal.received(generation, partition, first, after)
        middle = len(batch) // 2
        for half in batch.messages[:middle], batch.messages[middle:]:
            await trio.sleep(len(half) * task.seconds_per_line)
            for message in half:
                words = words_of(text_of(message.value()))
                journal.processed(generation, partition.partition, message.offset(), words)
        with journal.committing(generation, {partition: after}):
            await commit(generation, partition, after)


async def commit(generation: Generation, partition: TopicPartition, offset: int) -> None:
    """Commit, however long the coordinator is away.

    Sent again, a commit does the same; or it is refused, because its generation has passed.
    """
    while True:
        try:
            return await generation.commit({partition: offset})
        except CommitUnknownError:
            continue


def text_of(value: bytes | str | None) -> str:
    """A record's value as text."""
    return value.decode() if isinstance(value, bytes) else value or ""


async def close_when_told(group: ConsumerGroup) -> None:
    """Close the group at SIGTERM, or when nobody holds the other end of standard input."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(close_at_sigterm, group)
        nursery.start_soon(close_at_end_of_input, group)


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Close the group at SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown("the worker was told to stop")


async def close_at_end_of_input(group: ConsumerGroup) -> None:
    """Close the group when standard input ends; the demo that started the worker is gone then."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
    group.shutdown("the demo is over")


def told() -> Task:
    """The task that the command line has; the log is on standard error."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    return Task(**json.loads(sys.argv[1]))


def hold_lifeline(task: Task) -> None:
    """Let nothing keep this process after the demo, once its group has had the time to close."""
    parent_watch.hold(config_of(task).longest_close + GRACE)


def main() -> None:
    """Do the task that the command line has."""
    task = told()
    hold_lifeline(task)
    with Journal(Path(task.journal)) as journal:
        trio.run(partial(work, task, journal))


if __name__ == "__main__":
    main()
