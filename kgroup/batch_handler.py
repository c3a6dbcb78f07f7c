"""What a worker's function says about a batch: by its result, or by its exception.

``kgroup.run`` and ``kgroup.threaded.run`` call the program's function for each batch, and decide by
this module what is committed and what is left to process.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, final

import attrs

from kgroup.client.error_policy import is_coordinator_away
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    FatalGroupError,
    NotSentError,
    OffsetBehindCommitError,
    UsageError,
    in_one_line,
    short_repr,
)
from kgroup.functions import is_program_error, name_of
from kgroup.interfaces import Batch
from kgroup.tracebacks import described, explain
from kgroup.types import TopicPartition, as_int

COMMIT_INTERVAL: Final = 5.0
"""Seconds after which a worker commits what ``retrying`` has processed of a batch that goes on.

Kafka's consumer commits by itself as often (``auto.commit.interval.ms``).
"""
_READ_AGAIN: Final = "the offsets are not committed, so the records will be read again"


def processed(
    handle: Callable[..., object], batch: Batch, returned: object, *, ending: bool
) -> Batch:
    """The part of a batch that a function has processed; its ``next_offset`` can be committed.

    Args:
        handle: the function, for the error.
        batch: the batch.
        returned: what the function returned.
        ending: whether the generation has begun to end, so that the rest need not be processed.

    Raises:
        UsageError: it returned something else than None and the offsets from the batch's first
            record to its ``next_offset``; or the first one, so that it would be called with the
            same records again and again.
    """
    if returned is None:
        return batch
    first, offset = batch.messages[0].offset(), as_int(returned)
    assert first is not None  # records that were read have offsets
    least = first if ending else first + 1
    if type(offset) is not int or not least <= offset <= batch.next_offset:
        raise UsageError(
            f"{name_of(handle)} returned {short_repr(returned)} for {described(batch)}: it must"
            " return None when it has processed all of them, or the offset of the first record that"
            f" is left, from {least} to {batch.next_offset}"
        )
    count = bisect_left(batch.messages, offset, key=lambda message: message.offset() or 0)
    return attrs.evolve(batch, messages=batch.messages[:count], next_offset=offset)


def left_of(batch: Batch, done: Batch) -> Batch | None:
    """The part of a batch that is left after another one; None for nothing."""
    left = batch.messages[len(done.messages) :]
    if not left:
        return None
    return attrs.evolve(batch, messages=left, start_offset=done.next_offset)


@final
class BatchProgress:
    """How far a call of a worker's function is with its batch.

    Only ``retrying`` reports it. What it has processed can be committed even if it raises: it has
    finished each record before the next one. Of any other function this is not known; one that
    calls ``retrying`` may still hold records that it writes at the end. ``traced`` holds none, so
    it lets the function that it calls report in its place.

    Attributes:
        handle: the function.
        batch: the batch.
        reporter: the function that may report.
        raises: the name of what runs now, for the note of its exception: ``handle``, or what parks.
        next_offset: the offset after the last record that was processed; None if there is none.
        not_resumed: reports that the record for which the function has returned, before a pause, is
            not tried again here; None if it has returned for another reason.

    Args:
        handle: the function.
        batch: the batch.
        resumes: whether the caller commits an offset that the function returns while the generation
            runs, and calls it again with the rest of the batch.
    """

    def __init__(
        self, handle: Callable[..., object], batch: Batch, *, resumes: bool = False
    ) -> None:
        self.handle: Final = handle
        self.batch: Final = batch
        self.reporter = handle
        self.raises = name_of(handle)
        self.next_offset: int | None = None
        self.not_resumed: Callable[[], object] | None = None
        self._resumes = resumes
        self._due = math.inf

    def begin(self, now: float) -> None:
        """The function begins, at this time of the member's clock."""
        if self._resumes:
            self._due = now + COMMIT_INTERVAL

    def is_due(self, now: float) -> bool:
        """Whether the function returns, so that what it has processed is committed by this time.

        After the last record it need not: the whole batch is committed then.
        """
        if self.next_offset is None or now < self._due:
            return False
        return self.next_offset <= self.batch.messages[-1].offset()

    @contextmanager
    def committing(self, done: Batch, membership: Any) -> Iterator[None]:
        """A block that commits what the function has processed.

        A program that processes each record at most once commits it first: if that record is tried
        again, what came before it is committed already.

        Args:
            done: the part of the batch that was processed.
            membership: as for `explained`.
        """
        behind_others = self.next_offset is not None and len(done) < len(self.batch)
        try:
            with committing(self.handle, described(done), membership):
                yield
        except Exception as error:
            if not (behind_others and isinstance(error, OffsetBehindCommitError)):
                self._left()
                raise

    def rest(self, done: Batch, *, goes_on: bool) -> Batch | None:
        """What the function is called with next; None for nothing."""
        if goes_on:
            return left_of(self.batch, done)
        self._left()
        return None

    def _left(self) -> None:
        if self.not_resumed is not None:
            self.not_resumed()

    @contextmanager
    def parking(self, park: Any) -> Iterator[None]:
        """A block in which a record is parked: what that raises is no fault of the function's."""
        before, self.raises = self.raises, name_of(park)
        yield  # an exception leaves it as it is, for the note
        self.raises = before

    def done(self) -> Batch | None:
        """The part of the batch that was processed; None if there is none."""
        if self.next_offset is None:
            return None
        return processed(self.handle, self.batch, self.next_offset, ending=True)


_progress: Final[ContextVar[BatchProgress | None]] = ContextVar("kgroup_progress", default=None)


