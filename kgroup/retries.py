"""Attempts to process a record, pauses between them, and what becomes of one that keeps failing.

`retrying` makes a function for single records into one for batches, which ``kgroup.run`` calls. The
order of a partition is kept: while a record is tried again, its partition waits. Heartbeats do not,
so the member stays in the group however long that takes. When the generation ends, a pause ends at
once, and the record is left to the next owner of the partition.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeVar, final

import attrs
import trio

from kgroup.batch_handler import BatchProgress, progress_of
from kgroup.dead_letters import DeadLetters
from kgroup.errors import UsageError
from kgroup.functions import (
    ON_FAILURE,
    ON_RECORD,
    check_async,
    check_park,
    check_result,
    name_of,
)
from kgroup.generation.generation import (
    Generation,
    open_records_of,
    pause_retries,
    sought_since,
    subscription_of,
)
from kgroup.generation.states import State
from kgroup.generation.task_errors import refusing_stray_cancellations
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
from kgroup.worker_thread import unlimited_threads

T = TypeVar("T")

_PLAIN: Final = "kgroup.threaded.retrying takes plain ones"

RecordHandler = Callable[[Generation, Message], Awaitable[object]]
"""Processes a record, or raises."""
Park = Callable[[Message, Exception], Awaitable[object]]
"""Puts a record aside, with the error of the last attempt."""


def retrying(
    handle: RecordHandler,
    *,
    attempts: int = ATTEMPTS,
    backoff: float = BACKOFF,
    backoff_max: float = LONGEST_BACKOFF,
    not_retried: type[Exception] | tuple[type[Exception], ...] = (),
    park: Park | DeadLetters | None = None,
) -> Callable[[Generation, Batch], Awaitable[int | None]]:
    """A function for ``kgroup.run`` and ``kgroup.serve`` that tries each record several times.

    ::

        async def handle(generation, message): ...

        kgroup.run(config, kgroup.retrying(handle, park=kgroup.DeadLetters(producer, "failed")))

    A record for which ``handle`` raises is tried again after a pause. After the last attempt it is
    parked, and then its partition goes on; its offset is committed only when it has been parked.
    Without ``park``, or if that raises, the exception ends the worker. The records of its batch
    that were processed before are committed, unless the program calls the returned function itself.
    Dead letters are written in up to five attempts, with the same pauses, if the failure is one
    that passes, such as a broker that is away. Events report each failed attempt, each parked
    record, and a pause that the end of the generation cuts short: a member that keeps the partition
    goes on with the rest of it, and with the same count. A `StaleGenerationError` and a
    `UsageError` are not retried, nor parked.

    Args:
        handle: called with the generation and a record.
        attempts: the most attempts for a record, 1 or more.
        backoff: the seconds of the first pause; each further pause is twice as long.
        backoff_max: the seconds of the longest pause.
        not_retried: exceptions that would come again, such as those about a record that cannot be
            read: a record for which one of them is raised, or a group with one of them, is parked
            at once.
        park: dead letters, or an async function that is called with the record and the exception.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """
    policy = RetryPolicy.checked(attempts, backoff, backoff_max, not_retried)
    return retrying_with(_Trio(), handle, policy, park)


class Loop(Protocol):
    """What the attempts need of an event loop.

    Attributes:
        package: the package with the groups that run in it.
        kind: the class of their generations.
    """

    package: str
    kind: type

    async def pause(self, generation: Any, batch: Batch, seconds: float) -> None:
        """Wait so long, or until the generation begins to end, or the program seeks.

        The program's own tests may pass any object as the generation.
        """
        ...

    async def in_thread(self, fn: Callable[[], T]) -> T:
        """Call a function in a thread; if the caller is cancelled, the thread is left alone."""
        ...

    def refusing_stray_cancellations(
        self, fn: Callable[..., object]
    ) -> AbstractContextManager[None]:
        """A block that awaits a function, and raises a UsageError for a stray cancellation.

        Left to the worker's task, that error would come too late to say for which record it is, and
        to commit what was processed before.
        """
        ...


@final
class _Trio:
    package = "kgroup"
    kind: type = Generation

    def __init__(self) -> None:
        self._limiter = unlimited_threads()

    async def pause(self, generation: Any, batch: Batch, seconds: float) -> None:
        if isinstance(generation, Generation):
            await pause_retries(generation, batch, seconds)
            return
        with trio.move_on_after(seconds):
            await generation.ending.wait()

    async def in_thread(self, fn: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(fn, abandon_on_cancel=True, limiter=self._limiter)

    def refusing_stray_cancellations(
        self, fn: Callable[..., object]
    ) -> AbstractContextManager[None]:
        return refusing_stray_cancellations(fn)


def retrying_with(
    loop: Loop,
    handle: Callable[[Any, Message], Awaitable[object]],
    policy: RetryPolicy,
    park: Park | DeadLetters | None,
) -> Callable[[Any, Batch], Awaitable[int | None]]:
    """`retrying` on any event loop.

    Raises:
        ArgumentError: an argument has a wrong type or value.
    """
    check_async("handle", handle, ON_RECORD, instead=_PLAIN)
    if park is not None and not isinstance(park, DeadLetters):
        check_park(park)
        check_async("park", park, ON_FAILURE, instead=_PLAIN)

    async def process(generation: Any, batch: Batch) -> int | None:
        check_generation(generation, loop.kind, loop.package)
        progress = progress_of(process, batch)
        if isinstance(park, DeadLetters):
            subscription, addresses = subscription_of(generation)
            if park.unchecked:
                missing = await loop.in_thread(partial(park.missing, subscription))
                if missing is not None:
                    generation.emit(missing)
            with progress.parking(park):
                park.check_unread(subscription, addresses, generation.group_id)
        open_records = open_records_of(generation)
        records = _Records(loop, handle, park, generation, progress, open_records, process)
        progress.begin(open_records.now())
        for message in batch:
            record = RecordAttempts(message, batch.partition, policy)
            done = await records.processed(record)
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


@final
@attrs.frozen
class _Records:
    """Attempts to process records of one generation."""

    loop: Loop
    handle: Callable[[Any, Message], Awaitable[object]]
    park: Park | DeadLetters | None
    generation: Any
    progress: BatchProgress
    open_records: OpenRecords
    function: Callable[..., object]

    async def processed(self, record: RecordAttempts) -> bool:
        """Try a record until it is processed or parked; False if it is left.

        It is left if the generation ends before, or to commit the records before it meanwhile.
        True also if the program seeks in a pause: the record is not to be tried again here.
        """
        generation, policy, opened = self.generation, record.policy, self.open_records
        partition, offset = record.partition, record.message.offset()
        attempt, pause = opened.attempts_at(self.function, partition, offset)
        attempt = min(attempt, policy.attempts - 1)
        over = False
        if pause:
            await self._pause(pause)
            over = generation.end is not None
        while not over:
            if self._sought():
                opened.remove(self.function, partition, offset)
                return True
            attempt += 1
            failure = await self._failure(record)
            if failure is None:
                opened.remove(self.function, partition, offset)
                return True
            if not policy.is_last(attempt, failure):
                opened.add(self.function, partition, offset, attempt, policy.pause(attempt))
                generation.emit(record.failed(attempt, failure))
                due = self.progress.is_due(opened.now() + policy.pause(attempt))
                if due and not self._sought():
                    self.progress.not_resumed = partial(self._not_resumed, record, attempt)
                    return False
                await self._pause(policy.pause(attempt))
                over = generation.end is not None
            elif not (over := generation.state is State.ENDED):
                try:
                    over = not await self._put_aside(record, attempt, failure)
                except Exception:
                    opened.remove(self.function, partition, offset)
                    raise
                if not over:
                    opened.remove(self.function, partition, offset)
                    return True
        generation.emit(record.ended(attempt))
        return False

    def _not_resumed(self, record: RecordAttempts, attempt: int) -> None:
        """The pause of a record does not begin: the generation ends, or the program has sought."""
        if self._sought():
            self.open_records.remove(self.function, record.partition, record.message.offset())
        else:
            self.generation.emit(record.ended(attempt))

    async def _failure(self, record: RecordAttempts) -> Exception | None:
        """Make one attempt; return what the function raised, if another attempt can help."""
        try:
            await self._awaited(self.handle, self.handle(self.generation, record.message))
        except Exception as error:
            if not is_retried(error):
                raise
            return error
        return None

    async def _put_aside(self, record: RecordAttempts, attempts: int, failure: Exception) -> bool:
        """Park a record; False if the generation ends before.

        True also if the program seeks in a pause: it is not to be written again from here.
        """
        park = self.park
        if park is None:
            raise record.explain(attempts, failure)
        topic: str | None = None
        with self.progress.parking(park):
            if isinstance(park, DeadLetters):
                topic = park.topic
                if not await self._written(park, record, attempts, failure):
                    return self.generation.end is None
            else:
                await self._awaited(park, park(record.message, failure))
        self.generation.emit(record.parked(attempts, failure, topic))
        return True

    async def _written(
        self, letters: DeadLetters, record: RecordAttempts, attempts: int, failure: Exception
    ) -> bool:
        """Write a dead letter; False if the generation ends before, or the program seeks."""
        generation, policy = self.generation, record.policy
        letter = letters.letter(record.message, failure, attempts, generation.group_id)
        while (reason := await self.loop.in_thread(letter.send)) is not None:
            generation.emit(record.not_parked(letter.attempts, reason))
            await self._pause(policy.pause(letter.attempts))
            if generation.end is not None or self._sought():
                return False
        return True

    async def _pause(self, seconds: float) -> None:
        await self.loop.pause(self.generation, self.progress.batch, seconds)

    def _sought(self) -> bool:
        return sought_since(self.generation, self.progress.batch) is not None

    async def _awaited(self, fn: Callable[..., object], returned: Awaitable[object]) -> None:
        if not inspect.isawaitable(returned):
            raise UsageError(f"{name_of(fn)} is not an async function; {_PLAIN}")
        with self.loop.refusing_stray_cancellations(fn):
            result = await returned
        check_result(fn, result, "await it in the function")
