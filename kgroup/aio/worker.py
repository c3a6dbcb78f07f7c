"""Workers in few lines, on asyncio: ``kgroup.run`` for functions that use asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from kgroup import arguments
from kgroup.aio.generation import Generation
from kgroup.aio.group import ConsumerGroup
from kgroup.config import GroupConfig
from kgroup.errors import UsageError
from kgroup.events import EventHandler
from kgroup.generation.generation import MAX_RECORDS
from kgroup.interfaces import Batch
from kgroup.runtime import Runtime
from kgroup.types import TopicPartition
from kgroup.worker import (
    check_caller,
    check_no_loop,
    closed_by_signals,
    partition_worker,
    report_end,
    report_failure,
)

BatchHandler = Callable[[Generation, Batch], Awaitable[int | None]]
"""Processes a batch; returns None, or the offset of the first record that is left."""
_CANCELLING: Final = 2
"""The signal that cancels the worker's task."""
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
"""Makes an event loop, such as ``uvloop.new_event_loop``."""


def run(
    config: GroupConfig,
    handle: BatchHandler,
    *,
    max_records: int = MAX_RECORDS,
    commit: bool = True,
    runtime: Runtime | None = None,
    on_event: EventHandler | None = None,
    loop_factory: LoopFactory | None = None,
) -> None:
    """Be a member of a group until SIGTERM or Ctrl-C: a whole worker, on asyncio.

    It ends as ``kgroup.run`` does. Then asyncio waits for threads of ``asyncio.to_thread``, also if
    their callers were cancelled; a second signal kills the process meanwhile.

    Args:
        config: all settings.
        handle: called with the generation and a batch, as `serve` says.
        max_records: the most records of a batch, 1 or more.
        commit: whether batches are committed when they are processed. A program that keeps its
            own offsets (``GroupConfig.starts``) may leave it out; commits then only show other
            tools how far the group is.
        runtime: as for ``ConsumerGroup``.
        on_event: as for ``ConsumerGroup``.
        loop_factory: makes the event loop; by default asyncio does.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        UsageError: the caller is not the main thread, which alone receives signals, or an event
            loop already runs in it.
        FatalGroupError: the member cannot stay in the group.
        SystemExit: there was a second signal.
        Exception: what ``handle`` raised, with a note that names the partition and the offsets; an
            ExceptionGroup, if several calls failed.
    """
    arguments.callback("loop_factory", loop_factory)
    group = ConsumerGroup(config, runtime=runtime, on_event=on_event)
    process = partition_worker(handle, max_records, commit=commit)
    check_caller(config, "`await kgroup.aio.serve(group, handle)`")
    check_no_loop(config)
    received: list[int] = []
    started: list[asyncio.Task[None]] = []

    def cancel() -> None:
        for task in started:
            with suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
                task.get_loop().call_soon_threadsafe(task.cancel)

    def reacts() -> bool:
        # When the task has ended, there is nothing left to cancel; the runner may still wait for
        # threads of the program.
        return not started or not started[0].done()

    failure: BaseException | None = None
    try:
        # Outside the runner, because a SystemExit leaves it while the worker's task still runs: the
        # runner would then handle signals again, and its handler would stay when it has ended.
        with (
            closed_by_signals(group.shutdown, cancel, received, reacts),
            asyncio.Runner(loop_factory=loop_factory) as runner,
        ):
            runner.run(_until_closed(group, process, started))
    except asyncio.CancelledError as error:
        if len(received) < _CANCELLING:
            cancelled = UsageError("the worker's task was cancelled, and not by a signal")
            cancelled.__cause__ = error
            failure = report_failure(config, cancelled)
    except BaseException as error:  # noqa: BLE001 # it is raised
        failure = report_failure(config, error)
    # Raised here, so that the exception keeps its own cause and context, and gets no others.
    if failure is not None:
        raise failure
    report_end(config, received, group.status())


async def serve(
    group: ConsumerGroup,
    handle: BatchHandler,
    *,
    max_records: int = MAX_RECORDS,
    commit: bool = True,
) -> None:
    """Process all batches of a group by a function, until the group is closed.

    It returns when the functions have finished their batches in the group's last drain; leaving
    the group's block then waits until the member has left.

    The function is called with the generation and a batch, in one task for each partition. What it
    returns, and what happens if it raises, is the same as for ``kgroup.serve``.

    Args:
        group: a group that was entered.
        handle: the function.
        max_records: the most records of a batch, 1 or more.
        commit: whether batches are committed when they are processed. A program that keeps its
            own offsets (``GroupConfig.starts``) may leave it out; commits then only show other
            tools how far the group is.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        FatalGroupError, UsageError: as for ``ConsumerGroup.next``.

    Cancellation: ends the function's calls when the group's block is cancelled, too; otherwise they
    continue until their generation ends.
    """
    arguments.group(group, ConsumerGroup)
    await _serve(group, partition_worker(handle, max_records, commit=commit))


_Process = Callable[[Generation, TopicPartition], Awaitable[None]]


async def _serve(group: ConsumerGroup, process: _Process) -> None:
    async for generation in group:
        for partition in generation.assignment:
            generation.start_soon(process, generation, partition)


async def _until_closed(
    group: ConsumerGroup, process: _Process, started: list[asyncio.Task[None]]
) -> None:
    """Run a worker in its group, in a task that ``started`` gets."""
    task = asyncio.current_task()
    assert task is not None  # a runner starts it
    started.append(task)
    async with group:
        await _serve(group, process)
