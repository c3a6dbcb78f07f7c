"""The subscription watcher: patterns that match other topics than before."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import Reaction, Request
from kgroup.errors import BrokerError, ConnectionLostError, TransportError
from kgroup.types import Cause
from kgroup.watchers.subscription import subscription_watcher

GONE = ConnectionLostError("gone")


@pytest.mark.parametrize(
    ("looks", "made", "words"),
    [
        (["ab", "abc"], 2, "the patterns now match c"),
        (["a", "a"], 2, "the patterns no longer match b"),
        # A topic counts as deleted only after two polls in a row miss it.
        (["a", "ab", "a", "b", "b"], 5, "the patterns no longer match a"),
        (["ac"], 1, "the patterns now match c; the patterns no longer match b"),
        (["", ""], 2, "the patterns no longer match a, b"),
        ([GONE, "a", GONE, "a"], 4, "the patterns no longer match b"),
    ],
)
async def test_changed_matches_end_the_generation(
    autojump_clock: MockClock, looks: list[str | Exception], made: int, words: str
) -> None:
    """A new match counts at once, a lost one after two polls; failures are reported and skipped."""
    left = list(looks)
    reports: list[Request] = []

    async def resolve() -> frozenset[str]:
        await trio.lowlevel.checkpoint()
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return frozenset(found)

    def report(request: Request, error: BrokerError | TransportError, reaction: Reaction) -> None:
        del error, reaction
        reports.append(request)

    before = trio.current_time()
    end = await subscription_watcher(resolve, frozenset("ab"), 5.0, report)
    assert end.cause is Cause.SUBSCRIPTION_CHANGED
    assert end.detail == words
    assert len(looks) - len(left) == made
    assert trio.current_time() - before == pytest.approx(5 * made)
    assert reports == [Request.METADATA] * looks.count(GONE)
