"""What a worker's function says about a batch: by its result, or by its exception.

``kgroup.run`` and ``kgroup.threaded.run`` call the program's function for each batch, and decide by
this module what is committed and what is left to process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import attrs

from kgroup.errors import KgroupError, UsageError
from kgroup.interfaces import Batch
from kgroup.types import TopicPartition, as_int


def name_of(handle: Callable[..., object]) -> str:
    """The name of a function, for errors and for the end of the generation that it causes."""
    return getattr(handle, "__qualname__", None) or repr(handle)


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
            f"{name_of(handle)} returned {returned!r} for {_described(batch)}: it must return None"
            " when it has processed all of them, or the offset of the first record that is left,"
            f" from {least} to {batch.next_offset}"
        )
    count = bisect_left(batch.messages, offset, key=lambda message: message.offset() or 0)
    return attrs.evolve(batch, messages=batch.messages[:count], next_offset=offset)


@final
class FailedRecords:
    """Which record a function for batches could not process, for each error that it raised.

    A function that has one as its attribute ``failed_records`` has processed all records of the
    batch before that one, so these are committed before the error ends the worker. The error
    itself stays as it was raised.
    """

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, tuple[Exception, int]] = {}

    def add(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """Note that this error was raised for the record at this offset."""
        self._offsets[partition] = error, offset

    def offset(self, partition: TopicPartition, error: Exception) -> int | None:
        """The offset of the record that caused the error, or None if that is not known."""
        found = self._offsets.get(partition)
        return found[1] if found is not None and found[0] is error else None


def processed_before(handle: Callable[..., object], batch: Batch, error: Exception) -> Batch | None:
    """The part of a batch that a function had processed when it raised; None for nothing."""
    failed = getattr(handle, "failed_records", None)
    offset = failed.offset(batch.partition, error) if failed is not None else None
    if offset is None or offset <= (batch.messages[0].offset() or 0):
        return None
    return processed(handle, batch, offset, ending=True)


def left_of(batch: Batch, done: Batch) -> Batch | None:
    """The part of a batch that is left after another one; None for nothing."""
    left = batch.messages[len(done.messages) :]
    if not left:
        return None
    return attrs.evolve(batch, messages=left, start_offset=done.next_offset)


@contextmanager
def explained(handle: Callable[..., object], membership: Any, batch: Batch) -> Iterator[None]:
    """A block that calls the function: its exception gets a note that says for which records.

    Args:
        handle: the function.
        membership: an object with the group's id and the generation's, such as a generation.
        batch: the batch.
    """
    try:
        yield
    except Exception as error:
        done = processed_before(handle, batch, error)
        left = batch if done is None else left_of(batch, done)
        error.add_note(
            f"{name_of(handle)} raised this for {_described(left or batch)}, in generation"
            f" {membership.generation_id} of group {membership.group_id!r}; the offsets are not"
            " committed, so the records will be read again"
        )
        raise


@contextmanager
def noted(error: Exception) -> Iterator[None]:
    """A block that commits what was processed before an error; a refusal becomes a note of it."""
    try:
        yield
    except KgroupError as refused:
        error.add_note(f"the records before it were not committed either: {refused}")


def _described(batch: Batch) -> str:
    first, last = batch.messages[0].offset(), batch.messages[-1].offset()
    return (
        f"offset {first} of {batch.partition}"
        if first == last
        else (f"offsets {first} to {last} of {batch.partition}")
    )
