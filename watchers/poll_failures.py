"""What the watchers that poll metadata do about a failed poll."""

from __future__ import annotations

from typing import final

import trio

from kgroup.client.error_policy import POLL_AGAIN, Request, until_next_login
from kgroup.client.retry import Report
from kgroup.errors import BrokerError, TransportError


@final
class PollFailures:
    """The failed polls of one watcher.

    The same failure is not reported again before a poll succeeds: a topic that may not be described
    would otherwise be reported every second.

    Args:
        report: called for a failure.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._reported = ""

    async def failed(self, error: BrokerError | TransportError) -> None:
        """Report it, and wait for as long as no other login may be tried."""
        if str(error) != self._reported:
            self._reported = str(error)
            self._report(Request.METADATA, error, POLL_AGAIN)
        await trio.sleep(until_next_login(error))

    def succeeded(self) -> None:
        """A poll has succeeded."""
        self._reported = ""
