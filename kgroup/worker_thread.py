"""A worker thread for long computations, so that the event loop goes on sending heartbeats.

A thread cannot be cancelled. A cancelled caller stops waiting for it; the thread runs on until its
function returns, and the result is ignored. So that such threads cannot pile up, a `WorkerThread`
starts one only after the one before it has ended. A member has four of them: for its assignor, for
DescribeGroups responses, for large responses, and for its own assignment.

INVARIANT: a `WorkerThread` has at most one thread at a time; it has the name that the caller gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

import trio

T = TypeVar("T")


@final
class WorkerThread:
    """Implements `Compute` with a thread that runs one function at a time.

    The interpreter does not wait for the thread when it exits.
    """

    def __init__(self) -> None:
        # Trio returns the token only when the thread has ended, even if its caller was cancelled.
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """See `Compute`."""
        return await trio.to_thread.run_sync(
            work, thread_name=name, abandon_on_cancel=True, limiter=self._limiter
        )


async def compute_inline(work: Callable[[], T], name: str) -> T:
    """Implements `Compute` in the event loop, which is blocked meanwhile.

    For tests in virtual time: beside a thread, the virtual clock would go on.
    """
    del name
    await trio.lowlevel.checkpoint()
    return work()
