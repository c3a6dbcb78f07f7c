"""What waits for records in a ``BufferedSource``: tasks of the event loop, and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, final

import attrs
import trio

from kgroup.interfaces import Batch
from kgroup.types import TopicPartition
from kgroup.worker_thread import post_to


class Waiter(Protocol):
    """A reader that waits."""

    def set(self) -> None:
        """Wake it; called in any thread, and any number of times."""
        ...


class WaitingThread(Waiter, Protocol):
    """A thread that reads, and that waits again and again."""

    def wait(self, timeout: float | None) -> None:
        """Wait until it is woken, perhaps without a reason.

        Raises:
            TimeoutError: that did not happen in time.
            Exception: nothing can wake it any more.
        """
        ...


@final
class WaitingTask:
    """A task that waits once. Made in its event loop."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()

    def set(self) -> None:
        """See ``Waiter``."""
        if threading.get_ident() == self._thread:
            self._event.set()
        else:
            post_to(self._token, self._event.set)

    async def wait(self) -> None:
        """Wait until it is woken.

        Cancellation: at any time.
        """
        await self._event.wait()


@final
@attrs.frozen
class ThreadRead:
    """What a thread reads, and under which condition.

    Attributes:
        epoch: the generation's.
        partitions: those of its stream.
        limit: the most records of a batch.
        may_read: whether records may be handed out; asked just before they are. It must be quick.
        hand_out: called with each batch, before the end of the generation or a seek can begin;
            returns the batch for the program.
        waiter: wakes the thread.
    """

    epoch: int
    partitions: frozenset[TopicPartition]
    limit: int
    may_read: Callable[[], bool]
    hand_out: Callable[[Batch], Batch]
    waiter: WaitingThread
