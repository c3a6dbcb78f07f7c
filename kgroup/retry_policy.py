"""How often a record is tried, how long the pauses are, and what its failures are called.

``kgroup.retries`` has the attempts on trio, and ``kgroup.threaded.retries`` in threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, final

import attrs

from kgroup import arguments, bounds
from kgroup.errors import (
    ArgumentError,
    StaleGenerationError,
    UsageError,
    any_text,
    count_of,
    in_one_line,
)
from kgroup.events import ParkingFailed, RecordFailed, RecordParked, RetriesEnded
from kgroup.interfaces import Message
from kgroup.running_loop import called_library
from kgroup.types import TopicPartition

ATTEMPTS: Final = 5
BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 30.0
DELIVERIES: Final = 5
"""The most attempts to write a record to a topic of dead letters."""
_MOST_FUNCTIONS: Final = 8
"""Of so many functions a partition keeps the count: a program may make a new one for each batch."""


def is_retried(error: Exception) -> bool:
    """Whether another attempt, or parking the record, can help.

    It does not if the program has to change, nor if the generation has ended. A function that runs
    tasks in a nursery raises such an error in a group.
    """
    if called_library(error) is not None:
        return False
    if not isinstance(error, ExceptionGroup):
        return not isinstance(error, StaleGenerationError | UsageError)
    rest = error.split(StaleGenerationError)[1]
    return rest is not None and rest.subgroup(UsageError) is None


def check_generation(generation: object, kind: type, package: str) -> None:
    """Check that the worker that calls a function of ``retrying`` is of the same package.

    Args:
        generation: what the worker passed; the program's own tests may pass anything.
        kind: the class of the package's generations.
        package: its name.

    Raises:
        UsageError: it is another package's.
    """
    ours = type(generation).__module__.startswith("kgroup.")
    if ours and not isinstance(generation, kind):
        raise UsageError(
            f"what {package}.retrying returned was passed to another package's run or serve; pass"
            f" it to {package}.run, or call the retrying of that package"
        )


@final
@attrs.frozen
class RetryPolicy:
    """How often a record is tried, and how long the pauses are.

    Attributes:
        attempts: the most attempts, the first one included.
        backoff: the seconds of the first pause; each further pause is twice as long.
        backoff_max: the seconds of the longest pause.
        not_retried: the exceptions after which there is no other attempt.
    """

    attempts: int
    backoff: float
    backoff_max: float
    not_retried: tuple[type[Exception], ...]

    @classmethod
    def checked(
        cls, attempts: object, backoff: object, backoff_max: object, not_retried: object
    ) -> RetryPolicy:
        """Make one of a program's arguments.

        Raises:
            ArgumentError: one has a wrong type or value.
        """
        bound = bounds.timeout(0.0, bounds.SUSPECT_WAIT)
        for name, value in (("backoff", backoff), ("backoff_max", backoff_max)):
            bound.check(name, value, ArgumentError)
        numbers: Any = (backoff, backoff_max)
        kinds: Any = not_retried if isinstance(not_retried, tuple) else (not_retried,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise ArgumentError(
                "not_retried", not_retried, "it must be a class of exceptions, or a tuple of them"
            )
        first, longest = map(float, numbers)
        return cls(arguments.whole("attempts", attempts, 1), first, longest, kinds)

    def is_last(self, attempt: int, error: Exception) -> bool:
        """Whether no other attempt follows one that has failed, counted from 1."""
        if attempt >= self.attempts:
            return True
        if isinstance(error, ExceptionGroup):
            return error.subgroup(self.not_retried) is not None
        return isinstance(error, self.not_retried)

    def pause(self, attempt: int) -> float:
        """The seconds between an attempt that failed, counted from 1, and the next one."""
        # The exponent is limited, because a float would overflow.
        return min(self.backoff * 2.0 ** min(attempt - 1, 60), self.backoff_max)


@final
@attrs.frozen
class RecordAttempts:
    """The events about one record, as arguments of ``Generation.emit``.

    Attributes:
        message: the record.
        partition: its partition.
        policy: how often it is tried.
    """

    message: Message
    partition: Any
    policy: RetryPolicy

    def failed(self, attempt: int, error: Exception) -> Callable[..., RecordFailed]:
        """An attempt failed that was not the last one."""
        return self._event(
            RecordFailed,
            attempt,
            reason=in_one_line(error),
            error=error,
            max_attempts=self.policy.attempts,
            pause=self.policy.pause(attempt),
        )

    def parked(
        self, attempts: int, error: Exception, topic: str | None
    ) -> Callable[..., RecordParked]:
        """The record was parked in a topic, or by a function of the program."""
        return self._event(
            RecordParked,
            attempts,
            reason=in_one_line(error),
            error=error,
            topic=topic,
        )

    def not_parked(self, attempt: int, reason: str) -> Callable[..., ParkingFailed]:
        """An attempt to write the record to the topic of dead letters failed, not the last one."""
        return self._event(
            ParkingFailed,
            attempt,
            reason=reason,
            max_attempts=DELIVERIES,
            pause=self.policy.pause(attempt),
        )

    def ended(self, attempt: int) -> Callable[..., RetriesEnded]:
        """The generation ends before the next attempt."""
        return self._event(RetriesEnded, attempt)

    def explain(self, attempts: int, error: Exception) -> Exception:
        """The last attempt's error, with a note, where the record cannot be parked."""
        error.add_note(
            f"the record at {self.partition} offset {self.message.offset()} failed"
            f" {count_of(attempts, 'time')}; with `park=` the partition would go on without it"
        )
        if isinstance(error, AttributeError | TypeError) and "Message' object" in any_text(error):
            error.add_note(
                "a function that is passed to retrying is called with single records; one for"
                " batches is passed to run or serve itself"
            )
        return error

    def _event(self, kind: Callable[..., Any], attempts: int, **fields: Any) -> Callable[..., Any]:
        offset = self.message.offset()

        def make(**subject: Any) -> Any:
            return kind(
                partition=self.partition, offset=offset, attempts=attempts, **fields, **subject
            )

        return make


