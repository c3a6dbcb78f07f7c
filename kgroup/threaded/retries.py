"""``kgroup.retrying`` for plain functions in threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import trio

from kgroup.batch_handler import BatchProgress, progress_of
from kgroup.dead_letters import DeadLetters
from kgroup.errors import StaleGenerationError
from kgroup.functions import (
    ON_FAILURE,
    ON_RECORD,
    check_park,
    check_plain,
    check_result,
    name_of,
)
from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.generation.generation import (
    open_records_of,
    pause_retries,
    sought_since,
    subscription_of,
)
from kgroup.generation.states import State
from kgroup.interfaces import Batch, Message
from kgroup.retry_policy import (
    ATTEMPTS,
    BACKOFF,
    LONGEST_BACKOFF,
    OpenRecords,
    RecordAttempts,
    RetryPolicy,
    check_generation,
    is_retried,
)
from kgroup.threaded.generation import Generation, run_in_loop

_ASYNC: Final = "kgroup.retrying and kgroup.aio.retrying take async functions"

RecordHandler = Callable[[Generation, Message], object]
"""Processes a record, or raises."""
Park = Callable[[Message, Exception], object]
"""Puts a record aside, with the error of the last attempt."""


def retrying(
    handle: RecordHandler,
    *,
    attempts: int = ATTEMPTS,
    backoff: float = BACKOFF,
    backoff_max: float = LONGEST_BACKOFF,
    not_retried: type[Exception] | tuple[type[Exception], ...] = (),
    park: Park | DeadLetters | None = None,
) -> Callable[[Generation, Batch], int | None]:
    """A function for ``run`` and ``serve`` that tries each record several times.

    The arguments and the rules are those of ``kgroup.retrying``, with plain functions.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """
    check_plain("handle", handle, ON_RECORD, instead=_ASYNC)
    policy = RetryPolicy.checked(attempts, backoff, backoff_max, not_retried)
    if park is not None and not isinstance(park, DeadLetters):
        check_park(park)
        check_plain("park", park, ON_FAILURE, instead=_ASYNC)

    def process(generation: Generation, batch: Batch) -> int | None:
        check_generation(generation, Generation, "kgroup.threaded")
        progress = progress_of(process, batch)
        if isinstance(park, DeadLetters):
            subscription, addresses = subscription_of(generation)
            if (missing := park.missing(subscription)) is not None:
                _emit(generation, missing)
            with progress.parking(park):
                park.check_unread(subscription, addresses, generation.group_id)
        open_records = open_records_of(generation)
        progress.begin(open_records.now())
        for message in batch:
            record = RecordAttempts(message, batch.partition, policy)
            done = _processed(process, handle, generation, record, park, progress, open_records)
            if (sought := sought_since(generation, batch)) is not None:
                return sought  # a loop of the program's own commits it, as a worker does
            if not done:
                return message.offset()
            progress.next_offset = message.offset() + 1
            if generation.end is not None or progress.is_due(open_records.now()):
                return progress.next_offset
        return None

    process.__qualname__ = name_of(handle)
    return process


def _processed(
    process: Callable[..., object],
    handle: RecordHandler,
    generation: Generation,
    record: RecordAttempts,
    park: Park | DeadLetters | None,
    progress: BatchProgress,
    open_records: OpenRecords,
) -> bool:
    """Try a record until it is processed or parked; False if it is left.

    It is left if the generation ends before, or to commit the records before it meanwhile.
    True also if the program seeks in a pause: the record is not to be tried again here.
    """
    policy, partition, offset = record.policy, record.partition, record.message.offset()
    attempt, pause = open_records.attempts_at(process, partition, offset)
    attempt = min(attempt, policy.attempts - 1)
    over = False
    if pause:
        _pause(generation, progress.batch, pause)
        over = generation.end is not None
    while not over:
        if sought_since(generation, progress.batch) is not None:
            open_records.remove(process, partition, offset)
            return True
        attempt += 1
        failure = _failure(handle, generation, record)
        if failure is None:
            open_records.remove(process, partition, offset)
            return True
        if not policy.is_last(attempt, failure):
            open_records.add(process, partition, offset, attempt, policy.pause(attempt))
            _emit(generation, record.failed(attempt, failure))
            sought = sought_since(generation, progress.batch) is not None
            if progress.is_due(open_records.now() + policy.pause(attempt)) and not sought:
                progress.not_resumed = partial(
                    _not_resumed, process, generation, record, attempt, progress, open_records
                )
                return False
            _pause(generation, progress.batch, policy.pause(attempt))
            over = generation.end is not None
        # The thread may have outlasted its generation, and the record have another owner.
        elif not (over := generation.state is State.ENDED):
            try:
                over = not _put_aside(park, generation, record, attempt, failure, progress)
            except Exception:
                open_records.remove(process, partition, offset)
                raise
            if not over:
                open_records.remove(process, partition, offset)
                return True
    _emit(generation, record.ended(attempt))
    return False


def _not_resumed(
    process: Callable[..., object],
    generation: Generation,
    record: RecordAttempts,
    attempt: int,
    progress: BatchProgress,
    open_records: OpenRecords,
) -> None:
    """The pause of a record does not begin: the generation ends, or the program has sought."""
    if sought_since(generation, progress.batch) is not None:
        open_records.remove(process, record.partition, record.message.offset())
        return
    with suppress(StaleGenerationError):  # the group may have been closed
        _emit(generation, record.ended(attempt))


def _failure(
    handle: RecordHandler, generation: Generation, record: RecordAttempts
) -> Exception | None:
    """Make one attempt; return what the function raised, if another attempt can help."""
    try:
        check_result(handle, handle(generation, record.message), _ASYNC)
    except Exception as error:
        if not is_retried(error):
            raise
        return error
    return None


def _put_aside(
    park: Park | DeadLetters | None,
    generation: Generation,
    record: RecordAttempts,
    attempts: int,
    failure: Exception,
    progress: BatchProgress,
) -> bool:
    """Park a record; False if the generation ends before.

    True also if the program seeks in a pause: it is not to be written again from here.
    """
    if park is None:
        raise record.explain(attempts, failure)
    topic: str | None = None
    with progress.parking(park):
        if isinstance(park, DeadLetters):
            topic = park.topic
            if not _written(park, generation, record, attempts, failure, progress.batch):
                return generation.end is None
        else:
            check_result(park, park(record.message, failure), _ASYNC)
    _emit(generation, record.parked(attempts, failure, topic))
    return True


def _written(
    letters: DeadLetters,
    generation: Generation,
    record: RecordAttempts,
    attempts: int,
    failure: Exception,
    batch: Batch,
) -> bool:
    """Write a dead letter; False if the generation ends before, or the program seeks."""
    policy = record.policy
    letter = letters.letter(record.message, failure, attempts, generation.group_id)
    while (reason := letter.send()) is not None:
        _emit(generation, record.not_parked(letter.attempts, reason))
        _pause(generation, batch, policy.pause(letter.attempts))
        if generation.end is not None or sought_since(generation, batch) is not None:
            return False
    return True


def _pause(generation: Generation, batch: Batch, seconds: float) -> None:
    run_in_loop(generation, lambda in_loop: pause_retries(in_loop, batch, seconds))


def _emit(generation: Generation, event: Callable[..., Any]) -> None:
    async def emit(in_loop: TrioGeneration) -> None:
        await trio.lowlevel.checkpoint()
        in_loop.emit(event)

    run_in_loop(generation, emit)
