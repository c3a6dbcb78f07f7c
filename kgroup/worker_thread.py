"""Where an assignment is computed: beside the event loop, so that heartbeats go on meanwhile.

A thread cannot be cancelled. Who waits for one can give up; the thread then computes on until what
it calls returns, and what that returns or raises is nobody's any more. So that a program does not
gather such threads, one ends before the next begins: a member has one thread for its assignor, one
for what the coordinator says about the group, one for reading large answers, and one for what it
was assigned.

INVARIANT: at most one thread at a time; it carries the name that its caller gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

import trio

T = TypeVar("T")


@final
class WorkerThread:
    """Computes in a thread, one thing at a time; see `Compute`.

    An interpreter that exits does not wait for the thread.
    """

    def __init__(self) -> None:
        # Trio gives its token back when the thread has ended, also one that was given up.
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """See `Compute`."""
        return await trio.to_thread.run_sync(
            work, thread_name=name, abandon_on_cancel=True, limiter=self._limiter
        )


async def compute_inline(work: Callable[[], T], name: str) -> T:
    """Compute in the event loop, which stands still meanwhile: for tests in virtual time.

    Its clock would run on beside a thread.
    """
    del name
    await trio.lowlevel.checkpoint()
    return work()
