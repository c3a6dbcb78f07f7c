"""Workers in few lines: a function that processes a batch, called for every batch of a group.

`run` is a whole program: it joins the group, calls the function, commits what it has processed, and
closes the group at SIGTERM and Ctrl-C. `serve` is the part of it that a program with an event loop,
a test or a simulation can call. ``kgroup.threaded.run`` is the same for plain functions.

There is one task for each partition, so the records of a partition are processed one after the
other. A batch is committed when its function has returned; a function that raises commits nothing.
A function that has to end in the middle of a batch, because the generation does, returns the offset
that follows the last record it has processed. So what is committed is always what was processed.
"""

from __future__ import annotations

import inspect
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import trio

from kgroup import arguments
from kgroup.batch_handler import (
    BatchProgress,
    committing_sought,
    explained,
    is_committed,
    not_committed,
    processed,
    reading,
)
from kgroup.config import GroupConfig
from kgroup.errors import (
    UsageError,
    count_of,
    in_one_line,
)
from kgroup.events import EventHandler
from kgroup.functions import ON_BATCH, check_async, check_result, is_program_error, name_of
from kgroup.generation.generation import MAX_RECORDS, Generation, own_commits_of, sought_since
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.logs import LOG
from kgroup.running_loop import running_library
from kgroup.runtime import Runtime
from kgroup.status import GroupStatus
from kgroup.types import TopicPartition
from kgroup.worker_thread import post_to

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""The signals that close a worker's group. The first lets it finish its work; a second does not."""
Handlers = Mapping[signal.Signals, Any]
"""What signals do, as ``signal.getsignal`` says."""
SAME_WISH: Final = 0.3
"""Seconds after a signal in which another one adds nothing. A person takes longer to ask again."""
_PLAIN: Final = "pass it to kgroup.threaded.run, which calls plain functions in threads"
_SERVE: Final = "`await kgroup.serve(group, handle)`"
_KILLED: Final = 128
"""Shells add this to the number of the signal that ended a process, for its exit status."""
_REPEATED: Final = "records that it has processed and not committed will be read again"

BatchHandler = Callable[[Generation, Batch], Awaitable[int | None]]
"""Processes a batch; returns None, or the offset of the first record that is left."""


def run(
    config: GroupConfig,
    handle: BatchHandler,
    *,
    max_records: int = MAX_RECORDS,
    commit: bool = True,
    runtime: Runtime | None = None,
    on_event: EventHandler | None = None,
) -> None:
    """Be a member of a group until SIGTERM or Ctrl-C: a whole worker, on trio.

    It returns after a signal: the handlers have finished and committed their batches, and the
    member has left, so that the others continue at once; a static member stays in the group. That
    takes at most ``GroupConfig.longest_close``. One line on standard error says which signal it
    was. At a second signal the handlers are cancelled, and the process exits with 128 plus the
    number of the signal. Exceptions end the process with exit status 1, unless the program catches
    them.

    Args:
        config: all settings.
        handle: called with the generation and a batch, as `serve` says.
        max_records: the most records of a batch, 1 or more.
        commit: whether batches are committed when they are processed. A program that keeps its
            own offsets (``GroupConfig.starts``) may leave it out; commits then only show other
            tools how far the group is.
        runtime: as for ``ConsumerGroup``.
        on_event: as for ``ConsumerGroup``.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        UsageError: the caller is not the main thread, which alone receives signals, or an event
            loop already runs in it.
        FatalGroupError: the member cannot stay in the group.
        SystemExit: there was a second signal.
        Exception: what ``handle`` raised, with a note that names the partition and the offsets; an
            ExceptionGroup, if several calls failed.
    """
    group = ConsumerGroup(config, runtime=runtime, on_event=on_event)
    worker = partial(_serve, group, partition_worker(handle, max_records, commit=commit))
    check_caller(config, _SERVE)
    check_no_loop(config)
    received: Sequence[int] = ()
    failure: BaseException | None = None
    try:
        received = trio.run(_until_signal, group, worker, handlers())
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

    The function is called with the generation and a batch, in one task for each partition::

        async with ConsumerGroup(config) as group:
            await kgroup.serve(group, handle)

    When it returns None, ``batch.next_offset`` is committed. When it returns an offset, that one is
    committed, and while the generation runs, the function is called again with the records from
    there on. So a function whose batches take long can end in time::

        async def handle(generation, batch):
            for message in batch:
                await process(message)
                if generation.ending.is_set():
                    return message.offset() + 1

    An exception of the function, or of its commit, closes the group: the other tasks finish their
    batches, and leaving the group's block raises it.

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


_Process = Callable[[Any, TopicPartition], Awaitable[None]]


async def _serve(group: ConsumerGroup, process: _Process) -> None:
    async for generation in group:
        for partition in generation.assignment:
            generation.start_soon(process, generation, partition)


