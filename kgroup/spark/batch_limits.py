"""How much a batch may hold, and when it is made: the settings of a batch loop.

`Limits` are the user's settings; a `Budget` is what one plan may use; a `RateLimiter` computes a
budget from the limits and the time that has passed, with a token bucket for records and one for
bytes. The caller passes the time.

INVARIANT: an offset counts as a record. A range that was compacted, or that holds transaction
markers, has fewer rows than were counted, never more.
"""

from __future__ import annotations

import math
from typing import Final, final

import attrs

from kgroup import bounds
from kgroup.types import INT32_MAX, INT64_MAX

MAX_IN_FLIGHT: Final = 1000
"""The most batches that may be handed out and not yet run."""
_DEFAULT_BURST: Final = 10.0


_AMOUNT: Final = bounds.optional(bounds.whole(1, INT64_MAX), "None for no limit")
_RATE: Final = bounds.optional(bounds.number(0.001, INT64_MAX), "None for no limit")
_BURST: Final = bounds.seconds()


@final
@attrs.frozen
class Budget:
    """What one plan may use; None is no bound, 0 or less means that nothing is left."""

    records: int | None = None
    bytes: int | None = None

    @property
    def spent(self) -> bool:
        """Whether nothing may be planned."""
        return any(left is not None and left <= 0 for left in (self.records, self.bytes))


@final
@attrs.frozen(kw_only=True)
class Limits:
    """The bounds of one member's batches; None, the default of each, is no bound.

    ``max_records`` is exact: no batch has more rows. Bytes are estimated, because Kafka does not
    report the size of a record before it is read; ``kgroup.spark.size_estimates`` says how far an
    estimate can be wrong. A single record larger than ``max_bytes`` is a batch of its own.

    Attributes:
        max_records: the most records of a batch.
        max_bytes: about the most bytes of a batch's records.
        max_records_per_second: about the most records a second, over several batches.
        max_bytes_per_second: about the most bytes a second, over several batches.

    Raises:
        ConfigError: a limit is not allowed; the text names the field, the value and the bounds.
    """

    max_records: int | None = attrs.field(default=None, validator=_AMOUNT)
    max_bytes: int | None = attrs.field(default=None, validator=_AMOUNT)
    max_records_per_second: float | None = attrs.field(default=None, validator=_RATE)
    max_bytes_per_second: float | None = attrs.field(default=None, validator=_RATE)

    def budget(self) -> Budget:
        """The budget of one batch, without the limits per second."""
        return Budget(self.max_records, self.max_bytes)


@final
@attrs.frozen(kw_only=True)
class BatchPace:
    """When a batch is made.

    Attributes:
        max_wait: seconds for which the first new record may wait for more, so that batches are
            larger; 0 makes a batch as soon as there is a new record.
        poll_interval: seconds between polls of the end offsets when there are no new records.
        in_flight: how many batches may be handed out and not yet run.
        record_bytes: the assumed size of a record where the reader does not count bytes.

    Raises:
        ConfigError: a value is not allowed.
    """

    max_wait: float = attrs.field(default=0.0, validator=bounds.timeout(0))
    poll_interval: float = attrs.field(
        default=0.05, validator=bounds.timeout(suspect=bounds.SUSPECT_WAIT)
    )
    in_flight: int = attrs.field(default=1, validator=bounds.whole(1, MAX_IN_FLIGHT))
    record_bytes: int = attrs.field(default=1024, validator=bounds.whole(1, INT32_MAX))


@final
class _Bucket:
    """A token bucket; its level may become negative when more was used than was estimated."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        # A bucket that never holds one whole token would never allow anything.
        self._most = max(1.0, rate * burst)
        self._tokens = min(self._most, max(1.0, rate))
        self._at = now

    def level(self, now: float) -> float:
        """The tokens at a time; a clock that goes backwards adds none."""
        return min(self._most, self._tokens + max(0.0, now - self._at) * self._rate)

    def take(self, tokens: int, now: float) -> None:
        self._tokens = self.level(now) - tokens
        self._at = max(self._at, now)

    def wait(self, now: float) -> float:
        """Seconds until there is a whole token."""
        return max(0.0, 1.0 - self.level(now)) / self._rate


@final
class RateLimiter:
    """The budget of each plan, computed from the limits and the time since earlier plans.

    It begins with what one second allows. Unused tokens are kept, up to ``burst`` seconds' worth:
    the batch after a long one may use so many. Bytes may be overdrawn, by a wrong estimate or by a
    single record that is larger than what was left; later plans wait until the debt is paid, so
    that the average over time keeps to the limit.

    Args:
        limits: the user's limits.
        now: the time, in seconds of a monotonic clock.
        burst: how many seconds' worth of tokens may be saved up, 10 by default.
    """

    def __init__(self, limits: Limits, now: float, *, burst: float = _DEFAULT_BURST) -> None:
        _BURST.check("burst", burst)
        self._limits = limits
        records, size = limits.max_records_per_second, limits.max_bytes_per_second
        self._records = None if records is None else _Bucket(records, burst, now)
        self._bytes = None if size is None else _Bucket(size, burst, now)

    def budget(self, now: float) -> Budget:
        """What a plan made now may use: the lower of the limit of a batch and the tokens saved."""
        return Budget(
            _least(self._limits.max_records, self._records, now),
            _least(self._limits.max_bytes, self._bytes, now),
        )

    def spend(self, records: int, size: int, now: float) -> None:
        """Take the tokens of a batch.

        Args:
            records: the offsets of the planned batch.
            size: its estimated bytes. The error of an estimate is corrected by a later call with
                no records and the difference, which may be negative.
            now: the time.
        """
        if self._records is not None:
            self._records.take(records, now)
        if self._bytes is not None:
            self._bytes.take(size, now)

    def wait(self, now: float) -> float:
        """Seconds until there is a budget again; 0.0 if there is one now."""
        buckets = [bucket for bucket in (self._records, self._bytes) if bucket is not None]
        return max((bucket.wait(now) for bucket in buckets), default=0.0)


def _least(limit: int | None, bucket: _Bucket | None, now: float) -> int | None:
    if bucket is None:
        return limit
    level = math.floor(bucket.level(now))
    return level if limit is None else min(limit, level)