@final
@attrs.frozen
class OpenRecord:
    """A record that has failed, and is to be tried again.

    Attributes:
        offset: its offset.
        attempts: how many attempts were made.
        due: when the next one may begin.
    """

    offset: int
    attempts: int
    due: float


@final
class OpenRecords:
    """The records of one generation that are to be tried again.

    A generation begins with those of the one before whose partitions the member has kept. So a
    rebalance neither shortens a pause nor begins to count again: in a group whose rebalances are
    closer together than the pauses are long, a record would otherwise never have its last attempt.

    Any thread may call it, also one that has outlasted its generation; what is about seeks belongs
    to the event loop. Of each function that ``retrying`` has returned, a partition has one call at
    a time, and one such record.

    Args:
        now: the clock of the member, in seconds.
        before: those that `of_kept` has returned for the generation before.
    """

    def __init__(
        self,
        now: Callable[[], float] = monotonic,
        before: Mapping[tuple[object, TopicPartition], OpenRecord] | None = None,
    ) -> None:
        self.now: Final = now
        self._records = dict(before or {})
        """By the function and the partition."""
        self._pauses: list[tuple[TopicPartition, Callable[[], object]]] = []
        """The pauses that last now: the partition, and what ends the pause."""

    @contextmanager
    def ended_by_seeks(
        self, partition: TopicPartition, end: Callable[[], object]
    ) -> Iterator[None]:
        """A block in which a pause lasts that a seek in its partition ends; in the event loop."""
        pause = (partition, end)
        self._pauses.append(pause)
        try:
            yield
        finally:
            self._pauses.remove(pause)

    def sought(self, partition: TopicPartition) -> None:
        """End the pauses of a partition in which the program has sought; in the event loop."""
        for paused, end in self._pauses:
            if paused == partition:
                end()

    def of_kept(
        self, kept: Collection[TopicPartition]
    ) -> dict[tuple[object, TopicPartition], OpenRecord]:
        """Those of the partitions that the member has kept."""
        counts = Counter[TopicPartition]()
        found: dict[tuple[object, TopicPartition], OpenRecord] = {}
        for (function, partition), record in reversed(list(self._records.items())):
            counts[partition] += 1
            if partition in kept and counts[partition] <= _MOST_FUNCTIONS:
                found[function, partition] = record
        return dict(reversed(found.items()))

    def add(
        self, function: object, partition: TopicPartition, offset: int, attempts: int, pause: float
    ) -> None:
        """An attempt has failed, and the next one follows after a pause of so many seconds."""
        self._records[function, partition] = OpenRecord(offset, attempts, self.now() + pause)

    def remove(self, function: object, partition: TopicPartition, offset: int) -> None:
        """The record at this offset is done; if it is an earlier one, nothing changes."""
        found = self._records.get((function, partition)) if self._records else None
        if found is not None and found.offset <= offset:
            self._records.pop((function, partition), None)

    def attempts_at(
        self, function: object, partition: TopicPartition, offset: int
    ) -> tuple[int, float]:
        """How many attempts were made for a record, and the seconds to wait before the next one."""
        found = self._records.get((function, partition)) if self._records else None
        if found is None or found.offset != offset:
            return 0, 0.0
        return found.attempts, max(0.0, found.due - self.now())