def progress_of(handle: Callable[..., object], batch: Batch) -> BatchProgress:
    """The progress of the worker's call that runs now, for the function that it calls to report.

    If another function may report it, nothing comes of what is reported.
    """
    current = _progress.get()
    if current is not None and current.reporter is handle and current.batch is batch:
        return current
    return BatchProgress(handle, batch)


def not_committed(error: BaseException, done: Batch, refusal: BaseException) -> None:
    """Note that what was processed before an error could not be committed.

    It is no loss if the program itself has committed further.
    """
    if isinstance(refusal, OffsetBehindCommitError):
        return
    error.add_note(
        f"{described(done)} had been processed before, and will be read again too, because the"
        f" commit failed: {in_one_line(refusal)}"
    )


@contextmanager
def explained(
    progress: BatchProgress, membership: Any, own_commits: Callable[[Batch], str] = lambda batch: ""
) -> Iterator[None]:
    """A block that calls the function: its exception gets a note that says for which records.

    Within the block, the function can report its progress.

    Args:
        progress: that of the call.
        membership: an object with the group's id and the generation's, such as a generation.
        own_commits: says what the function itself has committed of a batch; empty for nothing.
    """
    before = _progress.set(progress)
    try:
        yield
    except BaseException as error:
        if not is_program_error(error):
            raise
        batch, done = progress.batch, progress.done()
        failed = batch if done is None else left_of(batch, done) or batch
        if isinstance(error, CommitUnknownError):
            consequence = "the commit may have been applied; if not, the records will be read again"
        else:
            consequence = own_commits(failed) or _READ_AGAIN
        explain(
            error,
            f"{progress.raises} raised this for {described(failed)}, in generation"
            f" {membership.generation_id} of group {membership.group_id!r}; {consequence}",
            records=f"for {described(failed)}",
        )
        if isinstance(error, AttributeError) and error.obj is batch:
            error.add_note(
                f"{progress.raises} is called with a batch, over which it can iterate; one for"
                " single records is passed as retrying(handle)"
            )
        raise
    finally:
        _progress.reset(before)


@contextmanager
def reading(
    handle: Callable[..., object], partition: TopicPartition | None, membership: Any
) -> Iterator[None]:
    """A block that reads for the function: the note on its exception does not blame the function.

    Exceptions of the function and of its commits have their own notes already.

    Args:
        handle: the function, which is called within the block.
        partition: what is read; None for all partitions of the generation.
        membership: as for `explained`.
    """
    what = f"reading {partition or 'records'}"
    with _not_by(handle, what, membership, "the records that it has not read stay for the next"):
        yield


@contextmanager
def committing(handle: Callable[..., object], what: str, membership: Any) -> Iterator[None]:
    """A block that commits what the function has processed; likewise."""
    consequence = "what was processed may be read again"
    with _not_by(handle, f"committing {what}", membership, consequence):
        yield


@contextmanager
def committing_sought(
    handle: Callable[..., object], partition: TopicPartition, offset: int, membership: Any
) -> Iterator[None]:
    """A block that commits where the program has sought; it may have sought once more by then."""
    with (
        committing(handle, f"offset {offset} of {partition}", membership),
        suppress(OffsetBehindCommitError),
    ):
        yield


async def commit_until_answered(commit: Callable[[], Awaitable[None]]) -> None:
    """Commit what was processed, however long no answer comes, until its generation has ended.

    Args:
        commit: sends one commit of a generation, always the same.

    Raises:
        StaleGenerationError, CommitFailedError, CommitUnknownError: as ``Generation.commit``, if
            the same commit cannot be made again.
    """
    while not await is_committed(commit):
        pass


async def is_committed(commit: Callable[[], Awaitable[None]]) -> bool:
    """Commit; False if no answer came, and the commit can be made again.

    Of a topic that was deleted there is nothing to commit.
    """
    try:
        await commit()
    except (CommitUnknownError, CommitFailedError) as error:
        return nothing_is_left_after(error)
    return True


def nothing_is_left_after(error: CommitUnknownError | CommitFailedError) -> bool:
    """Whether there is nothing to commit after this error; False if it can be committed again.

    Raises:
        CommitUnknownError | CommitFailedError: the error, if there is, and it cannot.
    """
    if is_topic_deleted(error):
        return True
    if not can_commit_again(error):
        raise error
    return False  # the event has reported it


def can_commit_again(error: CommitUnknownError | CommitFailedError) -> bool:
    """Whether a commit failed only because the coordinator was not reached, or is not ready.

    It may have been away, moving or loading for all the time that there was for the commit.

    Once its generation has ended, no commit is sent again; nor if the coordinator may not even be
    looked up.
    """
    if isinstance(error, CommitUnknownError):
        return error.end is None and not isinstance(error.__cause__, FatalGroupError)
    return all(
        isinstance(one, NotSentError) or is_coordinator_away(one.code)
        for one in error.partitions.values()
    )


def is_topic_deleted(error: CommitUnknownError | CommitFailedError) -> bool:
    """Whether a commit failed only because the coordinator knows no such topic or partition.

    The commit has been sent again until the topic counted as deleted. A worker goes on with its
    other topics: an event has reported the commit, and the partition watcher ends the generation.
    """
    return isinstance(error, CommitFailedError) and all(
        one.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in error.partitions.values()
    )


@contextmanager
def _not_by(
    handle: Callable[..., object], what: str, membership: Any, consequence: str
) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        explain(
            error,
            f"{what} raised this, and not {name_of(handle)}, in generation"
            f" {membership.generation_id} of group {membership.group_id!r}; {consequence}",
            origin=what,
        )
        raise
