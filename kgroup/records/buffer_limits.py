"""How much is fetched and not handed out, and when fetching has to stop.

Counters only rise and each has one writer, so that a fetcher's thread and the event loop's can
share a ledger without a lock: the fetcher counts what it handed over, the queues what left
them. ``stopped`` is a handshake: only the fetcher sets it, and then does nothing until the
queues clear it by ``Fetcher.go``.

The bounds: librdkafka keeps half of what may be buffered in its own queue, where a record costs
least: a Python object that waits is gone through by the garbage collector and falls out of the
processor's cache. Fetching stops at a quarter here (``FULL``), and goes on when the half of that
is gone. When a partition
starves while others fill the ledger, those that hold more than their equal part of ``FULL`` are
held back and fetching goes on; since the rest hold less than ``FULL`` together, at most twice
``FULL`` is ever here, and with librdkafka's half that is all of it. Each of them can be overshot
by one hand-over.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, final

LIBRDKAFKA_PART: Final = Fraction(1, 2)
"""What librdkafka's own queue may hold of the buffer."""
FULL: Final = Fraction(1, 4)
"""What the queues hold when fetching stops."""
RESUME: Final = Fraction(1, 2)
"""Fetching goes on when no more than this part of ``FULL`` is left."""
RELEASE: Final = Fraction(1, 4)
"""A held partition is released when it has no more than this part of its share."""


@final
class BufferLimits:
    """Counts records and bytes on their way from a fetcher to ``receive``."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._full_records = max(1, int(max_records * FULL))
        self._full_bytes = max(1, int(max_bytes * FULL))
        self._low_records = int(self._full_records * RESUME)
        self._low_bytes = int(self._full_bytes * RESUME)
        self.stopped = False
        self._in_records = self._in_bytes = 0
        self._out_records = self._out_bytes = 0

    def handed_over(self, records: int, size: int) -> None:
        """The fetcher: count what it is about to hand over."""
        self._in_records += records
        self._in_bytes += size

    def gone(self, records: int, size: int) -> None:
        """The queues: count what was handed out or dropped."""
        self._out_records += records
        self._out_bytes += size

    @property
    def records(self) -> int:
        """Records on their way."""
        return self._in_records - self._out_records

    @property
    def bytes(self) -> int:
        """Bytes on their way."""
        return self._in_bytes - self._out_bytes

    def is_full(self) -> bool:
        """Whether fetching has to stop."""
        return self.records >= self._full_records or self.bytes >= self._full_bytes

    def is_low(self) -> bool:
        """Whether fetching can go on after it stopped."""
        return self.records <= self._low_records and self.bytes <= self._low_bytes

    def over_share(self, records: int, size: int, partitions: int) -> bool:
        """Whether one of so many partitions holds more than its equal part."""
        return records * partitions >= self._full_records or size * partitions >= self._full_bytes

    def far_below_share(self, records: int, size: int, partitions: int) -> bool:
        """Whether a partition that was held back has little enough left to go on."""
        return (
            records * partitions <= self._full_records * RELEASE
            and size * partitions <= self._full_bytes * RELEASE
        )

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "open"
        return f"<BufferLimits {state}: {self.records} records, {self.bytes} bytes>"
