"""The processing watcher: ends a generation whose handler is stuck in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from kgroup.types import Cause, End


async def processing_watcher(held: Callable[[], Iterable[float]], limit: float) -> End:
    """Wait until some batch has been held for longer than the limit.

    Args:
        held: for each open stream the seconds for which its handler has had the last batch.
        limit: seconds.

    Cancellation: at any time.

    Source: Kafka's ``max.poll.interval.ms`` (KIP-62).
    """
    while True:
        longest = max(held(), default=0.0)
        if longest > limit:
            return End(
                Cause.PROCESSING_STUCK,
                f"a batch has been held for {longest:.1f} s, longer than max_processing_time"
                f" ({limit:g} s)",
            )
        await trio.sleep(max(limit - longest, limit / 10))
