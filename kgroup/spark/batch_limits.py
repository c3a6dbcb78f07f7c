"""How much a batch may hold: limits of one batch, and of each second.

A `Limits` is what the user asks for; a `Budget` is what one plan may use; a `RateLimiter` makes
the one from the other and from the time that has passed, by a bucket of tokens for records and
one for bytes. Times are given, never looked up.

Invariant: an offset is counted as a record. A range that was compacted, or that holds the ends of
transactions, gives fewer rows than were counted, never more.
"""

from __future__ import annotations

import math
from typing import Final, final

import attrs

from kgroup import bounds
from kgroup.types import INT64_MAX

_LONGEST_BURST: Final = 10.0


_AMOUNT: Final = bounds.optional(bounds.whole(1, INT64_MAX), "None for no limit")
_RATE: Final = bounds.optional(bounds.number(0.001, INT64_MAX), "None for no limit")
_BURST: Final = bounds.seconds()


@final
@attrs.frozen
class Budget:
    """What one plan may use; None where nothing bounds it, 0 or less where nothing is left."""

    records: int | None = None
    bytes: int | None = None

    @property
    def spent(self) -> bool:
        """Whether nothing may be planned."""
        return any(left is not None and left <= 0 for left in (self.records, self.bytes))


@final
@attrs.frozen(kw_only=True)
class Limits:
    """What bounds the batches of one member; None, the default of each, is no bound.

    What is guaranteed: no batch has more than ``max_records`` rows. What is estimated: bytes,
    since Kafka tells the size of no record before it is read (see ``kgroup.spark.size_estimates``
    for
    how far an estimate can be wrong). A single record larger than ``max_bytes`` is a batch.

    Attributes:
        max_records: the most records of a batch.
        max_bytes: about the most bytes of a batch's records.
        max_records_per_second: about the most records a second, over several batches.
        max_bytes_per_second: about the most bytes a second, over several batches.

    Raises:
        ConfigError: a limit that is not allowed; it names the field, the value and the bounds.
    """

    max_records: int | None = attrs.field(default=None, validator=_AMOUNT)
    max_bytes: int | None = attrs.field(default=None, validator=_AMOUNT)
    max_records_per_second: float | None = attrs.field(default=None, validator=_RATE)
    max_bytes_per_second: float | None = attrs.field(default=None, validator=_RATE)

    def budget(self) -> Budget:
        """What one batch may hold, whatever the second."""
        return Budget(self.max_records, self.max_bytes)


@final
class _Bucket:
    """Tokens that come at a rate and are taken in batches; one may be left owing some."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        # A bucket that never held one whole token would never allow anything.
        self._most = max(1.0, rate * burst)
        self._tokens = min(self._most, max(1.0, rate))
        self._at = now

    def level(self, now: float) -> float:
        """Tokens at a time; a clock that went back fills nothing."""
        return min(self._most, self._tokens + max(0.0, now - self._at) * self._rate)

    def take(self, tokens: int, now: float) -> None:
        self._tokens = self.level(now) - tokens
        self._at = max(self._at, now)

    def wait(self, now: float) -> float:
        """Seconds until there is a whole token."""
        return max(0.0, 1.0 - self.level(now)) / self._rate


@final
class RateLimiter:
    """The budget of each plan, from limits and the time since the plans before it.

    It begins with what one second allows. What is not used is kept, up to ``burst`` seconds of
    it: a batch that ran for longer is followed by one of ``burst`` seconds' worth. Bytes may be
    overdrawn, by a wrong estimate or by a single record that is larger than what was left; the
    debt is waited for, so that the average over time keeps to the limit.

    Args:
        limits: what the user asks for.
        now: the time, in seconds of any clock that does not go back.
        burst: how many seconds' worth may be saved up, 10 by default.
    """

    def __init__(self, limits: Limits, now: float, *, burst: float = _LONGEST_BURST) -> None:
        _BURST.check("burst", burst)
        self._limits = limits
        records, size = limits.max_records_per_second, limits.max_bytes_per_second
        self._records = None if records is None else _Bucket(records, burst, now)
        self._bytes = None if size is None else _Bucket(size, burst, now)

    def budget(self, now: float) -> Budget:
        """What a plan made now may use: the lesser of a batch's limit and of what is saved up."""
        return Budget(
            _least(self._limits.max_records, self._records, now),
            _least(self._limits.max_bytes, self._bytes, now),
        )

    def spend(self, records: int, size: int, now: float) -> None:
        """Take what a batch holds.

        Args:
            records: offsets, when the batch is planned.
            size: bytes, as estimated when it is planned; what was estimated too little, or too
                much (negative), can be told later, with no records.
            now: the time.
        """
        if self._records is not None:
            self._records.take(records, now)
        if self._bytes is not None:
            self._bytes.take(size, now)

    def wait(self, now: float) -> float:
        """Seconds until a budget is not spent; 0.0 if it is not now."""
        buckets = [bucket for bucket in (self._records, self._bytes) if bucket is not None]
        return max((bucket.wait(now) for bucket in buckets), default=0.0)


def _least(limit: int | None, bucket: _Bucket | None, now: float) -> int | None:
    if bucket is None:
        return limit
    level = math.floor(bucket.level(now))
    return level if limit is None else min(limit, level)
