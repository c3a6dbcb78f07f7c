"""The processing watcher: it ends a generation if a handler holds one batch for too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from kgroup.types import Cause, End


async def processing_watcher(held: Callable[[], Iterable[float]], limit: float) -> End:
    """Wait until a handler has held a batch for longer than the limit.

    Args:
        held: returns, for each open stream, for how many seconds its handler has had its batch.
        limit: the longest allowed time, in seconds.

    Returns:
        the end of the generation.

    Cancellation: at any time.

    Source: Kafka's ``max.poll.interval.ms`` (KIP-62).
    """
    while True:
        longest = max(held(), default=0.0)
        if longest > limit:
            return End(
                Cause.PROCESSING_STUCK,
                f"a handler has held a batch for {longest:.1f} s, longer than max_processing_time"
                f" ({limit:g} s); give records(), run() or serve() a smaller max_records, or the"
                " group a longer max_processing_time",
            )
        await trio.sleep(max(limit - longest, limit / 10))
