"""Sends a request until the recovery table says something else than to send it again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from kgroup.client.backoff import Backoff
from kgroup.client.error_policy import Action, Reaction, Request, Wait, decide
from kgroup.errors import BrokerError, TransportError

T = TypeVar("T")
Report = Callable[[Request, "BrokerError | TransportError", Reaction], None]
"""Is told of each failure and of what follows."""


async def find_coordinator(
    find: Callable[[], Awaitable[None]], backoff: Backoff, report: Report
) -> None:
    """Look for the coordinator until it is found.

    Raises:
        FatalGroupError: the answer says that it never will be.

    Cancellation: nothing changes.
    """
    while True:
        try:
            return await find()
        except (BrokerError, TransportError) as error:
            reaction = decide(Request.FIND_COORDINATOR, error)
            report(Request.FIND_COORDINATOR, error, reaction)
            if reaction.action is not Action.RETRY:
                raise
            await trio.sleep(backoff.next())


async def until_answered(
    request: Request,
    send: Callable[[], Awaitable[T]],
    *,
    find: Callable[[], Awaitable[None]] | None,
    backoff: Backoff,
    report: Report,
) -> T:
    """Send a request again as long as the table says RETRY; whoever calls bounds the time.

    Args:
        request: the table's row.
        send: sends it once.
        find: looks for the coordinator where the table says so; None where `send` looks for
            whom it asks by itself.
        backoff: the waits between attempts.
        report: is told of each failure.

    Raises:
        BrokerError | TransportError: a failure for which the table says something else.

    Cancellation: as `send`'s own.
    """
    failures = 0
    while True:
        try:
            return await send()
        except (BrokerError, TransportError) as error:
            reaction = decide(request, error)
            report(request, error, reaction)
            if reaction.action is not Action.RETRY:
                raise
            failures += 1
            if must_wait(reaction, failures):
                await trio.sleep(backoff.next())
            if reaction.find and find is not None:
                await find_coordinator(find, backoff, report)


def must_wait(reaction: Reaction, failures: int) -> bool:
    """Whether a reaction asks for a wait, at this many failures in a row."""
    return reaction.wait is Wait.YES or (reaction.wait is Wait.IF_REPEATED and failures > 1)
