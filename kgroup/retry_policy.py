"""How often a record is tried, how long the pauses are, and what its failures are called.

``kgroup.retries`` has the attempts on trio, and ``kgroup.threaded.retries`` in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from kgroup import arguments, bounds
from kgroup.errors import ArgumentError, StaleGenerationError, UsageError
from kgroup.events import RecordFailed, RecordParked, RetriesEnded
from kgroup.interfaces import Message

NEVER_RETRIED: Final = (StaleGenerationError, UsageError)
"""The generation has ended, or the program has to change: another attempt would not help."""
ATTEMPTS: Final = 5
BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 30.0


@final
@attrs.frozen
class RetryPolicy:
    """How often a record is tried, and how long the pauses are.

    Attributes:
        attempts: the most attempts, the first one included.
        backoff: the seconds of the first pause; each further pause is twice as long.
        backoff_max: the seconds of the longest pause.
    """

    attempts: int
    backoff: float
    backoff_max: float

    @classmethod
    def checked(cls, attempts: object, backoff: object, backoff_max: object) -> RetryPolicy:
        """Make one of a program's arguments.

        Raises:
            ArgumentError: one has a wrong type or value.
        """
        bound = bounds.seconds(0.0)
        for name, value in (("backoff", backoff), ("backoff_max", backoff_max)):
            bound.check(name, value, ArgumentError)
        numbers: Any = (backoff, backoff_max)
        return cls(arguments.whole("attempts", attempts, 1), *map(float, numbers))

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
            reason=reason_of(error),
            max_attempts=self.policy.attempts,
            pause=self.policy.pause(attempt),
        )

    def parked(self, error: Exception) -> Callable[..., RecordParked]:
        """The record was parked."""
        return self._event(RecordParked, self.policy.attempts, reason=reason_of(error))

    def ended(self, attempt: int) -> Callable[..., RetriesEnded]:
        """The generation ends before the next attempt."""
        return self._event(RetriesEnded, attempt)

    def explain(self, error: Exception) -> Exception:
        """The last attempt's error, with a note, where the record cannot be parked."""
        attempts = self.policy.attempts
        error.add_note(
            f"record {self.message.offset()} of {self.partition} failed {attempts} times; with"
            " `park=` the partition would go on without it"
        )
        return error

    def _event(self, kind: Callable[..., Any], attempts: int, **fields: Any) -> Callable[..., Any]:
        offset = self.message.offset()

        def make(**subject: Any) -> Any:
            return kind(
                partition=self.partition, offset=offset, attempts=attempts, **fields, **subject
            )

        return make


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