def partition_worker(
    handle: Callable[[Any, Batch], Awaitable[int | None]], max_records: int, *, commit: bool
) -> _Process:
    """A task that processes one partition of a generation by a function, and commits each batch.

    It is the same on trio and on asyncio: it waits only for the generation and for the function.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """
    check_async("handle", handle, ON_BATCH, instead=_PLAIN)
    limit = arguments.whole("max_records", max_records, 1)
    arguments.instance("commit", commit, bool)

    async def process_batch(generation: Any, batch: Batch) -> None:
        left: Batch | None = batch
        while left is not None and sought_since(generation, left) is None:
            progress = BatchProgress(handle, left, resumes=commit)
            try:
                with explained(progress, generation, partial(own_commits_of, generation)):
                    returned = await _called(handle, generation, left)
                    if sought_since(generation, left) is not None:
                        break
                    done = processed(handle, left, returned, ending=generation.end is not None)
            except BaseException as error:
                part = progress.done() if commit and is_program_error(error) else None
                if part is not None and sought_since(generation, part) is None:
                    await _commit_before(error, generation, part)
                raise
            if len(done) and commit:
                with progress.committing(done, generation):
                    await _commit(generation, done)
            goes_on = generation.end is None and sought_since(generation, left) is None
            left = progress.rest(done, goes_on=goes_on)
        if commit:
            await _commit_sought(handle, generation, batch)

    async def process(generation: Any, partition: TopicPartition) -> None:
        records = generation.records(partition, max_records=limit)
        with reading(handle, partition, generation):
            async for batch in records:
                with records.processing(batch):
                    await process_batch(generation, batch)

    process.__qualname__ = name_of(handle)  # the name in the end that it causes
    return process


async def _commit(generation: Any, done: Batch) -> None:
    """Commit what was processed, however long no answer comes, until the generation has ended.

    Once the program seeks, only the offset that it has sought may be committed.
    """
    while sought_since(generation, done) is None:
        if await is_committed(partial(generation.commit, {done.partition: done.next_offset})):
            return


async def _commit_sought(handle: Callable[..., object], generation: Any, batch: Batch) -> None:
    """Commit where the program has sought last, if it has: the next owner continues there, too."""
    committed: int | None = None
    while (sought := sought_since(generation, batch)) is not None and sought != committed:
        with committing_sought(handle, batch.partition, sought, generation):
            if await is_committed(partial(generation.commit, {batch.partition: sought})):
                committed = sought


async def _commit_before(failure: BaseException, generation: Any, done: Batch) -> None:
    """Commit what was processed before a failure, which is raised whatever comes of this."""
    try:
        await generation.commit({done.partition: done.next_offset})
    except BaseException as error:  # noqa: BLE001 # also a cancellation: the failure counts more
        not_committed(failure, done, error)


async def _called(
    handle: Callable[[Any, Batch], Awaitable[int | None]], generation: Any, batch: Batch
) -> int | None:
    returned = handle(generation, batch)
    if not inspect.isawaitable(returned):
        raise UsageError(f"{name_of(handle)} is not an async function; {_PLAIN}")
    result = await returned
    check_result(handle, result, "await it in the function")
    return result


async def _until_signal(
    group: ConsumerGroup, worker: Callable[[], Awaitable[None]], outside: Handlers
) -> list[int]:
    """Run a worker in its group, and close that at a signal; the signals that were received."""
    received: list[int] = []
    reacted = threading.Event()
    token = trio.lowlevel.current_trio_token()

    def shutdown(name: str) -> None:
        def in_loop() -> None:
            reacted.set()
            group.shutdown(name)

        post_to(token, in_loop)

    with trio.CancelScope() as scope:

        def cancel() -> None:
            post_to(token, scope.cancel)

        with closed_by_signals(shutdown, cancel, received, reacted.is_set, outside=outside):
            async with group:
                await worker()
    return received


def handlers() -> Handlers:
    """What those signals do now."""
    return {number: signal.getsignal(number) for number in SIGNALS}


