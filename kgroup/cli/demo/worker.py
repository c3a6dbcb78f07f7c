"""A worker of the demo: a member of the group that counts the words of the lines it reads.

It uses kgroup as any program does. Two things are there for the demo only: the journal, to which
the worker writes what it does, and the sleep, which stands for the time that real work takes.

Run as ``python -m kgroup.cli.demo.worker TASK``, where TASK is a `Task` in JSON. It exits when it
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

from kgroup.batch_handler import commit_until_answered
from kgroup.cli.demo.journal import Journal
from kgroup.cli.demo.processes import exit_after_parent
from kgroup.cli.demo.text import words_of
from kgroup.cli.options import security_of
from kgroup.config import GroupConfig
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.types import TopicPartition

BATCH: Final = 200
"""The most lines of one commit."""
GRACE: Final = 5.0
"""Seconds that the process may take to exit beyond the longest close of its group."""


@final
@attrs.frozen(kw_only=True)
class Task:
    """The arguments of a worker process.

    Attributes:
        name: the worker's name, also its client id.
        bootstrap_servers: the cluster.
        topic: the topic to read.
        group_id: the group to join.
        session_timeout: the group's session timeout, in seconds.
        drain_timeout: the group's drain timeout, in seconds.
        seconds_per_line: how long the worker sleeps for each line.
        journal: the path of its journal.
        config_file: the path of the connections' properties; None for none.
        events_to: the file of its events; None for none.
    """

    name: str
    bootstrap_servers: str
    topic: str
    group_id: str
    session_timeout: float
    drain_timeout: float
    seconds_per_line: float
    journal: str
    config_file: str | None = None
    events_to: str | None = None


def config_of(task: Task) -> GroupConfig:
    """The group settings of a worker."""
    return GroupConfig(
        bootstrap_servers=task.bootstrap_servers,
        group_id=task.group_id,
        topics=[task.topic],
        client_id=task.name,
        session_timeout=task.session_timeout,
        rebalance_timeout=task.drain_timeout + 5.0,
        drain_timeout=task.drain_timeout,
        partition_watch_interval=1.0,
        security=security_of(task.config_file),
        events_to=task.events_to,
    )


async def work(task: Task, journal: Journal) -> None:
    """Join the group, and in each generation count the words of each partition's lines."""
    # The group's block is the inner one, so that signals are received until the member has left.
    async with trio.open_nursery() as nursery:
        async with ConsumerGroup(config_of(task), on_event=journal.event) as group:
            nursery.start_soon(close_on_request, group)
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
        pauses = {0: middle, middle: len(batch) - middle}
        for number, message in enumerate(batch):
            if lines := pauses.get(number):
                await trio.sleep(lines * task.seconds_per_line)
            words = words_of(text_of(message.value()))
            journal.processed(generation, partition.partition, message.offset(), words)
        with journal.committing(generation, {partition: after}):
            await commit_until_answered(partial(generation.commit, {partition: after}))


def text_of(value: bytes | str | None) -> str:
    """A record's value as text."""
    return value.decode() if isinstance(value, bytes) else value or ""


async def close_on_request(group: ConsumerGroup) -> None:
    """Close the group at SIGTERM, or when the demo has closed standard input."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(close_at_sigterm, group)
        nursery.start_soon(close_at_end_of_input, group)


async def close_at_sigterm(group: ConsumerGroup) -> None:
    """Close the group at SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown("the worker got SIGTERM")


async def close_at_end_of_input(group: ConsumerGroup) -> None:
    """Close the group at the end of standard input: the demo that started the worker has ended."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
    group.shutdown("the demo has ended")


def task_from_arguments() -> Task:
    """Read the task from the command line, and send the log to standard error."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    return Task(**json.loads(sys.argv[1]))


def watch_parent(task: Task) -> None:
    """End this process after the demo has ended, once its group has had the time to close."""
    exit_after_parent(config_of(task).longest_close + GRACE)


def main() -> None:
    """Run the task that the command line gives."""
    task = task_from_arguments()
    watch_parent(task)
    with Journal(Path(task.journal)) as journal:
        trio.run(partial(work, task, journal))


if __name__ == "__main__":
    main()
