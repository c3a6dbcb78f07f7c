"""Sends a request again for as long as the error policy says RETRY."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from kgroup.client.backoff import Backoff
from kgroup.client.error_policy import Action, Reaction, Request, Wait, reaction_to
from kgroup.errors import BrokerError, TransportError

T = TypeVar("T")
Report = Callable[[Request, "BrokerError | TransportError", Reaction], None]
"""A function that is called for each failure, with the reaction to it."""


async def find_coordinator(
    find: Callable[[], Awaitable[None]], backoff: Backoff, report: Report
) -> None:
    """Look up the coordinator until it is found.

    Raises:
        FatalGroupError: the error policy says that a retry cannot help.

    Cancellation: nothing changes.
    """
    while True:
        try:
            return await find()
        except (BrokerError, TransportError) as error:
            reaction = reaction_to(Request.FIND_COORDINATOR, error)
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
    """Send a request until it succeeds, or the error policy does not say RETRY.

    It has no deadline of its own.

    Args:
        request: the request, for the error policy.
        send: sends the request once.
        find: looks up the coordinator if the error policy says so; None if `send` itself finds the
            broker.
        backoff: the waits between attempts.
        report: called for each failure.

    Returns:
        what `send` returns.

    Raises:
        BrokerError | TransportError: a failure for which the error policy does not say RETRY.

    Cancellation: that of `send`.
    """
    failures = 0
    while True:
        try:
            return await send()
        except (BrokerError, TransportError) as error:
            reaction = reaction_to(request, error)
            report(request, error, reaction)
            if reaction.action is not Action.RETRY:
                raise
            failures += 1
            if must_wait(reaction, failures):
                await trio.sleep(backoff.next())
            if reaction.find and find is not None:
                await find_coordinator(find, backoff, report)


def must_wait(reaction: Reaction, failures: int) -> bool:
    """Whether a reaction says to wait after so many failures in a row."""
    return reaction.wait is Wait.YES or (reaction.wait is Wait.IF_REPEATED and failures > 1)
