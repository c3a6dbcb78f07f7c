"""The broker watcher: it keeps the addresses of the cluster's brokers up to date.

The brokers of a cluster can get new addresses one after the other. Only a member that requests
metadata from time to time can follow all of them: one that knows none of the last addresses has
lost the cluster for good, unless a bootstrap server is still there. A leader polls the metadata of
topics anyway; other members may send nothing but heartbeats for weeks, or nothing at all while they
have no generation.

So every member requests the brokers every ``MAX_AGE`` seconds, and once they are suspected: the
coordinator was lost, or the record source has lost a broker. Members of one process share the
request (``kgroup.client.metadata_polls``): their waits end together, and the poll of a leader among
them is enough for all.

Source: Java's ``metadata.max.age.ms``, and its requests after a disconnect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import trio

from kgroup.client.error_policy import POLL_AGAIN, Request, until_next_login
from kgroup.client.retry import Report
from kgroup.errors import BrokerError, TransportError

MAX_AGE: Final = 300.0
"""Seconds between two requests, as in Java's client by default."""
RETRY: Final = 30.0
"""About how many seconds later a failed request is repeated, unless the login was refused."""


async def broker_watcher(
    suspected: Callable[[], Awaitable[object]],
    refresh: Callable[[], Awaitable[object]],
    report: Report,
) -> NoReturn:
    """Refresh the brokers for as long as the member lives.

    Args:
        suspected: waits until the addresses may be outdated.
        refresh: requests the brokers.
        report: called for a failure.

    Cancellation: at any time.
    """
    while True:
        # Until a multiple of the age, so that the members of a process request together.
        with trio.move_on_after(MAX_AGE - trio.current_time() % MAX_AGE):
            await suspected()
        while (error := await _failure(refresh)) is not None:
            report(Request.METADATA, error, POLL_AGAIN)
            # The brokers stay suspected, so only this keeps it from being repeated at once.
            await trio.sleep(_until_together(max(RETRY, until_next_login(error))))


def _until_together(wait: float) -> float:
    """Seconds to that multiple of the wait that is nearest to one wait from now.

    Members whose brokers were suspected at different times then repeat their requests together, and
    a password that was refused is not tried once by each of them.
    """
    left = wait - trio.current_time() % wait
    return left if left >= wait / 2 else left + wait


async def _failure(
    refresh: Callable[[], Awaitable[object]],
) -> BrokerError | TransportError | None:
    try:
        await refresh()
    except (BrokerError, TransportError) as error:
        return error
    return None
