"""What a worker's function says about a batch by its result, or by its exception."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kgroup.batch_handler import (
    BatchProgress,
    can_commit_again,
    explained,
    is_topic_deleted,
    left_of,
    processed,
)
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    NotSentError,
    UsageError,
)
from kgroup.interfaces import Batch
from kgroup.types import TopicPartition


def batch_of(*offsets: int, next_offset: int | None = None) -> Batch:
    """A batch of records with these offsets."""
    messages: Any = [SimpleNamespace(offset=_giving(offset)) for offset in offsets]
    return Batch(
        partition=TopicPartition("orders", 3),
        messages=messages,
        next_offset=offsets[-1] + 1 if next_offset is None else next_offset,
        epoch=1,
    )


def _giving(offset: int) -> Callable[[], int]:
    return lambda: offset


def offsets_of(batch: Batch | None) -> list[int | None]:
    """The offsets of a batch's records."""
    return [] if batch is None else [message.offset() for message in batch.messages]


def handle(_: object, __: object) -> None:
    """The program's function."""


@pytest.mark.parametrize(
    ("returned", "done", "left"),
    [
        (None, [4, 5, 9], []),
        (5, [4], [5, 9]),
        (6, [4, 5], [9]),
        (9, [4, 5], [9]),
        (10, [4, 5, 9], []),
        (12, [4, 5, 9], []),
    ],
)
def test_what_was_processed_and_what_is_left(
    returned: int | None, done: list[int], left: list[int]
) -> None:
    """An offset splits the batch before its record; what is committed is exactly that offset."""
    batch = batch_of(4, 5, 9, next_offset=12)
    found = processed(handle, batch, returned, ending=False)
    assert offsets_of(found) == done
    rest = left_of(batch, found)
    assert offsets_of(rest) == left
    assert found.start_offset == batch.start_offset == 4
    assert rest is None or rest.start_offset == found.next_offset
    assert found.next_offset == (12 if returned is None else returned)


def test_nothing_was_processed() -> None:
    """A function may give up a batch that it has not begun when the generation ends, not before."""
    batch = batch_of(4, 5)
    assert offsets_of(processed(handle, batch, 4, ending=True)) == []
    with pytest.raises(
        UsageError, match=r"handle returned 4 for offsets 4 to 5 of orders-3.*5 to 6"
    ):
        processed(handle, batch, 4, ending=False)


@pytest.mark.parametrize("returned", [3, 7, -1, True, "5", 5.0, object()])
def test_other_results_are_refused(returned: object) -> None:
    """A result that is neither None nor an offset of the batch is an error, and nothing is lost."""
    with pytest.raises(UsageError, match="must return None"):
        processed(handle, batch_of(4, 5), returned, ending=True)


def test_an_exception_says_for_which_records() -> None:
    """Its note has the function, the partition, the offsets and the generation."""
    generation = SimpleNamespace(generation_id=7, group_id="g")
    with (
        pytest.raises(ZeroDivisionError) as raised,
        explained(BatchProgress(handle, batch_of(4)), generation),
    ):
        raise ZeroDivisionError
    (note,) = raised.value.__notes__
    assert note.startswith(
        "handle raised this for offset 4 of orders-3, in generation 7 of group 'g'"
    )


def test_a_commit_that_may_have_been_applied() -> None:
    """The note on the error of the function's own commit does not say that it was not."""
    generation = SimpleNamespace(generation_id=7, group_id="g")
    with (
        pytest.raises(CommitUnknownError) as raised,
        explained(BatchProgress(handle, batch_of(4)), generation),
    ):
        raise CommitUnknownError("no answer")
    (note,) = raised.value.__notes__
    assert note.endswith("the commit may have been applied; if not, the records will be read again")


NOT_SENT = NotSentError(TopicPartition("t", 0))


@pytest.mark.parametrize(
    ("errors", "again"),
    [
        ([NOT_SENT], True),
        ([NOT_SENT, broker_error(Request.COMMIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)], False),
        ([NOT_SENT, broker_error(Request.COMMIT, ErrorCode.NOT_COORDINATOR)], True),
        ([broker_error(Request.COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)], True),
        ([broker_error(Request.COMMIT, ErrorCode.COORDINATOR_NOT_AVAILABLE)], True),
        ([broker_error(Request.COMMIT, ErrorCode.REQUEST_TIMED_OUT)], True),
        ([broker_error(Request.COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], False),
        ([broker_error(Request.COMMIT, NOT_SENT.code)], False),  # a broker has answered it
    ],
)
def test_what_a_worker_commits_again(errors: list[BrokerError], again: bool) -> None:
    """Only what did not reach the coordinator, or found it not ready, is committed again."""
    refused = {TopicPartition("t", number): error for number, error in enumerate(errors)}
    assert can_commit_again(CommitFailedError("refused", refused)) is again


def test_a_worker_commits_again_after_what_a_commit_is_retried_for() -> None:
    """These are all the answers of a coordinator that is away, in the error policy too."""

    def commits_again(code: ErrorCode) -> bool:
        refused = {TopicPartition("t", 0): broker_error(Request.COMMIT, code)}
        return can_commit_again(CommitFailedError("refused", refused))

    assert {code for code in ErrorCode if code and commits_again(code)} == {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }


@pytest.mark.parametrize(
    ("codes", "deleted"),
    [
        ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2, True),
        ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED], False),
    ],
)
def test_commits_of_a_deleted_topic(codes: list[ErrorCode], deleted: bool) -> None:
    """Only what is unknown to the coordinator and nothing else counts as one."""
    refused = {
        TopicPartition("t", number): broker_error(Request.COMMIT, code)
        for number, code in enumerate(codes)
    }
    assert is_topic_deleted(CommitFailedError("refused", refused)) is deleted
    assert not is_topic_deleted(CommitUnknownError("no answer"))


def test_an_unanswered_commit_is_repeated_unless_the_coordinator_is_out_of_bounds() -> None:
    """If the coordinator may not be looked up, repeating would go on for ever."""
    unknown = CommitUnknownError("no answer")
    assert can_commit_again(unknown)
    unknown.__cause__ = broker_error(Request.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert not can_commit_again(unknown)


def test_a_function_for_records_that_is_called_with_a_batch() -> None:
    """A note says what it should be passed to."""
    progress = BatchProgress(handle, batch_of(4))
    message: Any = progress.batch
    with (
        pytest.raises(AttributeError) as raised,
        explained(progress, SimpleNamespace(generation_id=7, group_id="g")),
    ):
        message.value()
    assert "is passed as retrying(handle)" in raised.value.__notes__[1]
