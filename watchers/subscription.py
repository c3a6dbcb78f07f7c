"""The subscription watcher: ends a generation when a pattern matches other topics than before.

It runs on every member that subscribes by pattern: each joins with the topics that it knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from kgroup.client.error_policy import POLL_AGAIN, Request
from kgroup.client.retry import Report
from kgroup.errors import BrokerError, TransportError
from kgroup.types import Cause, End


async def subscription_watcher(
    resolve: Callable[[], Awaitable[frozenset[str]]],
    baseline: frozenset[str],
    interval: float,
    report: Report,
) -> End:
    """Resolve the patterns again and again, until they match other topics than the baseline.

    Args:
        resolve: the topics that are subscribed to now.
        baseline: those that the member joined with.
        interval: seconds between two looks.
        report: is told of failures; a look that fails is made again an interval later.

    Cancellation: at any time.
    """
    suspected = baseline
    while True:
        await trio.sleep(interval)
        try:
            now = await resolve()
        except (BrokerError, TransportError) as error:
            report(Request.METADATA, error, POLL_AGAIN)
            continue
        # What is gone must be gone twice in a row: a starting broker may not know all topics.
        if now != baseline and (now - baseline or now == suspected):
            return End(Cause.SUBSCRIPTION_CHANGED, _words(baseline, now))
        suspected = now


def _words(before: frozenset[str], now: frozenset[str]) -> str:
    added = ", ".join(sorted(now - before))
    gone = ", ".join(sorted(before - now))
    return "; ".join(
        words for words in (added and f"matches now {added}", gone and f"no more {gone}") if words
    )