@contextmanager
def closed_by_signals(
    shutdown: Callable[[str], object],
    cancel: Callable[[], object],
    received: list[int],
    reacted: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
    *,
    outside: Handlers | None = None,
) -> Iterator[None]:
    """A block in which signals close a group.

    The first signal closes it, and the second ends its handlers. A handler that blocks the event
    loop, or that does not end when it is cancelled, would make the process deaf to signals. So
    the third one, or the second one if nothing has reacted to the first, has its usual effect: it
    kills the process. A signal that comes within `SAME_WISH` seconds of the one before is no other
    wish: ``timeout`` of the shell, for one, sends it to the process and again to its process group.

    An ignored SIGINT stays ignored, as in other Python programs: that is how a shell starts the
    background jobs of a script, and Ctrl-C is not for them. SIGTERM is taken in any case: where it
    has no effect a SIGKILL follows, at which no member leaves.

    A process that the program forks within the block inherits the handlers, and has no group. There
    a signal does what it did before the worker began.

    Args:
        shutdown: called at the first signal, with its name; it must not wait.
        cancel: called at the second one; it must not wait.
        received: gets the numbers of the signals, without those that repeat a wish.
        reacted: whether the call of ``shutdown`` has had its effect.
        clock: the time in seconds.
        outside: the handlers from before the worker began, if an event loop has replaced some.
    """
    last = -math.inf
    worker = os.getpid()

    def close(number: int, _: object) -> None:
        nonlocal last
        if os.getpid() != worker:
            handler = (outside or before)[signal.Signals(number)]
            signal.signal(number, handler or signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        earlier, last = last, clock()
        if last - earlier < SAME_WISH:
            return
        received.append(number)
        if len(received) == 1:
            shutdown(signal.Signals(number).name)
        elif len(received) == 2 and reacted():  # as the docstring counts
            cancel()
        else:
            signal.signal(number, signal.SIG_DFL)
            name = signal.Signals(number).name
            text = f"kgroup: the worker is killed by another {name}: a function blocks it\n"
            with suppress(OSError):  # its reader may have ended
                if select.select([], [2], [], 0)[1]:  # a write into a full pipe would wait
                    os.write(2, text.encode())  # a buffered stream may be in use right now
            os.kill(os.getpid(), number)

    before = handlers()
    taken = [one for one in SIGNALS if one is signal.SIGTERM or before[one] is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, close)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number] or signal.SIG_DFL)  # None: it was set in C


def check_caller(config: GroupConfig, instead: str) -> None:
    """Check that the calling thread receives signals.

    Raises:
        UsageError: it does not.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"group {config.group_id!r}: run() closes the group at SIGTERM and Ctrl-C, which Python"
            f" handles in the main thread only; call it there, or use {instead} here"
        )


def check_no_loop(config: GroupConfig) -> None:
    """Check that no event loop runs in this thread yet.

    Raises:
        UsageError: one does.
    """
    if (library := running_library()) is not None:
        package = "kgroup" if library == "trio" else "kgroup.aio"
        raise UsageError(
            f"group {config.group_id!r}: run() starts an event loop, and {library} already runs in"
            f" this thread; use `await {package}.serve(group, handle)` there, with a group of"
            f" {package}.ConsumerGroup"
        )


def report(config: GroupConfig, reason: str) -> None:
    """Say in one line on standard error why a worker ends."""
    # Whoever reads it may have gone, and the program still ends for its own reason.
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"kgroup: the worker of group {config.group_id!r} {reason}\n")


def report_end(config: GroupConfig, received: Sequence[int], status: GroupStatus) -> None:
    """Report the end of a worker that did not fail.

    Args:
        config: the group's.
        received: the signals.
        status: the group's, at the end.

    Raises:
        SystemExit: there was a second signal.
    """
    names = [signal.Signals(number).name for number in received]
    if len(names) > 1:
        report(config, f"was stopped at once by a second signal, {names[1]}: {_REPEATED}")
        raise SystemExit(_KILLED + received[1])
    left, waits = "left", ""
    if config.group_instance_id is not None:
        left = "stays in the group as a static member"
    elif status.leave_unconfirmed:
        left = "ended"
        waits = (
            "; the coordinator has not confirmed that it leaves, so its partitions may wait for up"
            f" to {config.session_timeout:g} s (session_timeout)"
        )
    if status.lost:
        done = f"{left}, but had lost its partitions before that; {_REPEATED}"
    elif status.cut_short:
        seconds = f"{config.drain_timeout:g} s (drain_timeout)"
        done = f"{left}, although functions still ran after {seconds}; {_REPEATED}"
    else:
        done = f"has finished its work and {left}"
    report(config, f"{done}{waits}: {names[0] if names else 'it was closed'}")


def report_failure(config: GroupConfig, error: BaseException) -> BaseException:
    """Report the failure of a worker, and return it without the groups that kgroup has put it in.

    A group with a note is what a function has raised, and remains. If a function has called
    ``sys.exit()``, that is returned, and what others have raised is logged.
    """
    found = list(_exceptions(error))
    # If a function wants the process to end, its exit status counts.
    found.sort(key=lambda one: not isinstance(one, (SystemExit, KeyboardInterrupt)))
    more = f", and {count_of(len(found) - 1, 'more error')}" if len(found) > 1 else ""
    report(config, f"failed: {in_one_line(found[0])}{more}")
    if isinstance(found[0], (SystemExit, KeyboardInterrupt)):
        for one in found[1:]:  # Python would not show them
            LOG.error(
                "group %s: %s beside %s",
                config.group_id,
                in_one_line(one),
                in_one_line(found[0]),
                exc_info=one,
            )
        return found[0]
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        if getattr(error, "__notes__", None):
            break
        error = error.exceptions[0]
    return error


def _exceptions(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _exceptions(one)
    else:
        yield error
