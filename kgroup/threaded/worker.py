"""Workers in few lines, for plain functions: ``kgroup.run`` with threads.

Each partition has a thread of its own, or a number of threads share all partitions. Such a pool
keeps the order of each partition. Its threads take turns to take the next batch of any partition.
While a thread processes a batch, the record source hands out no other one of that partition, so
that a slow partition fills neither the memory nor the pool. The source fetches ahead meanwhile.

INVARIANTS: at most one thread processes a partition; no record that was fetched waits for a thread
while one is idle, unless its partition is being processed, or the program has paused it; a batch
leaves the record source only for a thread that processes it at once, so that seeks, pauses and the
end of the generation hold for every record that is not being processed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, final

import trio

from kgroup import arguments
from kgroup.batch_handler import (
    BatchProgress,
    committing_sought,
    explained,
    not_committed,
    nothing_is_left_after,
    processed,
    reading,
)
from kgroup.config import GroupConfig
from kgroup.errors import CommitFailedError, CommitUnknownError
from kgroup.events import EventHandler
from kgroup.functions import ON_BATCH, check_plain, check_result, is_program_error, name_of
from kgroup.generation.generation import MAX_RECORDS, own_commits_of, sought_since
from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.interfaces import Batch
from kgroup.runtime import Runtime
from kgroup.threaded.generation import Generation, run_in_loop
from kgroup.threaded.group import ConsumerGroup
from kgroup.types import TopicPartition
from kgroup.worker import check_caller, closed_by_signals, report_end, report_failure

_ASYNC: Final = (
    "pass async functions to kgroup.run or kgroup.aio.run; this one takes plain functions, and what"
    " kgroup.threaded.retrying returns"
)

BatchHandler = Callable[[Generation, Batch], int | None]
"""Processes a batch; returns None, or the offset of the first record that is left."""
_Work = Callable[[Generation], None]
"""Starts the threads of a generation."""


def run(
    config: GroupConfig,
    handle: BatchHandler,
    *,
    threads: int | None = None,
    max_records: int = MAX_RECORDS,
    commit: bool = True,
    runtime: Runtime | None = None,
    on_event: EventHandler | None = None,
) -> None:
    """Be a member of a group until SIGTERM or Ctrl-C: a whole worker, with threads.

    It ends as ``kgroup.run`` does. At a second signal, it does not wait for the handlers, which
    cannot be cancelled.

    Args:
        config: all settings.
        handle: called with the generation and a batch, in a thread, as `serve` says.
        threads: as for `serve`.
        max_records: the most records of a batch, 1 or more.
        commit: whether batches are committed when they are processed. A program that keeps its
            own offsets (``GroupConfig.starts``) may leave it out; commits then only show other
            tools how far the group is.
        runtime: as for ``ConsumerGroup``.
        on_event: as for ``ConsumerGroup``.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        UsageError: the caller is not the main thread, which alone receives signals.
        FatalGroupError: the member cannot stay in the group.
        SystemExit: there was a second signal.
        Exception: what ``handle`` raised, with a note that names the partition and the offsets; an
            ExceptionGroup, if several calls failed.
    """
    group = ConsumerGroup(config, runtime=runtime, on_event=on_event)
    work = _work(handle, threads, max_records, commit=commit)
    check_caller(config, "`kgroup.threaded.serve(group, handle)`")
    received: list[int] = []
    failure: BaseException | None = None
    try:
        with closed_by_signals(group.shutdown, group.cancel, received), group:
            _start(group, work)
    except BaseException as error:  # noqa: BLE001 # it is raised
        failure = report_failure(config, error)
    # Raised here, so that the exception keeps its own cause and context, and gets no others.
    if failure is not None:
        raise failure
    report_end(config, received, group.status())


def serve(
    group: ConsumerGroup,
    handle: BatchHandler,
    *,
    threads: int | None = None,
    max_records: int = MAX_RECORDS,
    commit: bool = True,
) -> None:
    """Process all batches of a group by a function, until the group is closed.

    It returns when the functions have finished their batches in the group's last drain; leaving
    the group's block then waits until the member has left.

    The function is called with the generation and a batch. What it returns, and what happens if it
    raises, is the same as for ``kgroup.serve``. At most one thread processes a partition at any
    time, so the records of a partition are processed in their order.

    Args:
        group: a group that was entered.
        handle: the function.
        threads: the number of threads that share all partitions; None for one thread for each
            partition.
        max_records: the most records of a batch, 1 or more.
        commit: whether batches are committed when they are processed. A program that keeps its
            own offsets (``GroupConfig.starts``) may leave it out; commits then only show other
            tools how far the group is.

    Raises:
        ArgumentError: an argument has a wrong type or value.
        FatalGroupError, UsageError: as for ``ConsumerGroup.next``.
    """
    arguments.group(group, ConsumerGroup)
    _start(group, _work(handle, threads, max_records, commit=commit))


def _work(handle: BatchHandler, threads: int | None, max_records: int, *, commit: bool) -> _Work:
    check_plain("handle", handle, ON_BATCH, instead=_ASYNC)
    number = None if threads is None else arguments.whole("threads", threads, 1)
    limit = arguments.whole("max_records", max_records, 1)
    process = partial(_process, handle, commit=arguments.instance("commit", commit, bool))

    def process_all(generation: Generation, partition: TopicPartition) -> None:
        with generation.scope():
            records = generation.records(partition, max_records=limit)
            with reading(handle, partition, generation):
                for batch in records:
                    with records.processing(batch):
                        process(generation, batch)

    def start_threads(generation: Generation) -> None:
        partitions = generation.assignment
        if number is None:
            for partition in partitions:
                generation.start(process_all, generation, partition)
        elif partitions:
            pool = _Pool(process, handle, generation, limit)
            for _ in range(min(number, len(partitions))):
                generation.start(pool.threads_function())

    process_all.__qualname__ = name_of(
        handle
    )  # the name of the thread, and in the generation's end
    return start_threads


def _start(group: ConsumerGroup, work: _Work) -> None:
    for generation in group:
        work(generation)


def _process(handle: BatchHandler, generation: Generation, batch: Batch, *, commit: bool) -> None:
    """Process a batch, and commit it; if the function leaves a part, that is next."""
    left: Batch | None = batch
    while left is not None and sought_since(generation, left) is None:
        progress = BatchProgress(handle, left, resumes=commit)
        try:
            with explained(progress, generation, partial(own_commits_of, generation)):
                returned: object = handle(generation, left)
                check_result(handle, returned, _ASYNC)
                if sought_since(generation, left) is not None:
                    break
                done = processed(handle, left, returned, ending=generation.end is not None)
        except BaseException as error:
            part = progress.done() if commit and is_program_error(error) else None
            if part is not None and sought_since(generation, part) is None:
                _commit_before(error, generation, part)
            raise
        if len(done) and commit:
            with progress.committing(done, generation):
                _commit(generation, done)
        goes_on = generation.end is None and sought_since(generation, left) is None
        left = progress.rest(done, goes_on=goes_on)
    if commit:
        _commit_sought(handle, generation, batch)


def _commit(generation: Generation, done: Batch) -> None:
    """As in kgroup.worker."""
    while sought_since(generation, done) is None:
        if _is_committed(generation, done, done.next_offset, None):
            return


def _commit_sought(handle: BatchHandler, generation: Generation, batch: Batch) -> None:
    """As in kgroup.worker."""
    committed: int | None = None
    while (sought := sought_since(generation, batch)) is not None and sought != committed:
        with committing_sought(handle, batch.partition, sought, generation):
            if _is_committed(generation, batch, sought, sought):
                committed = sought


def _is_committed(generation: Generation, batch: Batch, offset: int, sought: int | None) -> bool:
    """Commit; False if the program has sought elsewhere, or the commit can be made again.

    Of a topic that was deleted there is nothing to commit.
    """

    async def commit(in_loop: TrioGeneration) -> bool:
        # Here no other thread seeks between this check and the commit.
        if sought_since(in_loop, batch) != sought:
            await trio.lowlevel.checkpoint()
            return False
        await in_loop.commit({batch.partition: offset})
        return True

    try:
        return run_in_loop(generation, commit)
    except (CommitUnknownError, CommitFailedError) as error:
        return nothing_is_left_after(error)


def _commit_before(failure: BaseException, generation: Generation, done: Batch) -> None:
    """Commit what was processed before a failure, which is raised whatever comes of this."""
    try:
        generation.commit({done.partition: done.next_offset})
    except Exception as error:  # noqa: BLE001 # the failure counts more
        not_committed(failure, done, error)


@final
class _Pool:
    """The threads that share the partitions of one generation.

    Args:
        process: processes and commits a batch by the program's function.
        handle: the function, whose name the threads have.
        generation: the generation.
        limit: the most records of a batch.
    """

    def __init__(
        self,
        process: Callable[[Generation, Batch], None],
        handle: BatchHandler,
        generation: Generation,
        limit: int,
    ) -> None:
        self._process = process
        self._handle = handle
        self._generation = generation
        self._batches = generation.records(max_records=limit)
        self._batches.share_in_turn()
        self._turn = threading.Lock()

    def threads_function(self) -> Callable[[], None]:
        """What each of the threads runs: it processes batches until the generation ends."""

        def process() -> None:
            with self._generation.scope(), reading(self._handle, None, self._generation):
                while (batch := self._next()) is not None:
                    with self._batches.processing(batch):
                        self._process(self._generation, batch)

        process.__qualname__ = name_of(self._handle)
        return process

    def _next(self) -> Batch | None:
        """A batch of a partition that no thread processes; None at the generation's end."""
        with self._turn:
            return self._batches.next()
