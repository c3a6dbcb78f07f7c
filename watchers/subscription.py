"""The subscription watcher: it ends a generation when a pattern matches other topics than before.

It runs on every member that subscribes by pattern, because each member sends the matching topics
when it joins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from kgroup.client.retry import Report
from kgroup.errors import BrokerError, TransportError, short_list
from kgroup.types import Cause, End
from kgroup.watchers.poll_failures import PollFailures


async def subscription_watcher(
    resolve: Callable[[], Awaitable[frozenset[str]]],
    baseline: frozenset[str],
    interval: float,
    report: Report,
) -> End:
    """Resolve the patterns until they match other topics than the baseline.

    Args:
        resolve: returns the topics to which the member subscribes now.
        baseline: the topics with which the member joined.
        interval: the seconds between two polls.
        report: called for a failure, if it is not the same as that of the poll before; a failed
            poll is repeated after the interval.

    Returns:
        the end of the generation.

    Cancellation: at any time.
    """
    suspected = baseline
    failures = PollFailures(report)
    while True:
        await trio.sleep(interval)
        try:
            now = await resolve()
        except (BrokerError, TransportError) as error:
            await failures.failed(error)
            continue
        failures.succeeded()
        # A topic counts as deleted only after two consecutive polls miss it: a broker that has
        # just started may lack metadata.
        if now != baseline and (now - baseline or now == suspected):
            return End(Cause.SUBSCRIPTION_CHANGED, _changes(baseline, now))
        suspected = now


def _changes(before: frozenset[str], now: frozenset[str]) -> str:
    added = short_list(sorted(now - before))
    gone = short_list(sorted(before - now))
    return "; ".join(
        text
        for text in (
            added and f"the patterns now match {added}",
            gone and f"the patterns no longer match {gone}",
        )
        if text
    )
